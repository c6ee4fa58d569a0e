"""`/readyz` of a real node, each reason made for real: what keeps it from work, what only hurts."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from app.api.http.errors import STATUS_OF_CODE
from app.broker.health import ConditionCode
from app.domain.limits import Limits
from app.domain.message import Message
from app.node import Node
from app.runtime.service import Service
from app.store import DamageKind, RetentionPolicy
from tests.support.clients.wire import Served, served_node
from tests.support.metadata.metadata_failures import execute

pytestmark = pytest.mark.anyio

ORDERS = "/v1/topics/orders"
HOUR_MS = 3_600_000
NEVER_ENOUGH = RetentionPolicy(
    default_ms=HOUR_MS, warn_ratio=1e-9, delete_ratio=1e-9, refuse_ratio=1e-9
)
"""Every disk is too full for it."""


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Served]:
    async with served_node(tmp_path, Limits()) as served:
        yield served


@pytest.fixture
async def http(server: Served) -> AsyncIterator[httpx.AsyncClient]:
    base_url = f"http://127.0.0.1:{server.port}"
    async with httpx.AsyncClient(base_url=base_url, timeout=10) as client:
        yield client


async def look(http: httpx.AsyncClient) -> tuple[int, list[str], list[str]]:
    """The status, the codes of what keeps the node from work, and of what only hurts."""
    answer = await http.get("/readyz")
    found = answer.json()
    assert found["status"] == ("ready" if answer.status_code == 200 else "not_ready")
    assert answer.headers["cache-control"] == "no-store"
    for condition in (*found["reasons"], *found["degraded"]):
        assert condition.keys() == {"code", "detail", "hint"}
        assert all(condition.values())
    return (
        answer.status_code,
        [each["code"] for each in found["reasons"]],
        [each["code"] for each in found["degraded"]],
    )


async def test_a_failed_store(server: Served, http: httpx.AsyncClient) -> None:
    await server.node.broker.sender.send("orders", Message(b"x"))
    server.node.store.fail("Input/output error while writing a checkpoint")
    assert await look(http) == (503, ["STORE_FAILED"], [])
    refused = await http.post(f"{ORDERS}/messages", content=b"x")
    assert (refused.status_code, refused.json()["code"]) == (503, "STORE_FAILED")
    assert (await http.get(f"{ORDERS}/queues/0/messages?offset=0")).status_code == 200
    assert "curlew_ready 0" in (await http.get("/metrics")).text


async def test_draining(server: Served, http: httpx.AsyncClient) -> None:
    assert await look(http) == (200, [], [])
    await server.node.drain()
    assert await look(http) == (503, ["SHUTTING_DOWN"], [])
    assert (await http.get("/healthz")).status_code == 200


async def test_a_full_disk(server: Served, http: httpx.AsyncClient) -> None:
    await server.node.broker.sender.send("orders", Message(b"x"))
    server.node.store.apply_retention(NEVER_ENOUGH)
    assert await look(http) == (200, [], ["DISK_FULL"])
    refused = await http.post(f"{ORDERS}/messages", content=b"x")
    assert (refused.status_code, refused.json()["code"]) == (507, "DISK_FULL")
    assert (await http.get(f"{ORDERS}/queues/0/messages?offset=0")).status_code == 200
    assert 'curlew_degraded{code="DISK_FULL"} 1' in (await http.get("/metrics")).text
    server.node.store.apply_retention(RetentionPolicy(default_ms=HOUR_MS, refuse_ratio=1.0))
    assert await look(http) == (200, [], [])


async def test_a_damaged_store_stays_ready(server: Served, http: httpx.AsyncClient) -> None:
    assert 'curlew_store_damage_total{kind="tail"} 0' in (await http.get("/metrics")).text
    server.node.store._mender.damages.note(DamageKind.TAIL, "222 bytes")
    assert await look(http) == (200, [], ["STORE_DAMAGED"])
    [trouble] = (await http.get("/readyz")).json()["degraded"]
    assert trouble["detail"] == "found since the start, by kind: tail 1"
    metrics = (await http.get("/metrics")).text
    assert 'curlew_store_damage_total{kind="tail"} 1' in metrics
    assert 'curlew_degraded{code="STORE_DAMAGED"} 1' in metrics


async def test_a_service_that_fails_names_no_path(server: Served, http: httpx.AsyncClient) -> None:
    async def turn() -> None:
        raise FileNotFoundError(2, "No such file or directory", "/srv/secret/store")

    service = Service("probe", 3600, turn)
    server.node.broker.health.watch(service)
    await service.start()
    await service.run_now()
    await service.stop()
    [trouble] = (await http.get("/readyz")).json()["degraded"]
    assert trouble["detail"] == "probe: FileNotFoundError: No such file or directory"


async def change(url: str, statement: str) -> None:
    """On another thread: a write of the node's own, begun before, ends only on this one."""
    await asyncio.to_thread(execute, url, statement)


async def look_at_database(node: Node) -> None:
    """As the node does every second."""
    await node.pulse.beat()
    await node.pulse.change()


async def test_metadata_that_is_gone(
    server: Served, http: httpx.AsyncClient, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url = server.node.config.database
    await change(url, "ALTER TABLE metadata_version RENAME TO lost")
    await look_at_database(server.node)
    assert await look(http) == (200, [], ["METADATA_UNAVAILABLE"])
    assert (await http.post(f"{ORDERS}/messages", content=b"x")).status_code == 201
    refused = await http.put("/v1/topics/new", json={})
    assert refused.json()["code"] == "METADATA_UNAVAILABLE"
    for text in (refused.text, (await http.get("/readyz")).text):
        assert str(tmp_path) not in text
        assert "the metadata database (SQLite) has lost a table" in text
    assert str(tmp_path) in caplog.text
    await change(url, "ALTER TABLE lost RENAME TO metadata_version")
    await look_at_database(server.node)
    assert await look(http) == (200, [], [])


async def test_a_deletion_that_cannot_be_read_is_carried_out_later(server: Served) -> None:
    """By another connection, and the database fails between the change and the look at it: the
    topic is seen until its deletion is, so that no successor gets its messages."""
    node, url = server.node, server.node.config.database
    generation = node.store.generation("orders")
    assert generation
    for statement in (
        "INSERT INTO tombstones (kind, name, generation, shard, deleted_ms)"
        " SELECT 'topic', topics.name, generation, shards.name, 0 FROM topics, shards"
        " WHERE topics.name = 'orders'",
        "DELETE FROM topics WHERE name = 'orders'",
        "ALTER TABLE tombstones RENAME TO lost",
        "UPDATE metadata_version SET version = version + 1",
    ):
        await change(url, statement)
    await look_at_database(node)
    assert "orders" in node.metadata.snapshot.topics
    assert node.store.generation("orders") == generation
    await change(url, "ALTER TABLE lost RENAME TO tombstones")
    await look_at_database(node)
    assert "orders" not in node.metadata.snapshot.topics
    assert not node.store.generation("orders")
    assert await node.metadata.deletions() == []


async def test_timers_that_are_read_back(server: Served, http: httpx.AsyncClient) -> None:
    await server.node.broker.delays.service.stop()  # its next turn would mend it
    server.node.broker.delays.timers.damage = "a run has a wrong checksum"
    assert await look(http) == (200, [], ["TIMERS_NOT_READY"])
    scheduled = await http.get(f"{ORDERS}/scheduled")
    assert scheduled.json()["code"] == "TIMERS_NOT_READY"


async def test_a_service_that_fails(server: Served, http: httpx.AsyncClient) -> None:
    schedules = server.node.broker.schedules.service
    schedules.problem = "OSError: no such luck"
    assert await look(http) == (200, [], ["SERVICE_FAILING"])


def test_the_codes_mean_the_same_as_in_the_table_of_errors() -> None:
    """But for those that no request is refused with."""
    own = {
        ConditionCode.STARTING,
        ConditionCode.STORE_DAMAGED,
        ConditionCode.CLOCK_BEHIND,
        ConditionCode.CLOCK_AHEAD,
        ConditionCode.CLOCK_APART,
        ConditionCode.NO_LEADER,
        ConditionCode.REPLICA_REMOVED,
        ConditionCode.REPLICA_FAILED,
        ConditionCode.REPLICA_ALARM,
        ConditionCode.REPLICAS_BEHIND,
        ConditionCode.DELIVERY_FAILING,
        ConditionCode.SERVICE_FAILING,
    }
    assert {code.value for code in set(ConditionCode) - own} <= set(STATUS_OF_CODE)
