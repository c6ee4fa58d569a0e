"""A request that one node is asked for first: who is asked when that one does not answer, and how
long the routes may take that say which one it is. By nodes that are played, on a clock of the
test."""

import asyncio
import json
from collections.abc import Callable
from typing import Any, cast

import pytest
from curlew_client.aio.pool import AsyncPool
from curlew_client.aio.sending import ROUTE_TIMEOUT_S, AsyncSender, Reply
from curlew_client.errors import ConnectionFailed, CurlewError, TimedOut
from curlew_client.options import Node, Options
from curlew_client.producing.routes import UNREACHED_S
from curlew_client.session import Session
from curlew_client.wire.http1 import Answer

URLS = ("http://a:1", "http://b:1", "http://c:1")
OK = Answer(200, b"HTTP/1.1 200 OK", b"{}", keep_alive=True)


class Clock:
    now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


class PlayedNodes:
    """In place of the pool: what each node does, by its URL, and which were asked."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.asked: list[str] = []
        self.said: list[tuple[bytes, float, float | None]] = []
        """Of each poll: its body, and until when it may take."""
        self.fails: dict[str, CurlewError] = {}
        self.routes_take_s = 0.0
        self.route_of: Callable[[str], bytes] = lambda _: b""

    async def exchange(
        self, node: Node, data: bytes, deadline_s: float, begins_by_s: float | None = None
    ) -> Answer:
        target = data.split(b" ", 2)[1].decode()
        self.asked.append(node.url)
        if target.endswith("/route"):
            if self.routes_take_s:
                self.clock.now_s = min(self.clock.now_s + self.routes_take_s, deadline_s)
                raise TimedOut(f"{node.url} did not answer in time", "unknown")
            return Answer(200, b"HTTP/1.1 200 OK", self.route_of(target), keep_alive=True)
        self.said.append((data.partition(b"\r\n\r\n")[2], deadline_s, begins_by_s))
        error = self.fails.get(node.url)
        if error is not None and isinstance(error, TimedOut):
            self.clock.now_s = deadline_s if begins_by_s is None else begins_by_s
        if error is not None:
            raise error
        return OK


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr("curlew_client.aio.sending.monotonic", found)
    return found


@pytest.fixture
def nodes(clock: Clock) -> PlayedNodes:
    return PlayedNodes(clock)


@pytest.fixture
def session() -> Session:
    return Session(list(URLS), options=Options())


@pytest.fixture
def sender(session: Session, nodes: PlayedNodes) -> AsyncSender:
    async def made() -> AsyncSender:
        return AsyncSender(session, cast("AsyncPool", nodes))

    return asyncio.run(made())


def lost() -> ConnectionFailed:
    return ConnectionFailed("the connection cannot be made", "not_stored")


def polled(sender: AsyncSender, first: str | None, **more: Any) -> Reply:
    named = {"timeout_s": 12.0, "is_long": True, **more}
    return asyncio.run(sender.call("POST", "/v1/groups/g/members:poll", first=first, **named))


@pytest.mark.parametrize("dead", URLS)
def test_when_the_first_cannot_be_reached_another_is_asked_at_once(
    sender: AsyncSender, session: Session, nodes: PlayedNodes, dead: str
) -> None:
    nodes.fails[dead] = lost()
    for _ in range(3):
        nodes.asked.clear()
        _, url = polled(sender, dead)
        assert nodes.asked == [dead, url]
        assert url != dead
    assert not session.routes.may_ask(dead, nodes.clock.now_s)


def test_another_is_asked_once(sender: AsyncSender, nodes: PlayedNodes) -> None:
    nodes.fails = dict.fromkeys(URLS, lost())
    with pytest.raises(ConnectionFailed):
        polled(sender, URLS[0])
    assert len(nodes.asked) == 2


def test_nobody_is_asked_when_the_time_is_over(sender: AsyncSender, nodes: PlayedNodes) -> None:
    nodes.fails[URLS[0]] = lost()
    with pytest.raises(ConnectionFailed):
        polled(sender, URLS[0], timeout_s=0.0)
    assert nodes.asked == [URLS[0]]


def test_a_request_for_no_node_in_particular_is_tried_as_often_as_it_says(
    sender: AsyncSender, nodes: PlayedNodes
) -> None:
    nodes.fails = dict.fromkeys(URLS, lost())
    with pytest.raises(ConnectionFailed):
        polled(sender, None)
    assert len(nodes.asked) == 1


def silent() -> TimedOut:
    return TimedOut("it did not answer in time", "unknown")


def asked_again(sender: AsyncSender, clock: Clock, first: str | None) -> Reply:
    """A poll that may be silent for 6 of its 12 s."""
    until_s = clock.now_s + 6.0
    return polled(sender, first, body=b"waits", begins_by_s=until_s, again=lambda: b"at once")


@pytest.mark.parametrize("first", [*URLS, None])
def test_when_the_first_is_silent_another_is_asked_anew_for_what_is_left(
    sender: AsyncSender, session: Session, nodes: PlayedNodes, first: str | None
) -> None:
    began_s = nodes.clock.now_s
    frozen = first or session.faults.pick(began_s, None)
    session.faults.pick(began_s, None)
    session.faults.pick(began_s, None)  # it has its turn again
    nodes.fails[frozen] = silent()
    _, url = asked_again(sender, nodes.clock, first)
    assert nodes.asked == [frozen, url]
    assert url != frozen
    deadline_s = began_s + 12.0
    assert nodes.said == [(b"waits", deadline_s, began_s + 6.0), (b"at once", deadline_s, None)]
    assert session.routes.may_ask(frozen, nodes.clock.now_s), "sends may do well there"


def test_another_than_a_silent_one_is_asked_once(sender: AsyncSender, nodes: PlayedNodes) -> None:
    nodes.fails = dict.fromkeys(URLS, silent())
    with pytest.raises(TimedOut):
        asked_again(sender, nodes.clock, URLS[0])
    assert len(nodes.asked) == 2


def test_no_other_is_asked_when_an_answer_that_had_begun_took_all_the_time(
    sender: AsyncSender, nodes: PlayedNodes
) -> None:
    nodes.fails[URLS[0]] = silent()
    with pytest.raises(TimedOut):
        polled(sender, URLS[0], begins_by_s=nodes.clock.now_s + 12.0, again=lambda: b"at once")
    assert nodes.asked == [URLS[0]]


def test_a_long_poll_without_an_answer_keeps_no_send_from_the_node(
    sender: AsyncSender, session: Session, nodes: PlayedNodes
) -> None:
    session.routes.is_on = True
    learn(session, ["orders"])
    nodes.fails[URLS[0]] = TimedOut("it did not answer in time", "unknown")
    with pytest.raises(TimedOut):
        polled(sender, URLS[0])
    now_s = nodes.clock.now_s
    assert nodes.asked == [URLS[0]]
    assert session.routes.may_ask(URLS[0], now_s)
    assert session.routes.leader_of_most([("orders", 0)], now_s) is None, "others are polled"
    assert session.routes.leader_of_most([("orders", 0)], now_s + UNREACHED_S) == URLS[0]
    with pytest.raises(TimedOut):
        polled(sender, URLS[0], is_long=False)
    assert not session.routes.may_ask(URLS[0], now_s)


# --- routes


def route(topic: str) -> bytes:
    rows = [
        {"queue_id": number, "shard": url, "perm": "rw", "leader": url}
        for number, url in enumerate(URLS)
    ]
    return json.dumps({"topic": topic, "valid_ms": 30_000, "queues": rows}).encode()


def learn(session: Session, topics: list[str]) -> None:
    session.routes.asks("first", 1_000.0)  # a client asks for none before its first request
    for topic in topics:
        session.routes.keep(topic, 200, None, route(topic), 1_000.0)


def test_the_routes_of_many_topics_have_one_second_together(
    sender: AsyncSender, session: Session, nodes: PlayedNodes, clock: Clock
) -> None:
    topics = [f"t{number}" for number in range(30)]
    learn(session, topics)
    clock.now_s += 60
    nodes.routes_take_s = 60.0
    began_s = clock.now_s
    first = asyncio.run(sender.leader_of_most([(topic, 1) for topic in topics]))
    assert clock.now_s - began_s == ROUTE_TIMEOUT_S
    assert first == URLS[1], "by the routes that are kept"


def test_each_route_is_asked_for_while_there_is_time(
    sender: AsyncSender, session: Session, nodes: PlayedNodes
) -> None:
    topics = [f"t{number}" for number in range(30)]
    learn(session, topics)
    nodes.clock.now_s += 60
    nodes.route_of = lambda target: route(target.split("/")[3])
    assert asyncio.run(sender.leader_of_most([(topic, 2) for topic in topics])) == URLS[2]
    assert len(nodes.asked) == 30
