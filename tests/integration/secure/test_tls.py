"""A node with a certificate: the same answers, deadlines and refusals, and nothing in clear."""

import asyncio
import base64
import contextlib
import ssl
import subprocess
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from app.api.http.request_context import (
    FILE_ANSWER,
    OUR_EXTENSIONS_UNDER_TLS,
    RequestContext,
)
from app.api.server import tls_listener
from app.domain.access.keys import NewKey
from app.domain.limits import KIB, Limits
from app.domain.message import Message
from tests.integration.api.service.test_guard import LIMITS, MALFORMED, SLOW, log_end
from tests.support.clients.frames import read_frame, request_frame
from tests.support.clients.tls import TlsPlace
from tests.support.clients.wire import Served, parse, served_node
from tests.support.nodes.node import run_node
from tests.support.nodes.waiting import until

pytestmark = pytest.mark.anyio

FRAME = {"accept": "application/vnd.curlew.batch", "accept-encoding": "identity"}
FRAME_KIND = {"content-type": "application/vnd.curlew.batch"}
SEND = "/v1/topics/orders/messages"
PULL = "/v1/topics/orders/queues/0/messages?max_messages=1000&max_bytes=8000000"
QUICK = replace(LIMITS, request_head_ms_max=200, request_body_ms_max=200)


@pytest.fixture(scope="module")
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """The loop that nodes run on: TLS is its own."""
    return "asyncio", {"use_uvloop": True}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> TlsPlace:
    return TlsPlace(tmp_path_factory.mktemp("tls"))


@contextlib.asynccontextmanager
async def serving(place: TlsPlace, data_dir: Path, limits: Limits) -> AsyncIterator[Served]:
    async with served_node(data_dir, limits, **place.settings) as server:
        server.tls = place.client()
        yield server


@pytest.fixture(scope="module")
async def server(
    place: TlsPlace, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Served]:
    async with serving(place, tmp_path_factory.mktemp("served"), LIMITS) as served:
        yield served


@pytest.fixture(scope="module")
async def key(server: Served) -> NewKey:
    """From here on the node asks for a key."""
    made = await server.node.metadata.principals.make_first()
    await server.node.metadata.principals.refresh()
    return made


def with_key(request: bytes, key: NewKey) -> bytes:
    """The request of a client that has one."""
    line = b"Authorization: Bearer " + key.text.encode() + b"\r\n"
    return request.replace(b"\r\n", b"\r\n" + line, 1)


@contextlib.asynccontextmanager
async def asking(server: Served) -> AsyncIterator[httpx.AsyncClient]:
    assert server.tls is not None
    url = f"https://127.0.0.1:{server.port}"
    async with httpx.AsyncClient(base_url=url, verify=server.tls, timeout=60) as client:
        yield client


async def test_frames_and_large_bodies_come_back_as_they_were_sent(
    place: TlsPlace, tmp_path: Path
) -> None:
    body = bytes(range(256)) * (15 * KIB)
    sent = [Message(body=bytes([each]) * 20_000) for each in range(250)]
    async with serving(place, tmp_path, Limits()) as server, asking(server) as client:
        answer = await client.post(SEND, content=body)
        assert answer.status_code == 201
        whole = await client.get(f"/v1/topics/orders/messages/{answer.json()['message_id']}")
        assert base64.b64decode(whole.json()["body_base64"]) == body
        frame = request_frame(sent, "orders")
        answer = await client.post(f"{SEND}:batch?queue_id=0", content=frame, headers=FRAME_KIND)
        assert answer.status_code == 200
        pulled = (await client.get(f"{PULL}&offset=1", headers=FRAME)).content
        assert [each.body for each in read_frame(pulled)] == [each.body for each in sent]


async def test_files_are_not_offered_past_the_encryption(
    place: TlsPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Were they, nothing would go out all the same: an assertion stands in the way."""
    frame = request_frame([Message(b"secret" * 1_000)] * 200, "orders")
    async with serving(place, tmp_path, Limits()) as server, asking(server) as client:
        answer = await client.post(f"{SEND}:batch?queue_id=0", content=frame, headers=FRAME_KIND)
        assert answer.status_code == 200
        pulled = f"{PULL}&offset=0&checksum=crc32"
        assert b"secret" in (await client.get(pulled, headers=FRAME)).content
        monkeypatch.setitem(OUR_EXTENSIONS_UNDER_TLS, FILE_ANSWER, {})
        monkeypatch.setattr(RequestContext, "can_send_files", True)
        with pytest.raises(httpx.HTTPError):
            await client.get(pulled, headers=FRAME)


@pytest.mark.parametrize("name", MALFORMED)
async def test_what_is_malformed_is_refused_also_with_a_key(
    server: Served, key: NewKey, name: str
) -> None:
    request, status = MALFORMED[name]
    if b" HTTP/1." in request:
        request = with_key(request, key)
    end = log_end(server)
    said = await server.exchange(request)
    answer = parse(said)
    assert answer.status == status, said[:300]
    assert int(answer.headers["content-length"]) == len(answer.body), "something came after it"
    assert log_end(server) == end, "something was stored"


@pytest.mark.parametrize("name", SLOW)
async def test_a_slow_client_is_closed_also_with_a_key(
    server: Served, key: NewKey, name: str
) -> None:
    request, status = SLOW[name]
    server.connections.limits = QUICK
    try:
        said = await server.exchange(with_key(request, key))
    finally:
        server.connections.limits = LIMITS
    assert said[9:12] == status, said[:300]


async def test_without_a_key_nothing_is_read(server: Served, key: NewKey) -> None:
    async with asking(server) as client:
        assert (await client.get("/v1/topics")).status_code == 401
        headers = {"authorization": f"Bearer {key.text}"}
        assert (await client.get("/v1/topics", headers=headers)).status_code == 200


async def test_a_handshake_counts_as_a_connection_and_has_an_end(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await until(lambda: server.connections.open_count == 0)
    failed = server.connections.handshakes_failed_count
    trusted, server.tls = server.tls, None
    silent = [await server.connect() for _ in range(LIMITS.connections_per_address_max)]
    await until(lambda: server.connections.open_count == len(silent))
    refused = await server.connect()
    assert await refused.rest() == b"", "one too many"
    await refused.aclose()
    for each in silent:
        await each.aclose()
    await until(lambda: server.connections.open_count == 0)
    monkeypatch.setattr(tls_listener, "HANDSHAKE_SECONDS", 0.1)
    late = await server.connect()
    assert await late.rest() == b""
    await late.aclose()
    plain = await server.connect()
    await plain.say(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    with contextlib.suppress(ConnectionError):
        assert b"HTTP" not in await plain.rest()
    await plain.aclose()
    server.tls = trusted
    await until(lambda: server.connections.open_count == 0)
    assert server.connections.handshakes_failed_count == failed + len(silent) + 2


async def test_a_client_that_sends_at_once_loses_nothing(server: Served, key: NewKey) -> None:
    """Its first request may come with the end of its handshake."""
    request = with_key(b"GET /v1/limits HTTP/1.1\r\nHost: localhost\r\n\r\n", key)
    for _ in range(20):
        async with contextlib.aclosing(await server.connect()) as connection:
            await connection.say(request)
            assert (await connection.answer()).status == 200


async def test_a_stop_does_not_wait_for_handshakes(place: TlsPlace, tmp_path: Path) -> None:
    """Nor for clients that do not say goodbye."""
    reader, writer = None, None
    began = 0.0
    try:
        async with serving(place, tmp_path, replace(LIMITS, linger_ms_max=100)) as server:
            idle = await server.connect()
            await idle.say(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert (await idle.answer()).status == 200
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            await until(lambda: server.connections.open_count == 2)
            began = asyncio.get_running_loop().time()
        assert asyncio.get_running_loop().time() - began < tls_listener.HANDSHAKE_SECONDS
        assert await reader.read() == b""
    finally:
        if writer is not None:
            writer.close()


def test_a_replaced_certificate_is_used_without_a_restart(tmp_path: Path) -> None:
    place = TlsPlace(tmp_path / "tls")
    with run_node(tmp_path / "data", *place.flags) as node:
        assert node.url.startswith("https://")
        curl = ["curl", "-s", "--cacert", str(place.authority_file), f"{node.url}/healthz"]
        assert b"ok" in subprocess.run(curl, capture_output=True, check=True, timeout=30).stdout
        first = ssl.get_server_certificate(("127.0.0.1", node.port))
        with httpx.Client(base_url=node.url, verify=place.client()) as client:
            assert client.get("/healthz").status_code == 200
            place.issue()
            second = first
            for _ in range(600):
                second = ssl.get_server_certificate(("127.0.0.1", node.port))
                if second != first:
                    break
                node.process.poll()
            assert client.get("/healthz").status_code == 200, "open connections go on"
