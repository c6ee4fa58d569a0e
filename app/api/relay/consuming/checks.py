"""Transactions that a producer group should decide, of several shards: each is asked in turn what
is due; when nothing is, all are waited for, and nobody is given anything meanwhile.

Who is told of a transaction is the only one until it is asked about again. So what was taken for a
client that has left comes again when its next check is due. Event loop only.
"""

import asyncio
from http import HTTPStatus
from typing import Final, cast

import msgspec

from app.api.aims.across import PARTIAL, Document
from app.api.dataplane.client_watch import ClientWatch
from app.api.dataplane.receive_parts import NEWS
from app.api.formats import media
from app.api.http.parameters import wait_s_of
from app.api.http.request_context import RequestContext
from app.api.relay.calls import CallAnswer, Query, parsed_query, part_of, pass_on, query_bytes
from app.api.relay.fan_out import PART_SECONDS, Outcome, ask, refuse, sorted_out
from app.api.relay.relay import Relay
from app.domain.errors import CurlewError
from app.domain.limits import CHECKS_UNLESS_SAID

_MAX: Final = "max_transactions"
_ROWS: Final = "transactions"
_DIGITS_MAX: Final = 6
_LOOK_SECONDS: Final = 1.0
"""A shard that needs longer to tell what is due is passed by: others may hold something already."""

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
        self._own = relay.places.metadata.shard
        self._answering: list[str] = []
        """Shards that could tell what is due, in the last turn."""
        self._rows: list[object] = []
        self._missing: dict[str, str] = {}
        self._problem: CallAnswer | None = None
        self._refusal: Outcome | None = None
        """Of this node, which may be stopping, or of all that were to be waited for."""

    async def take(self, client: ClientWatch, wait_s: float) -> None:
        """Take what is due, or wait until something is."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + wait_s
        while True:
            await self._take_in_turn()
            left_s = deadline_s - loop.time()
            if self._rows or self._refusal is not None or left_s <= 0 or client.gone():
                return
            if not await self._wait(client, left_s):
                return

    async def _take_in_turn(self) -> None:
        self._missing.clear()
        self._answering.clear()
        for shard in self._order:
            left = self._size - len(self._rows)
            if left == 0:
                return
            query = {**self._query, _MAX: str(left), "wait": "0"}
            request = part_of(self._exchange, query_bytes(query))
            outcome = await ask(self._relay, self._exchange, shard, request, seconds=_LOOK_SECONDS)
            documents, missing, problem = sorted_out({shard: outcome})
            for document in documents.values():
                self._rows += cast("list[object]", document[_ROWS])
            if documents:
                self._answering.append(shard)
                continue
            self._missing |= missing
            self._problem = self._problem or problem
            if shard == self._own:
                self._refusal = outcome
            if self._rows or shard == self._own:
                return  # what was taken is not kept from its client by one that is slow

    async def _wait(self, client: ClientWatch, seconds: float) -> bool:
        """Until a shard has something to take, or time is up; False: there is nobody to wait for.
        One that cannot tell is not waited for."""
        query = {**self._query, "wait": f"{seconds:.3f}"}
        request = part_of(self._exchange, query_bytes(query))._replace(asks=NEWS)
        calls = self._relay, self._exchange
        seconds += PART_SECONDS
        waiting = {
            asyncio.ensure_future(ask(*calls, shard, request, seconds=seconds)): shard
            for shard in self._answering
        }
        parts = list(waiting)
        client.watch(lambda: [part.cancel() for part in parts])
        try:
            while waiting:
                done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for part in done:
                    shard = waiting.pop(part)
                    if part.cancelled():
                        return False
                    outcome = part.result()
                    if isinstance(outcome, CallAnswer) and outcome.status == HTTPStatus.OK:
                        return True
                    if shard == self._own or not waiting:
                        self._refusal = outcome
                        return False
            return False
        finally:
            for part in parts:
                part.cancel()
            await asyncio.gather(*parts, return_exceptions=True)

    async def answer(self) -> None:
        """Send what was taken."""
        exchange, refusal = self._exchange, self._refusal
        if not self._rows:
            if isinstance(refusal, CurlewError):
                raise refusal
            if refusal is not None:
                await pass_on(exchange, refusal)
                return
            if not self._answering:
                await refuse(exchange, self._problem, self._missing)
                return
        document: Document = {_ROWS: self._rows}
        if self._missing:
            document[PARTIAL] = sorted(self._missing)
        exchange.is_decided = True  # where the parts were, by the same policies
        body = _encode(document) + b"\n"
        await exchange.answer_or_tell(HTTPStatus.OK, [media.JSON_HEADER], body)
