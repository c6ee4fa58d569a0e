"""Sums of records that were found good, so that reading them again takes two checksums a block.

Every read checks every byte that it serves. The first time each record is checked by itself, which
costs more than summing it; what was good is remembered here. A block is `BLOCK_RECORDS` messages of
one queue, and its sum two CRC-32: of their units, and of the stretch of the log from the first of
their records to the last. A read that finds the same units and the same bytes has found the same
good records. Whatever else it finds is checked record by record and reported as ever.

A sum belongs to a queue and its offsets, which mean the same messages as long as the store is open.
So nothing has to be forgotten when segments go or units are mended: an old sum fits no other bytes.
In memory only: after an opening nothing is known. The tables have a fixed number of places, and a
new block takes the place of an older one. Any thread.

A large block is `LARGE_BLOCK_RECORDS` messages in the same way. A read that has it whole takes two
checksums for it and looks at none of the small ones in it.
"""

import threading
from array import array
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np

from app.domain.limits import KNOWN_BLOCKS_MAX, KNOWN_LARGE_BLOCKS_MAX
from app.store.formats.files.consume_queue import UNIT_BYTES
from app.store.formats.record.checksum import crc32
from app.store.formats.record.record_block import even_pieces

BLOCK_RECORDS: Final = 16
"""A batch of 32 has whole blocks in it; a block costs half a microsecond beside its bytes."""

LARGE_BLOCK_RECORDS: Final = 8 * BLOCK_RECORDS

UNKNOWN: Final = -1
UNREADABLE: Final = -2
"""In place of the sum of a block whose bytes are not all there."""

_FEW: Final = 4
"""Blocks that are looked up one by one sooner than all at once."""

_EVEN_PARTS_MIN: Final = 16
"""Parts from which it is worth finding out whether all have the same length and distance."""

_BLOCK_BITS: Final = 40
_QUEUES_MAX: Final = 1 << (64 - _BLOCK_BITS)
_GOLDEN_RATIO: Final = 0.618_034
"""Of the table: queues that begin so far from each other, in turn, keep the largest distances
(Knuth, The Art of Computer Programming, 3, section 6.4)."""


class VerifiedBlocks:
    """The blocks of one size that one store knows. `places` is a power of two."""

    __slots__ = ("_keys", "_lock", "_places", "_spread", "_sums", "records")

    def __init__(self, places: int = KNOWN_BLOCKS_MAX, records: int = BLOCK_RECORDS) -> None:
        assert places & (places - 1) == 0
        self.records = records
        """In a block."""
        self._places = places
        self._spread = int(places * _GOLDEN_RATIO) | 1
        self._keys = _table(places)
        self._sums = _table(places)
        self._lock = threading.Lock()

    def sums(self, queue: int, first: int, count: int) -> list[int]:
        """What is known of the blocks from `first` on: a sum for each, or `UNKNOWN`.

        `queue` is the queue's number in this store, at least 1.
        """
        keys, sums, last = self._keys, self._sums, self._places - 1
        key = queue << _BLOCK_BITS | first
        place = queue * self._spread + first & last
        if not 0 < queue < _QUEUES_MAX:
            return [UNKNOWN] * count
        with self._lock:
            if count > _FEW and keys[place : place + count] == array("Q", range(key, key + count)):
                return sums[place : place + count].tolist()
            return [
                sums[at & last] if keys[at & last] == key - place + at else UNKNOWN
                for at in range(place, place + count)
            ]

    def note(self, queue: int, first: int, found: Sequence[int]) -> None:
        """Remember the blocks from `first` on, but for those without a sum."""
        keys, sums, last = self._keys, self._sums, self._places - 1
        if not 0 < queue < _QUEUES_MAX:
            return
        key = queue << _BLOCK_BITS | first
        at, count = queue * self._spread + first & last, len(found)
        is_whole = at + count <= self._places and min(found, default=UNKNOWN) >= 0
        with self._lock:
            if is_whole:
                keys[at : at + count] = array("Q", range(key, key + count))
                sums[at : at + count] = array("Q", found)
                return
            for place, each in enumerate(found, queue * self._spread + first):
                if each >= 0:
                    keys[place & last] = key
                    sums[place & last] = each
                key += 1


def _table(places: int) -> memoryview:
    """Zeros of eight bytes, in memory that is taken as it is used: most stores use little of it."""
    return np.zeros(8 * places, np.uint8).data.cast("Q")


class Known(NamedTuple):
    """What one store knows of its blocks."""

    large: VerifiedBlocks
    small: VerifiedBlocks


def nothing_known() -> Known:
    """Empty tables."""
    return Known(VerifiedBlocks(KNOWN_LARGE_BLOCKS_MAX, LARGE_BLOCK_RECORDS), VerifiedBlocks())


class Noted(NamedTuple):
    """Sums of consecutive blocks, to be noted once they are readable."""

    known: VerifiedBlocks
    first: int
    sums: Sequence[int]

    def enter(self, queue: int) -> None:
        """The blocks are readable as those of this queue of the store."""
        self.known.note(queue, self.first, self.sums)


def whole_blocks(first_offset: int, count: int, records: int = BLOCK_RECORDS) -> range:
    """Where blocks begin that lie whole among `count` messages from `first_offset` on.

    Counted from the first of these messages; its step is the `records` in a block.
    """
    start = -first_offset % records
    return range(start, max(count - records + 1, start), records)


def block_sums(
    units: bytes | memoryview,
    data: memoryview,
    blocks: range,
    starts: Sequence[int],
    ends: Sequence[int],
) -> list[int]:
    """The sum of each of `blocks` (from `whole_blocks`).

    `units` are those of the messages that the blocks are counted in; the records of block n stand
    in `data[starts[n]:ends[n]]`, with whatever is between them.
    """
    heads = sums_of_units(units, blocks)
    rest = sums_of_parts(data, starts, ends)
    return [head << 32 | body for head, body in zip(heads, rest, strict=True)]


def sums_of_units(units: bytes | memoryview, blocks: range) -> Iterable[int]:
    """The CRC-32 of the units of each of `blocks`."""
    size = blocks.step * UNIT_BYTES
    if len(blocks) < _EVEN_PARTS_MIN:
        return [crc32(units[at * UNIT_BYTES : at * UNIT_BYTES + size]) for at in blocks]
    return map(crc32, even_pieces(units, blocks.start * UNIT_BYTES, size, size, len(blocks)))


def sums_of_parts(
    data: bytes | memoryview, starts: Sequence[int], ends: Sequence[int]
) -> list[int]:
    """The CRC-32 of each of some parts of `data`; in less time where they stand evenly."""
    count = len(starts)
    if count >= _EVEN_PARTS_MIN:
        start, end = starts[0], ends[0]
        distance = starts[1] - start
        is_even = (
            0 < end - start <= distance
            and starts == list(range(start, start + count * distance, distance))
            and ends == list(range(end, end + count * distance, distance))
            and ends[-1] <= len(data)
        )
        if is_even:
            return list(map(crc32, even_pieces(data, start, end - start, distance, count)))
    return [crc32(data[start:end]) for start, end in zip(starts, ends, strict=True)]
