"""Where a client receives and settles in a cluster of several shards: at the leaders while there is
much to do, at any node to wait. By rules without I/O, and against three nodes of three shards."""

import asyncio
import json
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from curlew_client import AsyncClient, CurlewError
from curlew_client.consuming.calls import GroupCalls, LeasedGroup, ReceiveOptions
from curlew_client.consuming.decisions import Decision
from curlew_client.consuming.leaders import Leaders, by_leader
from curlew_client.consuming.messages import Received
from curlew_client.errors import ConnectionFailed, NotAllowed, SystemBusy
from curlew_client.producing.routes import UNREACHED_S, Routes
from curlew_client.wire.http1 import Answer

from app.api.relay.over_shards import OverShards
from tests.client.cluster.known_routes import known_routes
from tests.support.cluster.three_nodes import ServedNode

URLS = ("http://a:1", "http://b:1", "http://c:1")


def leaders(*queues: tuple[str, str, str | None]) -> tuple[Leaders, Routes]:
    """A consumer of a topic with these queues: shard, permission, leader."""
    routes = known_routes(*queues)
    return Leaders(routes, "orders"), routes


def of_three() -> tuple[Leaders, Routes]:
    return leaders(*(("abc"[number], "rw", url) for number, url in enumerate(URLS)))


def received(count: int) -> list[Received[None]]:
    return [Received({"receipt_handle": str(number)}, lambda _: None) for number in range(count)]


# --- rules


def test_leaders_are_looked_at_while_half_of_what_was_asked_for_comes() -> None:
    found, _ = of_three()
    assert found.to_look_at(0) == [], "nobody knows of anything to do"
    found.gave(None, received(7), 16)
    assert found.to_look_at(0) == []
    found.gave(None, received(8), 16)
    assert found.to_look_at(0) == list(URLS)
    found.gave(URLS[2], [], 16)
    assert found.to_look_at(0) == []


def test_leaders_take_turns() -> None:
    found, _ = of_three()
    order = []
    found.gave(None, received(1), 1)
    for _ in range(6):
        first = found.to_look_at(0)[0]
        found.gave(first, received(1), 1)
        order.append(first)
    assert order == [*URLS, *URLS]


def test_a_topic_of_one_shard_is_waited_at_where_it_is_led() -> None:
    found, routes = leaders(("a", "rw", URLS[0]), ("a", "rw", URLS[0]))
    assert found.to_wait_at(0) is None, "a lone node is where the client has it"
    routes.is_on = True
    other = [{"queue_id": n, "shard": "ab"[n], "perm": "rw", "leader": URLS[n]} for n in (0, 1)]
    routes.keep("other", 200, None, json.dumps({"valid_ms": 1, "queues": other}).encode(), 0)
    one = [{"queue_id": 0, "shard": "a", "perm": "rw", "leader": URLS[0]}]
    routes.keep("orders", 200, None, json.dumps({"valid_ms": 1, "queues": one}).encode(), 0)
    assert found.to_wait_at(0) == URLS[0]
    assert of_three()[0].to_wait_at(0) is None


def test_queues_that_only_drain_are_read_and_those_that_only_take_are_not() -> None:
    found, _ = leaders(("a", "rw", URLS[0]), ("b", "w", URLS[1]), ("c", "r", URLS[2]))
    found.gave(None, received(1), 1)
    assert found.to_look_at(0) == [URLS[0], URLS[2]]


def test_where_one_leader_is_not_known_or_cannot_be_reached_any_node_is_asked() -> None:
    found, _ = leaders(("a", "rw", URLS[0]), ("b", "rw", None))
    found.gave(None, received(1), 1)
    assert found.to_look_at(0) == []
    found, routes = of_three()
    found.gave(None, received(1), 1)
    assert routes.asks("orders", 1.0) is None
    assert routes.asks("orders", 1.0) is None, "the route is fresh"
    found.failed(URLS[1], CurlewError("gone"), 1.0, is_of_the_node=True)
    assert found.to_look_at(1.0) == []
    assert routes.asks("orders", 1.0) is not None
    assert found.to_look_at(1.0 + UNREACHED_S) == list(URLS)


def test_messages_are_settled_where_they_came_from() -> None:
    found, _ = of_three()
    some, others = received(2), received(1)
    found.gave(URLS[1], some, 2)
    found.gave(None, others, 2)
    assert by_leader([*some, *others], lambda each: each) == [(URLS[1], some), (None, others)]


# --- requests, to a sender that answers what it is told to


class Sender:
    """Answers by the leader that is asked; None: any node."""

    def __init__(self) -> None:
        self.asked: list[tuple[str | None, dict[str, Any]]] = []
        self.answers: dict[str | None, object] = {}
        self.waiting = asyncio.Event()

    async def learn_route(self, _topic: str, _deadline_s: float) -> None:
        return

    async def call(
        self, _method: str, _target: str, body: bytes, *, leader: str | None = None, **_: Any
    ) -> tuple[Answer, str]:
        asked = json.loads(body)
        self.asked.append((leader, asked))
        answer = self.answers.get(leader, {"messages": []})
        if isinstance(answer, Exception):
            raise answer
        if answer is ...:
            self.waiting.set()
            await asyncio.Event().wait()
        if "acks" in asked:
            answer = {"results": [{"status": 200} for _ in asked["acks"]]}
        return Answer(200, b"", json.dumps(answer).encode(), keep_alive=True), leader or ""


def calls() -> tuple[GroupCalls, Sender, Routes]:
    sender: Any = Sender()
    _, routes = of_three()
    session: Any = SimpleNamespace(
        client_id="me", timeout_s=1, options=SimpleNamespace(retries=0), routes=routes
    )
    return GroupCalls(session, sender, ReceiveOptions("orders", "billing")), sender, routes


def gave(found: GroupCalls, url: str | None, handle: str) -> Decision:
    message = Received[Any]({"receipt_handle": handle}, lambda _: None)
    found._leaders.gave(url, [message], 1)
    return Decision("ack", message)


FORBIDDEN = NotAllowed("no", code="FORBIDDEN", status=403)
BUSY = SystemBusy("not now", code="SYSTEM_BUSY", status=503, retryable=True)


@pytest.mark.anyio
async def test_what_one_leader_refuses_whole_is_said_again() -> None:
    found, sender, _ = calls()
    sender.answers = {URLS[0]: FORBIDDEN}
    decisions = [gave(found, URLS[0], "a"), gave(found, URLS[1], "b")]
    group = LeasedGroup(found)
    group.leases.add([each.message for each in decisions], 0.0)
    assert await group.settle(decisions) == decisions[:1]


@pytest.mark.anyio
async def test_a_leader_that_refuses_for_now_leaves_it_to_any_node() -> None:
    found, sender, _ = calls()
    sender.answers = {URLS[0]: BUSY}
    assert [each.status for each in await found.settle([gave(found, URLS[0], "a")])] == [200]
    assert [leader for leader, _ in sender.asked] == [URLS[0], None]


@pytest.mark.anyio
async def test_a_leader_that_is_gone_is_left_alone() -> None:
    found, sender, _ = calls()
    sender.answers = {URLS[0]: ConnectionFailed("gone", "unknown")}
    for _ in range(3):
        await found.settle([gave(found, URLS[0], "a")])
    assert [leader for leader, _ in sender.asked] == [URLS[0], None, None, None]


@pytest.mark.anyio
async def test_a_receive_that_is_given_up_behind_an_empty_look_is_asked_for_again() -> None:
    found, sender, _ = calls()
    gave(found, None, "a")  # there is much to do
    sender.answers = {None: ...}
    receiving = asyncio.ensure_future(found.receive(1, 20.0, lambda _: None))
    await sender.waiting.wait()
    receiving.cancel()
    await asyncio.gather(receiving, return_exceptions=True)
    sender.answers = {None: {"messages": [{"receipt_handle": "b"}]}}
    assert [each.receipt_handle for each in await found.recovered(lambda _: None)] == ["b"]
    (_, given_up), (leader, again) = sender.asked[-2:]
    assert leader is None
    assert again == {**given_up, "wait": 0}


# --- three nodes of three shards


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[str, bool]]:
    """Requests by what they are, and whether their node did them for all shards."""
    found: Counter[tuple[str, bool]] = Counter()
    answered = OverShards.answered

    async def noted(self: OverShards, exchange: Any, operation: Any, names: Any) -> bool:
        is_of_all = await answered(self, exchange, operation, names)
        found[operation.operation_id, is_of_all] += 1
        return is_of_all

    monkeypatch.setattr(OverShards, "answered", noted)
    return found


async def send_to_each_queue(node: ServedNode, count: int) -> set[str]:
    texts = {f"order-{number}" for number in range(count)}
    for number, text in enumerate(sorted(texts)):
        path = f"/v1/topics/orders/messages?queue_id={number % 3}"
        answer = await node.client.post(path, content=text.encode())
        assert answer.status_code == 201, answer.text
    return texts


async def unsettled(node: ServedNode) -> int:
    answer = await node.client.get("/v1/groups/billing/lag")
    return int(answer.json()["ready"]) + int(answer.json()["in_flight"])


@pytest.mark.anyio
@pytest.mark.postgres
async def test_a_backlog_is_received_and_settled_at_the_leaders(
    nodes: list[ServedNode], asked: Counter[tuple[str, bool]]
) -> None:
    texts = await send_to_each_queue(nodes[0], 90)
    await nodes[0].client.put("/v1/groups/billing", json={})
    for each in nodes:
        await each.node.metadata.refresh()
    asked.clear()
    got: list[str] = []
    async with (
        AsyncClient(str(nodes[0].client.base_url)) as curlew,
        curlew.receive("orders", group="billing", limit=90, idle="20s") as messages,
    ):
        got += [message.text async for message in messages]
    assert sorted(got) == sorted(texts), "each once"
    assert await unsettled(nodes[0]) == 0
    assert asked["receive_messages", False] + asked["settle_messages", False] > 0
    assert asked["receive_messages", True] <= 3, asked
    assert asked["settle_messages", True] <= 3, asked


@pytest.mark.anyio
@pytest.mark.postgres
async def test_a_leader_that_ends_holds_up_nobody(nodes: list[ServedNode]) -> None:
    await send_to_each_queue(nodes[0], 90)
    await nodes[0].client.put("/v1/groups/billing", json={})
    for each in nodes:
        await each.node.metadata.refresh()
    got: list[int] = []
    async with AsyncClient([str(each.client.base_url) for each in nodes[:2]]) as curlew:
        async with curlew.receive("orders", group="billing", limit=30, idle="20s") as messages:
            got += [message.queue_id async for message in messages]
        await nodes.pop().stop()
        async with curlew.receive("orders", group="billing", idle="2s") as messages:
            got += [message.queue_id async for message in messages]
    counts = Counter(got)
    assert (counts[0], counts[1]) == (30, 30)
    assert counts[2] < 30, "the rest is with the node that is gone"
