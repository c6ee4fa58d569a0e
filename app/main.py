"""The composition root: a node becomes an ASGI application, and a server serves it."""

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Coroutine, Iterator
from ipaddress import ip_address
from typing import Final

import uvicorn
from starlette.types import ASGIApp
from typing_extensions import override

from app.api.peers.pool import Peers
from app.api.relay.relay import Relay
from app.api.server import Connections, TlsListener, guarded
from app.api.server.cluster_listener import ClusterApp, ClusterListener, PolicyRefresh
from app.config import Config, ConfigError
from app.node import Node
from app.node_app import NodeApp
from app.runtime.service import within
from app.web import LiveStreams

_LOG: Final = logging.getLogger(__name__)

STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
BACKLOG: Final = 2_048
LINGER_SECONDS: Final = 0.5
"""A client with a request on its way has sent it by then; idle clients delay a stop by this."""
LINGER_STEP_SECONDS: Final = 0.02
STOP_SECONDS: Final = 10
"""How long a stop may take. Whatever it waits for before the last sync ends by this."""
SYNC_SECONDS: Final = 2
"""Of `STOP_SECONDS`: what is left for the last sync and checkpoint."""
HURRIED_SECONDS: Final = 0.5
"""Behind a second signal: how long a stop waits for clients and for the database."""


class PortInUse(ConfigError):
    """Another program listens on the address; the text says what to do."""


def relay_of(node: Node) -> Relay:
    """What carries requests to the nodes of other shards."""
    secret = node.secret
    peers = None if secret is None else Peers(secret, node.clock.monotonic_s, node.cluster_tls)
    principals = node.metadata.principals
    return Relay(
        node.metadata, lambda: principals.keyring.version, node.limits, peers, node_id=node.node_id
    )


def _cluster_listener(node: Node, app: ASGIApp) -> ClusterListener | None:
    if node.secret is None:
        return None
    principals = node.metadata.principals
    policies = PolicyRefresh(lambda: principals.keyring.version, principals.refresh)
    host, _, port = node.config.cluster_listen.rpartition(":")
    listener = _listen(host.strip("[]"), int(port), "--cluster-listen")
    return ClusterListener(
        listener,
        node.secret,
        ClusterApp(app, node.metadata, policies),
        node.limits,
        node.cluster_tls,
    )


def bind(config: Config) -> socket.socket:
    """A listening socket: clients may connect from now on. Raises `PortInUse`."""
    return _listen(config.host, config.port, "--port")


def _listen(host: str, port: int, setting: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        _send_without_pacing(listener)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise PortInUse(
            f"{host}:{port} cannot be used: {error.strerror}; "
            f"stop the program that listens there, or choose another port with {setting}"
        ) from error
    return listener


def _send_without_pacing(listener: socket.socket) -> None:
    """Let connections within this machine send as fast as their readers read.

    Where BBR is the machine's way to control congestion, it spreads what is sent over time, by a
    timer of the kernel for every 64 KiB or so. On the loopback there is nothing to congest. Reno
    is in every Linux, and every process may choose it. Other connections keep the machine's way, as
    all do where it is refused.
    """
    option: int | None = getattr(socket, "TCP_CONGESTION", None)
    if option is not None and ip_address(listener.getsockname()[0]).is_loopback:
        with contextlib.suppress(OSError):
            listener.setsockopt(socket.IPPROTO_TCP, option, b"reno")


class NodeServer(uvicorn.Server):
    """Uvicorn, told to answer the long polls before it waits for connections to end."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.open_connections = Connections(node.limits)
        self._live = LiveStreams()
        self._step: asyncio.Task[None] | None = None
        """What a stop waits for."""
        self.relay = relay_of(node)
        self.app = app = NodeApp(node, self.open_connections, self._live, self.relay)
        self._cluster = _cluster_listener(node, app)
        if self._cluster is not None:
            node.listen_on(self._cluster)
        super().__init__(
            uvicorn.Config(
                app,
                reset_contextvars=True,  # a request that was pipelined is begun by another one
                interface="asgi3",
                lifespan="off",
                loop="uvloop",
                http=guarded(self.open_connections),
                ws="none",
                access_log=False,
                proxy_headers=False,  # the application reads them
                log_config=None,
                server_header=False,
                date_header=False,
                backlog=BACKLOG,
                timeout_graceful_shutdown=STOP_SECONDS - SYNC_SECONDS,
            )
        )

    @contextlib.contextmanager
    @override
    def capture_signals(self) -> Iterator[None]:
        """Stop in order on the first signal, at once on a second one.

        Uvicorn's own version raises the signal again when it is done, which would end the process
        before the node has written its last checkpoint.
        """
        loop = asyncio.get_running_loop()
        for number in STOP_SIGNALS:
            loop.add_signal_handler(number, self._on_signal)
        try:
            yield
        finally:
            for number in STOP_SIGNALS:
                loop.remove_signal_handler(number)

    def _on_signal(self) -> None:
        self.force_exit = self.should_exit
        self.should_exit = True
        if self.force_exit and self._step is not None:
            self._step.cancel()

    async def _wait_for(self, work: Coroutine[None, None, None], end_s: float, what: str) -> None:
        """Do one step of a stop until `end_s`, of the loop's clock. A second signal ends it, and
        the node stops all the same, as it does behind a fault. `what`: what is not done then."""
        now_s = asyncio.get_running_loop().time()
        seconds = min(end_s - now_s, HURRIED_SECONDS if self.force_exit else STOP_SECONDS)
        self._step = task = asyncio.ensure_future(within(seconds, work))
        try:
            await asyncio.wait({task})
        finally:
            task.cancel()
        if task.cancelled():
            _LOG.warning("%s: told to stop at once", what)
        elif isinstance(task.exception(), TimeoutError):
            _LOG.warning("%s: it takes too long", what)
        elif task.exception() is not None:
            _LOG.error("%s", what, exc_info=task.exception())

    async def _drain(self) -> None:
        """Answer who waits, finish what is in flight, and let go of connections."""
        try:
            await self._node.drain()
        finally:
            await self.relay.drain()
        await self._let_connections_end()

    async def _let_connections_end(self) -> None:
        """Give clients that are about to send the time to hear a 503 instead of a reset.

        Each answer of a draining node ends its connection; the idle ones are closed afterwards.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + LINGER_SECONDS
        connections = self.server_state.connections
        while connections and not self.force_exit and loop.time() < end:  # noqa: ASYNC110
            await asyncio.sleep(LINGER_STEP_SECONDS)

    @override
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if self._cluster is not None:
            await self._cluster.start()
        tls = self._node.tls
        if tls is None:
            await super().startup(sockets)
            return

        def make_protocol() -> asyncio.Protocol:
            """As uvicorn does."""
            return self.config.http_protocol_class(  # type: ignore[call-arg]
                config=self.config,
                server_state=self.server_state,
                app_state=self.lifespan.state,
            )

        self.servers = []
        for each in sockets or ():
            listener = TlsListener(each, make_protocol, self.open_connections, tls.context)
            listener.start()
            self.servers.append(listener)  # type: ignore[arg-type]  # has what is asked of it
        self.started = True

    @override
    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        loop = asyncio.get_running_loop()
        end_s = loop.time() + STOP_SECONDS - SYNC_SECONDS
        if not self.force_exit:  # requests are taken meanwhile, and carried to who leads next
            await self._wait_for(self._node.hand_over(), end_s, "the shard is not handed over")
        _LOG.info("stopping: answering long polls, finishing what is in flight")
        for server in self.servers:
            server.close()
        self._live.close()
        await self._wait_for(self._drain(), end_s, "not all who waited were answered")
        self.config.timeout_graceful_shutdown = max(int(end_s - loop.time()), 0)
        await super().shutdown(sockets)
        self.relay.close()
        if self._cluster is not None:
            await self._cluster.close()
