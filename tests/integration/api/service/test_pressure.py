"""Bytes in flight are bounded over all connections, and clients are told before and after."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import httpx
import pytest

from app.api.server.cycle import PIPELINED_MAX
from app.api.server.protocol import HttpProtocol
from app.domain.limits import KIB, MIB, Limits
from app.domain.message import Message
from tests.support.clients.wire import RawConnection, Served, parse_head, served_node
from tests.support.nodes.waiting import until

pytestmark = pytest.mark.anyio

ORDERS = "/v1/topics/orders"
LIMITS = Limits(
    body_bytes_max=512 * KIB,
    batch_bytes_max=512 * KIB,
    bodies_in_flight_bytes_max=1 * MIB,
    answers_in_flight_bytes_max=1 * MIB,
    waiters_max=2,
)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Served]:
    async with served_node(tmp_path, LIMITS) as served:
        yield served


@pytest.fixture
async def http(server: Served) -> AsyncIterator[httpx.AsyncClient]:
    base_url = f"http://127.0.0.1:{server.port}"
    async with httpx.AsyncClient(base_url=base_url, timeout=60) as client:
        yield client


async def half_sent(server: Served, sent: int) -> RawConnection:
    """A connection that has sent `sent` bytes of a body of 512 KiB."""
    connection = await server.connect()
    head = b"POST %b/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
    await connection.say(head % (ORDERS.encode(), 512 * KIB) + bytes(sent))
    return connection


async def test_bodies_are_bounded_by_what_has_come_of_them(
    server: Served, http: httpx.AsyncClient
) -> None:
    pressure = server.connections.pressure
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(5):  # announced are 2.5 MiB, and that takes nothing away
            await stack.enter_async_context(contextlib.aclosing(await half_sent(server, 0)))
        held = [await half_sent(server, 500 * KIB) for _ in range(2)]
        for each in held:
            await stack.enter_async_context(contextlib.aclosing(each))
        await until(lambda: pressure.body_bytes == 1_000 * KIB)

        refused = await http.post(f"{ORDERS}/messages", content=bytes(400 * KIB))
        problem = refused.json()
        assert (refused.status_code, problem["code"]) == (503, "SYSTEM_BUSY")
        assert (problem["outcome"], problem["retryable"]) == ("not_stored", True)
        assert refused.headers["retry-after"] == "1"
        policy = '"bodies";q=1048576;qu="content-bytes"'
        assert refused.headers["ratelimit-policy"] == policy
        assert refused.headers["ratelimit"].startswith('"bodies";r=')
        small = await http.post(f"{ORDERS}/messages", content=b"small")
        assert small.status_code == 201
        assert "curlew_http_busy_total 1" in (await http.get("/metrics")).text

        await held[0].say(bytes(12 * KIB))
        answer = await held[0].answer()
        assert answer.status == 201
        assert answer.headers["ratelimit"] == '"bodies";r=12288'
        again = await http.post(f"{ORDERS}/messages", content=bytes(400 * KIB))
        assert again.status_code == 201
    await until(lambda: pressure.body_bytes == 0)


async def test_killed_clients_give_their_bytes_back(server: Served) -> None:
    held = [await half_sent(server, 500 * KIB) for _ in range(2)]
    await until(lambda: server.connections.pressure.body_bytes == 1_000 * KIB)
    for each in held:
        each.writer.transport.abort()
    await until(lambda: server.connections.pressure.body_bytes == 0)


async def fill(server: Served) -> None:
    """Ten MiB, which is more than sockets take at once."""
    for _ in range(40):
        await server.node.broker.sender.send("orders", Message(bytes(256 * KIB)))


async def test_answers_that_nobody_reads_are_bounded(
    server: Served, http: httpx.AsyncClient
) -> None:
    await fill(server)
    pressure = server.connections.pressure
    path = f"{ORDERS}/queues/0/messages?offset=0&max_messages=40&max_bytes={8 * MIB}"
    connection = await server.connect()
    connection.writer.transport.pause_reading()  # type: ignore[attr-defined]
    await connection.say(b"GET %b HTTP/1.1\r\nHost: localhost\r\n\r\n" % path.encode())
    await until(lambda: pressure.answer_bytes > 1 * MIB)

    reads = [
        await http.get(f"{ORDERS}/queues/0/messages?offset=0"),
        await http.post(f"{ORDERS}/groups/g/messages:receive"),
        await http.get(f"{ORDERS}/stream"),
        await http.get(ORDERS),
    ]
    assert [(each.status_code, each.json()["code"]) for each in reads] == [(503, "SYSTEM_BUSY")] * 4
    assert {each.headers["ratelimit"] for each in reads} == {'"answers";r=0'}
    assert (await http.get("/readyz")).status_code == 200
    assert (await http.post(f"{ORDERS}/messages", content=b"x")).status_code == 201
    nothing_is_leased = server.node.broker.streams.credits.held_count == 0
    assert nothing_is_leased

    connection.writer.transport.resume_reading()  # type: ignore[attr-defined]
    length = int(parse_head(await connection.until(b"\r\n\r\n")).headers["content-length"])
    await asyncio.wait_for(connection.reader.readexactly(length), 10)
    await until(lambda: pressure.answer_bytes == 0)
    assert (await http.get(f"{ORDERS}/queues/0/messages?offset=0")).status_code == 200
    await connection.aclose()


async def test_a_reader_that_is_killed_gives_its_bytes_back(server: Served) -> None:
    await fill(server)
    path = f"{ORDERS}/queues/0/messages?offset=0&max_messages=40&max_bytes={8 * MIB}"
    connection = await server.connect()
    connection.writer.transport.pause_reading()  # type: ignore[attr-defined]
    await connection.say(b"GET %b HTTP/1.1\r\nHost: localhost\r\n\r\n" % path.encode())
    await until(lambda: server.connections.pressure.answer_bytes > 0)
    connection.writer.transport.abort()
    await until(lambda: server.connections.pressure.answer_bytes == 0)


async def test_a_pipelined_request_waits_for_the_one_before(server: Served) -> None:
    """So one connection holds one body and one answer."""
    poll = b"GET %b/queues/0/messages?offset=0&wait=20 HTTP/1.1\r\nHost: localhost\r\n\r\n"
    connection = await server.connect()
    async with contextlib.aclosing(connection):
        for _ in range(3):
            await connection.say(poll % ORDERS.encode())
        await until(lambda: server.node.broker.waiting_count == 1)
        await server.node.broker.sender.send("orders", Message(b"x"))
        for _ in range(3):
            assert (await connection.answer()).status == 200


async def test_requests_that_wait_on_a_connection_are_bounded(server: Served) -> None:
    """Each answer read on, however many requests waited: 4 MiB of small ones took 170 MiB."""
    request = b"GET %b HTTP/1.1\r\nHost: localhost\r\nX: %b\r\n\r\n"
    request %= ORDERS.encode(), b"a" * 2 * KIB
    count, of_a_read = 1_500, 256 * KIB // len(request)
    connection = await server.connect()
    async with contextlib.aclosing(connection):
        saying = asyncio.ensure_future(connection.say(request * count))
        waiting = []
        for _ in range(count):
            assert (await connection.answer()).status == 200
            served = next(iter(server.connections._open))
            waiting.append(len(cast("HttpProtocol", served).pipeline))
        await saying
    assert 0 < max(waiting) <= of_a_read + PIPELINED_MAX


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", f"{ORDERS}/queues/0/messages?offset=0"),
        ("POST", f"{ORDERS}/groups/g/messages:receive?invisible=1s"),
    ],
)
async def test_too_many_that_wait_are_told_and_before_that_how_many_may(
    server: Served, http: httpx.AsyncClient, method: str, path: str
) -> None:
    wait = f"{path}&wait=20"
    waiting = [asyncio.ensure_future(http.request(method, wait)) for _ in range(2)]
    await until(lambda: server.node.broker.waiting_count == 2)
    refused = await http.request(method, wait)
    assert (refused.status_code, refused.json()["code"]) == (429, "TOO_MANY_REQUESTS")
    assert refused.headers["retry-after"] == "1"
    assert refused.headers["ratelimit-policy"] == '"waiting";q=2;qu="concurrent-requests"'
    assert refused.headers["ratelimit"] == '"waiting";r=0'
    assert (await http.request(method, path)).status_code == 200
    for body in (b"x", b"y"):
        await server.node.broker.sender.send("orders", Message(body))
    answers: list[Any] = await asyncio.gather(*waiting)
    assert {answer.status_code for answer in answers} == {200}


async def test_long_polls_near_the_bound_say_how_many_more_may_wait(tmp_path: Path) -> None:
    async with served_node(tmp_path, Limits(waiters_max=5)) as server:
        base_url = f"http://127.0.0.1:{server.port}"
        async with httpx.AsyncClient(base_url=base_url, timeout=60) as http:
            url = f"{ORDERS}/queues/0/messages?offset=0&min_messages=2&wait=20"
            parked = [asyncio.ensure_future(http.get(url)) for _ in range(4)]
            await until(lambda: server.node.broker.waiting_count == 4)
            one = asyncio.ensure_future(http.get(f"{ORDERS}/queues/0/messages?offset=0&wait=20"))
            await until(lambda: server.node.broker.waiting_count == 5)
            await server.node.broker.sender.send("orders", Message(b"x"))
            assert (await one).headers["ratelimit"] == '"waiting";r=1'
            await server.node.broker.sender.send("orders", Message(b"y"))
            answers = await asyncio.gather(*parked)
            assert "ratelimit" not in answers[-1].headers
