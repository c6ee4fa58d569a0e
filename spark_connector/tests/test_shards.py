"""Spark against three nodes of three shards on PostgreSQL, one of which is killed in the middle."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_connector.tests.support.proxy import Asked, Given, Holding, run_proxy
from spark_connector.tests.support.real_cluster import RealCluster, run_real_cluster
from spark_connector.tests.support.stored import rows_at, values_at
from tests.support.metadata.databases import PostgresDatabases
from tests.support.nodes.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

DEADLINE_S = 300
MESSAGES = 900
QUEUES = 6


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, postgres_databases: PostgresDatabases
) -> Iterator[RealCluster]:
    """With a topic `orders`, two queues in each shard."""
    folder = tmp_path_factory.mktemp("cluster")
    with run_real_cluster(folder, postgres_databases.migrated()) as cluster:
        cluster["a"].add_topic("orders", QUEUES)
        wait_until(lambda: cluster["a"].leaders("orders") == QUEUES)
        for queue in range(QUEUES):
            bodies = [b"%d" % number for number in range(queue, MESSAGES, QUEUES)]
            cluster["b"].send("orders", queue, *bodies)
        yield cluster


def test_a_node_that_is_killed_costs_no_message(
    spark: "SparkSession", cluster: RealCluster, tmp_path: Path
) -> None:
    """What Spark knows is the first node, through a proxy: each pull goes to its queue's leader,
    and to the first node while that one is away."""
    pulls, found = list[str](), list[list[int]]()

    def counting(asked: Asked, pass_on: Callable[[], Given]) -> Given:
        if "/queues/" in asked.path:
            pulls.append(asked.path)
        return pass_on()

    def start_once_missed() -> None:
        wait_until(lambda: bool(pulls), DEADLINE_S)
        cluster.start("c")

    def collect(frame: "DataFrame", number: int) -> None:
        starting = threading.Thread(target=start_once_missed)
        if number == 1:
            assert len(pulls) < QUEUES, "what went through the first node so far"
            cluster.kill("c")
            pulls.clear()
            starting.start()
        rows = frame.collect()
        found.append([int(row.value) for row in rows])
        if number == 1:
            starting.join()
        assert len({row.message_id[2:10] for row in rows}) == len("abc"), "the ids' stores"

    with run_proxy(cluster["a"].base_url, counting) as endpoint:
        query = (
            spark.readStream.format("curlew")
            .options(endpoint=endpoint, startingOffsets="earliest", maxOffsetsPerTrigger="300")
            .load("orders")
            .writeStream.foreachBatch(collect)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(DEADLINE_S)
    assert [len(batch) for batch in found] == [300, 300, 300]
    assert sorted(number for batch in found for number in batch) == list(range(MESSAGES))


def test_what_is_written_through_a_kill_is_there_once(
    spark: "SparkSession", cluster: RealCluster, tmp_path: Path
) -> None:
    """The node is killed in the middle of a batch, while the answer to a request is held back."""
    rule = Holding("/copy/")
    cluster["a"].add_topic("copy", QUEUES)
    with run_proxy(cluster["a"].base_url, rule) as endpoint:
        rule.hold_after(10)
        query = (
            spark.readStream.format("curlew")
            .options(endpoint=endpoint, startingOffsets="earliest", maxOffsetsPerTrigger="300")
            .load("orders")
            .select("value")
            .writeStream.format("curlew")
            .options(endpoint=endpoint, checkpointLocation=str(tmp_path / "checkpoint"))
            .options(topic="copy", sendMaxMessages="10")
            .trigger(availableNow=True)
            .start()
        )
        wait_until(rule.held.is_set, DEADLINE_S)
        cluster.kill("c")
        rule.let_go()
        cluster.start("c")
        assert query.awaitTermination(DEADLINE_S)
    assert values_at(cluster["b"].base_url, "copy") == list(range(MESSAGES))
    rows = rows_at(cluster["c"].base_url, "copy", {"readFrom": "endpoint"})
    assert len({row["message_id"] for row in rows}) == MESSAGES
    assert len({row["message_id"][2:10] for row in rows}) == len("abc"), "each shard has some"


def test_keys_that_have_moved_from_a_shard_that_drains_are_written_elsewhere(
    spark: "SparkSession", cluster: RealCluster
) -> None:
    """With a producer, whose plan says which queues take messages, and without."""
    node, topics = cluster["b"], {"with": "true", "without": "false"}
    for topic in topics:
        node.add_topic(topic, QUEUES)
    node.drain("a", keys=True)
    wait_until(lambda: node.perms("without").count("rw") == 4, DEADLINE_S)
    rows = spark.range(60).selectExpr("cast(id as string) AS value", "cast(id as string) AS key")
    for topic, idempotence in topics.items():
        options = {"endpoint": node.base_url, "idempotence": idempotence}
        rows.write.format("curlew").options(**options).mode("append").save(topic)
        assert values_at(node.base_url, topic) == list(range(60))
        stored = {row["queue"] for row in rows_at(node.base_url, topic)}
        taking = {queue for queue, perm in enumerate(node.perms(topic)) if perm == "rw"}
        assert stored == taking
