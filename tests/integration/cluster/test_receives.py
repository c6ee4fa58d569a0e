"""A receive gets messages of all shards through any node, one shard at a time, and is leased
nothing else."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.api.relay.consuming import shared_waits
from app.domain.limits import Limits
from tests.support.cluster.three_nodes import ServedNode, three_nodes
from tests.support.nodes.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.postgres]

SEND = "/v1/topics/orders/messages"
GROUP = "/v1/topics/orders/groups/billing"
RECEIVE = f"{GROUP}/messages:receive"


async def send(node: ServedNode, queue_id: int, text: str = "x", **headers: str) -> None:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    path = f"{SEND}?queue_id={queue_id}"
    sent = await node.client.post(path, content=text.encode(), headers=named)
    assert sent.status_code == 201, sent.text


async def receive(node: ServedNode, query: str = "", group: str = "billing") -> dict[str, Any]:
    path = f"/v1/topics/orders/groups/{group}/messages:receive?{query}"
    answer = await node.client.post(path)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def queues_in(answer: dict[str, Any]) -> list[int]:
    return [each["queue_id"] for each in answer["messages"]]


def handles_in(answer: dict[str, Any]) -> list[str]:
    return [each["receipt_handle"] for each in answer["messages"]]


def leased(nodes: list[ServedNode], group: str = "billing") -> list[int]:
    """Messages that clients of a group hold, by nodes."""
    found = [each.node.broker.groups.find(group, "orders") for each in nodes]
    return [0 if each is None else each.leased_count for each in found]


async def until_parked(nodes: list[ServedNode]) -> None:
    await until(lambda: all(each.node.broker.waiting_count == 1 for each in nodes))


async def test_shards_have_their_turns_and_any_node_settles(nodes: list[ServedNode]) -> None:
    first, second, third = nodes
    for queue_id in (0, 0, 1, 1, 2, 2):
        await send(first, queue_id)
    got = [await receive(nodes[0], "max_messages=1") for _ in range(6)]
    assert [queues_in(each) for each in got] == [[0], [1], [2], [0], [1], [2]]
    assert [each["backlog"] for each in got] == [5, 4, 3, 2, 1, 0]
    handles = [handle for each in got for handle in handles_in(each)]
    assert await receive(third) == {"messages": [], "backlog": 0}
    raw = await third.client.post(f"{RECEIVE}?format=raw")
    assert (raw.status_code, raw.content) == (204, b"")
    acks = {"receipt_handles": handles[:2] + handles[3:5]}
    assert (await third.client.post(f"{GROUP}/messages:ack", json=acks)).status_code == 200
    extended = await first.client.post(
        f"{GROUP}/messages:extend", json={"receipt_handles": [handles[2]], "invisible": "1m"}
    )
    assert extended.status_code == 200, extended.text
    nacked = await first.client.patch(f"/v1/receipts/{handles[5]}?action=release")
    assert nacked.status_code in (200, 204), nacked.text
    raw = await second.client.post(f"{RECEIVE}?format=raw")
    assert (raw.status_code, raw.content, raw.headers["mq-queue-id"]) == (200, b"x", "2")
    assert "curlew-seen" not in raw.headers


async def test_a_wait_notices_a_message_of_any_shard_and_leases_nothing_more(
    nodes: list[ServedNode],
) -> None:
    for queue_id in (2, 1, 0):
        waiting = asyncio.ensure_future(receive(nodes[0], "wait=20"))
        await until_parked(nodes)
        await send(nodes[1], queue_id)
        assert queues_in(await waiting) == [queue_id]
        await until(lambda: all(each.node.broker.waiting_count == 0 for each in nodes))
    assert leased(nodes) == [1, 1, 1]
    assert await receive(nodes[0], "wait=1s") == {"messages": [], "backlog": 0}


async def test_many_wait_by_one_notification_and_each_message_is_given_once(
    nodes: list[ServedNode],
) -> None:
    waiting = [asyncio.ensure_future(receive(nodes[0], "wait=20&max_messages=1")) for _ in range(6)]
    await until_parked(nodes)
    for queue_id in (0, 1, 2, 2, 1, 0):
        await send(nodes[2], queue_id)
    got = await asyncio.gather(*waiting)
    assert sorted(queue for each in got for queue in queues_in(each)) == [0, 0, 1, 1, 2, 2]
    assert leased(nodes) == [2, 2, 2]


async def test_each_of_two_filters_gets_its_own(nodes: list[ServedNode]) -> None:
    red = asyncio.ensure_future(receive(nodes[0], "wait=20&filter=red", "red"))
    blue = asyncio.ensure_future(receive(nodes[0], "wait=20&filter=blue", "blue"))
    await until(lambda: all(each.node.broker.waiting_count == 2 for each in nodes))
    await send(nodes[1], 1, MQ_Tag="blue")
    assert queues_in(await blue) == [1]
    assert not red.done()
    await send(nodes[1], 2, MQ_Tag="red")
    assert queues_in(await red) == [2]


async def test_a_group_in_order_gets_the_next_of_a_key_when_the_first_is_done(
    nodes: list[ServedNode],
) -> None:
    await nodes[0].client.put("/v1/groups/billing", json={"order": "fifo"})
    for text in ("one", "two"):
        sent = await nodes[0].client.post(SEND, content=text, headers={"MQ-Sharding-Key": "k"})
        assert sent.status_code == 201, sent.text
    got = await receive(nodes[0])
    if len(got["messages"]) == 1:  # the next of the key comes when this one is done
        waiting = asyncio.ensure_future(receive(nodes[1], "wait=20"))
        await until_parked(nodes)
        assert (await nodes[2].client.delete(f"/v1/receipts/{handles_in(got)[0]}")).is_success
        got["messages"] += (await waiting)["messages"]
    assert [each["text"] for each in got["messages"]] == ["one", "two"]


async def test_a_client_that_leaves_waits_nowhere_and_holds_nothing(
    nodes: list[ServedNode],
) -> None:
    waiting = asyncio.ensure_future(receive(nodes[0], "wait=20"))
    await until_parked(nodes)
    waiting.cancel()
    await until(lambda: all(each.node.broker.waiting_count == 0 for each in nodes))
    await send(nodes[0], 2)
    assert leased(nodes) == [0, 0, 0]
    assert queues_in(await receive(nodes[0])) == [2]


async def test_a_repeated_attempt_gets_what_it_was_given(nodes: list[ServedNode]) -> None:
    await send(nodes[0], 1)
    first = await receive(nodes[0], "attempt_id=a1&max_messages=1")
    assert queues_in(first) == [1]
    for queue_id in (0, 2):
        await send(nodes[0], queue_id)
    for node in nodes:
        again = await receive(node, "attempt_id=a1&max_messages=1")
        assert handles_in(again) == handles_in(first)


async def test_several_messages_are_counted_in_one_shard(nodes: list[ServedNode]) -> None:
    await send(nodes[0], 1)
    waiting = asyncio.ensure_future(receive(nodes[0], "wait=20&min_messages=2"))
    await until_parked(nodes)
    await send(nodes[0], 2)
    await send(nodes[0], 1)
    assert queues_in(await waiting) == [1, 1]
    # When time is up, what there is.
    assert queues_in(await receive(nodes[0], "wait=1s&min_messages=2")) == [2]


async def test_a_shard_that_is_away_stops_nothing_and_comes_back_into_a_wait(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_waits, "AGAIN_SECONDS", 0.05)
    async with three_nodes(tmp_path, url) as nodes:
        waiting = asyncio.ensure_future(receive(nodes[0], "wait=20"))
        await until_parked(nodes)
        await nodes[2].stop()
        await send(nodes[0], 1)
        assert queues_in(await waiting) == [1]
        empty = await receive(nodes[0])
        assert empty == {"messages": [], "backlog": 0, "partial": ["c"]}
        raw = await nodes[1].client.post(f"{RECEIVE}?format=raw")
        assert (raw.status_code, raw.headers["mq-partial"]) == (204, '["c"]')
        await nodes[1].stop()
        alone = await nodes[0].client.post(RECEIVE, headers={"MQ-Forward": "no"})
        assert alone.json() == {"messages": [], "backlog": 0}


async def test_who_would_wait_beyond_the_bound_is_refused(tmp_path: Path, url: str) -> None:
    async with three_nodes(tmp_path, url, Limits(waiters_max=1)) as nodes:
        waiting = asyncio.ensure_future(receive(nodes[0], "wait=20"))
        await until_parked(nodes)
        refused = await nodes[0].client.post(f"{RECEIVE}?wait=20")
        assert (refused.status_code, refused.json()["code"]) == (429, "TOO_MANY_REQUESTS")
        await send(nodes[0], 2)
        assert queues_in(await waiting) == [2]


async def test_a_wait_ends_with_its_topic_and_with_its_node(nodes: list[ServedNode]) -> None:
    waiting = asyncio.ensure_future(nodes[0].client.post(f"{RECEIVE}?wait=20"))
    await until_parked(nodes)
    assert (await nodes[0].client.delete("/v1/topics/orders")).is_success
    ended = await waiting
    assert ended.status_code in (200, 404), ended.text
    assert ended.status_code == 404 or not ended.json()["messages"]
    wrong: httpx.Response = await nodes[0].client.post(f"{RECEIVE}?wait=never")
    assert wrong.status_code == 400
