"""One consume queue: the fixed-size index of one (topic, queue) into the commit log.

Units are appended in memory (`tail`). A checkpoint takes them on the event loop (`take_tail`) and
writes them to files on a thread (`write_taken`); they stay readable throughout. What is lost with
the process is dispatched again from the log. Positions follow from the queue offset, so dispatching
a record twice writes the same unit to the same place: there is nothing to duplicate or shift.

Event loop only, except `units`, which a reader thread may call: it works on values taken once, the
tail before what was taken of it. `write_taken` belongs to one thread at a time.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import google_crc32c
import numpy as np

from app.store import paths
from app.store.formats.files.consume_queue import UNIT, UNIT_BYTES, UNITS
from app.store.formats.files.state_file import QueueState
from app.store.formats.record.record import topic_part
from app.store.fs.file_cache import FileCache
from app.store.fs.files import ColdRead
from app.store.fs.strays import names_in
from app.store.queues.unit_checksums import BLOCK_UNITS, UnitChecksums

Unit = tuple[int, int, int]
"""Physical offset, size, tag hash."""

_MINIMA: Final = threading.Lock()
"""Held while a minimum is raised: the event loop deletes topics while a thread expires messages."""

_TAKEN: Final = threading.Lock()
"""Held while what was taken changes: the event loop adds, a thread writes it and lets go of it."""

_LOOK_BEHIND_UNITS: Final = 64
"""Behind the end of a queue there is seldom anything."""

Repair = Callable[["ConsumeQueue", int, int], None]
"""Puts the wrong ones among units `[first, end)` right, from the log. Waits for the disk."""


class TakenUnits(NamedTuple):
    """Units from the queue offset `first` on that are about to be written to files."""

    first: int
    units: bytearray

    @property
    def end(self) -> int:
        return self.first + len(self.units) // UNIT_BYTES


class OldestRead(NamedTuple):
    """What retention has read of the oldest message of a queue. No other message gets its offset,
    but those behind it may be older, where the clock was set back."""

    offset: int
    store_time_ms: int
    newest_ms: int
    """The latest store time that was believed then."""


class ConsumeQueue:
    """Units `[min_offset, max_offset)` of one queue."""

    __slots__ = (
        "_cache",
        "_directory",
        "_file_bytes",
        "_files_from",
        "_first",
        "_mended",
        "_repair",
        "_state",
        "_sums",
        "_tail",
        "_taken",
        "generation",
        "max_offset",
        "min_offset",
        "next_offset",
        "number",
        "oldest",
        "queue_id",
        "topic",
        "topic_part",
    )

    def __init__(
        self,
        cache: FileCache,
        topic: str,
        queue_id: int,
        file_units: int,
        repair: Repair | None = None,
        number: int = 0,
    ) -> None:
        self.topic = topic
        self.topic_part = topic_part(topic.encode())
        """As it stands in each record of this queue."""
        self.queue_id = queue_id
        self.number = number
        """Of this queue in its table, for as long as it is open; 0: it is in none."""
        self.generation = 0
        """Of the topic whose messages it takes; see `topic_floors`."""
        self.min_offset = 0
        self.max_offset = 0
        """One past the last readable message."""
        self.next_offset = 0
        """What the next append gets; ahead of `max_offset` by what is not confirmed yet."""
        self._cache = cache
        self._directory = paths.queue_directory(topic, queue_id)
        self._file_bytes = file_units * UNIT_BYTES
        self._tail: tuple[int, bytearray] = (0, bytearray())
        """Queue offset of the first unit that no checkpoint has taken, and those in memory."""
        self._taken: tuple[TakenUnits, ...] = ()
        """What checkpoints have taken and not written yet, up to the tail."""
        self._state: QueueState | None = None
        """What the last checkpoint said."""
        self._sums = UnitChecksums(file_units)
        """Of the units before the tail."""
        self._repair = repair
        self._mended: object = None
        """Another one behind each `mend`."""
        self._first: tuple[int, int, object] | None = None
        """What `first_position` has read last: an offset, where its record is, and what `_mended`
        was before it read."""
        self._files_from = 0
        """The byte of the queue before which no file begins."""
        self.oldest: OldestRead | None = None

    def begin(self, min_offset: int, max_offset: int) -> None:
        """Set the bounds at opening; everything below `max_offset` is in the files."""
        self.min_offset = min_offset
        self.max_offset = self.next_offset = max_offset
        self._tail = (max_offset, bytearray())
        self._sums.begin(max_offset)
        self._state = None
        self._first = self.oldest = None

    def resume(self, state: QueueState) -> bool:
        """`begin` with what a checkpoint says; False when it has no checksums of the units."""
        self.begin(state.min_offset, state.max_offset)
        self.generation = state.generation
        return bool(state.sums) and self._sums.load(state.sums_from, state.max_offset, state.sums)

    def adopt(self) -> None:
        """Take the units in the files as they are; for a checkpoint without checksums."""
        self._sums.begin(self.min_offset)
        for first in range(self.min_offset, self.max_offset, BLOCK_UNITS):
            end = min(first + BLOCK_UNITS, self.max_offset)
            self._sums.extend(self.unit_bytes(first, end, checked=False))

    def state(self) -> QueueState:
        """What a checkpoint says of the units before the tail. Event loop."""
        first, end = self.min_offset, self._tail[0]
        said = self._state
        bounds = first, end, self.generation
        if said is not None and (said.min_offset, said.max_offset, said.generation) == bounds:
            return said
        self._state = said = self._make_state(first, end)
        return said

    def _make_state(self, first: int, end: int) -> QueueState:
        """What a checkpoint says of the units `[first, end)`."""
        if first > end:  # a deleted topic: what is in memory is not wanted again
            return QueueState(self.topic, self.queue_id, first, first, generation=self.generation)
        self._sums.drop_below(first)
        sums = self._sums.encode()
        return QueueState(
            self.topic, self.queue_id, first, end, self._sums.start, sums, self.generation
        )

    def expire_below(self, offset: int) -> int:
        """Make what lies below unreadable; how many messages that were. Any thread.

        Never goes back: what another thread took away meanwhile stays away.
        """
        with _MINIMA:
            expired = max(offset - self.min_offset, 0)
            self.min_offset += expired
        return expired

    @property
    def readable_end(self) -> int:
        """One past the last readable message; never below `min_offset`, which may lie above
        `max_offset` while messages of a deleted topic are being confirmed."""
        low, high = self.min_offset, self.max_offset
        return max(low, high)  # asked for with each read: `max` takes longer

    def roll_back(self, first: int) -> None:
        """Forget the offsets from `first` on, which were assigned and not written. None of a
        deleted topic comes again: its successor begins at the minimum."""
        self.next_offset = max(first, self.min_offset)

    def pass_over(self, end: int) -> None:
        """Go on at `end`: the offsets before it were taken back, and those of a deleted topic are
        not given again. Their units stay zero, below the minimum."""
        assert self.max_offset < end <= self.min_offset, "a queue has no holes"
        self.append(bytes((end - self.max_offset) * UNIT_BYTES))

    def append(self, units: bytes) -> None:
        """Make units readable, the next in order."""
        self._tail[1].extend(units)
        self.max_offset += len(units) // UNIT_BYTES

    def put(self, queue_offset: int, unit: bytes) -> None:
        """Place one unit at recovery: repeating is harmless, what is missing before stays zero."""
        if queue_offset >= self.max_offset:
            self.append(bytes((queue_offset - self.max_offset) * UNIT_BYTES) + unit)
            self.next_offset = self.max_offset

    @property
    def tail_bytes(self) -> int:
        """Memory held by units that are not in a file yet."""
        return len(self._tail[1]) + sum(len(part.units) for part in self._taken)

    def extend(self, max_offset: int) -> None:
        """Go on at `max_offset`; the units before it that are missing stay zero."""
        if max_offset > self.max_offset:
            self.append(bytes((max_offset - self.max_offset) * UNIT_BYTES))
            self.next_offset = self.max_offset

    def end_of_units_into(self, ranges: Sequence[tuple[int, int]]) -> int:
        """One past the last unit behind `max_offset` that is in a file and points into one of some
        half-open ranges of the log; `max_offset` when there is none. Waits for the disk."""
        found = first = self.max_offset
        count = _LOOK_BEHIND_UNITS
        while True:
            data = self._read_files(first, first + count, wait_for_disk=True)
            if not any(data):
                return found
            for offset, (position, size, _) in enumerate(UNIT.iter_unpack(data), first):
                if size > 0 and any(start <= position < end for start, end in ranges):
                    found = offset + 1
            first += count
            count = BLOCK_UNITS

    def has_files(self) -> bool:
        """Whether every file between the bounds is there."""
        if self.min_offset == self.max_offset:
            return True
        names = set(names_in(self._cache.files, self._directory) or ())
        first = self.min_offset * UNIT_BYTES
        bases = range(
            first - first % self._file_bytes, self.max_offset * UNIT_BYTES, self._file_bytes
        )
        return all(paths.file_name(base) in names for base in bases)

    def first_at_or_behind(self, physical_offset: int, *, wait_for_disk: bool = True) -> int:
        """The first queue offset whose record is not before `physical_offset`, by bisection.

        Units that were never written count as before. May raise `ColdRead`.
        """
        low, high = self.min_offset, self.readable_end
        answer = high
        while low < high:
            middle = (low + high) // 2
            written, found = self._first_written(middle, high, wait_for_disk=wait_for_disk)
            if written == high:
                high = middle
            elif found >= physical_offset:
                answer, high = written, middle
            else:
                low = written + 1
        return answer

    def _first_written(self, first: int, end: int, *, wait_for_disk: bool) -> tuple[int, int]:
        """The first of units `[first, end)` that was ever written, and its place; or `end`, 0."""
        count = 1
        while first < end:
            units = self.units(first, min(first + count, end), wait_for_disk=wait_for_disk)
            for offset, (found, size, _) in enumerate(units, first):
                if size > 0:
                    return offset, found
            first += len(units)
            count = BLOCK_UNITS
        return end, 0

    def begins_behind(self, physical_offset: int) -> bool:
        """Whether the first unit, unchecked, says that its record is not before this place."""
        units = self.raw_units(self.min_offset, self.min_offset + 1)
        return bool(units) and units[0][1] > 0 and units[0][0] >= physical_offset

    def place_of(self, queue_offset: int) -> tuple[str, int]:
        """The file of a unit and its place there."""
        position = queue_offset * UNIT_BYTES
        return self._path(position - position % self._file_bytes), position % self._file_bytes

    def first_position(self) -> int | None:
        """Physical offset of the first readable message; None when its unit is damaged."""
        offset, known, mended = self.min_offset, self._first, self._mended
        if known is not None and known[0] == offset and known[2] is mended:
            return known[1]
        ((found, size, _),) = self.units(offset, offset + 1)
        if size <= 0:
            return None
        self._first = offset, found, mended
        return found

    def mend(self, queue_offset: int, unit: bytes) -> None:
        """Put a unit right, in a file or not yet. Any thread; other units are not touched."""
        self._put_right(queue_offset, unit)
        self._mended = object()  # who reads meanwhile may have read the unit as it was

    def _put_right(self, queue_offset: int, unit: bytes) -> None:
        first, tail = self._tail
        if queue_offset >= first:
            at = (queue_offset - first) * UNIT_BYTES
            tail[at : at + UNIT_BYTES] = unit
            return
        with _TAKEN:
            for part in self._taken:
                if part.first <= queue_offset < part.end:
                    at = (queue_offset - part.first) * UNIT_BYTES
                    part.units[at : at + UNIT_BYTES] = unit
                    return
        self._write(queue_offset, unit)

    def drop_below_minimum(self) -> list[str]:
        """Remove files of which no unit is readable; their paths. The last one stays."""
        if self.min_offset * UNIT_BYTES < self._files_from + self._file_bytes:
            return []  # of a quiet node with very many queues this is the most frequent question
        names = [
            n
            for n in self._cache.files.list(self._directory)
            if paths.parse_file_name(n) is not None
        ]
        removed: list[str] = []
        for name in names[:-1]:
            if int(name) + self._file_bytes > self.min_offset * UNIT_BYTES:
                break
            path = f"{self._directory}/{name}"
            self._cache.forget(path)
            self._cache.files.remove(path)
            removed.append(path)
        if names:
            self._files_from = int(names[len(removed)])
        return removed

    def flush(self, confirmed_end: int | None = None) -> None:
        """`take_tail` and `write_taken` at once, where no checkpoint is being written.

        What an earlier call has taken and could not write comes first.
        """
        left = self.last_taken()
        if left is not None:
            self.write_taken(left)
        part = self.take_tail(confirmed_end)
        if part is not None:
            self.write_taken(part)

    def take_tail(self, confirmed_end: int | None = None) -> TakenUnits | None:
        """Take units of records below `confirmed_end` in the log off the tail; None: all.

        Returns what must be written before a checkpoint may count on it; None: nothing. Units
        that are taken are not taken again. Event loop.
        """
        first, tail = self._tail
        if not tail:
            return None
        size = len(tail) if confirmed_end is None else _bytes_below(tail, confirmed_end)
        if not size:
            return None
        units = tail if size == len(tail) else tail[:size]  # readers may still have the tail
        part = TakenUnits(first, units)
        self._sums.extend(bytes(units))
        with _TAKEN:
            self._taken += (part,)
        self._tail = (part.end, tail[size:])
        return part

    def last_taken(self) -> TakenUnits | None:
        """The newest units that were taken and are not written yet."""
        taken = self._taken
        return taken[-1] if taken else None

    def write_taken(self, last: TakenUnits) -> None:
        """Write the units that were taken, up to these, to their files, which the cache then
        counts as dirty. Any thread, one at a time. After an `OSError` what is left is as before.
        """
        while True:
            with _TAKEN:
                if not self._taken or self._taken[0].first > last.first:
                    return
                part = self._taken[0]
                data = bytes(part.units)
            self._write(part.first, data)
            with _TAKEN:
                if part.units == data:  # else one was put right meanwhile
                    self._taken = self._taken[1:]

    def _write(self, first: int, data: bytes) -> None:
        """Write units to their files; makes those that are missing."""
        done = 0
        while done < len(data):
            position = first * UNIT_BYTES + done
            base = position - position % self._file_bytes
            part = data[done : done + base + self._file_bytes - position]
            path = self._path(base)
            file = self._cache.get(path)
            if file is None:
                file = self._cache.create(self._directory, path, self._file_bytes)
                self._files_from = min(self._files_from, base)
            self._cache.mark_dirty(file)
            file.pwritev([part], position - base)
            done += len(part)

    def units(self, first: int, end: int, *, wait_for_disk: bool = True) -> list[Unit]:
        """Units `[first, end)`. May raise `ColdRead`. What is missing comes as zeros."""
        return list(UNIT.iter_unpack(self.unit_bytes(first, end, wait_for_disk=wait_for_disk)))

    def unit_bytes(
        self, first: int, end: int, *, wait_for_disk: bool = True, checked: bool = True
    ) -> bytes:
        """The same as bytes. `checked`: blocks that were not read before are held to their sums."""
        tail_first, tail = self._tail
        taken = self._taken  # after the tail: what is in neither is in a file
        filed = min(taken[0].first, tail_first) if taken else tail_first
        data = b""
        if first < filed:
            if checked:
                self._check(first, min(end, filed), wait_for_disk=wait_for_disk)
            data = self._read_files(first, min(end, filed), wait_for_disk=wait_for_disk)
        for part in taken:
            start, stop = max(first, part.first), min(end, part.end, tail_first)
            if start < stop:
                at = part.first
                data += part.units[(start - at) * UNIT_BYTES : (stop - at) * UNIT_BYTES]
        if end > tail_first:
            start = max(first, tail_first) - tail_first
            data += tail[start * UNIT_BYTES : (end - tail_first) * UNIT_BYTES]
        return data

    def raw_units(self, first: int, end: int) -> list[Unit]:
        """Units as they stand there, right or wrong. Waits for the disk."""
        return list(UNIT.iter_unpack(self.unit_bytes(first, end, checked=False)))

    def _check(self, first: int, end: int, *, wait_for_disk: bool) -> None:
        """Check the blocks of these units that were not read since the opening, repair them."""
        for block in self._sums.unchecked(first, end):
            data = self._read_files(block.first, block.end, wait_for_disk=wait_for_disk)
            if google_crc32c.value(data) != block.crc and self._repair is not None:
                if not wait_for_disk:
                    raise ColdRead
                self._repair(self, block.first, block.end)
            self._sums.settle(block)

    def _read_files(self, first: int, end: int, *, wait_for_disk: bool) -> bytes:
        parts: list[bytes] = []
        position, stop = first * UNIT_BYTES, end * UNIT_BYTES
        while position < stop:
            base = position - position % self._file_bytes
            size = min(stop, base + self._file_bytes) - position
            file = self._cache.get(self._path(base))
            part = b""
            if file is not None:
                part = file.pread(size, position - base, wait_for_disk=wait_for_disk)
            parts.append(part.ljust(size, b"\0"))
            position += size
        return b"".join(parts)

    def _path(self, base: int) -> str:
        return f"{self._directory}/{paths.file_name(base)}"


def _bytes_below(units: bytearray, confirmed_end: int) -> int:
    """Bytes of the leading units whose records end at or before `confirmed_end`."""
    if not units:
        return 0
    last, size, _ = UNIT.unpack_from(units, len(units) - UNIT_BYTES)
    if last + size <= confirmed_end:
        return len(units)
    array = np.frombuffer(units, UNITS)
    beyond = array["physical_offset"] + array["size"] > confirmed_end
    return int(beyond.argmax()) * UNIT_BYTES
