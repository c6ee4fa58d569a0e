"""A stream of a group over shards that count what they gave, in virtual time."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from app.api.dataplane.receive_parts import PLACE, ROOM, SEEN, unsettled_header
from app.api.http.memory_budget import MemoryBudget
from app.api.http.request_context import Event, RequestContext
from app.api.relay.calls import CallAnswer, CallRequest
from app.api.relay.consuming.receives import ReceivesInTurn
from app.api.relay.relay import Relay
from app.api.relay.streams import group_streams
from app.api.relay.streams.group_streams import GroupStreams
from app.broker.results import SettleResult
from app.broker.streams.credit import Credits
from app.broker.streams.credit_elsewhere import CreditElsewhere
from app.domain.errors import ShardUnavailable
from app.domain.limits import Limits
from app.runtime.system_clock import SystemClock
from tests.support.virtual_time import in_virtual_time

LEASE_S = 30.0
PATH = "/v1/topics/orders/groups/billing/stream"
FULL = CallAnswer(429, [], b'{"code":"TOO_MANY_REQUESTS"}')
UNKNOWN = CallAnswer(404, [], b'{"code":"CONSUMER_GROUP_NOT_FOUND","status":404}')


class Shard:
    """Has messages, and counts what it gave."""

    def __init__(self, *messages: str) -> None:
        self.messages = list(messages)
        self.loop = asyncio.get_running_loop()
        self.credits = Credits()
        self.elsewhere = CreditElsewhere(self.credits, lambda: 1, self.loop.time)
        self.counts = True
        """Whether it says what is unsettled; a version before did not."""
        self.listens: list[float] = []
        """The seconds that each was to wait."""
        self.refusal: CallAnswer | None = None
        self.begun = 0
        self.look_takes_s = 0.0

    async def call(self, request: CallRequest) -> CallAnswer:
        word, *rest = request.asks.split(" ")
        if word == "unsettled":
            wait_s, known, stream = rest
            self.listens.append(float(wait_s))
            said = await self.elsewhere.wait(stream, int(known), float(wait_s), lambda _: None)
            return CallAnswer(204, [unsettled_header(said)], b"")
        if word == "news":
            await asyncio.sleep(float(rest[0]))
            return CallAnswer(204, [(SEEN, b"1 0 0")], b"")
        if self.refusal is not None:
            return self.refusal
        if word == "nothing":
            self.begun += 1
            return CallAnswer(200, [(SEEN, b"1 0 0")], b'{"messages":[],"backlog":0}')
        assert word == "there"
        return await self._look(request, rest[0])

    async def _look(self, request: CallRequest, stream: str) -> CallAnswer:
        self.credits.expire(self.loop.time())
        most = int(request.target.partition(b"max_messages=")[2].partition(b"&")[0])
        given, self.messages = self.messages[:most], self.messages[most:]
        headers = [(SEEN, b"1 %d %d" % (len(self.messages), len(given)))]
        if self.counts:
            if given:
                self.elsewhere.take(stream, given, self.loop.time() + LEASE_S)
            headers.append(unsettled_header(self.elsewhere.unsettled(stream)))
        if self.look_takes_s and given:
            await asyncio.sleep(self.look_takes_s)
        until_ms = SystemClock().now_ms() + round(LEASE_S * 1_000)
        views = [{"receipt_handle": each, "invisible_until_ms": until_ms} for each in given]
        document = {"messages": views, "backlog": len(self.messages)}
        return CallAnswer(200, headers, json.dumps(document).encode())

    def settle(self, handle: str, new: str | None = None, until_s: float = 0.0) -> None:
        """Ack, or extend."""
        until_ms = None if new is None else round(until_s * 1_000)
        action = "ack" if new is None else "extend"
        settled = SettleResult(handle, action, None, new, until_ms)  # type: ignore[arg-type]
        self.credits.note([settled], lambda ms: ms / 1_000)


class Shards:
    """A relay to them, at the node of `a`."""

    own_shard = "a"

    def __init__(self, **shards: Shard) -> None:
        self.limits = Limits()
        self.stops = asyncio.Event()
        self.shards = shards
        names = sorted(shards)
        topic = SimpleNamespace(queues=len(names), shard_of=lambda at: names[at])
        snapshot = SimpleNamespace(topics={"orders": topic}, groups={"billing": None})
        metadata = SimpleNamespace(shard="a", snapshot=snapshot)
        self.places = SimpleNamespace(topic=lambda _: topic, metadata=metadata)
        self.room = CallAnswer(204, [], b"")
        self.breaks: Exception | None = None
        """How the place is lost before its head."""

    def is_up(self, _shard: str) -> bool:
        return True

    async def body_of(self, _exchange: RequestContext) -> bytes:
        return b""

    async def call(
        self, _: RequestContext, shard: str, request: CallRequest, *, seconds: float, sends: bool
    ) -> CallAnswer:
        assert not sends
        if request.asks == ROOM:
            return self.room
        try:
            async with asyncio.timeout(seconds):
                return await self.shards[shard].call(request)
        except TimeoutError:
            raise ShardUnavailable("it is silent") from None

    @asynccontextmanager
    async def in_parts(
        self, _exchange: RequestContext, shard: str, request: CallRequest
    ) -> AsyncIterator[Any]:
        assert (shard, request.asks) == ("a", PLACE)
        if self.breaks is not None:
            raise self.breaks
        yield SimpleNamespace(status=200, headers=[], take=asyncio.Event().wait)


class Client:
    """Follows a stream."""

    def __init__(self, shards: Shards, query: str) -> None:
        relay = cast("Relay", shards)
        self.streams = GroupStreams(relay, ReceivesInTurn(relay))
        self.said = b""
        self.status = 0
        scope = {
            "method": "GET",
            "path": PATH,
            "query_string": query.encode(),
            "headers": [(b"accept", b"application/x-ndjson")],
        }
        memory = MemoryBudget(Limits())
        self.exchange = RequestContext(scope, self._receive, self._send, b"id", memory)

    async def _receive(self) -> Event:
        return cast("Event", await asyncio.Future())

    async def _send(self, event: Event) -> None:
        self.status = event.get("status", self.status)
        self.said += event.get("body", b"")

    async def follow(self) -> None:
        assert await self.streams.answered(self.exchange, ("orders", "billing"))

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.said.split(b"\n") if line]

    @property
    def handles(self) -> list[str]:
        return [each["receipt_handle"] for each in self.lines if "receipt_handle" in each]


@asynccontextmanager
async def following(shards: Shards, query: str) -> AsyncIterator[Client]:
    client = Client(shards, query)
    work = asyncio.ensure_future(client.follow())
    await asyncio.sleep(0.1)
    try:
        yield client
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


def in_time(work: Callable[[], Awaitable[None]]) -> None:
    async def run() -> None:
        await work()

    in_virtual_time(run())


async def until_s(seconds: float) -> None:
    await asyncio.sleep(seconds - asyncio.get_running_loop().time())


@pytest.mark.parametrize("credit", [1, 2])
def test_an_extended_message_counts_for_longer(credit: int) -> None:
    """With a credit of 2 there is room all the time."""

    async def work() -> None:
        shard = Shard("1")
        async with following(Shards(a=shard, b=Shard()), f"credit={credit}") as client:
            assert client.handles == ["1"]
            await until_s(25.0)
            shard.settle("1", "1b", 80.0)
            await until_s(35.0)
            shard.messages = ["2", "3", "4"]
            await until_s(50.0)
            assert len(client.handles) == credit
            shard.settle("1b")
            await until_s(52.0)
            assert len(client.handles) == credit + 1

    in_time(work)


def test_what_is_settled_is_heard_at_once_after_many_gives() -> None:
    """A listen and a look tell of the same version; a wait is over without news."""

    async def work() -> None:
        shard = Shard("1", "2")
        async with following(Shards(a=shard, b=Shard()), "credit=1") as client:
            shard.look_takes_s = 0.01
            shard.settle("1")
            await asyncio.sleep(0.1)
            assert client.handles == ["1", "2"]
            shard.messages.append("3")
            shard.settle("2")
            await asyncio.sleep(0.1)
            assert client.handles == ["1", "2", "3"]
            begun_s = asyncio.get_running_loop().time()
            await until_s(begun_s + 20.5)
            shard.messages.append("4")
            shard.settle("3")
            await asyncio.sleep(0.1)
            assert client.handles == ["1", "2", "3", "4"]

    in_time(work)


def test_a_shard_that_says_nothing_of_what_it_gave_gives_no_more_than_the_credit() -> None:
    async def work() -> None:
        shard = Shard(*map(str, range(9)))
        shard.counts = False
        async with following(Shards(a=Shard(), b=shard), "credit=2") as client:
            await until_s(LEASE_S - 1.0)
            assert client.handles == ["0", "1"]
            await until_s(LEASE_S + 1.0)
            assert client.handles == ["0", "1", "2", "3"]

    in_time(work)


def test_a_full_stream_whose_messages_are_extended_has_heartbeats() -> None:
    async def work() -> None:
        shard, extended = Shard("1"), "1"
        async with following(Shards(a=shard, b=Shard()), "credit=1") as client:
            client.said = b""
            for at_s in range(10, 50, 10):
                await until_s(at_s)
                shard.settle(extended, new := f"1 {at_s}", at_s + LEASE_S)
                extended = new
            assert client.said.count(b"\n") == 2

    in_time(work)


def test_no_more_than_so_many_wait_at_a_shard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_streams, "LISTENS_MAX", 0)

    async def work() -> None:
        shard = Shard("1", "2")
        async with following(Shards(a=shard, b=Shard()), "credit=1") as client:
            await until_s(5.0)
            assert shard.listens == [0.0] * 5
            shard.settle("1")
            await until_s(6.5)
            assert client.handles == ["1", "2"]

    in_time(work)


def test_those_that_wait_at_a_shard_are_counted() -> None:
    async def work() -> None:
        shard = Shard("1")
        async with following(Shards(a=shard, b=Shard()), "credit=1") as client:
            assert client.streams._listening["a"] == 1
        assert client.streams._listening["a"] == 0

    in_time(work)


def test_nothing_is_ended_for_a_stream_that_has_no_place() -> None:
    async def work() -> None:
        shards = Shards(a=Shard(), b=Shard())
        shards.room = FULL
        async with following(shards, "force=true") as client:
            assert client.status == 429
        assert [each.begun for each in shards.shards.values()] == [0, 0]
        shards.room = CallAnswer(204, [], b"")
        async with following(shards, "force=true") as client:
            assert client.status == 200
        assert [each.begun for each in shards.shards.values()] == [1, 1]

    in_time(work)


def test_a_node_that_has_not_heard_of_the_group_does_not_end_the_stream() -> None:
    async def work() -> None:
        shards = Shards(a=Shard(), b=Shard("1"))
        shards.shards["b"].refusal = UNKNOWN
        async with following(shards, "") as client:
            shards.shards["a"].messages = ["2"]
            await until_s(3.0)
            assert {"partial": ["b"]} in client.lines
            shards.shards["b"].refusal = None
            await until_s(6.0)
            assert "1" in client.handles
            assert not any("end" in each for each in client.lines)

    in_time(work)


def test_a_place_that_is_lost_before_its_head_ends_the_stream() -> None:
    async def work() -> None:
        shards = Shards(a=Shard(), b=Shard())
        for error in (ShardUnavailable("it sleeps"), RuntimeError("broken")):
            shards.breaks = error
            with pytest.raises(type(error)):
                async with asyncio.timeout(5.0):
                    await Client(shards, "").follow()

    in_time(work)
