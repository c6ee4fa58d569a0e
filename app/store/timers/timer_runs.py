"""Files of the timer log: writing a run, reading it from a due time on, merging several.

Memory: of each run the first entry of every 4,096 is kept (24 bytes), and a merge holds one block
of each run. Any thread.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np

from app.store import paths
from app.store.formats.files.timer_run import (
    BLOCK_BYTES,
    BLOCK_ENTRIES,
    ENTRY_BYTES,
    TRAILER,
    Rows,
    RunDamaged,
    RunIndex,
    RunTail,
    decode_block,
    decode_index,
    decode_trailer,
    encode_block,
)
from app.store.fs.files import File, FileSystem

Entry = tuple[int, int]
"""Due time in ms, code: twice the queue offset; odd: no longer waiting."""

NO_ROWS: Final[Rows] = np.empty((0, 2), np.int64)


class Run:
    """One finished run, open for reading. The file closes with the last reference."""

    def __init__(self, number: int, file: File, index: RunIndex) -> None:
        self.number = number
        self._file = file
        self._index = index

    @property
    def count(self) -> int:
        """Number of entries."""
        return self._index.entries

    @classmethod
    def open(cls, files: FileSystem, number: int) -> "Run":
        """Raises `RunDamaged`, also when the file is missing. Does not look at the blocks."""
        path = paths.timer_run(number)
        if not files.exists(path):
            raise RunDamaged("the file is missing")
        file = files.open(path)
        size = file.size()
        end = max(size - TRAILER.size, 0)
        count, crc = decode_trailer(_read(file, TRAILER.size, end), size)
        start = count * ENTRY_BYTES
        return cls(number, file, decode_index(_read(file, end - start, start), count, crc))

    def rows_from(self, first: Entry) -> Iterator[Rows]:
        """The entries from `first` on, block by block. Blocks. Raises `RunDamaged`."""
        index = self._index
        blocks = range(len(index.due))
        key = bisect_right(blocks, first, key=lambda b: (int(index.due[b]), int(index.code[b])))
        for block in blocks[max(key - 1, 0) :]:
            size = min(BLOCK_BYTES, (self.count - block * BLOCK_ENTRIES) * ENTRY_BYTES)
            data = _read(self._file, size, block * BLOCK_BYTES)
            rows = decode_block(data, int(index.crc[block]))
            if block < key:
                rows = rows[count_before(rows, first) :]
            if len(rows):
                yield rows


def _read(file: File, size: int, offset: int) -> bytes:
    """What the disk does not give back is as good as damaged: the topic has it all."""
    try:
        return file.pread(size, offset)
    except OSError as error:
        raise RunDamaged(f"the disk does not give it back: {error.strerror}") from error


def write_run(files: FileSystem, number: int, pieces: Iterable[Rows]) -> Run | None:
    """Write sorted entries as a run and sync it; None when there are none. Raises `OSError`."""
    path = paths.timer_run(number)
    file = files.open(path, create=True)
    file.truncate(0)
    tail = RunTail()
    for rows in _in_blocks(pieces):
        block = encode_block(rows)
        file.pwritev([block], tail.count * ENTRY_BYTES)
        tail.add(rows, block)
    if not tail.count:
        file.close()
        files.remove(path)
        return None
    file.pwritev([tail.encode()], tail.count * ENTRY_BYTES)
    file.sync()
    file.close()
    files.sync_directory(paths.TIMER_LOG)
    return Run.open(files, number)


def _in_blocks(pieces: Iterable[Rows]) -> Iterator[Rows]:
    rest = NO_ROWS
    for piece in pieces:
        rest = np.concatenate((rest, piece)) if len(rest) else piece
        full = len(rest) - len(rest) % BLOCK_ENTRIES
        for start in range(0, full, BLOCK_ENTRIES):
            yield rest[start : start + BLOCK_ENTRIES]
        rest = rest[full:]
    if len(rest):
        yield rest


def rows_of(entries: Sequence[Entry]) -> Iterator[Rows]:
    """Sorted entries in memory, in the form of a run's."""
    for start in range(0, len(entries), BLOCK_ENTRIES):
        yield np.array(entries[start : start + BLOCK_ENTRIES], np.int64)


def merged(sources: Iterable[Iterator[Rows]], *, is_whole: bool) -> Iterator[Rows]:
    """The entries of several sources in order; a pair of entry and taking-back is left out.

    With `is_whole` the sources have every entry: what takes back one that is not there goes as
    well. No source may have both halves of a pair.
    """
    heads: list[tuple[Rows, Iterator[Rows]]] = []
    for source in sources:
        rows = next(source, None)
        if rows is not None:
            heads.append((rows, source))
    while heads:
        due, code = min((int(rows[-1][0]), int(rows[-1][1]) | 1) for rows, _ in heads)
        taken: list[Rows] = []
        left: list[tuple[Rows, Iterator[Rows]]] = []
        for rows, source in heads:
            count = count_before(rows, (due, code + 1))
            taken.append(rows[:count])
            rest: Rows | None = rows[count:]
            if count == len(rows):
                rest = next(source, None)
            if rest is not None:
                left.append((rest, source))
        heads = left
        together = _without_pairs(np.concatenate(taken), is_whole=is_whole)
        if len(together):
            yield together


def _without_pairs(rows: Rows, *, is_whole: bool) -> Rows:
    rows = rows[np.lexsort((rows[:, 1], rows[:, 0]))]
    due, code = rows[:, 0], rows[:, 1]
    pairs = (due[1:] == due[:-1]) & (code[1:] == code[:-1] + 1) & (code[:-1] % 2 == 0)
    keep = np.ones(len(rows), np.bool_)
    keep[:-1] &= ~pairs
    keep[1:] &= ~pairs
    if is_whole:
        keep &= code % 2 == 0
    return rows[keep]


def count_before(rows: Rows, entry: Entry) -> int:
    """How many of the sorted rows stand before `entry`."""
    due, code = entry
    low = int(np.searchsorted(rows[:, 0], due, "left"))
    high = int(np.searchsorted(rows[:, 0], due, "right"))
    return low + int(np.searchsorted(rows[low:high, 1], code, "left"))
