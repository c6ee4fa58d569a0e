"""Blocked keys of groups in order: listing and releasing them. The API says "parked".

A message that has used up its delivery attempts blocks its sharding key when the group's setting is
`on_exhausted: park`. No message of the key is delivered until an operator releases that message.
Event loop only.
"""

from enum import StrEnum
from typing import NamedTuple

from app.broker.context import Context
from app.broker.failures.failed_deliveries import FailedDeliveries, FailedDelivery
from app.broker.groups.groups import Groups
from app.broker.leasing.retry_policy import Failure
from app.broker.leasing.subscriptions import LeasedQueue, Subscription
from app.broker.ports import Group
from app.broker.progress.progress_entries import ParkedMessage
from app.broker.topic_lookup import find_topic
from app.domain.errors import CurlewError, GroupNotFound, MessageNotFound
from app.domain.names import check_group


class Release(StrEnum):
    """What becomes of a parked message."""

    RETRY = "retry"
    """It is delivered again, its attempts counted anew."""
    SKIP = "skip"
    """It is done."""
    DEAD_LETTER = "dead_letter"


class BlockedKey(NamedTuple):
    """A blocked key, and the message that blocks it."""

    topic: str
    queue_id: int
    message: ParkedMessage


class BlockedKeys:
    """One per broker."""

    def __init__(self, context: Context, groups: Groups, retries: FailedDeliveries) -> None:
        self._metadata = context.metadata
        self._groups = groups
        self._consumer_journal = groups.consumer_journal
        self._retries = retries

    def parked(self, group: str) -> list[BlockedKey]:
        """The group's parked keys, by topic, queue and offset. Raises `GroupNotFound`."""
        self._find(group)
        return sorted(
            [
                BlockedKey(topic, queue_id, message)
                for topic, queue_id, state in self._consumer_journal.of_group(group)
                for message in state.parked.values()
            ],
            key=lambda key: (key.topic, key.queue_id, key.message.offset),
        )

    async def release(
        self,
        group: str,
        topic: str,
        queue_id: int,
        offset: int,
        how: Release,
        *,
        is_dry_run: bool = False,
    ) -> BlockedKey:
        """Unblock a key; return when that is written down.

        Raises `GroupNotFound`, `TopicNotFound`, or `MessageNotFound` when nothing is parked there.
        """
        settings = self._find(group)
        view = find_topic(self._metadata, topic)
        state = self._consumer_journal.find((group, topic, queue_id))
        message = None if state is None else state.parked.get(offset)
        if message is None:
            raise _not_parked(group, queue_id, offset)
        if is_dry_run:
            self._check_unmoved(group, topic, queue_id, offset)
            return BlockedKey(topic, queue_id, message)
        subscription = await self._groups.subscribe(settings, view)
        queue = subscription.find(queue_id)
        assert queue is not None, "a topic never loses queues"
        if offset not in queue.state.parked or queue.leases.state_of(offset) is not None:
            raise _not_parked(group, queue_id, offset)  # another call was quicker
        if how is Release.RETRY:
            await self._retries.release(subscription, queue, message)
        else:
            if not queue.leases.is_parked(offset):  # nobody has looked since a restart
                queue.leases.park_unseen(offset, message.attempts)
            await self._give_up(subscription, settings, queue, offset, how)
        subscription.line.wake_one()
        return BlockedKey(topic, queue_id, message)

    def _check_unmoved(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Raise when another call is about to release it."""
        subscription = self._groups.find(group, topic)
        queue = None if subscription is None else subscription.find(queue_id)
        if queue is not None and queue.leases.state_of(offset) is not None:
            raise _not_parked(group, queue_id, offset)

    async def _give_up(
        self,
        subscription: Subscription,
        group: Group,
        queue: LeasedQueue,
        offset: int,
        how: Release,
    ) -> None:
        lease = queue.leases.move_parked(offset, Failure("released by an operator", is_final=True))
        item = FailedDelivery(queue, offset, lease)
        if how is Release.SKIP:
            try:
                await self._retries.skip(subscription, item)
            except CurlewError:
                if queue.leases.is_moving(offset, lease):
                    queue.leases.park(offset)  # nothing was written
                raise
        else:
            await self._retries.deal_with(subscription, group, [item])

    def _find(self, name: str) -> Group:
        group = self._metadata.snapshot.groups.get(name)
        if group is None:
            check_group(name)
            raise GroupNotFound(
                f"consumer group {name!r} does not exist", hint="see GET /v1/groups"
            )
        return group


def _not_parked(group: str, queue_id: int, offset: int) -> MessageNotFound:
    return MessageNotFound(
        f"no message is parked at offset {offset} of queue {queue_id}",
        hint=f"see GET /v1/groups/{group}/parked",
    )
