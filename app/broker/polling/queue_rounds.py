"""Reading several queues for one answer: each in its turn, none more than its share.

The queues are read in the order given. One queue gives at most a quarter of the bytes while another
has messages that were not taken; a queue that is the only one left with messages gives the rest. A
queue that is in memory comes before one that needs the disk, for which a poll hops at most once.
Nothing is remembered from one answer to the next: `turned` puts the queues into the order of the
next one. Event loop only.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from msgspec import Struct

from app.broker.filters.filters import Filter
from app.broker.journal.cold_reads import ColdReads
from app.broker.polling.poll_values import QueuePart
from app.broker.ports import Store
from app.broker.read.filter_scan import chosen, read_matching
from app.broker.results import PullStatus
from app.domain.errors import ShardUnavailable
from app.domain.limits import Limits
from app.store import ColdRead, ReadResult, total_bytes

SHARES: Final = 4
"""A queue gives at most one of so many parts of an answer's bytes while others have messages."""

_TOGETHER_MIN: Final = 2
"""Queues from which reading them together pays."""
_TOGETHER_MAX: Final = 128
"""Messages of a queue; more are read as quickly by themselves."""

_UNKNOWN: Final = 0, None
"""In place of what was read of a queue together with others."""

NOT_READ: Final = "NOT_READ"
EXPIRED: Final = "OFFSET_EXPIRED"
OUT_OF_RANGE: Final = "OFFSET_OUT_OF_RANGE"
NO_PERMISSION: Final = "NO_PERMISSION"
FLOW_CONTROL: Final = "FLOW_CONTROL"


class Source(Struct):
    """One queue that may be read in this round."""

    part: QueuePart
    wanted: Filter | None
    end_offset: int | None = None
    """Nothing from here on: the group's `max_span`."""
    is_done: Callable[[int], bool] | None = None
    """Of messages that were handed back, and that the committed offset has not passed."""


class Round:
    """One look at the queues: what may still be taken. `disk` allows one hop."""

    __slots__ = (
        "_cold",
        "_damaged",
        "_disk",
        "_limits",
        "_looks_left",
        "_scans_left",
        "_share_bytes",
        "_store",
        "bytes_left",
        "has_found",
        "messages_left",
    )

    def __init__(
        self, store: Store, limits: Limits, disk: ColdReads, max_messages: int, max_bytes: int
    ) -> None:
        self._store = store
        self._limits = limits
        self._disk = disk
        self._share_bytes = max(1, max_bytes // SHARES)
        self._looks_left = limits.filter_looks_max
        self._scans_left = limits.pull_scan_units_max
        self._cold: Source | None = None
        self._damaged: ShardUnavailable | None = None
        """Why a queue was not read whose next message may be whole at another replica alone."""
        self.messages_left = max_messages
        self.bytes_left = max_bytes
        self.has_found = False

    @property
    def is_full(self) -> bool:
        return self.messages_left <= 0 or self.bytes_left <= 0

    @property
    def is_spent(self) -> bool:
        """A filter has looked at as many messages as one answer may."""
        return self._looks_left <= 0 or self._scans_left <= 0

    @property
    def quarter(self) -> tuple[int, int]:
        """Messages and bytes that retries may have."""
        return max(1, self.messages_left // SHARES), min(self._share_bytes, self.bytes_left)

    def took(self, count: int, size: int) -> None:
        """Something else has so many messages in the answer: retries."""
        self.messages_left -= count
        self.bytes_left -= size
        self.has_found |= count > 0

    async def read(self, sources: Sequence[Source]) -> None:
        """Let every queue have its turn; the parts are filled in.

        Raises `ShardUnavailable` where the next message of a queue may be whole at another replica
        alone, and nothing else is in the answer.
        """
        known = self._read_together(sources)
        known += [_UNKNOWN] * (len(sources) - len(known))
        for source, (before, found) in zip(sources, known, strict=True):
            if self.is_full:
                self._look(source)
            elif found is None or not self._take_known(source.part, before, found):
                await self._take(source, self._share_bytes)
        if not self.is_full and not self.is_spent:
            left = [source for source in sources if _may_give_more(source)]
            if len(left) == 1:
                await self._take(left[0], self.bytes_left)
        if self._cold is not None and not self.has_found:
            await self._take_cold(self._cold)
        if self._damaged is not None and not self.has_found and not any(map(_says, sources)):
            raise self._damaged

    def _read_together(self, sources: Sequence[Source]) -> list[tuple[int, ReadResult | None]]:
        """What is known to be good of the first queues, read at once, as `_take_known` has it."""
        store, left = self._store, self.messages_left
        asked: list[tuple[str, int, int, int]] = []
        lefts: list[int] = []
        bounds = store.bounds
        for source in sources:
            part = source.part
            if source.wanted or source.end_offset is not None or source.is_done or part.is_error:
                break
            (topic, queue_id), offset = part.queue, part.offset
            part.min_offset, part.max_offset = low, high = bounds(topic, queue_id)
            end = high if high - offset < left else offset + left
            if not low <= offset < end <= offset + _TOGETHER_MAX:
                break
            asked.append((topic, queue_id, offset, end))
            lefts.append(left)
            left += offset - end
        if len(asked) < _TOGETHER_MIN:
            return []
        found = store.read_known(asked, self._share_bytes, self.bytes_left)
        return list(zip(lefts, found, strict=True))

    def _take_known(self, part: QueuePart, left: int, found: ReadResult) -> bool:
        """Take what was read together with others when so many messages were `left` to be taken;
        False: the queue is to be read by itself."""
        if left != self.messages_left:
            return False
        size = total_bytes(found.records)
        if size > self.bytes_left:
            return False
        part.offset = found.next_offset
        part.reads.append(found)
        part.status = PullStatus.FOUND
        self.messages_left = left - found.scanned
        self.bytes_left -= size
        self.has_found = True
        return True

    async def _take(self, source: Source, bytes_max: int) -> None:
        part = source.part
        if not self._look(source):
            return
        scanned = 0
        share = min(bytes_max, self.bytes_left)
        while not self.is_full and share > 0 and part.offset < _end_of(source):
            try:
                found = self._disk.here(partial(self._read, source, share))
            except ColdRead:
                self._cold = self._cold or source
                break
            except ShardUnavailable as error:
                self._damaged = error
                break
            share -= self._add(source, found, share)
            scanned += found.scanned
            if source.wanted is None:
                break
            self._looks_left -= 1
            self._scans_left -= found.scanned
            if self.is_spent:
                break
            await asyncio.sleep(0)
        _say(part, scanned)

    async def _take_cold(self, source: Source) -> None:
        part = source.part
        before = part.offset
        share = min(self._share_bytes, self.bytes_left)
        try:
            found = await self._disk.run(partial(self._read, source, share))
        except ShardUnavailable as error:
            self._damaged = error
            return
        if part.offset == before:
            self._add(source, found, self.bytes_left)
            _say(part, found.scanned)

    def _look(self, source: Source) -> bool:
        """Find out where the queue ends. False: there is nothing to be read from it."""
        part = source.part
        low, high = self._store.bounds(*part.queue)
        part.min_offset, part.max_offset = low, high
        if part.offset < low:
            part.status, part.offset, part.is_error = EXPIRED, low, True
        elif part.offset > high:
            part.status, part.offset, part.is_error = OUT_OF_RANGE, high, True
        elif part.offset < high and part.offset >= _end_of(source):
            part.status = FLOW_CONTROL
        elif part.offset == high:
            _say(part, 0)
        else:
            return not part.is_error
        return False

    def _read(self, source: Source, bytes_max: int, wait_for_disk: bool) -> ReadResult:
        part = source.part
        return read_matching(
            self._store,
            part.queue.topic,
            part.queue.queue_id,
            part.offset,
            wanted=source.wanted,
            max_messages=self.messages_left,
            max_bytes=bytes_max,
            end_offset=source.end_offset,
            wait_for_disk=wait_for_disk,
        )

    def _add(self, source: Source, found: ReadResult, share: int) -> int:
        """Take in what one read has found; its bytes."""
        part = source.part
        if source.is_done is not None:
            found = _without_done(found, source.is_done)
        size = total_bytes(found.records)
        if size > self.bytes_left and self.has_found:
            # A read gives at least one message, however large; only the first may be that.
            self.bytes_left = 0
            return share
        part.offset = found.next_offset
        if found.records or found.gaps:
            part.reads.append(found)
        if found.records:
            self.took(len(found.records), size)
        return size


def _end_of(source: Source) -> int:
    high = source.part.max_offset
    return high if source.end_offset is None else min(high, source.end_offset)


def _without_done(read: ReadResult, is_done: Callable[[int], bool]) -> ReadResult:
    keep = [index for index, offset in enumerate(read.queue_offsets) if not is_done(offset)]
    return read if len(keep) == len(read.queue_offsets) else chosen(read, keep)


def _says(source: Source) -> bool:
    """Whether the answer has something of the queue: a gap, or that its position is wrong."""
    return source.part.is_error or bool(source.part.reads)


def _may_give_more(source: Source) -> bool:
    part = source.part
    return not part.is_error and part.offset < _end_of(source)


def _say(part: QueuePart, scanned: int) -> None:
    if part.has_records:
        part.status = PullStatus.FOUND
    elif scanned:
        part.status = PullStatus.NO_MATCHED_MSG
    elif not part.has_more:
        part.status = PullStatus.NO_NEW_MSG


def turned(parts: Sequence[QueuePart]) -> Sequence[QueuePart]:
    """The queues in the order of their next turns: first the one behind the last that gave."""
    for index in range(len(parts) - 1, -1, -1):
        if parts[index].reads:
            return [*parts[index + 1 :], *parts[: index + 1]]
    return parts
