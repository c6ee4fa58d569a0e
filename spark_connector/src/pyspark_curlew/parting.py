"""Puts the bodies of records apart from the rest of them, while a frame comes.

Spark wants the bodies one behind the other, so they are copied at least once. Of a frame of 16 MiB
that is received whole, each byte comes from memory three times: to be received, summed, and copied.
Here one piece after the other comes into the same MiB, which stays in the processor's cache, and
what leaves that is written once (docs/adr/0036 has the figures). Records of one size that follow
each other are a matrix, whose columns numpy copies; where there are too few of those, the frame is
read whole. Called by `frame`.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pyspark_curlew.crc32c import Checksum
from pyspark_curlew.errors import FrameDamaged
from pyspark_curlew.record_layout import FIXED_BYTES, FLAGS_AT, RECORD_BYTES_MIN, body_shift
from pyspark_curlew.sources import Source

Bytes = NDArray[np.uint8]
Int64s = NDArray[np.int64]

PIECE_BYTES_MAX: Final = 1024 * 1024
"""Received at once, unless a single record has more."""
PIECE_BYTES_MIN: Final = 128 * 1024
"""On average: each piece costs some 25 us beside its bytes."""

_FLAGS: Final = slice(FLAGS_AT, FLAGS_AT + 4)
_LEAST_BEHIND: Final = RECORD_BYTES_MIN - FIXED_BYTES
"""Bytes behind a body: the lengths of the topic and of the properties."""


class Bodies(NamedTuple):
    """The bodies of all records, back to back, and how many bytes each has."""

    data: Bytes
    sizes: Int64s


class Parted(NamedTuple):
    """`rest` holds the records without their bodies, back to back."""

    rest: Bytes
    bodies: Bodies
    checksum: int


def pieces_of(sizes: Int64s) -> list[range] | None:
    """Which records to receive at once, all of one size; None when the pieces would be small.

    Also when a size is none of a record: that is for `records` to say.
    """
    if len(sizes) == 0 or int(sizes.min()) < RECORD_BYTES_MIN:
        return None
    changes = np.flatnonzero(np.diff(sizes)) + 1
    if (len(changes) + 1) * PIECE_BYTES_MIN > int(sizes.sum()):
        return None
    starts = [0, *changes.tolist()]
    stops = [*changes.tolist(), len(sizes)]
    pieces = []
    for start, stop in zip(starts, stops, strict=True):
        count = max(1, PIECE_BYTES_MAX // int(sizes[start]))
        pieces += [range(at, min(at + count, stop)) for at in range(start, stop, count)]
    return pieces


def read_parted(
    source: Source, sizes: Int64s, pieces: list[range], checksum: Checksum, before: int
) -> Parted:
    """Receive records of `sizes` bytes; `before` is the checksum of what came before them.

    Raises `FrameDamaged` where a length inside a record leads out of it. Nothing of the result may
    be believed before its checksum is compared.
    """
    parting = _Parting(sizes)
    room = np.empty(max(len(piece) * int(sizes[piece.start]) for piece in pieces), dtype=np.uint8)
    for piece in pieces:
        size = int(sizes[piece.start])
        here = room[: len(piece) * size]
        source.take_into(here.data)
        before = checksum(here, before)
        parting.add(here.reshape(len(piece), size))
    return parting.parted(before)


class _Parting:
    """What has come so far."""

    def __init__(self, sizes: Int64s) -> None:
        self._bodies = np.empty(int(sizes.sum()), dtype=np.uint8)
        self._body_bytes = 0
        self._body_sizes = np.empty(len(sizes), dtype=np.int64)
        self._records = 0
        self._rests: list[Bytes] = []

    def add(self, records: Bytes) -> None:
        """Records of one size, each a row."""
        first = records[0]
        start = FIXED_BYTES + body_shift(int.from_bytes(first[_FLAGS].tobytes(), "big"))
        length = slice(start - 4, start)
        if not (_are_alike(records[:, _FLAGS]) and _are_alike(records[:, length])):
            half = len(records) // 2
            self.add(records[:half])
            self.add(records[half:])
            return
        size = int.from_bytes(first[length].tobytes(), "big")
        end = start + size
        if end + _LEAST_BEHIND > len(first):
            raise FrameDamaged("the length of a body leads out of its record")
        count = len(records)
        place = self._bodies[self._body_bytes :][: count * size]
        place.reshape(count, size)[...] = records[:, start:end]
        self._body_bytes += count * size
        self._body_sizes[self._records :][:count] = size
        self._records += count
        self._rests.append(np.concatenate((records[:, :start], records[:, end:]), axis=1).ravel())

    def parted(self, checksum: int) -> Parted:
        bodies = Bodies(self._bodies[: self._body_bytes], self._body_sizes)
        return Parted(np.concatenate(self._rests), bodies, checksum)


def _are_alike(rows: Bytes) -> bool:
    return bool((rows == rows[0]).all())
