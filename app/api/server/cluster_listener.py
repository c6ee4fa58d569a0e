"""The cluster port: a listener for the other nodes, which prove the cluster secret first.

Then a connection speaks HTTP/1.1 as any other, and its requests are those that other nodes carry
here: each in an envelope that says who asks. There is nobody without one, and no client's key
counts. Event loop only.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from dataclasses import replace
from time import monotonic
from typing import Final

import uvicorn
from typing_extensions import override
from uvicorn.server import ServerState

from app.api.aims.places import Metadata
from app.api.http.request_context import ASKED, AsgiApp, Receive, Scope, Send
from app.api.peers.connection import notice_silence
from app.api.peers.handshake import (
    LINE_BYTES_MAX,
    NO_REPLICAS,
    SECONDS,
    Answering,
    Refused,
)
from app.api.relay.envelope import HEADER_BYTES_MAX, HEADERS_MAX, RELAYED, opened
from app.api.replicas.link_table import LinkTable
from app.api.server.connections import Connections
from app.api.server.protocol import guarded
from app.api.server.refusal_log import RefusalLog
from app.api.server.tls_listener import TlsListener
from app.cluster.wire.codec import STOPS
from app.domain.errors import CurlewError
from app.domain.limits import (
    CLUSTER_HANDSHAKES_MAX,
    RELAY_CONNECTIONS_MAX,
    RELAY_IDLE_SECONDS_MAX,
    SHARDS_MAX,
    Limits,
)
from app.runtime.direct import in_task
from app.runtime.secure.cluster_secret import ClusterSecret
from app.runtime.secure.tls_files import TlsFiles

_LOG: Final = logging.getLogger(__name__)

MakeProtocol = Callable[[], asyncio.Protocol]
CLOSE_SECONDS: Final = 2.0
"""How long a request that was carried here may take to end once the node stops, and how long the
last bytes of a connection may take to be read."""


class ClusterApp:
    """Opens the envelope, hears of what the other node knows more, and has the request answered."""

    def __init__(self, app: AsgiApp, metadata: Metadata, refresh_policies: "PolicyRefresh") -> None:
        self._app = app
        self._metadata = metadata
        self._policies = refresh_policies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        try:
            envelope = opened(scope)
        except ValueError:
            await send({"type": "http.response.start", "status": 400, "headers": []})
            await send({"type": "http.response.body", "body": b"a request of no node\n"})
            return
        scope[RELAYED] = envelope
        scope[ASKED] = envelope.asks
        metadata_is_old = envelope.metadata_version > self._metadata.snapshot.version
        policies_are_old = envelope.policy_version > self._policies.version()
        if metadata_is_old or policies_are_old:
            await in_task()  # the database may have to be waited for
            try:
                if metadata_is_old:
                    await self._metadata.refresh()
                if policies_are_old:
                    await self._policies.refresh()
            except CurlewError as error:  # what is known has to do
                _LOG.debug("not refreshed: %s", error.detail)
        await self._app(scope, receive, send)


class PolicyRefresh:
    """How new what a node knows of keys and policies is, and how to hear of more."""

    def __init__(self, version: Callable[[], int], refresh: Callable[[], object]) -> None:
        self.version = version
        self._refresh = refresh

    async def refresh(self) -> None:
        found = self._refresh()
        if asyncio.iscoroutine(found):
            await found


class _Handshake(asyncio.Protocol):
    """A connection until the other side has proved the secret; the HTTP protocol follows."""

    def __init__(
        self,
        secret: ClusterSecret,
        make_protocol: MakeProtocol,
        links: LinkTable | None,
        under_way: "_Handshakes",
    ) -> None:
        self._under_way = under_way
        self._answering = Answering(secret, takes_replicas=links is not None)
        self._links = links
        self._make_protocol = make_protocol
        self._data = b""
        self._is_greeted = False
        self._transport: asyncio.Transport
        self._timer: asyncio.TimerHandle | None = None

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(SECONDS, transport.abort)
        self._under_way.begin(self)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()

    def abort(self) -> None:
        """End the connection without a word: the node takes none any more."""
        self._leave()
        self._transport.abort()

    @override
    def data_received(self, data: bytes) -> None:
        self._data += data
        try:
            if not self._is_greeted:
                line, end, rest = self._data.partition(b"\n")
                if not end:
                    self._check_length()
                    return
                self._data = rest
                self._transport.write(self._answering.answer(line))
                self._is_greeted = True
            line, end, rest = self._data.partition(b"\n")
            if not end:
                self._check_length()
                return
            self._answering.check(line)
        except Refused as refusal:
            peer = self._transport.get_extra_info("peername")
            self._under_way.note_refused(peer, refusal)
            self._transport.write(f"refused {refusal}\n".encode())
            self._transport.close()
            return
        self._hand_over(rest)

    def _check_length(self) -> None:
        if len(self._data) > LINE_BYTES_MAX:
            raise Refused("this is the cluster port, for nodes of the cluster only")

    def _hand_over(self, rest: bytes) -> None:
        self._leave()
        if self._links is not None and self._answering.replica is not None:
            link = self._links.accept(*self._answering.replica)
            self._transport.set_protocol(link)
            link.connection_made(self._transport)
            self._links.made(link)
            if rest:
                link.came_before(rest)
            return
        notice_silence(self._transport)  # a link hears signs of life
        protocol = self._make_protocol()
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        if rest:
            protocol.data_received(rest)

    def _leave(self) -> None:
        self._under_way.leave(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class _Handshakes:
    """Those that are under way, the oldest first; none any more once the listener is closed.

    Whoever says nothing has `SECONDS`, and there may be many of those: of one too many the oldest
    ends, as a node needs a moment only."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._all: dict[_Handshake, None] = {}
        self._is_over = False
        what = "refused at the cluster port, a connection from"
        self._strangers = RefusalLog(_LOG, logging.WARNING, what, now_s)
        self._early_replicas = RefusalLog(_LOG, logging.INFO, what, now_s)

    def begin(self, handshake: _Handshake) -> None:
        if self._is_over:  # its connection was accepted in the turn in which the listener closed
            handshake.abort()
            return
        if len(self._all) >= CLUSTER_HANDSHAKES_MAX:
            next(iter(self._all)).abort()
        self._all[handshake] = None

    def leave(self, handshake: _Handshake) -> None:
        self._all.pop(handshake, None)

    def note_refused(self, peer: object, refusal: Refused) -> None:
        # A replica asks again until the one here is at work.
        is_early = str(refusal) == NO_REPLICAS
        (self._early_replicas if is_early else self._strangers).note(peer, refusal)

    def end(self) -> None:
        self._is_over = True
        self._strangers.end()
        self._early_replicas.end()
        for handshake in list(self._all):
            handshake.abort()


class ClusterListener:
    """Made with a socket that is bound. `start`, then `close`."""

    def __init__(
        self,
        listener: socket.socket,
        secret: ClusterSecret,
        app: AsgiApp,
        limits: Limits,
        tls: TlsFiles | None = None,
        links: LinkTable | None = None,
        now_s: Callable[[], float] = monotonic,
    ) -> None:
        """With `tls` each side shows a certificate before the handshake of the secret. Without
        `links` the node keeps no replicas, and tells those who want to follow it."""
        self.links = links
        """Of the replica that is at work now; who sets others has ended those before."""
        self._listener = listener
        self._secret = secret
        self._tls = tls
        most = RELAY_CONNECTIONS_MAX * SHARDS_MAX
        own = replace(
            limits,
            connections_max=most,
            connections_per_address_max=most,
            idle_connection_ms_max=max(
                limits.idle_connection_ms_max, 2_000 * RELAY_IDLE_SECONDS_MAX
            ),
            header_block_bytes_max=limits.header_block_bytes_max + HEADER_BYTES_MAX,
            header_count_max=limits.header_count_max + HEADERS_MAX,
        )
        self._connections = Connections(own)
        self._config = uvicorn.Config(
            app,
            reset_contextvars=True,
            lifespan="off",
            http=guarded(self._connections),
            ws="none",
            access_log=False,
            proxy_headers=False,
            log_config=None,
            server_header=False,
            date_header=False,
        )
        self._config.load()
        self._state = ServerState()
        self._server: asyncio.Server | TlsListener | None = None
        self._now_s = now_s
        self._handshakes = _Handshakes(now_s)

    async def start(self) -> None:
        """Take connections."""
        if self._tls is not None:
            self._server = TlsListener(
                self._listener,
                self._handshake,
                self._connections,
                self._tls.context,
                RefusalLog(_LOG, logging.WARNING, "at the cluster port no TLS with", self._now_s),
                CLUSTER_HANDSHAKES_MAX,
            )
            self._server.start()
            return
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._handshake, sock=self._listener)

    def _handshake(self) -> asyncio.Protocol:
        return _Handshake(self._secret, self._protocol, self.links, self._handshakes)

    def _protocol(self) -> asyncio.Protocol:
        return self._config.http_protocol_class(  # type: ignore[call-arg]
            config=self._config, server_state=self._state, app_state={}
        )

    async def close(self) -> None:
        """Take no more connections, give up handshakes, let each connection finish its request, and
        end it: by force after `CLOSE_SECONDS`. Nothing is answered after it. Idempotent."""
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        if self.links is not None:
            self.links.close(STOPS)
        self._listener.close()  # which a server of the event loop has done, the other has not
        self._handshakes.end()
        for connection in list(self._state.connections):
            connection.shutdown()
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                while self._state.tasks:
                    await asyncio.wait(set(self._state.tasks))
                await server.wait_closed()
        except TimeoutError:
            await self._end_by_force()

    async def _end_by_force(self) -> None:
        _LOG.warning(
            "%d requests of other nodes are ended, as the node stops", len(self._state.tasks)
        )
        for connection in list(self._state.connections):
            connection.transport.abort()
        for task in list(self._state.tasks):
            task.cancel()
        if self._state.tasks:
            await asyncio.wait(set(self._state.tasks), timeout=CLOSE_SECONDS)
