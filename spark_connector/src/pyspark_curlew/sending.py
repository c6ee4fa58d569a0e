"""The work of one task of a write: rows to messages, sent in order, at least once.

A request that fails in passing is repeated as it is, and Spark repeats the task when it fails for
good: both may store messages twice. Called by `sink` on the executors.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_curlew.client import CurlewClient
from pyspark_curlew.errors import RowRefused
from pyspark_curlew.outgoing import encode_records, frames
from pyspark_curlew.routing import by_queue
from pyspark_curlew.sink_options import SinkOptions


class Sender:
    """Sends the batches of one task. `turn`: where rows without key and queue begin to rotate."""

    def __init__(self, options: SinkOptions, client: CurlewClient, turn: int) -> None:
        self._options = options
        self._client = client
        self._turn = turn
        self._queues: dict[str, int] = {}

    def send(self, batch: pa.RecordBatch) -> int:
        """Send all rows; return how many messages they were."""
        if batch.num_rows:
            for topic, rows in self._by_topic(batch):
                self._send_to(topic, rows)
        return int(batch.num_rows)

    def _by_topic(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        if self._options.topic is not None:
            yield self._options.topic, batch
            return
        topics = batch.column("topic")
        if topics.null_count:
            raise RowRefused("a row has no topic: column 'topic' is null")
        for topic in pc.unique(topics).to_pylist():
            yield topic, batch.filter(pc.equal(topics, topic))

    def _send_to(self, topic: str, batch: pa.RecordBatch) -> None:
        if topic not in self._queues:
            self._queues[topic] = self._client.queue_count(topic)
        columns = {name: batch.column(name) for name in batch.schema.names}
        keys = columns.get("key")
        keys = None if keys is None else keys.cast(pa.binary())
        records = encode_records(
            topic, columns["value"], keys, columns.get("tag"), columns.get("properties")
        )
        rows = batch.num_rows
        self._turn += 1
        queues = self._queues[topic]
        for queue, chosen in by_queue(queues, columns.get("queue"), keys, rows, self._turn):
            whole = len(chosen) == rows
            part = records if whole else records.take(pa.array(chosen.astype(np.int32)))
            limits = self._options.send_max_messages, self._options.send_max_bytes
            for frame in frames(part, *limits):
                self._client.send(topic, queue, frame)
