"""Spark against three nodes of three shards on PostgreSQL, one of which is killed in the middle."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_connector.tests.support.proxy import Asked, Given, run_proxy
from spark_connector.tests.support.real_cluster import RealCluster, run_real_cluster
from tests.support.metadata.databases import PostgresDatabases
from tests.support.nodes.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

DEADLINE_S = 180
MESSAGES = 900
QUEUES = 6


@pytest.fixture
def cluster(tmp_path: Path, postgres_databases: PostgresDatabases) -> Iterator[RealCluster]:
    """With a topic `orders`, two queues in each shard."""
    with run_real_cluster(tmp_path, postgres_databases.migrated()) as cluster:
        cluster["a"].add_topic("orders", QUEUES)
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
            assert pulls == [], "nothing went through the first node so far"
            cluster.kill("c")
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
