"""Where a client polls and pulls in a cluster of several shards: at the leader of the queue, or of
most of them. By rules without I/O, and against three nodes of three shards."""

import asyncio
from collections import Counter
from collections.abc import Iterable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from curlew_client import AsyncClient
from curlew_client.aio.pool import AsyncPool
from curlew_client.options import Node
from curlew_client.producing.routes import UNREACHED_S, Routes

from tests.client.cluster.known_routes import known_routes
from tests.support.cluster.three_nodes import PATIENCE_S, ServedNode

URLS = ("http://a:1", "http://b:1", "http://c:1")


def routes_of(*leaders: str | None, perm: str = "rw") -> Routes:
    """A queue of each of these leaders."""
    return known_routes(*((str(leader), perm, leader) for leader in leaders))


def of_queues(*numbers: int) -> list[tuple[str, int]]:
    return [("orders", number) for number in numbers]


def test_who_leads_most_of_the_queues_is_asked() -> None:
    found = routes_of(*URLS, URLS[1])
    assert found.leader_of_most(of_queues(0, 1, 2, 3), 0) == URLS[1]
    assert found.leader_of_most(of_queues(2), 0) == URLS[2]


def test_members_whose_queues_are_led_by_as_many_ask_different_leaders() -> None:
    found = routes_of(*URLS, *URLS)
    assert found.leader_of_most(of_queues(0, 1, 2), 0) == URLS[0]
    assert found.leader_of_most(of_queues(1, 2, 3), 0) == URLS[1]


def test_any_node_is_asked_where_no_leader_is_known() -> None:
    found = routes_of(URLS[0], None, URLS[2])
    assert found.leader_of_most(of_queues(1), 0) is None
    assert found.leader_of_most(of_queues(1, 2), 0) == URLS[2]
    assert found.leader_of_most(of_queues(7), 0) is None, "a queue that the route has not"
    assert found.leader_of_most([("bills", 0)], 0) is None, "a topic without a route"
    assert found.leader_of_most([], 0) is None
    assert routes_of(URLS[0], URLS[1], perm="w").leader_of_most(of_queues(0), 0) is None
    assert routes_of(URLS[0]).leader_of_most(of_queues(0), 0) is None, "a lone node"


def test_a_leader_that_cannot_be_reached_is_left_alone_for_a_while() -> None:
    found = routes_of(*URLS)
    found.unreached(URLS[0], 10.0)
    assert found.leader_of_most(of_queues(0), 10.0 + UNREACHED_S - 0.1) is None
    assert found.leader_of_most(of_queues(0, 2), 10.0) == URLS[2]
    assert found.leader_of_most(of_queues(0), 10.0 + UNREACHED_S) == URLS[0]


# --- three nodes of three shards


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bytes]]:
    """Each request of clients: the node that was asked, and what for."""
    found: list[tuple[str, bytes]] = []
    exchange = AsyncPool.exchange

    async def noted(pool: AsyncPool, node: Node, data: bytes, *until_s: Any) -> Any:
        found.append((node.url, data))
        return await exchange(pool, node, data, *until_s)

    monkeypatch.setattr(AsyncPool, "exchange", noted)
    return found


async def leaders_of(node: ServedNode) -> dict[int, str]:
    found = (await node.client.get("/v1/topics/orders/route")).json()["queues"]
    return {row["queue_id"]: row["leader"] for row in found}


async def fill(curlew: AsyncClient, queues: Iterable[int], count: int) -> None:
    """So many messages to each queue; behind the first one the client has a route."""
    for _ in range(count):
        for number in queues:
            await curlew.send("orders", b"x", queue_id=number)


@pytest.mark.anyio
@pytest.mark.postgres
async def test_chosen_queues_are_pulled_at_their_leaders(
    nodes: list[ServedNode], asked: list[tuple[str, bytes]]
) -> None:
    leaders = await leaders_of(nodes[0])
    got: list[int] = []
    async with AsyncClient(str(nodes[0].client.base_url)) as curlew:
        await fill(curlew, leaders, 2)
        async with curlew.pull_consumer(group="billing") as consumer, asyncio.timeout(PATIENCE_S):
            await consumer.assign([("orders", number) for number in leaders])
            for number in leaders:
                await consumer.seek_to_begin("orders", number)
            while len(got) < 2 * len(leaders):
                got += [each.queue_id for each in await consumer.poll("1s")]
    assert Counter(got) == dict.fromkeys(leaders, 2)
    pulls = [(url, data.partition(b"?")[0]) for url, data in asked if b"/messages?offset" in data]
    assert set(pulls) == {
        (leader, f"GET /v1/topics/orders/queues/{number}/messages".encode())
        for number, leader in leaders.items()
    }


@pytest.mark.anyio
@pytest.mark.postgres
async def test_members_poll_where_their_queues_are_led(
    nodes: list[ServedNode], asked: list[tuple[str, bytes]]
) -> None:
    leaders = await leaders_of(nodes[0])
    got: dict[str, set[int]] = {name: set() for name in "abc"}
    async with AsyncExitStack() as stack:
        consumers = {}
        for name in got:
            curlew = await stack.enter_async_context(
                AsyncClient(str(nodes[0].client.base_url), client_id=name)
            )
            await fill(curlew, leaders, 1)
            found = await stack.enter_async_context(curlew.pull_consumer(group="billing"))
            await found.subscribe("orders")
            consumers[name] = found

        async def polled(name: str) -> tuple[int, ...]:
            """The member's queues, when its last poll is behind it."""
            got[name] |= {each.queue_id for each in await consumers[name].poll("100ms")}
            return tuple(queue.queue_id for queue in consumers[name].assignment)

        shares: list[tuple[int, ...]] = []
        async with asyncio.timeout(PATIENCE_S):
            while sorted(shares) != [(number,) for number in sorted(leaders)]:
                shares = [await polled(name) for name in consumers]
        asked.clear()
        for name, share in zip(consumers, shares, strict=True):
            await polled(name)
            polls = [(url, data) for url, data in asked if b"members:poll" in data]
            assert {url for url, _ in polls} == {leaders[share[0]]}
            asked.clear()
    assert set.union(*got.values()) == set(leaders)


@pytest.mark.anyio
@pytest.mark.postgres
async def test_a_leader_that_ends_stops_no_member(
    nodes: list[ServedNode], asked: list[tuple[str, bytes]]
) -> None:
    leaders = await leaders_of(nodes[0])
    others = {number for number in leaders if number != 0}

    def polls() -> list[str]:
        return [url for url, data in asked if b"members:poll" in data]

    (ends,) = [each for each in nodes if str(each.client.base_url) == leaders[0]]
    async with (
        AsyncClient([leaders[number] for number in others]) as curlew,
        curlew.pull_consumer(group="billing") as consumer,
    ):
        await fill(curlew, leaders, 1)
        await consumer.subscribe("orders")
        got: set[int] = set()
        async with asyncio.timeout(PATIENCE_S):
            while got != set(leaders):
                got |= {each.queue_id for each in await consumer.poll("1s")}
            asked.clear()
            await consumer.poll("100ms")  # the first one, without queues, was at any node
            assert polls()[-1] == leaders[0], "as many queues are led by each"
            asked.clear()
            await ends.stop()
            await consumer.poll("100ms")
            assert polls()[0] == leaders[0]
            assert len(polls()) > 1
            await fill(curlew, others, 1)
            got.clear()
            while not got >= others:
                got |= {each.queue_id for each in await consumer.poll("1s")}
