"""From a frame to an Arrow RecordBatch, column by column.

All arrays are made with `from_buffers`: `pa.array` would import pandas where it is installed, and
would visit each value. Values of varying length are gathered by one `take`: the positions of the
wanted spans and of the gaps between them are the offsets of an array over the whole block, of which
every second element is kept. Invariant: the schema of each batch equals, field by field, what Spark
derives from `schema.source_schema`. Called by `pulling`.
"""

from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_curlew.frame import Frame
from pyspark_curlew.properties import Pairs, PropertyText, Spans, either
from pyspark_curlew.records import Fields, read_fields
from pyspark_curlew.reserved import HIDDEN

Int64s = NDArray[np.int64]
Flags = NDArray[np.bool_]

TAG: Final = b"TAGS"
KEYS: Final = b"KEYS"
SHARDING_KEY: Final = b"__SHARDINGKEY"
UNIQUE_KEY: Final = b"UNIQ_KEY"
CHECKSUM: Final = b"__CRC32#"

_TIMESTAMP: Final = pa.timestamp("us", "UTC")
_MAP: Final = pa.map_(pa.string(), pa.string())
_COLUMNS: Final = [
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("topic", pa.string()),
    pa.field("queue", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", _TIMESTAMP),
    pa.field("born_timestamp", _TIMESTAMP),
    pa.field("message_id", pa.string()),
    pa.field("tag", pa.string()),
]
_SCHEMA: Final = pa.schema(_COLUMNS)
_SCHEMA_WITH_PROPERTIES: Final = pa.schema([*_COLUMNS, pa.field("properties", _MAP)])


class Origin(NamedTuple):
    """Where the records of a frame come from; the same for all of them."""

    topic: str
    queue: int
    store_id: bytes
    """Four bytes that name the store; part of the message ids that it gives."""


class Decoded(NamedTuple):
    """A batch for Spark, and the queue offsets of its rows for the reader's own checks."""

    batch: pa.RecordBatch
    queue_offsets: Int64s


def decode(frame: Frame, origin: Origin, *, include_properties: bool) -> Decoded:
    """Turn all records of `frame` into rows."""
    fields = read_fields(frame)
    count = frame.records
    properties = _property_text(frame, fields)
    text = pa.py_buffer(properties.text)
    tag = properties.find(TAG)
    keys = properties.first_words(properties.find(KEYS))
    key = either(properties.find(SHARDING_KEY), keys)
    arrays = [
        _gather(pa.binary(), text, key),
        _bodies(frame, fields),
        _repeated_text(origin.topic, count),
        _fixed(pa.int32(), np.full(count, origin.queue, dtype=np.int32)),
        _fixed(pa.int64(), fields.queue_offset),
        _fixed(_TIMESTAMP, fields.store_ms * 1000),
        _fixed(_TIMESTAMP, fields.born_ms * 1000),
        _message_ids(properties.find(UNIQUE_KEY), text, fields, origin.store_id),
        _gather(pa.string(), text, tag),
    ]
    if include_properties:
        arrays.append(_properties_map(properties, text))
    schema = _SCHEMA_WITH_PROPERTIES if include_properties else _SCHEMA
    return Decoded(pa.RecordBatch.from_arrays(arrays, schema=schema), fields.queue_offset)


def _bodies(frame: Frame, fields: Fields) -> pa.Array:
    if frame.bodies is None:
        spans = _all(fields.body_start, fields.body_end)
        return _gather(pa.binary(), pa.py_buffer(frame.block), spans)
    limits = np.zeros(frame.records + 1, dtype=np.int32)
    np.cumsum(frame.bodies.sizes, out=limits[1:])
    buffers = [None, pa.py_buffer(limits), pa.py_buffer(frame.bodies.data)]
    return pa.Array.from_buffers(pa.binary(), frame.records, buffers)


def _property_text(frame: Frame, fields: Fields) -> PropertyText:
    spans = _all(fields.properties_start, fields.properties_end)
    gathered = _gather(pa.binary(), pa.py_buffer(frame.block), spans)
    _, offsets, data = gathered.buffers()
    bounds = np.frombuffer(offsets, dtype=np.int32, count=frame.records + 1).astype(np.int64)
    text = np.frombuffer(data, dtype=np.uint8, count=int(bounds[-1])) if data else _NO_TEXT
    return PropertyText(text, bounds)


_NO_TEXT: Final = np.zeros(0, dtype=np.uint8)


def _all(starts: Int64s, ends: Int64s) -> Spans:
    return Spans(starts, ends, np.ones(len(starts), dtype=np.bool_))


def _gather(kind: pa.DataType, block: pa.Buffer, spans: Spans) -> pa.Array:
    """Copy the spans, one behind the other, into an array of `kind` (binary or string).

    Arrow makes room for as many values as it is asked for, of the average size of those that are
    there. Gaps are among these, so that it would copy all it has once or twice into more room; it
    is asked for the empty value at the end as often as makes up for that.
    """
    count = len(spans.starts)
    limits = np.empty(2 * count + 1, dtype=np.int32)
    limits[0 : 2 * count : 2] = spans.starts
    limits[1::2] = spans.ends
    limits[-1] = spans.ends[-1] if count else 0
    over_all = pa.Array.from_buffers(kind, 2 * count, [None, pa.py_buffer(limits), block])
    more = _more_for_room(spans, int(limits[-1] - limits[0]))
    wanted = np.empty(count + more, dtype=np.int32)
    wanted[:count] = np.arange(0, 2 * count, 2)
    wanted[count:] = 2 * count - 1
    present = np.append(spans.present, np.ones(more, dtype=np.bool_))
    taken = over_all.take(_fixed(pa.int32(), wanted, present))
    return pa.Array.from_buffers(kind, count, taken.buffers())


def _more_for_room(spans: Spans, reach: int) -> int:
    """How many values more make room for all; `reach`: bytes of the spans and the gaps between."""
    total = int((spans.ends - spans.starts).sum())
    if total == 0:
        return 0
    count = len(spans.starts)
    return max(0, 2 * count * total // reach + 1 - count)


def _fixed(
    kind: pa.DataType, values: NDArray[np.generic], present: Flags | None = None
) -> pa.Array:
    validity = None
    if present is not None and not present.all():
        validity = pa.py_buffer(np.packbits(present, bitorder="little"))
    return pa.Array.from_buffers(kind, len(values), [validity, pa.py_buffer(values)])


def _repeated_text(text: str, count: int) -> pa.Array:
    encoded = text.encode()
    limits = np.arange(0, (count + 1) * len(encoded), len(encoded), dtype=np.int32)
    buffers = [None, pa.py_buffer(limits), pa.py_buffer(encoded * count)]
    return pa.Array.from_buffers(pa.string(), count, buffers)


_HEX: Final = np.frombuffer("".join(f"{n:02X}" for n in range(256)).encode(), dtype=np.uint16)
"""The two upper-case hex digits of each byte, as one element."""


def _message_ids(unique: Spans, text: pa.Buffer, fields: Fields, store_id: bytes) -> pa.Array:
    """The id that the client gave; otherwise the store's, which is made of the position.

    That one is 17 bytes in upper-case hex: 1, the store id (4), the store time in ms (6) and the
    physical offset (6).
    """
    if not unique.present.any():
        return _derived_ids(fields, store_id)
    given = _gather(pa.string(), text, unique)
    if unique.present.all():
        return given
    derived = _derived_ids(fields, store_id)
    import pyarrow.compute as pc

    return pc.coalesce(given, derived)


_ID: Final = np.dtype([("prefix", "V5"), ("store_ms", "V6"), ("physical_offset", "V6")])
_LOWER_SIX: Final = np.dtype([("upper", "V2"), ("lower", "V6")])


def _derived_ids(fields: Fields, store_id: bytes) -> pa.Array:
    count = len(fields.store_ms)
    ids = np.empty(count, dtype=_ID)
    ids["prefix"] = np.void(b"\x01" + store_id)
    ids["store_ms"] = _lower_six_bytes(fields.store_ms)
    ids["physical_offset"] = _lower_six_bytes(fields.physical_offset)
    width = 2 * _ID.itemsize
    limits = np.arange(0, (count + 1) * width, width, dtype=np.int32)
    buffers = [None, pa.py_buffer(limits), pa.py_buffer(_HEX.take(ids.view(np.uint8)))]
    return pa.Array.from_buffers(pa.string(), count, buffers)


def _lower_six_bytes(values: Int64s) -> NDArray[np.void]:
    lower: NDArray[np.void] = values.astype(">i8").view(_LOWER_SIX)["lower"]
    return lower


def _properties_map(properties: PropertyText, text: pa.Buffer) -> pa.Array:
    """All properties but those of the store and the broker, which are no more the message's than
    its position is. The checksum is left out first: every record has one."""
    pairs = _shown(properties.pairs(without=CHECKSUM), text)
    names = _gather(pa.string(), text, _all(pairs.name_starts, pairs.name_ends))
    values = _gather(pa.string(), text, _all(pairs.name_ends + 1, pairs.value_ends))
    entries = pa.Array.from_buffers(_ENTRY, len(names), [None], children=[names, values])
    count = len(properties.bounds) - 1
    limits = np.searchsorted(pairs.rows, np.arange(count + 1)).astype(np.int32)
    return pa.Array.from_buffers(_MAP, count, [None, pa.py_buffer(limits)], children=[entries])


_ENTRY: Final = pa.struct(
    [pa.field("key", pa.string(), nullable=False), pa.field("value", pa.string())]
)


def _shown(pairs: Pairs, text: pa.Buffer) -> Pairs:
    """Without hidden names, and each name once, as in Spark's maps: of equal ones in one record the
    last one stays."""
    names = _gather(pa.binary(), text, _all(pairs.name_starts, pairs.name_ends))
    encoded = names.dictionary_encode()
    known = encoded.dictionary.to_pylist()
    codes = np.frombuffer(encoded.indices.buffers()[1], dtype=np.int32, count=len(names))
    identity = pairs.rows * (len(known) + 1) + codes
    _, last = np.unique(identity[::-1], return_index=True)
    chosen = np.zeros(len(names), dtype=np.bool_)
    chosen[len(names) - 1 - last] = True
    hidden = [code for code, name in enumerate(known) if name in HIDDEN]
    if hidden:
        chosen &= ~np.isin(codes, hidden)
    return pairs if chosen.all() else pairs.keep(chosen)
