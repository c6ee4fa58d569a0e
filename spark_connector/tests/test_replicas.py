"""A shard on three nodes, whose leader is killed: pulls from any replica, and a copy by Spark."""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
from pyspark.errors import StreamingQueryException
from pyspark_curlew.http import routes
from pyspark_curlew.http.client import CurlewClient, Pull, Pulled
from pyspark_curlew.http.http_options import HttpOptions

from spark_connector.tests.support.proxy import Holding, run_proxy
from spark_connector.tests.support.real_node import RealNode
from spark_connector.tests.support.stored import rows_at
from tests.support.cluster.three_processes import TOPIC, Shard, three_processes
from tests.support.metadata.databases import PostgresDatabases
from tests.support.nodes.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = pytest.mark.postgres

COUNT = 40
COPIED = 900
BATCHES = 3
QUEUES = 3
SENDS = COPIED // BATCHES // 10
"""Of a batch."""
DEADLINE_S = 300
CHANGED = ("concat('x-', cast(key AS string)) AS key", "value", "'copied' AS tag", "properties")


@pytest.fixture(scope="module")
def shard(
    tmp_path_factory: pytest.TempPathFactory, postgres_databases: PostgresDatabases
) -> Iterator[Shard]:
    folder = tmp_path_factory.mktemp("shard")
    with three_processes(folder, postgres_databases.migrated()) as made:
        leader = made.nodes[made.leader()].url
        for number in range(COUNT):
            sent = httpx.post(f"{leader}{TOPIC}/messages?queue_id=0", content=f"{number}")
            assert sent.status_code == 201
        yield made


def all_of(endpoint: str) -> bytes:
    """All records, a few with each pull."""
    client = CurlewClient(HttpOptions((endpoint,), 2000, 10_000, 20_000, 0, reads_any=True))
    found, offset = b"", 0
    while offset < COUNT:
        answer = client.pull(Pull("orders", 0, offset, COUNT, 7, 1 << 20))
        assert isinstance(answer, Pulled)
        assert not answer.gaps
        found += bytes(answer.frame.data)
        offset = answer.next_offset
    return found


def test_each_replica_gives_the_same_also_without_its_leader(
    shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = shard.leader()
    endpoint = shard.nodes[next(name for name in shard.nodes if name != leader)].url

    def in_turn() -> list[bytes]:
        found = []
        for turn in range(3):
            monkeypatch.setattr(routes, "_turn", turn)
            monkeypatch.setattr(routes, "_routes", {})
            monkeypatch.setattr(routes, "_away_until_s", {})
            found.append(all_of(endpoint))
        return found

    url = f"{endpoint}{TOPIC}/route"
    wait_until(lambda: len(httpx.get(url).json()["queues"][0]["replicas"]) == 3)
    before = in_turn()
    assert len(set(before)) == 1
    shard.kill(leader)
    assert in_turn() == before
    shard.start(leader)
    shard.in_sync()


@pytest.mark.spark
def test_what_is_copied_through_the_loss_of_leaders_is_there_once(
    spark: "SparkSession", shard: Shard, tmp_path: Path
) -> None:
    """Each leader is killed in the middle of a batch, while the answer to a request is held back,
    and comes back as a follower. Each row is given another key and tag."""
    rule = Holding("/copy/")
    service = RealNode(shard.nodes["a"].url)
    for name in ("flights", "copy"):
        service.add_topic(name, QUEUES)
    for queue in range(QUEUES):
        service.send("flights", queue, *[b"%d" % n for n in range(queue, COPIED, QUEUES)])
    with ExitStack() as proxies:
        endpoints = [proxies.enter_context(run_proxy(url, rule)) for url in shard.urls()]
        rule.hold_after(SENDS)
        query = (
            spark.readStream.format("curlew")
            .options(endpoint=",".join(endpoints), startingOffsets="earliest")
            .options(maxOffsetsPerTrigger=str(COPIED // BATCHES), includeProperties="true")
            .load("flights")
            .selectExpr(*CHANGED)
            .writeStream.format("curlew")
            .options(endpoint=",".join(endpoints), topic="copy", sendMaxMessages="10")
            .option("readTimeoutMs", str(DEADLINE_S * 1000))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        for turn in range(BATCHES):
            _wait_for_a_send(rule, query, turn)
            killed = shard.leader()
            shard.kill(killed)
            rule.let_go()
            rule.hold_after(SENDS)
            shard.leader()
            shard.start(killed)
            shard.in_sync()
        rule.let_go()
        try:
            has_ended = query.awaitTermination(DEADLINE_S)
        except StreamingQueryException as error:
            pytest.fail(f"the copy failed: {error}\n{_standing(shard, query)}")
        assert has_ended, f"the copy goes on\n{_standing(shard, query)}"
    rows = rows_at(shard.nodes[shard.leader()].url, "copy", {"includeProperties": "true"})
    found = [
        (int(row["value"]), row["tag"], row["key"], dict(row["properties"])["KEYS"]) for row in rows
    ]
    values = Counter(value for value, *_ in found)
    missing = sorted(set(range(COPIED)) - set(values))
    doubled = sorted(value for value, count in values.items() if count > 1)
    assert not missing, f"{len(missing)} are missing: {missing[:20]}\n{_standing(shard, query)}"
    assert not doubled, f"{len(doubled)} stand twice: {doubled[:20]}\n{_standing(shard, query)}"
    expected = [(n, "copied", b"x-k-%d" % n, f"k-{n}") for n in range(COPIED)]
    assert sorted(found) == expected


def _wait_for_a_send(rule: Holding, query: "StreamingQuery", turn: int) -> None:
    """Until the answer to one is held back. A query that has ended will not send it."""
    wait_until(lambda: rule.held.is_set() or not query.isActive, DEADLINE_S)
    assert rule.held.is_set(), f"it ended behind {turn} leaders: {query.exception()}"


def _standing(shard: Shard, query: "StreamingQuery") -> str:
    """What the query and the nodes say, for a failure."""
    lines = [f"query: {query.status}, {query.exception()}", f"last batch: {query.lastProgress}"]
    for name, node in shard.nodes.items():
        try:
            lines.append(f"{name}: {httpx.get(f'{node.url}/v1/cluster').text[:4_000]}")
        except httpx.HTTPError as error:
            lines.append(f"{name}: {error!r}")
    return "\n".join(lines)
