"""Batches and settles of several shards, through any node."""

import asyncio
import json
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


async def test_batches_go_to_the_shards_of_their_keys(nodes: list[ServedNode]) -> None:
    keys = [f"k{number}" for number in range(6)]
    messages = [{"text": key, "sharding_key": key, "keys": [key]} for key in keys]
    queues: list[int] = []
    for node in nodes:
        sent = await node.client.post(BATCH, json={"messages": messages})
        assert sent.status_code == 200, sent.text
        queues = [each["queue_id"] for each in sent.json()["results"]]
        assert set(queues) == {0, 1, 2}
    for key, queue_id in zip(keys, queues, strict=True):
        found = (await nodes[1].client.get(f"{SEND}?key={key}")).json()["messages"]
        assert [(each["text"], each["queue_id"]) for each in found] == [(key, queue_id)] * 3
    for node in nodes:  # of the batch: as at a lone node
        headers = {"MQ-Sharding-Key": "k1"}
        refused = await node.client.post(BATCH, json={"messages": messages}, headers=headers)
        assert (refused.status_code, refused.json()["code"]) == (400, "BAD_REQUEST"), refused.text


async def test_lines_events_and_one_way_batches_are_split_too(nodes: list[ServedNode]) -> None:
    keys = [f"k{number}" for number in range(6)]
    lines = [json.dumps({"text": f"line {each}", "sharding_key": each}) for each in keys]
    event = {"specversion": "1.0", "source": "/shop", "type": "paid"}
    events = [{**event, "id": each, "partitionkey": each, "data": "event"} for each in keys]
    placed: list[list[int]] = []
    for node in nodes:
        for kind, body in (("x-ndjson", "\n".join(lines)), ("json", _batch(keys))):
            headers = {"Content-Type": f"application/{kind}"}
            sent = await node.client.post(BATCH, content=body, headers=headers)
            assert sent.status_code == 200, sent.text
            assert [each["index"] for each in sent.json()["results"]] == list(range(6))
            placed.append([each["queue_id"] for each in sent.json()["results"]])
        headers = {"Content-Type": "application/cloudevents-batch+json"}
        sent = await node.client.post(BATCH, content=json.dumps(events), headers=headers)
        assert sent.status_code == 200, sent.text
        placed.append([each["queue_id"] for each in sent.json()["results"]])
        one_way = await node.client.post(f"{BATCH}?one_way=true", content=_batch(keys))
        assert (one_way.status_code, one_way.content) == (202, b""), one_way.text
    assert all(each == placed[0] for each in placed)
    assert set(placed[0]) == {0, 1, 2}
    async with asyncio.timeout(60):
        while await _depth(nodes[0]) < 6 * 4 * 3:
            """One-way messages are stored behind their answer."""
    assert await _depth(nodes[0]) == 6 * 4 * 3


async def _depth(node: ServedNode) -> int:
    depth: int = (await node.client.get("/v1/topics/orders/stats")).json()["depth"]
    return depth


def _batch(keys: list[str]) -> str:
    return json.dumps({"messages": [{"text": "x", "sharding_key": each} for each in keys]})


async def test_a_bad_line_is_told_in_its_place_and_a_strict_batch_is_of_one_shard(
    nodes: list[ServedNode],
) -> None:
    keys = [f"k{number}" for number in range(6)]
    lines = [json.dumps({"text": "x", "sharding_key": each}) for each in keys]
    lines[3] = '{"text": 7}'
    headers = {"Content-Type": "application/x-ndjson"}
    for node in nodes:
        sent = await node.client.post(BATCH, content="\n".join(lines), headers=headers)
        assert sent.status_code == 207, sent.text
        failed = [each["index"] for each in sent.json()["results"] if "error" in each]
        assert failed == [3]
        for kind, body in (("x-ndjson", "\n".join(lines)), ("json", _batch(keys))):
            for more in ({"Prefer": "handling=strict"}, {"Idempotency-Key": '"once"'}):
                asked = {"Content-Type": f"application/{kind}", **more}
                refused = await node.client.post(BATCH, content=body, headers=asked)
                found = refused.json()
                told = refused.status_code, found["code"], found["outcome"]
                assert told == (409, "OTHER_SHARD", "not_stored"), refused.text
    depth = (await nodes[0].client.get("/v1/topics/orders/stats")).json()["depth"]
    assert depth == 5 * 3


async def test_an_id_names_one_message_of_all_shards(nodes: list[ServedNode]) -> None:
    messages = [
        {"id": f"m{at}", "text": "x", "queue_id": at % 3, "unique_id": f"u{at // 2}"}
        for at in range(6)
    ]
    lines = "\n".join(map(json.dumps, messages))
    for kind, body in (("x-ndjson", lines), ("json", json.dumps({"messages": messages}))):
        headers = {"Content-Type": f"application/{kind}"}
        sent = await nodes[0].client.post(BATCH, content=body, headers=headers)
        found = sent.json()
        assert (sent.status_code, found["succeeded"], found["failed"]) == (207, 3, 3), sent.text
        for at in (1, 3, 5):
            refused = found["results"][at]
            assert (refused["index"], refused["id"], refused["status"]) == (at, f"m{at}", 400)
            error = refused["error"]
            assert (error["code"], error["outcome"]) == ("ILLEGAL_MESSAGE_ID", "not_stored")
            assert f"is that of entry {at - 1} of this request" in error["detail"]
            assert error["errors"][0]["pointer"] == (
                f"/messages/{at}/unique_id" if kind == "json" else "/unique_id"
            )
    depth = (await nodes[0].client.get("/v1/topics/orders/stats")).json()["depth"]
    assert depth == 6


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
