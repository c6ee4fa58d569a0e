"""Connections to the nodes that lead shards, and what this node says of itself on them. Event loop
only."""

import asyncio
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass
from typing import Final

from app.api.aims.places import Metadata
from app.api.dataplane.client_watch import ClientWatch
from app.api.http.request_context import AsgiApp, RequestContext
from app.api.peers.connection import PeerConnection
from app.api.peers.pool import NotReached, Peers
from app.api.relay.envelope import RELAYED, Envelope, is_at_its_end, of_caller
from app.cluster import ShardView
from app.domain.access.actions import Action
from app.domain.errors import NotLeader, ShardUnavailable

WATCH_AFTER_S: Final = 0.05
"""A request that is answered earlier needs nobody who looks whether its client is still there."""
LEFT_SECONDS: Final = 5.0
"""A request without the head of an answer ends so long after its shard has another leader: a node
that leads no more says so long before, unless its process stands still."""
DRAIN_SECONDS: Final = 1.0
"""How long a node that stops waits for the answers to what it carries: long polls and streams take
longer."""


@dataclass(slots=True)
class _Aim:
    """Why a connection was reached."""

    shard: str
    leader: str
    """The node, then."""
    left_s: float | None = None
    """Since when it is known that another one leads."""


class Leaders:
    """One per node. `peers` None: it can reach no other, and clients are told which one to ask."""

    def __init__(
        self,
        metadata: Metadata,
        policy_version: Callable[[], int],
        peers: Peers | None,
        node_id: str,
    ) -> None:
        self.node_id = node_id
        self.peers = peers
        self.own: AsgiApp | None = None
        """What answers for the shard of this node; None: nothing here does."""
        self.follows = False
        """Whether this node leads no shard, so that others answer for it."""
        self.relayed_count = 0
        self.stops = asyncio.Event()
        self._metadata = metadata
        self._policy_version = policy_version
        self._carried: dict[PeerConnection, tuple[float, ClientWatch] | None] = {}
        """On which other nodes answer a request as a whole: since when it is sent, and who looks
        after its client once the answer takes longer; None: it is not sent yet."""
        self._aims: dict[PeerConnection, _Aim] = {}
        """Of those that have reached a leader."""
        self._look: asyncio.TimerHandle | None = None
        self._answered: asyncio.Future[None] | None = None

    @property
    def own_shard(self) -> str:
        """The one of this node."""
        return self._metadata.shard

    def shards_from_here(self) -> list[str]:
        """All shards, that of this node first."""
        own = self._metadata.shard
        return [own, *sorted(self._metadata.snapshot.shards.keys() - {own})]

    def is_up(self, shard: str) -> bool:
        """Whether the node that leads a shard answers, as far as is known."""
        view = self._metadata.snapshot.shards.get(shard)
        if view is None or self._is_to_lead(view):
            return False
        return self.peers is None or self.peers.is_up(view.cluster_url)

    def _is_to_lead(self, view: ShardView) -> bool:
        """Whether this node leads the shard no more, or not yet, and nobody else does."""
        return self.follows and view.leader == self.node_id

    def envelope_of(self, exchange: RequestContext) -> Envelope:
        """What travels with a request of the caller."""
        return of_caller(exchange.caller, self.versions())

    def versions(self) -> tuple[int, int]:
        """Of metadata and policies, as they are known here."""
        return self._metadata.snapshot.version, self._policy_version()

    async def reach(self, exchange: RequestContext, shard: str) -> tuple[PeerConnection, str]:
        """A connection to the leader of a shard. Raises `ShardUnavailable`; `NotLeader` where a
        client wants no relay, and where this is one already."""
        view = self._metadata.snapshot.shards.get(shard)
        if view is not None and self._is_to_lead(view):
            raise ShardUnavailable(
                f"this node leads shard {shard!r} no more, or not yet, and nobody else does",
                hint="send again in a moment: a node is about to lead it",
                fields={"shard": shard},
            )
        if view is None:
            raise ShardUnavailable(
                f"it is in shard {shard!r}, which the cluster does not have"
                if shard
                else "its queue is in no shard: the one that had it was released",
                hint="start the node that has its store; or let another store take its queues with"
                " `curlew release-store --shard NAME`",
                fields={"shard": shard},
            )
        is_last = is_at_its_end(exchange.scope) or (self.follows and RELAYED in exchange.scope)
        no_relay = exchange.forward == b"no" or is_last or self.peers is None
        if not (no_relay or view.leader):
            raise ShardUnavailable(
                f"nobody leads shard {shard!r} yet",
                hint="send again in a moment; GET /v1/cluster says which replicas have joined",
                fields={"shard": shard},
            )
        if no_relay or not view.cluster_url or self.peers is None:
            raise NotLeader(
                "what the request is aimed at", shard, view.advertise_url or None, view.epoch
            )
        try:
            connection = await self.peers.acquire(view.cluster_url, exchange.caller.name)
        except NotReached as error:
            why = ""
            if exchange.caller.may_run(Action.GET):  # addresses of nodes are not everybody's
                why = f" at {view.cluster_url}: {error}"
            raise ShardUnavailable(
                f"the node that leads shard {shard!r} cannot be reached{why}",
                hint="nothing was done; what is aimed at other shards goes on",
                fields={"shard": shard},
            ) from error
        self._aims[connection] = _Aim(shard, view.leader)
        return connection, view.cluster_url

    def release(self, url: str, connection: PeerConnection) -> None:
        """The answer is there, or nobody wants it: the connection is for others."""
        assert self.peers is not None
        self._aims.pop(connection, None)
        self.peers.release(url, connection)

    def begin(self, connection: PeerConnection) -> None:
        """A request is answered on it as a whole: a node that stops waits a moment for that."""
        self.relayed_count += 1
        self._carried[connection] = None

    def sent(self, connection: PeerConnection, watch: ClientWatch) -> None:
        """The request is sent whole. Where its answer takes longer than `WATCH_AFTER_S`, up to
        twice that, `watch` begins; and the connection ends `LEFT_SECONDS` after another node is
        known to lead the shard, if no head has come."""
        loop = asyncio.get_running_loop()
        self._carried[connection] = loop.time(), watch
        if self._look is None:
            self._look = loop.call_later(WATCH_AFTER_S, self._watch_slow, context=Context())

    def _watch_slow(self) -> None:
        loop = asyncio.get_running_loop()
        self._look = loop.call_later(WATCH_AFTER_S, self._watch_slow) if self._carried else None
        now_s = loop.time()
        for connection, sent in list(self._carried.items()):
            if sent is not None and sent[0] <= now_s - WATCH_AFTER_S:
                sent[1].begin(connection.abort)
                if not connection.status and self._is_left(connection, now_s):
                    connection.abort()

    def _is_left(self, connection: PeerConnection, now_s: float) -> bool:
        """Whether another node leads for `LEFT_SECONDS` what it was asked for as the leader."""
        aim = self._aims.get(connection)
        if aim is None:
            return False
        view = self._metadata.snapshot.shards.get(aim.shard)
        if view is not None and view.leader == aim.leader:
            aim.left_s = None
        elif aim.left_s is None:
            aim.left_s = now_s
        return aim.left_s is not None and now_s - aim.left_s >= LEFT_SECONDS

    def end(self, connection: PeerConnection) -> None:
        """It is answered, or will not be."""
        self._carried.pop(connection, None)
        if self._answered is not None and not self._answered.done():
            self._answered.set_result(None)

    async def drain(self) -> None:
        """The node stops: wait a moment for the answers to what it carries, and let go of the rest.
        Whoever asked is told so, and what was leased for them the other node gives back."""
        self.stops.set()
        try:
            async with asyncio.timeout(DRAIN_SECONDS):
                while self._carried:
                    self._answered = asyncio.get_running_loop().create_future()
                    await self._answered
        except TimeoutError:
            pass
        finally:  # also where the stop is cut off
            for connection in list(self._carried):  # who hears it goes on at once
                connection.abort()
