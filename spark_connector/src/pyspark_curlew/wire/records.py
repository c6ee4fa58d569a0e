"""What is in the records of a frame, field by field.

Nothing here runs once per record: of a whole block each step reads one field of all records with
one numpy gather. Invariant of `Fields`: all values were inside their record, so that a column built
from them reads nothing foreign. Called by `columns`.
"""

from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_curlew.errors import FrameDamaged, Unsupported
from pyspark_curlew.wire.frame import Block, Frame
from pyspark_curlew.wire.parting import Parted
from pyspark_curlew.wire.record_layout import (
    FIXED_BYTES,
    FLAGS_AT,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_BYTES_MIN,
    STORE_TIME_AT,
    body_shift,
    store_time_shift,
)
from pyspark_curlew.wire.spans import Int64s, all_present, gather

_FIXED: Final = np.dtype(
    {
        "names": ["size", "magic", "queue", "physical", "flags", "born", "store", "body_length"],
        "formats": [">u4", ">u4", ">i8", ">i8", ">u4", ">i8", ">i8", ">u4"],
        "offsets": [0, 4, 20, 28, FLAGS_AT, 40, STORE_TIME_AT, FIXED_BYTES - 4],
        "itemsize": FIXED_BYTES,
    }
)
"""The part before the body, as it is with IPv4 hosts."""

_SYSFLAG_COMPRESSED: Final = 0x1


class Values(NamedTuple):
    """A value for each of `n` records, back to back; `limits` are the `n + 1` bounds in `data`."""

    data: NDArray[np.uint8]
    limits: Int64s


class Fields(NamedTuple):
    """One array for each field."""

    queue_offset: Int64s
    physical_offset: Int64s
    born_ms: Int64s
    store_ms: Int64s
    bodies: Values
    properties: Values


def read_fields(frame: Frame) -> Fields:
    """The fields of all records; raise `FrameDamaged` when a length leads elsewhere."""
    return _fields_of_parted(frame) if isinstance(frame, Parted) else _fields_of_block(frame)


def _fields_of_parted(frame: Parted) -> Fields:
    bodies = Values(frame.bodies, _limits(frame.body_sizes))
    properties = Values(frame.properties, _limits(frame.property_sizes))
    fixed: NDArray[np.void] = frame.heads.view(_FIXED).ravel()
    return _fields(fixed, fixed["store"], bodies, properties)


def _limits(sizes: Int64s) -> Int64s:
    limits = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes, out=limits[1:])
    return limits


def _fields(
    fixed: NDArray[np.void], store_ms: NDArray[np.int64], bodies: Values, properties: Values
) -> Fields:
    if (fixed["flags"] & _SYSFLAG_COMPRESSED).any():
        raise Unsupported("a message body was stored compressed by its producer")
    return Fields(
        queue_offset=fixed["queue"].astype(np.int64),
        physical_offset=fixed["physical"].astype(np.int64),
        born_ms=fixed["born"].astype(np.int64),
        store_ms=store_ms.astype(np.int64),
        bodies=bodies,
        properties=properties,
    )


def _fields_of_block(block: Block) -> Fields:
    ends = block.starts + block.sizes
    if block.records and int(block.sizes.min()) < RECORD_BYTES_MIN:
        raise FrameDamaged("a record of the batch frame is shorter than a record can be")
    fixed = _fixed_parts(block)
    store_ms, body_start, body_length = _behind_the_hosts(block, fixed)
    body_end = body_start + body_length
    wide = fixed["magic"] == MAGIC_V2
    topic_width = np.where(wide, 2, 1) if wide.any() else 1
    topic_length = _integers(block, ">u2", _inside(body_end, 2, ends)) >> 8 * (2 - topic_width)
    properties_start = body_end + topic_width + topic_length + 2
    properties_length = _integers(block, ">u2", _inside(properties_start - 2, 2, ends))
    if not np.array_equal(properties_start + properties_length, ends):
        raise FrameDamaged("the lengths inside a record do not add up to its size")
    bodies = _gathered(block, body_start, body_end)
    return _fields(fixed, store_ms, bodies, _gathered(block, properties_start, ends))


def _gathered(block: Block, starts: Int64s, ends: Int64s) -> Values:
    found = gather(pa.binary(), pa.py_buffer(block.data), all_present(starts, ends))
    _, limits, data = found.buffers()
    if data is None:
        return Values(_NOTHING, np.zeros(len(starts) + 1, dtype=np.int64))
    bounds = np.frombuffer(limits, dtype=np.int32, count=len(starts) + 1).astype(np.int64)
    return Values(np.frombuffer(data, dtype=np.uint8, count=int(bounds[-1])), bounds)


_NOTHING: Final = np.zeros(0, dtype=np.uint8)


def _fixed_parts(block: Block) -> NDArray[np.void]:
    """The first bytes of all records side by side, checked for what must be in each.

    Gathered as opaque bytes: numpy copies those whole, and a record type field by field.
    """
    whole = _raw(block, np.dtype(f"V{FIXED_BYTES}"), block.starts)
    fixed: NDArray[np.void] = whole.view(_FIXED)
    magic = fixed["magic"]
    if not ((magic == MAGIC_V1) | (magic == MAGIC_V2)).all():
        raise FrameDamaged("a record of the batch frame does not begin with a known magic")
    if not np.array_equal(fixed["size"], block.sizes):
        raise FrameDamaged("a record of the batch frame has another size than was announced")
    return fixed


def _behind_the_hosts(block: Block, fixed: NDArray[np.void]) -> tuple[Int64s, Int64s, Int64s]:
    """Store time, start of the body and its length; IPv6 hosts move them."""
    flags = fixed["flags"]
    body_length = fixed["body_length"].astype(np.int64)
    shift = body_shift(flags)
    body_start = block.starts + FIXED_BYTES + shift
    if not shift.any():
        return fixed["store"], body_start, body_length
    length_at = _inside(body_start - 4, 4, block.starts + block.sizes)
    store_ms = _integers(block, ">i8", block.starts + STORE_TIME_AT + store_time_shift(flags))
    return store_ms, body_start, _integers(block, ">u4", length_at)


def _inside(positions: Int64s, width: int, ends: Int64s) -> Int64s:
    if (positions + width > ends).any():
        raise FrameDamaged("a length inside a record leads out of the record")
    return positions


def _integers(block: Block, kind: str, positions: Int64s) -> Int64s:
    """The big-endian integers at arbitrary positions of the block."""
    return _raw(block, np.dtype(kind), positions).astype(np.int64)


def _raw(block: Block, kind: np.dtype[Any], positions: Int64s) -> NDArray[Any]:
    """Read through a view in which every byte begins an element; numpy allows that."""
    elements = max(0, len(block.data) - kind.itemsize + 1)
    view: NDArray[Any] = np.ndarray((elements,), dtype=kind, buffer=block.data, strides=(1,))
    return view[positions]
