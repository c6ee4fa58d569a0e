"""The writers, for streams and at once: at-least-once, append only.

Spark makes a writer on the driver, pickles it for the tasks, and makes another one to commit; a
writer holds plain values only. Options and columns are checked when it is made, before any task.
Called by Spark.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
)

from pyspark_curlew.client import CurlewClient
from pyspark_curlew.errors import SchemaMismatch, Unsupported
from pyspark_curlew.sink_options import SinkOptions

if TYPE_CHECKING:
    import pyarrow as pa

_COLUMNS: Final[dict[str, tuple[type[DataType], ...]]] = {
    "value": (BinaryType, StringType),
    "key": (BinaryType, StringType),
    "topic": (StringType,),
    "queue": (IntegerType, LongType, ShortType),
    "tag": (StringType,),
    "properties": (MapType,),
}


@dataclass
class Sent(WriterCommitMessage):
    """What one task has sent."""

    messages: int


class CurlewStreamWriter(DataSourceStreamArrowWriter):
    """Sends each micro-batch."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        return _send_all(self._options, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing to do: what was sent is stored."""

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing to do: what was sent stays, and is there twice after a repetition."""


class CurlewBatchWriter(DataSourceArrowWriter):
    """Sends the rows of one DataFrame."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        return _send_all(self._options, iterator)


def check_sink(options: SinkOptions, schema: StructType, *, overwrite: bool) -> None:
    """Refuse what cannot be written before anything is."""
    if overwrite:
        raise Unsupported("a topic cannot be overwritten; use mode('append') or outputMode append")
    for field in schema.fields:
        kinds = _COLUMNS.get(field.name)
        if kinds is None:
            raise SchemaMismatch(
                f"column {field.name!r} cannot be sent; known are {', '.join(_COLUMNS)}"
            )
        if not isinstance(field.dataType, kinds):
            raise SchemaMismatch(
                f"column {field.name!r} is {field.dataType.simpleString()}, not"
                f" {' or '.join(kind.typeName() for kind in kinds)}"
            )
        _check_map(field.name, field.dataType)
    names = schema.fieldNames()
    if "value" not in names:
        raise SchemaMismatch("there is no column 'value' to be sent")
    if options.topic is None and "topic" not in names:
        raise SchemaMismatch("there is neither an option 'topic' nor a column of that name")


def _check_map(name: str, kind: DataType) -> None:
    if isinstance(kind, MapType) and kind.simpleString() != "map<string,string>":
        raise SchemaMismatch(f"column {name!r} is {kind.simpleString()}, not map<string,string>")


def _send_all(options: SinkOptions, batches: "Iterator[pa.RecordBatch]") -> Sent:
    from pyspark import TaskContext

    from pyspark_curlew.sending import Sender

    context = TaskContext.get()
    turn = 0 if context is None else context.partitionId()
    sender = Sender(options, CurlewClient(options.http), turn)
    return Sent(sum(sender.send(batch) for batch in batches))
