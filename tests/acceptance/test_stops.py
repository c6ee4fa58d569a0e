"""A stop ends in time whatever it waits for: a database that says nothing, a disk that hangs."""

import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from app.commands.node_commands import HUNG_STATUS
from app.main import STOP_SECONDS
from tests.support.cluster.three_processes import three_processes
from tests.support.metadata.databases import PostgresDatabases
from tests.support.metadata.postgres import PostgresServer
from tests.support.nodes.node import RunningNode, run_node, start_node
from tests.support.nodes.waiting import wait_until
from tests.support.stores.hung_disk import HANGS_WHILE, hung_by

pytestmark = pytest.mark.postgres

MARGIN_S = 3.0
"""Of a machine that does other work."""


@pytest.fixture
def node(tmp_path: Path, postgres_databases: PostgresDatabases) -> Iterator[RunningNode]:
    """A lone node with a topic, a group, and a request that waits."""
    file = tmp_path / "database.url"
    file.touch(0o600)
    file.write_text(postgres_databases.migrated())
    started = start_node(tmp_path / "node", "--database-url-file", str(file))
    try:
        assert httpx.put(f"{started.url}/v1/topics/orders", json={"queues": 1}).status_code == 201
        yield started
    finally:
        end(started)


def end(node: RunningNode) -> None:
    node.kill()
    assert node.process.stdout is not None
    node.process.stdout.close()


def seconds_of_stop(node: RunningNode, *, signals: int = 1) -> float:
    """From the last signal on."""
    for number in range(signals):
        if number:
            wait_until(lambda: "stopping" in node.log.read_text())
        node.process.send_signal(signal.SIGTERM)
    began_s = time.monotonic()
    assert node.process.wait(60) == 0
    return time.monotonic() - began_s


@pytest.mark.parametrize("signals", [1, 2])
def test_a_node_stops_in_time_while_the_database_is_silent(
    node: RunningNode, postgres_server: PostgresServer, signals: int
) -> None:
    path = "/v1/topics/orders/groups/billing/messages:receive"
    assert httpx.post(f"{node.url}{path}").status_code == 200
    with postgres_server.frozen():
        wait_until(lambda: silence_s(node) > 3)
        took_s = seconds_of_stop(node, signals=signals)
    assert took_s < (STOP_SECONDS if signals == 1 else 3) + MARGIN_S


def silence_s(node: RunningNode) -> float:
    """For how long it has heard nothing of the database."""
    figures = httpx.get(f"{node.url}/metrics").text.splitlines()
    (age,) = [each for each in figures if each.startswith("curlew_policy_age_seconds ")]
    return float(age.split()[1])


def test_a_leader_stops_in_time_while_the_database_is_silent(
    tmp_path: Path, postgres_databases: PostgresDatabases, postgres_server: PostgresServer
) -> None:
    with three_processes(tmp_path, postgres_databases.migrated()) as shard:
        name = shard.leader()
        node = shard.nodes.pop(name)
        try:
            with postgres_server.frozen():
                wait_until(lambda: silence_s(node) > 3)
                took_s = seconds_of_stop(node)
        finally:
            end(node)
        assert took_s < STOP_SECONDS + MARGIN_S


def test_a_node_whose_disk_hangs_ends_all_the_same(tmp_path: Path) -> None:
    hangs = tmp_path / "hangs"
    node = start_node(
        tmp_path / "node",
        *("--flush", "sync"),
        module="tests.support.stores.hung_disk",
        environment={HANGS_WHILE: str(hangs)},
    )
    try:
        assert httpx.put(f"{node.url}/v1/topics/orders", json={"queues": 1}).status_code == 201
        path = f"{node.url}/v1/topics/orders/messages"
        assert httpx.post(path, content="1").status_code == 201
        hangs.touch()
        with ThreadPoolExecutor() as pool:
            lost = pool.submit(send, path)
            wait_until(hung_by(hangs).exists)
            node.process.send_signal(signal.SIGTERM)
            assert node.process.wait(60) == HUNG_STATUS
            assert lost.result() != 201
        assert "the disk does not answer" in node.log.read_text()
    finally:
        end(node)
    with run_node(tmp_path / "node") as again:
        found = httpx.get(f"{again.url}/v1/topics/orders/queues/0/messages?offset=0").json()
        assert found["messages"][0]["text"] == "1"


def send(path: str) -> int:
    """The status; 0 where the connection ended before there was one."""
    try:
        return httpx.post(path, content="2", timeout=60).status_code
    except httpx.HTTPError:
        return 0
