"""The work of one task of a write: rows to messages, sent in order.

Under a producer each message is stored once; without one, a request that is repeated after it
failed in passing, or a task that Spark repeats, may store messages twice. One request is under way
while the next portion is made. Called by `sink` on the executors.
"""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyspark_curlew.errors import EpochSealed, RowRefused
from pyspark_curlew.http.client import CurlewClient, Plan
from pyspark_curlew.options import TOPIC_NAME
from pyspark_curlew.worker_memory import freeze_loaded, keep_freed_memory
from pyspark_curlew.writing.encode import encode_records
from pyspark_curlew.writing.portions import Outbox, Portion
from pyspark_curlew.writing.producer_identity import Claim, Producer
from pyspark_curlew.writing.routing import by_queue
from pyspark_curlew.writing.rows import TIME, columns_to_send
from pyspark_curlew.writing.sink_options import SinkOptions

_UNDER_WAY_MAX: Final = 2


class Sender:
    """Sends the batches of one task. `turn`: where rows without key and queue begin to rotate.

    They take the queues by turns, `sendMaxMessages` rows each. A context manager: leaving it
    without an error sends what is left and waits for all answers.
    """

    def __init__(
        self, options: SinkOptions, client: CurlewClient, turn: int, producer: Producer | None
    ) -> None:
        self._options = options
        self._client = client
        self._turn = turn
        self._producer = producer
        self._plans: dict[str, Plan] = {}
        self._rows: dict[str, int] = {}
        """By topic, how many rows came so far."""
        self._outboxes: dict[tuple[str, int], Outbox] = {}
        self._queue_column = "queue"
        """What rows call it."""
        self._thread = ThreadPoolExecutor(1, "curlew-send")
        self._under_way: deque[Future[None]] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                for (topic, queue), outbox in self._outboxes.items():
                    self._start(topic, queue, outbox.rest())
                self._wait_for_all_but(0)
        finally:
            self._thread.shutdown(wait=True, cancel_futures=True)

    def send(self, batch: pa.RecordBatch) -> None:
        """Take all rows, and send what makes full portions."""
        if batch.num_rows:
            self._queue_column = "partition" if "partition" in batch.schema.names else "queue"
            for topic, rows in self._by_topic(columns_to_send(batch)):
                self._send_to(topic, rows)

    def _by_topic(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        if self._options.topic is not None:
            yield self._options.topic, batch
            return
        topics = batch.column("topic")
        if topics.null_count:
            raise RowRefused("a row has no topic: column 'topic' is null")
        for topic in pc.unique(topics).to_pylist():
            if not TOPIC_NAME.fullmatch(topic):
                raise RowRefused(
                    f"column 'topic' has {topic[:100]!r}, which is not a name the service takes"
                )
            yield topic, batch.filter(pc.equal(topics, topic))

    def _send_to(self, topic: str, batch: pa.RecordBatch) -> None:
        plan = self._plan(topic)
        wanted = batch.column("queue") if "queue" in batch.schema.names else None
        keys = batch.column("key").cast(pa.binary()) if "key" in batch.schema.names else None
        before = self._rows.get(topic, 0)
        self._rows[topic] = before + batch.num_rows
        numbers = np.arange(before, before + batch.num_rows, dtype=np.int64)
        turns = self._turn + numbers // plan.messages_per_turn
        places = plan.queue_ids, self._queue_column, plan.of_keys
        placed = by_queue(plan.queues, wanted, keys, turns, *places)
        for queue, chosen in placed:
            rows = _rows(batch, chosen)
            times = np.asarray(rows.column(TIME)) if TIME in rows.schema.names else None
            self._start(topic, queue, self._outbox(topic, queue).add(_encoded(topic, rows), times))

    def _plan(self, topic: str) -> Plan:
        """A batch that is repeated goes to the queues of the first time, in portions of that time,
        though there are more queues now and an option was changed."""
        if topic not in self._plans:
            most = self._options.send_max_messages
            self._plans[topic] = (
                self._client.open_plan(topic, most)
                if self._producer is None
                else self._client.plan(topic, self._producer, most)
            )
        return self._plans[topic]

    def _outbox(self, topic: str, queue: int) -> Outbox:
        limits = self._plan(topic).messages_per_turn, self._options.send_max_bytes
        return self._outboxes.setdefault((topic, queue), Outbox(*limits))

    def _start(self, topic: str, queue: int, ready: Iterator[Portion]) -> None:
        for portion in ready:
            claim = None if self._producer is None else Claim(self._producer, portion.seq)
            self._wait_for_all_but(_UNDER_WAY_MAX - 1)
            self._under_way.append(
                self._thread.submit(self._client.send, topic, queue, portion.frame, claim)
            )

    def _wait_for_all_but(self, count: int) -> None:
        while len(self._under_way) > count:
            self._under_way.popleft().result()


def _rows(batch: pa.RecordBatch, chosen: NDArray[np.int64]) -> pa.RecordBatch:
    """The chosen rows; they are ascending. Neighbours are not copied."""
    first, last = int(chosen[0]), int(chosen[-1])
    if last - first + 1 == len(chosen):
        return batch.slice(first, len(chosen))
    return batch.take(pa.array(chosen.astype(np.int32)))


def _encoded(topic: str, batch: pa.RecordBatch) -> pa.Array:
    columns = {name: batch.column(name) for name in batch.schema.names}
    return encode_records(
        topic,
        columns["value"],
        columns.get("key"),
        columns.get("tag"),
        columns.get("properties"),
    )


def send_all(sender: Sender, batches: Iterator[pa.RecordBatch]) -> int:
    """Send the rows of a task; return how many they were.

    A batch that was sealed is stored: the driver died between sealing it and writing that down.
    """
    keep_freed_memory()
    messages = 0
    try:
        with sender:
            for batch in batches:
                messages += batch.num_rows
                sender.send(batch)
    except EpochSealed:
        for batch in batches:
            messages += batch.num_rows
    freeze_loaded()
    return messages
