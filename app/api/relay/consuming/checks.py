"""Transactions that a producer group should decide, of several shards: each is asked in turn what
is due; when nothing is, all are waited for, and nobody is given anything meanwhile.

Who is told of a transaction is the only one until it is asked about again. So what was taken for a
client that has left comes again when its next check is due. Event loop only.
"""

import asyncio
from contextlib import suppress
from http import HTTPStatus
from typing import Final, cast

import msgspec

from app.api.aims.across import PARTIAL, Document
from app.api.dataplane.client_watch import ClientWatch
from app.api.dataplane.receive_parts import NEWS
from app.api.formats import media
from app.api.http.parameters import wait_s_of
from app.api.http.request_context import RequestContext
from app.api.relay.calls import CallAnswer, Query, parsed_query, part_of, query_bytes
from app.api.relay.fan_out import PART_SECONDS, ask, refuse, sorted_out, wait_for_any
from app.api.relay.relay import Relay
from app.domain.errors import CurlewError
from app.domain.limits import CHECKS_UNLESS_SAID

_MAX: Final = "max_transactions"
_ROWS: Final = "transactions"
_DIGITS_MAX: Final = 6

_encode: Final = msgspec.json.encode


class ChecksOfShards:
    """One per node."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._turn = 0

    async def answered(self, exchange: RequestContext) -> bool:
        """Answer from all shards; False: the handler says what is wrong with the request."""
        query = parsed_query(exchange)
        size = query.get(_MAX, str(CHECKS_UNLESS_SAID))
        if not (size.isascii() and size.isdigit() and len(size) <= _DIGITS_MAX):
            return False
        limits = self._relay.limits
        if not 1 <= int(size) <= limits.receive_messages_max:
            return False
        try:
            wait_s = wait_s_of(query["wait"], limits.wait_seconds_max) if "wait" in query else 0.0
        except CurlewError:
            return False
        shards = sorted(self._relay.shards_from_here())
        self._turn = (self._turn + 1) % len(shards)
        order = shards[self._turn :] + shards[: self._turn]
        taking = _Taking(self._relay, exchange, query, int(size), order)
        with ClientWatch(exchange.receive, exchange) as client:
            await taking.take(client, wait_s)
        await taking.answer()
        return True


class _Taking:
    """One request."""

    def __init__(
        self, relay: Relay, exchange: RequestContext, query: Query, size: int, order: list[str]
    ) -> None:
        self._relay = relay
        self._exchange = exchange
        self._query = query
        self._size = size
        self._order = order
        """Shards that answer, as far as is known."""
        self._rows: list[object] = []
        self._missing: dict[str, str] = {}
        self._problem: CallAnswer | None = None

    async def take(self, client: ClientWatch, wait_s: float) -> None:
        """Take what is due, or wait until something is."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + wait_s
        while True:
            await self._take_in_turn()
            left_s = deadline_s - loop.time()
            if self._rows or not self._order or left_s <= 0 or client.gone():
                return
            await self._wait(client, left_s)

    async def _take_in_turn(self) -> None:
        for shard in list(self._order):
            left = self._size - len(self._rows)
            if left == 0:
                return
            query = {**self._query, _MAX: str(left), "wait": "0"}
            request = part_of(self._exchange, query_bytes(query))
            outcome = await ask(self._relay, self._exchange, shard, request)
            documents, missing, problem = sorted_out({shard: outcome})
            for document in documents.values():
                self._rows += cast("list[object]", document[_ROWS])
            if not documents:
                self._order.remove(shard)
                self._missing |= missing
                self._problem = self._problem or problem

    async def _wait(self, client: ClientWatch, seconds: float) -> None:
        query = {**self._query, "wait": f"{seconds:.3f}"}
        request = part_of(self._exchange, query_bytes(query))._replace(asks=NEWS)
        requests = dict.fromkeys(self._order, request)
        waiting = asyncio.ensure_future(
            wait_for_any(self._relay, self._exchange, requests, seconds=seconds + PART_SECONDS)
        )
        client.watch(waiting.cancel)
        try:
            await asyncio.wait({waiting})
        finally:
            waiting.cancel()
            with suppress(asyncio.CancelledError):
                await waiting

    async def answer(self) -> None:
        """Send what was taken."""
        exchange = self._exchange
        if not self._rows and not self._order:
            await refuse(exchange, self._problem, self._missing)
            return
        document: Document = {_ROWS: self._rows}
        if self._missing:
            document[PARTIAL] = sorted(self._missing)
        exchange.is_decided = True  # where the parts were, by the same policies
        body = _encode(document) + b"\n"
        await exchange.answer_or_tell(HTTPStatus.OK, [media.JSON_HEADER], body)
