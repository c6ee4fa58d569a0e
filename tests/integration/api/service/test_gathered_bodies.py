"""Frames whose bodies come after their heads, in any pieces, over real sockets and both loops."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from app.api.http.request_context import RequestContext
from app.api.server.protocol import HttpProtocol
from app.broker.results import PullRequest
from app.domain.errors import InvalidRequest
from app.domain.limits import KIB, MIB, Limits
from app.domain.message import Message
from tests.support.clients.frames import request_frame
from tests.support.clients.wire import RawConnection, Served, parse, served_node
from tests.support.nodes.waiting import until

pytestmark = pytest.mark.anyio

LIMITS = Limits(
    body_bytes_max=MIB,
    batch_bytes_max=8 * MIB,
    bodies_in_flight_bytes_max=16 * MIB,
    request_body_ms_max=600_000,  # however long the machine stands still
)
PATH = b"/v1/topics/orders/messages:batch"
GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
BODIES = [bytes((number % 251,)) * (64 * KIB) for number in range(100)]
FRAME = request_frame([Message(body) for body in BODIES], "orders")
"""Of 6.3 MiB: room is made for it three times."""
OTHER = request_frame([Message(b"other")], "orders")
ANOTHER = request_frame([Message(b"another")], "orders")


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    return "asyncio", {"use_uvloop": request.param}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Served]:
    async with served_node(tmp_path, LIMITS) as served:
        yield served


def head(size: int, more: bytes = b"", version: bytes = b"1.1") -> bytes:
    lines = b"Host: localhost\r\nContent-Type: application/vnd.curlew.batch\r\n"
    start = b"POST %b HTTP/%b\r\n%b" % (PATH, version, lines)
    return start + b"Content-Length: %d\r\n%b\r\n" % (size, more)


async def begun(server: Served, connection: RawConnection, body: bytes, more: bytes = b"") -> None:
    """The head and a first byte of `body` have come, and the rest is being waited for."""
    before = server.connections.pressure.body_bytes
    await connection.say(head(len(body), more) + body[:1])
    await until(lambda: server.connections.pressure.body_bytes == before + 1)


async def held(server: Served, size: int) -> None:
    """So many bytes of bodies have come and are not answered."""
    await until(lambda: server.connections.pressure.body_bytes == size)


async def stored(server: Served) -> list[bytes]:
    """The bodies of all messages, in order."""
    broker = server.node.broker
    found: list[bytes] = []
    while len(found) < broker.topic_ends.bounds("orders")[0].max_offset:
        pulled = await broker.puller.pull("orders", 0, PullRequest(offset=len(found)))
        found += [bytes(broker.puller.decode(record).body) for record in pulled.read.records]
    return found


@pytest.mark.parametrize("piece", [1_000, 65_537, 700_001, len(FRAME)])
async def test_it_is_stored_as_it_came(server: Served, piece: int) -> None:
    async with contextlib.aclosing(await server.connect()) as connection:
        await begun(server, connection, FRAME)
        for start in range(1, len(FRAME), piece):
            await connection.say(FRAME[start : start + piece])
        answer = await connection.answer()
        assert answer.status == 200, answer.body
        assert msgspec.json.decode(answer.body)["count"] == len(BODIES)
        assert await stored(server) == BODIES
        await held(server, 0)


async def test_what_follows_the_body_is_the_next_request(server: Served) -> None:
    """It comes in one piece with the body's end, and none of it is the body's."""
    async with contextlib.aclosing(await server.connect()) as connection:
        for _ in range(2):
            await begun(server, connection, FRAME)
            await connection.say(FRAME[1:] + GET + head(len(OTHER)) + OTHER + GET)
            statuses = [(await connection.answer()).status for _ in range(4)]
            assert statuses == [200, 200, 200, 200]
        assert await stored(server) == [*BODIES, b"other"] * 2


async def test_a_handler_that_begins_late_gets_its_own_body(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of it has come by then, and the next request, too."""
    may_read = asyncio.Event()
    read_own_body = RequestContext.read_own_body

    async def late(
        exchange: RequestContext, limit: int, too_large: Callable[[int], InvalidRequest]
    ) -> bytes | bytearray | memoryview:
        await may_read.wait()
        return await read_own_body(exchange, limit, too_large)

    monkeypatch.setattr(RequestContext, "read_own_body", late)
    came: list[bytes] = []
    data_received = HttpProtocol.data_received

    def noting(protocol: HttpProtocol, data: bytes) -> None:
        data_received(protocol, data)
        came.append(data)

    monkeypatch.setattr(HttpProtocol, "data_received", noting)
    async with contextlib.aclosing(await server.connect()) as connection:
        await connection.say(head(len(OTHER)) + OTHER[:1])
        await until(lambda: len(came) == 1)
        await connection.say(OTHER[1:] + head(len(ANOTHER)) + ANOTHER[:1])
        await until(lambda: len(came) == 2)
        may_read.set()
        assert (await connection.answer()).status == 200
        await connection.say(ANOTHER[1:])
        assert (await connection.answer()).status == 200
    assert await stored(server) == [b"other", b"another"]


async def test_what_follows_the_body_is_checked_as_ever(server: Served) -> None:
    async with contextlib.aclosing(await server.connect()) as connection:
        await begun(server, connection, FRAME)
        await connection.say(FRAME[1:] + b"nonsense\r\n\r\n")
        assert (await connection.answer()).headers["connection"] == "close"
        assert await connection.rest() == b""
        assert await stored(server) == BODIES


@pytest.mark.parametrize(
    ("more", "version"), [(b"Connection: close\r\n", b"1.1"), (b"", b"1.0")], ids=["close", "1.0"]
)
async def test_the_connection_ends_when_it_was_to_end(
    server: Served, more: bytes, version: bytes
) -> None:
    async with contextlib.aclosing(await server.connect()) as connection:
        await connection.say(head(len(FRAME), more, version) + FRAME[:1])
        await until(lambda: server.connections.pressure.body_bytes == 1)
        await connection.say(FRAME[1:] + GET)
        answer = parse(await connection.rest())
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert await stored(server) == BODIES


async def test_continue_is_said_once(server: Served) -> None:
    async with contextlib.aclosing(await server.connect()) as connection:
        await connection.say(head(len(FRAME), b"Expect: 100-continue\r\n"))
        assert await connection.until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        await connection.say(FRAME)
        assert (await connection.answer()).status == 200
        await connection.say(GET)
        assert (await connection.answer()).status == 200


async def test_a_client_that_leaves_in_the_middle_leaves_nothing(server: Served) -> None:
    for sent in (2, 3 * MIB, len(FRAME) - 1):
        async with contextlib.aclosing(await server.connect()) as connection:
            await begun(server, connection, FRAME)
            await connection.say(FRAME[1:sent])
            await held(server, sent)
        await until(lambda: server.connections.open_count == 0)
        await held(server, 0)
    assert await stored(server) == []


async def test_a_body_that_is_too_slow_is_refused(tmp_path: Path) -> None:
    limits = replace(
        LIMITS,
        request_body_ms_max=400,
        request_body_bytes_per_second_min=MIB,
        linger_ms_max=600_000,
    )
    async with (
        served_node(tmp_path, limits) as server,
        contextlib.aclosing(await server.connect()) as connection,
    ):
        await begun(server, connection, FRAME)
        await connection.say(FRAME[1:KIB])
        answer = parse(await connection.rest())
        assert (answer.status, answer.code) == (408, "REQUEST_TIMEOUT")
        await held(server, 0)
        assert await stored(server) == []


async def test_a_body_over_the_bound_of_all_bodies_is_refused_while_it_comes(
    tmp_path: Path,
) -> None:
    """And the connection that was refused holds nothing more, though it goes on sending."""
    limits = Limits(
        body_bytes_max=MIB, batch_bytes_max=8 * MIB, bodies_in_flight_bytes_max=16 * MIB
    )
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(served_node(tmp_path, limits))
        clients = [await server.connect() for _ in range(3)]
        for each in clients:
            await stack.enter_async_context(contextlib.aclosing(each))
        for number, each in enumerate(clients[:2], 1):
            await begun(server, each, FRAME)
            await each.say(FRAME[1:-1])
            await held(server, number * (len(FRAME) - 1))
        with contextlib.suppress(ConnectionError):
            await clients[2].say(head(len(FRAME)) + FRAME)
        answer = parse(await clients[2].rest())
        assert (answer.status, answer.code) == (503, "SYSTEM_BUSY")
        await held(server, 2 * (len(FRAME) - 1))
        for each in clients[:2]:
            await each.say(FRAME[-1:])
            assert (await each.answer()).status == 200
        assert await stored(server) == BODIES * 2
        await held(server, 0)
