"""One key index file: entries appended in memory and flushed, chains followed, damage noticed.

What is in the file is derived from the log. The entries up to the last checkpoint are pinned by a
checksum kept there; the slots follow from the entries, so they are computed and not believed.

`append` and `flush` belong to one thread at a time (`KeyIndex` has the lock); `chain` may run
beside them.
"""

import sys
from array import array
from collections.abc import Iterator, Sequence
from typing import Final

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from app.store import paths
from app.store.formats.files.key_index import (
    ENTRIES,
    ENTRY,
    ENTRY_BYTES,
    HEADER_BYTES,
    SLOT_BYTES,
    IndexHeader,
    chain_heads,
    chained,
    encode_header,
    entry_at,
    file_bytes,
    seconds_since,
    slot_at,
)
from app.store.formats.files.state_file import IndexFileState
from app.store.fs.file_cache import FileCache

PAGE_SLOTS: Final = 1024
"""Slots that are written together: 4 KiB."""


KeyedRecord = tuple[int, int, Sequence[str]]
"""Physical offset and store time of a record, and its keys."""


class IndexDamaged(Exception):
    """The file is not what the checkpoint says; it must be made again from the log."""


class IndexFile:
    """Entries `[1, next_entry)` of one file."""

    def __init__(self, cache: FileCache, name: str, slots: int, entries: int) -> None:
        self.name = name
        self.begin_ms = self.end_ms = 0
        self.begin_offset = self.end_offset = 0
        self.next_entry = 1
        self.verified = True
        self._cache = cache
        self._path = paths.index_file(name)
        self._slots = slots
        self._entries = entries
        self._slots_used = 0
        self._crc = 0
        self._heads: array[int] | None = array("i", bytes(4 * slots))
        self._dirty: set[int] = set()
        self._tail: tuple[int, bytearray] = (1, bytearray())
        """Number of the first entry that is in memory only, and those entries."""

    @classmethod
    def restore(
        cls, cache: FileCache, state: IndexFileState, slots: int, entries: int
    ) -> "IndexFile":
        """The file of a checkpoint, not looked at yet: see `verify` and `resume`."""
        file = cls(cache, state.name, slots, entries)
        file.begin_ms, file.end_ms = state.begin_ms, state.end_ms
        file.begin_offset, file.end_offset = state.begin_offset, state.end_offset
        file.next_entry, file._crc = state.next_entry, state.entries_crc
        file._heads = None
        file._tail = (state.next_entry, bytearray())
        file.verified = False
        return file

    @property
    def room(self) -> int:
        """Entries that can still be added."""
        return self._entries - self.next_entry

    @property
    def appendable(self) -> bool:
        """False for a sealed file, also for one that came to be the last by the loss of another."""
        return self._heads is not None

    def append(self, records: Sequence[KeyedRecord], hashes: NDArray[np.int64]) -> None:
        """Add the keys of some records, of which none is below the one before; `hashes` are those
        of all their keys, in order."""
        heads = self._heads
        assert heads is not None
        offsets, times_ms, keys = zip(*records, strict=True)
        counts = [len(each) for each in keys]
        if self.next_entry == 1:
            self.begin_ms, self.begin_offset = times_ms[0], offsets[0]
        seconds = [seconds_since(self.begin_ms, time_ms) for time_ms in times_ms]
        slots = hashes % self._slots
        numbers = np.arange(self.next_entry, self.next_entry + len(hashes), dtype=np.int32)
        slot_heads = np.frombuffer(heads, np.int32)
        previous = chained(slot_heads, slots, numbers)
        entries = np.empty(len(hashes), ENTRIES)
        entries["hash"] = hashes
        entries["physical_offset"] = np.repeat(offsets, counts)
        entries["seconds"] = np.repeat(seconds, counts)
        entries["previous"] = previous
        tail = self._tail[1]
        tail += entries.tobytes()  # before the slots: `chain` follows them meanwhile
        slot_heads[slots] = numbers
        self._slots_used += int(np.count_nonzero(previous == 0))
        self._dirty.update(np.unique(slots // PAGE_SLOTS).tolist())
        self.next_entry += len(hashes)
        self.end_ms, self.end_offset = times_ms[-1], offsets[-1]

    def flush(self) -> None:
        """Write what is in memory only; the cache then counts the file as dirty."""
        first, tail = self._tail
        if not tail and not self._dirty:
            return
        size = file_bytes(self._slots, self._entries)
        file = self._cache.get(self._path) or self._cache.create(paths.INDEX, self._path, size)
        self._cache.mark_dirty(file)
        data = bytes(tail)
        if data:
            file.pwritev([data], entry_at(self._slots, first))
        for page, end in _runs(sorted(self._dirty)):
            start = page * PAGE_SLOTS
            assert self._heads is not None
            part = self._heads[start : min(end * PAGE_SLOTS, self._slots)]
            if sys.byteorder == "little":
                part.byteswap()
            file.pwritev([part.tobytes()], slot_at(start))
        file.pwritev([encode_header(self._header())], 0)
        self._dirty.clear()
        self._crc = google_crc32c.extend(self._crc, data)
        self._tail = (first + len(data) // ENTRY_BYTES, tail[len(data) :])

    def seal(self) -> None:
        """Nothing is added any more; the slots are read from the file. `flush` comes first."""
        assert not self._tail[1]
        self._heads = None

    def state(self) -> IndexFileState:
        """For a checkpoint; `flush` comes first."""
        assert self._tail[0] == self.next_entry
        return IndexFileState(
            self.name,
            self.next_entry,
            self._crc,
            self.begin_ms,
            self.end_ms,
            self.begin_offset,
            self.end_offset,
        )

    def chain(self, hashed: int, *, wait_for_disk: bool = True) -> Iterator[tuple[bool, int, int]]:
        """The entries of a hash's slot, newest first: (same hash, physical offset, seconds)."""
        slot = hashed % self._slots
        heads = self._heads
        if heads is not None:
            number = heads[slot]
        else:
            raw = self._read(slot_at(slot), SLOT_BYTES, wait_for_disk=wait_for_disk)
            number = int.from_bytes(raw)
        first, tail = self._tail
        limit = first + len(tail) // ENTRY_BYTES  # `append` counts an entry after its slot is set
        while number:
            if not 0 < number < limit:
                raise IndexDamaged(f"{self._path}: entry {number} behind {limit}")
            found, offset, seconds, previous = self._entry(number, wait_for_disk=wait_for_disk)
            yield found == hashed, offset, seconds
            number, limit = previous, number

    def verify(self) -> bool:
        """Compare a sealed file with its checkpoint, once; True: wrong slots were put right.

        Raises `IndexDamaged`.
        """
        was_wrong = False
        if not self.verified:
            heads = chain_heads(self._load_entries(), self._slots)
            stored = self._read(HEADER_BYTES, SLOT_BYTES * self._slots)
            expected = heads.astype(">i4").tobytes()
            was_wrong = stored != expected
            if was_wrong:
                file = self._cache.get(self._path)
                if file is None:
                    raise IndexDamaged(f"{self._path}: removed")
                self._cache.mark_dirty(file)
                file.pwritev([expected], HEADER_BYTES)
            self.verified = True
        return was_wrong

    def resume(self, end: int) -> int:
        """Take the file up again for appending, without entries of records from `end` on.

        Returns how many slots stand there otherwise; the next flush writes them.

        Raises `IndexDamaged`.
        """
        entries = self._load_entries()
        kept = int(np.searchsorted(entries["physical_offset"], end))
        entries = entries[:kept]
        heads = chain_heads(entries, self._slots)
        self._heads = array("i", heads.tobytes())
        self._slots_used = int(np.count_nonzero(heads))
        self.next_entry = kept + 1
        self._tail = (self.next_entry, bytearray())
        self._crc = google_crc32c.value(entries.tobytes())
        stored = self._read(HEADER_BYTES, SLOT_BYTES * self._slots)
        wrong = np.flatnonzero(np.frombuffer(stored, ">i4") != heads)
        self._dirty = set((wrong // PAGE_SLOTS).tolist())
        if kept:
            self.end_offset = int(entries["physical_offset"][-1])
            self.end_ms = min(self.end_ms, self.begin_ms + 1000 * int(entries["seconds"][-1]) + 999)
        self.verified = True
        return len(wrong)

    def _load_entries(self) -> "np.ndarray[tuple[int], np.dtype[np.void]]":
        count = self.next_entry - 1
        data = self._read(entry_at(self._slots, 1), ENTRY_BYTES * count)
        if google_crc32c.value(data) != self._crc:
            raise IndexDamaged(f"{self._path}: the checksum of the entries does not match")
        return np.frombuffer(data, ENTRIES)

    def _entry(self, number: int, *, wait_for_disk: bool) -> tuple[int, int, int, int]:
        first, tail = self._tail
        if number >= first:
            return ENTRY.unpack_from(tail, (number - first) * ENTRY_BYTES)
        at = entry_at(self._slots, number)
        return ENTRY.unpack(self._read(at, ENTRY_BYTES, wait_for_disk=wait_for_disk))

    def _read(self, at: int, size: int, *, wait_for_disk: bool = True) -> bytes:
        file = self._cache.get(self._path)
        data = file.pread(size, at, wait_for_disk=wait_for_disk) if file is not None else b""
        if len(data) != size:
            raise IndexDamaged(f"{self._path}: {len(data)} of {size} bytes at {at}")
        return data

    def _header(self) -> IndexHeader:
        return IndexHeader(
            self.begin_ms,
            self.end_ms,
            self.begin_offset,
            self.end_offset,
            self._slots_used,
            self.next_entry,
        )


def _runs(pages: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Neighbouring pages together, as half-open ranges."""
    start = end = -1
    for page in pages:
        if page != end:
            if end > start:
                yield start, end
            start = page
        end = page + 1
    if end > start:
        yield start, end
