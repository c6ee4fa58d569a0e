"""Sums of records that were found good, so that reading them again takes two checksums a block.

Every read checks every byte that it serves. The first time each record is checked by itself, which
costs more than summing it; what was good is remembered here. A block is `BLOCK_RECORDS` messages of
one queue, and its sum two CRC-32: of their units, and of the stretch of the log from the first of
their records to the last. A read that finds the same units and the same bytes has found the same
good records. Whatever else it finds is checked record by record and reported as ever.

A sum belongs to a queue and its offsets, which mean the same messages as long as the store is open.
So nothing has to be forgotten when segments go or units are mended: an old sum fits no other bytes.
In memory only: after an opening nothing is known. The table has a fixed number of places, and a new
block takes the place of an older one. Any thread.
"""

import threading
from array import array
from collections.abc import Sequence
from typing import Final

from app.domain.limits import KNOWN_BLOCKS_MAX
from app.store.formats.checksum import crc32
from app.store.formats.consume_queue import UNIT_BYTES

BLOCK_RECORDS: Final = 16
"""A batch of 32 has whole blocks in it; a block costs half a microsecond beside its bytes."""

UNKNOWN: Final = -1
UNREADABLE: Final = -2
"""In place of the sum of a block whose bytes are not all there."""

_BLOCK_BITS: Final = 40
_QUEUES_MAX: Final = 1 << (64 - _BLOCK_BITS)
_SPREAD: Final = 40_503
"""Odd, so that queues begin at different places of the table."""


class KnownBlocks:
    """The blocks that one store knows. `places` is a power of two."""

    __slots__ = ("_keys", "_lock", "_places", "_sums")

    def __init__(self, places: int = KNOWN_BLOCKS_MAX) -> None:
        assert places & (places - 1) == 0
        self._places = places
        self._keys = array("Q", bytes(8 * places))
        self._sums = array("Q", bytes(8 * places))
        self._lock = threading.Lock()

    def sums(self, queue: int, first: int, count: int) -> list[int]:
        """What is known of the blocks from `first` on: a sum for each, or `UNKNOWN`.

        `queue` is the queue's number in this store, at least 1.
        """
        keys, sums, last = self._keys, self._sums, self._places - 1
        key = queue << _BLOCK_BITS | first
        place = queue * _SPREAD + first
        if not 0 < queue < _QUEUES_MAX:
            return [UNKNOWN] * count
        with self._lock:
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
        with self._lock:
            for place, each in enumerate(found, queue * _SPREAD + first):
                if each >= 0:
                    keys[place & last] = key
                    sums[place & last] = each
                key += 1


def whole_blocks(first_offset: int, count: int) -> range:
    """Where blocks begin that lie whole among `count` messages from `first_offset` on.

    Counted from the first of these messages; its step is `BLOCK_RECORDS`.
    """
    start = -first_offset % BLOCK_RECORDS
    return range(start, max(count - BLOCK_RECORDS + 1, start), BLOCK_RECORDS)


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
    size = BLOCK_RECORDS * UNIT_BYTES
    rows = zip(blocks, starts, ends, strict=True)
    return [
        crc32(units[at * UNIT_BYTES : at * UNIT_BYTES + size]) << 32 | crc32(data[start:end])
        for at, start, end in rows
    ]
