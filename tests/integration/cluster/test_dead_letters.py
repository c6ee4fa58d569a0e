"""Dead letters of all shards are listed, delivered again and removed through any node."""

import asyncio
from typing import Any

import httpx
import pytest

from tests.support.cluster.three_nodes import PATIENCE_S, ServedNode

pytestmark = [pytest.mark.anyio, pytest.mark.postgres]

GROUP = "/v1/topics/orders/groups/billing"
DLQ = "/v1/groups/billing/dlq"


async def fill(nodes: list[ServedNode], *queues: int) -> None:
    """A dead letter of each of these queues."""
    for queue_id in queues:
        path = f"/v1/topics/orders/messages?queue_id={queue_id}"
        assert (await nodes[0].client.post(path, content=b"%d" % queue_id)).status_code == 201
    handles: list[str] = []
    while len(handles) < len(queues):
        got = (await nodes[0].client.post(f"{GROUP}/messages:receive?max_messages=10")).json()
        handles += [each["receipt_handle"] for each in got["messages"]]
    dead = {"receipt_handles": handles}
    killed = await nodes[1].client.post(f"{GROUP}/messages:dead-letter", json=dead)
    assert killed.status_code == 200, killed.text


async def get(node: ServedNode, path: str, status: int = 200) -> dict[str, Any]:
    return document(await node.client.get(path), status)


async def post(node: ServedNode, path: str, status: int, **body: object) -> dict[str, Any]:
    return document(await node.client.post(path, json=body), status)


def document(answer: httpx.Response, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def ended(node: ServedNode, operation: dict[str, Any]) -> dict[str, Any]:
    """As any node tells it."""
    path = f"/v1/operations/{operation['operation_id']}"
    async with asyncio.timeout(PATIENCE_S):
        while (found := await get(node, path))["state"] == "running":
            pass
    return found


async def test_letters_are_listed_and_some_are_redriven(nodes: list[ServedNode]) -> None:
    await fill(nodes, 0, 1, 1, 2)
    assert (await get(nodes[1], DLQ))["messages"] == 4
    path = f"{DLQ}/messages?page_size=3"
    page = await get(nodes[0], path)
    letters = page["messages"]
    while "next_cursor" in page:
        page = await get(nodes[2], f"{path}&cursor={page['next_cursor']}")
        letters += page["messages"]
    seen = [(each["shard"], each["offset"], each["queue_id"]) for each in letters]
    assert seen == [("a", 0, 0), ("b", 0, 1), ("b", 1, 1), ("c", 0, 2)]
    redrive = f"{DLQ}/messages:redrive"
    vague = await post(nodes[0], redrive, 400, offsets=[0])
    assert (vague["code"], vague["errors"][0]["pointer"]) == ("BAD_REQUEST", "/offsets")
    assert (await post(nodes[0], redrive, 400, offsets=[0], shard="x"))["status"] == 400
    plan = await post(nodes[0], redrive, 200, offsets=[1], shard="b", dry_run=True)
    assert (plan["matched"], plan["by_target"]) == (1, {"orders": 1})
    one = await post(nodes[0], redrive, 202, offsets=[1], shard="b")
    assert (await ended(nodes[2], one))["done"] == 1
    by_id = {"offsets": [0], "message_ids": [letters[3]["message_id"]]}
    other = await post(nodes[1], redrive, 202, **by_id)
    assert (await ended(nodes[0], other))["done"] == 1
    left = (await get(nodes[0], f"{DLQ}/messages"))["messages"]
    assert [(each["shard"], each["offset"]) for each in left] == [("a", 0), ("b", 0)]
    again = []
    for _ in range(2):
        got = (await nodes[0].client.post(f"{GROUP}/messages:receive?max_messages=10")).json()
        again += [each["text"] for each in got["messages"]]
    assert sorted(again) == ["1", "2"]


async def test_all_letters_are_one_operation_of_all_shards(nodes: list[ServedNode]) -> None:
    await fill(nodes, 0, 1, 2)
    plan = await post(nodes[2], f"{DLQ}/messages:redrive?dry_run=true", 200, all=True)
    assert (plan["matched"], plan["by_target"]) == (3, {"orders": 3})
    begun = await nodes[0].client.post(f"{DLQ}/messages:redrive", json={"all": True})
    assert (begun.status_code, begun.json()["total"]) == (202, 3)
    operation = begun.json()
    assert begun.headers["location"] == f"/v1/operations/{operation['operation_id']}"
    found = await ended(nodes[1], operation)
    assert (found["state"], found["done"], "partial" in found) == ("succeeded", 3, False)
    listed = (await get(nodes[2], "/v1/operations"))["operations"]
    assert [each["operation_id"] for each in listed] == [operation["operation_id"]]
    cancelled = await post(nodes[2], f"/v1/operations/{operation['operation_id']}:cancel", 200)
    assert cancelled["done"] == 3
    assert (await nodes[1].client.get("/v1/operations/nothing")).status_code == 404
    assert (await get(nodes[1], DLQ))["messages"] == 0


async def test_letters_go_to_another_topic_in_their_shards_and_are_purged(
    nodes: list[ServedNode],
) -> None:
    await fill(nodes, 0, 1, 2)
    assert (await nodes[0].client.put("/v1/topics/again", json={"queues": 3})).status_code == 201
    for each in nodes:
        await each.node.metadata.refresh()
    body = {"message_ids": [], "to_topic": "again"}
    letters = (await get(nodes[0], f"{DLQ}/messages"))["messages"]
    body["message_ids"] = [each["message_id"] for each in letters[:2]]
    begun = await post(nodes[0], f"{DLQ}/messages:redrive", 202, **body)
    assert (await ended(nodes[0], begun))["done"] == 2
    found = (await get(nodes[2], "/v1/topics/again/messages"))["messages"]
    assert sorted(each["text"] for each in found) == ["0", "1"]
    await nodes[1].stop()
    assert (await get(nodes[0], DLQ))["partial"] == ["b"]
    assert (await get(nodes[0], f"{DLQ}/messages"))["partial"] == ["b"]
    gone = await post(nodes[0], f"{DLQ}/messages:purge", 207, all=True)
    assert (gone["removed"], gone["partial"]) == (1, ["b"])
    begun = await post(nodes[0], f"{DLQ}/messages:redrive", 207, all=True)
    assert begun["partial"] == ["b"]
    assert (await ended(nodes[0], begun))["partial"] == ["b"]


async def test_a_blocked_key_is_released_through_any_node(nodes: list[ServedNode]) -> None:
    settings = {"order": "fifo", "max_attempts": 1, "on_exhausted": "park"}
    assert (await nodes[0].client.put("/v1/groups/billing", json=settings)).status_code == 201
    path = "/v1/topics/orders/messages?queue_id=2&sharding_key=k"
    sent = await nodes[0].client.post(path, content=b"x")
    assert sent.status_code == 201, sent.text
    got = (await nodes[0].client.post(f"{GROUP}/messages:receive")).json()
    nack = {"receipt_handles": [got["messages"][0]["receipt_handle"]], "reason": "no"}
    nacked = await nodes[1].client.post(f"{GROUP}/messages:nack", json=nack)
    assert nacked.status_code == 200, nacked.text
    parked = (await get(nodes[0], "/v1/groups/billing/parked"))["parked"][0]
    where = {name: parked[name] for name in ("topic", "queue_id", "queue_offset")}
    path = "/v1/groups/billing/parked:release"
    released = await post(nodes[1], path, 200, **where, action="retry")
    assert released["queue_id"] == parked["queue_id"]
    gone = await post(nodes[0], path, 404, **where, action="retry")
    assert gone["code"] == "MESSAGE_NOT_FOUND"
    await nodes[2].stop()
    assert (await post(nodes[0], path, 503, **where, action="retry"))["code"] == "SHARD_UNAVAILABLE"
