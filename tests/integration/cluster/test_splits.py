"""Batches and settles of several shards, through any node."""

from pathlib import Path

import pytest

from tests.support.cluster.three_nodes import ServedNode, three_nodes

pytestmark = [pytest.mark.anyio, pytest.mark.postgres]

SEND = "/v1/topics/orders/messages"
BATCH = f"{SEND}:batch"
GROUP = "/v1/topics/orders/groups/billing"


async def test_batches_and_settles_are_split_and_tell_what_became_of_each(
    nodes: list[ServedNode],
) -> None:
    queues = [2, 0, 1, 2]
    messages = [{"id": f"m{at}", "text": "x", "queue_id": at} for at in queues]
    sent = await nodes[1].client.post(BATCH, json={"messages": messages})
    assert sent.status_code == 200, sent.text
    results = sent.json()["results"]
    assert [(each["index"], each["queue_id"]) for each in results] == list(enumerate(queues))
    handles = []
    for node in nodes:
        got = await node.client.post(f"{GROUP}/messages:receive?max_messages=10")
        handles += [each["receipt_handle"] for each in got.json()["messages"]]
    body = {"acks": [handles[0], handles[3]], "releases": [handles[1]]}
    settled = await nodes[2].client.post(f"{GROUP}/messages:settle", json=body)
    assert settled.status_code == 200, settled.text
    actions = [(each["receipt_handle"], each["action"]) for each in settled.json()["results"]]
    expected = [(handles[0], "ack"), (handles[3], "ack"), (handles[1], "release")]
    assert actions == expected
    await nodes[2].stop()
    sent = await nodes[0].client.post(BATCH, json={"messages": messages})
    assert (sent.status_code, sent.json()["succeeded"]) == (207, 2)
    away = [each for each in sent.json()["results"] if "error" in each]
    assert [each["index"] for each in away] == [0, 3]
    assert {each["error"]["outcome"] for each in away} == {"not_stored"}
    both = {"receipt_handles": [handles[0], handles[2]]}
    acked = await nodes[0].client.post(f"{GROUP}/messages:ack", json=both)
    assert acked.status_code in (207, 410, 503), acked.text
    assert [each["status"] for each in acked.json()["results"]][1] == 503


async def test_acks_with_sends_are_one_step_of_one_shard(nodes: list[ServedNode]) -> None:
    sent = await nodes[0].client.post("/v1/topics/orders/messages?queue_id=0", content="x")
    assert sent.status_code == 201, sent.text
    got = await nodes[1].client.post(f"{GROUP}/messages:receive")
    handle = got.json()["messages"][0]["receipt_handle"]
    sends = [{"topic": "orders", "text": "y"}, {"topic": "orders", "text": "z", "queue_id": 2}]
    path = f"{GROUP}/messages:settle"
    refused = await nodes[2].client.post(path, json={"acks": [handle], "sends": sends})
    found = refused.json()
    assert (refused.status_code, found["code"], found["outcome"]) == (
        *(409, "OTHER_SHARD"),
        "not_stored",
    )
    done = await nodes[2].client.post(path, json={"acks": [handle], "sends": sends[:1]})
    assert done.status_code == 200, done.text
    assert done.json()["sends"][0]["queue_id"] == 0


async def test_what_was_made_a_moment_ago_is_there_at_any_node(tmp_path: Path, url: str) -> None:
    async with three_nodes(tmp_path, url, auto_create_topics=True) as nodes:
        for number, node in enumerate(nodes):
            path = f"/v1/topics/made-{number}/messages"
            for key in ("k1", "k2", "k3", "k4"):
                sent = await node.client.post(path, content=key, headers={"mq-sharding-key": key})
                assert sent.status_code == 201, sent.text
        assert (await nodes[0].client.put("/v1/namespaces/eu")).status_code == 201
        sent = await nodes[2].client.post(f"{SEND}?namespace=eu", content="x")
        assert sent.status_code == 201, sent.text
        none = await nodes[1].client.post(f"{SEND}?namespace=none", content="x")
        assert (none.status_code, none.json()["code"]) == (404, "NAMESPACE_NOT_FOUND")
