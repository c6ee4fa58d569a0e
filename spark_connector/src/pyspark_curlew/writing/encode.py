"""From rows to request frames, column by column: the opposite of `columns` and `frame`.

A record is joined from its parts by one Arrow call over all rows, so that a frame's records are
slices of joined columns and its sizes are the differences of the offsets. Layout: see `records`;
the fields that the service assigns (queue, offsets, times, checksum) are left zero. The order of
rows is kept. Called by `write_task` and `portions`.
"""

import struct
from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyspark_curlew.errors import RowRefused
from pyspark_curlew.wire.frame import FLAG_CRC32, HEADER, MAGIC, VERSION, crc32
from pyspark_curlew.wire.record_layout import CHECKSUM, FIXED_BYTES, MAGIC_V1
from pyspark_curlew.wire.sources import Buffer
from pyspark_curlew.wire.spans import limits_of
from pyspark_curlew.writing.texts import binary_of

_HEADS: Final = np.dtype(
    {
        "names": ["size", "magic", "body_length"],
        "formats": [">u4", ">u4", ">u4"],
        "offsets": [0, 4, 84],
        "itemsize": FIXED_BYTES,
    }
)
_FLAG_DELIVERY_TIMES: Final = 32
_PROPERTIES_MAX: Final = 32_767
_NOTHING: Final = pa.scalar(b"", pa.binary())


def encode_records(
    topic: str,
    values: pa.Array,
    keys: pa.Array | None,
    tags: pa.Array | None,
    properties: pa.Array | None,
) -> pa.Array:
    """One binary value for each row: its record for `topic`. Keys, tags and properties have been
    checked, and are null where there is none."""
    if values.null_count:
        raise RowRefused("a row has no value: column 'value' is null")
    bodies = binary_of(values, "value")
    name = bytes([len(topic.encode())]) + topic.encode()
    body_lengths = _lengths(bodies)
    texts = _properties(keys, tags, properties)
    if not texts:  # the same end for all
        end = name + struct.pack(">H", len(CHECKSUM)) + CHECKSUM
        heads = _heads(body_lengths, len(end))
        return pc.binary_join_element_wise(_fixed(heads), bodies, pa.scalar(end), _NOTHING)
    own = pc.binary_join_element_wise(*texts, pa.scalar(CHECKSUM, pa.binary()), _NOTHING)
    lengths = _lengths(own)
    if len(lengths) and int(lengths.max()) > _PROPERTIES_MAX:
        raise RowRefused(f"key, tag and properties of a row exceed {_PROPERTIES_MAX} bytes")
    heads = _heads(body_lengths, len(name) + 2 + lengths)
    middle = np.empty(len(bodies), dtype=np.dtype([("name", f"V{len(name)}"), ("size", ">u2")]))
    middle["name"] = np.void(name)
    middle["size"] = lengths
    return pc.binary_join_element_wise(_fixed(heads), bodies, _fixed(middle), own, _NOTHING)


def _heads(body_lengths: NDArray[np.int64], rest: NDArray[np.int64] | int) -> NDArray[np.void]:
    """What stands before the bodies; behind each come so many bytes of the record."""
    heads = np.zeros(len(body_lengths), dtype=_HEADS)
    heads["magic"] = MAGIC_V1
    heads["body_length"] = body_lengths
    heads["size"] = _HEADS.itemsize + body_lengths + rest
    return heads


def fitting(records: pa.Array, max_messages: int, max_bytes: int) -> int:
    """How many of the first records may go together."""
    limits = limits_of(records.slice(0, max_messages))
    return max(int(np.searchsorted(limits, limits[0] + max_bytes, side="right")) - 1, 0)


def total_bytes(records: pa.Array) -> int:
    """Of all the records."""
    limits = limits_of(records)
    return int(limits[-1] - limits[0])


def frame_of(
    parts: Sequence[pa.Array], times: Sequence[NDArray[np.int64] | None] = ()
) -> tuple[Buffer, ...]:
    """The records of all parts as one request frame: what goes in front of the records, and the
    records where they are, which are not copied for it. `times`: when the records of each part are
    delivered, as in a frame; None: now."""
    limits = [limits_of(part) for part in parts]
    blocks = [
        memoryview(part.buffers()[2])[ends[0] : ends[-1]]
        for part, ends in zip(parts, limits, strict=True)
    ]
    sizes = np.concatenate([np.diff(ends) for ends in limits]).astype(">u4")
    flags, index = FLAG_CRC32, sizes.tobytes()
    if any(each is not None for each in times):
        flags |= _FLAG_DELIVERY_TIMES
        for part, each in zip(parts, times, strict=True):
            index += (np.zeros(len(part)) if each is None else each).astype(">i8").tobytes()
    checksum = crc32(index, 0)
    for block in blocks:
        checksum = crc32(block, checksum)
    length = sum(map(len, blocks))
    header = HEADER.pack(MAGIC, VERSION, flags, 0, len(sizes), checksum, 0, length)
    return header + index, *blocks


def _properties(
    keys: pa.Array | None, tags: pa.Array | None, properties: pa.Array | None
) -> list[pa.Array]:
    """What makes up the properties of each row, but for the checksum."""
    parts = []
    if keys is not None:
        parts.append(_property(b"__SHARDINGKEY", keys))
    if tags is not None:
        parts.append(_property(b"TAGS", tags))
    if properties is not None:
        parts.append(_joined_map(properties))
    return parts


def _property(name: bytes, values: pa.Array) -> pa.Array:
    """`name 0x01 value 0x02` where there is a value."""
    start, end = pa.scalar(name + b"\x01", pa.binary()), pa.scalar(b"\x02", pa.binary())
    return pc.fill_null(pc.binary_join_element_wise(start, values, end, _NOTHING), b"")


def _joined_map(properties: pa.Array) -> pa.Array:
    limits = np.asarray(properties.offsets)
    pairs = slice(int(limits[0]), int(limits[-1]))
    start, end = pa.scalar(b"\x01", pa.binary()), pa.scalar(b"\x02", pa.binary())
    names, values = properties.keys[pairs], properties.items[pairs]
    pieces = pc.binary_join_element_wise(names, start, values, end, _NOTHING)
    lists = pa.ListArray.from_arrays(pa.array(limits - limits[0]), pieces)
    return pc.binary_join(lists, _NOTHING)


def _lengths(values: pa.Array) -> NDArray[np.int64]:
    return np.diff(limits_of(values))


def _fixed(rows: NDArray[np.void]) -> pa.Array:
    """A value for each item."""
    limits = np.arange(0, rows.nbytes + 1, rows.itemsize, dtype=np.int32)
    buffers = [None, pa.py_buffer(limits), pa.py_buffer(rows)]
    return pa.Array.from_buffers(pa.binary(), len(rows), buffers)
