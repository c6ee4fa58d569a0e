"""A group consumes a topic in one way over all shards, whichever node and shard is asked."""

from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from app.broker.progress import entered_consumptions
from tests.support.cluster.three_nodes import ServedNode, start_node
from tests.support.nodes.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.postgres]

GROUP = "/v1/groups/billing"
MEMBER = f"{GROUP}/members/w1"
OFFSETS = f"{GROUP}/offsets/orders"
RECEIVE = "/v1/topics/orders/groups/billing/messages:receive"
HERE = {"MQ-Forward": "no"}
"""Of this shard alone, as a client asks that follows routes."""


async def send(node: ServedNode, *queue_ids: int) -> None:
    for queue_id in queue_ids:
        path = f"/v1/topics/orders/messages?queue_id={queue_id}"
        assert (await node.client.post(path, content=b"x")).status_code == 201


async def receive(node: ServedNode, query: str = "") -> httpx.Response:
    return await node.client.post(RECEIVE + query, headers=HERE, json={"max_messages": 1})


async def commit(node: ServedNode, queue_id: int, query: str = "") -> httpx.Response:
    body = {"offsets": [{"queue_id": queue_id, "offset": 1}]}
    return await node.client.put(OFFSETS + query, json=body)


async def join(node: ServedNode, query: str = "") -> httpx.Response:
    body = {"subscriptions": [{"topic": "orders"}], "generation": 0}
    return await node.client.put(MEMBER + query, json=body)


def check_refused(answer: httpx.Response, current: str) -> None:
    assert answer.status_code == 409, answer.text
    problem = answer.json()
    assert (problem["code"], problem["current"]) == ("CONSUMPTION_CONFLICT", current)
    assert problem["since_ms"] > 0
    assert "force=true" in problem["hint"]


def kinds(nodes: list[ServedNode]) -> list[str | None]:
    states = [each.node.broker.consumptions.state("billing", "orders") for each in nodes]
    return [each.consumption and each.consumption.value for each in states]


def codes(answer: httpx.Response) -> list[tuple[str, int]]:
    assert answer.status_code == 200, answer.text
    return [(each["code"], each["count"]) for each in answer.json()["effects"]]


async def test_what_one_shard_leases_is_read_by_offset_in_none(nodes: list[ServedNode]) -> None:
    await send(nodes[0], 0, 1, 2)
    assert len((await receive(nodes[2])).json()["messages"]) == 1
    for node in nodes:
        for query in ("", "?dry_run=true"):
            refused = await commit(node, 0, query)
            check_refused(refused, "lease")
            assert "in shard 'c'" in refused.json()["detail"]
        for query in ("", "?dry_run=true"):
            check_refused(await join(node, query), "lease")
    assert (await nodes[0].client.get(f"{GROUP}/members")).json()["members"] == []
    assert kinds(nodes) == [None, None, "lease"]
    assert (await receive(nodes[0])).status_code == 200


async def test_what_one_shard_reads_by_offset_is_leased_in_none(nodes: list[ServedNode]) -> None:
    await send(nodes[0], 0, 1, 2)
    assert (await commit(nodes[0], 1)).status_code == 200
    for node in nodes:
        check_refused(await node.client.post(RECEIVE), "assigned")
        check_refused(await receive(node), "assigned")
    assert kinds(nodes) == [None, "assigned", None]
    for node in nodes:
        assert (await commit(node, 2)).status_code == 200


@pytest.mark.parametrize("change", [commit, lambda node, _, query: join(node, query)])
async def test_a_commit_or_a_join_by_force_ends_the_leases_of_all_shards(
    nodes: list[ServedNode], change: Callable[..., Awaitable[httpx.Response]]
) -> None:
    await send(nodes[0], 0, 1, 2)
    handles = [(await receive(node)).json()["messages"][0]["receipt_handle"] for node in nodes]
    if change is commit:
        tried = await commit(nodes[0], 1, "?force=true&dry_run=true")
        assert codes(tried) == [("LEASES_END", 1)] * 3
        assert kinds(nodes) == ["lease"] * 3
    assert codes(await change(nodes[0], 1, "?force=true")) == [("LEASES_END", 1)] * 3
    assert kinds(nodes) == ["assigned"] * 3
    for handle in handles:
        settled = await nodes[0].client.delete(f"/v1/receipts/{handle}")
        assert settled.status_code == 410, settled.text


async def test_a_receive_by_force_takes_the_topic_from_readers_in_all_shards(
    nodes: list[ServedNode],
) -> None:
    await send(nodes[0], 0, 1, 2)
    for queue_id in range(3):
        assert (await commit(nodes[queue_id], queue_id)).status_code == 200
    assert kinds(nodes) == ["assigned"] * 3
    forced = await nodes[1].client.post(f"{RECEIVE}?force=true")
    assert forced.status_code == 200, forced.text
    assert kinds(nodes) == ["lease"] * 3
    check_refused(await commit(nodes[2], 1), "lease")


async def test_a_forced_commit_that_is_refused_ends_nothing(nodes: list[ServedNode]) -> None:
    await send(nodes[0], 0, 1, 2)
    assert (await receive(nodes[2])).status_code == 200
    body = {"offsets": [{"queue_id": 0, "offset": 9}]}
    refused = await nodes[1].client.put(f"{OFFSETS}?force=true", json=body)
    assert refused.status_code == 416, refused.text
    assert kinds(nodes) == [None, None, "lease"]
    check_refused(await commit(nodes[0], 0), "lease")


async def test_a_shard_that_was_away_when_its_leases_ended_gives_them_up(
    nodes: list[ServedNode], tmp_path: Any, url: str
) -> None:
    await send(nodes[0], 0, 1, 2)
    handle = (await receive(nodes[2])).json()["messages"][0]["receipt_handle"]
    await nodes.pop().stop()
    check_refused(await commit(nodes[0], 0), "lease")
    forced = await commit(nodes[0], 0, "?force=true")
    assert (forced.status_code, forced.json()["partial"]) == (207, ["c"])
    nodes.append(await start_node(tmp_path, url, "c"))
    check_refused(await receive(nodes[2]), "assigned")
    await until(lambda: kinds(nodes)[2] is None)
    settled = await nodes[0].client.delete(f"/v1/receipts/{handle}")
    assert settled.status_code == 410, settled.text


async def test_a_shard_that_no_request_reaches_hears_of_it_from_sql(
    nodes: list[ServedNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entered_consumptions, "LOOK_SECONDS", 0.0)
    await send(nodes[0], 0, 1, 2)
    assert (await receive(nodes[2], "?invisible=10m")).status_code == 200
    body = {"offsets": [{"queue_id": 0, "offset": 1}]}
    forced = await nodes[0].client.put(f"{OFFSETS}?force=true", json=body, headers=HERE)
    assert forced.status_code == 200, forced.text
    await until(lambda: kinds(nodes) == ["assigned", None, None])


async def test_with_the_offsets_the_kind_is_forgotten_at_once(nodes: list[ServedNode]) -> None:
    await send(nodes[0], 0, 1, 2)
    for queue_id in range(3):
        assert (await commit(nodes[queue_id], queue_id)).status_code == 200
    assert (await nodes[0].client.delete(OFFSETS)).status_code == 204
    assert (await receive(nodes[1])).status_code == 200
    check_refused(await commit(nodes[0], 2), "lease")


async def test_a_topic_and_a_group_that_are_made_anew_have_no_kind(nodes: list[ServedNode]) -> None:
    for path, body in (("/v1/topics/orders", {"queues": 3}), (GROUP, {})):
        await send(nodes[0], 0, 1, 2)
        assert (await commit(nodes[0], 1)).status_code == 200
        deleted = await nodes[2].client.delete(path)
        assert deleted.status_code == 204, deleted.text
        assert (await nodes[2].client.put(path, json=body)).status_code == 201
        for each in nodes:
            await each.node.metadata.refresh()
        assert (await nodes[0].client.post(RECEIVE)).status_code == 200
        check_refused(await commit(nodes[1], 2), "lease")
        assert (await commit(nodes[1], 2, "?force=true")).status_code == 200
        assert (await nodes[0].client.delete(OFFSETS)).status_code == 204
