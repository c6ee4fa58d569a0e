"""Batches and settles of several shards, through any node."""

import pytest

from tests.support.cluster.three_nodes import ServedNode

pytestmark = [pytest.mark.anyio, pytest.mark.postgres]

BATCH = "/v1/topics/orders/messages:batch"
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
