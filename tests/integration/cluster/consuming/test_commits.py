"""Offsets of queues in several shards are committed in one request through any node, tried first in
all of them, and a shard that did not answer has its rows told."""

from typing import Any

import httpx
import pytest

from tests.support.cluster.three_nodes import ServedNode

pytestmark = [pytest.mark.anyio, pytest.mark.postgres]

GROUP = "/v1/groups/billing"
OFFSETS = f"{GROUP}/offsets/orders"
LEASES = "/v1/topics/orders/groups/billing/messages"


async def fill(nodes: list[ServedNode]) -> None:
    """Four messages in each queue."""
    for queue_id in range(3):
        for _ in range(4):
            path = f"/v1/topics/orders/messages?queue_id={queue_id}"
            assert (await nodes[0].client.post(path, content=b"x")).status_code == 201


def rows(*offsets: int) -> list[dict[str, int]]:
    return [{"queue_id": queue_id, "offset": offset} for queue_id, offset in enumerate(offsets)]


async def commit(node: ServedNode, *offsets: int, query: str = "", **more: Any) -> httpx.Response:
    body = {"offsets": rows(*offsets), **more}
    return await node.client.put(f"{OFFSETS}{query}", json=body)


async def committed(node: ServedNode) -> list[int]:
    found = (await node.client.get(OFFSETS)).json()["offsets"]
    return [each["offset"] for each in found]


async def test_any_node_commits_in_all_shards(nodes: list[ServedNode]) -> None:
    await fill(nodes)
    tried = await commit(nodes[1], 1, 2, 3, query="?dry_run=true")
    assert (tried.status_code, tried.json()["dry_run"]) == (200, True)
    assert tried.json()["offsets"] == rows(1, 2, 3)
    assert (await nodes[0].client.get(GROUP)).status_code == 404
    done = await commit(nodes[1], 1, 2, 3)
    assert done.status_code == 200, done.text
    assert done.json() == {
        "group": "billing",
        "topic": "orders",
        "offsets": rows(1, 2, 3),
        "effects": [],
        "dry_run": False,
    }
    again = await commit(nodes[2], 1, 2, 3)
    assert again.json() == done.json()
    lower = await commit(nodes[0], 0, 4, 0)
    assert lower.json()["offsets"] == rows(1, 4, 3)
    forced = await commit(nodes[0], 0, 0, 0, force=True)
    assert forced.json()["offsets"] == rows(0, 0, 0)
    for node in nodes:
        assert await committed(node) == [0, 0, 0]


async def test_a_topic_that_was_made_a_moment_ago_is_committed_in_at_any_node(
    nodes: list[ServedNode],
) -> None:
    for number, node in enumerate(nodes):
        topic = f"made-{number}"
        made = await nodes[(number + 1) % 3].client.put(f"/v1/topics/{topic}", json={"queues": 3})
        assert made.status_code == 201, made.text
        path = f"{GROUP}/offsets/{topic}"
        done = await node.client.put(path, json={"offsets": rows(0, 0, 0)})
        assert done.status_code == 200, done.text


async def test_what_one_shard_refuses_is_committed_in_none(nodes: list[ServedNode]) -> None:
    await fill(nodes)
    beyond = await commit(nodes[0], 1, 2, 9)
    assert (beyond.status_code, beyond.json()["code"]) == (416, "OFFSET_OUT_OF_RANGE")
    unknown = await commit(nodes[0], 1, 1, 1, 1)
    assert (unknown.status_code, unknown.json()["code"]) == (404, "QUEUE_NOT_FOUND")
    wrong = await commit(nodes[0], 1, 1, 1, query="?dry_run=perhaps")
    assert (wrong.status_code, wrong.json()["code"]) == (400, "BAD_REQUEST")
    nobody = await commit(nodes[0], 1, 1, 1, client_id="w1", generation=1)
    assert nobody.status_code in {404, 409}, nobody.text
    assert (await nodes[0].client.get(GROUP)).status_code == 404
    alone = await nodes[0].client.put(
        OFFSETS, json={"offsets": rows(1, 1)}, headers={"MQ-Forward": "no"}
    )
    assert (alone.status_code, alone.json()["code"]) == (421, "NOT_LEADER")


async def test_a_member_commits_its_queues_and_nobody_else_does(nodes: list[ServedNode]) -> None:
    await fill(nodes)
    path = f"{GROUP}/members/w1"
    joined = await nodes[0].client.put(path, json={"subscriptions": [{"topic": "orders"}]})
    assert joined.status_code == 200, joined.text
    generation = joined.json()["generation"]
    assert [each["queue_id"] for each in joined.json()["assigned"]] == [0, 1, 2]
    own = {"client_id": "w1", "generation": generation}
    done = await commit(nodes[1], 1, 2, 3, **own)
    assert (done.status_code, done.json()["offsets"]) == (200, rows(1, 2, 3)), done.text
    for told, code in (
        ({}, "QUEUE_NOT_OWNED"),
        ({**own, "generation": generation - 1}, "STALE_GENERATION"),
        ({**own, "client_id": "w2"}, "STALE_GENERATION"),
    ):
        for query in ("", "?dry_run=true"):
            refused = await commit(nodes[2], 4, 4, 4, query=query, **told)
            assert refused.status_code == 409, refused.text
            assert refused.json()["code"] == code, refused.text
    assert await committed(nodes[0]) == [1, 2, 3]
    one = await nodes[0].client.put(OFFSETS, json={"offsets": rows(2), **own})
    assert one.json()["offsets"] == rows(2)


async def test_queues_that_a_member_has_begun_at_one_node_are_counted_once(
    nodes: list[ServedNode],
) -> None:
    await fill(nodes)
    path = f"{GROUP}/members/w1"
    for node in nodes:
        joined = await node.client.put(path, json={"subscriptions": [{"topic": "orders"}]})
        assert joined.status_code == 200, joined.text
    kept = await nodes[0].client.put(f"{GROUP}/snapshots/noon")
    assert [each["queue_id"] for each in kept.json()["offsets"]] == [0, 1, 2], kept.text
    assert (await nodes[0].client.delete(path)).status_code == 204
    would = await nodes[1].client.delete(f"{OFFSETS}?dry_run=true")
    assert would.json()["offsets"] == rows(0, 0, 0)


async def test_a_topic_that_one_shard_leases_is_taken_over_by_force(
    nodes: list[ServedNode],
) -> None:
    await fill(nodes)
    got = await nodes[2].client.post(f"{LEASES}:receive?max_messages=2")
    assert len(got.json()["messages"]) == 2
    refused = await commit(nodes[0], 1, 1, 1)
    assert (refused.status_code, refused.json()["code"]) == (409, "CONSUMPTION_CONFLICT")
    assert set(await committed(nodes[0])) == {0}
    done = await commit(nodes[0], 1, 1, 1, query="?force=true")
    assert done.status_code == 200, done.text
    assert done.json()["offsets"] == rows(1, 1, 1)
    assert [(each["code"], each["count"]) for each in done.json()["effects"]] == [("LEASES_END", 2)]


async def test_rows_of_a_shard_that_is_away_are_told(nodes: list[ServedNode]) -> None:
    await fill(nodes)
    assert (await commit(nodes[0], 1, 1, 1)).status_code == 200
    await nodes[2].stop()
    tried = await commit(nodes[1], 2, 2, 2, query="?dry_run=true")
    assert (tried.status_code, tried.json()["partial"]) == (207, ["c"])
    partly = await commit(nodes[1], 2, 2, 2)
    found = partly.json()
    assert (partly.status_code, found["offsets"], found["partial"]) == (207, rows(2, 2), ["c"])
    (row,) = found["refused"]
    assert "reached" in row.pop("detail")
    assert row == {"topic": "orders", "queue_id": 2, "offset": 2, "code": "SHARD_UNAVAILABLE"}
    assert await committed(nodes[0]) == [2, 2]
    beyond = await commit(nodes[1], 9, 9, 9)
    assert (beyond.status_code, beyond.json()["code"]) == (416, "OFFSET_OUT_OF_RANGE")
