"""The database of a cluster is stopped and comes back: what goes on meanwhile, and what waits."""

import asyncio
from pathlib import Path

import pytest

from tests.support.cluster.three_nodes import ServedNode, three_nodes
from tests.support.metadata.databases import PostgresDatabases
from tests.support.metadata.postgres import PostgresServer
from tests.support.nodes.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.postgres]

QUEUES = (0, 1, 2)
GROUP = "/v1/topics/orders/groups/billing"
CHANGES: tuple[tuple[str, str, object], ...] = (
    ("PUT", "/v1/topics/refunds", {}),
    ("PATCH", "/v1/topics/orders", {"queues": 4}),
    ("PUT", "/v1/groups/later", {}),
    ("PUT", "/v1/groups/audit/members/one", {"subscriptions": [{"topic": "orders"}]}),
    ("POST", "/v1/groups/billing:pause", None),
)
"""What is kept in the database alone."""


async def send_to_all(node: ServedNode, text: str) -> set[str]:
    """To each queue, and so to each shard, through one node."""
    bodies = {f"{text}-{queue_id}" for queue_id in QUEUES}
    for body in sorted(bodies):
        path = f"/v1/topics/orders/messages?queue_id={body[-1]}"
        sent = await node.client.post(path, json=body)
        assert sent.status_code == 201, sent.text
    return bodies


async def receive_one(node: ServedNode) -> str:
    """Through any node, and settled through it."""
    answer = await node.client.post(f"{GROUP}/messages:receive?max_messages=1")
    assert answer.status_code == 200, answer.text
    [message] = answer.json()["messages"]
    acks = {"receipt_handles": [message["receipt_handle"]]}
    acked = await node.client.post(f"{GROUP}/messages:ack", json=acks)
    assert (acked.status_code, acked.json()["failed"]) == (200, 0), acked.text
    return str(message["body"])


async def pulled(node: ServedNode) -> set[str]:
    """All queues, through one node."""
    bodies: set[str] = set()
    for queue_id in QUEUES:
        path = f"/v1/topics/orders/queues/{queue_id}/messages?offset=0&max_messages=100"
        answer = await node.client.get(path)
        assert answer.status_code == 200, answer.text
        bodies |= {str(each["body"]) for each in answer.json()["messages"]}
    return bodies


async def assert_changes_wait(node: ServedNode) -> None:
    for method, path, body in CHANGES:
        answer = await node.client.request(method, path, json=body)
        told = (answer.status_code, answer.json()["code"])
        assert told == (503, "METADATA_UNAVAILABLE"), (method, path, answer.text)


async def test_messages_go_on_while_the_database_is_away_and_changes_wait(
    tmp_path: Path, own_postgres_server: PostgresServer
) -> None:
    url = PostgresDatabases(own_postgres_server).migrated()
    async with three_nodes(tmp_path, url) as nodes:
        sent = await send_to_all(nodes[0], "before")
        received = [await receive_one(nodes[0])]
        for each in nodes:
            await each.node.metadata.refresh()  # the group is known everywhere, within a second
        await asyncio.to_thread(own_postgres_server.stop)
        await until(lambda: all(each.node.broker.health.node.metadata_problem for each in nodes))
        for each in nodes:
            sent |= await send_to_all(each, f"away-{each.name}")
        assert await pulled(nodes[1]) == sent
        received += [await receive_one(nodes[turn % 3]) for turn in range(len(sent) - 1)]
        assert sorted(received) == sorted(sent), "each once"
        for each in nodes:
            await assert_changes_wait(each)
        await asyncio.to_thread(own_postgres_server.start)
        await until(
            lambda: not any(each.node.broker.health.node.metadata_problem for each in nodes)
        )
        for each, (method, path, body) in zip([*nodes, *nodes], CHANGES, strict=False):
            answer = await each.client.request(method, path, json=body)
            assert answer.is_success, (method, path, answer.text)
        assert not any(each.node.broker.health.node.other_leader for each in nodes)
        lag = (await nodes[2].client.get("/v1/groups/billing/lag")).json()
        assert [each["committed_offset"] for each in lag["topics"][0]["queues"][:3]] == [4, 4, 4]
