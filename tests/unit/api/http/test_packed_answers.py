"""JSON answers are packed where the client takes it and it pays, and only there."""

import gzip
from collections.abc import AsyncIterator

import msgspec
import pytest
import zstandard

from app.api.admission import Admission
from app.api.bodies.packing import taken_packing
from app.api.dataplane.routes import build_router
from app.api.gateway import Gateway
from app.api.http.request_context import AsgiApp, Receive, Scope, Send
from tests.support.clients.asgi import Answer, call
from tests.support.nodes.brokers import TOPIC, World, running

pytestmark = pytest.mark.anyio

PULL = f"/v1/topics/{TOPIC}/queues/0/messages"
CURL = b"deflate, gzip, br, zstd"
HTTPX = b"gzip, deflate"


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with running() as world:
        await world.send(*[b"order %d" % number for number in range(60)])
        yield world


def app_of(world: World, fallback: AsgiApp | None = None) -> AsgiApp:
    async def nothing(*_: object) -> None:
        raise AssertionError("no path of the control plane")

    router = build_router(world.broker, world.limits)
    return Gateway(
        router, fallback or nothing, Admission(header_block_bytes_max=9_999, local_only=True)
    )


async def pull(world: World, accept: bytes | None, query: bytes, *more: bytes) -> Answer:
    headers = [] if accept is None else [(b"accept-encoding", accept)]
    headers += [(b"accept", each) for each in more]
    return await call(app_of(world), "GET", PULL, headers=headers, query=query)


def unpacked(answer: Answer) -> bytes:
    packing = answer.headers[b"content-encoding"]
    assert int(answer.headers[b"content-length"]) == len(answer.body)
    if packing == b"gzip":
        return gzip.decompress(answer.body)
    return zstandard.ZstdDecompressor().decompress(answer.body)


@pytest.mark.parametrize(
    ("accept", "packing"),
    [
        *((CURL, b"zstd"), (HTTPX, b"gzip"), (b"*", b"zstd"), (b"GZip;q=0.5", b"gzip")),
        *((b"zstd;q=0, gzip", b"gzip"), (b"*, zstd;q=0.000", b"gzip"), (b"gzip;q=0", None)),
        *((b"br", None), (b"identity", None), (b"", None), (b"*;q=0", None)),
    ],
)
def test_what_a_client_takes(accept: bytes, packing: bytes | None) -> None:
    assert taken_packing(accept) == packing


@pytest.mark.parametrize("accept", [CURL, HTTPX, b"zstd"])
async def test_a_large_answer_is_packed_and_says_so(world: World, accept: bytes) -> None:
    plain = await pull(world, None, b"offset=0&max_messages=60")
    packed = await pull(world, accept, b"offset=0&max_messages=60")
    assert len(packed.body) < len(plain.body) / 4
    assert unpacked(packed) == plain.body
    assert packed.headers[b"vary"] == b"accept-encoding"
    assert b"content-encoding" not in plain.headers


async def test_a_small_answer_is_not(world: World) -> None:
    answer = await pull(world, CURL, b"offset=0&max_messages=1")
    assert b"content-encoding" not in answer.headers
    assert len(answer.json()["messages"]) == 1


async def test_what_does_not_pay_is_not(world: World) -> None:
    noise = zstandard.ZstdCompressor().compress(bytes(range(256)) * 4)
    body = bytes((n * 197 + n * n * 31 + len(noise)) % 251 for n in range(4_096))
    await world.send(b"\xff" + body)
    answer = await pull(world, CURL, b"tail=1")
    if b"content-encoding" in answer.headers:
        assert len(answer.body) <= 0.9 * len(unpacked(answer))


async def test_a_range_with_an_etag_has_the_bytes_that_it_names(world: World) -> None:
    answer = await pull(world, CURL, b"offset=0&until_offset=60&max_messages=60")
    assert b"etag" in answer.headers
    assert b"content-encoding" not in answer.headers


async def test_lines_and_frames_stay_as_they_were(world: World) -> None:
    for kind in (b"application/x-ndjson", b"application/vnd.curlew.batch"):
        answer = await pull(world, CURL, b"offset=0&max_messages=60", kind)
        assert b"content-encoding" not in answer.headers


@pytest.mark.parametrize("parts", [1, 2])
async def test_documents_of_the_control_plane_are_packed_when_they_come_whole(
    world: World, parts: int
) -> None:
    document = msgspec.json.encode([{"name": f"topic-{number}"} for number in range(200)])

    async def control(scope: Scope, receive: Receive, send: Send) -> None:
        length = (b"content-length", b"%d" % len(document))
        headers = [(b"content-type", b"application/json"), length]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        middle = len(document) // parts
        for number in range(parts):
            piece = document[number * middle :][: middle if number < parts - 1 else None]
            more = number < parts - 1
            await send({"type": "http.response.body", "body": piece, "more_body": more})

    answer = await call(
        app_of(world, control), "GET", "/v1/topics", headers=((b"accept-encoding", HTTPX),)
    )
    if parts == 1:
        assert unpacked(answer) == document
    else:
        assert answer.body == document
    plain = await call(app_of(world, control), "GET", "/v1/topics")
    assert plain.body == document
