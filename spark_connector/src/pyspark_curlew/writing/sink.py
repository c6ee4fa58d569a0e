"""The writers, for streams and at once: append only, exactly once unless `idempotence` is false.

Spark makes a writer on the driver, pickles it for the tasks, and makes another one to commit; a
writer holds plain values only. Options and columns are checked when it is made, before any task.
Called by Spark.
"""

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import DataType, StructType

from pyspark_curlew.errors import SchemaMismatch, Unsupported
from pyspark_curlew.http.client import CurlewClient
from pyspark_curlew.writing.producer_identity import (
    Producer,
    family_of,
    part_of_task,
    producer_of_batch,
)
from pyspark_curlew.writing.sink_options import SinkOptions

if TYPE_CHECKING:
    import pyarrow as pa

_COLUMNS: Final = {
    **dict.fromkeys(("value", "key"), ("binary", "string")),
    "topic": ("string",),
    **dict.fromkeys(("queue", "partition"), ("int", "bigint", "smallint", "tinyint")),
    "tag": ("string",),
    "deliverAt": ("timestamp",),
    "delayMs": ("bigint", "int"),
    "properties": ("map<string,string>",),
    "headers": (
        "array<struct<key:string,value:binary>>",
        "array<struct<key:string,value:string>>",
    ),
}
_EITHER: Final = (("deliverAt", "delayMs"), ("queue", "partition"), ("properties", "headers"))


@dataclass
class Sent(WriterCommitMessage):
    """What one task has sent, and under which name, to be sealed."""

    messages: int
    family: str | None = None


class CurlewStreamWriter(DataSourceStreamArrowWriter):
    """Sends each micro-batch."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        options = self._options
        producer = producer_of_batch(options.producer_name) if options.idempotence else None
        return _send(options, iterator, producer)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """All tasks are done: close the batch, so that nobody sends anything of it again."""
        _seal(self._options, messages, batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing to do: the batch is repeated, and goes on where it was."""


class CurlewBatchWriter(DataSourceArrowWriter):
    """Sends the rows of one DataFrame. Its identity is made on the driver, once for all tasks."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._family = family_of(options.producer_name, str(uuid.uuid4()))

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        producer = Producer(self._family, part_of_task(), 0)
        return _send(self._options, iterator, producer if self._options.idempotence else None)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """All tasks are done: close the epoch, so that stragglers are refused."""
        _seal(self._options, messages, 0)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """What was sent stays, as in any append; tasks that still run are refused."""
        _seal(self._options, [Sent(0, self._family)], 0)


def check_sink(options: SinkOptions, schema: StructType, *, overwrite: bool) -> None:
    """Refuse what cannot be written before anything is."""
    if overwrite:
        raise Unsupported("a topic cannot be overwritten; use mode('append') or outputMode append")
    for field in schema.fields:
        _check_column(field.name, field.dataType)
    names = schema.fieldNames()
    for first, second in _EITHER:
        if {first, second} <= set(names):
            raise SchemaMismatch(f"columns {first!r} and {second!r} exclude each other")
    if "value" not in names:
        raise SchemaMismatch("there is no column 'value' to be sent")
    if options.topic is None and "topic" not in names:
        raise SchemaMismatch("there is neither an option 'topic' nor a column of that name")


def _check_column(name: str, kind: DataType) -> None:
    given = kind.simpleString()
    kinds = _COLUMNS.get(name)
    if kinds is None:
        nearest = next((each for each in _COLUMNS if each.lower() == name.lower()), None)
        hint = f"known are {', '.join(_COLUMNS)}" if nearest is None else f"write {nearest!r}"
        raise SchemaMismatch(f"column {name!r} cannot be sent; {hint}")
    if given.partition(" ")[0] not in kinds:  # a string may have a collation
        raise SchemaMismatch(f"column {name!r} is {given}, not {' or '.join(kinds)}")


def _send(
    options: SinkOptions, batches: "Iterator[pa.RecordBatch]", producer: Producer | None
) -> Sent:
    from pyspark_curlew.writing.write_task import Sender, send_all

    sender = Sender(options, CurlewClient(options.http), part_of_task(), producer)
    return Sent(send_all(sender, batches), None if producer is None else producer.family)


def _seal(options: SinkOptions, messages: Sequence[WriterCommitMessage | None], epoch: int) -> None:
    if options.idempotence:
        sent = [message for message in messages if isinstance(message, Sent)]
        for family in {message.family for message in sent if message.family is not None}:
            count = sum(message.messages for message in sent if message.family == family)
            CurlewClient(options.http).seal(family, epoch, count)
