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
from spark_connector.tests.support.real_node import RealNode
from spark_connector.tests.support.stored import values_at

pytestmark = pytest.mark.spark

DEADLINE_S = 300
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


def test_a_commit_that_fails_once(
    spark: SparkSession, real: RealNode, topic: str, tmp_path: Path
) -> None:
    """Between the failure and the repetition the topic gets more queues."""
    rule, copy = RefusedSeal(), f"{topic}-copy"

    def copying(endpoint: str) -> StreamingQuery:
        return (
            spark.readStream.format("curlew")
            .options(endpoint=endpoint, topic=topic, startingOffsets="earliest")
            .load()
            .select("key", "value")
            .writeStream.format("curlew")
            .options(endpoint=endpoint, topic=copy, checkpointLocation=str(tmp_path))
            .options(sendMaxMessages="20", retryTimeoutMs="0")
            .trigger(availableNow=True)
            .start()
        )

    real.add_topic(topic, 2)
    real.add_topic(copy, 3)
    for queue in range(2):
        real.send(topic, queue, *[b"%d" % number for number in range(queue, MESSAGES, 2)])
    with run_proxy(real.base_url, rule) as endpoint:
        with pytest.raises(StreamingQueryException, match="closing batch 0"):
            copying(endpoint).awaitTermination(DEADLINE_S)
        real.add_topic(copy, 5)
        assert copying(endpoint).awaitTermination(DEADLINE_S)
    assert set(rule.sends.values()) == {2}, "all of the batch was sent again"
    assert values_at(real.base_url, copy) == list(range(MESSAGES))
