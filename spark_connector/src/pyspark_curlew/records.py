"""Where things are inside the records of a frame: the layout of `record_layout`, in columns.

Nothing here runs once per record: each step reads one field of all records with one numpy gather.
Invariant of `Fields`: all spans lie inside their record, so that a column built from them reads
nothing foreign. Called by `columns`.
"""

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pyspark_curlew.errors import FrameDamaged, Unsupported
from pyspark_curlew.frame import Frame
from pyspark_curlew.record_layout import (
    FIXED_BYTES,
    FLAGS_AT,
    RECORD_BYTES_MIN,
    body_shift,
    store_time_shift,
)

Int64s = NDArray[np.int64]

_MAGIC_V1: Final = 0xDAA320A7
_MAGIC_V2: Final = 0xDAA320AB
"""As V1, with two bytes for the length of the topic."""

_FIXED: Final = np.dtype(
    {
        "names": ["size", "magic", "queue", "physical", "flags", "born", "store", "body_length"],
        "formats": [">u4", ">u4", ">i8", ">i8", ">u4", ">i8", ">i8", ">u4"],
        "offsets": [0, 4, 20, 28, FLAGS_AT, 40, 56, FIXED_BYTES - 4],
        "itemsize": FIXED_BYTES,
    }
)
"""The part before the body, as it is with IPv4 hosts."""

_SYSFLAG_COMPRESSED: Final = 0x1


class Fields(NamedTuple):
    """One array for each field; spans are byte positions in the frame's block, ends excluded.

    Those of bodies that the frame has apart are empty.
    """

    queue_offset: Int64s
    physical_offset: Int64s
    born_ms: Int64s
    store_ms: Int64s
    body_start: Int64s
    body_end: Int64s
    properties_start: Int64s
    properties_end: Int64s


def read_fields(frame: Frame) -> Fields:
    """Find the fields of all records; raise `FrameDamaged` when a length leads elsewhere."""
    ends = frame.starts + frame.sizes
    if frame.records and int(frame.sizes.min()) < RECORD_BYTES_MIN:
        raise FrameDamaged("a record of the batch frame is shorter than a record can be")
    fixed = _fixed_parts(frame)
    store_ms, body_start, body_length = _behind_the_hosts(frame, fixed)
    body_end = body_start + (body_length if frame.bodies is None else 0)
    wide = fixed["magic"] == _MAGIC_V2
    topic_width = np.where(wide, 2, 1) if wide.any() else 1
    topic_length = _gather(frame, ">u2", _inside(body_end, 2, ends)) >> 8 * (2 - topic_width)
    properties_start = body_end + topic_width + topic_length + 2
    properties_length = _gather(frame, ">u2", _inside(properties_start - 2, 2, ends))
    if not np.array_equal(properties_start + properties_length, ends):
        raise FrameDamaged("the lengths inside a record do not add up to its size")
    return Fields(
        queue_offset=fixed["queue"].astype(np.int64),
        physical_offset=fixed["physical"].astype(np.int64),
        born_ms=fixed["born"].astype(np.int64),
        store_ms=store_ms,
        body_start=body_start,
        body_end=body_end,
        properties_start=properties_start,
        properties_end=ends,
    )


def _fixed_parts(frame: Frame) -> NDArray[np.void]:
    """The first bytes of all records side by side, checked for what must be in each.

    Gathered as opaque bytes: numpy copies those whole, and a record type field by field.
    """
    whole = _gather_raw(frame, np.dtype(f"V{FIXED_BYTES}"), frame.starts)
    fixed: NDArray[np.void] = whole.view(_FIXED)
    magic = fixed["magic"]
    if not ((magic == _MAGIC_V1) | (magic == _MAGIC_V2)).all():
        raise FrameDamaged("a record of the batch frame does not begin with a known magic")
    if not np.array_equal(fixed["size"], frame.whole_sizes):
        raise FrameDamaged("a record of the batch frame has another size than was announced")
    if (fixed["flags"] & _SYSFLAG_COMPRESSED).any():
        raise Unsupported("a message body was stored compressed by its producer")
    return fixed


def _behind_the_hosts(frame: Frame, fixed: NDArray[np.void]) -> tuple[Int64s, Int64s, Int64s]:
    """Store time, start of the body and its length; IPv6 hosts move them."""
    flags = fixed["flags"]
    store_ms = fixed["store"].astype(np.int64)
    body_length = fixed["body_length"].astype(np.int64)
    shift = body_shift(flags)
    body_start = frame.starts + FIXED_BYTES + shift
    if not shift.any():
        return store_ms, body_start, body_length
    length_at = _inside(body_start - 4, 4, frame.starts + frame.sizes)
    store_ms = _gather(frame, ">i8", frame.starts + 56 + store_time_shift(flags))
    return store_ms, body_start, _gather(frame, ">u4", length_at)


def _inside(positions: Int64s, width: int, ends: Int64s) -> Int64s:
    if (positions + width > ends).any():
        raise FrameDamaged("a length inside a record leads out of the record")
    return positions


def _gather(frame: Frame, kind: str, positions: Int64s) -> Int64s:
    """The big-endian integers at arbitrary positions of the block."""
    return _gather_raw(frame, np.dtype(kind), positions).astype(np.int64)


def _gather_raw(frame: Frame, kind: np.dtype[Any], positions: Int64s) -> NDArray[Any]:
    """Read through a view in which every byte begins an element; numpy allows that."""
    elements = max(0, len(frame.block) - kind.itemsize + 1)
    view: NDArray[Any] = np.ndarray((elements,), dtype=kind, buffer=frame.block, strides=(1,))
    return view[positions]
