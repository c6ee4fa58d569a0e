"""A group has one filter for a topic, whichever node its consumers ask: what a filter leaves out is
done for all of them."""

from collections.abc import Awaitable, Callable

import httpx
import pytest

from tests.support.cluster.three_nodes import ServedNode

pytestmark = [pytest.mark.anyio, pytest.mark.postgres]

GROUP = "/v1/groups/billing"
RECEIVE = "/v1/topics/orders/groups/billing/messages:receive"


async def heartbeat(
    node: ServedNode, client_id: str, wanted: str, query: str = "", generation: int = 0
) -> httpx.Response:
    subscriptions = [{"topic": "orders", "filter": wanted}]
    body = {"subscriptions": subscriptions, "generation": generation}
    return await node.client.put(f"{GROUP}/members/{client_id}{query}", json=body)


async def poll(
    node: ServedNode, client_id: str, wanted: str, query: str = "", generation: int = 0
) -> httpx.Response:
    subscriptions = [{"topic": "orders", "filter": wanted}]
    body = {"subscriptions": subscriptions, "generation": generation, "client_id": client_id}
    return await node.client.post(f"{GROUP}/members:poll{query}", json=body)


def told(answer: httpx.Response) -> tuple[int, str | None]:
    return answer.status_code, answer.json().get("code")


CONFLICT = 409, "SUBSCRIPTION_CONFLICT"


@pytest.mark.parametrize("stay", [heartbeat, poll])
async def test_members_read_with_one_filter_through_any_node(
    stay: Callable[..., Awaitable[httpx.Response]], nodes: list[ServedNode]
) -> None:
    assert told(await stay(nodes[0], "w1", "red")) == (200, None)
    for node in nodes:
        assert told(await stay(node, "w2", "blue")) == CONFLICT
    assert len((await nodes[1].client.get(f"{GROUP}/members")).json()["members"]) == 1
    replaced = await stay(nodes[2], "w2", "blue", "?replace_subscription=true")
    assert replaced.status_code == 200, replaced.text
    for node in nodes:
        assert told(await stay(node, "w1", "red", generation=1)) == CONFLICT
    for node in nodes:
        assert told(await stay(node, "w1", "blue", generation=1)) == (200, None)


async def test_receives_read_with_one_filter_through_any_node(nodes: list[ServedNode]) -> None:
    for queue_id in range(3):
        for tag in ("red", "blue"):
            path = f"/v1/topics/orders/messages?queue_id={queue_id}&tag={tag}"
            assert (await nodes[0].client.post(path, content=b"x")).status_code == 201
    first = await nodes[0].client.post(f"{RECEIVE}?filter=red&max_messages=1")
    assert len(first.json()["messages"]) == 1, first.text
    for node in nodes:
        assert told(await node.client.post(f"{RECEIVE}?filter=blue")) == CONFLICT
    replaced = await nodes[2].client.post(f"{RECEIVE}?filter=blue&replace_subscription=true")
    assert replaced.status_code == 200, replaced.text
    for node in nodes:
        assert told(await node.client.post(f"{RECEIVE}?filter=red")) == CONFLICT
