"""A client that is killed in the middle of anything leaves nothing behind.

Every hot operation, in each of its moments, ended by a reset, by an orderly close and by a
half-close. Afterwards: no connection, no waiter, no stream, no task, no byte that is counted as in
flight, nothing stored of a request that was not whole, and no message that nobody was sent is
leased.
"""

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

import pytest

from app.broker.journal.append_future import AppendFuture
from app.broker.leasing.subscriptions import Held, Subscription
from app.broker.results import ReceiveRequest
from app.domain.limits import KIB, Limits
from app.domain.message import Message
from app.domain.positions import FlushMode
from app.domain.settings import TopicSettings
from tests.support.clients.wire import RawConnection, Served, served_node
from tests.support.nodes.brokers import put_topic
from tests.support.nodes.waiting import until

pytestmark = pytest.mark.anyio

LIMITS = Limits(stream_heartbeat_ms=600_000, stream_unread_ms_max=600_000)
SENT = 200 * KIB
ANNOUNCED = 300 * KIB
_NUMBERS = count(1)


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    async with served_node(tmp_path_factory.mktemp("killed"), LIMITS) as served:
        yield served


@pytest.fixture
async def topic(server: Served) -> str:
    """A topic of one queue for one test."""
    name = f"t{next(_NUMBERS)}"
    await put_topic(server.node.broker, name, TopicSettings(queues=1, flush=FlushMode.SYNC))
    return name


# --- how a client ends


def _reset(connection: RawConnection) -> None:
    raw = connection.writer.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.writer.transport.abort()


def _close(connection: RawConnection) -> None:
    connection.writer.close()


def _half_close(connection: RawConnection) -> None:
    connection.writer.write_eof()


ENDS: dict[str, Callable[[RawConnection], None]] = {
    "reset": _reset,
    "close": _close,
    "half-close": _half_close,
}


# --- what is left


@dataclass
class Before:
    """What there was before the client came."""

    tasks: set["asyncio.Task[object]"]
    end: int


def before(server: Served, topic: str) -> Before:
    return Before(asyncio.all_tasks(), log_end(server, topic))


def log_end(server: Served, topic: str) -> int:
    return server.node.broker.topic_ends.bounds(topic)[0].max_offset


async def nothing_is_left(server: Served, earlier: Before) -> None:
    """Wait until it is so; a message that says what is left otherwise."""
    broker, pressure = server.node.broker, server.connections.pressure

    def left() -> dict[str, object]:
        found: dict[str, object] = {
            "connections": server.connections.open_count,
            "waiters": broker.waiting_count,
            "streams": broker.streams.open_count,
            "credit": broker.streams.credits.held_count,
            "bytes of bodies": pressure.body_bytes,
            "bytes of answers": pressure.answer_bytes,
            "bytes to be written": broker.store.status().pending_bytes,
            "tasks": [task for task in asyncio.all_tasks() - earlier.tasks if not task.done()],
        }
        return {name: value for name, value in found.items() if value}

    try:
        await until(lambda: not left())
    except TimeoutError:
        raise AssertionError(left()) from None


async def received(server: Served, topic: str) -> list[tuple[bytes, int]]:
    """Body and attempt of all that group `g` can have now."""
    request = ReceiveRequest(max_messages=1_000)
    result = await server.node.broker.receiver.receive(topic, "g", request, gone=lambda: False)
    return [(each.message.body, each.attempt) for each in result.deliveries]


# --- in the middle of a request

WITH_BODY = {
    "send": ("POST", "/v1/topics/{topic}/messages", ()),
    "send once": ("POST", "/v1/topics/{topic}/messages", (b"Idempotency-Key: k",)),
    "batch": (
        *("POST", "/v1/topics/{topic}/messages:batch"),
        (b"Content-Type: application/json",),
    ),
    "frame": (
        *("POST", "/v1/topics/{topic}/messages:batch"),
        (b"Content-Type: application/vnd.curlew.batch",),
    ),
    "compressed lines": (
        *("POST", "/v1/topics/{topic}/messages:batch"),
        (b"Content-Type: application/x-ndjson", b"Content-Encoding: gzip"),
    ),
    "request": ("POST", "/v1/topics/{topic}/messages:request?wait=30", ()),
    "reply": ("POST", "/v1/replies/nobody", ()),
    "pull": ("GET", "/v1/topics/{topic}/queues/0/messages?offset=0&wait=30", ()),
    "receive": (
        *("POST", "/v1/topics/{topic}/groups/g/messages:receive?wait=30"),
        (b"Content-Type: application/json",),
    ),
    "settle": (
        *("POST", "/v1/topics/{topic}/groups/g/messages:settle"),
        (b"Content-Type: application/json",),
    ),
    "stream": ("GET", "/v1/topics/{topic}/stream", ()),
}


def head_of(name: str, topic: str, length: bytes) -> bytes:
    method, path, headers = WITH_BODY[name]
    lines = [f"{method} {path.format(topic=topic)} HTTP/1.1".encode(), b"Host: localhost"]
    return b"\r\n".join([*lines, *headers, length, b"", b""])


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("framing", ["length", "chunks"])
@pytest.mark.parametrize("name", WITH_BODY)
async def test_in_the_middle_of_a_body(
    server: Served, topic: str, name: str, framing: str, end: str
) -> None:
    earlier = before(server, topic)
    connection = await server.connect()
    if framing == "length":
        await connection.say(head_of(name, topic, b"Content-Length: %d" % ANNOUNCED))
        await connection.say(bytes(SENT))
    else:
        await connection.say(head_of(name, topic, b"Transfer-Encoding: chunked"))
        await connection.say(b"%x\r\n%b" % (ANNOUNCED, bytes(SENT)))
    await until(lambda: server.connections.pressure.body_bytes == SENT)
    ENDS[end](connection)
    await nothing_is_left(server, earlier)
    assert log_end(server, topic) == earlier.end
    _close(connection)


@pytest.mark.parametrize("end", ENDS)
async def test_in_the_middle_of_a_head(server: Served, topic: str, end: str) -> None:
    earlier = before(server, topic)
    connection = await server.connect()
    await connection.say(head_of("send", topic, b"Content-Length: 1")[:-2])
    await until(lambda: server.connections.open_count == 1)
    ENDS[end](connection)
    await nothing_is_left(server, earlier)
    assert log_end(server, topic) == earlier.end
    _close(connection)


# --- while it waits for an answer

WAITING = {
    "pull": (b"GET", "/v1/topics/{topic}/queues/0/messages?offset=0&wait=30", b""),
    "pull of several": (
        *(b"GET", "/v1/topics/{topic}/queues/0/messages?offset=0&wait=30&min_messages=9"),
        b"",
    ),
    "receive": (b"POST", "/v1/topics/{topic}/groups/g/messages:receive?wait=30", b""),
    "receive of several": (
        *(b"POST", "/v1/topics/{topic}/groups/g/messages:receive?wait=30&min_messages=9"),
        b"",
    ),
    "raw receive": (
        b"POST",
        "/v1/topics/{topic}/groups/g/messages:receive?wait=30&format=raw",
        b"",
    ),
    "request": (b"POST", "/v1/topics/{topic}/messages:request?wait=30", b"ping"),
    "events": (b"GET", "/v1/topics/{topic}/stream", b""),
    "leased events": (b"GET", "/v1/topics/{topic}/groups/g/stream", b""),
    "positions": (b"GET", "/v1/topics:positions?topics={topic}&wait=30&known={state}", b""),
}


def whole(method: bytes, path: str, body: bytes, *headers: bytes) -> bytes:
    lines = [b"%b %b HTTP/1.1" % (method, path.encode()), b"Host: localhost", *headers]
    return b"\r\n".join([*lines, b"Content-Length: %d" % len(body), b"", body])


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("accept", [b"application/json", b"application/x-ndjson"])
@pytest.mark.parametrize("name", WAITING)
async def test_while_it_waits(
    server: Served, topic: str, name: str, accept: bytes, end: str
) -> None:
    method, path, body = WAITING[name]
    if "events" in name and accept == b"application/json":
        accept = b"text/event-stream"
    earlier = before(server, topic)
    connection = await server.connect()
    path = path.format(topic=topic, state=(await server.node.broker.topic_ends.look([topic])).state)
    await connection.say(whole(method, path, body, b"Accept: " + accept))
    await until(lambda: server.node.broker.waiting_count == 1)
    ENDS[end](connection)
    await nothing_is_left(server, earlier)
    _close(connection)
    await server.node.broker.sender.send(topic, Message(b"next"))
    expected = [(b"ping", 1)] if name == "request" else []
    assert await received(server, topic) == [*expected, (b"next", 1)]


# --- while its request is being worked on

AT_WORK = {
    "send": (b"POST", "/v1/topics/{topic}/messages", b"mine", 1),
    "batch": (b"POST", "/v1/topics/{topic}/messages:batch", b'{"messages":[{"text":"mine"}]}', 1),
    "request": (b"POST", "/v1/topics/{topic}/messages:request?wait=30", b"mine", 1),
    "pull": (b"GET", "/v1/topics/{topic}/queues/0/messages?offset=0", b"", 0),
    "browse": (b"GET", "/v1/topics/{topic}/messages", b"", 0),
    "receive": (b"POST", "/v1/topics/{topic}/groups/g/messages:receive", b"", 0),
    "waiting receive": (b"POST", "/v1/topics/{topic}/groups/g/messages:receive?wait=30", b"", 0),
    "raw receive": (b"POST", "/v1/topics/{topic}/groups/g/messages:receive?format=raw", b"", 0),
    "events": (b"GET", "/v1/topics/{topic}/stream?at=earliest", b"", 0),
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("name", AT_WORK)
async def test_while_its_request_is_worked_on(
    server: Served, topic: str, name: str, end: str
) -> None:
    """The whole request and the end come at once; what it asked for is done or not, and over."""
    await server.node.broker.sender.send(topic, Message(b"theirs"))
    method, path, body, most = AT_WORK[name]
    earlier = before(server, topic)
    for _ in range(5):
        connection = await server.connect()
        connection.writer.write(
            whole(method, path.format(topic=topic), body, b"Content-Type: application/json")
        )
        ENDS[end](connection)
        await nothing_is_left(server, earlier)
        _close(connection)
    assert earlier.end <= log_end(server, topic) <= earlier.end + 5 * most


LEASING = {
    "receive": (b"POST", "/v1/topics/{topic}/groups/g/messages:receive", b""),
    "raw receive": (b"POST", "/v1/topics/{topic}/groups/g/messages:receive?format=raw", b""),
    "waiting receive": (b"POST", "/v1/topics/{topic}/groups/g/messages:receive?wait=30", b""),
    "leased events": (b"GET", "/v1/topics/{topic}/groups/g/stream?credit=1", b""),
    "leased lines": (b"GET", "/v1/topics/{topic}/groups/g/stream?credit=1", b""),
}


@contextlib.contextmanager
def held_up(server: Served) -> Iterator[list[Callable[[], None]]]:
    """Deliveries are written down only when the test calls what it finds in the list."""
    progress = server.node.broker.consumer_journal
    real, confirm = progress.hand_out, list[Callable[[], None]]()

    def hand_out(subscription: Subscription, leased: Sequence[Held], until_ms: int) -> AppendFuture:
        real(subscription, leased, until_ms)
        confirmation = AppendFuture()
        confirm.append(lambda: confirmation.done(None))
        return confirmation

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(progress, "hand_out", hand_out)
        yield confirm


@pytest.mark.parametrize("end", ["reset", "close"])
@pytest.mark.parametrize("name", LEASING)
async def test_a_message_is_leased_only_when_it_was_written_to_an_open_connection(
    server: Served, topic: str, name: str, end: str
) -> None:
    """The end comes while the log is told of the delivery, as with a slow disk."""
    await server.node.broker.sender.send(topic, Message(b"x"))
    method, path, body = LEASING[name]
    accept = b"Accept: application/x-ndjson" if name == "leased lines" else b"Accept: */*"
    earlier = before(server, topic)
    connection = await server.connect()
    with held_up(server) as confirm:
        await connection.say(whole(method, path.format(topic=topic), body, accept))
        await until(lambda: len(confirm) == 1)
        ENDS[end](connection)
        await until(lambda: server.connections.open_count == 0)
        confirm.pop()()
    await nothing_is_left(server, earlier)
    assert await received(server, topic) == [(b"x", 1)]
