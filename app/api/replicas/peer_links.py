"""The connections of a replica to all others of its shard: one with each, made by the node whose
name comes first, and made again when it ends.

What the replica's thread says goes to the event loop in its order. What comes and is not carried
out yet is bounded: beyond it nothing more is read from that connection.
"""

import asyncio
import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from typing_extensions import override

from app.api.peers.pool import NotReached
from app.api.replicas.link import LinkOwner, ReplicaLink
from app.api.replicas.link_table import LinkTable
from app.cluster.replication.messages import AskEnds, Blocks, GivenBlocks, PeerMessage
from app.cluster.wire.codec import STOPS
from app.domain.limits import MIB, REPLICA_UNDER_WAY_BYTES_MAX
from app.replica.ports import Connections, Replicating

_LOG: Final = logging.getLogger(__name__)

BACK_OFF_S: Final = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Before the next attempts to connect. They begin anew behind a connection that has held for as
long as the last of them: one that is made and ends at once is no better than none."""

NOT_HANDED_BYTES_MAX: Final = 2 * MIB
"""Of blocks that the replica's thread has said and the event loop has not taken yet."""

SIGN_OF_LIFE: Final = AskEnds(0)
"""The questions of candidates have larger numbers; nobody answers this one."""

Dial = Callable[[str, int, ReplicaLink], Awaitable[object]]
"""Connects to a URL with a session, and gives the connection to the link. Raises `NotReached`."""


class _Said(NamedTuple):
    node: str
    message: PeerMessage
    data: bytes | memoryview


@dataclass(slots=True)
class _Peer:
    """Another replica."""

    link: ReplicaLink | None = None
    not_handed: int = 0
    """Bytes; guarded by the lock."""
    is_full: bool = False
    """The connection takes no more for now."""
    not_done: int = 0
    """Bytes of blocks that came and are not carried out."""
    over: asyncio.Event = field(default_factory=asyncio.Event)


class PeerLinks(Connections):
    """Of one replica. Event loop, but for what `Peers` says."""

    def __init__(
        self,
        node: str,
        peer_nodes: Sequence[str],
        urls: Callable[[], Mapping[str, str]],
        dial: Dial,
        silence_s: float,
    ) -> None:
        """`urls` gives the cluster URL of each node that has one."""
        self._listening = _Listening(self)
        self.table = LinkTable(self._listening, silence_s)
        """For the cluster port."""
        self._node = node
        self._urls = urls
        self._dial = dial
        self._silence_s = silence_s
        self._peers = {each: _Peer() for each in peer_nodes}
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._said: deque[_Said] = deque()
        self._is_handing = False
        self._replica: Replicating | None = None
        self._session = time.time_ns() // 1_000_000
        self._tasks: list[asyncio.Task[None]] = []

    @override
    def start(self, replica: Replicating) -> None:
        self._replica = replica
        dialed = [node for node in self._peers if self._node < node]
        self._tasks = [asyncio.ensure_future(self._keep(node)) for node in dialed]
        self._tasks.append(asyncio.ensure_future(self._give_signs()))

    @override
    async def stop(self, *, is_told: bool = True) -> None:
        self._replica = None
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        reason = STOPS if is_told else "the replica was killed"
        self.table.close(reason)
        for peer in self._peers.values():
            if peer.link is not None:
                peer.link.close(reason)

    # --- for the replica's thread

    @override
    def send(self, node: str, message: PeerMessage) -> None:
        self._say(_Said(node, message, b""))

    @override
    def send_blocks(
        self, node: str, message: Blocks | GivenBlocks, data: bytes | memoryview
    ) -> None:
        self._say(_Said(node, message, data))

    @override
    def has_room(self, node: str) -> bool:
        peer = self._peers[node]
        return not peer.is_full and peer.not_handed < NOT_HANDED_BYTES_MAX

    @override
    def close(self, node: str) -> None:
        self._loop.call_soon_threadsafe(self._close, node)

    def _say(self, said: _Said) -> None:
        with self._lock:
            self._said.append(said)
            self._peers[said.node].not_handed += len(said.data)
            if self._is_handing:
                return
            self._is_handing = True
        self._loop.call_soon_threadsafe(self._hand_over)

    # --- what goes out

    def _hand_over(self) -> None:
        with self._lock:
            said, self._said = self._said, deque()
            self._is_handing = False
        told: set[str] = set()
        for node, message, data in said:
            peer = self._peers[node]
            link = peer.link
            if link is not None:
                link.send(message, (data,) if data else ())  # which may end it
                peer.is_full = not link.room and link.is_open
            if data:
                told.add(node)
                with self._lock:
                    peer.not_handed -= len(data)
        for node in told:
            if self._replica is not None and self.has_room(node):
                self._replica.has_room(node)

    def _close(self, node: str) -> None:
        link = self._peers[node].link
        if link is not None:
            link.close("the replica begins anew")

    async def _give_signs(self) -> None:
        """So that silence means something between replicas that have nothing to say."""
        while True:
            await asyncio.sleep(self._silence_s / 4)
            for peer in self._peers.values():
                if peer.link is not None:
                    peer.link.send(SIGN_OF_LIFE)

    async def _keep(self, node: str) -> None:
        """Connect to a node whenever there is no connection."""
        attempt, why = 0, ""
        while True:
            self._session += 1
            peer, url = self._peers[node], self._urls().get(node)
            link = ReplicaLink(self._listening, node, self._session, self._silence_s)
            try:
                if url is not None:
                    await self._dial(url, self._session, link)
            except (NotReached, OSError, ValueError) as error:  # of the address, too
                if str(error) != why:
                    _LOG.info("replica %s is not reached: %s", node, error)
                why = str(error)
            except Exception:  # noqa: BLE001 - tried again, or this replica would never be asked
                _LOG.exception("replica %s is not reached", node)
            else:
                if url is not None and link.is_open:
                    why, made_s = "", self._loop.time()
                    self._is_made(node, link)
                    await peer.over.wait()
                    if self._loop.time() - made_s >= BACK_OFF_S[-1]:
                        attempt = 0
            await asyncio.sleep(BACK_OFF_S[min(attempt, len(BACK_OFF_S) - 1)])
            attempt += 1

    # --- what comes in

    def _is_made(self, node: str, link: ReplicaLink) -> None:
        """What is said goes out on this link from now on."""
        peer = self._peers[node]
        if peer.link is link:
            return
        if peer.link is not None:
            self._forget(peer.link)
        peer.link = link
        peer.is_full = False
        peer.not_done = 0
        peer.over.clear()
        link.send(SIGN_OF_LIFE)

    def _forget(self, link: ReplicaLink) -> None:
        self._peers[link.node].link = None
        if self._replica is not None:
            self._replica.disconnected(link.node, has_stopped=link.has_other_stopped)

    def heard(self, link: ReplicaLink, message: PeerMessage, blocks: list[memoryview]) -> None:
        """A message has come."""
        peer, replica = self._peers.get(link.node), self._replica
        if peer is None or replica is None:
            link.close("this node has no replica of a shard with it")
            return
        self._is_made(link.node, link)
        if message == SIGN_OF_LIFE:
            return
        size = sum(map(len, blocks))
        peer.not_done += size
        if peer.not_done > REPLICA_UNDER_WAY_BYTES_MAX:
            link.pause()

        def done() -> None:
            if size:
                with contextlib.suppress(RuntimeError):  # the loop is closed
                    self._loop.call_soon_threadsafe(self._done, link, size)

        replica.received(link.node, message, blocks, done)

    def _done(self, link: ReplicaLink, size: int) -> None:
        peer = self._peers[link.node]
        if peer.link is link:
            peer.not_done -= size
            if peer.not_done <= REPLICA_UNDER_WAY_BYTES_MAX // 2:
                link.resume()

    def is_over(self, link: ReplicaLink) -> None:
        """A connection has ended."""
        peer = self._peers.get(link.node)
        if peer is not None and peer.link is link:
            self._forget(link)
            peer.over.set()

    def room_again(self, link: ReplicaLink) -> None:
        """A connection that was full takes more."""
        peer = self._peers.get(link.node)
        if peer is not None and peer.link is link and peer.is_full:
            peer.is_full = False
            if self._replica is not None:
                self._replica.has_room(link.node)


class _Listening(LinkOwner):
    """Tells the links' owner, whose own `has_room` is for the replica's thread."""

    def __init__(self, links: PeerLinks) -> None:
        self._links = links

    @override
    def heard(self, link: ReplicaLink, message: PeerMessage, blocks: list[memoryview]) -> None:
        self._links.heard(link, message, blocks)

    @override
    def has_room(self, link: ReplicaLink) -> None:
        self._links.room_again(link)

    @override
    def is_over(self, link: ReplicaLink, reason: str) -> None:
        self._links.is_over(link)
