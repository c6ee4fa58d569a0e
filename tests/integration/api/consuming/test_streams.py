"""Streams over HTTP: what they give, how they end, and clients that are slow or die."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.broker.results import BatchItem
from app.broker.streams.stream import StreamEnd
from app.domain.limits import KIB, MIB, Limits
from app.domain.message import Message
from tests.support.clients.wire import RawConnection, Served, served_node
from tests.support.nodes.waiting import until

pytestmark = pytest.mark.anyio

ORDERS = "/v1/topics/orders"
G = f"{ORDERS}/groups/g"
LINES = {"accept": "application/x-ndjson"}
LIMITS = Limits(
    streams_max=3,
    stream_heartbeat_ms=100,
    stream_unread_ms_max=600_000,  # however long the machine stands still
    stream_chunk_bytes_max=64 * KIB,
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


async def send(server: Served, *bodies: bytes, tag: str | None = None) -> None:
    items = [BatchItem(Message(body, tag=tag)) for body in bodies]
    await server.node.broker.sender.send_batch("orders", items)


async def lines_of(answer: httpx.Response) -> AsyncIterator[Any]:
    """The JSON of each line, and None for a heartbeat."""
    async for line in answer.aiter_lines():
        yield json.loads(line) if line else None


async def beyond_heartbeats(lines: AsyncIterator[Any]) -> Any:
    """The next line with something in it."""
    line = await anext(lines)
    while line is None:
        line = await anext(lines)
    return line


def events_in(text: str) -> Iterator[dict[str, str]]:
    """The events of a whole stream, as the standard parses them."""
    for block in text.split("\n\n"):
        fields = [line.partition(": ") for line in block.split("\n") if line]
        event = {name: value for name, _, value in fields if name}
        if "data" in event:
            yield event


async def test_events(server: Served, http: httpx.AsyncClient) -> None:
    await send(server, b"a\nb", bytes(range(256)), b'{"c":1}')
    answer = await http.get(f"{ORDERS}/stream?at=earliest&max_messages=3")
    assert answer.headers["content-type"] == "text/event-stream"
    assert answer.headers["cache-control"] == "no-store"
    *messages, end = events_in(answer.text)
    views = [json.loads(each["data"]) for each in messages]
    assert [view["queue_offset"] for view in views] == [0, 1, 2]
    assert views[0]["text"] == "a\nb"
    assert "body_base64" in views[1]
    assert end["event"] == "end"
    said = json.loads(end["data"])
    assert said == {"reason": "message_limit", "cursor": end["id"], "retry_after_ms": 1_000}
    for index, event in enumerate(messages[:2]):
        headers = {"last-event-id": event["id"]}
        url = f"{ORDERS}/stream?at=earliest&max_messages=1"  # what a browser asks again
        again = await http.get(url, headers=headers)
        view = json.loads(next(events_in(again.text))["data"])
        assert view == views[index + 1]


async def test_lines(server: Served, http: httpx.AsyncClient) -> None:
    await send(server, b"a")
    url = f"{ORDERS}/stream?at=earliest&max_messages=2"
    async with http.stream("GET", url, headers=LINES) as answer:
        lines = lines_of(answer)
        assert await anext(lines) is None  # at once, so that the client knows
        first = await anext(lines)
        assert (first["text"], first["queue_offset"]) == ("a", 0)
        await send(server, b"b")
        second = await beyond_heartbeats(lines)
        assert await anext(lines) == {
            "end": {
                "reason": "message_limit",
                "cursor": second["cursor"],
                "retry_after_ms": 1_000,
            }
        }
    again = await http.get(
        f"{ORDERS}/stream?max_messages=1&cursor={first['cursor']}", headers=LINES
    )
    assert json.loads(again.text.split("\n")[1]) == second


async def test_heartbeats_come_and_take_the_cursor_along(
    server: Served, http: httpx.AsyncClient
) -> None:
    async with http.stream("GET", f"{ORDERS}/stream?filter=yes", headers=LINES) as answer:
        lines = lines_of(answer)
        assert await anext(lines) is None
        assert "cursor" in await anext(lines)
        assert await anext(lines) is None
        await send(server, b"a", tag="no")
        moved = await beyond_heartbeats(lines)
        assert list(moved) == ["cursor"]
        await send(server, b"b", tag="yes")
        assert (await beyond_heartbeats(lines))["text"] == "b"
    url = f"{ORDERS}/stream?max_messages=1&cursor={moved['cursor']}"
    again = await http.get(url, headers=LINES)
    assert '"text":"b"' in again.text


async def test_credit(server: Served, http: httpx.AsyncClient) -> None:
    await send(server, *[b"%d" % number for number in range(5)])
    async with http.stream("GET", f"{G}/stream?credit=2&max_messages=5", headers=LINES) as answer:
        lines = lines_of(answer)
        held: list[Any] = []
        seen: list[str] = []
        async for each in lines:
            if each is not None and "end" in each:
                assert each["end"] == {"reason": "message_limit", "retry_after_ms": 1_000}
            elif each is not None:
                assert each["delivery_attempt"] == 1
                held.append(each["receipt_handle"])
                seen.append(each["text"])
                assert len(held) <= 2
            elif held and len(held) == 2:
                acked = await http.delete(f"/v1/receipts/{held.pop()}")
                assert acked.status_code == 204
        assert seen == ["0", "1", "2", "3", "4"]


async def test_a_killed_client_frees_its_stream_at_once(
    server: Served, http: httpx.AsyncClient
) -> None:
    streams = server.node.broker.streams
    for path in (f"{ORDERS}/stream", f"{G}/stream?credit=1"):
        async with following(server, path) as connection:
            await until(lambda: server.node.broker.waiting_count == 1)
            connection.writer.transport.abort()
            await until(lambda: streams.open_count == 0)
            assert server.node.broker.waiting_count == 0
    await send(server, b"a")
    taken = await http.post(f"{G}/messages:receive")
    assert [message["text"] for message in taken.json()["messages"]] == ["a"]


async def test_a_client_that_is_killed_while_it_reads_nothing_holds_only_what_was_sent(
    server: Served, http: httpx.AsyncClient
) -> None:
    """It asks for a thousand messages of 16 KiB and takes in what its socket holds."""
    await send(server, *[b"x" * 16 * KIB] * 1_000)
    broker, size, looks = server.node.broker, -1, 0
    async with reluctant(server, f"{G}/stream?credit=1000") as connection:
        while looks < 20:  # until it takes no more
            await until(lambda: holds_back(server))
            await http.get("/healthz")
            looks = looks + 1 if 0 < size == broker.streams.credits.held_count else 0
            size = broker.streams.credits.held_count
        assert 0 < size < 900
        connection.writer.transport.abort()
        await until(lambda: broker.streams.open_count == 0)
    taken = await http.post(f"{G}/messages:receive?max_messages=1000&max_bytes={8 * MIB}")
    rest = await http.post(f"{G}/messages:receive?max_messages=1000&max_bytes={8 * MIB}")
    count = sum(len(each.json()["messages"]) for each in (taken, rest))
    assert count == 1_000 - size


@contextlib.asynccontextmanager
async def following(server: Served, path: str) -> AsyncIterator[RawConnection]:
    """A connection on which a stream of events has begun."""
    async with contextlib.aclosing(await server.connect()) as connection:
        await connection.say(b"GET %b HTTP/1.1\r\nHost: localhost\r\n\r\n" % path.encode())
        await connection.until(b"retry: 1000\n\n")
        yield connection


def holds_back(server: Served) -> bool:
    """Whether a stream waits for its reader."""
    connections: Any = server.connections._open
    return any(each.flow.write_paused for each in connections)


def unread(server: Served) -> int:
    """Bytes that the server holds because their readers do not take them."""
    connections: Any = server.connections._open
    return sum(each.transport.get_write_buffer_size() for each in connections)


@contextlib.asynccontextmanager
async def reluctant(server: Served, path: str) -> AsyncIterator[RawConnection]:
    """A client that asks and never reads, with a small socket."""
    raw = socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * KIB)
    raw.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(raw, ("127.0.0.1", server.port))
    reader, writer = await asyncio.open_connection(sock=raw, limit=4 * KIB)
    async with contextlib.aclosing(RawConnection(reader, writer)) as connection:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await connection.say(b"GET %b HTTP/1.1\r\nHost: localhost\r\n\r\n" % path.encode())
        yield connection


async def test_a_slow_reader_costs_a_chunk_and_is_told_why_it_was_ended(tmp_path: Path) -> None:
    limits = replace(LIMITS, stream_unread_ms_max=300)
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(served_node(tmp_path, limits))
        await send(server, *[b"x" * 64 * KIB] * 200)
        reader = reluctant(server, f"{ORDERS}/stream?at=earliest")
        connection = await stack.enter_async_context(reader)
        await until(lambda: server.node.broker.streams.ends[StreamEnd.SLOW_READER] == 1)
        assert 0 < unread(server) < 1 * MIB
        connection.writer.transport.resume_reading()  # type: ignore[attr-defined]
        said = b""
        while not said.endswith(b"\r\n0\r\n\r\n"):
            said = said[-1_000:] + await connection.reader.read(64 * KIB)
        assert b"event: end\n" in said
        assert b'"reason":"slow_reader"' in said


async def test_a_node_that_drains_ends_all_streams_and_says_so(tmp_path: Path) -> None:
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(served_node(tmp_path, LIMITS))
        await send(server, *[b"x" * 64 * KIB] * 200)
        idle = await stack.enter_async_context(following(server, f"{ORDERS}/stream"))
        await stack.enter_async_context(reluctant(server, f"{ORDERS}/stream?at=earliest"))
        await until(lambda: unread(server) > 64 * KIB)
        await server.node.drain()
        assert b'"reason":"draining"' in await idle.until(b"0\r\n\r\n")
        await until(lambda: server.node.broker.streams.open_count == 0)
        assert server.node.broker.streams.ends == {"draining": 2}


async def test_an_end_by_time_is_told(tmp_path: Path) -> None:
    request = b"GET %b HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    async with served_node(tmp_path, Limits(stream_ms_max=50)) as server:
        for path in (f"{ORDERS}/stream", f"{G}/stream"):
            answer = await server.exchange(request % path.encode())
            assert b"event: end\n" in answer
            assert b'"reason":"time_limit"' in answer


async def test_an_end_by_deletion_is_told(server: Served) -> None:
    async with following(server, f"{ORDERS}/stream") as connection:
        await server.node.broker.settings_changes.delete_topic("orders")
        assert b'"reason":"topic_deleted"' in await connection.until(b"0\r\n\r\n")


async def test_an_old_client_gets_a_stream_without_chunks(server: Served) -> None:
    await send(server, b"a")
    request = b"GET %b/stream?at=earliest&max_messages=1 HTTP/1.0\r\nHost: localhost\r\n\r\n"
    answer = await server.exchange(request % ORDERS.encode())
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head
    assert body.startswith(b"retry: 1000\n\n")
    assert body.endswith(b"}\n\n")


async def test_too_many_streams(server: Served, http: httpx.AsyncClient) -> None:
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(3):
            stream = http.stream("GET", f"{ORDERS}/stream")
            await stack.enter_async_context(stream)
        answer = await http.get(f"{ORDERS}/stream")
        assert (answer.status_code, answer.json()["code"]) == (429, "TOO_MANY_REQUESTS")
        assert answer.headers["retry-after"] == "1"
        metrics = (await http.get("/metrics")).text
        assert "curlew_streams 3" in metrics
    await until(lambda: server.node.broker.streams.open_count == 0)
    metrics = (await http.get("/metrics")).text
    assert 'curlew_stream_ends_total{reason="client_gone"} 3' in metrics


@pytest.mark.parametrize(
    ("path", "headers", "code"),
    [
        (f"{ORDERS}/stream", {"accept": "text/html"}, "NOT_ACCEPTABLE"),
        (f"{ORDERS}/stream?at=yesterday", {}, "BAD_REQUEST"),
        (f"{ORDERS}/stream?at=earliest&tail=1", {}, "ILLEGAL_OFFSET"),
        (f"{ORDERS}/stream?offset=1", {}, "OFFSET_OUT_OF_RANGE"),
        (f"{ORDERS}/stream", {"last-event-id": "17"}, "ILLEGAL_OFFSET"),
        (f"{ORDERS}/stream?credit=1", {}, "BAD_REQUEST"),
        (f"{ORDERS}/stream?filter=a||", {}, "ILLEGAL_FILTER_EXPRESSION"),
        (f"{ORDERS}/stream?queue_id=7", {}, "QUEUE_NOT_FOUND"),
        ("/v1/topics/orderz/stream", {}, "TOPIC_NOT_FOUND"),
        (f"{G}/stream?credit=0", {}, "BAD_REQUEST"),
        (f"{G}/stream?cursor=c1.AA", {}, "BAD_REQUEST"),
        (f"{G}/stream?invisible=1ms", {}, "ILLEGAL_INVISIBLE_TIME"),
        ("/v1/topics/orderz/groups/g/stream", {}, "TOPIC_NOT_FOUND"),
    ],
)
async def test_what_cannot_be_streamed_is_a_problem_and_no_stream(
    http: httpx.AsyncClient, path: str, headers: dict[str, str], code: str
) -> None:
    answer = await http.get(path, headers=headers)
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["code"] == code


async def test_a_stream_leaves_the_connection_usable(
    server: Served, http: httpx.AsyncClient
) -> None:
    await send(server, b"a")
    connection = await server.connect()
    async with contextlib.aclosing(connection):
        path = f"{ORDERS}/stream?at=earliest&max_messages=1".encode()
        for _ in range(2):
            await connection.say(b"GET %b HTTP/1.1\r\nHost: localhost\r\n\r\n" % path)
            assert b"message_limit" in await connection.until(b"0\r\n\r\n")


async def test_a_client_that_leaves_with_a_request_in_the_queue_frees_its_place(
    server: Served,
) -> None:
    streams = server.node.broker.streams
    connection = await server.connect()
    head = b" HTTP/1.1\r\nHost: localhost\r\n\r\n"
    await connection.say(b"GET " + G.encode() + b"/stream" + head + b"GET /healthz" + head)
    await connection.until(b"\r\n\r\n")
    assert streams.open_count == 1
    await connection.aclose()
    await until(lambda: streams.open_count == 0)
