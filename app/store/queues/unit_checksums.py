"""Checksums of a queue's units, block by block: what a unit cannot say about itself.

A unit has no room for a checksum, and a flipped tag hash would hide its message from reads by tag.
So each checkpoint names a CRC-32C for every block of units in the files, the last block as far as
it is filled. The sums come from the bytes as they were made, never from reading a file back. A
block is checked when it is read for the first time after an opening.

Blocks do not cross files, so that a file can be dropped with its sums. The first block counts from
the first unit that the queue had when its sums began, and the last one to `end`.

`extend`, `drop_below` and `encode` belong to the event loop; what is still to be checked may be
asked and settled by any thread.
"""

from array import array
from collections.abc import Iterator
from typing import Final, NamedTuple

import google_crc32c

from app.store.formats.files.consume_queue import UNIT_BYTES

BLOCK_UNITS: Final = 4096
"""80 KiB: a first read of a block costs some 30 µs, a million messages 1.3 KB of checkpoint."""


class Unchecked(NamedTuple):
    """A block that was not read since the opening: units `[first, end)` and their CRC-32C."""

    number: int
    first: int
    end: int
    crc: int


class UnitChecksums:
    """The sums of one queue, for the units `[start, end)`."""

    __slots__ = ("_blocks_in_file", "_file_units", "_sums", "_unchecked", "end", "start")

    def __init__(self, file_units: int) -> None:
        self._file_units = file_units
        self._blocks_in_file = -(-file_units // BLOCK_UNITS)
        self.start = self.end = 0
        self._sums = array("I", (0,))
        self._unchecked: dict[int, Unchecked] = {}

    def begin(self, offset: int) -> None:
        """Start anew at `offset`, with nothing to check."""
        self.start = self.end = offset
        self._sums = array("I", (0,))
        self._unchecked = {}

    def extend(self, units: bytes) -> None:
        """Take in units that follow `end`."""
        done = 0
        while done < len(units):
            room = (self._end_of(self._block(self.end)) - self.end) * UNIT_BYTES
            part = units[done : done + room]
            self._sums[-1] = google_crc32c.extend(self._sums[-1], part)
            self.end += len(part) // UNIT_BYTES
            if len(part) == room:
                self._sums.append(0)
            done += len(part)

    def drop_below(self, offset: int) -> None:
        """Forget the blocks that end at or before `offset`."""
        offset = min(offset, self.end)
        count = self._block(offset) - self._block(self.start)
        if count > 0:
            for number in range(self._block(self.start), self._block(offset)):
                self._unchecked.pop(number, None)
            del self._sums[:count]
            self.start = self._first_of(self._block(offset))

    def encode(self) -> bytes:
        """Four bytes for each block from `start` to `end`, the last one not full; big-endian."""
        sums = array("I", self._sums)
        sums.byteswap()
        return sums.tobytes()

    def load(self, start: int, end: int, encoded: bytes) -> bool:
        """Take what `encode` gave for these bounds; False when it does not fit them."""
        self.begin(start)
        blocks = self._block(end) - self._block(start) + 1
        if start > end or len(encoded) != 4 * blocks:
            return False
        self._sums = array("I", encoded)
        self._sums.byteswap()
        self.end = end
        for index, crc in enumerate(self._sums, 0):
            number = self._block(start) + index
            first, last = max(self._first_of(number), start), min(self._end_of(number), end)
            if first < last:
                self._unchecked[number] = Unchecked(number, first, last, crc)
        return True

    def unchecked(self, first: int, end: int) -> Iterator[Unchecked]:
        """The blocks among units `[first, end)` that were not checked yet."""
        if self._unchecked and first < end:
            for number in range(self._block(first), self._block(end - 1) + 1):
                block = self._unchecked.get(number)
                if block is not None:
                    yield block

    def settle(self, block: Unchecked) -> None:
        """The block was checked, or what could be put right was."""
        self._unchecked.pop(block.number, None)

    def _block(self, offset: int) -> int:
        file, unit = divmod(offset, self._file_units)
        return file * self._blocks_in_file + unit // BLOCK_UNITS

    def _first_of(self, number: int) -> int:
        file, block = divmod(number, self._blocks_in_file)
        return file * self._file_units + block * BLOCK_UNITS

    def _end_of(self, number: int) -> int:
        file, block = divmod(number, self._blocks_in_file)
        return file * self._file_units + min((block + 1) * BLOCK_UNITS, self._file_units)
