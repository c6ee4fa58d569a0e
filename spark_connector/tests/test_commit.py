"""A sink whose commit fails in a real query: the batch is repeated, each row is stored once."""

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_connector.tests.support.proxy import REFUSED, Asked, Given, run_proxy
from spark_connector.tests.support.real_node import run_real_node

pytestmark = pytest.mark.spark

DEADLINE_S = 180
MESSAGES = 300


class RefusedSeal:
    """A rule: the first commit is refused. Counts how often each request of each batch came."""

    def __init__(self) -> None:
        self.refused = threading.Event()
        self.sends: Counter[tuple[str, ...]] = Counter()
        self._lock = threading.Lock()

    def __call__(self, asked: Asked, pass_on: Callable[[], Given]) -> Given | None:
        if asked.path.endswith("/producers:seal") and not self.refused.is_set():
            self.refused.set()
            return REFUSED
        if asked.is_send:
            names = ("MQ-Producer-Id", "MQ-Producer-Epoch", "MQ-Producer-Seq")
            claim = (asked.path, *(asked.headers[name] for name in names))
            with self._lock:
                self.sends[claim] += 1
        return pass_on()


def copying(spark: SparkSession, endpoint: str, folder: Path) -> StreamingQuery:
    address = {"endpoint": endpoint}
    return (
        spark.readStream.format("curlew")
        .options(**address, topic="orders", startingOffsets="earliest")
        .load()
        .select("key", "value")
        .writeStream.format("curlew")
        .options(**address, topic="copy", checkpointLocation=str(folder / "checkpoint"))
        .options(sendMaxMessages="20", retryTimeoutMs="0")
        .trigger(availableNow=True)
        .start()
    )


def test_a_commit_that_fails_once(spark: SparkSession, tmp_path: Path) -> None:
    """Between the failure and the repetition the topic gets more queues."""
    rule = RefusedSeal()
    with run_real_node(tmp_path) as node, run_proxy(node.base_url, rule) as endpoint:
        node.add_topic("orders", 2)
        node.add_topic("copy", 3)
        for queue in range(2):
            numbers = range(queue, MESSAGES, 2)
            node.send("orders", queue, *[b"%d" % number for number in numbers])
        with pytest.raises(StreamingQueryException, match="closing batch 0"):
            copying(spark, endpoint, tmp_path).awaitTermination(DEADLINE_S)
        node.add_topic("copy", 5)
        assert copying(spark, endpoint, tmp_path).awaitTermination(DEADLINE_S)
        assert set(rule.sends.values()) == {2}, "all of the batch was sent again"
        copy = spark.read.format("curlew").options(endpoint=node.base_url, topic="copy").load()
        found = Counter(int(row.value) for row in copy.select("value").collect())
    assert found == Counter(range(MESSAGES))
