"""CRC-32 of many pieces of one length that differ in few bytes, from that of the first. Pure.

The sums of two pieces of one length differ by what each byte in which they differ adds, alone and
with zeros for all that follows it; what the bytes add is joined by exclusive or. (CRC is linear but
for its start and end values, which are the same for both. What `m` zeros do to a sum is what its
own four bytes add when the first of them has `m - 1` bytes behind it: a byte of data meets
the lowest byte of the register.)

A table of 256 sums for each distance from the end does the bytes of a column at once.
"""

from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.store.formats.record.checksum import crc32

Sums = NDArray[np.uint32]

_TABLES_MAX: Final = 512
"""Of 1 KiB each. A frame uses some twenty, the next of the same sizes the same."""


@lru_cache(maxsize=_TABLES_MAX)
def _table(behind: int) -> Sums:
    """What each byte adds to the sum of a piece that has `behind` bytes after it."""
    zeros = bytes(behind)
    nothing = crc32(b"\0" + zeros)
    table = np.zeros(256, np.uint32)
    for bit in range(8):
        adds = np.uint32(crc32(bytes((1 << bit,)) + zeros) ^ nothing)
        table[1 << bit : 2 << bit] = table[: 1 << bit] ^ adds
    return table


def add_columns(sums: Sums, columns: NDArray[np.uint8], behind: int) -> None:
    """Add to `sums` (one for each row) in what the rows of `columns` differ from the first.

    The last column has `behind` bytes of the piece after it. There are eight columns or a multiple.
    """
    width = columns.shape[1]
    words = columns.view(f"V{width}")[:, 0].copy().view(np.uint64).reshape(-1, width // 8)
    changed = np.ascontiguousarray(words.T)  # eight columns after the other
    changed ^= changed[:, :1]
    used = np.flatnonzero(np.bitwise_or.reduce(changed, axis=1).view(np.uint8))
    eights = changed.view(np.uint8).reshape(width // 8, -1, 8)
    for column in used.tolist():
        sums ^= _table(width - 1 - column + behind).take(eights[column // 8, :, column % 8])


def add_parts(sums: Sums, parts: Sums, behind: int) -> None:
    """The same for a part of each piece of which only its own sum is given.

    At least four bytes of the piece come after the part.
    """
    assert behind >= 4
    changed = parts ^ parts[0]
    for byte in range(4):
        sums ^= _table(behind - 1 - byte).take((changed >> np.uint32(8 * byte)) & np.uint32(0xFF))
