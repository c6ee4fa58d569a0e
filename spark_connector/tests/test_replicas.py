"""Pulls from any replica of a shard on three nodes, one of which is killed."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from pyspark_curlew.http import routes
from pyspark_curlew.http.client import CurlewClient, Pull, Pulled
from pyspark_curlew.http.http_options import HttpOptions

from tests.support.cluster.three_processes import TOPIC, Shard, three_processes
from tests.support.metadata.databases import PostgresDatabases
from tests.support.nodes.waiting import wait_until

pytestmark = pytest.mark.postgres

COUNT = 40
PULLED = 'curlew_requests_total{operation="pull_messages"'


@pytest.fixture
def shard(tmp_path: Path, postgres_databases: PostgresDatabases) -> Iterator[Shard]:
    with three_processes(tmp_path, postgres_databases.migrated()) as made:
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
