"""Walking the commit log: good records in blocks, damage stepped over, the end found.

A window of the log is walked and checked at once (`record_block`); only what is not the intact
record of its place is looked at by itself. Behind bad bytes a record is found again by its magic,
its own physical offset and its checksum. RocketMQ would cut everything behind the first bad byte.

After a power loss bad bytes may also mean that the disk kept later writes and not these. That is no
damage: nobody was told that they are safe, and the log ends there, so that every queue is a prefix.
The two are told apart by the synced end that each record carries: a good record behind the bad
bytes which says that the log was on the medium beyond them proves damage. (docs/adr/0011)
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np

from app.domain.limits import MIB
from app.store.formats.record.record import (
    END_OF_FILE_BYTES,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_BYTES_MIN,
    Finding,
    Found,
    decode_fields,
    inspect,
)
from app.store.formats.record.record_block import Ints, heads, intact, ints, walk
from app.store.log.commit_log import CommitLog

WINDOW_BYTES: Final = MIB
MISSING_MAX: Final = 1 << 20
"""Messages of a queue that may be missing behind another one without any damage that we know of; an
undamaged log misses none."""
QueueName = tuple[str, int]
NO_OFFSETS: Final[Mapping[QueueName, range]] = MappingProxyType({})

_ZEROS: Final = bytes(WINDOW_BYTES)
_MAGIC_START: Final = MAGIC_V1.to_bytes(4)[:3]
_MAGICS: Final = (MAGIC_V1.to_bytes(4), MAGIC_V2.to_bytes(4))
_MAGIC_AT: Final = 4
_TRANSACTION_KIND: Final = 0xC
_IN_NO_QUEUE: Final = (0x4, 0xC)
"""Prepared and rolled back: their queue offset means nothing."""


class Damage(NamedTuple):
    """Bytes `[start, end)` of the log that hold no good record."""

    start: int
    end: int
    reason: str


class ScannedBlock(NamedTuple):
    """Good records, one behind the other: `starts` and `sizes` are places in `data`."""

    data: bytes | memoryview
    starts: Sequence[int]
    """A `range` only where all have one size, which is its step."""
    sizes: Sequence[int]
    base: int
    """Physical offset of the first byte of `data`."""

    def places(self) -> tuple[Ints, Ints]:
        """`starts` and `sizes` as arrays."""
        starts = self.starts
        if isinstance(starts, range):
            return ints(starts), np.full(len(starts), starts.step, np.int64)
        return ints(starts), ints(self.sizes)


def records_of(blocks: Iterable[ScannedBlock]) -> Iterator[tuple[int, memoryview]]:
    """The records of blocks, as (physical offset, bytes)."""
    for block in blocks:
        view = memoryview(block.data)
        for at, size in zip(block.starts, block.sizes, strict=True):
            yield block.base + at, view[at : at + size]


@dataclass(slots=True)
class _Window:
    data: bytes = b""
    start: int = 0


class LogScanner:
    """Walks a commit log from a position to its end, once."""

    def __init__(
        self,
        log: CommitLog,
        *,
        unchecked_end: int = 0,
        synced_end: int = 0,
        power_lost: bool = False,
        known_offsets: Mapping[QueueName, range] = NO_OFFSETS,
        believes_records: bool = True,
    ) -> None:
        """`known_offsets`: where a queue's first record may stand, for records that may lack our
        checksum. The first record of any other queue is believed. `believes_records`: whether
        records say what was on this medium; those of a replica may have been made elsewhere."""
        self.end = 0
        """Behind the last good record or closed segment; valid when `blocks` is exhausted."""
        self.torn = False
        """Whether anything but zeros follows `end`."""
        self.damages: list[Damage] = []
        self._log = log
        self._unchecked_end = unchecked_end
        self._synced_end = synced_end
        self._power_lost = power_lost
        self._believes_records = believes_records
        self._window = _Window()
        self._known_offsets = known_offsets
        self._queue_ends: dict[QueueName, int] = {}
        """One past the last queue offset of records that may lack our checksum."""

    def records(self, start: int) -> Iterator[tuple[int, memoryview]]:
        """Every good record from `start` on, as (physical offset, bytes)."""
        return records_of(self.blocks(start))

    def blocks(self, start: int) -> Iterator[ScannedBlock]:
        """Every good record from `start` on, many at a time."""
        self.end = position = start
        bad: tuple[int, str] | None = None
        while position < self._log.end_of_segments:
            unchecked = position < self._unchecked_end
            find = self._unchecked_blocks if unchecked else self._good_blocks
            for block in find(position):
                if bad and not self._step_over(bad, position):
                    self.torn = True
                    return
                bad = None
                yield block
                position = self.end = block.base + block.starts[-1] + block.sizes[-1]
            finding = self._inspect(position)
            if finding.found in (Found.RECORD, Found.END_OF_FILE):
                if bad and not self._step_over(bad, position):
                    self.torn = True
                    return
                bad = None
                if finding.found is Found.RECORD:
                    yield self._single(position, finding.size)
                position += finding.size
                self.end = position
                continue
            bad = bad or (position, finding.reason or finding.found.value)
            position = self._next_good(position + 1)
        self.torn = bad is not None and self.anything_behind(bad[0])

    def _step_over(self, bad: tuple[int, str], good: int) -> bool:
        """Note damage `[bad, good)`; False when it is the end of the log instead."""
        start, reason = bad
        is_doubtful = self._power_lost and start >= self._synced_end
        if is_doubtful and not (self._believes_records and self._is_proven(start, good)):
            return False
        self.damages.append(Damage(start, good, reason))
        return True

    def _is_proven(self, bad: int, good: int) -> bool:
        """Whether a record from `good` on says that the log was on the medium beyond `bad`."""
        scanner = LogScanner(
            self._log, unchecked_end=self._unchecked_end, known_offsets=self._known_offsets
        )
        for block in scanner.blocks(good):
            if block.base + block.starts[0] < self._unchecked_end:
                continue
            found = heads(block.data, np.array(block.starts, np.int64))
            if int(found["prepared_offset"].max()) > bad:
                return True
        return False

    def _good_blocks(self, position: int) -> Iterator[ScannedBlock]:
        """Blocks of intact records of ours from `position` on, until something else comes."""
        segment_end = self._log.base_of(position) + self._log.segment_bytes
        while True:
            size = min(WINDOW_BYTES, segment_end - position)
            data = self._log.read(position, size)
            self._window.data, self._window.start = data, position
            marks = walk(data, 0, len(data))
            starts = marks[:-1]
            if not starts:
                return
            places = ints(marks)
            lengths = np.diff(places)
            good = intact(memoryview(data), places[:-1], lengths, places[:-1] + position)
            sizes: list[int] = lengths.tolist()
            count = len(starts) if good.all() else int(good.argmin())
            if not count:
                return
            yield ScannedBlock(data, starts[:count], sizes[:count], position)
            position += marks[count]
            if count < len(starts):
                return

    def _unchecked_blocks(self, position: int) -> Iterator[ScannedBlock]:
        """The same for records that may lack our checksum; each is looked at by itself."""
        segment_end = self._log.base_of(position) + self._log.segment_bytes
        while True:
            data = self._log.read(position, min(WINDOW_BYTES, segment_end - position))
            view, marks = memoryview(data), walk(data, 0, len(data))
            starts: list[int] = []
            sizes: list[int] = []
            for start, end in pairwise(marks):
                at = position + start
                finding = inspect(
                    view[start:end], at, left=segment_end - at, checksum_required=False
                )
                if finding.found is not Found.RECORD or at >= self._unchecked_end:
                    break
                if not self._has_place(view[start:end]):
                    break
                starts.append(start)
                sizes.append(end - start)
            if not starts:
                return
            yield ScannedBlock(data, starts, sizes, position)
            position += starts[-1] + sizes[-1]

    def _single(self, position: int, size: int) -> ScannedBlock:
        return ScannedBlock(bytes(self._load(position, size)), [0], [size], position)

    def _next_good(self, position: int) -> int:
        """The next position with a good record or segment end, or the end of the segments."""
        while (position := self._skip_zeros(position)) < self._log.end_of_segments:
            base = self._log.base_of(position)
            segment_end = base + self._log.segment_bytes
            data = bytes(self._load(position, min(WINDOW_BYTES, segment_end - position)))
            found = None
            if data == _ZEROS:
                self._log.drop_cached(position)  # what was read ahead would count as data
            else:
                found = self._find_record(data, position, base)
            if found is not None:
                return found
            if segment_end - position <= len(data) or len(data) <= _MAGIC_AT:
                position = segment_end
            else:
                position += max(len(data) - _MAGIC_AT - len(_MAGIC_START), 1)
        return position

    def _skip_zeros(self, position: int) -> int:
        """Go on where data may stand, minus the few bytes of a record that may be zeros before."""
        found = self._log.next_data(position)
        return max(position, found - _MAGIC_AT - 1) if found - position > WINDOW_BYTES else position

    def _find_record(self, data: bytes, position: int, base: int) -> int | None:
        at = data.find(_MAGIC_START)
        while at >= 0:
            candidate = position + at - _MAGIC_AT
            if (
                data[at : at + 4] in _MAGICS
                and candidate >= base
                and self._inspect(candidate).found is Found.RECORD
            ):
                return candidate
            at = data.find(_MAGIC_START, at + 1)
        return None

    def anything_behind(self, position: int) -> bool:
        """Whether there is anything but zeros from `position` on."""
        while (position := self._log.next_data(position)) < self._log.end_of_segments:
            data = self._log.read(position, WINDOW_BYTES)
            if not data:
                position = self._log.base_of(position) + self._log.segment_bytes
                continue
            if data == _ZEROS:
                self._log.drop_cached(position)
            elif data.count(0) != len(data):
                return True
            position += len(data)
        return False

    def _inspect(self, position: int) -> Finding:
        left = self._log.base_of(position) + self._log.segment_bytes - position
        head = self._load(position, min(left, END_OF_FILE_BYTES))
        size = int.from_bytes(head[:4])
        record = self._load(position, min(left, max(size, END_OF_FILE_BYTES)))
        unchecked = position < self._unchecked_end
        finding = inspect(record, position, left=left, checksum_required=not unchecked)
        if not unchecked or finding.found is not Found.RECORD:
            return finding
        if not self._has_place(record[: finding.size]):
            return Finding(Found.DAMAGED, 0, "a queue offset far behind the one before")
        return finding

    def _has_place(self, record: memoryview) -> bool:
        """Whether the queue offset may come next; it is noted then. Only our checksum covers it.

        What lies between is made room for: a flipped bit could ask for more than there is.
        """
        fields = decode_fields(record)
        if fields.system_flag & _TRANSACTION_KIND in _IN_NO_QUEUE:
            return True
        queue, offset = (fields.topic, fields.queue_id), fields.queue_offset
        end = self._queue_ends.get(queue)
        first = 0
        if end is None:
            known = self._known_offsets.get(queue, range(offset, offset + 1))
            first, end = known.start, known.stop
        if not first <= offset <= end + MISSING_MAX:
            lost_bytes = sum(damage.end - damage.start for damage in self.damages)
            lost_bytes += max(fields.physical_offset - self.end, 0)
            if not first <= offset <= end + lost_bytes // RECORD_BYTES_MIN:
                return False
        self._queue_ends[queue] = max(end, offset + 1)
        return True

    def _load(self, position: int, size: int) -> memoryview:
        """`size` bytes at `position`, fewer at the end of a file."""
        window = self._window
        start = position - window.start
        if start < 0 or start + size > len(window.data):
            window.data = self._log.read(position, max(size, WINDOW_BYTES))
            window.start, start = position, 0
        return memoryview(window.data)[start : start + size]
