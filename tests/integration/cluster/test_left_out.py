"""What is of one shard on a cluster says so: a stream of one node alone names the shards that it
leaves out."""

import json

import pytest

from tests.support.cluster.three_nodes import ServedNode

pytestmark = [pytest.mark.anyio, pytest.mark.postgres]

STREAM = "/v1/topics/orders/stream"
LINES = {"accept": "application/x-ndjson"}


async def fill(nodes: list[ServedNode]) -> None:
    """Three messages in each queue."""
    for queue_id in range(3):
        for _ in range(3):
            path = f"/v1/topics/orders/messages?queue_id={queue_id}"
            assert (await nodes[0].client.post(path, content=b"%d" % queue_id)).status_code == 201


async def test_a_stream_names_them_too_and_one_queue_is_followed_from_any_node(
    nodes: list[ServedNode],
) -> None:
    await fill(nodes)
    alone = {**LINES, "mq-forward": "no"}
    whole = await nodes[0].client.get(f"{STREAM}?at=earliest&max_messages=3", headers=alone)
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
    leased = await nodes[1].client.get(path, headers=alone)
    assert json.loads(leased.headers["mq-partial"]) == ["a", "c"]
