"""One place that decides where a request is carried out, and has it carried there.

Asked behind authorization and before the handler, by the gateway for the data plane and by the
router of the control plane. What is aimed here costs a look-up. What is aimed elsewhere `Carrier`
carries there as it came, and for a part of a request `ShardCalls` asks; both speak to the nodes
that `Leaders` finds. Event loop only.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Final

from app.api.aims.aim import BODY, HERE, NEWS, Aim, Asks, Names, Shard
from app.api.aims.places import Metadata, Places
from app.api.bodies.unpacking import CONTENT_ENCODING, packing_of, unpack
from app.api.formats.merging import is_small
from app.api.http.request_context import WHOLE_BODY, AsgiApp, RequestContext, batch_too_large
from app.api.operations.operation import Operation
from app.api.peers.pool import Peers
from app.api.relay.carrier import Carrier
from app.api.relay.envelope import is_at_its_end
from app.api.relay.leaders import Leaders
from app.api.relay.shard_calls import ShardCalls
from app.domain.errors import CurlewError, RelayInterrupted, ShardUnavailable
from app.domain.limits import MIB, Limits
from app.domain.quotas.token_bucket import TokenBucket
from app.runtime.direct import in_task

LOOKS_PER_S: Final = 20
"""How often the database is asked for names that nobody knows here. Who makes names up would else
ask it as often as he likes; what is new is known to every node in a second without being asked."""
LOOKS_AT_ONCE: Final = 100


class Relay:
    """One per node."""

    def __init__(
        self,
        metadata: Metadata,
        policy_version: Callable[[], int],
        limits: Limits,
        peers: Peers | None = None,
        monotonic_s: Callable[[], float] = monotonic,
        node_id: str = "",
    ) -> None:
        """Without `peers` the node can reach no other: clients are told which one to ask."""
        self._metadata = metadata
        self.limits = limits
        self._learning: asyncio.Future[bool] | None = None
        self._monotonic_s = monotonic_s
        self._looks = TokenBucket(LOOKS_PER_S, LOOKS_AT_ONCE, monotonic_s())
        self._leaders = leaders = Leaders(metadata, policy_version, peers, node_id)
        self.stops = leaders.stops
        self.is_up = leaders.is_up
        self.shards_from_here = leaders.shards_from_here
        self.drain = leaders.drain
        self.places = Places(metadata, leaders.is_up, limits)
        self._carrier = carrier = Carrier(leaders, metadata, limits, self.refresh)
        self.carry_whole = carrier.carry_whole
        self.answered_by_replica = carrier.answered_by_replica
        calls = ShardCalls(leaders)
        self.call, self.call_node, self.in_parts = calls.call, calls.call_node, calls.in_parts

    def serve_own(self, app: AsgiApp) -> None:
        """What answers for the shard of this node, when it is asked for a part of its own: the node
        leads it from now on."""
        self._leaders.own, self._leaders.follows = app, False

    def follow(self) -> None:
        """The node does not lead its shard from now on."""
        self._leaders.own, self._leaders.follows = None, True

    @property
    def follows(self) -> bool:
        """Whether this node leads no shard, so that others answer for it."""
        return self._leaders.follows

    @property
    def relayed_count(self) -> int:
        """Requests that other nodes were asked for so far."""
        return self._leaders.relayed_count

    @property
    def own_shard(self) -> str:
        """The one of this node."""
        return self._leaders.own_shard

    @property
    def metadata_version(self) -> int:
        """Of what is known here."""
        return self._metadata.snapshot.version

    def spans(self, exchange: RequestContext) -> bool:
        """Whether a request that is of several shards is to be done in all of them."""
        is_last = is_at_its_end(exchange.scope)
        is_alone = is_last or exchange.forward == b"no" or self._leaders.own is None
        return self.places.are_several and not is_alone

    @property
    def has_others(self) -> bool:
        """Whether a request may be for another node."""
        return self._leaders.follows or self.places.are_several

    async def learn_of(self, operation: Operation, names: Names) -> None:
        """Hear of a topic or group that a path names and nobody knows here: another node may have
        made it a moment ago."""
        if not self.places.are_several:
            return
        known = {"topic": self._metadata.snapshot.topics, "group": self._metadata.snapshot.groups}
        named = zip(operation.names, names, strict=False)
        if any(kind in known and name not in known[kind] for kind, name in named):
            await self.refresh()

    async def refresh(self) -> None:
        """See what other nodes have changed, as far as the database answers. Many that ask at once
        ask it once, and it is asked `LOOKS_PER_S` times at most."""
        if not self.has_others:
            return
        if self._learning is None or self._learning.done():
            if self._looks.take(1, self._monotonic_s()):
                return
            self._learning = asyncio.ensure_future(self._metadata.refresh())
        with suppress(CurlewError):  # without the database nothing new is known
            await asyncio.shield(self._learning)

    def close(self) -> None:
        """Keep no connections."""
        if self._leaders.peers is not None:
            self._leaders.peers.close()

    # --- deciding

    def aimed_at(
        self, exchange: RequestContext, operation: Operation, names: Names
    ) -> Shard | Asks:
        """By the head of the request: a shard, `HERE`, or `BODY`. `names` are stored names."""
        if operation.aim is None or not self.places.are_several:
            return HERE
        return operation.aim.head(exchange, names, self.places)

    async def carry(
        self, exchange: RequestContext, operation: Operation, names: Names, aimed: object
    ) -> bool:
        """Have the request answered by the node that leads what it is aimed at; False: that is this
        one. Raises `NotLeader`, `ShardUnavailable`, `RelayInterrupted`, `ClientGone`."""
        if aimed in (BODY, NEWS):
            assert operation.aim is not None
            await in_task()
            aimed = await self._asked(exchange, operation.aim, names, aimed)
        if aimed is HERE:
            return False
        assert isinstance(aimed, str)
        try:
            await self._carrier.carry(exchange, aimed, sends=operation.sends)
        except (ShardUnavailable, RelayInterrupted):
            may_be_stale = operation.may_be_stale and not exchange.started
            if not may_be_stale or not await self.answered_by_replica(exchange, aimed):
                raise
        return True

    async def _asked(
        self, exchange: RequestContext, aim: Aim, names: Names, aimed: object
    ) -> Shard:
        """The shard when the body is read, or what other nodes have changed is known."""
        found = aimed
        if aimed is BODY:
            found = await self._by_body(exchange, aim, names)
        if found is NEWS:
            await self.refresh()
            if aimed is BODY:
                found = await self._by_body(exchange, aim, names)
            else:
                found = aim.head(exchange, names, self.places)
        return found if isinstance(found, str) else HERE

    async def _by_body(self, exchange: RequestContext, aim: Aim, names: Names) -> Shard | Asks:
        """Read the body, and ask it; a large one in a thread, as its handler does."""
        assert aim.body is not None
        body = await self.body_of(exchange)
        look = partial(aim.body, exchange, names, self.places, body)
        return look() if is_small(body) else await asyncio.to_thread(look)

    async def body_of(self, exchange: RequestContext) -> bytes:
        """The body, unpacked; given back as it came to whoever reads it next."""
        limits = self.limits
        limit = max(limits.batch_bytes_max, MIB)
        body = await exchange.read_body(limit, batch_too_large)
        exchange.scope[WHOLE_BODY] = body
        packing = None
        with suppress(CurlewError):  # what is wrong with it, its handler says
            packing = packing_of(exchange.headers.get(CONTENT_ENCODING))
            if packing is not None:
                body = await unpack(packing, body, limit, limits, batch_too_large)
        return body
