"""From the columns that a user writes to the columns that a message is made of. No Python per row.

One rule for everything that can be said twice: a column wins over the property that says the same
(`key` over `__SHARDINGKEY`, `tag` over `TAGS`), in all rows, also where it is null. A sharding key
that only the properties have is a key as any other, so that it chooses the queue. The five reserved
names that stand for a field of a message are that field, in a map as in a column; all others are
refused. Called by `write_task`.
"""

from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_curlew.errors import RowRefused
from pyspark_curlew.wire.reserved import HIDDEN, SHOWN
from pyspark_curlew.writing.texts import (
    OF_FIELDS,
    check_field,
    check_filled,
    field_of,
    reserved,
    text_of,
)

TIME: Final = "time"
"""Column of delivery times as in a frame: epoch ms, negative for so many ms from now, 0 for now."""
_READY: Final = frozenset({"value", "topic", "queue"})
"""Columns that are sent as they are."""
MAP: Final = pa.map_(pa.binary(), pa.binary())

_SHARDING_KEY: Final = b"__SHARDINGKEY"
_TAG: Final = b"TAGS"
_REFUSED: Final = HIDDEN | (SHOWN - OF_FIELDS)


class _Pairs(NamedTuple):
    """Names and values of all rows, binary; `limits` are where each row's begin, and the end."""

    column: str
    limits: NDArray[np.int64]
    names: pa.Array
    values: pa.Array

    @property
    def rows(self) -> NDArray[np.int64]:
        """The row of each pair."""
        return np.repeat(np.arange(len(self.limits) - 1), np.diff(self.limits))

    def as_map(self) -> pa.Array:
        return pa.MapArray.from_arrays(
            pa.array(self.limits.astype(np.int32)), self.names, self.values, type=MAP
        )


def columns_to_send(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Columns `value`, and as far as there are any `topic`, `queue`, `key`, `tag`, `properties` and
    `TIME`."""
    if _READY.issuperset(batch.schema.names):
        return batch
    columns = {name: batch.column(name) for name in batch.schema.names}
    for name, said in (("key", _SHARDING_KEY), ("tag", _TAG)):
        if name in columns:
            columns[name] = field_of(columns[name], name, said)
    if "partition" in columns:
        columns["queue"] = columns.pop("partition")
    pairs = _pairs_of(columns)
    if pairs is not None:
        kept, keys = _settled(pairs, has_key="key" in columns, has_tag="tag" in columns)
        columns["properties"] = kept.as_map()
        if keys is not None:
            columns["key"] = keys
    times = _times_of(columns)
    if times is not None:
        columns[TIME] = pa.array(times)
    return pa.RecordBatch.from_pydict(columns)


def _pairs_of(columns: dict[str, pa.Array]) -> _Pairs | None:
    """Those of column `properties` or `headers`, which is taken out."""
    for name in ("properties", "headers"):
        column = columns.pop(name, None)
        if column is None:
            continue
        limits = np.asarray(column.offsets).astype(np.int64)
        part = slice(int(limits[0]), int(limits[-1]))
        if name == "properties":
            names, values = column.keys[part], column.items[part]
        else:
            names, values = column.values[part].flatten()
        pairs = _Pairs(name, limits - limits[0], text_of(names, name), text_of(values, name))
        check_filled(pairs.names, pairs.values, name)
        if name == "headers":
            _check_single(pairs)
        return pairs
    return None


def _check_single(pairs: _Pairs) -> None:
    codes = pairs.names.dictionary_encode().indices
    identity = pairs.rows * (len(codes) + 1) + np.asarray(codes)
    if len(np.unique(identity)) < len(identity):
        raise RowRefused("column 'headers' has a name twice in a row; a message has each name once")


def _settled(pairs: _Pairs, *, has_key: bool, has_tag: bool) -> tuple[_Pairs, pa.Array | None]:
    """The pairs that stay properties, and the keys where only the properties have them."""
    encoded = pairs.names.dictionary_encode()
    known = encoded.dictionary.to_pylist()
    codes = np.asarray(encoded.indices)
    refused = next((name for name in known if name in _REFUSED), None)
    if refused is not None:
        raise reserved(refused.decode(), pairs.column)
    dropped = {_SHARDING_KEY, _TAG} if has_tag else {_SHARDING_KEY}
    for name in OF_FIELDS.intersection(known):
        if not (name == _TAG and has_tag) and not (name == _SHARDING_KEY and has_key):
            said = pairs.values.filter(pa.array(codes == known.index(name)))
            check_field(said, f"property {name.decode()!r} of column {pairs.column!r}", name)
    out = [code for code, name in enumerate(known) if name in dropped]
    if not out:
        return pairs, None
    keys = None
    if not has_key and _SHARDING_KEY in known:
        at = np.flatnonzero(codes == known.index(_SHARDING_KEY))
        places = np.full(len(pairs.limits) - 1, -1)
        places[pairs.rows[at]] = at
        keys = pairs.values.take(pa.array(places, mask=places < 0))
    keep = ~np.isin(codes, out)
    before = np.concatenate(([0], np.cumsum(keep)))
    mask = pa.array(keep)
    kept = _Pairs(
        pairs.column, before[pairs.limits], pairs.names.filter(mask), pairs.values.filter(mask)
    )
    return kept, keys


def _times_of(columns: dict[str, pa.Array]) -> NDArray[np.int64] | None:
    """Column `deliverAt` or `delayMs`, which is taken out. What has passed is now."""
    at, delay = columns.pop("deliverAt", None), columns.pop("delayMs", None)
    times: NDArray[np.int64] | None = None
    if at is not None:
        moments = at.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).fill_null(0)
        times = np.maximum(np.asarray(moments) // 1000, 0)
    elif delay is not None:
        times = -np.maximum(np.asarray(delay.cast(pa.int64()).fill_null(0)), 0)
    return times if times is not None and times.any() else None
