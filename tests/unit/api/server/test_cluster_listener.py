"""The end of the cluster port: nothing that came through it goes on, and `close` has waited."""

import asyncio
import logging
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import uvloop

from app.api.http.request_context import Receive, Scope, Send
from app.api.peers import pool
from app.api.peers.handshake import Asking
from app.api.peers.pool import Peers
from app.api.relay.envelope import Envelope
from app.api.server import cluster_listener, tls_listener
from app.api.server.cluster_listener import ClusterListener
from app.domain.limits import RELAY_IDLE_SECONDS_MAX, Limits
from app.runtime.secure.cluster_secret import ClusterSecret
from app.runtime.secure.tls_files import TlsFiles
from tests.support.clients.tls import TlsPlace
from tests.support.nodes.waiting import until
from tests.support.stores.clock import FakeClock

SECRET = ClusterSecret(b"a" * 32)
PATIENCE_S = 20
REQUEST = b"GET /v1/topics HTTP/1.1\r\nhost: a\r\n\r\n"


@pytest.fixture(params=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, object]]:
    return "asyncio", {"loop_factory": uvloop.new_event_loop if request.param == "uvloop" else None}


pytestmark = pytest.mark.anyio


class App:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.asked = 0
        self.may_answer = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.asked += 1
        await self.may_answer.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})


class Port:
    def __init__(self, listener: ClusterListener, number: int, app: App) -> None:
        self.listener, self.number, self.app = listener, number, app
        self._writers: list[asyncio.StreamWriter] = []

    async def connect(
        self, connection: socket.socket | None = None, tls: ssl.SSLContext | None = None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if connection is None:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.number, ssl=tls)
        else:
            reader, writer = await asyncio.open_connection(sock=connection)
        self._writers.append(writer)
        return reader, writer

    async def end(self) -> None:
        await self.listener.close()
        for writer in self._writers:
            writer.transport.abort()
            with suppress(OSError):
                await writer.wait_closed()

    async def greet(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, bytes]:
        """A connection before its last line, and that line."""
        reader, writer = await self.connect()
        asking = Asking(SECRET)
        writer.write(asking.greeting())
        return reader, writer, asking.proof(await reader.readline())

    async def ask(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection whose request is under way."""
        reader, writer, proof = await self.greet()
        before = self.app.asked
        writer.write(proof + REQUEST)
        await until(lambda: self.app.asked > before)
        return reader, writer


@asynccontextmanager
async def port(
    tls: TlsFiles | None = None, now_s: Callable[[], float] = time.monotonic
) -> AsyncIterator[Port]:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    app = App()
    server = ClusterListener(listener, SECRET, app, Limits(), tls, now_s=now_s)
    number = listener.getsockname()[1]
    await server.start()
    served = Port(server, number, app)
    try:
        yield served
    finally:
        await served.end()


async def rest_of(reader: asyncio.StreamReader) -> bytes:
    try:
        return await asyncio.wait_for(reader.read(), PATIENCE_S)
    except ConnectionError:
        return b""


async def test_a_handshake_under_way_gets_no_further() -> None:
    """Its request would be answered by a node that has stopped."""
    async with port() as closing:
        reader, writer, proof = await closing.greet()
        await closing.listener.close()
        writer.write(proof + REQUEST)
        assert await rest_of(reader) == b""
        assert closing.app.asked == 0


async def test_a_connection_that_is_accepted_as_the_port_closes_gets_nowhere() -> None:
    async with port() as closing:
        handshake = closing.listener._handshake()
        await closing.listener.close()
        ours, theirs = socket.socketpair()
        reader, writer = await closing.connect(ours)
        await asyncio.get_running_loop().connect_accepted_socket(lambda: handshake, theirs)
        writer.write(Asking(SECRET).greeting())
        assert await rest_of(reader) == b""


@pytest.mark.parametrize("is_long", [False, True])
async def test_a_request_has_the_headers_that_a_client_may_send_and_an_envelope(
    is_long: bool,
) -> None:
    limits = Limits()
    if is_long:
        sent = [(b"x", b"a" * (limits.header_block_bytes_max - 1))]
    else:
        sent = [(b"x-%d" % number, b"a") for number in range(limits.header_count_max)]
    roles = tuple("r" * 30 for _ in range(250))
    headers = [*sent, *Envelope(1, 1, "p" * 255, roles, 1).headers()]
    lines = [b"%b: %b\r\n" % each for each in headers]
    async with port() as asked:
        asked.app.may_answer.set()
        reader, writer, proof = await asked.greet()
        writer.write(proof + REQUEST[:-2] + b"".join(lines) + b"\r\n")
        answer = await asyncio.wait_for(reader.readuntil(b"\r\n"), PATIENCE_S)
        assert answer == b"HTTP/1.1 200 OK\r\n"


async def test_a_request_is_answered_before_close_returns() -> None:
    async with port() as closing:
        reader, _ = await closing.ask()
        closed = asyncio.ensure_future(closing.listener.close())
        await asyncio.sleep(0)
        assert not closed.done()
        closing.app.may_answer.set()
        await closed
        assert b"done" in await rest_of(reader)


async def test_a_request_that_never_ends_is_ended(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(cluster_listener, "CLOSE_SECONDS", 0.05)
    async with port() as closing:
        reader, _ = await closing.ask()
        await closing.listener.close()
        assert await rest_of(reader) == b""
        assert "1 requests of other nodes are ended" in caplog.text


@pytest.mark.parametrize("has_tls", [False, True])
async def test_who_proves_nothing_keeps_no_node_out(
    has_tls: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_listener, "CLUSTER_HANDSHAKES_MAX", 8)
    monkeypatch.setattr(cluster_listener, "SECONDS", 10 * PATIENCE_S)
    monkeypatch.setattr(tls_listener, "HANDSHAKE_SECONDS", 10 * PATIENCE_S)
    place = TlsPlace(tmp_path)
    files = TlsFiles.of_nodes(place.cert_file, place.key_file, place.authority_file)
    async with port(files if has_tls else None) as served:
        silent = [await served.connect() for _ in range(20)]
        for reader, _ in silent[:12]:
            assert await rest_of(reader) == b"", "the oldest have ended"
        assert not any(reader.at_eof() for reader, _ in silent[12:])
        assert files is not None
        reader, writer = await served.connect(tls=files.asking_context() if has_tls else None)
        asking = Asking(SECRET)
        writer.write(asking.greeting())
        writer.write(asking.proof(await reader.readline()) + REQUEST)
        await until(lambda: served.app.asked == 1)


@pytest.mark.parametrize("has_tls", [False, True])
async def test_a_node_with_many_requests_at_once_is_not_taken_for_one_that_proves_nothing(
    has_tls: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_listener, "CLUSTER_HANDSHAKES_MAX", 16)
    monkeypatch.setattr(pool, "CONNECTING_MAX", 4)
    for patience in ("CONNECT_SECONDS", "TLS_CONNECT_SECONDS"):  # the machine may be busy
        monkeypatch.setattr(pool, patience, 60)
    place = TlsPlace(tmp_path)
    files = TlsFiles.of_nodes(place.cert_file, place.key_file, place.authority_file)
    async with port(files if has_tls else None) as served:
        asking = Peers(SECRET, time.monotonic, files if has_tls else None)
        url = f"{'https' if has_tls else 'http'}://127.0.0.1:{served.number}"
        held = await asyncio.gather(*(asking.acquire(url) for _ in range(64)))
        assert all(each.is_open for each in held)
        for each in held:
            asking.release(url, each)
        asking.close()


def of_socket(transport: asyncio.BaseTransport, *names: str) -> list[int]:
    connection = transport.get_extra_info("socket")
    assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    return [connection.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) for name in names]


@pytest.mark.parametrize("has_tls", [False, True])
async def test_a_machine_that_is_gone_ends_its_connections_within_seconds(
    has_tls: bool, tmp_path: Path
) -> None:
    place = TlsPlace(tmp_path)
    files = TlsFiles.of_nodes(place.cert_file, place.key_file, place.authority_file)
    probes = ["TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT"]
    async with port(files if has_tls else None) as served:
        peers = Peers(SECRET, time.monotonic, files if has_tls else None)
        url = f"{'https' if has_tls else 'http'}://127.0.0.1:{served.number}"
        asking = await peers.acquire(url)
        asking.write(REQUEST)
        await until(lambda: served.app.asked == 1)
        [answering] = served.listener._state.connections
        assert of_socket(asking._transport, *probes, "TCP_USER_TIMEOUT") == [2, 1, 3, 5_000]
        # An answer may wait for its reader for longer.
        assert of_socket(answering.transport, *probes, "TCP_USER_TIMEOUT") == [2, 1, 3, 0]
        peers.release(url, asking)


async def test_the_side_that_asks_lets_go_of_an_idle_connection_first() -> None:
    async with port() as served:
        for said_ms, kept_ms in ((75_000, 75_000), (1_000, 60_000)):
            limits = Limits(idle_connection_ms_max=said_ms)
            listener = ClusterListener(served.listener._listener, SECRET, served.app, limits)
            assert listener._connections.limits.idle_connection_ms_max == kept_ms
            assert kept_ms >= 2_000 * RELAY_IDLE_SECONDS_MAX


async def test_with_tls_no_handshake_is_left_when_close_returns(tmp_path: Path) -> None:
    place = TlsPlace(tmp_path)
    files = TlsFiles.of_nodes(place.cert_file, place.key_file, place.authority_file)
    async with port(files) as closing:
        before = asyncio.all_tasks()
        await closing.connect()
        await until(lambda: asyncio.all_tasks() > before)
        await closing.listener.close()
        assert asyncio.all_tasks() <= before


async def test_strangers_are_a_line_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = FakeClock()
    caplog.set_level(logging.INFO)

    def lines() -> list[str]:
        return [each.getMessage() for each in caplog.records if "cluster port" in each.message]

    async with port(now_s=clock.monotonic_s) as attacked:

        async def strangers(count: int) -> None:
            for _ in range(count):
                reader, writer = await attacked.connect()
                writer.write(b"GET / HTTP/1.1\r\n\r\n")
                assert (await rest_of(reader)).startswith(b"refused ")

        await strangers(200)
        [first] = lines()
        assert "since" not in first
        clock.advance(s=59.9)
        await strangers(1)
        assert len(lines()) == 1
        clock.advance(s=0.1)
        await strangers(1)
        assert len(lines()) == 2
        assert lines()[1].endswith("; 200 more since the last such line")
        await strangers(7)
    assert lines()[2:] == [
        "refused at the cluster port, a connection from others, 7 since the last such line"
    ]


async def test_failed_handshakes_of_tls_are_a_line_a_minute(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = FakeClock()
    place = TlsPlace(tmp_path)
    files = TlsFiles.of_nodes(place.cert_file, place.key_file, place.authority_file)
    async with port(files, clock.monotonic_s) as attacked:
        for _ in range(3):
            reader, writer = await attacked.connect()
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            await rest_of(reader)
        failed = attacked.listener._connections
        await until(lambda: failed.handshakes_failed_count == 3)
        [line] = [each for each in caplog.messages if "no TLS with 127.0.0.1" in each]
    assert caplog.messages[-1].endswith("others, 2 since the last such line")
    assert line in caplog.messages
