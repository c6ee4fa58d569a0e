"""The groups at work on this node: their subscriptions, made on first use.

A subscription is what a group holds of one topic: leases, and receives that wait. Where one begins
and how far it has come is `CommittedOffsets`' to say. Event loop only.
"""

import asyncio
from collections.abc import Callable, Hashable, Sequence
from typing import Final

from app.broker.context import Context
from app.broker.groups.committed_offsets import CommittedOffsets
from app.broker.groups.group_notifier import GroupNotifier
from app.broker.journal.append_future import AppendFuture
from app.broker.leasing.epochs import LeaseIds
from app.broker.leasing.holders import InFlight
from app.broker.leasing.remains import Remains
from app.broker.leasing.subscriptions import LeasedQueue, Subscription
from app.broker.lifecycle.lifecycle import Lifecycle
from app.broker.ports import Group, Topic
from app.broker.progress.progress_entries import Key
from app.broker.progress.queue_state import QueueState
from app.broker.results import QueuePosition
from app.broker.row_faults import RowFaults
from app.broker.topic_lookup import check_current
from app.domain.changes.conditions import Terms
from app.domain.changes.effects import GroupFacts
from app.domain.errors import GroupNotFound
from app.domain.handles.receipt import RETRY_QUEUE_ID
from app.domain.names import check_group, did_you_mean, retry_topic, suggest_similar
from app.domain.positions import CommittedOffset, FlushMode
from app.domain.settings import DeliveryOrder

QUEUES_A_TURN: Final = 4_096
"""Queues of subscriptions whose leases one turn looks at; some milliseconds."""


class Groups:
    """Subscriptions by group and topic. One per broker."""

    def __init__(self, context: Context, offsets: CommittedOffsets, lifecycle: Lifecycle) -> None:
        self.notifier = GroupNotifier(context.limits.waiters_max)
        """Heartbeats and polls that wait for a change of their group."""
        self.lease_ids = LeaseIds()
        """Of the epoch that `Epochs.begin` begins."""
        self.offsets = offsets
        self.offset_cache = offsets.cache
        """Committed offsets, on their way to SQL."""
        self.consumer_journal = offsets.journal
        """How far the groups are, in the log."""
        self._store = context.store
        self._metadata = context.metadata
        self._lifecycle = lifecycle
        self._made_by_use = context.made_by_use
        self._subscriptions: dict[str, dict[str, Subscription]] = {}
        """Group → topic → subscription."""
        self._in_flight: dict[str, InFlight] = {}
        self._remains = Remains()
        self._followed = context.metadata.snapshot
        """The settings that parked receives have seen."""
        self.faults = RowFaults("failed deliveries")
        """Subscriptions, by group and topic, whose failed deliveries cannot be dealt with."""

    def find(self, group: str, topic: str) -> Subscription | None:
        topics = self._subscriptions.get(group)
        return None if topics is None else topics.get(topic)

    def find_or_stand_in(self, group: str, topic: str) -> Subscription:
        """The group's subscription; without one, an empty stand-in where every handle of the two
        has expired. Settling begins nothing: only a receive does."""
        subscription = self.find(group, topic)
        if subscription is not None:
            return subscription
        in_flight = InFlight()
        key = (group, topic, RETRY_QUEUE_ID)
        retry = LeasedQueue(*key, QueueState(0), in_flight, self.lease_ids.next)
        return Subscription(group, topic, retry, in_flight, self._store.store_id)

    async def find_or_create_group(self, name: str) -> Group:
        """A group is made by its first use, with the defaults, where the configuration allows it;
        else `GroupNotFound`."""
        group = self._metadata.snapshot.groups.get(name)
        if group is None:
            self.check_may_make(name)
            group = await self._lifecycle.ensure_group(name)
        return group

    async def find_or_preview_group(self, name: str) -> Group:
        """As `find_or_create_group`; it would be made, and is not."""
        group = self._metadata.snapshot.groups.get(name)
        if group is None:
            self.check_may_make(name)
            changed = await self._lifecycle.change_group(name, {}, Terms(is_dry_run=True))
            group = changed.after
        return group

    def check_may_make(self, name: str) -> None:
        """Raise `GroupNotFound` when nobody may make the group by using it."""
        check_group(name)
        if self._made_by_use.groups or name in self._metadata.snapshot.groups:
            return
        make = f"make it with PUT /v1/groups/{name}"
        error = GroupNotFound(
            f"consumer group {name!r} does not exist, and using it does not make it", hint=make
        )
        known = self._metadata.snapshot.groups
        raise suggest_similar(
            error, "group", name, known, lambda similar: f"{did_you_mean(similar)} Or {make}"
        )

    async def subscribe(self, group: Group, topic: Topic, *, is_read: bool = True) -> Subscription:
        """The group's subscription, made if this is its first use. Without `is_read` nothing may be
        delivered of it: it may not be written down yet where the group began.

        Raises `TopicNotFound` or `GroupNotFound` when one was deleted since it was looked up.
        """
        if self.offsets.deleting:
            await self.offsets.until_deleted(group.name, topic.name)
        check_current(self._metadata, topic, group)
        subscription = self.find(group.name, topic.name)
        if subscription is not None and subscription.is_ordered != _is_ordered(group):
            self._drop(group.name, topic.name)  # the setting has changed: all leases end
            subscription = None
        if subscription is None:
            offsets = await self.offsets.start_offsets(group, topic)
            check_current(self._metadata, topic, group)
            # Another first use may have been quicker while this one read.
            subscription = self.find(group.name, topic.name)
            if subscription is None:
                self.offsets.check_room(group, topic)
                subscription = self._make(group, topic, offsets)
        if len(subscription.queues) < topic.queues:
            added = range(len(subscription.queues), topic.queues)
            firsts = {queue: self._store.bounds(topic.name, queue).min_offset for queue in added}
            placed = self.offsets.place(group.name, topic.name, firsts)
            subscription.placed = placed or subscription.placed
            self._add_queues(subscription, len(added))
        if is_read and subscription.placed is not None:
            await self._wait_until_placed(subscription)
        return subscription

    async def _wait_until_placed(self, subscription: Subscription) -> None:
        """Nothing is delivered before it is written down where the group began."""
        placed = subscription.placed
        assert placed is not None
        if placed.has_failed:  # the disk was full
            rows = [(*queue.key[1:], queue.committed) for queue in subscription.sources]
            placed = self.consumer_journal.skip(subscription.group, rows, FlushMode.ASYNC)
            subscription.placed = placed
        await placed.wait()
        if subscription.placed is placed:
            subscription.placed = None

    def _make(self, group: Group, topic: Topic, offsets: Sequence[int]) -> Subscription:
        in_flight = self._in_flight.setdefault(group.name, InFlight())
        key = (group.name, topic.name, RETRY_QUEUE_ID)
        self.consumer_journal.bind(group, topic)
        first = self._store.bounds(retry_topic(group.name, topic.name), 0).min_offset
        placed = self.offsets.place(
            group.name, topic.name, {RETRY_QUEUE_ID: first, **dict(enumerate(offsets))}
        )
        retry = LeasedQueue(
            *key,
            self.consumer_journal.queue(key),
            in_flight,
            self.lease_ids.next,
            is_ordered=_is_ordered(group),
        )
        subscription = Subscription(group.name, topic.name, retry, in_flight, self._store.store_id)
        subscription.generations = group.generation, topic.generation
        subscription.placed = placed
        self._add_queues(subscription, len(offsets))
        self._subscriptions.setdefault(group.name, {})[topic.name] = subscription
        return subscription

    def _add_queues(self, subscription: Subscription, count: int) -> None:
        group, topic, first = subscription.group, subscription.topic, len(subscription.queues)
        for queue_id in range(first, first + count):
            key = (group, topic, queue_id)
            state = self.consumer_journal.queue(key)
            queue = LeasedQueue(
                *key,
                state,
                subscription.in_flight,
                self.lease_ids.next,
                is_ordered=subscription.is_ordered,
            )
            subscription.add(queue)
            if not state.moves:  # else the log may refuse where it stands
                self.offset_cache.advance(key, queue.committed)

    # --- offsets that move under subscriptions

    def commit(self, group: Group, topic: Topic, rows: Sequence[QueuePosition]) -> AppendFuture:
        """As `CommittedOffsets.commit`; leases below the offsets end."""
        written = self.offsets.commit(group, topic, rows, self._not_moved)
        subscription = self.find(group.name, topic.name)
        if subscription is not None:
            for queue_id, _ in rows:
                if queue_id < len(subscription.queues):
                    subscription.queues[queue_id].follow()
            self.wake_all(group.name)
        return written

    async def begin_again(self, group: str, rows: Sequence[CommittedOffset]) -> None:
        """Set offsets in the log, drop what is leased there, go on. No offset is changed when the
        log does not take it; handles are void all the same, and what they held comes again."""
        written = self.offsets.reset(group, rows, self._not_moved)
        for row in rows:
            subscription = self.find(group, row.topic)
            if subscription is not None and row.queue_id < len(subscription.queues):
                subscription.queues[row.queue_id].start_over(self.lease_ids.next)
        self.wake_all(group)
        await written.wait()

    def _not_moved(self, key: Key) -> None:
        """The log has refused a commit or a reset of the queue."""
        group, topic, queue_id = key
        subscription = self.find(group, topic)
        if subscription is None:
            return
        if self.consumer_journal.find(key) is None:  # where the group begins is decided anew
            self._drop(group, topic)
        elif queue_id < len(subscription.queues):
            subscription.queues[queue_id].start_over(self.lease_ids.next)
            subscription.line.wake_one()

    async def unsubscribe(self, group: str, topic: str, check: Callable[[], object]) -> None:
        """Forget what the group has done in the topic; what is leased is void. `check` raises when
        it is a successor that has these names by now."""
        await self.offsets.until_deleted(group, topic)
        check()
        written = self.offsets.delete(group, topic)
        self._drop(group, topic)
        await written.wait()

    def end_leases(self, group: str, topic: str) -> None:
        """Others read the topic by offset now: handles are void, what is not done stays so."""
        subscription = self._drop(group, topic)
        if subscription is not None:
            self.tell_of_room(subscription.in_flight, group)

    # --- who is at work

    def facts(self, group: str) -> GroupFacts:
        """The group at work on this node, for who changes it."""
        topics = self._subscriptions.get(group, {})
        in_flight = self._in_flight.get(group, InFlight())
        return GroupFacts(
            leases=sum(subscription.leased_count for subscription in topics.values()),
            in_flight=in_flight.count,
            waiting=sum(subscription.line.count for subscription in topics.values()),
            topics=len({*topics, *self.offset_cache.topics(group)}),
            holders=tuple(holder.count for holder in in_flight.holders.values()),
        )

    def busy_in_topic(self, topic: str) -> tuple[int, int]:
        """Messages of the topic that clients hold, and receives that wait for more."""
        found = [topics[topic] for topics in self._subscriptions.values() if topic in topics]
        return sum(each.leased_count for each in found), sum(each.line.count for each in found)

    # --- waking and forgetting

    def wake_all(self, group: str) -> None:
        """Let one parked receive of each topic of the group look again."""
        for subscription in self._subscriptions.get(group, {}).values():
            subscription.line.wake_one()

    def wake_everybody(self, group: str) -> None:
        """Let all parked receives and polls of the group look again: what they may take has
        changed."""
        self.notifier.ring(group)
        for subscription in self._subscriptions.get(group, {}).values():
            subscription.line.wake_everybody()

    def follow_settings(self) -> None:
        """Let parked receives of changed groups look again. A change that was made here has woken
        them at once; one of another node shows in the metadata. Costs a comparison when there is
        none."""
        before, now = self._followed, self._metadata.snapshot
        if before is now:
            return
        self._followed = now
        for group in {*self._subscriptions, *self.notifier.groups}:
            if before.groups.get(group) != now.groups.get(group):
                self.wake_everybody(group)
        if before.subscriptions is not now.subscriptions:
            pairs = before.subscriptions.items() ^ now.subscriptions.items()
            for group in {name for (name, _), _ in pairs}:
                self.wake_everybody(group)

    def tell_of_room(self, in_flight: InFlight, group: str) -> None:
        """The group holds fewer messages than before: whoever got too few looks again."""
        if in_flight.has_refused_member:
            # Who was refused as a member is not the one that waits longest.
            in_flight.has_refused = in_flight.has_refused_member = False
            self.wake_everybody(group)
        if in_flight.has_refused:
            in_flight.has_refused = False
            self.wake_all(group)

    def expire_group(self, group: str, now_s: float) -> None:
        """Return what has run out on any topic of the group, to make room in it."""
        for subscription in self._subscriptions.get(group, {}).values():
            count = subscription.in_flight.count
            subscription.expire(now_s)
            if subscription.in_flight.count < count:
                self.tell_of_room(subscription.in_flight, group)

    async def expire(self, now_s: float) -> list[Subscription]:
        """Notice leases and delays that have ended; wake parked receives for what is ready. What
        holds much is gone through in several turns.

        Returns the subscriptions in which deliveries have failed.
        """
        failing: list[Subscription] = []
        broken: set[Hashable] = set()
        looked = 0
        known = [each for topics in self._subscriptions.values() for each in topics.values()]
        for subscription in known:
            try:
                self._expire(subscription, now_s)
            except Exception as error:  # noqa: BLE001 - the others expire all the same
                row = "leases", subscription.group, subscription.topic
                broken.add(row)
                self.faults.note(row, error)
            if not subscription.in_flight.count:
                continue
            if any(queue.leases.has_failing for queue in subscription.sources):
                failing.append(subscription)
            looked += len(subscription.sources)
            if looked >= QUEUES_A_TURN:
                looked = 0
                await asyncio.sleep(0)
        if self.faults.count:
            self.faults.keep_only({*broken, *(each.row for each in failing)})
        return failing

    def _expire(self, subscription: Subscription, now_s: float) -> None:
        waits = not subscription.line.is_empty
        if waits and subscription.in_flight.has_refused:
            self.expire_group(subscription.group, now_s)
        if (waits or subscription.in_flight.count) and subscription.expire(now_s):
            subscription.line.wake_one()

    def _drop(self, group: str, topic: str) -> Subscription | None:
        """The group's subscription to the topic is no more, nor are its leases."""
        subscription = self._subscriptions.get(group, {}).pop(topic, None)
        if subscription is not None:
            self._close(subscription)
        return subscription

    def _close(self, subscription: Subscription) -> None:
        """It is no more. What its clients are counted to hold is let go within some turns."""
        in_flight, group = subscription.in_flight, subscription.group
        self._remains.take(subscription.close(), lambda: self.tell_of_room(in_flight, group))

    def forget(self, *, topic: str | None = None, group: str | None = None) -> None:
        """Drop the subscriptions of a topic or a group that was deleted."""
        gone = list(self._subscriptions.pop(group, {}).values()) if group is not None else []
        if topic is not None:
            for topics in self._subscriptions.values():
                if topic in topics:
                    gone.append(topics.pop(topic))
        for subscription in gone:
            self._close(subscription)
        if group is not None:
            self._in_flight.pop(group, None)
        for retried_group, retried_topic in self.consumer_journal.retried():
            if retried_group == group or retried_topic == topic:
                self.consumer_journal.delete_retries(retried_group, retried_topic)
        self.consumer_journal.forget(topic=topic, group=group)
        self.offset_cache.forget(topic=topic, group=group)


def _is_ordered(group: Group) -> bool:
    return group.order is DeliveryOrder.FIFO
