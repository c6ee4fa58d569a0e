"""One place that decides where a request is carried out, and carries it there.

Asked behind authorization and before the handler, by the gateway for the data plane and by the
router of the control plane. What is aimed here costs a look-up. What is aimed elsewhere goes to the
cluster port of the node that leads the shard as it came, without the caller's credentials; the
answer comes back as it is. A request is sent once: only a refusal that says `NOT_LEADER`, before
which nothing was done, is sent again, once. A connection that ends behind a request leaves open
what became of it. Event loop only.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from time import monotonic
from typing import Final

from app.api.aims.aim import BODY, HERE, Aim, Asks, Names, Shard
from app.api.aims.places import Metadata, Places
from app.api.bodies.unpacking import CONTENT_ENCODING, packing_of, unpack
from app.api.dataplane.client_watch import ClientWatch
from app.api.dataplane.pulls.read_choice import ASKS_STALE
from app.api.http.request_context import (
    REQUEST_ID,
    WHOLE_BODY,
    AsgiApp,
    ClientGone,
    RequestContext,
    batch_too_large,
)
from app.api.operations.operation import Operation
from app.api.relay.calls import (
    HOP,
    STAYS,
    CallAnswer,
    CallRequest,
    call_own,
    path_of,
    query_of,
)
from app.api.relay.envelope import (
    PREFIX,
    RELAYED,
    Envelope,
    is_at_its_end,
    of_caller,
    of_node,
)
from app.api.relay.peer_connection import Interrupted, PeerConnection
from app.api.relay.peers import NotReached, Peers
from app.domain.errors import CurlewError, NotLeader, RelayInterrupted, ShardUnavailable
from app.domain.limits import MIB, Limits
from app.domain.quotas.token_bucket import TokenBucket
from app.runtime.direct import in_task

WATCH_AFTER_S: Final = 0.05
"""A request that is answered earlier needs nobody who looks whether its client is still there."""
LOOKS_PER_S: Final = 20
"""How often the database is asked for names that nobody knows here. Who makes names up would else
ask it as often as he likes; what is new is known to every node in a second without being asked."""
LOOKS_AT_ONCE: Final = 100
SENT_AGAIN_MAX: Final = MIB // 16
"""Bytes of a body that a node which follows reads before it sends it on, so that it can send it to
another node where the first one leads no more."""

DRAIN_SECONDS: Final = 1.0
"""How long a node that stops waits for the answers to what it carries: long polls and streams take
longer."""


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
        self.follows = False
        """Whether this node leads no shard, so that others answer for it."""
        self._node_id = node_id
        self._metadata = metadata
        self._policy_version = policy_version
        self.limits = limits
        self._peers = peers
        self.places = Places(metadata, self.is_up)
        self.relayed_count = 0
        self._learning: asyncio.Future[bool] | None = None
        self._monotonic_s = monotonic_s
        self._looks = TokenBucket(LOOKS_PER_S, LOOKS_AT_ONCE, monotonic_s())
        self._own: AsgiApp | None = None
        self._carried: set[PeerConnection] = set()
        """On which other nodes answer a request as a whole."""
        self._answered: asyncio.Future[None] | None = None

    def serve_own(self, app: AsgiApp) -> None:
        """What answers for the shard of this node, when it is asked for a part of its own: the node
        leads it from now on."""
        self._own, self.follows = app, False

    def follow(self) -> None:
        """The node does not lead its shard from now on."""
        self._own, self.follows = None, True

    @property
    def own_shard(self) -> str:
        """The one of this node."""
        return self._metadata.shard

    def shards_from_here(self) -> list[str]:
        """All shards, that of this node first."""
        own = self._metadata.shard
        return [own, *sorted(self._metadata.snapshot.shards.keys() - {own})]

    def spans(self, exchange: RequestContext) -> bool:
        """Whether a request that is of several shards is to be done in all of them."""
        is_last = is_at_its_end(exchange.scope)
        is_alone = is_last or exchange.forward == b"no" or self._own is None
        return self.places.are_several and not is_alone

    @property
    def has_others(self) -> bool:
        """Whether a request may be for another node."""
        return self.follows or self.places.are_several

    def is_up(self, shard: str) -> bool:
        """Whether the node that leads a shard answers, as far as is known."""
        view = self._metadata.snapshot.shards.get(shard)
        return view is not None and (self._peers is None or self._peers.is_up(view.cluster_url))

    async def learn_of(self, operation: Operation, names: Names) -> None:
        """Hear of a topic that a path names and nobody knows here: another node may have made it a
        moment ago."""
        if "topic" not in operation.names or not self.places.are_several:
            return
        if self.places.topic(names[operation.names.index("topic")]) is not None:
            return
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

    async def drain(self) -> None:
        """The node stops: wait a moment for the answers to what it carries, and let go of the rest.
        Whoever asked is told so, and what was leased for them the other node gives back."""
        try:
            async with asyncio.timeout(DRAIN_SECONDS):
                while self._carried:
                    self._answered = asyncio.get_running_loop().create_future()
                    await self._answered
        except TimeoutError:
            pass
        finally:  # also where the stop is cut off
            for connection in self._carried:
                connection.abort()

    def close(self) -> None:
        """Keep no connections."""
        if self._peers is not None:
            self._peers.close()

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
        if aimed is BODY:
            assert operation.aim is not None
            aimed = await self._by_body(exchange, operation.aim, names)
        if aimed is HERE:
            return False
        assert isinstance(aimed, str)
        try:
            await self._pass_on(exchange, aimed, sends=operation.sends)
        except (ShardUnavailable, RelayInterrupted):
            may_be_stale = operation.may_be_stale and not exchange.started
            if not may_be_stale or not await self._answered_by_replica(exchange, aimed):
                raise
        return True

    async def _by_body(self, exchange: RequestContext, aim: Aim, names: Names) -> Shard:
        """Read the body, and ask it."""
        assert aim.body is not None
        return aim.body(exchange, names, self.places, await self.body_of(exchange))

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

    # --- carrying

    async def _pass_on(self, exchange: RequestContext, shard: str, *, sends: bool) -> None:
        # Out of the scope, where whoever looks after the client would take it away before the
        # request is sent once more.
        body: bytes | None = exchange.scope.pop(WHOLE_BODY, None)
        connection, url = await self._reach(exchange, shard)
        try:
            if not await self._exchange(exchange, connection, body, shard, sends=sends):
                return
        finally:
            self._release(url, connection)
        await in_task()  # the database may have to be waited for
        await self._metadata.refresh()
        connection, url = await self._reach(exchange, shard)
        try:
            if await self._exchange(exchange, connection, body, shard, sends=sends):
                raise ShardUnavailable(
                    f"the node that is said to lead shard {shard!r} does not",
                    hint="send again in a moment: another node is about to lead it",
                    fields={"shard": shard},
                )
        finally:
            self._release(url, connection)

    async def _answered_by_replica(self, exchange: RequestContext, shard: str) -> bool:
        """Have a read answered by a replica in sync of a shard whose leader does not answer, as
        `MQ-Stale`; False: none does."""
        view = self._metadata.snapshot.shards.get(shard)
        if view is None or self._peers is None or is_at_its_end(exchange.scope):
            return False
        for member in view.members:
            if member.node_id not in view.in_sync or member.node_id == view.leader:
                continue
            try:
                connection = await self._peers.acquire(member.cluster_url)
            except NotReached:
                continue
            try:
                if not await self._exchange(
                    exchange, connection, b"", shard, sends=False, asks=ASKS_STALE
                ):
                    return True
            except RelayInterrupted:
                continue
            finally:
                self._release(member.cluster_url, connection)
        return False

    async def carry_whole(self, exchange: RequestContext, *, sends: bool) -> None:
        """Have the request answered by a node that leads, as if that one had been asked: by the
        leader of the own shard, or by another one where that is not reached. For a node that
        follows. Raises `NotLeader` where the client wants no relay, `ShardUnavailable` when nobody
        leads, `RelayInterrupted` and `ClientGone`."""
        body = await self._small_body_of(exchange)
        found: ShardUnavailable | None = None
        for is_again in (False, True):
            if is_again:
                with suppress(CurlewError):
                    await self.refresh()
            for shard in self.shards_from_here():
                try:
                    connection, url = await self._reach(exchange, shard)
                except ShardUnavailable as error:
                    found = found or error
                    continue
                try:
                    if not await self._exchange(
                        exchange, connection, body, shard, sends=sends, is_whole=True
                    ):
                        return
                finally:
                    self._release(url, connection)
        raise found or _moved(self._metadata.shard)

    async def _small_body_of(self, exchange: RequestContext) -> bytes | None:
        """The body, to be sent again if need be; None: it is large, or nobody knows how large."""
        length = exchange.headers.get(b"content-length")
        if length is None and b"transfer-encoding" not in exchange.headers:
            return b""
        if WHOLE_BODY not in exchange.scope and (length is None or int(length) > SENT_AGAIN_MAX):
            return None
        return await exchange.read_body(max(self.limits.batch_bytes_max, MIB), batch_too_large)

    def _release(self, url: str, connection: PeerConnection) -> None:
        assert self._peers is not None
        self._peers.release(url, connection)

    async def _reach(self, exchange: RequestContext, shard: str) -> tuple[PeerConnection, str]:
        """A connection to the leader of a shard. Raises `ShardUnavailable`; `NotLeader` where a
        client wants no relay, and where this is one already."""
        view = self._metadata.snapshot.shards.get(shard)
        if view is not None and self.follows and view.leader == self._node_id:
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
        no_relay = exchange.forward == b"no" or is_last or self._peers is None
        if not (no_relay or view.leader):
            raise ShardUnavailable(
                f"nobody leads shard {shard!r} yet",
                hint="send again in a moment; GET /v1/cluster says which replicas have joined",
                fields={"shard": shard},
            )
        if no_relay or not view.cluster_url or self._peers is None:
            raise NotLeader(
                "what the request is aimed at", shard, view.advertise_url or None, view.epoch
            )
        try:
            return await self._peers.acquire(view.cluster_url), view.cluster_url
        except NotReached as error:
            raise ShardUnavailable(
                f"the node that leads shard {shard!r} ({view.cluster_url}) cannot be reached:"
                f" {error}",
                hint="nothing was done; what is aimed at other shards goes on",
                fields={"shard": shard},
            ) from error

    async def _exchange(
        self,
        exchange: RequestContext,
        connection: PeerConnection,
        body: bytes | None,
        shard: str,
        *,
        sends: bool,
        is_whole: bool = False,
        asks: str = "",
    ) -> bool:
        """Send the request and pass the answer on; True: it is to be sent once more. Without a
        `body` it is read as it comes, and cannot be sent again. `is_whole`: it is done over all
        shards by whoever is asked, not for this shard alone."""
        self.relayed_count += 1
        self._carried.add(connection)
        loop = asyncio.get_running_loop()
        watch = ClientWatch(exchange.receive, exchange)
        timer: asyncio.TimerHandle | None = None
        try:
            with watch:
                await self._send(exchange, connection, body, is_whole=is_whole, asks=asks)
                timer = loop.call_later(WATCH_AFTER_S, watch.watch, connection.abort)
                try:
                    await connection.head()
                except Interrupted:
                    if watch.gone():
                        return False  # and says why at the end of the block
                    raise
                if connection.status == HTTPStatus.MISDIRECTED_REQUEST:
                    await _whole(connection)
                    if body is None:
                        raise _moved(shard)
                    return True
                await _answer(exchange, connection)
        except Interrupted as error:
            if exchange.started:
                raise ClientGone from error  # the rest of the answer is not to be had
            raise _interrupted(shard, sends=sends) from error
        finally:
            self._carried.discard(connection)
            if self._answered is not None and not self._answered.done():
                self._answered.set_result(None)
            if timer is not None:
                timer.cancel()
        return False

    async def _send(
        self,
        exchange: RequestContext,
        connection: PeerConnection,
        body: bytes | None,
        *,
        is_whole: bool,
        asks: str,
    ) -> None:
        scope = exchange.scope
        connection.is_to_head = scope["method"] == "HEAD"
        lines = [b"%b %b HTTP/1.1" % (scope["method"].encode(), _target(exchange))]
        lines += [
            b"%b: %b" % (name, value)
            for name, value in scope["headers"]
            if name not in STAYS and not name.startswith(PREFIX)
        ]
        envelope = self._envelope_of(exchange)._replace(is_whole=is_whole, asks=asks)
        lines += [b"%b: %b" % each for each in envelope.headers()]
        lines.append(b"%b: %b" % (REQUEST_ID, exchange.request_id))
        if body is not None:
            if body or b"content-length" in exchange.headers:
                lines.append(b"content-length: %d" % len(body))
            connection.write(b"\r\n".join(lines) + b"\r\n\r\n" + body)
            return
        length = exchange.headers.get(b"content-length")
        is_chunked = length is None
        lines.append(
            b"transfer-encoding: chunked" if length is None else b"content-length: " + length
        )
        connection.write(b"\r\n".join(lines) + b"\r\n\r\n")
        more = True
        while more:
            event = await exchange.receive()
            if event["type"] != "http.request":
                raise ClientGone
            part, more = event.get("body", b""), event.get("more_body", False)
            if part:
                connection.write(b"%x\r\n%b\r\n" % (len(part), part) if is_chunked else part)
            await connection.drain()
        if is_chunked:
            connection.write(b"0\r\n\r\n")

    def _envelope_of(self, exchange: RequestContext) -> Envelope:
        versions = self._metadata.snapshot.version, self._policy_version()
        return of_caller(exchange.caller, versions, exchange.scope)

    def _envelope_of_call(self, exchange: RequestContext, request: CallRequest) -> Envelope:
        envelope = self._envelope_of(exchange)._replace(asks=request.asks)
        return of_node(envelope) if request.is_of_node else envelope

    # --- calls

    async def call(
        self,
        exchange: RequestContext,
        shard: str,
        request: CallRequest,
        *,
        seconds: float,
        sends: bool = False,
    ) -> CallAnswer:
        """Ask the node that leads a shard for a part of what `exchange` asks, in the name of its
        caller, or of the node where `request` says so. `seconds` are counted from when the request
        is written: whoever cannot be reached was sent nothing. Raises `ShardUnavailable` when
        nothing was done there, and `RelayInterrupted` when that is not known; with `sends` they
        have an outcome."""
        if shard == self._metadata.shard and self._own is not None:
            envelope = self._envelope_of_call(exchange, request)
            try:
                async with asyncio.timeout(seconds):
                    return await call_own(self._own, exchange, request, envelope)
            except TimeoutError as error:
                raise _too_slow(shard, seconds, sends=sends) from error
        connection, url = await self._reach(exchange, shard)
        self.relayed_count += 1
        connection.is_to_head = request.method == "HEAD"
        try:
            async with asyncio.timeout(seconds):
                answer = await self._ask(exchange, connection, request)
        except TimeoutError as error:
            raise _too_slow(shard, seconds, sends=sends) from error
        except Interrupted as error:
            raise _interrupted(shard, sends=sends) from error
        finally:
            self._release(url, connection)
        if answer.status == HTTPStatus.MISDIRECTED_REQUEST:
            raise _moved(shard)
        return answer

    async def call_node(
        self, exchange: RequestContext, node: str, url: str, request: CallRequest, *, seconds: float
    ) -> CallAnswer:
        """Ask a node, whatever it leads, by the URL of its cluster port. Raises `ShardUnavailable`
        where it is not reached, and `RelayInterrupted` where it may have been done there."""
        if self._peers is None or RELAYED in exchange.scope:
            raise ShardUnavailable(f"the node {node} is not asked from here", hint="ask it")
        try:
            connection = await self._peers.acquire(url)
        except NotReached as error:
            raise ShardUnavailable(
                f"the node {node} ({url}) cannot be reached: {error}",
                hint="nothing was done; start the node, or ask for another one",
            ) from error
        try:
            async with asyncio.timeout(seconds):
                return await self._ask(exchange, connection, request)
        except (TimeoutError, Interrupted) as error:
            raise RelayInterrupted(
                f"the node {node} did not answer: it may have been done there",
                hint="look at GET /v1/cluster/events before you ask again",
            ) from error
        finally:
            self._release(url, connection)

    async def _ask(
        self, exchange: RequestContext, connection: PeerConnection, request: CallRequest
    ) -> CallAnswer:
        lines = [b"%b %b HTTP/1.1" % (request.method.encode(), request.target)]
        lines += [b"%b: %b" % each for each in request.headers]
        lines += [b"%b: %b" % each for each in self._envelope_of_call(exchange, request).headers()]
        lines.append(b"%b: %b" % (REQUEST_ID, exchange.request_id))
        lines += [b"host: cluster", b"content-length: %d" % len(request.body)]
        connection.write(b"\r\n".join(lines) + b"\r\n\r\n" + request.body)
        await connection.head()
        body = await _whole(connection, exchange)
        return CallAnswer(connection.status, connection.headers, body)


def _target(exchange: RequestContext) -> bytes:
    path, query = path_of(exchange), query_of(exchange)
    return b"%b?%b" % (path, query) if query else path


async def _whole(connection: PeerConnection, exchange: RequestContext | None = None) -> bytes:
    parts: list[bytes] = []
    while part := await connection.take():
        if exchange is not None:
            exchange.hold(len(part))
        parts.append(part)
    return b"".join(parts)


async def _answer(exchange: RequestContext, connection: PeerConnection) -> None:
    """Pass the answer on, as it is."""
    headers = [each for each in connection.headers if each[0] not in HOP]
    if connection.is_complete:
        await exchange.pass_on(connection.status, headers, await connection.take())
        return
    await exchange.pass_on_start(connection.status, headers)
    while part := await connection.take():
        await exchange.go_on(part)
    await exchange.finish(b"")


def _moved(shard: str) -> ShardUnavailable:
    return ShardUnavailable(
        f"the node that is said to lead shard {shard!r} does not",
        hint="send again in a moment",
        fields={"shard": shard},
    )


def _interrupted(shard: str, *, sends: bool) -> RelayInterrupted:
    return RelayInterrupted(
        f"the connection to the node that leads shard {shard!r} ended behind the request: it may"
        " have been carried out",
        hint="look before you send it again, or send under an idempotency key",
        fields={"shard": shard},
        outcome="unknown" if sends else None,
    )


def _too_slow(shard: str, seconds: float, *, sends: bool) -> CurlewError:
    detail = f"the node that leads shard {shard!r} has not answered in {seconds:g} s"
    if sends:
        return RelayInterrupted(
            detail + ": it may have been carried out",
            hint="look before you send it again, or send under an idempotency key",
            fields={"shard": shard},
            outcome="unknown",
        )
    return ShardUnavailable(detail, hint="ask again in a moment", fields={"shard": shard})
