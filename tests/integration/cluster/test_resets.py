"""A group's offsets are set in all shards through any node, tried first, and a shard that did not
answer is named."""

from typing import Any

import pytest

from app.domain.errors import MetadataUnavailable
from tests.support.cluster.three_nodes import ServedNode

pytestmark = [pytest.mark.anyio, pytest.mark.postgres]

OFFSETS = "/v1/groups/billing/offsets"
RESET = f"{OFFSETS}/orders:reset"


async def fill(nodes: list[ServedNode]) -> None:
    """Four messages in each queue, of which one is done in the second and two in the third."""
    for queue_id in range(3):
        for _ in range(4):
            path = f"/v1/topics/orders/messages?queue_id={queue_id}"
            assert (await nodes[0].client.post(path, content=b"x")).status_code == 201
        rows = [{"queue_id": queue_id, "offset": queue_id}]
        done = await nodes[0].client.put(f"{OFFSETS}/orders", json={"offsets": rows})
        assert done.status_code == 200, done.text


async def places(node: ServedNode) -> list[int]:
    found = (await node.client.get(f"{OFFSETS}/orders")).json()["offsets"]
    return [each["offset"] for each in found]


def table(answer: dict[str, Any]) -> list[tuple[int, int | None, int]]:
    return [(each["queue_id"], each["before"], each["after"]) for each in answer["offsets"]]


async def reset(node: ServedNode, path: str, status: int = 200, **body: object) -> dict[str, Any]:
    answer = await node.client.post(path, json=body)
    assert answer.status_code == status, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_offsets_are_set_in_all_shards_and_tried_first(nodes: list[ServedNode]) -> None:
    await fill(nodes)
    moved = [(0, 0, 1), (1, 1, 2), (2, 2, 3)]
    tried = await reset(nodes[1], RESET, to="shift", shift=1, dry_run=True)
    assert (table(tried), tried["dry_run"]) == (moved, True)
    assert await places(nodes[2]) == [0, 1, 2]
    done = await reset(nodes[1], RESET, to="shift", shift=1)
    assert (table(done), done["dry_run"], "partial" in done) == (moved, False, False)
    assert [each["max_offset"] for each in done["offsets"]] == [4, 4, 4]
    assert await places(nodes[0]) == [1, 2, 3]
    some = await reset(nodes[0], RESET, to="earliest", queues=[1, 2])
    assert table(some) == [(1, 2, 0), (2, 3, 0)]
    # What is wrong is said by the handler, and nothing is done.
    wrong = await reset(nodes[0], RESET, 404, to="earliest", queues=[7])
    assert wrong["code"] == "QUEUE_NOT_FOUND"
    assert (await reset(nodes[0], RESET, 400, to="shift"))["code"] == "MALFORMED_BODY"
    both = await nodes[0].client.post(
        f"{RESET}?dry_run=true", json={"to": "earliest", "dry_run": False}
    )
    assert both.status_code == 400
    nobody = await reset(nodes[0], "/v1/groups/nobody/offsets/orders:reset", 404, to="earliest")
    assert nobody["code"] == "CONSUMER_GROUP_NOT_FOUND"


async def test_a_group_that_was_made_a_moment_ago_is_set_in_all_shards(
    nodes: list[ServedNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(nodes)
    for each in nodes:  # none hears of it by itself
        monkeypatch.setattr(each.node.metadata, "beat", _never)
    path = "/v1/groups/fresh/offsets/orders"
    rows = {"offsets": [{"queue_id": 1, "offset": 1}]}
    assert (await nodes[1].client.put(path, json=rows)).status_code == 200
    done = await reset(nodes[2], f"{path}:reset", to="latest")
    assert table(done) == [(0, None, 4), (1, 1, 4), (2, None, 4)]


async def _never(*_: object, **__: object) -> None:
    raise MetadataUnavailable("not asked")


async def test_all_topics_of_any_shard_are_set_in_all(nodes: list[ServedNode]) -> None:
    await fill(nodes)
    made = await nodes[0].client.put("/v1/topics/bills", json={"queues": 3})
    assert made.status_code == 201
    for queue_id in range(3):
        path = f"/v1/topics/bills/messages?queue_id={queue_id}"
        assert (await nodes[0].client.post(path, content=b"x")).status_code == 201
    rows = {"offsets": [{"queue_id": 1, "offset": 1}]}  # in one shard only
    assert (await nodes[0].client.put(f"{OFFSETS}/bills", json=rows)).status_code == 200
    path = f"{OFFSETS}:reset"
    tried = (await nodes[2].client.post(f"{path}?dry_run=true", json={"to": "latest"})).json()
    topics = [each["topic"] for each in tried["offsets"]]
    assert (topics, tried["dry_run"]) == (["bills"] * 3 + ["orders"] * 3, True)
    done = await reset(nodes[2], path, to="latest")
    assert [each["after"] for each in done["offsets"]] == [1, 1, 1, 4, 4, 4]
    one = await reset(nodes[2], path, to="earliest", topics=["bills"])
    assert [each["topic"] for each in one["offsets"]] == ["bills"] * 3
    assert await places(nodes[0]) == [4, 4, 4]


async def test_a_snapshot_has_all_shards_and_is_restored_in_all(nodes: list[ServedNode]) -> None:
    await fill(nodes)
    kept = await nodes[0].client.put("/v1/groups/billing/snapshots/noon")
    assert kept.status_code == 201, kept.text
    assert [each["offset"] for each in kept.json()["offsets"]] == [0, 1, 2]
    await reset(nodes[0], RESET, to="latest")
    path = "/v1/groups/billing/snapshots/noon:restore"
    restored = await nodes[1].client.post(path)
    assert restored.status_code == 200, restored.text
    assert table(restored.json()) == [(0, 4, 0), (1, 4, 1), (2, 4, 2)]
    assert await places(nodes[2]) == [0, 1, 2]
    forgotten = await nodes[2].client.delete(f"{OFFSETS}/orders?dry_run=true")
    assert [each["offset"] for each in forgotten.json()["offsets"]] == [0, 1, 2]
    assert (await nodes[2].client.delete(f"{OFFSETS}/orders")).status_code == 204
    assert await places(nodes[0]) == []


async def test_a_snapshot_has_what_a_shard_that_is_away_has_written(
    nodes: list[ServedNode],
) -> None:
    await fill(nodes)
    await nodes[2].node.broker.groups.offset_cache.write()
    await nodes[2].stop()
    kept = await nodes[0].client.put("/v1/groups/billing/snapshots/noon")
    assert [each["offset"] for each in kept.json()["offsets"]] == [0, 1, 2]


async def test_a_shard_forgets_its_own_offsets_alone(nodes: list[ServedNode]) -> None:
    await fill(nodes)
    for each in nodes:
        await each.node.broker.groups.offset_cache.write()
    await nodes[1].node.broker.offset_admin.delete("billing", "orders", None)
    rows = await nodes[1].node.metadata.load_offsets("billing")
    assert [row.queue_id for row in rows] == [0, 2]


async def test_a_shard_that_is_away_is_named_and_the_others_are_set(
    nodes: list[ServedNode],
) -> None:
    await fill(nodes)
    await nodes[2].stop()
    tried = await nodes[0].client.post(f"{RESET}?dry_run=true", json={"to": "latest"})
    assert tried.json()["partial"] == ["c"]
    done = await reset(nodes[0], RESET, 207, to="latest")
    assert (table(done), done["partial"]) == ([(0, 0, 4), (1, 1, 4)], ["c"])
    gone = await nodes[0].client.delete(f"{OFFSETS}/orders")
    assert (gone.status_code, gone.json()) == (207, {"partial": ["c"]})
    nobody = await reset(nodes[0], "/v1/groups/nobody/offsets/orders:reset", 404, to="earliest")
    assert nobody["code"] == "CONSUMER_GROUP_NOT_FOUND"
    alone = await nodes[0].client.post(RESET, json={"to": "latest"}, headers={"MQ-Forward": "no"})
    assert [each["queue_id"] for each in alone.json()["offsets"]] == [0]
