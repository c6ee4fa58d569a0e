"""Many records in one piece, looked at together: walking, checking and reading fields with numpy.

Pure. Nothing is decoded here; what is not the intact record of its place is marked and left to
`record.inspect`. The one thing done record by record is the CRC-32, which has no vector form.

Arrays run in parallel, one item for each record. `positions` are places in `data`.
"""

import struct
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.store.formats.checksum import crc32
from app.store.formats.record import (
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
_PLACES: Final = np.dtype([("queue_offset", ">i8"), ("physical_offset", ">i8")])
_PLACES_AT: Final = 20
_NAME: Final = np.frombuffer(CHECKSUM_NAME, np.uint8)
_NAME_BYTES: Final = len(CHECKSUM_NAME)
CHECKSUM_POWERS: Final = 10 ** np.arange(10, dtype=np.int64)
_HEAD_STEPS: Final = np.arange(HEAD_BYTES)
_PLACES_STEPS: Final = np.arange(_PLACES_AT, _PLACES_AT + _PLACES.itemsize)
_TAIL_STEPS: Final = np.arange(CHECKSUM_BYTES)


def walk(data: bytes | memoryview, start: int, end: int) -> list[int]:
    """Where records stand in `data[start:end]`, by their sizes; the last item is behind the last.

    Stops at the first place without a magic or a fitting size.
    """
    positions = [start]
    add = positions.append
    unpack = _SIZE_MAGIC.unpack_from
    position, last = start, end - RECORD_BYTES_MIN
    while position <= last:
        size, magic = unpack(data, position)
        if (magic != MAGIC_V1 and magic != MAGIC_V2) or size < RECORD_BYTES_MIN:
            break
        position += size
        if position > end:
            break
        add(position)
    return positions


def heads(data: bytes | memoryview, positions: Ints) -> NDArray[np.void]:
    """The fixed fields of each record, as an array of `HEAD`."""
    array = np.frombuffer(data, np.uint8)
    found: NDArray[np.void] = array[positions[:, None] + _HEAD_STEPS].view(HEAD).ravel()
    return found


def intact(
    data: memoryview,
    starts: Sequence[int],
    sizes: Sequence[int],
    physical_offsets: Ints,
    queue_offsets: Ints | None = None,
) -> Flags:
    """Which records of ours are intact and stand where they belong.

    All must lie within `data` and have at least `RECORD_BYTES_MIN` bytes. False may also mean a
    record without our checksum.
    """
    count = len(starts)
    positions = np.fromiter(starts, np.int64, count)
    lengths = np.fromiter(sizes, np.int64, count)
    array = np.frombuffer(data, np.uint8)
    places = array[positions[:, None] + _PLACES_STEPS].view(_PLACES).ravel()
    good: Flags = places["physical_offset"] == physical_offsets
    if queue_offsets is not None:
        good &= places["queue_offset"] == queue_offsets
    first = array[positions[:, None] + _TAIL_STEPS[:4]].view(">u4").ravel()
    good &= first == lengths
    tails = array[(positions + lengths - CHECKSUM_BYTES)[:, None] + _TAIL_STEPS]
    good &= (tails[:, :_NAME_BYTES] == _NAME).all(axis=1) & (tails[:, -1] == 2)
    digits = tails[:, _NAME_BYTES:-1] - np.uint8(ord("0"))
    good &= (digits <= 9).all(axis=1)
    sums = [
        crc32(data[start : start + size - CHECKSUM_BYTES])
        for start, size in zip(starts, sizes, strict=True)
    ]
    good &= digits @ CHECKSUM_POWERS == np.array(sums, np.int64) & CRC_MASK
    return good
