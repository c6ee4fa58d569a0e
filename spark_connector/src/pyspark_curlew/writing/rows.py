"""From the columns that a user writes to the columns that a message is made of. No Python per row.

One rule for everything that can be said twice: a column wins over the property that says the same
(`key` over `__SHARDINGKEY`, `tag` over `TAGS`), in all rows, also where it is null. A sharding key
that only the properties have is a key as any other, so that it chooses the queue. What belongs to
the message that was read (its id, its correlation id) is left out of a copy; other reserved names
are refused. Called by `write_task`.
"""

from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyspark_curlew.errors import RowRefused
from pyspark_curlew.wire.reserved import HIDDEN

TIME: Final = "time"
"""Column of delivery times as in a frame: epoch ms, negative for so many ms from now, 0 for now."""
MAP: Final = pa.map_(pa.binary(), pa.binary())

_SHARDING_KEY: Final = b"__SHARDINGKEY"
_TAG: Final = b"TAGS"
_OF_THE_ORIGINAL: Final = (b"UNIQ_KEY", b"CORRELATION_ID")


class _Pairs(NamedTuple):
    """Names and values of all rows, binary; `limits` are where each row's begin, and the end."""

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
    columns = {name: batch.column(name) for name in batch.schema.names}
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
            entries = column.values[part]
            names, values = entries.field(0), entries.field(1)
        pairs = _Pairs(limits - limits[0], text_of(names, name), text_of(values, name))
        if name == "headers":
            _check_single(pairs)
        return pairs
    return None


def _check_single(pairs: _Pairs) -> None:
    codes = pairs.names.dictionary_encode().indices
    identity = pairs.rows * (len(codes) + 1) + np.asarray(codes.fill_null(-1))
    if len(np.unique(identity)) < len(identity):
        raise RowRefused("column 'headers' has a name twice in a row; a message has each name once")


def _settled(pairs: _Pairs, *, has_key: bool, has_tag: bool) -> tuple[_Pairs, pa.Array | None]:
    """The pairs that stay properties, and the keys where only the properties have them."""
    encoded = pairs.names.dictionary_encode()
    known = encoded.dictionary.to_pylist()
    codes = np.asarray(encoded.indices.fill_null(-1))
    refused = next((name for name in known if name in HIDDEN), None)
    if refused is not None:
        raise RowRefused(
            f"a row has a property of the reserved name {refused.decode()!r}; rename it, or leave"
            " it out of the map"
        )
    dropped = {*_OF_THE_ORIGINAL, _SHARDING_KEY}
    if has_tag:
        dropped.add(_TAG)
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
    kept = _Pairs(before[pairs.limits], pairs.names.filter(mask), pairs.values.filter(mask))
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


def not_text(column: str) -> RowRefused:
    """The refusal of a column with bytes where a message has text."""
    return RowRefused(
        f"column {column!r} has bytes that are not UTF-8; a message has text there: write"
        f" base64({column}) or hex({column}), or put the bytes into 'value'"
    )


def text_of(values: pa.Array, column: str) -> pa.Array:
    """The column's bytes; they are UTF-8 without the two characters that separate properties."""
    encoded = binary_of(values, column)
    try:
        text = encoded.cast(pa.string())
    except pa.ArrowInvalid:
        raise not_text(column) from None
    for separator in ("\x01", "\x02"):
        if pc.any(pc.match_substring(text, separator)).as_py():
            raise RowRefused(f"column {column!r} has a character U+0001 or U+0002")
    return encoded


_TEXTS: Final = (
    pa.types.is_binary,
    pa.types.is_string,
    pa.types.is_large_binary,
    pa.types.is_large_string,
)


def binary_of(values: pa.Array, column: str) -> pa.Array:
    """The column as binary, be it text or bytes."""
    kind = values.type
    if not any(is_kind(kind) for is_kind in _TEXTS):
        raise RowRefused(f"column {column!r} is {kind}, neither a string nor binary")
    return values.cast(pa.binary())
