"""The connector inside a real Spark, two threads on this machine. Needs Java 17."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark_curlew import register

from spark_connector.tests.support.fake_node import FakeNode, run_fake_node

pytestmark = pytest.mark.spark

DEADLINE_S = 120


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One session for the module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        session = (
            SparkSession.builder.master("local[2]")
            .appName("curlew tests")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.ui.enabled", "false")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
            .config("spark.python.unix.domain.socket.enabled", "true")
            .getOrCreate()
        )
        session.sparkContext.setLogLevel("ERROR")
        register(session)
        yield session
        session.stop()


@pytest.fixture
def node() -> Iterator[FakeNode]:
    with run_fake_node() as node:
        node.add_topic("orders", queues=3)
        yield node


@pytest.fixture
def batches() -> list[list[bytes]]:
    """The values of each micro-batch, in the order of the batches."""
    return []


@pytest.fixture
def run(
    spark: SparkSession, node: FakeNode, tmp_path: Path, batches: list[list[bytes]]
) -> Callable[..., None]:
    """Read all there is (AvailableNow) with one checkpoint, again and again."""

    def run(**given: str) -> None:
        query = (
            stream_of(spark, node, **given)
            .select("value")
            .writeStream.foreachBatch(lambda frame, _number: batches.append(values_of(frame)))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(DEADLINE_S)

    return run


def stream_of(spark: SparkSession, node: FakeNode, **given: str) -> DataFrame:
    reader = spark.readStream.format("curlew").option("endpoint", node.base_url)
    defaults = {"topic": "orders", "startingOffsets": "earliest"}
    return reader.options(**{**defaults, **given}).load()


def values_of(frame: DataFrame) -> list[bytes]:
    return sorted(bytes(row.value) for row in frame.collect())


def bodies(prefix: str, count: int) -> list[bytes]:
    return [f"{prefix}{number:04}".encode() for number in range(count)]


def test_rows_arrive_with_all_their_columns(
    spark: SparkSession, node: FakeNode, tmp_path: Path
) -> None:
    node.send("orders", 1, b"one", b"two", tag="created")
    found: list[Any] = []
    query = (
        stream_of(spark, node, includeProperties="true")
        .writeStream.foreachBatch(lambda frame, _number: found.extend(frame.collect()))
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(DEADLINE_S)
    first = min(found, key=lambda row: row.offset)
    assert (bytes(first.key), bytes(first.value)) == (b"k0", b"one")
    assert (first.topic, first.queue, first.offset, first.tag) == ("orders", 1, 0, "created")
    assert first.timestamp.microsecond == 5_000
    assert first.message_id == "010A0B0C0D018BCFE56805000000000000"
    assert first.properties == {"KEYS": "k0", "TAGS": "created"}


def test_a_restart_goes_on_where_the_checkpoint_ends(
    run: Callable[..., None], node: FakeNode, batches: list[list[bytes]]
) -> None:
    for queue in range(3):
        node.send("orders", queue, *bodies(f"a{queue}-", 10))
    run()
    for queue in range(3):
        node.send("orders", queue, *bodies(f"b{queue}-", 10))
    run()
    run()
    assert [len(batch) for batch in batches] == [30, 30]
    assert len({value for batch in batches for value in batch}) == 60


def test_available_now_keeps_the_limit(
    run: Callable[..., None], node: FakeNode, batches: list[list[bytes]]
) -> None:
    sent = [bodies(f"{queue}-", 10 * (queue + 1)) for queue in range(3)]
    for queue in range(3):
        node.send("orders", queue, *sent[queue])
    run(maxOffsetsPerTrigger="16")
    assert [len(batch) for batch in batches] == [16, 16, 16, 12]
    received = sorted(value for batch in batches for value in batch)
    assert received == sorted(value for values in sent for value in values)


def test_latest_loses_nothing_from_its_first_start_on(
    run: Callable[..., None], node: FakeNode, batches: list[list[bytes]]
) -> None:
    node.send("orders", 0, b"before")
    run(startingOffsets="latest")
    node.send("orders", 0, b"between")
    node.send("orders", 2, b"between too")
    run(startingOffsets="latest")
    assert [batch for batch in batches if batch] == [[b"between", b"between too"]]


def test_a_crash_in_the_first_batch_loses_nothing_to_latest(
    spark: SparkSession,
    run: Callable[..., None],
    node: FakeNode,
    tmp_path: Path,
    batches: list[Any],
) -> None:
    """The batch fails after its end was stored; the restart resolves `latest` anew, further on."""
    node.send("orders", 0, b"old")

    def fail(_frame: DataFrame, _number: int) -> None:
        node.send("orders", 0, b"c")
        raise RuntimeError("crash")

    def send_when_latest_is_known(request: str) -> None:
        if "at=latest" in request:
            node.after_request = lambda _request: None
            node.send("orders", 0, b"a", b"b")

    node.after_request = send_when_latest_is_known
    query = (
        stream_of(spark, node, startingOffsets="latest")
        .writeStream.foreachBatch(fail)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    with pytest.raises(StreamingQueryException, match="crash"):
        query.awaitTermination(DEADLINE_S)
    run(startingOffsets="latest")
    assert sorted(value for batch in batches for value in batch) == [b"a", b"b", b"c"]


def test_a_running_query_picks_up_what_comes(
    spark: SparkSession, node: FakeNode, tmp_path: Path, batches: list[list[bytes]]
) -> None:
    query = (
        stream_of(spark, node, pollWaitMs="200")
        .select("value")
        .writeStream.foreachBatch(lambda frame, _number: batches.append(values_of(frame)))
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    try:
        for round_number in range(3):
            node.send("orders", round_number, *bodies(f"{round_number}-", 5))
            query.processAllAvailable()
            assert sum(len(batch) for batch in batches) == 5 * (round_number + 1)
        assert query.lastProgress is not None
    finally:
        query.stop()


def test_lost_messages_stop_the_query_with_the_code(
    run: Callable[..., None], node: FakeNode, batches: list[list[bytes]]
) -> None:
    node.send("orders", 0, *bodies("a", 4))
    run()
    node.send("orders", 0, *bodies("b", 4))
    node.topics["orders"][0].remove_before(6)
    with pytest.raises(StreamingQueryException, match=r"CURLEW_DATA_LOSS: topic 'orders' queue 0"):
        run()
    run(failOnDataLoss="false")
    assert batches == [bodies("a", 4), bodies("b", 4)[2:]]


def test_a_mistaken_option_shows_at_load(spark: SparkSession, node: FakeNode) -> None:
    with pytest.raises(AnalysisException, match="did you mean 'maxOffsetsPerTrigger'"):
        stream_of(spark, node, maxOffsetPerTrigger="3")
