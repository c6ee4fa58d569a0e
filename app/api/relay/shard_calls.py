"""Asks the node that leads a shard for a part of what this node was asked. Event loop only."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus

from app.api.http.request_context import RequestContext
from app.api.peers.connection import Interrupted, PeerConnection
from app.api.peers.pool import NotReached
from app.api.relay.calls import CallAnswer, CallRequest, call_own, whole_of, written_to
from app.api.relay.envelope import RELAYED, Envelope, of_node
from app.api.relay.leaders import Leaders
from app.api.relay.unanswered import interrupted, moved, too_slow
from app.domain.errors import RelayInterrupted, ShardUnavailable


class ShardCalls:
    """One per node. What is of its own shard it asks of itself, without a connection."""

    def __init__(self, leaders: Leaders) -> None:
        self._leaders = leaders

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
        leaders = self._leaders
        if shard == leaders.own_shard and leaders.own is not None:
            envelope = self._envelope_of_call(exchange, request)
            try:
                async with asyncio.timeout(seconds):
                    return await call_own(leaders.own, exchange, request, envelope)
            except TimeoutError as error:
                raise too_slow(shard, seconds, sends=sends) from error
        connection, url = await leaders.reach(exchange, shard)
        leaders.relayed_count += 1
        connection.is_to_head = request.method == "HEAD"
        try:
            async with asyncio.timeout(seconds):
                answer = await self._ask(exchange, connection, request)
        except TimeoutError as error:
            raise too_slow(shard, seconds, sends=sends) from error
        except Interrupted as error:
            raise interrupted(shard, sends=sends) from error
        finally:
            leaders.release(url, connection)
        if answer.status == HTTPStatus.MISDIRECTED_REQUEST:
            raise moved(shard)
        return answer

    async def call_node(
        self, exchange: RequestContext, node: str, url: str, request: CallRequest, *, seconds: float
    ) -> CallAnswer:
        """Ask a node, whatever it leads, by the URL of its cluster port. Raises `ShardUnavailable`
        where it is not reached, and `RelayInterrupted` where it may have been done there."""
        leaders, peers = self._leaders, self._leaders.peers
        if peers is None or RELAYED in exchange.scope:
            raise ShardUnavailable(f"the node {node} is not asked from here", hint="ask it")
        try:
            connection = await peers.acquire(url)
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
            leaders.release(url, connection)

    @asynccontextmanager
    async def in_parts(
        self, exchange: RequestContext, shard: str, request: CallRequest
    ) -> AsyncIterator[PeerConnection]:
        """As `call`, for an answer that goes on: the connection, when its head is there. Raises
        `ShardUnavailable`; `Interrupted`, as does what is read from the connection."""
        leaders = self._leaders
        connection, url = await leaders.reach(exchange, shard)
        try:
            leaders.begin(connection)
            envelope = self._envelope_of_call(exchange, request)
            connection.write(written_to(request, envelope, exchange))
            await connection.head()
            if connection.status == HTTPStatus.MISDIRECTED_REQUEST:
                raise moved(shard)
            yield connection
        finally:
            leaders.end(connection)
            leaders.release(url, connection)

    async def _ask(
        self, exchange: RequestContext, connection: PeerConnection, request: CallRequest
    ) -> CallAnswer:
        envelope = self._envelope_of_call(exchange, request)
        connection.write(written_to(request, envelope, exchange))
        await connection.head()
        body = await whole_of(connection, exchange)
        return CallAnswer(connection.status, connection.headers, body)

    def _envelope_of_call(self, exchange: RequestContext, request: CallRequest) -> Envelope:
        envelope = self._leaders.envelope_of(exchange)._replace(asks=request.asks)
        return of_node(envelope) if request.is_of_node else envelope
