"""Rows that are delivered later: sent one by one in a batch of JSON, for a frame has no delays.

`deliverAt` is a time, `delayMs` is from the moment of sending; null in either means now. A time
that has passed is now, too. Called by `sending`.
"""

import base64
import json
from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_curlew.errors import RowRefused

COLUMNS = ("deliverAt", "delayMs")


def divided(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
    """The rows for now, and those for later if there are any."""
    names = [name for name in COLUMNS if name in batch.schema.names]
    if not names:
        return batch, None
    is_later = batch.column(names[0]).is_valid()
    later = batch.filter(is_later)
    now = batch.filter(pc.invert(is_later)).drop_columns(names)
    return now, later if later.num_rows else None


def entries(batch: pa.RecordBatch) -> Iterator[tuple[str | None, bytes]]:
    """Topic (None: the option's) and line of each row."""
    rows: Mapping[str, list[object]] = {
        name: _texts(batch, name) for name in batch.schema.names if name != "properties"
    }
    maps = batch.column("properties").to_pylist() if "properties" in batch.schema.names else []
    for number in range(batch.num_rows):
        row = {name: values[number] for name, values in rows.items()}
        topic = row.pop("topic", None)
        entry = {_FIELDS[name]: value for name, value in row.items() if value is not None}
        if "body_base64" not in entry:
            raise RowRefused("a row has no value: column 'value' is null")
        if "delay" in entry:
            entry["delay"] = f"{entry['delay']}ms"
        if maps and maps[number]:
            entry["properties"] = dict(maps[number])
        yield None if topic is None else str(topic), json.dumps(entry).encode()


_FIELDS = {
    "value": "body_base64",
    "key": "sharding_key",
    "tag": "tag",
    "queue": "queue_id",
    "deliverAt": "deliver_at_ms",
    "delayMs": "delay",
}


def _texts(batch: pa.RecordBatch, name: str) -> list[object]:
    column = batch.column(name)
    if name == "value":
        values = column.cast(pa.binary()).to_pylist()
        return [None if value is None else base64.b64encode(value).decode() for value in values]
    if name == "key":
        return [_decoded(value) for value in column.cast(pa.binary()).to_pylist()]
    if name == "deliverAt":
        return list(
            pc.divide(column.cast(pa.timestamp("us", "UTC")).cast(pa.int64()), 1000).to_pylist()
        )
    return list(column.to_pylist())


def _decoded(key: bytes | None) -> str | None:
    try:
        return key.decode() if key else None
    except UnicodeDecodeError:
        raise RowRefused("column 'key' has bytes that are not UTF-8") from None
