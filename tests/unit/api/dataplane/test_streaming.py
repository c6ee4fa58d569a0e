"""Streams on a connection that the test holds in its hand: what is written, refused and held up."""

import asyncio
from collections.abc import Callable

import pytest

from app.api.access.named_elsewhere import NamedElsewhere
from app.api.dataplane.streaming import Streaming
from app.api.http.memory_budget import MemoryBudget
from app.api.http.request_context import AT_ONCE, MUST_REACH, ClientGone, Event, RequestContext
from app.api.telemetry.request_metrics import RequestMetrics
from app.domain.limits import Limits
from tests.support.clients.asgi import LOCAL, http_scope
from tests.support.nodes.brokers import GROUP, TOPIC, World, bodies, running
from tests.support.nodes.waiting import until

pytestmark = pytest.mark.anyio

PATIENT = Limits(stream_unread_ms_max=600_000, stream_heartbeat_ms=600_000)
"""Nothing but what a test does ends a stream or makes it write."""
A_DELIVERY = b'"receipt_handle"'


class Client:
    """One request for a stream; it takes everything until the test says otherwise."""

    def __init__(self, world: World, path: str) -> None:
        self.traffic = RequestMetrics()
        self.refuses: bytes | None = None
        """The connection is found broken by whoever writes this."""
        self.stops_at: bytes | None = None
        """The connection takes nothing more from where this would be written."""
        self.is_full_after: bytes | None = None
        """It takes this and then nothing more."""
        self.is_full = False
        self.on_full: Callable[[], object] = lambda: None
        self.blocked = 0
        self.left = asyncio.Event()
        self.said = b""
        self._asked = False
        self._streaming = Streaming(
            world.broker, world.limits, self.traffic, NamedElsewhere(None, None)
        )
        scope = http_scope("GET", path, [LOCAL], b"")
        self.exchange = RequestContext(
            scope, self._receive, self._send, b"r-1", MemoryBudget(world.limits)
        )

    async def _receive(self) -> Event:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, event: Event) -> None:
        part = event.get("body", b"")
        if self.refuses is not None and self.refuses in part:
            assert MUST_REACH in event
            raise ClientGone
        if self.stops_at is not None and self.stops_at in part:
            self.is_full = True
        if self.is_full and AT_ONCE not in event:
            self.blocked += 1
            try:
                await asyncio.Event().wait()
            finally:
                self.blocked -= 1
        self.said += part
        if self.is_full_after is not None and self.is_full_after in part:
            self.is_full = True
            self.on_full()

    async def follow_topic(self) -> None:
        await self._streaming.stream_topic(self.exchange, TOPIC)

    async def follow_group(self) -> None:
        await self._streaming.stream_group(self.exchange, TOPIC, GROUP)


def nothing_is_left(world: World) -> bool:
    streams = world.broker.streams
    return (streams.open_count, streams.credits.held_count, world.waiting) == (0, 0, 0)


async def test_what_a_broken_connection_did_not_take_is_there_for_the_next() -> None:
    """The client left while the messages were being leased: nobody has told the stream yet."""
    async with running(1, PATIENT) as world:
        await world.send(b"1", b"2")
        client = Client(world, "/stream")
        client.refuses = A_DELIVERY
        with pytest.raises(ClientGone):
            await client.follow_group()
        assert nothing_is_left(world)
        again = await world.receive()
        assert bodies(again) == [b"1", b"2"]
        assert [delivery.attempt for delivery in again] == [1, 1]
        assert client.traffic.messages_out == 0


async def test_what_a_client_that_leaves_meanwhile_did_not_take_is_there_for_the_next() -> None:
    async with running(1, PATIENT) as world:
        await world.send(b"1")
        client = Client(world, "/stream")
        client.stops_at = A_DELIVERY
        following = asyncio.ensure_future(client.follow_group())
        await until(lambda: client.blocked == 1)
        assert world.broker.streams.credits.held_count == 1
        client.left.set()
        with pytest.raises(ClientGone):
            await following
        assert nothing_is_left(world)
        [delivery] = await world.receive()
        assert (delivery.message.body, delivery.attempt) == (b"1", 1)
        assert client.traffic.messages_out == 0


async def test_what_was_taken_is_counted_and_stays_leased() -> None:
    """The control of the two above."""
    async with running(1, PATIENT) as world:
        await world.send(b"1")
        client = Client(world, "/stream")
        following = asyncio.ensure_future(client.follow_group())
        await until(lambda: A_DELIVERY in client.said)
        client.left.set()
        with pytest.raises(ClientGone):
            await following
        assert nothing_is_left(world)
        assert await world.receive() == []
        assert client.traffic.messages_out == 1


@pytest.mark.parametrize("kind", ["topic", "group"])
async def test_draining_does_not_wait_for_a_connection_that_takes_nothing(kind: str) -> None:
    """It could for ten minutes here; the end is written without waiting."""
    async with running(1, PATIENT) as world:
        client = Client(world, "/stream")
        client.is_full_after = b"first"
        follow = client.follow_topic if kind == "topic" else client.follow_group
        following = asyncio.ensure_future(follow())
        await until(lambda: world.waiting == 1)
        await world.send(b"first")
        await until(lambda: client.blocked == 1)
        await world.broker.stop()
        await until(following.done)
        assert b'"reason":"draining"' in client.said
        assert world.broker.streams.ends == {"draining": 1}
        assert nothing_is_left(world)


@pytest.mark.parametrize("kind", ["topic", "group"])
async def test_draining_does_not_wait_for_a_connection_that_is_full_a_moment_later(
    kind: str,
) -> None:
    """The node drains between the last part that the connection takes and the wait for it."""
    async with running(1, PATIENT) as world:
        client, stopping = Client(world, "/stream"), list[asyncio.Future[None]]()
        client.is_full_after = b"first"
        client.on_full = lambda: stopping.append(asyncio.ensure_future(world.broker.stop()))
        follow = client.follow_topic if kind == "topic" else client.follow_group
        following = asyncio.ensure_future(follow())
        await until(lambda: world.waiting == 1)
        await world.send(b"first")
        await until(following.done)
        await stopping.pop()
        assert b'"reason":"draining"' in client.said
        assert world.broker.streams.ends == {"draining": 1}
        assert nothing_is_left(world)


async def test_draining_finds_streams_that_write_nothing_unhurried() -> None:
    async with running(1, PATIENT) as world:
        client = Client(world, "/stream")
        following = asyncio.ensure_future(client.follow_topic())
        await until(lambda: world.waiting == 1)
        await world.broker.stop()
        await until(following.done)
        assert world.broker.streams.ends == {"draining": 1}


async def test_a_reader_that_takes_nothing_is_told_so_in_the_end() -> None:
    limits = Limits(stream_unread_ms_max=20, stream_heartbeat_ms=600_000)
    async with running(1, limits) as world:
        client = Client(world, "/stream")
        client.is_full_after = b"retry: "
        await client.follow_topic()
        assert b'"reason":"slow_reader"' in client.said
        assert world.broker.streams.ends == {"slow_reader": 1}
