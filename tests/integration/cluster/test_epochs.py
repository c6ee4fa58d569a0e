"""An epoch of a producer is closed in all shards through any node, when all have what was sent."""

from typing import Any

import pytest

from tests.support.cluster.three_nodes import ServedNode, start_node

pytestmark = [pytest.mark.anyio, pytest.mark.postgres]

STORED, CLOSED = (201, None), (409, "PRODUCER_SEALED")
SEAL = "/v1/producers:seal"


async def send(node: ServedNode, queue_id: int, epoch: int, seq: int = 0) -> tuple[int, str | None]:
    answer = await node.client.post(
        f"/v1/topics/orders/messages?queue_id={queue_id}",
        content=b"x",
        headers={
            "MQ-Producer-Id": "loader:0",
            "MQ-Producer-Epoch": str(epoch),
            "MQ-Producer-Seq": str(seq),
        },
    )
    return answer.status_code, answer.json().get("code")


async def seal(node: ServedNode, epoch: int, messages: int, **more: Any) -> dict[str, Any]:
    body = {"producer": "loader", "epoch": epoch, "messages": messages, **more}
    answer = await node.client.post(SEAL, json=body)
    return {"status_code": answer.status_code, **answer.json()}


async def test_the_messages_of_all_shards_count(nodes: list[ServedNode]) -> None:
    for queue_id in range(3):
        assert await send(nodes[0], queue_id, 0) == STORED
    few = await seal(nodes[1], 0, 4)
    assert (few["status_code"], few["code"], few["stored"]) == (409, "SEQUENCE_OUT_OF_ORDER", 3)
    tried = await seal(nodes[1], 0, 3, dry_run=True)
    assert (tried["status_code"], tried["sealed_epoch"], tried["dry_run"]) == (200, 0, True)
    assert await send(nodes[2], 1, 0, 1) == STORED, "nothing was closed so far"
    closed = await seal(nodes[1], 0, 4)
    assert (closed["status_code"], closed["sealed_epoch"], closed["dry_run"]) == (200, 0, False)
    for queue_id in range(3):
        assert await send(nodes[0], queue_id, 0, 1) == CLOSED, "in each shard"
    assert (await seal(nodes[2], 0, 4))["status_code"] == 200, "repeating is harmless"
    for body in ({"producer": "loader"}, {"producer": "a b", "epoch": 0}):
        assert (await nodes[0].client.post(SEAL, json=body)).status_code == 400
    both = {"producer": "loader", "epoch": 0, "dry_run": False}
    answer = await nodes[0].client.post(f"{SEAL}?dry_run=true", json=both)
    assert answer.status_code == 400


async def test_a_producer_that_ends_is_closed_in_all_shards(nodes: list[ServedNode]) -> None:
    path = "/v1/producers/loader"
    assert (await nodes[0].client.delete(path)).json()["code"] == "PRODUCER_NOT_FOUND"
    assert await send(nodes[0], 1, 4) == STORED
    assert await send(nodes[0], 2, 6) == STORED
    tried = (await nodes[0].client.delete(f"{path}?dry_run=true")).json()
    assert tried == {"producer": "loader", "sealed_epoch": 6, "dry_run": True}
    assert await send(nodes[0], 0, 5) == STORED, "nothing was closed so far"
    ended = await nodes[1].client.delete(path)
    assert (ended.status_code, ended.content) == (204, b"")
    for queue_id in range(3):
        assert await send(nodes[2], queue_id, 6, 1) == CLOSED, "also where it had less, or nothing"
    assert await send(nodes[0], 1, 7) == STORED, "it begins again"
    assert (await nodes[0].client.delete(f"{path}?dry_run=maybe")).status_code == 400
    assert (await nodes[1].client.delete(path)).status_code == 204
    await nodes[2].stop()
    away = await nodes[0].client.delete(path)
    assert (away.status_code, away.json()["code"]) == (503, "SHARD_UNAVAILABLE")


async def test_a_shard_that_is_away_is_waited_for(nodes: list[ServedNode]) -> None:
    """What one shard has closed meanwhile does not count again."""
    for queue_id in range(3):
        assert await send(nodes[0], queue_id, 7) == STORED
    body = {"producer": "loader", "epoch": 7, "messages": 1}
    only = await nodes[0].client.post(SEAL, json=body, headers={"MQ-Forward": "no"})
    assert only.status_code == 200, only.text
    await nodes[2].stop()
    away = await seal(nodes[0], 7, 3)
    assert (away["status_code"], away["code"]) == (503, "SHARD_UNAVAILABLE")
    assert await send(nodes[0], 1, 7, 1) == STORED, "it is open where it was"
    again = nodes[2].node.config
    nodes[2] = await start_node(
        again.data_dir.parent,
        again.database_url,
        "c",
        cluster_listen=again.cluster_listen,
    )
    assert (await seal(nodes[2], 7, 3))["status_code"] == 200
    for queue_id in range(3):
        assert await send(nodes[2], queue_id, 7, 1) == CLOSED


async def test_an_epoch_has_one_plan_whichever_node_is_asked(nodes: list[ServedNode]) -> None:
    plan = {"producer": "loader", "epoch": 0, "topic": "orders"}
    first = (await nodes[0].client.post("/v1/producers:plan", json=plan)).json()
    assert first["queues"] == 3
    assert (await nodes[0].client.put("/v1/topics/orders", json={"queues": 5})).status_code == 200
    for node in nodes:
        await node.node.metadata.refresh()
        answer = await node.client.post("/v1/producers:plan", json=plan)
        assert answer.json()["queues"] == 3


async def test_any_node_tells_where_a_producer_goes_on(nodes: list[ServedNode]) -> None:
    path = "/v1/producers/loader:0"
    assert (await nodes[0].client.get(path)).status_code == 404
    for queue_id, epoch, seq in ((2, 7, 0), (0, 8, 0), (0, 8, 1), (2, 8, 0)):
        assert await send(nodes[1], queue_id, epoch, seq) == STORED
    for node in nodes:
        found = (await node.client.get(path)).json()
        assert (found["epoch"], found["sealed_epoch"]) == (8, None)
        nexts = [(each["queue_id"], each["next_seq"]) for each in found["sequences"]]
        assert nexts == [(0, 2), (2, 1)]
        assert "partial" not in found
    assert (await seal(nodes[1], 8, 0))["status_code"] == 200
    assert (await nodes[0].client.get(path)).json()["sealed_epoch"] == 8
    await nodes[2].stop()
    assert (await nodes[0].client.get(path)).json()["partial"] == ["c"]


async def test_sequences_of_an_older_epoch_begin_anew(nodes: list[ServedNode]) -> None:
    for queue_id, epoch, seq in ((0, 4, 0), (1, 4, 0), (1, 4, 1), (0, 5, 0)):
        assert await send(nodes[1], queue_id, epoch, seq) == STORED
    found = (await nodes[2].client.get("/v1/producers/loader:0")).json()
    assert found["epoch"] == 5
    nexts = [(each["queue_id"], each["next_seq"]) for each in found["sequences"]]
    assert nexts == [(0, 1)]
    assert await send(nodes[1], 1, 5, 0) == STORED, "queue 1 begins at 0 in the epoch"
