"""Who sends, so that the service stores each row once, however often a task or batch is repeated.

A producer is one part of a query (or of one `save()`); its epoch is the micro-batch. Its messages
to a queue are numbered from 0 in each epoch. The service knows how far it has come, passes over
what it has, and refuses gaps; when the batch is done the epoch is sealed, and nothing more is taken
for it from any part. This holds as long as a repeated task gives the same rows in the same order.

Called by `sink` on the executors (and on the driver to seal).
"""

from dataclasses import dataclass
from typing import Final

from pyspark_curlew.errors import Unsupported

_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"
"""Local properties that Spark sets for the tasks of a micro-batch. Its Python API hands the batch
to `commit` only."""


@dataclass(frozen=True)
class Producer:
    """One part of a query at one micro-batch."""

    family: str
    part: int
    epoch: int

    @property
    def id(self) -> str:
        return f"{self.family}:{self.part}"


@dataclass(frozen=True)
class Claim:
    """The number of the first message of a request, and whose it is."""

    producer: Producer
    seq: int

    @property
    def headers(self) -> dict[str, str]:
        return {
            "MQ-Producer-Id": self.producer.id,
            "MQ-Producer-Epoch": str(self.producer.epoch),
            "MQ-Producer-Seq": str(self.seq),
        }


def family_of(name: str | None, identity: str) -> str:
    """The common name of a query's producers. `identity` is Spark's id of the query, or of a save.

    It is always part of the name: a new checkpoint begins at batch 0 again, and must not be taken
    for a repetition of an earlier query's batches.
    """
    return f"spark:{identity}" if name is None else f"spark:{name}.{identity}"


def part_of_task() -> int:
    """The number of the task's partition; 0 outside of a task."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def producer_of_batch(name: str | None) -> Producer:
    """The producer of the running task of a micro-batch."""
    from pyspark import TaskContext

    context = TaskContext.get()
    query = batch = None
    if context is not None:
        query, batch = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
    if context is None or query is None or batch is None:
        raise Unsupported(
            "this Spark does not tell a task its query and batch, which idempotence needs; set"
            " option idempotence=false for at-least-once"
        )
    return Producer(family_of(name, query), context.partitionId(), int(batch))
