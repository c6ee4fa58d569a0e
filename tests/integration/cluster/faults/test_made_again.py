"""A topic or group that was made again through another node: nothing of the one before it is left,
and nothing that was given to the new one goes with the one before."""

import pytest

from tests.support.cluster.three_nodes import ServedNode

pytestmark = [pytest.mark.anyio, pytest.mark.postgres]

TOPIC = "/v1/topics/orders"
GROUP = "/v1/groups/billing"
RECEIVE = "/v1/topics/orders/groups/billing/messages:receive"


async def send(node: ServedNode, queue_id: int) -> None:
    sent = await node.client.post(f"{TOPIC}/messages?queue_id={queue_id}", content="x")
    assert sent.status_code == 201, sent.text


async def pulled(node: ServedNode, queue_id: int) -> int:
    told = await node.client.get(
        f"{TOPIC}/queues/{queue_id}/messages?offset=0&out_of_range=earliest"
    )
    assert told.status_code == 200, told.text
    return len(told.json()["messages"])


async def test_what_is_sent_to_a_topic_that_was_made_again_stays(nodes: list[ServedNode]) -> None:
    first, second, _ = nodes
    for _ in range(2):
        await send(first, 1)
    for _ in range(3):
        assert (await first.client.delete(TOPIC)).is_success
        assert (await first.client.put(TOPIC, json={"queues": 3})).status_code == 201
        await second.node.metadata.refresh()
        await send(first, 1)
        await second.node.broker.lifecycle.carry_out_deletions()
        got = await first.client.get(f"{TOPIC}/messages")
        assert got.status_code == 200, got.text
        assert len(got.json()["messages"]) == 1


async def test_a_group_that_was_made_again_begins_anew(nodes: list[ServedNode]) -> None:
    first, second, _ = nodes
    await send(first, 1)
    for _ in range(3):
        got = await first.client.post(RECEIVE)
        assert [each["queue_id"] for each in got.json()["messages"]] == [1]
        assert (await first.client.delete(GROUP)).is_success
        assert (await first.client.put(GROUP, json={})).status_code == 201
        await second.node.metadata.refresh()


async def test_a_group_begins_anew_however_often_it_was_made_again(
    nodes: list[ServedNode],
) -> None:
    first, second, _ = nodes
    await send(first, 1)
    for _ in range(4):
        got = await first.client.post(RECEIVE)
        assert [each["queue_id"] for each in got.json()["messages"]] == [1]
        assert (await first.client.delete(GROUP)).is_success
        await second.node.metadata.refresh()
        await second.node.broker.lifecycle.carry_out_deletions()
        assert (await first.client.put(GROUP, json={})).status_code == 201
        await second.node.metadata.refresh()
