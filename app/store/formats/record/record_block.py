"""Many records in one piece, looked at together: walking, checking and reading fields with numpy.

Pure. Nothing is decoded here; what is not the intact record of its place is marked and left to
`record.inspect`. The one thing done record by record is the CRC-32, which has no vector form.

Arrays run in parallel, one item for each record. `positions` are places in `data`.
"""

import struct
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.store.formats.record.checksum import crc32
from app.store.formats.record.record import (
    CHECKSUM_BYTES,
    CHECKSUM_NAME,
    CRC_MASK,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_BYTES_MIN,
)

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

HEAD: Final = np.dtype(
    [
        ("total_size", ">u4"),
        ("magic", ">u4"),
        ("body_crc", ">u4"),
        ("queue_id", ">i4"),
        ("flag", ">i4"),
        ("queue_offset", ">i8"),
        ("physical_offset", ">i8"),
        ("system_flag", ">i4"),
        ("born_time_ms", ">i8"),
        ("born_host", "V8"),
        ("store_time_ms", ">i8"),
        ("store_host", "V8"),
        ("reconsume_times", ">i4"),
        ("prepared_offset", ">i8"),
        ("body_length", ">i4"),
    ]
)
"""The fixed part of a record whose hosts are IPv4."""
HEAD_BYTES: Final = HEAD.itemsize
assert HEAD_BYTES == 88

_SIZE_MAGIC: Final = struct.Struct(">II")
_EVEN_MIN: Final = 8
"""So many records of one size are found sooner together than one by one."""
_NAME: Final = np.frombuffer(CHECKSUM_NAME, np.uint8)
_NAME_BYTES: Final = len(CHECKSUM_NAME)
CHECKSUM_POWERS: Final = 10 ** np.arange(10, dtype=np.int64)


class Owner(NamedTuple):
    """To whom records should belong."""

    queue_id: int
    topic_part: bytes
    """The topic with its length in front."""
    queue_offsets: Ints


def walk(data: bytes | memoryview, start: int, end: int) -> Sequence[int]:
    """Where records stand in `data[start:end]`, by their sizes; the last item is behind the last.

    Stops at the first place without a magic or a fitting size. A `range` where several records have
    one size: what is made of it needs no step for each record.
    """
    even = _walk_even(data, start, end)
    unpack = _SIZE_MAGIC.unpack_from
    position, last = even[-1], end - RECORD_BYTES_MIN
    others: list[int] = []
    while position <= last:
        size, magic = unpack(data, position)
        if (magic != MAGIC_V1 and magic != MAGIC_V2) or size < RECORD_BYTES_MIN:
            break
        position += size
        if position > end:
            break
        others.append(position)
    return [*even, *others] if others else even


def _walk_even(data: bytes | memoryview, start: int, end: int) -> range:
    """As `walk`, over the records that have the size and the magic of the first."""
    if end - start < RECORD_BYTES_MIN:
        return range(start, start + 1)
    size, magic = _SIZE_MAGIC.unpack_from(data, start)
    if magic not in (MAGIC_V1, MAGIC_V2) or not RECORD_BYTES_MIN <= size <= end - start:
        return range(start, start + 1)
    count = (end - start) // size
    if count < _EVEN_MIN:
        return range(start, start + 1)
    fields: NDArray[np.uint64] = np.ndarray((count,), np.uint64, data, start, (size,))
    differs = np.flatnonzero(fields != fields[0])
    if len(differs):
        count = int(differs[0])
    return range(start, start + count * size + 1, size)


def distances(marks: Sequence[int]) -> Sequence[int]:
    """How far each but the last is from the next: of what `walk` gives, the sizes of records."""
    if isinstance(marks, range):
        return [marks.step] * (len(marks) - 1)
    return [behind - at for at, behind in pairwise(marks)]


def ints(values: Sequence[int] | Ints) -> Ints:
    """The same as an array; one that is an array is given back."""
    if isinstance(values, range):
        return np.arange(values.start, values.stop, values.step, dtype=np.int64)
    if isinstance(values, np.ndarray):
        return values
    return np.fromiter(values, np.int64, len(values))


def even_size(positions: Ints, sizes: Ints) -> int | None:
    """The size of each record, where all have the same and stand one directly behind the other."""
    size, first = int(sizes[0]), int(positions[0])
    if positions[-1] - first != size * (len(positions) - 1) or np.count_nonzero(sizes != size):
        return None  # counted in C: `any` and `all` call Python
    return None if np.count_nonzero(np.diff(positions) != size) else size


def tails(data: bytes | memoryview, positions: Ints, sizes: Ints, width: int) -> NDArray[np.uint8]:
    """Row n has the last `width` bytes of record n, which has as many. A view, or a copy."""
    size = even_size(positions, sizes)
    if size is not None:
        at = int(positions[0]) + size - width
        return np.ndarray((len(positions), width), np.uint8, data, at, (size, 1))
    rows: NDArray[np.uint8] = windows(np.frombuffer(data, np.uint8), width)[
        positions + sizes - width
    ]
    return rows


def windows(array: NDArray[np.uint8], width: int) -> NDArray[np.uint8]:
    """Row n is `array[n : n + width]`, without a copy; choosing rows then copies whole pieces.

    Three to five times as fast as an index for each byte. Positions up to `len(array) - width`.
    """
    return np.ndarray((len(array) - width + 1, width), np.uint8, array, strides=(1, 1))


def even_pieces(
    data: bytes | memoryview, start: int, width: int, distance: int, count: int
) -> NDArray[np.void]:
    """`count` views of `width` bytes, the first at `start`, each `distance` behind the one before.

    All lie within `data`.
    """
    return np.ndarray((count,), [("bytes", f"V{width}")], data, start, (distance,))


class RecordTable:
    """Records in one piece, of which any column can be had at once.

    When all have one size a column is a view of the piece, else a copy.
    """

    __slots__ = ("data", "positions", "size", "sizes")

    def __init__(self, data: bytes | bytearray | memoryview, positions: Ints, sizes: Ints) -> None:
        self.data = np.frombuffer(data, np.uint8)
        self.positions = positions
        """Where each begins; they stand one directly behind the other, the first at 0."""
        self.sizes = sizes
        first = int(sizes[0])
        is_even = first * len(sizes) == len(self.data) and not np.count_nonzero(sizes != first)
        self.size = first if is_even else None
        """Of each, when it is the same for all."""

    def column(self, offsets: Ints | int, width: int) -> NDArray[np.uint8]:
        """Row n has the `width` bytes at `offsets` of record n; they lie within the data."""
        if self.size is not None and isinstance(offsets, int):
            shape, strides = (len(self.sizes), width), (self.size, 1)
            return np.ndarray(shape, np.uint8, self.data, offsets, strides)
        rows: NDArray[np.uint8] = windows(self.data, width)[self.positions + offsets]
        return rows

    def pieces(self, offset: int, width: int) -> NDArray[np.void] | None:
        """The `width` (at least 1) bytes at `offset` of each, to go through one by one.

        What comes are views with the buffer protocol, in half the time that slices take (a type
        with a field makes numpy give views instead of copies). None when sizes differ.
        """
        if self.size is None:
            return None
        return even_pieces(self.data.data, offset, width, self.size, len(self.sizes))

    def all_or_one(self, start: int, end: int | None = None) -> "RecordTable":
        """The first record alone when all have its size and its bytes from `start` to `end` (the
        record's end without it); or all."""
        size = self.size
        if size is None:
            return self
        end = size if end is None else end
        if not start < end <= size:
            return self
        parts = self.column(start, end - start)
        first = parts[0].tobytes()
        if parts[-1].tobytes() != first or parts.tobytes() != first * len(parts):
            return self
        return RecordTable(self.data[:size].data, self.positions[:1], self.sizes[:1])

    def put(self, offsets: Ints | int, column: NDArray[np.uint8]) -> None:
        """Write back a column; one that is a view has been written already."""
        if self.size is None or not isinstance(offsets, int):
            windows(self.data, column.shape[1])[self.positions + offsets] = column


def heads(data: bytes | memoryview, positions: Ints, size: int | None = None) -> NDArray[np.void]:
    """The fixed fields of each record, as an array of `HEAD`: a view where `even_size` gave a
    `size`, else a copy."""
    if size is not None:
        return np.ndarray((len(positions),), HEAD, data, int(positions[0]), (size,))
    rows = windows(np.frombuffer(data, np.uint8), HEAD_BYTES)[positions]
    found: NDArray[np.void] = rows.view(HEAD).ravel()
    return found


def intact(
    data: memoryview,
    starts: Sequence[int] | Ints,
    sizes: Sequence[int] | Ints,
    physical_offsets: Ints,
    owner: Owner | None = None,
) -> Flags:
    """Which records of ours are intact and stand where they belong.

    All must lie within `data` and have at least `RECORD_BYTES_MIN` bytes. False may also mean a
    record without our checksum.
    """
    count = len(starts)
    positions, lengths = ints(starts), ints(sizes)
    array = np.frombuffer(data, np.uint8)
    if owner is not None and len(array) < len(owner.topic_part):
        return np.zeros(count, np.bool_)
    size = even_size(positions, lengths) if count else None
    places = heads(data, positions, size)
    good: Flags = places["physical_offset"] == physical_offsets
    if owner is not None:
        good &= places["queue_offset"] == owner.queue_offsets
        good &= places["queue_id"] == owner.queue_id
        topics = positions + HEAD_BYTES + places["body_length"]
        good &= (places["body_length"] >= 0) & (topics + len(owner.topic_part) <= len(array))
        topics = np.where(good, topics, 0)
        names = windows(array, len(owner.topic_part))[topics]
        good &= (names == np.frombuffer(owner.topic_part, np.uint8)).all(axis=1)
    good &= places["total_size"] == lengths
    ends = tails(data, positions, lengths, CHECKSUM_BYTES)
    good &= (ends[:, :_NAME_BYTES] == _NAME).all(axis=1) & (ends[:, -1] == 2)
    digits = ends[:, _NAME_BYTES:-1] - np.uint8(ord("0"))
    good &= (digits <= 9).all(axis=1)
    if size is None:
        sums = [
            crc32(data[start : start + length - CHECKSUM_BYTES])
            for start, length in zip(positions.tolist(), lengths.tolist(), strict=True)
        ]
    else:
        pieces = even_pieces(data, int(positions[0]), size - CHECKSUM_BYTES, size, count)
        sums = [crc32(piece) for piece in pieces]
    good &= digits @ CHECKSUM_POWERS == np.array(sums, np.int64) & CRC_MASK
    return good
