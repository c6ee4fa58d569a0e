"""A member in pull mode asks any one node where its queues of all shards begin."""

from typing import Any

import pytest

from tests.support.cluster.three_nodes import ServedNode

pytestmark = [pytest.mark.anyio, pytest.mark.postgres]

MEMBER = "/v1/groups/billing/members/w1"
JOIN = {"subscriptions": [{"topic": "orders"}], "generation": 0}


async def send(node: ServedNode, *queue_ids: int) -> None:
    for queue_id in queue_ids:
        path = f"/v1/topics/orders/messages?queue_id={queue_id}"
        sent = await node.client.post(path, content="x")
        assert sent.status_code == 201, sent.text


async def beat(node: ServedNode, query: str = "", **said: Any) -> dict[str, Any]:
    answer = await node.client.put(MEMBER + query, json=JOIN | said)
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


def offsets(told: dict[str, Any]) -> dict[int, int]:
    return {each["queue_id"]: each["offset"] for each in told["assigned"]}


async def test_each_node_says_where_the_queues_of_all_shards_begin(nodes: list[ServedNode]) -> None:
    await send(nodes[0], 0, 1, 1, 2, 2, 2)
    made = await nodes[0].client.put("/v1/groups/billing", json={"start": "latest"})
    assert made.status_code == 201, made.text
    told = await beat(nodes[1], "?dry_run=true")
    assert (offsets(told), told["dry_run"]) == ({0: 1, 1: 2, 2: 3}, True)
    assert (await nodes[0].client.get("/v1/groups/billing/members")).json()["members"] == []
    first = await beat(nodes[0])
    assert offsets(first) == {0: 1, 1: 2, 2: 3}
    await send(nodes[0], 0, 1, 2)  # the begin is decided: it does not move
    said = {"generation": first["generation"], "assignment_id": first["assignment_id"]}
    for node in nodes:
        told = await beat(node, "?wait=0.1", **said)
        assert "partial" not in told
        assert offsets(told) == {0: 1, 1: 2, 2: 3}


async def test_queues_of_a_shard_that_is_away_are_left_out_and_come_again(
    nodes: list[ServedNode],
) -> None:
    await send(nodes[0], 0, 1, 2)
    first = await beat(nodes[0])
    assert offsets(first) == {0: 0, 1: 0, 2: 0}
    gone = nodes.pop()
    await gone.stop()
    told = await beat(nodes[0], generation=first["generation"])
    assert told["partial"] == ["c"]
    assert offsets(told) == {0: 0, 1: 0}
    assert told["assignment_id"] == first["assignment_id"]  # they stay the member's


async def test_a_group_that_leases_in_another_shard_is_ended_there_by_force_alone(
    nodes: list[ServedNode],
) -> None:
    await send(nodes[0], 2)
    leased = await nodes[2].client.post(
        "/v1/topics/orders/groups/billing/messages:receive", json={"max_messages": 1}
    )
    assert len(leased.json()["messages"]) == 1, leased.text
    refused = await nodes[0].client.put(MEMBER, json=JOIN)
    assert (refused.status_code, refused.json()["code"]) == (409, "CONSUMPTION_CONFLICT")
    told = await beat(nodes[0], "?force=true")
    assert "partial" not in told
    assert offsets(told).keys() == {0, 1, 2}
    assert [each["code"] for each in told["effects"]].count("LEASES_END") >= 1


async def test_by_force_no_shard_is_of_a_kind_that_has_no_queue_of_the_topic(
    nodes: list[ServedNode],
) -> None:
    made = await nodes[0].client.put("/v1/topics/parcels", json={"queues": 2})
    assert made.status_code == 201, made.text
    topic = nodes[0].node.metadata.snapshot.topics["parcels"]
    has = {topic.shard_of(each) or "a" for each in range(2)}
    asked = next(each for each in nodes if each.name in has)
    (without,) = [each for each in nodes if each.name not in has]
    await beat(asked, "?force=true", subscriptions=[{"topic": "parcels"}])
    for each in nodes:
        rows = await each.node.metadata.consumptions.held(ended_only=False)
        assert [row.topic for row in rows] == ([] if each is without else ["parcels"])
