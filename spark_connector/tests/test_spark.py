"""The connector inside a real Spark, two threads on this machine, against a real node.

Needs Java 17. Where a node must lose messages or be caught at a certain request, a fake one serves.
"""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from spark_connector.tests.support.fake_node import FakeNode
from spark_connector.tests.support.real_node import RealNode
from tests.support.nodes.waiting import wait_until

pytestmark = pytest.mark.spark

DEADLINE_S = 300
QUEUES = 3


@pytest.fixture
def orders(real: RealNode, topic: str) -> str:
    """A topic with queues."""
    real.add_topic(topic, QUEUES)
    return topic


@pytest.fixture
def lossy(fake: FakeNode) -> FakeNode:
    fake.add_topic("orders", QUEUES)
    return fake


@pytest.fixture
def batches() -> list[list[bytes]]:
    """The values of each micro-batch, in the order of the batches."""
    return []


@pytest.fixture
def read_all(
    spark: SparkSession, tmp_path: Path, batches: list[list[bytes]]
) -> Callable[..., None]:
    """Read all there is (AvailableNow) with one checkpoint, again and again."""

    def read_all(endpoint: str, topic: str, **given: str) -> None:
        query = (
            stream_of(spark, endpoint, topic, **given)
            .select("value")
            .writeStream.foreachBatch(lambda frame, _number: batches.append(values_of(frame)))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(DEADLINE_S)

    return read_all


def stream_of(spark: SparkSession, endpoint: str, topic: str, **given: str) -> DataFrame:
    reader = spark.readStream.format("curlew").option("endpoint", endpoint).option("topic", topic)
    return reader.options(**{"startingOffsets": "earliest", **given}).load()


def values_of(frame: DataFrame) -> list[bytes]:
    return sorted(bytes(row.value) for row in frame.collect())


def bodies(prefix: str, count: int) -> list[bytes]:
    return [f"{prefix}{number:04}".encode() for number in range(count)]


def test_rows_arrive_with_all_their_columns(
    spark: SparkSession, real: RealNode, orders: str, tmp_path: Path
) -> None:
    ids = real.send(orders, 1, b"one", b"two", tag="created")
    found: list[Any] = []
    query = (
        stream_of(spark, real.base_url, orders, includeProperties="true")
        .writeStream.foreachBatch(lambda frame, _number: found.extend(frame.collect()))
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(DEADLINE_S)
    first, second = sorted(found, key=lambda row: int(row.offset))
    assert (bytes(first.key), bytes(first.value)) == (b"k-one", b"one")
    assert (first.topic, first.queue, first.offset, first.tag) == (orders, 1, 0, "created")
    assert [first.message_id, second.message_id] == ids
    assert first.timestamp >= first.born_timestamp
    assert first.properties["KEYS"] == "k-one"
    assert "__CRC32#" not in first.properties


def test_a_restart_goes_on_where_the_checkpoint_ends(
    read_all: Callable[..., None], real: RealNode, orders: str, batches: list[list[bytes]]
) -> None:
    """`latest` loses nothing from its first start on, though there was nothing to read."""
    real.send(orders, 0, b"before")
    for number in range(2):
        read_all(real.base_url, orders, startingOffsets="latest")
        for queue in range(QUEUES):
            real.send(orders, queue, *bodies(f"{number}{queue}-", 10))
    read_all(real.base_url, orders, startingOffsets="latest")
    assert [len(batch) for batch in batches if batch] == [30, 30]
    assert len({value for batch in batches for value in batch}) == 60


def test_available_now_keeps_the_limit(
    read_all: Callable[..., None], real: RealNode, orders: str, batches: list[list[bytes]]
) -> None:
    sent = [bodies(f"{queue}-", 10 * (queue + 1)) for queue in range(QUEUES)]
    for queue in range(QUEUES):
        real.send(orders, queue, *sent[queue])
    read_all(real.base_url, orders, maxOffsetsPerTrigger="16")
    assert [len(batch) for batch in batches] == [16, 16, 16, 12]
    received = sorted(value for batch in batches for value in batch)
    assert received == sorted(value for values in sent for value in values)


def test_a_running_query_picks_up_messages_and_queues(
    spark: SparkSession, real: RealNode, orders: str, tmp_path: Path, batches: list[list[bytes]]
) -> None:
    query = (
        stream_of(spark, real.base_url, orders, pollWaitMs="200")
        .select("value")
        .writeStream.foreachBatch(lambda frame, _number: batches.append(values_of(frame)))
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    try:
        for queue in range(QUEUES + 1):
            if queue == QUEUES:
                real.add_topic(orders, QUEUES + 1)
            real.send(orders, queue, *bodies(f"{queue}-", 5))
            expected = 5 * (queue + 1)
            wait_until(lambda: sum(map(len, batches)) >= expected, DEADLINE_S)  # noqa: B023
            assert sum(map(len, batches)) == expected
    finally:
        query.stop()


def test_a_crash_in_the_first_batch_loses_nothing_to_latest(
    spark: SparkSession,
    read_all: Callable[..., None],
    lossy: FakeNode,
    tmp_path: Path,
    batches: list[list[bytes]],
) -> None:
    """The batch fails after its end was stored; the restart resolves `latest` anew, further on."""
    lossy.send("orders", 0, b"old")

    def fail(_frame: DataFrame, _number: int) -> None:
        lossy.send("orders", 0, b"c")
        raise RuntimeError("crash")

    def send_when_latest_is_known(request: str) -> None:
        if "topics:positions" in request:
            lossy.after_request = lambda _request: None
            lossy.send("orders", 0, b"a", b"b")

    lossy.after_request = send_when_latest_is_known
    query = (
        stream_of(spark, lossy.base_url, "orders", startingOffsets="latest")
        .writeStream.foreachBatch(fail)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    with pytest.raises(StreamingQueryException, match="crash"):
        query.awaitTermination(DEADLINE_S)
    read_all(lossy.base_url, "orders", startingOffsets="latest")
    assert sorted(value for batch in batches for value in batch) == [b"a", b"b", b"c"]


def test_lost_messages_stop_the_query_with_the_code(
    read_all: Callable[..., None], lossy: FakeNode, batches: list[list[bytes]]
) -> None:
    lossy.send("orders", 0, *bodies("a", 4))
    read_all(lossy.base_url, "orders")
    lossy.send("orders", 0, *bodies("b", 4))
    lossy.topics["orders"][0].remove_before(6)
    with pytest.raises(StreamingQueryException, match=r"CURLEW_DATA_LOSS: topic 'orders' queue 0"):
        read_all(lossy.base_url, "orders")
    read_all(lossy.base_url, "orders", failOnDataLoss="false")
    assert batches == [bodies("a", 4), bodies("b", 4)[2:]]


def test_a_batch_read(spark: SparkSession, real: RealNode, orders: str) -> None:
    sent = [bodies(f"{queue}-", 10) for queue in range(QUEUES)]
    for queue in range(QUEUES):
        real.send(orders, queue, *sent[queue])
    reader = spark.read.format("curlew").option("endpoint", real.base_url).option("topic", orders)
    frame = reader.load()
    assert values_of(frame.select("value")) == sorted(itertools.chain(*sent))
    start, end = (f'{{"{orders}":{{"1":{offset}}}}}' for offset in (4, 7))
    bounds = {"startingOffsets": start, "endingOffsets": end, "queues": f'{{"{orders}":[1]}}'}
    assert values_of(reader.options(**bounds).load()) == sent[1][4:7]
    moment = min(row.timestamp for row in frame.collect())
    given = {"endpoint": real.base_url, "topic": orders, "endingTimestamp": moment.isoformat()}
    assert spark.read.format("curlew").options(**given).load().count() == 0


def test_a_group_is_told_of_the_last_batch_too(
    spark: SparkSession, real: RealNode, read_all: Callable[..., None], orders: str
) -> None:
    real.send(orders, 0, *bodies("a", 5))
    for count in (5, 12):
        read_all(real.base_url, orders, consumerGroup="etl", maxOffsetsPerTrigger="5")
        assert real.committed("etl", orders).get(0) == count, "one batch, or several"
        real.send(orders, 0, *bodies("b", 7))


def test_code_that_was_written_for_kafka(
    spark: SparkSession, real: RealNode, orders: str, tmp_path: Path
) -> None:
    """`.load(orders)`, `partition` and `headers` both ways, a view, and what Spark's tables add."""
    real.send(orders, 1, *bodies("a", 3))
    copy = f"{orders}-copy"
    real.add_topic(copy, 2)
    reader = spark.read.format("curlew").option("endpoint", real.base_url)
    read = reader.option("includeHeaders", "true").load(orders)
    assert {row.partition for row in read.collect()} == {1}
    changed = read.selectExpr("concat('x-', string(key)) AS key", "value", "partition", "headers")
    writer = changed.write.format("curlew").option("endpoint", real.base_url).mode("append")
    writer.save(copy)
    copied = reader.load(copy).collect()
    assert {(row.partition, row.tag, bytes(row.key)) for row in copied} == {
        (1, "t", f"x-k-a{number:04}".encode()) for number in range(3)
    }
    options = f"endpoint '{real.base_url}', topic '{orders}'"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW orders USING curlew OPTIONS ({options})")
    assert spark.sql("SELECT count(*) FROM orders").first()[0] == 3
    spark.sql("DROP VIEW orders")


def test_what_a_stream_writes_is_read_again(
    spark: SparkSession, real: RealNode, orders: str, tmp_path: Path
) -> None:
    copy = f"{orders}-copy"
    real.add_topic(copy, 2)
    for queue in range(QUEUES):
        real.send(orders, queue, *bodies(f"{queue}-", 40), tag="t")
    address = {"endpoint": real.base_url}
    query = (
        stream_of(spark, real.base_url, orders, maxOffsetsPerTrigger="50")
        .select("key", "value", "tag")
        .writeStream.format("curlew")
        .options(**address, topic=copy, checkpointLocation=str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(DEADLINE_S)
    before, after = (
        spark.read.format("curlew").options(**address, topic=name).load() for name in (orders, copy)
    )
    rows = before.select("key", "value", "tag")
    assert rows.exceptAll(after.select("key", "value", "tag")).count() == 0
    assert after.count() == 120
    rows.limit(3).write.format("curlew").options(**address, topic=copy).mode("append").save()
    assert spark.read.format("curlew").options(**address, topic=copy).load().count() == 123
    with pytest.raises(Exception, match="CURLEW_UNSUPPORTED: a topic cannot be overwritten"):
        rows.write.format("curlew").options(**address, topic=copy).mode("overwrite").save()


def test_a_mistaken_option_shows_at_load(spark: SparkSession) -> None:
    with pytest.raises(AnalysisException, match="did you mean 'maxOffsetsPerTrigger'"):
        stream_of(spark, "http://127.0.0.1:8710", "orders", maxOffsetPerTrigger="3")
