"""From a frame to an Arrow RecordBatch, column by column.

All arrays are made with `from_buffers`: `pa.array` would import pandas where it is installed, and
would visit each value. Invariant: the schema of each batch equals, field by field, what Spark
derives from `schema.source_schema`. Called by `pulling`.
"""

from itertools import product
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_curlew.wire.frame import Frame
from pyspark_curlew.wire.properties import Pairs, PropertyText, either
from pyspark_curlew.wire.records import Fields, Values, read_fields
from pyspark_curlew.wire.reserved import HIDDEN
from pyspark_curlew.wire.spans import Int64s, all_present, fixed, gather

TAG: Final = b"TAGS"
KEYS: Final = b"KEYS"
SHARDING_KEY: Final = b"__SHARDINGKEY"
UNIQUE_KEY: Final = b"UNIQ_KEY"
MESSAGE_ID: Final = b"MQ_ID"
DERIVED: Final = "-"
SCHEDULED_PREFIX: Final = "schedule:"
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
    pa.field("partition", pa.int32()),
]
_HEADER: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
_HEADERS: Final = pa.list_(pa.field("element", _HEADER))


class Decoded(NamedTuple):
    """A batch for Spark, and the queue offsets of its rows for the reader's own checks."""

    batch: pa.RecordBatch
    queue_offsets: Int64s


def decode(
    frame: Frame,
    topic: str,
    queue: int,
    store_id: bytes,
    *,
    include_properties: bool,
    include_headers: bool = False,
) -> Decoded:
    """Turn all records of `frame`, which are of one queue, into rows.

    `store_id`: four bytes that name the store, part of the message ids that it gives.
    """
    fields = read_fields(frame)
    properties = PropertyText(fields.properties.data, fields.properties.limits)
    text = pa.py_buffer(properties.text)
    tag = properties.find(TAG)
    keys = properties.first_words(properties.find(KEYS))
    key = either(properties.find(SHARDING_KEY), keys)
    queues = fixed(pa.int32(), np.full(frame.records, queue, dtype=np.int32))
    arrays = [
        gather(pa.binary(), text, key),
        _bodies(fields.bodies),
        _repeated(topic.encode(), frame.records),
        queues,
        fixed(pa.int64(), fields.queue_offset),
        fixed(_TIMESTAMP, fields.store_ms * 1000),
        fixed(_TIMESTAMP, fields.born_ms * 1000),
        _message_ids(properties, text, fields, store_id),
        gather(pa.string(), text, tag),
        queues,
    ]
    shown = list(_COLUMNS)
    if include_properties or include_headers:
        pairs = _pairs(properties, text, store_id)
        if include_properties:
            arrays.append(pairs.as_map())
            shown.append(pa.field("properties", _MAP))
        if include_headers:
            arrays.append(pairs.as_headers())
            shown.append(pa.field("headers", _HEADERS))
    schema = pa.schema(shown)
    return Decoded(pa.RecordBatch.from_arrays(arrays, schema=schema), fields.queue_offset)


def _bodies(bodies: Values) -> pa.Array:
    buffers = [None, pa.py_buffer(bodies.limits.astype(np.int32)), pa.py_buffer(bodies.data)]
    return pa.Array.from_buffers(pa.binary(), len(bodies.limits) - 1, buffers)


def _repeated(text: bytes, count: int) -> pa.Array:
    limits = np.arange(0, (count + 1) * len(text), len(text), dtype=np.int32)
    buffers = [None, pa.py_buffer(limits), pa.py_buffer(text * count)]
    return pa.Array.from_buffers(pa.string(), count, buffers)


_HEX: Final = np.array([f"{n:02X}".encode() for n in range(256)]).view(np.uint16)
_QUADS: Final = np.stack(np.meshgrid(_HEX, _HEX, indexing="ij"), axis=-1).view(np.uint32).ravel()
"""The four upper-case hex digits of each number of 16 bits, as one element."""
_POSITION_DIGITS: Final = 2 * 6 * 2
"""Two numbers of six bytes, each byte two hex digits."""


def _message_ids(
    properties: PropertyText, text: pa.Buffer, fields: Fields, store_id: bytes
) -> pa.Array:
    """The store's id, which is made of the position; or what the message got before it came here.

    The id is 17 bytes in upper-case hex: 1, the store id (4), the store time in ms (6) and the
    physical offset (6). What was delayed, or in a transaction, keeps that of its first place: in
    `MQ_ID`, else in `UNIQ_KEY`, whose other values are the producer's own.
    """
    unique = properties.find(UNIQUE_KEY)
    if not unique.present.any():
        return _derived_ids(fields, store_id)
    import pyarrow.compute as pc

    given = gather(pa.string(), text, unique)
    is_own = _are_own(given, store_id)
    moved = gather(pa.string(), text, properties.find(MESSAGE_ID))
    absent = pa.scalar(None, pa.string())
    kept = pc.coalesce(moved, pc.if_else(is_own, given, absent))
    kept = pc.if_else(pc.equal(kept, DERIVED), absent, kept)
    return pc.coalesce(kept, _derived_ids(fields, store_id))


def _are_own(unique: pa.Array, store_id: bytes) -> pa.Array:
    """Which of these `UNIQ_KEY` have the form of an id that the store or a schedule gives."""
    import pyarrow.compute as pc

    first = _own_prefix(store_id)
    has_own_form = pc.and_(
        pc.starts_with(unique, first.decode()),
        pc.equal(pc.binary_length(unique), len(first) + _POSITION_DIGITS),
    )
    return pc.or_(has_own_form, pc.starts_with(unique, SCHEDULED_PREFIX))


def _of_store(properties: PropertyText, text: pa.Buffer, store_id: bytes) -> NDArray[np.bool_]:
    """The rows whose `UNIQ_KEY` is the store's note of their id, and not the producer's."""
    unique = properties.find(UNIQUE_KEY)
    if not unique.present.any():
        return unique.present
    is_own = _are_own(gather(pa.string(), text, unique), store_id).fill_null(False)
    found: NDArray[np.bool_] = np.asarray(is_own) & ~properties.find(MESSAGE_ID).present
    return found


def _own_prefix(store_id: bytes) -> bytes:
    return (b"\x01" + store_id).hex().upper().encode()


def _derived_ids(fields: Fields, store_id: bytes) -> pa.Array:
    """The store's ids: of each number 16 bits at a time, from the top, looked up as four digits."""
    count = len(fields.store_ms)
    prefix = _own_prefix(store_id)
    width = len(prefix) + _POSITION_DIGITS
    ids = np.empty((count, width), dtype=np.uint8)
    ids[:, : len(prefix)] = np.frombuffer(prefix, dtype=np.uint8)
    digits = ids[:, len(prefix) :].view(np.uint32)
    numbers = product((fields.store_ms, fields.physical_offset), (32, 16, 0))
    for column, (values, shift) in enumerate(numbers):
        digits[:, column] = _QUADS[values >> shift & 0xFFFF]
    limits = np.arange(0, (count + 1) * width, width, dtype=np.int32)
    return pa.Array.from_buffers(
        pa.string(), count, [None, pa.py_buffer(limits), pa.py_buffer(ids)]
    )


class _Named(NamedTuple):
    """Names and values of the properties of all rows; `limits` are where each row's begin."""

    limits: NDArray[np.int32]
    names: pa.Array
    values: pa.Array

    def as_map(self) -> pa.Array:
        entries = pa.Array.from_buffers(
            _ENTRY, len(self.names), [None], children=[self.names, self.values]
        )
        return self._rows_of(_MAP, entries)

    def as_headers(self) -> pa.Array:
        values = pa.Array.from_buffers(pa.binary(), len(self.values), self.values.buffers())
        entries = pa.Array.from_buffers(
            _HEADER, len(self.names), [None], children=[self.names, values]
        )
        return self._rows_of(_HEADERS, entries)

    def _rows_of(self, kind: pa.DataType, entries: pa.Array) -> pa.Array:
        count = len(self.limits) - 1
        buffers = [None, pa.py_buffer(self.limits)]
        return pa.Array.from_buffers(kind, count, buffers, children=[entries])


def _pairs(properties: PropertyText, text: pa.Buffer, store_id: bytes) -> _Named:
    """All properties but those of the store and the broker, which are no more the message's than
    its position is. The checksum is left out first: every record has one."""
    of_store = _of_store(properties, text, store_id)
    pairs = _shown(properties.pairs(without=CHECKSUM), text, of_store)
    names = gather(pa.string(), text, all_present(pairs.name_starts, pairs.name_ends))
    values = gather(pa.string(), text, all_present(pairs.name_ends + 1, pairs.value_ends))
    count = len(properties.bounds) - 1
    limits = np.searchsorted(pairs.rows, np.arange(count + 1)).astype(np.int32)
    return _Named(limits, names, values)


_ENTRY: Final = pa.struct(
    [pa.field("key", pa.string(), nullable=False), pa.field("value", pa.string())]
)


def _shown(pairs: Pairs, text: pa.Buffer, of_store: NDArray[np.bool_]) -> Pairs:
    """Without hidden names, and each name once, as in Spark's maps: of equal ones in one record the
    last one stays. `of_store`: rows whose `UNIQ_KEY` is hidden, too."""
    names = gather(pa.binary(), text, all_present(pairs.name_starts, pairs.name_ends))
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
    if of_store.any():
        chosen &= (codes != known.index(UNIQUE_KEY)) | ~of_store[pairs.rows]
    return pairs if chosen.all() else pairs.keep(chosen)
