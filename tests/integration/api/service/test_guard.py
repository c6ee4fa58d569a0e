"""Malformed, oversized and slow requests over raw sockets: each refused for its own reason."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from app.api.server.connections import NEVER
from app.domain.limits import KIB, MIB, Limits
from tests.support.clients.wire import Served, parse, served_node
from tests.support.nodes.waiting import until

pytestmark = pytest.mark.anyio

LONG_MS = 600_000
"""However long the machine stands still."""
SHORT_MS = 200
LIMITS = Limits(
    connections_max=6,
    connections_per_address_max=4,
    first_byte_ms_max=LONG_MS,
    request_head_ms_max=LONG_MS,
    request_body_ms_max=LONG_MS,
    request_body_bytes_per_second_min=MIB,
    idle_connection_ms_max=LONG_MS,
    unread_answer_ms_max=LONG_MS,
    linger_ms_max=LONG_MS,
    body_bytes_max=64 * KIB,
    batch_bytes_max=MIB,
    header_count_max=20,
)
HOST = b"Host: localhost\r\n"
PATH = b"/v1/topics/orders/messages"
GET = b"GET /healthz HTTP/1.1\r\n" + HOST
POST = b"POST " + PATH + b" HTTP/1.1\r\n" + HOST
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
LAST = b"Connection: close\r\n\r\n"
SMUGGLED = b"POST " + PATH + b"?tag=smuggled HTTP/1.1\r\n" + HOST + b"Content-Length: 1\r\n\r\nx"


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    looks_often = replace(LIMITS, linger_ms_max=SHORT_MS)
    async with served_node(tmp_path_factory.mktemp("guarded"), looks_often) as served:
        served.connections.limits = LIMITS
        yield served


Hurry = Callable[..., None]


@pytest.fixture
def hurry(server: Served) -> Iterator[Hurry]:
    """Makes the limits that it is given short until the test is over. All others stay long."""

    def shorten(*names: str) -> None:
        limits = replace(LIMITS, **dict.fromkeys(names, SHORT_MS))
        server.connections.limits = limits

    yield shorten
    server.connections.limits = LIMITS


@pytest.fixture
async def end(server: Served) -> int:
    """Where the log of the topic ends; no connection of another test is open."""
    await until(lambda: server.connections.open_count == 0)
    return log_end(server)


def log_end(server: Served) -> int:
    return server.node.broker.topic_ends.bounds("orders")[0].max_offset


MALFORMED = {
    "garbage": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    "http 2 preface": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    "http 2 version": (b"GET / HTTP/2.0\r\n" + HOST + b"\r\n", 400),
    "http 0.9": (b"GET /healthz\r\n\r\n", 400),
    "bare LF": (b"GET /healthz HTTP/1.1\nHost: localhost\n\n", 400),
    "bare LF after one header": (GET + b"A: b\nC: d\r\n\r\n", 400),
    "folded header": (GET + b"A: b\r\n c\r\n\r\n", 400),
    "NUL in a header": (GET + b"A: b\x00c\r\n\r\n", 400),
    "NUL in the target": (b"GET /\x00 HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    "raw UTF-8 in the target": (b"GET /\xc3\xa9 HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    "space before the colon": (POST + b"Content-Length : 1\r\n\r\nx", 400),
    "no Host": (b"GET /healthz HTTP/1.1\r\n\r\n", 400),
    "two Hosts": (GET + HOST + b"\r\n", 400),
    "Host with a user": (b"GET /healthz HTTP/1.1\r\nHost: localhost@evil\r\n\r\n", 400),
    "Host with a path": (b"GET /healthz HTTP/1.1\r\nHost: localhost/evil\r\n\r\n", 400),
    "another host in the target": (b"GET http://evil/healthz HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    "tunnel": (b"CONNECT localhost:22 HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    "server-wide options": (b"OPTIONS * HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    "length and chunks": (
        POST + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
        400,
    ),
    "chunks and length": (
        POST + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n" + SMUGGLED,
        400,
    ),
    "two lengths": (POST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nxx", 400),
    "length twice": (POST + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\nx", 400),
    "list of lengths": (POST + b"Content-Length: 1, 1\r\n\r\nx", 400),
    "signed length": (POST + b"Content-Length: +1\r\n\r\nx", 400),
    "negative length": (POST + b"Content-Length: -1\r\n\r\n", 400),
    "hexadecimal length": (POST + b"Content-Length: 0x1\r\n\r\nx", 400),
    "huge length": (POST + b"Content-Length: " + b"9" * 30 + b"\r\n\r\nx", 400),
    "empty length": (POST + b"Content-Length:\r\n\r\n" + SMUGGLED, 400),
    "coding that is not chunked": (POST + b"Transfer-Encoding: gzip\r\n\r\nx", 400),
    "chunked is not last": (POST + b"Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n", 400),
    "chunked with a tab": (POST + b"Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n", 400),
    "chunks in 1.0": (
        b"POST " + PATH + b" HTTP/1.0\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        400,
    ),
    "bad chunk size": (CHUNKED + b"zz\r\nx\r\n0\r\n\r\n", 400),
    "negative chunk size": (CHUNKED + b"-1\r\nx\r\n0\r\n\r\n", 400),
    "huge chunk size": (CHUNKED + b"f" * 17 + b"\r\nx", 400),
    "chunk longer than said": (CHUNKED + b"1\r\nxyz\r\n0\r\n\r\n", 400),
    "chunk ended with bare LF": (CHUNKED + b"1\nx\n0\n\n", 400),
    "other expectation": (POST + b"Content-Length: 1\r\nExpect: a pony\r\n\r\nx", 417),
    "two expectations": (
        POST + b"Content-Length: 1\r\nExpect: 100-continue\r\nExpect: 100-continue\r\n\r\nx",
        417,
    ),
    "one huge header": (GET + b"A: " + b"b" * 200_000 + b"\r\n\r\n", 431),
    "header without an end": (GET + b"A: " + b"b" * 400_000, 431),
    "header name without an end": (GET + b"a" * 400_000, 431),
    "10,000 headers": (GET + b"A: b\r\n" * 10_000 + b"\r\n", 431),
    "more headers than allowed": (GET + b"A: b\r\n" * 20 + b"\r\n", 431),
    "long target": (b"GET /" + b"a" * 40_000 + b" HTTP/1.1\r\n" + HOST + b"\r\n", 414),
    "target without an end": (b"GET /" + b"a" * 400_000, 431),
}


@pytest.mark.parametrize("name", MALFORMED)
async def test_it_is_refused_with_a_problem(server: Served, end: int, name: str) -> None:
    request, status = MALFORMED[name]
    said = await server.exchange(request)
    answer = parse(said)
    assert answer.status == status, said[:300]
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["connection"] == "close"
    assert int(answer.headers["content-length"]) == len(answer.body), "something came after it"
    assert answer.headers["mq-request-id"] in answer.body.decode()
    assert log_end(server) == end, "something was stored"


@pytest.mark.parametrize("name", MALFORMED)
async def test_it_is_refused_too_when_it_comes_byte_by_byte(server: Served, name: str) -> None:
    request, status = MALFORMED[name]
    pieces = [request[at : at + 1] for at in range(len(request))]
    if len(request) > 1_000:
        pieces = [request[at : at + 4_096] for at in range(0, len(request), 4_096)]
    async with contextlib.aclosing(await server.connect()) as connection:
        with contextlib.suppress(ConnectionError):
            for piece in pieces:
                await connection.say(piece)
                await asyncio.sleep(0)
        assert parse(await connection.rest()).status in {status, 431}


WELL_FORMED = {
    "plain": (GET + LAST, 200),
    "HTTP 1.0 without a host is not local": (b"GET /healthz HTTP/1.0\r\n\r\n", 403),
    "HTTP 1.0": (b"GET /healthz HTTP/1.0\r\n" + HOST + b"\r\n", 200),
    "absolute target": (b"GET http://localhost/healthz HTTP/1.1\r\n" + HOST + LAST, 200),
    "empty lines first": (b"\r\n\r\n" + GET + LAST, 200),
    "offer of HTTP 2": (
        GET + b"Connection: Upgrade, close\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n\r\n",
        200,
    ),
    "chunks": (
        POST + b"Connection: close\r\n" + CHUNKED[len(POST) :] + b"1\r\nx\r\n0\r\n\r\n",
        201,
    ),
    "%00 in a name": (
        POST.replace(b"orders", b"a%00b") + b"Content-Length: 1\r\n" + LAST + b"x",
        400,
    ),
    "invalid UTF-8 in a name": (
        POST.replace(b"orders", b"%ff%fe") + b"Content-Length: 1\r\n" + LAST + b"x",
        400,
    ),
    "a way up in a name": (
        POST.replace(b"orders", b"..%2f..%2fetc") + b"Content-Length: 1\r\n" + LAST + b"x",
        400,
    ),
    "dots as a name": (
        POST.replace(b"orders", b"..") + b"Content-Length: 1\r\n" + LAST + b"x",
        400,
    ),
    "CR LF in a name": (
        POST.replace(b"orders", b"a%0d%0aMQ-Tag:%20b") + b"Content-Length: 1\r\n" + LAST + b"x",
        400,
    ),
    "a way up in the path": (
        b"GET /ui/static/../../../../etc/passwd HTTP/1.1\r\n" + HOST + LAST,
        404,
    ),
    "a hidden way up": (b"GET /ui/static/%2e%2e/%2e%2e/pages.py HTTP/1.1\r\n" + HOST + LAST, 404),
}


@pytest.mark.parametrize("name", WELL_FORMED)
async def test_it_is_left_to_the_application(server: Served, name: str) -> None:
    request, status = WELL_FORMED[name]
    said = await server.exchange(request)
    assert parse(said).status == status, said[:300]


async def test_requests_on_one_connection_are_answered_in_order(server: Served) -> None:
    first = POST + b"Content-Length: 1\r\n\r\na"
    said = await server.exchange(first + first + GET + LAST)
    assert [part[:3] for part in said.split(b"HTTP/1.1 ")[1:]] == [b"201", b"201", b"200"]


async def test_an_offer_of_another_protocol_does_not_end_the_connection(server: Served) -> None:
    connection = await server.connect()
    await connection.say(GET + b"Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n")
    assert (await connection.answer()).status == 200
    await connection.say(GET + LAST)
    assert (await connection.answer()).status == 200
    await connection.aclose()


OFFER = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n"
WITH_BODIES = {
    "a length": b"Content-Length: 5\r\n\r\nhello",
    "chunks": b"Transfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("pieces", [1, 2, 1_000])
@pytest.mark.parametrize("form", WITH_BODIES)
async def test_a_body_behind_an_offer_of_another_protocol_is_kept(
    form: str, pieces: int, server: Served
) -> None:
    """Java's HttpClient offers HTTP/2 with every request; before, its messages were empty."""
    request = POST + OFFER + WITH_BODIES[form]
    said = request + request + GET + LAST
    step = -(-len(said) // pieces)
    connection = await server.connect()
    for at in range(0, len(said), step):
        await connection.say(said[at : at + step])
        await asyncio.sleep(0)
    answers = await connection.rest()
    statuses = [part[:3] for part in answers.split(b"HTTP/1.1 ")[1:]]
    assert statuses == [b"201", b"201", b"200"]
    browse = b"GET /v1/topics/orders/messages?page_size=2 HTTP/1.1\r\n" + HOST + LAST
    assert (await server.exchange(browse)).count(b'"text":"hello"') == 2
    await connection.aclose()


async def test_nothing_behind_an_offer_that_closes_is_a_request(server: Served) -> None:
    offer = b"Connection: Upgrade, close\r\nUpgrade: h2c\r\n"
    for head in (GET + offer + b"\r\n", POST + offer + WITH_BODIES["a length"]):
        said = await server.exchange(head + GET + LAST)
        assert said.count(b"HTTP/1.1 ") == 1


async def test_earlier_requests_are_answered_before_a_malformed_one_ends_it(server: Served) -> None:
    good = POST + b"Content-Length: 1\r\n\r\na"
    said = await server.exchange(good + good + b"nonsense\r\n\r\n")
    assert [part[:3] for part in said.split(b"HTTP/1.1 ")[1:]] == [b"201", b"201"]


async def test_nothing_after_connection_close_is_a_request(server: Served, end: int) -> None:
    said = await server.exchange(GET + LAST + SMUGGLED)
    assert said.count(b"HTTP/1.1 ") == 1
    assert log_end(server) == end


async def test_a_trailer_is_not_a_header(server: Served, end: int) -> None:
    await server.exchange(CHUNKED + b"1\r\nx\r\n0\r\nMQ-Tag: smuggled\r\n\r\n" + GET + LAST)
    said = await server.exchange(
        b"GET /v1/topics/orders/queues/0/messages?offset=%d HTTP/1.1\r\n" % end + HOST + LAST
    )
    assert b'"text":"x"' in said
    assert b"smuggled" not in said


SLOW = {
    "half a line": (b"POST /v1", b"408"),
    "half a head": (POST, b"408"),
    "half a body": (POST + b"Content-Length: 10\r\n\r\nabc", b"408"),
    "half a chunk": (CHUNKED + b"5\r\nab", b"408"),
    "chunks without an end": (CHUNKED + b"5\r\nabcde\r\n", b"408"),
    "second request": (GET + b"\r\n" + POST, b"200"),
}


@pytest.mark.parametrize("name", SLOW)
async def test_a_slow_client_is_closed(server: Served, hurry: Hurry, name: str) -> None:
    hurry("request_body_ms_max" if "body" in name or "chunk" in name else "request_head_ms_max")
    request, status = SLOW[name]
    said = await server.exchange(request)
    assert said[9:12] == status, said[:300]
    if status == b"408":
        assert parse(said).code == "REQUEST_TIMEOUT"
        assert (b'"outcome":"not_stored"' in said) == request.startswith(POST)


@pytest.mark.parametrize("request_", [b"", b"\r\n"], ids=["nothing", "empty lines"])
async def test_a_client_that_asks_for_nothing_is_closed(
    server: Served, hurry: Hurry, request_: bytes
) -> None:
    hurry("first_byte_ms_max")
    late, said = server.connections.late_count, b""
    async with contextlib.aclosing(await server.connect()) as connection:
        with contextlib.suppress(ConnectionError):  # closed before it has said even that
            await connection.say(request_)
            said = await connection.rest()
        assert said == b""
        await until(lambda: server.connections.open_count == 0)
    assert server.connections.late_count == late + 1


async def test_a_client_that_drips_gains_no_time(server: Served, hurry: Hurry) -> None:
    hurry("request_head_ms_max")
    async with contextlib.aclosing(await server.connect()) as connection, asyncio.timeout(60):
        await connection.say(GET)
        said = b""
        while b"\r\n" not in said:
            await connection.say(b"A")
            with contextlib.suppress(TimeoutError):
                said += await asyncio.wait_for(connection.reader.read(KIB), 0.005)
    assert b" 408 " in said


async def test_a_head_has_a_deadline_of_its_own(tmp_path: Path) -> None:
    limits = Limits(request_head_ms_max=100)
    async with served_node(tmp_path, limits) as server:
        assert parse(await server.exchange(GET)).code == "REQUEST_TIMEOUT"


async def test_a_body_that_comes_steadily_may_take_longer(tmp_path: Path) -> None:
    limits = Limits(request_body_ms_max=100, request_body_bytes_per_second_min=1)
    async with (
        served_node(tmp_path, limits) as server,
        contextlib.aclosing(await server.connect()) as connection,
    ):
        await connection.say(POST + b"Content-Length: 40\r\n\r\n" + b"x" * 39)
        loop = asyncio.get_running_loop()
        over = loop.create_future()
        loop.call_later(0.3, over.set_result, None)
        await over
        await connection.say(b"x")
        assert (await connection.answer()).status == 201


async def test_a_refused_client_that_stays_is_cut_off(server: Served, hurry: Hurry) -> None:
    hurry("linger_ms_max")
    connection = await server.connect()
    await connection.say(b"nonsense\r\n\r\n")
    assert parse(await connection.rest()).status == 400
    await until(lambda: server.connections.open_count == 0)
    await connection.aclose()


async def test_an_idle_connection_is_closed_without_a_word(server: Served, hurry: Hurry) -> None:
    hurry("idle_connection_ms_max")
    connection = await server.connect()
    await connection.say(GET + b"\r\n")
    assert (await connection.answer()).status == 200
    assert await connection.rest() == b""
    await connection.aclose()


async def test_a_parked_poll_has_no_deadline(server: Served, hurry: Hurry, end: int) -> None:
    hurry("request_head_ms_max", "request_body_ms_max", "idle_connection_ms_max")
    connection = await server.connect()
    path = b"/v1/topics/orders/queues/0/messages?wait=1&offset=%d" % end
    await connection.say(b"GET " + path + b" HTTP/1.1\r\n" + HOST + b"\r\n")
    await until(lambda: server.node.broker.waiting_count == 1)
    assert [each.deadline for each in server.connections._open] == [NEVER]
    answer = await connection.answer()
    assert answer.status == 200
    assert b"NO_NEW_MSG" in answer.body
    await connection.aclose()


async def test_a_reader_that_stops_is_cut_off(server: Served, hurry: Hurry) -> None:
    hurry("unread_answer_ms_max")
    connection = await server.connect()
    late = server.connections.late_count
    connection.writer.transport.pause_reading()  # type: ignore[attr-defined]
    for _ in range(16):
        await connection.say(POST + b"Content-Length: 60000\r\n\r\n" + b"x" * 60_000)
    pull = b"/v1/topics/orders/queues/0/messages?offset=0&max_messages=100"
    one = b"GET " + pull + b" HTTP/1.1\r\n" + HOST + b"\r\n"
    await connection.say(one * 30)
    await until(lambda: server.connections.open_count == 0)
    assert server.connections.late_count > late
    await connection.aclose()


async def test_connections_of_one_address_are_bounded(server: Served, end: int) -> None:
    held = [await server.connect() for _ in range(LIMITS.connections_per_address_max)]
    for each in held:
        await each.say(GET[:5])
    said = await server.exchange()
    assert parse(said).code == "TOO_MANY_CONNECTIONS"
    assert parse(said).headers["retry-after"]
    for each in held:
        await each.aclose()
    await until(lambda: server.connections.open_count == 0)
    assert parse(await server.exchange(GET + LAST)).status == 200


async def test_connections_in_all_are_bounded(tmp_path: Path) -> None:
    async with served_node(tmp_path, Limits(connections_max=2)) as server:
        held = [await server.connect() for _ in range(2)]
        for each in held:
            await each.say(GET + b"\r\n")
            assert (await each.answer()).status == 200
        assert parse(await server.exchange()).code == "TOO_MANY_CONNECTIONS"
        for each in held:
            await each.aclose()


async def test_continue_is_said_when_the_body_will_be_read(server: Served) -> None:
    connection = await server.connect()
    await connection.say(POST + b"Content-Length: 3\r\nExpect: 100-continue\r\n\r\n")
    assert await connection.until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    await connection.say(b"abc")
    assert (await connection.answer()).status == 201
    await connection.say(GET + b"\r\n")
    assert (await connection.answer()).status == 200
    await connection.aclose()


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (POST + b"Content-Length: 65537\r\n", 413),
        (POST + b"Content-Length: 3\r\nContent-Encoding: br\r\n", 415),
        (POST + b"Content-Length: 3\r\nMQ-Tagg: a\r\n", 400),
    ],
)
async def test_continue_is_not_said_when_the_head_is_refused(
    server: Served, head: bytes, status: int
) -> None:
    said = await server.exchange(head + b"Expect: 100-continue\r\n\r\n")
    assert said.startswith(b"HTTP/1.1 %d" % status)
    assert b"100 Continue" not in said


async def test_a_large_body_without_a_length_is_refused_while_it_comes(server: Served) -> None:
    chunk = b"4000\r\n" + b"x" * 0x4000 + b"\r\n"
    connection = await server.connect()
    await connection.say(CHUNKED)
    with contextlib.suppress(ConnectionError):
        for _ in range(100):
            await connection.say(chunk)
    answer = parse(await connection.rest())
    assert answer.status == 413
    assert answer.headers["connection"] == "close"
    await connection.aclose()


async def test_an_early_answer_reaches_a_client_that_is_still_sending(server: Served) -> None:
    connection = await server.connect()
    await connection.say(POST + b"Content-Length: 900000\r\n\r\n")
    for _ in range(9):
        await connection.say(b"x" * 100_000)
    answer = parse(await connection.rest())
    assert (answer.status, answer.code) == (413, "MESSAGE_BODY_TOO_LARGE")
    await connection.aclose()


async def test_chunk_extensions_are_bounded(server: Served) -> None:
    connection = await server.connect()
    await connection.say(CHUNKED + b"1;")
    with contextlib.suppress(ConnectionError):
        for _ in range(100):
            await connection.say(b"a" * 100_000)
    said = await connection.rest()
    assert parse(said).status == 413
    await connection.aclose()


async def test_a_refused_body_ends_its_request_at_once(tmp_path: Path) -> None:
    """Not only when the connection has gone, for which the client may take its time."""
    async with (
        served_node(tmp_path, Limits(linger_ms_max=60_000)) as server,
        contextlib.aclosing(await server.connect()) as connection,
        contextlib.aclosing(await server.connect()) as other,
    ):
        await connection.say(POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n")
        await until(lambda: server.connections.pressure.body_bytes == 1)
        await connection.say(b"nonsense\r\n")
        assert (await connection.answer()).code == "MALFORMED_REQUEST"
        counted = b'curlew_http_answers_total{operation="send_message",status="499"} 1\n'
        async with asyncio.timeout(60):
            said = b""
            while counted not in said:
                await other.say(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
                said = (await other.answer()).body
