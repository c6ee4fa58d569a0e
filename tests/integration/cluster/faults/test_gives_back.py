"""What was leased for a caller that has lost its right meanwhile is given back by the node that
leased it, in its own name."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from app.api.http.request_context import ClientGone
from app.api.relay.consuming import polls, receives
from app.domain.names import stored_name
from tests.support.cluster.three_nodes import ServedNode
from tests.support.nodes.pull_members import said_next
from tests.support.nodes.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.postgres]

GROUP = "/v1/topics/orders/groups/billing"
POLL = "/v1/groups/billing/members:poll"
KEY = "/v1/principals/shop"
GONE = "it has left, and its principal is gone"

Forget = Callable[[], Awaitable[None]]


async def refresh(nodes: list[ServedNode]) -> None:
    for each in nodes:
        await each.node.metadata.principals.refresh()


@pytest.fixture(params=["", "eu"], ids=["free", "bound"])
def namespace(request: pytest.FixtureRequest) -> str:
    """The one that the principal is bound to; empty: none."""
    named: str = request.param
    return named


@pytest.fixture
async def forget(nodes: list[ServedNode], namespace: str) -> Forget:
    """The cluster is closed; who consumes is the principal `shop`, until it is forgotten."""
    first = nodes[0]
    admin = (await first.node.metadata.principals.make_first()).text
    await refresh(nodes)
    headers = {"authorization": f"Bearer {admin}"}
    shop: dict[str, object] = {"roles": ["admin"]}
    if namespace:
        shop["namespace"] = namespace
        named = await first.client.put(f"/v1/namespaces/{namespace}", json={}, headers=headers)
        assert named.is_success, named.text
        topic = f"/v1/topics/orders?namespace={namespace}"
        topic_made = await first.client.put(topic, json={"queues": 3}, headers=headers)
        assert topic_made.is_success, topic_made.text
        for each in nodes:
            await each.node.metadata.refresh()
    made = await first.client.put(KEY, json=shop, headers=headers)
    assert made.is_success, made.text
    key = await first.client.post(f"{KEY}/keys", json={}, headers=headers)
    assert key.is_success, key.text
    await refresh(nodes)
    for each in nodes:
        each.client.headers["authorization"] = f"Bearer {key.json()['key']}"

    async def forget_it() -> None:
        gone = await first.client.delete(KEY, headers=headers)
        assert gone.is_success, gone.text
        await refresh(nodes)

    return forget_it


async def send(node: ServedNode, queue_id: int) -> None:
    path = f"/v1/topics/orders/messages?queue_id={queue_id}"
    sent = await node.client.post(path, content=b"x")
    assert sent.status_code == 201, sent.text


def leased(nodes: list[ServedNode], namespace: str) -> list[int]:
    """Messages that clients of the group hold, by nodes."""
    group, topic = stored_name(namespace, "billing"), stored_name(namespace, "orders")
    found = [each.node.broker.groups.find(group, topic) for each in nodes]
    return [0 if each is None else each.leased_count for each in found]


@pytest.mark.parametrize("queue_id", [0, 1], ids=["own", "other"])
async def test_a_receive_gives_back_in_the_name_of_its_node(
    nodes: list[ServedNode],
    forget: Forget,
    namespace: str,
    queue_id: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held: list[int] = []

    async def leave(receive: Any) -> None:
        held.extend(leased(nodes, namespace))
        await forget()
        raise ClientGone(GONE)

    await send(nodes[0], queue_id)
    monkeypatch.setattr(receives.Receive, "answer", leave)
    # No lease ends by itself while the test waits.
    received = await nodes[0].client.post(f"{GROUP}/messages:receive?invisible=1h")
    assert received.status_code == 500
    assert sum(held) == 1  # it was leased before its caller was forgotten
    await until(lambda: leased(nodes, namespace) == [0, 0, 0])


async def test_a_poll_gives_back_in_the_name_of_its_node(
    nodes: list[ServedNode], forget: Forget, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[int] = []
    # No lease ends by itself while the test waits.
    lasting = await nodes[0].client.put("/v1/groups/billing", json={"invisible_ms": 3_600_000})
    assert lasting.is_success, lasting.text
    for each in nodes:
        await each.node.metadata.refresh()
    await send(nodes[0], 1)
    said: dict[str, object] = {
        "client_id": "w1",
        "subscriptions": [{"topic": "orders"}],
        "generation": 0,
    }
    first = await nodes[0].client.post(POLL, json=said)
    assert first.status_code == 200, first.text
    (message,) = first.json()["messages"]
    back = {"topic": "orders", "queue_id": 1, "queue_offset": message["queue_offset"]}

    async def leave(poll: Any) -> None:
        held.extend(leased(nodes, namespace))
        await forget()
        raise ClientGone(GONE)

    monkeypatch.setattr(polls._Poll, "_agree", leave)
    told = {**said, **said_next(first.json()), "hand_backs": [{**back, "delay": "0s"}]}
    polled = await nodes[0].client.post(POLL, json={**told, "wait": "10s"})
    assert polled.status_code == 500
    assert sum(held) == 1
    await until(lambda: leased(nodes, namespace) == [0, 0, 0])
