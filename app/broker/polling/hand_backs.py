"""Handing back messages that a member has read by offset and could not deal with.

A message goes to the group's retries of the topic, or to its dead letters, as after a failed
delivery; the copy and the entry that the original is done are one step in the log. So the committed
offset may pass it, and a crash leaves both or neither. The read was its first delivery: retries are
counted on from there. Event loop only.
"""

from collections.abc import Sequence

from app.broker.context import Context
from app.broker.failures.failed_deliveries import FailedDeliveries, FailedDelivery
from app.broker.groups.groups import Groups
from app.broker.leasing.retry_policy import NACKED_REASON, REJECTED_REASON, Failure
from app.broker.leasing.subscriptions import LeasedQueue, Subscription
from app.broker.polling.poll_values import HandBack, Refused
from app.broker.ports import Group
from app.broker.topic_lookup import check_here, find_topic
from app.domain.errors import (
    CurlewError,
    IllegalInvisibleTime,
    OffsetExpired,
    OffsetOutOfRange,
    StateConflict,
)
from app.domain.limits import REASON_BYTES_MAX


class HandBacks:
    """One per broker."""

    def __init__(self, context: Context, groups: Groups, failures: FailedDeliveries) -> None:
        self._store = context.store
        self._metadata = context.metadata
        self._limits = context.limits
        self._groups = groups
        self._failures = failures

    async def take(self, group: Group, topic: str, items: Sequence[HandBack]) -> list[Refused]:
        """Hand back messages of one topic, whose queues the member owns; what was refused."""
        try:
            view = find_topic(self._metadata, topic)
            for item in items:
                check_here(view, item.queue.queue_id)
            subscription = await self._groups.subscribe(group, view)
        except CurlewError as error:
            return [Refused(item.queue, item.queue_offset, error) for item in items]
        return await self._take(group, subscription, items)

    async def _take(
        self, group: Group, subscription: Subscription, items: Sequence[HandBack]
    ) -> list[Refused]:
        moving: list[tuple[HandBack, FailedDelivery]] = []
        refused: list[Refused] = []
        for item in items:
            queue = subscription.queues[item.queue.queue_id]
            try:
                failure = self._failure_of(item, is_ordered=subscription.is_ordered)
                self._check(queue, item.queue_offset)
            except CurlewError as error:
                is_over = isinstance(error, OffsetExpired)
                is_over |= queue.progress.is_acked(item.queue_offset)
                refused.append(Refused(item.queue, item.queue_offset, error, is_over))
                continue
            attempt = queue.state.deliveries.get(item.queue_offset, 0) + 1
            lease = queue.leases.hand_back(item.queue_offset, attempt, failure)
            moving.append((item, FailedDelivery(queue, item.queue_offset, lease)))
        fault: CurlewError | None = None
        try:
            await self._failures.deal_with(subscription, group, [each for _, each in moving])
        except CurlewError as error:
            fault = error
        for item, (queue, offset, lease) in moving:
            if not queue.progress.is_acked(offset):
                queue.leases.forget_failing(offset, lease)
                refused.append(Refused(item.queue, offset, fault or _done(offset)))
        for queue in {each.queue for _, each in moving}:
            queue.pass_done()
        self._groups.tell_of_room(subscription.in_flight, subscription.group)
        return refused

    def _failure_of(self, item: HandBack, *, is_ordered: bool) -> Failure:
        reason = None if item.reason is None else item.reason[:REASON_BYTES_MAX]
        if item.is_dead_letter:
            return Failure(reason or REJECTED_REASON, is_final=True)
        if is_ordered:
            raise StateConflict(
                "a group in order hands no message back: those behind it would overtake it",
                hint="try it again in the client, or hand it back with dead_letter",
            )
        most = self._limits.delay_ms_max
        if item.delay_ms is not None and not 0 <= item.delay_ms <= most:
            raise IllegalInvisibleTime(
                f"a delay of {item.delay_ms} ms is not possible",
                hint=f"from 0 to {most} ms",
                fields={"max_ms": most},
            )
        return Failure(reason or NACKED_REASON, item.delay_ms)

    def _check(self, queue: LeasedQueue, offset: int) -> None:
        low, high = self._store.bounds(queue.stored_topic, queue.stored_queue_id)
        fields = {"min_offset": low, "max_offset": high}
        if offset >= high:
            raise OffsetOutOfRange(
                f"offset {offset} is beyond the end, {high}",
                hint="hand back what was read",
                fields=fields,
            )
        if offset < low:
            raise OffsetExpired(
                f"offset {offset} is gone; the first one is {low}",
                hint="the message is past the topic's retention",
                fields=fields,
            )
        if queue.progress.is_acked(offset) or queue.leases.state_of(offset) is not None:
            raise _done(offset)


def _done(offset: int) -> StateConflict:
    return StateConflict(
        f"offset {offset} is done: it was committed or handed back before",
        hint="hand a message back before the commit that passes it, or with it",
    )
