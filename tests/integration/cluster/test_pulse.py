"""What idle nodes ask of the database, and what a node does that leads its shard no more."""

import asyncio
import shutil
from pathlib import Path

import httpx
import psycopg
import pytest
from sqlalchemy import event

from app.runtime.service import Service
from tests.support.cluster.three_nodes import ServedNode, start_node
from tests.support.nodes.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.postgres]

STATEMENTS_A_SECOND_MAX = 10
SEND = "/v1/topics/orders/messages"


def services_of(served: ServedNode) -> list[Service]:
    node = served.node
    broker = node.broker
    return [
        *node.services(),
        *node.leading.services(),
        *broker.services,
        broker.delays.service,
        broker.schedules.service,
    ]


async def test_idle_nodes_ask_little_of_the_database(nodes: list[ServedNode]) -> None:
    """Every service's turn, counted by itself and weighed by how often it comes."""
    asked: list[str] = []
    for each in nodes:
        for service in services_of(each):
            await service.stop()
        engine = each.node.metadata._database._writer.sync_engine

        @event.listens_for(engine, "before_cursor_execute")
        def note(_connection: object, _cursor: object, text: str, *_: object) -> None:
            asked.append(text)

    rate = 0.0
    for each in nodes:
        for service in services_of(each):
            await service._turn()  # has what was left from before
        for service in services_of(each):
            asked.clear()
            await service._turn()
            rate += len(asked) / service._interval_s
    assert 1 <= rate <= STATEMENTS_A_SECOND_MAX, rate


async def test_a_beat_with_its_lease_and_sign_of_life_is_one_statement(
    nodes: list[ServedNode], url: str
) -> None:
    asked: list[str] = []
    node = nodes[0].node
    engine = node.metadata._database._writer.sync_engine
    await node.pulse.beating.stop()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE shards SET lease_until_ms = 1")
        connection.execute("UPDATE nodes SET seen_ms = 1")

    @event.listens_for(engine, "before_cursor_execute")
    def note(_connection: object, _cursor: object, text: str, *_: object) -> None:
        if "lease_until_ms" in text:
            asked.append(text)

    found = await node.metadata.beat(node.node_id)
    assert len(asked) == 1
    assert found.is_registered
    assert found.grant_id == node.metadata.grant_id
    assert found.clock_ms is not None
    with psycopg.connect(url) as connection:
        lease = connection.execute("SELECT lease_until_ms FROM shards WHERE name = 'a'").fetchone()
        seen = connection.execute("SELECT seen_ms FROM nodes WHERE shard = 'a'").fetchone()
    assert lease is not None
    assert lease[0] > found.clock_ms
    assert seen is not None
    assert seen[0] > 1


async def refused(client: httpx.AsyncClient, path: str) -> dict[str, object]:
    answer = await client.post(path, content=b"x", headers={"MQ-Forward": "no"})
    assert answer.status_code == 421, answer.text
    found: dict[str, object] = answer.json()
    return found


async def test_a_node_whose_shard_was_taken_stores_nothing_more(tmp_path: Path, url: str) -> None:
    first = await start_node(tmp_path, url, "a")
    copy = None
    try:
        await first.client.put("/v1/topics/orders", json={"queues": 1})
        assert (await first.client.post(SEND, content=b"x")).status_code == 201
        await first.node.pulse.beating.stop()  # as if it slept
        shutil.copytree(tmp_path / "a", tmp_path / "copy" / "a")
        with psycopg.connect(url) as connection:
            connection.execute("UPDATE shards SET lease_until_ms = 1")
        copy = await start_node(tmp_path / "copy", url, "a")
        there = f"http://127.0.0.1:{copy.node.config.port}"
        await first.node.pulse.beat()
        known = first.node.metadata
        await until(lambda: known.snapshot.shards["a"].advertise_url == there)
        found = await refused(first.client, SEND)
        assert (found["code"], found["outcome"]) == ("NOT_LEADER", "not_stored")
        assert (found["leader"], found["epoch"]) == (there, copy.node.broker.epochs.current)
        route = (await first.client.get("/v1/topics/orders/route")).json()
        assert [each["leader"] for each in route["queues"]] == [there]
        ready = await first.client.get("/readyz")
        assert ready.status_code == 503
        assert "NOT_LEADER" in ready.text
        events = (await copy.client.get("/v1/cluster/events?page_size=1")).json()
        (fenced,) = events["events"]
        assert (fenced["kind"], fenced["shard"]) == ("node_fenced", "a")
        assert fenced["epoch"] == first.node.broker.epochs.current
        token = events["next_page_token"]
        earlier = await first.client.get(f"/v1/cluster/events?page_token={token}")
        assert earlier.json()["next_page_token"] is None
        assert [each["kind"] for each in earlier.json()["events"]] == [
            *("shard_led", "node_registered", "shard_claimed"),
            *("shard_led", "node_registered", "shard_made"),
        ]
        read = await first.client.get("/v1/topics/orders/queues/0/messages?offset=0")
        assert len(read.json()["messages"]) == 1
        assert (await copy.client.post(SEND, content=b"y")).status_code == 201
    finally:
        if copy is not None:
            await copy.stop()
        await first.stop()


async def test_a_node_whose_shard_was_released_stores_nothing_more(
    tmp_path: Path, url: str
) -> None:
    first = await start_node(tmp_path, url, "a")
    try:
        await first.client.put("/v1/topics/orders", json={"queues": 1})
        await first.node.metadata.release_shard("a")
        await until(lambda: first.node.broker.health.node.other_leader is not None)
        found = await refused(first.client, SEND)
        assert (found["code"], found["outcome"]) == ("NOT_LEADER", "not_stored")
        await until(lambda: not first.node.metadata.snapshot.shards)
        shown = (await first.client.get("/v1/cluster")).json()
        assert (shown["shard"], shown["shards"]) == ("a", [])
        (queue,) = (await first.client.get("/v1/topics/orders/route")).json()["queues"]
        assert (queue["leader"], queue["replicas"]) == (None, [])
    finally:
        await first.stop()


async def test_an_older_copy_of_the_database_takes_no_shard_away(tmp_path: Path, url: str) -> None:
    """It knows less than the node, also of who leads; the node goes on and says so."""
    first = await start_node(tmp_path, url, "a")
    try:
        await first.client.put("/v1/topics/orders", json={"queues": 1})
        with psycopg.connect(url) as connection:
            connection.execute("UPDATE shards SET grant_id = 'old', epoch = epoch - 1")
            connection.execute("UPDATE metadata_version SET version = 0")
        await asyncio.wait_for(first.node.pulse.beating.run_now(), 60)
        assert first.node.broker.health.node.other_leader is None
        assert "older copy" in str(first.node.broker.health.node.metadata_problem)
        assert (await first.client.post(SEND, content=b"x")).status_code == 201
    finally:
        await first.stop()
