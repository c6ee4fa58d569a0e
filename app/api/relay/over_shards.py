"""Operations of several shards (`api.aims.across`): each shard is asked for its part, and the parts
become one answer, which names the shards that did not answer (`partial`).

Behind authorization and in place of the handler, at the node that was asked; the nodes that are
asked for a part do it by their handlers. A client that says `MQ-Forward: no` asks one node for what
it has itself. Event loop only.
"""

from http import HTTPStatus
from typing import Final, cast

import msgspec

from app.api.aims import merges
from app.api.aims.across import (
    PARTIAL,
    Changed,
    Closed,
    Committed,
    Consumed,
    Copied,
    Document,
    Ended,
    Followed,
    Gathered,
    InOrder,
    InTurn,
    Leased,
    Place,
    Polled,
    Split,
    Together,
    read,
    written,
)
from app.api.formats import media
from app.api.http.parameters import wait_s_of
from app.api.http.request_context import NOT_KEPT, Headers, RequestContext
from app.api.naming.request_namespace import stored
from app.api.operations.operation import Operation
from app.api.relay.calls import (
    CallAnswer,
    CallRequest,
    Query,
    parsed_query,
    part_of,
    query_bytes,
    query_without,
)
from app.api.relay.changes import bring_copies, change
from app.api.relay.consuming.checks import ChecksOfShards
from app.api.relay.consuming.commits import commit
from app.api.relay.consuming.heartbeats import heartbeat
from app.api.relay.consuming.polls import PollsOfShards
from app.api.relay.consuming.receives import ReceivesInTurn
from app.api.relay.epochs import close_epoch, end_producer
from app.api.relay.fan_out import (
    PART_SECONDS,
    Outcome,
    ask,
    ask_each,
    ask_with_news,
    knows_not,
    refuse,
    sorted_out,
    wait_for_any,
)
from app.api.relay.relay import Relay
from app.api.relay.split import split
from app.api.relay.streams.group_streams import GroupStreams
from app.api.relay.streams.topic_streams import StreamsOfShards

_encode: Final = msgspec.json.encode
_PAGE_SIZE: Final = "page_size"
_CURSORS: Final = {"next_cursor": b"mq-next-cursor"}
"""Members of answers in JSON that answers in lines have as headers."""


class OverShards:
    """One per node."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._in_turn = ReceivesInTurn(relay)
        self._polls = PollsOfShards(relay)
        self._checks = ChecksOfShards(relay)
        self._streams = StreamsOfShards(relay)
        self._group_streams = GroupStreams(relay, self._in_turn)

    async def answered(
        self, exchange: RequestContext, operation: Operation, names: tuple[str, ...]
    ) -> bool:
        """Answer what is of several shards; False: this node does it alone."""
        across = operation.across
        if across is None or not self._relay.spans(exchange):
            return False
        if isinstance(across, Split):
            return await split(self._relay, exchange, operation, names)
        if isinstance(across, Consumed):
            return await self._consume(exchange, across, names)
        if isinstance(across, Copied):
            return await bring_copies(self._relay, exchange)
        if isinstance(across, Changed):
            return await self._change(exchange, across, names)
        if isinstance(across, Together):
            await self._together(exchange, across)
        else:
            await self._in_order(exchange, across)
        return True

    async def _consume(
        self, exchange: RequestContext, across: Consumed, names: tuple[str, ...]
    ) -> bool:
        if isinstance(across, InTurn):
            return await self._in_turn.answered(exchange, names)
        if isinstance(across, Gathered):
            return await self._checks.answered(exchange)
        if isinstance(across, Polled):
            return await self._polls.answered(exchange, names)
        if isinstance(across, Followed):
            return await self._streams.answered(exchange, names[0])
        if isinstance(across, Leased):
            return await self._group_streams.answered(exchange, names)
        return await heartbeat(self._relay, exchange)

    async def _change(
        self,
        exchange: RequestContext,
        across: Changed,
        names: tuple[str, ...],
    ) -> bool:
        if isinstance(across, Closed):
            return await close_epoch(self._relay, exchange)
        if isinstance(across, Ended):
            return await end_producer(self._relay, exchange)
        if isinstance(across, Committed):
            return await commit(self._relay, exchange, names)
        return await change(self._relay, exchange, across, names)

    # --- all at once

    async def _together(self, exchange: RequestContext, across: Together) -> None:
        relay = self._relay
        query = parsed_query(exchange)
        if across.waits and "known" in query:
            await self._wait_for_news(exchange, query)
            query = {name: text for name, text in query.items() if name not in ("known", "wait")}
        request = part_of(exchange, query_bytes(query))
        requests = dict.fromkeys(relay.shards_from_here(), request)
        found = await ask_with_news(relay, exchange, requests)
        documents, missing, problem = sorted_out(found)
        if not documents:
            await refuse(exchange, problem, missing)
            return
        if across.again is not None and (asks := across.again(documents)):
            second = {shard: request._replace(asks=text) for shard, text in asks.items()}
            documents |= sorted_out(await ask_each(relay, exchange, second))[0]
        if across.is_everywhere:
            gone = found.keys() - documents.keys() - missing.keys()
            missing |= dict.fromkeys(sorted(gone), "it knows nothing of it")
        merged = across.merge(documents, self._owner)
        await _answer(exchange, merged, missing)

    async def _wait_for_news(self, exchange: RequestContext, query: Query) -> None:
        """Return when a shard has another state than the client knows, or time is up."""
        wait = query.get("wait")
        if wait is None:
            return
        wait_s = wait_s_of(wait, self._relay.limits.wait_seconds_max)
        states = merges.read_states(query["known"])
        shards = self._relay.shards_from_here()
        if not wait_s or not states.keys() <= set(shards):
            return
        requests = {
            shard: part_of(exchange, query_bytes({**query, "known": states[shard]}))
            for shard in shards
            if shard in states
        }
        unknown = {
            shard: part_of(exchange, query_bytes(query_without(query, "known", "wait")))
            for shard in shards
            if shard not in states
        }
        seconds = wait_s + PART_SECONDS
        await wait_for_any(self._relay, exchange, {**requests, **unknown}, seconds=seconds)

    def _owner(self, topic: str, queue_id: int) -> str | None:
        places = self._relay.places
        view = places.topic(stored("topic", topic))
        return places.of_queue(view, queue_id) or places.metadata.shard

    # --- one after the other

    async def _in_order(self, exchange: RequestContext, across: InOrder) -> None:
        query = parsed_query(exchange)
        size = query.get(_PAGE_SIZE)
        is_size = size is None or (size.isascii() and size.isdigit() and len(size) < 10)
        shards = sorted(self._relay.shards_from_here())
        place = read(query[across.cursor]) if query.get(across.cursor) else Place(shards[0], "")
        page = _Page(across, int(size) if size and is_size else self._page_size(across))
        has_looked = False
        for shard in shards:
            if shard < place.shard:
                continue
            cursor = place.cursor if shard == place.shard else ""
            asked = query_without(query, across.cursor)
            if cursor:
                asked[across.cursor] = cursor
            if page.count:
                asked[_PAGE_SIZE] = str(page.size - page.count)
            request = _as_json(part_of(exchange, query_bytes(asked)))
            found = await ask(self._relay, exchange, shard, request)
            if knows_not(found) and not has_looked:  # another node may have made it a moment ago
                has_looked = True
                await self._relay.refresh()
                found = await ask(self._relay, exchange, shard, request)
            page.add(shard, found)
            if page.is_refused or page.is_full:
                break
        page.close(shards)
        if page.first is None:
            await refuse(exchange, page.problem, page.missing)
            return
        rows = across.rows if across.following in _CURSORS else None
        await _answer(exchange, page.document(), page.missing, rows=rows)

    def _page_size(self, across: InOrder) -> int:
        return min(across.page_size, self._relay.limits.page_size_max)


class _Page:
    """A page that is filled shard by shard."""

    def __init__(self, across: InOrder, size: int) -> None:
        self.size = size
        self.first: Document | None = None
        self.problem: CallAnswer | None = None
        self.missing: dict[str, str] = {}
        self.is_refused = False
        self.is_full = False
        self._across = across
        self._rows: list[object] = []
        self._gaps: list[object] = []
        self._scanned = 0
        self._last = ""
        self._following: Place | None = None

    @property
    def count(self) -> int:
        return len(self._rows)

    def add(self, shard: str, outcome: Outcome) -> None:
        """What a shard has answered."""
        self._last = shard
        documents, missing, problem = sorted_out({shard: outcome})
        self.missing |= missing
        if problem is not None:
            self.problem = self.problem or problem
            # What is not well is so in all shards; what one cannot tell now, others can.
            is_of_caller = problem.status < HTTPStatus.INTERNAL_SERVER_ERROR
            is_there = problem.status != HTTPStatus.NOT_FOUND
            self.is_refused = is_of_caller and is_there and self.first is None
        for document in documents.values():
            self.first = self.first or document
            rows = cast("list[Document]", document[self._across.rows])
            name = self._across.shard
            self._rows += [{**row, name: shard} for row in rows] if name else rows
            self._gaps += cast("list[object]", document.get("gaps", []))
            self._scanned += cast("int", document.get("scanned", 0))
            following = document.get(self._across.following)
            if following is not None:
                self._following = Place(shard, cast("str", following))
            self.is_full = following is not None or len(self._rows) >= self.size

    def close(self, shards: list[str]) -> None:
        """No shard is asked any more; where a page is full the next shard has the next."""
        later = [shard for shard in shards if shard > self._last]
        if self.is_full and self._following is None and later:
            self._following = Place(later[0], "")

    def document(self) -> Document:
        """The page."""
        assert self.first is not None
        found: Document = {**self.first, self._across.rows: self._rows}
        if "scanned" in found:
            found["scanned"] = self._scanned
        if self._gaps:
            found["gaps"] = self._gaps
        name = self._across.following
        if self._following is not None:
            found[name] = written(self._following)
        elif name in found:
            found[name] = None
        return found


# --- answers


async def _answer(
    exchange: RequestContext, merged: Document, missing: dict[str, str], *, rows: str | None = None
) -> None:
    if missing or PARTIAL in merged:
        merged[PARTIAL] = list(missing)
    exchange.is_decided = True  # where the parts were, by the same policies
    accept = exchange.headers.get(b"accept")
    if rows is not None and accept is not None and b"ndjson" in accept:
        await exchange.answer(200, *_lines(merged, rows))
        return
    await exchange.answer(200, [media.JSON_HEADER, NOT_KEPT], _encode(merged) + b"\n")


def _lines(merged: Document, rows: str) -> tuple[Headers, bytes]:
    """The rows as lines, what is around them as headers."""
    headers: Headers = [media.NDJSON_HEADER, NOT_KEPT]
    headers.append((b"mq-scanned", b"%d" % cast("int", merged["scanned"])))
    for member, name in _CURSORS.items():
        if merged.get(member) is not None:
            headers.append((name, str(merged[member]).encode("ascii")))
    for member in ("gaps", PARTIAL):
        if merged.get(member):
            headers.append((b"mq-" + member.encode(), _encode(merged[member])))
    return headers, b"".join(_encode(row) + b"\n" for row in cast("list[object]", merged[rows]))


def _as_json(request: CallRequest) -> CallRequest:
    headers = [each for each in request.headers if each[0] != b"accept"]
    return request._replace(headers=headers)
