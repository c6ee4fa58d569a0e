"""How far a group is behind, and where one message stands: numbers that are true or not given.

Counts are of messages that are not done for the group: ready (a receive would get them), in flight
(leased, or their failure is being dealt with), retrying (the same, of the retry topic), delayed
(they wait for their time) and dead. Acks out of order are counted exactly. A filter is not known
before messages are looked at, so ready may hold some that it will leave out. Event loop only.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from app.broker.context import Context
from app.broker.delays.delay_delivery import DelayDelivery
from app.broker.failures.dead_letter_admin import DeadLetters
from app.broker.groups.groups import Groups
from app.broker.journal.cold_reads import ColdReads
from app.broker.leasing.subscriptions import LeasedQueue, Subscription
from app.broker.ports import Metadata
from app.broker.progress.queue_state import QueueState
from app.broker.topic_lookup import find_topic
from app.domain.access.standing import Visible, every
from app.domain.errors import GroupNotFound, ShardUnavailable
from app.domain.handles.receipt import RETRY_QUEUE_ID
from app.domain.names import check_group, did_you_mean, retry_topic, suggest_similar

NOT_BEGUN: Final = "the group has not begun this queue"
QUEUES_A_TURN: Final = 128
"""Queues that one turn of the event loop counts; some milliseconds."""

QUEUES_KEPT_A_SECOND: Final = 250
"""A sum over so many queues is shown for a second, one over more for longer in proportion: so who
looks all the time costs less than half a hundredth of a core. Of fewer it is always counted."""
KEPT_S_MAX: Final = 60.0

_NOWHERE: Final[Mapping[str, bool]] = {}
DAMAGED: Final = "the oldest message of it cannot be read"


class QueueLag(NamedTuple):
    """One queue of a topic for a group; None where it is not known, and `reason` says why."""

    queue_id: int
    min_offset: int
    max_offset: int
    committed_offset: int | None
    ready: int | None
    in_flight: int
    delayed: int
    """They wait in their place for the next attempt, or parked for their release (ordered
    groups)."""
    expired: int
    """Not done, and past the topic's retention."""
    oldest_ms: int | None
    """When the oldest message that is not done was stored; None also when all are done."""
    reason: str | None


class TopicLag(NamedTuple):
    """One topic for a group: its queues, and what has failed and comes again."""

    topic: str
    queues: list[QueueLag]
    ready: int | None
    in_flight: int
    retrying: int
    retrying_in_flight: int
    delayed: int
    oldest_ms: int | None


class GroupLag(NamedTuple):
    """A group: its topics, their sums, and its dead letters. `ready` None: see the queues."""

    group: str
    topics: list[TopicLag]
    ready: int | None
    in_flight: int
    retrying: int
    delayed: int
    dead: int
    oldest_ms: int | None


class PairLag(NamedTuple):
    """A group in a topic as gauges show it; times are None when nothing is there, or not looked
    for."""

    group: str
    topic: str
    ready: int
    in_flight: int
    oldest_ms: int | None = None
    """Store time of the oldest message that is not done."""
    oldest_ready_ms: int | None = None
    """The same, of those that nobody holds."""

    @property
    def lag(self) -> int:
        return self.ready + self.in_flight


class _Count(NamedTuple):
    """Messages of one queue that are not done."""

    ready: int
    in_flight: int
    delayed: int
    expired: int
    first_open: int | None


class LagReader:
    """Counts for all groups. One per broker."""

    def __init__(
        self, context: Context, groups: Groups, delays: DelayDelivery, dead_letters: DeadLetters
    ) -> None:
        self._store = context.store
        self._metadata = context.metadata
        self._clock = context.clock
        self._groups = groups
        self._consumer_journal = groups.consumer_journal
        self._offset_cache = groups.offset_cache
        self._delays = delays
        self._dead_letters = dead_letters
        self._readers = context.readers
        self._kept_lag = 0
        self._kept_until_s = float("-inf")

    async def lag_of_all(self) -> int:
        """Of all groups together; with thousands of queues as of some seconds ago."""
        now_s = self._clock.monotonic_s()
        if now_s >= self._kept_until_s:
            counted, queues = await self._counted_pairs()
            kept_s = min(queues / QUEUES_KEPT_A_SECOND, KEPT_S_MAX)
            self._kept_lag = sum(each.lag for each in counted)
            self._kept_until_s = now_s + (kept_s if kept_s >= 1 else 0)
        return self._kept_lag

    async def group_lag(
        self,
        group: str,
        *,
        topic: str | None = None,
        visible: Visible = every,
        begun: Mapping[str, bool] = _NOWHERE,
    ) -> GroupLag:
        """All topics in which the group has begun, or one; of those that are visible. `begun`:
        topics in which it has in another shard, and whether it leases them. What it leases it
        begins in all shards: its queues here count from where it would begin. Raises
        `GroupNotFound`."""
        check_known_group(self._metadata, group)
        if topic is not None:
            find_topic(self._metadata, topic)
        await self._delays.catch_up()
        if topic is not None:
            return await self._group_lag(group, [topic], begun)
        names = {*self._topics_of(group), *begun}
        return await self._group_lag(group, self._seen(names, visible), begun)

    async def group_lags(
        self, groups: Sequence[str], *, visible: Visible = every
    ) -> list[GroupLag]:
        """What `group_lag` says of each, in their order, without groups that are gone. One look at
        what waits for its time, then at least a turn of the event loop for each group."""
        await self._delays.catch_up()
        found: list[GroupLag] = []
        begun = self._topics_of_all()
        for group in groups:
            await asyncio.sleep(0)
            if group in self._metadata.snapshot.groups:
                names = self._seen(begun.get(group, ()), visible)
                found.append(await self._group_lag(group, names))
        return found

    def _seen(self, names: Collection[str], visible: Visible) -> Iterator[str]:
        """Those that are there and visible, by name; each is looked for when it is asked for."""
        for name in sorted(names):
            if name in self._metadata.snapshot.topics and visible(name):
                yield name

    async def _group_lag(
        self,
        group: str,
        names: Iterable[str],
        begun: Mapping[str, bool] = _NOWHERE,
    ) -> GroupLag:
        self._groups.expire_group(group, self._clock.monotonic_s())
        topics = [
            await self._topic_lag(group, name, is_leased=begun.get(name, False)) for name in names
        ]
        return GroupLag(
            group,
            topics,
            _sum([each.ready for each in topics]),
            sum(each.in_flight for each in topics),
            sum(each.retrying + each.retrying_in_flight for each in topics),
            sum(each.delayed for each in topics),
            self._dead_letters.count(group),
            min([each.oldest_ms for each in topics if each.oldest_ms is not None], default=None),
        )

    async def pair_lags(self, most: int) -> tuple[list[PairLag], PairLag]:
        """Groups in their topics: the `most` that are furthest behind, with times, and the sum of
        all others. Retries count. Many turns of the event loop."""
        counted, _ = await self._counted_pairs()
        counted.sort(key=lambda each: (-each.lag, each.group, each.topic))
        rest = counted[most:]
        return [await self._timed(each) for each in counted[:most]], PairLag(
            "", "", sum(each.ready for each in rest), sum(each.in_flight for each in rest)
        )

    async def _counted_pairs(self) -> tuple[list[PairLag], int]:
        """All groups in their topics, without times, and how many queues those have."""
        await self._delays.catch_up()
        counted: list[PairLag] = []
        weight = queues = 0
        begun = self._topics_of_all()
        for group in list(self._metadata.snapshot.groups):
            self._groups.expire_group(group, self._clock.monotonic_s())
            weight += 1
            for topic in sorted(begun.get(group, ())):
                view = self._metadata.snapshot.topics.get(topic)
                if view is None:
                    continue
                counted.append(self._pair_lag(group, topic, view.queues))
                weight += view.queues
                queues += view.queues
                if weight >= QUEUES_A_TURN:
                    weight = 0
                    await asyncio.sleep(0)
            if weight >= QUEUES_A_TURN:
                weight = 0
                await asyncio.sleep(0)
        return counted, queues

    def _pair_lag(self, group: str, topic: str, queues: int) -> PairLag:
        subscription = self._groups.find(group, topic)
        ids = (*range(queues), RETRY_QUEUE_ID)
        counts = [self._count(group, topic, queue_id, subscription) for queue_id in ids]
        known = [count for count in counts if count is not None]
        ready, in_flight = sum(each.ready for each in known), sum(each.in_flight for each in known)
        return PairLag(group, topic, ready, in_flight)

    async def _timed(self, pair: PairLag) -> PairLag:
        """With the store times of its oldest messages."""
        view = self._metadata.snapshot.topics.get(pair.topic)
        if view is None or not pair.lag:
            return pair
        subscription = self._groups.find(pair.group, pair.topic)
        oldest: list[int] = []
        ready: list[int] = []
        for first in range(0, view.queues, QUEUES_A_TURN):
            await asyncio.sleep(0)
            ids = range(first, min(first + QUEUES_A_TURN, view.queues))
            counts = [self._count(pair.group, pair.topic, each, subscription) for each in ids]
            times = await self._oldest(pair.topic, first, counts)
            oldest += [each for each in times if each is not None]
            waiting = [
                self._first_ready(pair.topic, queue_id, count, subscription)
                for queue_id, count in zip(ids, counts, strict=True)
            ]
            read = self._times_of(pair.topic, first, waiting)
            times = await ColdReads(self._readers).run(read)
            ready += [each for each in times if each is not None]
        return pair._replace(
            oldest_ms=min(oldest, default=None), oldest_ready_ms=min(ready, default=None)
        )

    def _first_ready(
        self, topic: str, queue_id: int, count: _Count | None, subscription: Subscription | None
    ) -> int | None:
        """The first message that nobody holds; of those that were given back none is looked for."""
        if count is None or not count.ready:
            return None
        held = _leases_of(subscription, queue_id)
        is_held = count.in_flight + count.delayed > 0
        if held is None or not is_held:
            return count.first_open
        high = self._store.bounds(topic, queue_id).max_offset
        return held.fetch_offset if held.fetch_offset < high else count.first_open

    def _topics_of(self, group: str) -> list[str]:
        begun = {*self._consumer_journal.topics(group), *self._offset_cache.topics(group)}
        return sorted(begun & self._metadata.snapshot.topics.keys())

    def _topics_of_all(self) -> dict[str, set[str]]:
        """By group, in one pass: asked for one after another, each would look at those of all."""
        begun = self._consumer_journal.topics_by_group()
        for group, topic in self._offset_cache.pairs():
            begun.setdefault(group, set()).add(topic)
        return begun

    async def _topic_lag(self, group: str, topic: str, *, is_leased: bool) -> TopicLag:
        view = find_topic(self._metadata, topic)
        starts: Sequence[int] = ()
        settings = self._metadata.snapshot.groups.get(group)
        if is_leased and settings is not None:  # else it was deleted meanwhile
            starts = await self._groups.offsets.starts(settings, view)
        subscription = self._groups.find(group, topic)
        queues: list[QueueLag] = []
        for first in range(0, view.queues, QUEUES_A_TURN):
            if queues:
                await asyncio.sleep(0)
            ids = range(first, min(first + QUEUES_A_TURN, view.queues))
            counts = [self._count(group, topic, queue_id, subscription, starts) for queue_id in ids]
            oldest = await self._oldest(topic, first, counts)
            rows = zip(ids, counts, oldest, strict=True)
            queues += [self._queue_lag(group, topic, *row, starts) for row in rows]
        retry = self._count(group, topic, RETRY_QUEUE_ID, subscription)
        waiting = self._delays.retry_count(group, topic)
        ready = _sum([queue.ready for queue in queues])
        return TopicLag(
            topic,
            queues,
            ready,
            sum(queue.in_flight for queue in queues),
            retry.ready if retry else 0,
            retry.in_flight if retry else 0,
            waiting + sum(queue.delayed for queue in queues),
            min([queue.oldest_ms for queue in queues if queue.oldest_ms is not None], default=None),
        )

    def _count(
        self,
        group: str,
        topic: str,
        queue_id: int,
        subscription: Subscription | None,
        starts: Sequence[int] = (),
    ) -> _Count | None:
        """What is not done of one queue; None when the group has not begun it. `starts`: where it
        would, in each queue of the topic."""
        is_retry = queue_id == RETRY_QUEUE_ID
        place = (retry_topic(group, topic), 0) if is_retry else (topic, queue_id)
        low, high = self._store.bounds(*place)
        state = self._consumer_journal.find((group, topic, queue_id))
        if state is None:
            committed = self._committed(group, topic, queue_id, starts)
            if committed is None:
                return None
            state = QueueState(committed)
        return _counted(state, low, high, _leases_of(subscription, queue_id))

    def _committed(
        self, group: str, topic: str, queue_id: int, starts: Sequence[int]
    ) -> int | None:
        """Where the group stands in a queue, or would begin; None: it has not begun there."""
        known = self._offset_cache.committed(group, topic).get(queue_id)
        has_start = known is None and 0 <= queue_id < len(starts)
        return starts[queue_id] if has_start else known

    def _queue_lag(
        self,
        group: str,
        topic: str,
        queue_id: int,
        count: _Count | None,
        oldest_ms: int | None,
        starts: Sequence[int],
    ) -> QueueLag:
        low, high = self._store.bounds(topic, queue_id)
        committed = self._committed(group, topic, queue_id, starts)
        if count is None:
            return QueueLag(queue_id, low, high, committed, None, 0, 0, 0, None, NOT_BEGUN)
        is_damaged = oldest_ms is None and count.first_open is not None
        return QueueLag(
            queue_id,
            low,
            high,
            committed,
            count.ready,
            count.in_flight,
            count.delayed,
            count.expired,
            oldest_ms,
            DAMAGED if is_damaged else None,
        )

    async def _oldest(
        self, topic: str, first_queue: int, counts: Sequence[_Count | None]
    ) -> list[int | None]:
        """Store time of the first message of each queue that is not done."""
        firsts = [count.first_open if count else None for count in counts]
        return await ColdReads(self._readers).run(self._times_of(topic, first_queue, firsts))

    def _times_of(
        self, topic: str, first_queue: int, firsts: Sequence[int | None]
    ) -> Callable[[bool], list[int | None]]:
        def read(wait_for_disk: bool) -> list[int | None]:
            return [
                None if first is None else self._time_of(topic, queue_id, first, wait_for_disk)
                for queue_id, first in enumerate(firsts, first_queue)
            ]

        return read

    def _time_of(self, topic: str, queue_id: int, offset: int, wait: bool) -> int | None:
        if offset < self._store.bounds(topic, queue_id).min_offset:
            return None
        try:
            read = self._store.read(
                topic,
                queue_id,
                offset,
                max_messages=1,
                max_bytes=1,
                end_offset=offset + 1,
                wait_for_disk=wait,
            )
        except ShardUnavailable:  # it may be whole at a silent replica; how many wait is known
            return None
        return self._store.decode(read.records[0]).store_time_ms if read.records else None


def check_known_group(metadata: Metadata, group: str) -> None:
    """Raise `GroupNotFound`, with the nearest name, when there is no such group."""
    groups = metadata.snapshot.groups
    if group not in groups:
        check_group(group)
        error = GroupNotFound(
            f"consumer group {group!r} does not exist", hint="a group is made by its first use"
        )
        raise suggest_similar(error, "group", group, groups, did_you_mean)


def _leases_of(subscription: Subscription | None, queue_id: int) -> LeasedQueue | None:
    return None if subscription is None else subscription.find(queue_id)


def _counted(state: QueueState, low: int, high: int, held: LeasedQueue | None) -> _Count:
    progress = state.progress
    expired = max(min(low, high) - progress.committed, 0)
    first = min(max(progress.committed, low), high)
    open_count = max(high - first - progress.acked_from(first), 0)
    in_flight = held.leases.taken_count if held else 0
    delayed = held.leases.delayed_count if held else 0
    if expired and held:  # what is held there counts as expired
        gone_in_flight, gone_delayed = held.leases.held_below(first)
        in_flight, delayed = in_flight - gone_in_flight, delayed - gone_delayed
    delayed += sum(parked >= first for parked in state.parked)
    ready = max(open_count - in_flight - delayed, 0)
    first_open = progress.next_open(first) if open_count else None
    return _Count(ready, in_flight, delayed, expired, first_open)


def _sum(parts: Sequence[int | None]) -> int | None:
    """The sum, unknown when a part is."""
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None
