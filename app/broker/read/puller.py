"""Pulling by offset: stateless, nothing is leased, the caller keeps its place.

A pull that waits is answered as soon as `min_messages` match, when time is up, or when the node
stops. A filtered pull never looks at the same message twice: `next_offset` moves past what did not
match, in the answer and while waiting. Event loop only.
"""

import asyncio
from concurrent.futures import Executor
from functools import partial
from typing import Final, Protocol

from app.broker.context import Gate
from app.broker.filters.filters import Filter, parse_filter
from app.broker.journal.cold_reads import ColdReads, find_offset_at
from app.broker.ports import Metadata, QueueRecords
from app.broker.read.far_reads import FarReads
from app.broker.read.filter_scan import first_records, read_matching
from app.broker.read.long_polls import LongPolls, Watch
from app.broker.results import PullRequest, PullResult, PullStatus
from app.broker.topic_lookup import check_here, readable_topic
from app.domain.clock import Clock
from app.domain.errors import (
    IllegalOffset,
    IllegalWait,
    InvalidRequest,
    OffsetExpired,
    OffsetOutOfRange,
)
from app.domain.limits import Limits
from app.store import ColdRead, QueueBounds, ReadResult, RecordsInPlace, total_bytes

_NOTHING: Final = ReadResult([], [], [], 0, 0, [])


class _Pull:
    """One pull in progress: where it is, and what it has found."""

    __slots__ = (
        "bounds",
        "bytes_left",
        "clamped",
        "disk",
        "end_offset",
        "found",
        "in_place",
        "messages_left",
        "needed",
        "offset",
        "queue_id",
        "request",
        "topic",
        "wanted",
    )

    def __init__(
        self,
        topic: str,
        queue_id: int,
        request: PullRequest,
        limits: Limits,
        disk: ColdReads,
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.request = request
        self.wanted: Filter | None = parse_filter(request.filter)
        self.disk = disk
        self.in_place = request.in_place and self.wanted is None
        self.messages_left = self.bytes_left = self.needed = 0
        self.bound(limits)
        self.bounds = QueueBounds(0, 0)
        self.offset = 0
        self.end_offset = request.end_offset
        """Where the range ends; None while that is open."""
        self.clamped = False
        self.found = _NOTHING

    def bound(self, limits: Limits) -> None:
        """Set how much may be found."""
        messages_most, bytes_most = limits.pull_messages_max, limits.pull_bytes_max
        if self.in_place:
            messages_most, bytes_most = limits.in_place_messages_max, limits.in_place_bytes_max
        self.messages_left = min(self.request.max_messages, messages_most)
        self.bytes_left = min(self.request.max_bytes, bytes_most)
        self.needed = min(self.request.min_messages, self.messages_left)

    def place(self, offset: int, bounds: QueueBounds) -> None:
        """Go to `offset`, or to the nearest end when the client asked for that, or raise."""
        self.bounds = bounds
        if not bounds.min_offset <= offset <= bounds.max_offset:
            if not self.request.clamp:
                raise outside(offset, bounds)
            offset = max(bounds.min_offset, min(offset, bounds.max_offset))
            self.clamped = True
        self.offset = offset

    def add(self, read: ReadResult) -> None:
        """Take in what one read has found."""
        if self.found.records and read.records and len(read.records[0]) > self.bytes_left:
            # A read gives at least one message, however large; only the first one may be that.
            read = first_records(read, 0)
            self.bytes_left = 0
        self.offset = read.next_offset
        count = len(read.records)
        self.messages_left -= count
        self.needed -= count
        self.bytes_left -= total_bytes(read.records)
        found = self.found
        if found is _NOTHING:
            self.found = read
            return
        if not found.records:
            self.found = read._replace(
                scanned=found.scanned + read.scanned, gaps=found.gaps + read.gaps
            )
            return
        assert not isinstance(read.records, RecordsInPlace), "they are not joined with more"
        self.found = ReadResult(
            [*found.records, *read.records],
            [*found.queue_offsets, *read.queue_offsets],
            [*found.tag_hashes, *read.tag_hashes],
            read.next_offset,
            found.scanned + read.scanned,
            found.gaps + read.gaps,
        )

    def put_back(self, limits: Limits) -> None:
        """Forget what was found where records may stay in place: those cannot be joined with more,
        so all are read again, together."""
        found = self.found
        if not (self.in_place and found.records):
            return
        start = found.queue_offsets[0]
        self.found = _NOTHING._replace(
            next_offset=start,
            scanned=found.scanned - (found.next_offset - start),
            gaps=[gap for gap in found.gaps if gap.from_offset < start],
        )
        self.offset, self.in_place = start, False
        self.bound(limits)

    @property
    def is_done(self) -> bool:
        """Enough found, or the range that the client named is read."""
        return self.needed <= 0 or self.bytes_left <= 0 or self.is_ended

    @property
    def is_ended(self) -> bool:
        """The range that the client named is read."""
        return self.end_offset is not None and self.offset >= self.end_offset

    def result(self) -> PullResult:
        found = self.found
        if found.records:
            status = PullStatus.FOUND
        elif found.scanned:
            status = PullStatus.NO_MATCHED_MSG
        else:
            status = PullStatus.NO_NEW_MSG
        bounds = self.bounds
        return PullResult(
            status,
            found if found.next_offset == self.offset else found._replace(next_offset=self.offset),
            self.offset,
            bounds.min_offset,
            bounds.max_offset,
            self.offset >= bounds.max_offset,
            found.scanned,
            self.clamped,
            self.is_ended,
        )


class PullContext(Protocol):
    """What pulls work with: a broker's context, or that of a node that follows."""

    @property
    def store(self) -> QueueRecords: ...
    @property
    def metadata(self) -> Metadata: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def limits(self) -> Limits: ...
    @property
    def readers(self) -> Executor: ...
    @property
    def gate(self) -> Gate: ...


class Puller:
    """Answers pulls. One per broker, and per opening of a store that a node follows with."""

    def __init__(
        self, context: PullContext, long_polls: LongPolls, far_reads: FarReads | None = None
    ) -> None:
        """`far_reads` of a shard with replicas; None: nobody else could be asked."""
        self._store = context.store
        self._clock = context.clock
        self._metadata = context.metadata
        self._limits = context.limits
        self._long_polls = long_polls
        self._readers = context.readers
        self._check_open = context.gate.check
        self.far_reads = far_reads
        self.decode = context.store.decode
        """A record of a `PullResult` as a message."""

    async def pull(
        self, topic_name: str, queue_id: int, request: PullRequest, watch: Watch | None = None
    ) -> PullResult:
        """Read from an offset; nothing is leased. Waits for more as long as `request` says, and
        until `watch` ends the wait since the client has left."""
        self._check_open()
        check_here(readable_topic(self._metadata, topic_name), queue_id)
        _check_request(request, self._limits)
        pull = _Pull(topic_name, queue_id, request, self._limits, ColdReads(self._readers))
        await self._begin(pull)
        is_waiting = request.wait_s > 0
        loop = asyncio.get_running_loop()
        deadline = loop.time() + request.wait_s
        while await self._read_on(pull) and is_waiting and not self._long_polls.closed:
            pull.put_back(self._limits)
            pull.disk = ColdReads(self._readers)
            is_waiting = await self._wait(pull, deadline, watch)
            check_here(readable_topic(self._metadata, topic_name), queue_id)
        result = pull.result()
        if self.far_reads is not None and pull.disk.is_used:
            result = result._replace(suggests_any=self._is_far(self.far_reads, result))
        return result

    def _is_far(self, far_reads: FarReads, result: PullResult) -> bool:
        records = result.read.records
        if not records or isinstance(records, RecordsInPlace):
            return False
        return far_reads.is_far(self.decode(records[0]).physical_offset)

    async def _begin(self, pull: _Pull) -> None:
        """Find the place where the request wants to start."""
        store, request = self._store, pull.request
        bounds = store.bounds(pull.topic, pull.queue_id)
        if request.offset is not None:
            pull.place(request.offset, bounds)
        elif request.tail is not None:
            pull.place(max(bounds.min_offset, bounds.max_offset - request.tail), bounds)
        elif request.timestamp_ms is not None:
            await self._begin_at(pull, bounds, request.timestamp_ms)

    async def _begin_at(self, pull: _Pull, bounds: QueueBounds, timestamp_ms: int) -> None:
        """Find the time and read from there in one go, so that both share the one hop."""
        store = self._store

        def find_and_read(wait_for_disk: bool) -> tuple[int, ReadResult]:
            offset = find_offset_at(
                store,
                pull.topic,
                pull.queue_id,
                bounds,
                timestamp_ms,
                wait_for_disk=wait_for_disk,
            )
            pull.offset = offset
            return offset, self._read(pull, wait_for_disk)

        pull.bounds = bounds
        _, read = await pull.disk.run(find_and_read)
        pull.add(read)

    async def _read_on(self, pull: _Pull) -> bool:
        """Read up to the end or the limits. True: waiting for more may help."""
        limits, looks = self._limits, 0
        while not pull.is_done:
            before = pull.offset
            pull.place(before, self._store.bounds(pull.topic, pull.queue_id))
            if pull.offset >= pull.bounds.max_offset:
                return True
            try:
                read = await pull.disk.run(partial(self._read, pull))
            except ColdRead:
                return False
            pull.add(read)
            if pull.offset >= pull.bounds.max_offset:
                return not pull.is_done
            looks += 1
            if pull.wanted is None or pull.offset == before:
                return False
            scanned = pull.found.scanned
            if looks >= limits.filter_looks_max or scanned >= limits.pull_scan_units_max:
                return False
            await asyncio.sleep(0)
        return False

    def _read(self, pull: _Pull, wait_for_disk: bool) -> ReadResult:
        end_offset = self._end_of(pull, wait_for_disk)
        if end_offset is not None and end_offset <= pull.offset:
            return _NOTHING._replace(next_offset=pull.offset)
        return read_matching(
            self._store,
            pull.topic,
            pull.queue_id,
            pull.offset,
            wanted=pull.wanted,
            max_messages=pull.messages_left,
            max_bytes=pull.bytes_left,
            end_offset=end_offset,
            in_place=pull.in_place,
            wait_for_disk=wait_for_disk,
        )

    def _end_of(self, pull: _Pull, wait_for_disk: bool) -> int | None:
        """Where this read has to end. By time, the place is settled when a later message is there,
        or none can come that is earlier: store times never run backwards."""
        until_ms = pull.request.until_ms
        if until_ms is None or pull.end_offset is not None:
            return pull.end_offset
        high = pull.bounds.max_offset
        is_over = until_ms <= self._clock.now_ms()
        # What was appended before may be on its way to be readable; looked at behind the clock.
        is_over &= self._store.next_offset(pull.topic, pull.queue_id) == high
        found = find_offset_at(
            self._store,
            pull.topic,
            pull.queue_id,
            QueueBounds(min(pull.offset, high), high),
            until_ms,
            wait_for_disk=wait_for_disk,
        )
        if found < high or is_over:
            pull.end_offset = found
        return found

    async def _wait(self, pull: _Pull, deadline: float, watch: Watch | None) -> bool:
        """Wait until enough may have arrived. False when time is up, the client has left or the
        node stops."""
        loop = asyncio.get_running_loop()
        wanted = pull.offset + pull.needed
        if pull.end_offset is not None:
            wanted = min(wanted, pull.end_offset)
        while await self._long_polls.wait_for_queue(
            pull.topic, pull.queue_id, deadline - loop.time(), watch
        ):
            if self._store.bounds(pull.topic, pull.queue_id).max_offset >= wanted:
                return True
            # Fewer than wanted; or the topic was deleted or gives nothing, as the caller notices.
            topic = self._metadata.snapshot.topics.get(pull.topic)
            if topic is None or not topic.is_readable:
                return True
        return False


def outside(offset: int, bounds: QueueBounds) -> OffsetExpired | OffsetOutOfRange:
    """The refusal of an offset that is not within `bounds`."""
    fields = {"min_offset": bounds.min_offset, "max_offset": bounds.max_offset}
    if offset < bounds.min_offset:
        return OffsetExpired(
            f"offset {offset} is gone; the first one is {bounds.min_offset}",
            hint="go on at min_offset, or pass clamp=true",
            fields=fields,
        )
    return OffsetOutOfRange(
        f"offset {offset} is beyond the end, {bounds.max_offset}",
        hint="go on at max_offset, or pass clamp=true",
        fields=fields,
    )


def _check_request(request: PullRequest, limits: Limits) -> None:
    given = (request.offset, request.timestamp_ms, request.tail)
    if sum(value is not None for value in given) != 1:
        raise IllegalOffset(
            "a pull starts at one place", hint="give one of offset, timestamp_ms and tail"
        )
    if request.end_offset is not None and request.until_ms is not None:
        raise IllegalOffset(
            "a pull ends at one place", hint="give one of until_offset and until_timestamp_ms"
        )
    ends = (request.end_offset, request.until_ms)
    if any(value is not None and value < 0 for value in (*given, *ends)):
        raise IllegalOffset("an offset, time or tail is not negative")
    if request.max_messages < 1 or request.max_bytes < 1 or request.min_messages < 1:
        raise InvalidRequest("max_messages, max_bytes and min_messages are at least 1")
    check_wait(request.wait_s, limits)


def check_wait(wait_s: float, limits: Limits) -> None:
    """Raise `IllegalWait` when a client wants to wait for too long."""
    if not 0 <= wait_s <= limits.wait_seconds_max:
        raise IllegalWait(
            f"a wait of {wait_s:g} s is not possible",
            hint=f"wait from 0 to {limits.wait_seconds_max} seconds",
            fields={"limit_seconds": limits.wait_seconds_max},
        )
