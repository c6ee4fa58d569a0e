"""Connections to the cluster ports of other nodes: kept, used again, bounded. Event loop only."""

import asyncio
import logging
import ssl
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeVar
from urllib.parse import urlsplit

from app.api.peers.connection import Connecting, PeerConnection
from app.api.peers.handshake import SECONDS, Refused
from app.domain.errors import TooManyRequests
from app.domain.limits import (
    RELAY_CONNECTIONS_MAX,
    RELAY_CONNECTIONS_PER_PRINCIPAL_MAX,
    RELAY_IDLE_SECONDS_MAX,
)
from app.domain.quotas.quota import Quota
from app.runtime.direct import in_task
from app.runtime.secure.cluster_secret import ClusterSecret
from app.runtime.secure.tls_files import TlsFiles

_LOG: Final = logging.getLogger(__name__)

CONNECT_SECONDS: Final = 1.0
TLS_CONNECT_SECONDS: Final = 3.0
"""The same with TLS; the other side takes its time behind handshakes from here that have failed."""
DOWN_SECONDS: Final = 0.5
"""How long a node that could not be reached is not tried again."""
CONNECTING_MAX: Final = 32
"""Connections to one node that are begun at a time: it ends the oldest of many that have proved
nothing yet, `CLUSTER_HANDSHAKES_MAX` of all nodes."""


class NotReached(Exception):
    """No connection: nothing was sent. The text says why."""


@dataclass(slots=True)
class _Peer:
    """One other node."""

    idle: deque[PeerConnection] = field(default_factory=deque)
    """The one that was given back last is the last."""
    of_principals: Counter[str] = field(default_factory=Counter)
    """Those that are not idle."""
    open_count: int = 0
    down_until_s: float = 0.0
    why: str = ""
    connecting: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(CONNECTING_MAX))

    def pop_idle(self, now_s: float) -> PeerConnection | None:
        """One that is ready."""
        while self.idle:
            if now_s - self.idle[-1].idle_since_s > RELAY_IDLE_SECONDS_MAX:
                self.drop_idle()  # those before are older
                break
            kept = self.idle.pop()
            if kept.is_open:
                return kept
            self.open_count -= 1
        return None

    def drop_idle(self) -> None:
        """End the connections that nobody uses."""
        while self.idle:
            self.idle.pop().abort()
            self.open_count -= 1


C = TypeVar("C", bound=Connecting)


class Peers:
    """One per node."""

    def __init__(
        self,
        secret: ClusterSecret,
        monotonic_s: Callable[[], float],
        tls: TlsFiles | None = None,
    ) -> None:
        """With `tls` nothing is asked of a node that speaks none."""
        self._secret = secret
        self._tls = tls
        self._monotonic_s = monotonic_s
        self._peers: dict[str, _Peer] = {}

    def is_up(self, url: str) -> bool:
        """Whether the node there answers, as far as is known."""
        peer = self._peers.get(url)
        return peer is None or peer.down_until_s <= self._monotonic_s()

    async def acquire(self, url: str, principal: str | None = None) -> PeerConnection:
        """A connection that is ready, to be given back to `release`. Raises `NotReached`;
        `TooManyRequests` when the principal in whose name it is has its share."""
        peer = self._peers.get(url)
        if peer is None:
            peer = self._peers[url] = _Peer()
        if principal is None:
            return await self._acquired(url, peer)
        held = peer.of_principals
        if held[principal] >= RELAY_CONNECTIONS_PER_PRINCIPAL_MAX:
            raise TooManyRequests(
                f"principal {principal!r} has {held[principal]} requests under way that another"
                " node answers",
                hint="let some end; or ask the node that leads, as GET …/route says",
                quota=Quota(
                    "relayed-requests",
                    RELAY_CONNECTIONS_PER_PRINCIPAL_MAX,
                    "concurrent-requests",
                    0,
                ),
                retry_after_s=1,
            )
        held[principal] += 1
        try:
            made = await self._acquired(url, peer)
        except BaseException:
            _let_go(held, principal)
            raise
        made.principal = principal
        return made

    async def _acquired(self, url: str, peer: _Peer) -> PeerConnection:
        if (kept := peer.pop_idle(self._monotonic_s())) is not None:
            return kept
        await in_task()
        self._check_up(peer)
        if peer.open_count >= RELAY_CONNECTIONS_MAX:
            raise NotReached(f"{peer.open_count} requests are under way to it")
        peer.open_count += 1
        try:
            async with peer.connecting:
                kept = peer.pop_idle(self._monotonic_s())  # given back meanwhile
                if kept is not None:
                    peer.open_count -= 1
                    return kept
                self._check_up(peer)
                unheard = partial(self._unheard, url, peer)
                return await self.connect(url, lambda: PeerConnection(self._secret, unheard))
        except BaseException as error:
            peer.open_count -= 1
            if isinstance(error, NotReached):
                self._mark_down(url, peer, str(error))
            raise
        finally:
            if len(self._peers) > RELAY_CONNECTIONS_MAX:  # nodes that moved long ago
                self._peers = {key: each for key, each in self._peers.items() if each.open_count}

    def _check_up(self, peer: _Peer) -> None:
        if peer.down_until_s > self._monotonic_s():
            raise NotReached(peer.why)

    def _mark_down(self, url: str, peer: _Peer, why: str) -> None:
        if why != peer.why:
            _LOG.warning("%s cannot be reached: %s", url, why)
        peer.why, peer.down_until_s = why, self._monotonic_s() + DOWN_SECONDS

    def _unheard(self, url: str, peer: _Peer, error: OSError) -> None:
        """A connection has ended as nothing is heard of the machine: the others are no better, and
        each would cost a request."""
        peer.drop_idle()
        self._mark_down(url, peer, error.strerror or str(error))

    def release(self, url: str, connection: PeerConnection) -> None:
        """Give a connection back, whatever became of it."""
        peer = self._peers.get(url)
        if peer is None:
            peer = self._peers[url] = _Peer(open_count=1)
        if connection.principal is not None:
            _let_go(peer.of_principals, connection.principal)
            connection.principal = None
        if connection.is_reusable():
            peer.why = ""
            connection.idle_since_s = self._monotonic_s()
            peer.idle.append(connection)
            return
        peer.open_count -= 1
        if connection.is_open:
            connection.abort()

    def close(self) -> None:
        """End the connections that nobody uses."""
        for peer in self._peers.values():
            peer.drop_idle()

    async def connect(self, url: str, make: Callable[[], C]) -> C:
        """A new connection, when its handshake is over; nobody keeps it. Raises `NotReached`."""
        loop = asyncio.get_running_loop()
        address = urlsplit(url)
        context = self._context_for(address.scheme)
        try:
            async with asyncio.timeout(TLS_CONNECT_SECONDS if context else CONNECT_SECONDS):
                _, made = await loop.create_connection(
                    make,
                    address.hostname or "",
                    address.port or (443 if context else 80),
                    ssl=context,
                )
            try:
                async with asyncio.timeout(SECONDS):
                    await made.ready
            except BaseException:
                made.abort()  # nobody else has it
                raise
        except TimeoutError as error:
            raise NotReached("it does not answer") from error
        except ssl.SSLCertVerificationError as error:
            raise NotReached(f"its certificate is refused: {error.verify_message}") from error
        except OSError as error:
            why = error.strerror or str(error)
            if context is not None and isinstance(error, ConnectionError):
                why += "; if it refuses the certificate of this node, its log says so"
            raise NotReached(why) from error
        except Refused as error:
            raise NotReached(str(error)) from error
        return made

    def _context_for(self, scheme: str) -> ssl.SSLContext | None:
        """Raises `NotReached` where one of the two speaks TLS and the other does not."""
        if (scheme == "https") == (self._tls is not None):
            return None if self._tls is None else self._tls.asking_context()
        if self._tls is None:
            raise NotReached("it speaks TLS, and this node has no cluster_tls_cert_file")
        raise NotReached("it speaks no TLS, and this node has cluster_tls_cert_file")


def _let_go(held: Counter[str], principal: str) -> None:
    held[principal] -= 1
    if held[principal] <= 0:
        del held[principal]
