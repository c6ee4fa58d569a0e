"""The commit log: ordered segments as one byte space.

Every record of every topic, in the order of arrival. Segments have a fixed size and are named by
their first physical offset; a record never crosses a segment: when it does not fit, an end-of-file
record closes the segment. A new segment is allocated in full before anything is written to it, so
a disk without room is noticed before any byte of a batch is on it.

`AppendCursor` decides where records go (event loop). `CommitLog` moves bytes: `prepare`, `write`
and `sync` belong to the writer, one at a time; `read` may be called from any thread.
"""

import bisect
import contextlib
import errno
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Final

import numpy as np

from app.domain.shortages import SyncFailed, shortage_of
from app.store import paths
from app.store.formats.record.record import END_OF_FILE_BYTES, encode_end_of_file
from app.store.formats.record.record_block import Ints
from app.store.fs.file_cache import FileCache
from app.store.fs.files import Buffer, File, FilePart, FileSystem
from app.store.fs.strays import is_segment
from app.store.log.sync_times import SyncTimes

_LOG: Final = logging.getLogger(__name__)

OPEN_SEGMENTS_MAX: Final = 128
"""Segments that are open for reading; those being written come on top. 32 GiB of the usual size."""


@dataclass(slots=True)
class Stretch:
    """Records `first` to `end` (exclusive) of a block, one behind the other from `start`."""

    start: int
    first: int
    end: int


@dataclass(slots=True)
class Placement:
    """Where the records of one block go. `closing` are the end-of-file records in between.

    `place_all` gives the physical offsets beside it.
    """

    physical_offsets: list[int]
    stretches: list[Stretch]
    end: int
    """Physical offset behind the last record: where the cursor goes when the block is submitted."""
    closing: list[tuple[int, bytes]] = field(default_factory=list)


class AppendCursor:
    """The end of the log as assigned so far, and the rule where the next record goes. Pure.

    Placing moves nothing: the owner sets `end` once the block is made and submitted.
    """

    __slots__ = ("_segment_bytes", "end")

    def __init__(self, end: int, segment_bytes: int) -> None:
        self.end = end
        self._segment_bytes = segment_bytes

    def place(self, sizes: Sequence[int]) -> Placement:
        """Where each record goes."""
        return self._place_from(self.end, sizes)

    def _place_from(self, start: int, sizes: Sequence[int]) -> Placement:
        offsets: list[int] = []
        placement = Placement(offsets, [], start)
        first, end = 0, start
        room = self._segment_bytes - end % self._segment_bytes
        for index, size in enumerate(sizes):
            if size + END_OF_FILE_BYTES > room:
                if index > first:
                    placement.stretches.append(Stretch(start, first, index))
                placement.closing.append((end, encode_end_of_file(room)))
                end += room
                room = self._segment_bytes
                start, first = end, index
            offsets.append(end)
            end += size
            room -= size
        placement.stretches.append(Stretch(start, first, len(sizes)))
        placement.end = end
        return placement

    def place_all(self, sizes: Ints) -> tuple[Ints, Placement]:
        """`place` with the positions as an array; without a loop when all fit into the segment."""
        total = int(sizes.sum())
        start = self.end
        if total + END_OF_FILE_BYTES <= self._segment_bytes - start % self._segment_bytes:
            stretch = Stretch(start, 0, len(sizes))
            return start + np.cumsum(sizes) - sizes, Placement([], [stretch], start + total)
        placement = self.place(sizes.tolist())
        return np.array(placement.physical_offsets, np.int64), placement

    def place_together(self, sizes: Sequence[int]) -> Placement:
        """`place` in one segment: the next, when not all fit into this one.

        All of them fit into a segment; that is the caller's duty.
        """
        room = self._segment_bytes - self.end % self._segment_bytes
        if sum(sizes) + END_OF_FILE_BYTES <= room:
            return self.place(sizes)
        placement = self._place_from(self.end + room, sizes)
        placement.closing.append((self.end, encode_end_of_file(room)))
        return placement


class CommitLog:
    """The segments of one store."""

    def __init__(
        self, files: FileSystem, segment_bytes: int, open_segments_max: int | None = None
    ) -> None:
        self._files = files
        self.segment_bytes = segment_bytes
        self._written: dict[int, File] = {}
        """Segments that are written to: they stay open until they are synced and full."""
        self._cache = FileCache(
            files, min(open_segments_max or OPEN_SEGMENTS_MAX, OPEN_SEGMENTS_MAX)
        )
        self.bases: list[int] = []
        """First physical offset of each segment, ascending. Appended to by the writer only."""
        self._known: set[int] = set()
        self.on_read: Callable[[int, int], None] = lambda _start, _size: None
        """Told of what readers of queues read, on their threads."""
        self.sync_times = SyncTimes()
        self._dirty: set[int] = set()
        self._prepared: set[int] = set()
        """Segments with all their room. A process that was killed may leave a shorter one."""
        for name in files.list(paths.COMMIT_LOG):
            base = paths.parse_file_name(name)
            if base is not None and is_segment(files, name, segment_bytes):
                self.bases.append(base)
                self._known.add(base)
                if self._file(base).size() >= segment_bytes:
                    self._prepared.add(base)

    def _find(self, base: int) -> File | None:
        """A segment, opened if need be; None when there is none, or no longer."""
        if base not in self._known:
            return None
        try:
            return self._file(base)
        except FileNotFoundError:  # retention was quicker
            return None

    def _file(self, base: int) -> File:
        file = self._written.get(base) or self._cache.get(paths.segment(base))
        if file is None:
            raise FileNotFoundError(errno.ENOENT, paths.segment(base))
        return file

    @property
    def start(self) -> int:
        """First physical offset that is still there."""
        return self.bases[0] if self.bases else 0

    @property
    def end_of_segments(self) -> int:
        """Physical offset behind the last segment, whatever is in it."""
        return self.bases[-1] + self.segment_bytes if self.bases else 0

    def base_of(self, physical_offset: int) -> int:
        """Base of the segment that holds `physical_offset`."""
        return physical_offset - physical_offset % self.segment_bytes

    def prepare(self, base: int) -> None:
        """Make the segment of `base`, allocated in full, its name on the medium, and open it.

        Raises `OSError` with nothing changed when there is no room for it, or no descriptor.
        """
        if base in self._prepared:
            if base not in self._written:
                self._written[base] = self._file(base)
            return
        file = self._find(base)
        if file is not None:
            file.allocate(self.segment_bytes)
        else:
            file = self._make(base)
        self._files.sync_directory(paths.COMMIT_LOG)
        self._prepared.add(base)
        self._written[base] = file
        if base not in self._known:
            self._known.add(base)
            bisect.insort(self.bases, base)

    def _make(self, base: int) -> File:
        path = paths.segment(base)
        file = self._files.open(path, create=True)
        try:
            file.allocate(self.segment_bytes)
        except OSError:
            file.close()
            self._files.remove(path)
            raise
        return file

    def take_back(self, start: int) -> None:
        """Drop what may stand from `start` on, on the medium too, as if it were never written.

        For the worker, as `finish_sync`. The room is given back: `prepare` takes it again. Raises
        `OSError`, and then it is not known what stands there.
        """
        try:
            behind = [base for base in self.bases if base + self.segment_bytes > start]
            for base in reversed(behind):  # a start that finds this half done must find no gap
                file = self._file(base)
                self._prepared.discard(base)
                file.truncate(max(start - base, 0))
                file.truncate(self.segment_bytes)
                file.sync()
                self._dirty.discard(base)
        except SyncFailed:
            self.note_failed_sync()
            raise

    def is_prepared(self, end: int) -> bool:
        """Whether records up to `end` (exclusive) need no new segment."""
        return self.base_of(end - 1) in self._prepared

    def is_written(self, physical_offset: int) -> bool:
        """Whether the segment of an offset has been written to since the last sync.

        Then it and those before it are made.
        """
        return physical_offset - physical_offset % self.segment_bytes in self._dirty

    def missing_next(self, end: int) -> int | None:
        """Base of the segment behind the one that was written up to `end`, when it is not made."""
        base = self.base_of(end - 1) + self.segment_bytes
        return None if base in self._prepared else base

    def write(self, start: int, buffers: Sequence[Buffer]) -> None:
        """Write one stretch that lies within a prepared segment."""
        place = start % self.segment_bytes
        base = start - place
        self._dirty.add(base)
        file = self._written.get(base)
        if file is None:
            file = self._written[base] = self._file(base)
        file.pwritev(buffers, place)

    def sync(self) -> None:
        """Bring everything written so far to the medium. Raises as `finish_sync`."""
        self.finish_sync(self.begin_sync())

    def begin_sync(self) -> list[int]:
        """Bases of the segments written to since this was last asked, for `finish_sync`.

        For the one who writes now. What is written from now on is for the next sync.
        """
        bases, self._dirty = sorted(self._dirty), set()
        return bases

    def sync_between(self, start: int, end: int) -> None:
        """`sync`, and `[start, end)` with it, also where a sync was begun and never finished."""
        for base in range(self.base_of(start), end, self.segment_bytes):
            file = self._written.get(base) or self._find(base)
            if file is not None:  # else retention has removed the segment
                self._written[base] = file
                self._dirty.add(base)
        self.sync()

    def finish_sync(self, bases: list[int]) -> None:
        """Bring segments to the medium, oldest first. Others may write meanwhile.

        When that fails, later writes may be on the medium and earlier ones not. The next start is
        told by a file, which need not be synced: a power loss it will notice itself.
        """
        began_s = perf_counter()
        try:
            for base in bases:
                file = self._written.get(base)
                if file is not None:  # else retention, on its thread, has removed the segment
                    file.sync()
        except OSError:
            self.note_failed_sync()
            raise
        finally:
            if bases:
                self.sync_times.note(perf_counter() - began_s)
        in_use = bases[-1] if bases else 0
        for base in [base for base in list(self._written) if base < in_use]:
            self._written.pop(base, None)  # closed when the last reader is done with it

    def note_failed_sync(self) -> None:
        """Tell the next start of it: by a file, or, without a descriptor or room for one, by giving
        its name to the file that says that the store is in use, which needs neither."""
        try:
            self._files.open(paths.SYNC_FAILED, create=True).close()
        except OSError as error:
            _LOG.error("no file says to the next start that a sync failed: %s", error)
            self._rename_to_sync_failed()

    def _rename_to_sync_failed(self) -> None:
        try:
            if self._files.exists(paths.ABORT):
                self._files.replace(paths.ABORT, paths.SYNC_FAILED)
                return
        except OSError as error:
            _LOG.error("nor does %s, renamed: %s", paths.ABORT, error)
        _LOG.critical(
            "a sync failed, and the next start will not know it: make the file %s before you start "
            "the node, else it counts on what may be lost",
            paths.SYNC_FAILED,
        )

    def sync_all(self) -> None:
        """Bring everything to the medium, also what another process wrote and the names it made."""
        for base in self.bases:
            self._file(base).sync()
        self._files.sync_directory(paths.COMMIT_LOG)
        self._dirty.clear()

    def short_segments(self) -> list[int]:
        """Bases of segments that lost their end, or were being made."""
        return [b for b in self.bases if self._file(b).size() < self.segment_bytes]

    def extend_short_segments(self) -> None:
        """Give such segments their full size again, with zeros."""
        for base in self.short_segments():
            file = self._file(base)
            file.truncate(self.segment_bytes)
            file.sync()

    def drop_first(self) -> str:
        """Remove the oldest segment; its path. Readers that have it open go on."""
        base = self.bases[0]
        assert len(self.bases) > 1
        self._files.remove(paths.segment(base))  # first: what fails is found again by the next pass
        self.bases.remove(base)
        self._known.discard(base)
        self._prepared.discard(base)
        self._written.pop(base, None)
        path = paths.segment(base)
        self._cache.forget(path)
        return path

    def sync_names(self) -> None:
        """Bring the names of segments to the medium."""
        self._files.sync_directory(paths.COMMIT_LOG)

    def drop_cached(self, start: int) -> None:
        """Let what stands from `start` on be read from the medium; it has been synced."""
        for base in self.bases:
            if base + self.segment_bytes > start:
                self._file(base).drop_cached()

    def let_go(self, start: int, end: int) -> None:
        """Give back the memory that holds `[start, end)`, which has been synced. Any thread.

        Only a hint, other than `drop_cached`: what retention removed meanwhile is passed over.
        """
        while start < end:
            base = self.base_of(start)
            size = min(base + self.segment_bytes, end) - start
            file = self._find(base)
            if file is not None:
                file.drop_cached(start - base, size)
            start += size

    def read(self, physical_offset: int, size: int, *, wait_for_disk: bool = True) -> bytes:
        """Bytes within one segment; fewer than `size` at its end. `ColdRead` as `File.pread`."""
        base = self.base_of(physical_offset)
        file = self._find(base)
        if file is None:
            return b""
        return file.pread(size, physical_offset - base, wait_for_disk=wait_for_disk)

    def read_view(
        self, physical_offset: int, size: int, *, wait_for_disk: bool = True
    ) -> memoryview:
        """The same as `File.pread_view`."""
        base = self.base_of(physical_offset)
        file = self._find(base)
        if file is None:
            return memoryview(b"")
        self.on_read(physical_offset, size)
        return file.pread_view(size, physical_offset - base, wait_for_disk=wait_for_disk)

    def read_pieces(
        self, buffer: memoryview, pieces: Iterable[tuple[int, int, int, int]]
    ) -> list[bool]:
        """Fill pieces of `buffer` (physical offset, start, end, and what is not looked at), each
        from within one segment, as `File.pread_into` does; which of them were."""
        found: list[bool] = []
        segment_bytes, on_read = self.segment_bytes, self.on_read
        base, file = -1, None
        for physical_offset, start, end, _ in pieces:
            place = physical_offset % segment_bytes
            if base != physical_offset - place:
                base = physical_offset - place
                file = self._find(base)
            if file is None or end == start:
                found.append(False)
                continue
            on_read(physical_offset, end - start)
            found.append(file.pread_into(buffer[start:end], place))
        return found

    def file_part(self, physical_offset: int, size: int) -> FilePart | None:
        """Where bytes within one segment stand; None when it is gone."""
        base = self.base_of(physical_offset)
        file = self._find(base)
        if file is None:
            return None
        self.on_read(physical_offset, size)
        return FilePart(file, physical_offset - base, size)

    def next_data(self, physical_offset: int) -> int:
        """The next place that may hold anything but zeros, or the end of the segments."""
        while physical_offset < self.end_of_segments:
            base = self.base_of(physical_offset)
            file = self._find(base)
            found = file.next_data(physical_offset - base) if file is not None else None
            if found is not None:
                return max(base + found, physical_offset)
            physical_offset = base + self.segment_bytes
        return physical_offset

    def put_right(self, pieces: Sequence[tuple[int, Buffer]]) -> None:
        """Write over bytes within one segment that were damaged, synced once; reads come from the
        medium then. A piece is where it begins, and its bytes. Beside the writer, who writes
        elsewhere. Raises `OSError`, `SyncFailed`."""
        base = self.base_of(pieces[0][0])
        file = self._find(base)
        if file is None:
            raise FileNotFoundError(errno.ENOENT, paths.segment(base))
        for start, data in pieces:
            file.pwritev([data], start - base)
        try:
            file.sync()
        except SyncFailed:
            self.note_failed_sync()
            raise
        for start, data in pieces:
            file.drop_cached(start - base, len(data))

    def cut(self, end: int) -> None:
        """Zero what stands behind `end` and drop later segments. The caller has kept a copy.

        The last one goes first, for good: a loss of power leaves none missing between others.
        Without room for all of the last segment it has its size, and `prepare` allocates it.
        """
        for base in [base for base in reversed(self.bases) if base > end]:
            self._known.discard(base)
            self._prepared.discard(base)
            self._written.pop(base, None)
            self._cache.forget(paths.segment(base))
            with contextlib.suppress(FileNotFoundError):  # a cut before this one lacked something
                self._files.remove(paths.segment(base))
            self._files.sync_directory(paths.COMMIT_LOG)
            self.bases.remove(base)
        base = self.base_of(end)
        file = self._find(base)
        if file is not None:
            file.truncate(end - base)
            try:
                file.allocate(self.segment_bytes)
            except OSError as error:
                if shortage_of(error) is None:
                    raise
                self._prepared.discard(base)
                file.truncate(self.segment_bytes)
        self._files.sync_directory(paths.COMMIT_LOG)

    def close(self) -> None:
        """Close all files; the writer has stopped."""
        for file in self._written.values():
            file.close()
        self._written.clear()
        self._cache.close()
