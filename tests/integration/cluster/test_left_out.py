"""What is of one shard on a cluster says so: polls and streams name the shards that they leave out,
and take nothing for them."""

import json
from typing import Any

import pytest

from tests.support.cluster.three_nodes import ServedNode

pytestmark = [pytest.mark.anyio, pytest.mark.postgres]

POLL = "/v1/groups/billing/members:poll"
STREAM = "/v1/topics/orders/stream"
LINES = {"accept": "application/x-ndjson"}
QUEUES = [{"topic": "orders", "queue_id": queue_id} for queue_id in range(3)]


async def fill(nodes: list[ServedNode]) -> None:
    """Three messages in each queue."""
    for queue_id in range(3):
        for _ in range(3):
            path = f"/v1/topics/orders/messages?queue_id={queue_id}"
            assert (await nodes[0].client.post(path, content=b"%d" % queue_id)).status_code == 201


async def poll(node: ServedNode, **more: object) -> dict[str, Any]:
    body = {"client_id": "w1", "subscriptions": [{"topic": "orders"}], **more}
    answer = await node.client.post(POLL, json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def queues_of(answer: dict[str, Any], member: str) -> list[int]:
    return [each["queue_id"] for each in answer[member]]


async def test_a_poll_names_the_shards_that_it_leaves_out(nodes: list[ServedNode]) -> None:
    await fill(nodes)
    first = await poll(nodes[0], generation=0)
    assert first["partial"] == ["b", "c"]
    assert [queues_of(first, each) for each in ("assigned", "queues")] == [[0], [0]]
    assert queues_of(first, "messages") == [0, 0, 0]
    more = {"generation": first["generation"], "assignment_id": first["assignment_id"]}
    positions = [{**each, "offset": 3} for each in QUEUES]
    commits = [{**each, "offset": 2} for each in QUEUES]
    again = await poll(nodes[0], **more, positions=positions, commits=commits)
    assert queues_of(again, "committed") == [0]
    refused = [(each["queue_id"], each["code"]) for each in again["refused"]]
    assert refused == [(1, "NOT_LEADER"), (2, "NOT_LEADER")]
    assert [each["next_offset"] for each in again["queues"]] == [3]
    # The same member polls the other nodes for their queues, and commits there.
    seen = []
    for number, node in enumerate(nodes[1:], 1):
        got = await poll(node, **more)
        seen += queues_of(got, "messages")
        done = await poll(node, **more, commits=[{**QUEUES[number], "offset": 3}])
        assert queues_of(done, "committed") == [number]
    assert seen == [1, 1, 1, 2, 2, 2]
    offsets = (await nodes[0].client.get("/v1/groups/billing/offsets/orders")).json()["offsets"]
    assert [each["offset"] for each in offsets] == [2, 3, 3]


async def test_a_stream_names_them_too_and_one_queue_is_followed_from_any_node(
    nodes: list[ServedNode],
) -> None:
    await fill(nodes)
    whole = await nodes[0].client.get(f"{STREAM}?at=earliest&max_messages=3", headers=LINES)
    assert json.loads(whole.headers["mq-partial"]) == ["b", "c"]
    texts = [json.loads(line).get("text") for line in whole.text.splitlines() if line]
    assert [each for each in texts if each is not None] == ["0"] * 3
    query = "?at=earliest&queue_id=2&max_messages=3"
    one = await nodes[0].client.get(STREAM + query, headers=LINES)
    assert one.status_code == 200, one.text
    texts = [json.loads(line).get("text") for line in one.text.splitlines() if line]
    assert [each for each in texts if each is not None] == ["2"] * 3
    assert "mq-partial" not in one.headers
    path = "/v1/topics/orders/groups/billing/stream?max_messages=3"
    leased = await nodes[1].client.get(path, headers=LINES)
    assert json.loads(leased.headers["mq-partial"]) == ["a", "c"]
