"""A stream of a topic whose queues are in several shards: what each tells, as one stream.

Each shard is asked for the same stream of its own queues, as lines of JSON, this node's as well. A
cursor has the offsets of all queues: of the shard that tells something it takes the new ones, so
that a client goes on from it at any node. A shard that goes away is told (`partial`) and asked
again, from where it was, until it is back. Nothing is told before each shard has said where it
begins: with less, a cursor would pass over what another has not given yet. A reader that is slow
holds up the shards, as each is read no further than the client takes. Event loop only.
"""

import asyncio
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Final

import msgspec

from app.api.access.access_watch import AccessWatch
from app.api.dataplane.client_watch import unless_gone
from app.api.dataplane.streaming import LAST_EVENT_ID, TOPIC_STREAM_PARAMETERS
from app.api.formats import media
from app.api.formats.stream_text import EventLines, JsonLines, MergedText
from app.api.http.errors import EntryProblem, entry_problem
from app.api.http.parameters import Query, duration_ms_of
from app.api.http.request_context import NOT_KEPT, Headers, RequestContext
from app.api.relay.calls import CallAnswer, pass_on
from app.api.relay.fan_out import PART_SECONDS, refuse
from app.api.relay.relay import Relay
from app.api.relay.streams.shard_streams import (
    AGAIN_SECONDS,
    End,
    Line,
    News,
    ShardStream,
    Told,
)
from app.broker.ports import Topic
from app.broker.streams.stream import StreamEnd
from app.domain.access.standing import Standing
from app.domain.errors import CurlewError, IllegalOffset, InvalidRequest
from app.domain.handles.cursors import BEGINNING, decode_cursor, encode_cursor

_CURSOR: Final = b',"cursor":"'
"""Before the last member of a message."""
_GOES_ON: Final = frozenset({StreamEnd.DRAINING, StreamEnd.CLIENT_GONE, StreamEnd.SLOW_READER})
"""Ends of a shard's stream after which it is asked again. How long the client is waited for is said
here: a shard that is read no further because of it tells of a slow reader, too."""

_REFUSED_FOR_GOOD: Final = frozenset(
    {HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.GONE}
)
"""Statuses of a shard that is asked again, after which it need not be."""

_encode: Final = msgspec.json.encode


class StreamsOfShards:
    """One per node."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay

    async def answered(self, exchange: RequestContext, name: str) -> bool:
        """Follow a topic in all shards; False: the handler does, as all is here or not well."""
        relay = self._relay
        query = Query(exchange.query, TOPIC_STREAM_PARAMETERS)
        topic = relay.places.topic(name)
        if topic is None or not topic.shards or query.text("queue_id") is not None:
            return False
        if await relay.body_of(exchange):
            return False
        offsets = _given(exchange, query, name)
        if offsets is not None and len(offsets) > topic.queues:
            await relay.refresh()  # another node may have heard of queues before
            topic = relay.places.topic(name) or topic
        kind = media.stream_kind(exchange.headers.get(b"accept"))
        text: MergedText = EventLines(False) if kind == "events" else JsonLines(False)
        merged = MergedStream(relay, exchange, topic, query, text)
        exchange.is_decided = True  # where the parts are, by the same policies
        access = AccessWatch(exchange, merged.refuse).begin()
        try:
            await unless_gone(exchange.receive, Standing(), lambda _: merged.run(), lambda _: None)
        finally:
            access.stop()
        return True


class MergedStream:
    """One stream."""

    def __init__(
        self,
        relay: Relay,
        exchange: RequestContext,
        topic: Topic,
        query: Query,
        text: MergedText,
    ) -> None:
        self._relay = relay
        self._exchange = exchange
        self._topic = topic
        self.topic_name = topic.name
        self._text = text
        self._start(query)
        self._left = query.integer("max_messages", low=1)
        self._loop = loop = asyncio.get_running_loop()
        lasts_ms = duration_ms_of("duration", query.text("duration"), None, error=InvalidRequest)
        limit_ms = relay.limits.stream_ms_max
        self._ends_at = loop.time() + min(limit_ms, lasts_ms or limit_ms) / 1_000
        self.news: asyncio.Queue[News] = asyncio.Queue(1)
        self._next: asyncio.Task[News] | None = None
        self._refused: asyncio.Future[None] = loop.create_future()
        self._stops = asyncio.ensure_future(relay.stops.wait())
        """The node does, and waits for no reader."""
        self.has_begun = asyncio.Event()
        self._readers: dict[str, asyncio.Future[None]] = {}
        self._known: set[str] = set()
        """Shards that have said where they begin."""
        self._away: set[str] = set()
        self._told = ""
        self._end: End | None = None

    def _start(self, query: Query) -> None:
        """Where the stream begins in each queue, and whether that is known before any shard says
        it. Raises `IllegalOffset`."""
        topic = self._topic
        given = _given(self._exchange, query, topic.name)
        self._is_given = given is not None
        offset = query.integer("offset", error=IllegalOffset)
        self._is_placed = self._is_given or offset is not None or query.text("at") == "earliest"
        if given is not None:
            self._offsets = given[: topic.queues]
        else:
            self._offsets = [BEGINNING if offset is None else offset] * topic.queues

    def refuse(self, error: CurlewError) -> None:
        """Tell nothing more: the reader may not have it."""
        if self._end is None:
            self._end = End(StreamEnd.ACCESS_ENDED, error=entry_problem(error))
        if not self._refused.done():
            self._refused.set_result(None)

    async def run(self) -> None:
        """Everything until the end, and the end itself; or a refusal."""
        try:
            held = await self._begin(self._follow_all())
            if held is not None:
                await self._write(held)
        finally:
            parts: list[asyncio.Future[Any]] = [self._stops, *self._readers.values()]
            if self._next is not None:
                parts.append(self._next)
            for part in parts:
                part.cancel()
            await asyncio.gather(*parts, return_exceptions=True)

    # --- the shards

    def _follow_all(self) -> list[str]:
        """The shards of the topic of which none was read yet: they are from now on."""
        of_topic = {self._relay.own_shard, *self._topic.shards} - self._readers.keys()
        found = [each for each in self._relay.shards_from_here() if each in of_topic]
        for shard in found:
            reader = ShardStream(self._relay, self._exchange, self, shard)
            self._readers[shard] = asyncio.ensure_future(reader.run())
        return found

    def start_of(self, shard: str, offsets: Sequence[int] | None) -> str | None:
        """The cursor from which a shard is asked that has told `offsets` last, or nothing yet;
        None: as the client has asked."""
        if offsets is None and not (self._is_given or self.has_begun.is_set()):
            return None
        found = list(self._offsets)
        self._advance(found, shard, offsets or ())
        return encode_cursor(self.topic_name, found)

    def _advance(
        self, places: list[int], shard: str, offsets: Sequence[int], told: int | None = None
    ) -> None:
        """Take the places in the queues of a shard, which has a message of queue `told`."""
        shards = self._topic.shards
        for queue_id, offset in enumerate(offsets):
            is_heard_of = queue_id < len(shards)
            if shards[queue_id] == shard if is_heard_of else queue_id == told:
                places += [BEGINNING] * (queue_id + 1 - len(places))
                places[queue_id] = offset

    # --- the beginning

    async def _begin(self, shards: Sequence[str]) -> list[News] | None:
        """What was told until each shard has said where it begins, or has gone away; None: the
        whole is refused, which is answered. Raises `ShardUnavailable` where it cannot begin."""
        held: list[News] = []
        refusals: dict[str, CallAnswer] = {}
        waiting = set(shards)
        try:
            async with asyncio.timeout(PART_SECONDS):
                while waiting and not self._is_over():
                    news = await self.news.get()
                    if news.lines is not None:
                        held.append(news)
                        self._note_start(news.shard, news.lines)
                    elif news.refusal is not None:
                        refusals[news.shard] = news.refusal
                    if news.shard in self._known or news.lines is None:
                        waiting.discard(news.shard)
        except TimeoutError:
            pass
        for shard in shards:
            is_refused = shard in refusals and shard not in self._known
            if is_refused and refusals[shard].status < HTTPStatus.INTERNAL_SERVER_ERROR:
                await pass_on(self._exchange, refusals[shard])
                return None
        self._away = set(shards) - self._known
        if not self._is_over() and self._away and not (self._known and self._is_placed):
            why = dict.fromkeys(sorted(self._away), "it does not say where its queues end")
            await refuse(self._exchange, next(iter(refusals.values()), None), why)
            return None
        self._is_placed = self._is_placed or not self._away
        self.has_begun.set()
        return held

    def _note_start(self, shard: str, lines: Sequence[Told]) -> None:
        """Where a shard begins, by the first place that it tells."""
        for _, line, place in lines:
            if shard in self._known:
                return
            if place is None:
                continue
            offsets = list(place)
            if line.queue_id is not None and line.queue_offset is not None:
                offsets[line.queue_id] = line.queue_offset  # which it is about to give
            self._advance(self._offsets, shard, offsets, line.queue_id)
            self._known.add(shard)

    # --- going on

    async def _write(self, held: Sequence[News]) -> None:
        exchange, text = self._exchange, self._text
        headers: Headers = [
            (b"content-type", text.content_type),
            NOT_KEPT,
            (b"x-accel-buffering", b"no"),
        ]
        part = text.preamble
        if self._away:
            headers.append((b"mq-partial", _encode(sorted(self._away))))
            part += text.partial(sorted(self._away))
        for news in held:
            part += self._text_of(news)
        await exchange.begin(HTTPStatus.OK, headers)
        await exchange.go_on(part)
        # What is taken of the shards is in the cursor, and has to be written then: only with room.
        while not self._is_over() and await self._is_taken():
            if part := await self._next_part():
                await exchange.go_on(part)
            await asyncio.sleep(0)  # a reader as fast as the shards must not hold up the others
        assert self._end is not None
        cursor = self._cursor if self._is_placed else None
        await exchange.finish(text.end(self._end.reason, cursor, self._end.error))

    def _is_over(self) -> bool:
        return self._end is not None

    async def _next_part(self) -> bytes:
        """What is to be written next; a heartbeat, when there is nothing for that long."""
        due = self._loop.time() + self._relay.limits.stream_heartbeat_ms / 1_000
        while not self._is_over():
            found = await self._next_news(due)
            self._look_for_shards()
            if found is None:
                if not self._is_over() and self._loop.time() >= due:
                    return self._text.heartbeat
            elif part := self._text_of(found):
                return part
        return b""

    def _look_for_shards(self) -> None:
        """Read those, too, in which the topic was given queues."""
        topic = self._relay.places.topic(self.topic_name)
        if topic is not None and topic is not self._topic:
            self._topic = topic
            self._follow_all()

    async def _next_news(self, due: float) -> News | None:
        """What comes next; None: nothing did until then, or for `AGAIN_SECONDS`, or the reader may
        have it no more."""
        if self._next is None:
            self._next = asyncio.ensure_future(self.news.get())
        now = self._loop.time()
        seconds = min(due - now, self._ends_at - now, AGAIN_SECONDS)
        waited_for: tuple[asyncio.Future[Any], ...] = self._next, self._refused, self._stops
        await asyncio.wait(
            waited_for,
            timeout=max(0.0, seconds),
            return_when=asyncio.FIRST_COMPLETED,
        )
        if self._refused.done():
            return None
        if self._next.done():
            found, self._next = self._next.result(), None
            return found
        if self._stops.done():
            self._end = self._end or End(StreamEnd.DRAINING)
        elif self._loop.time() >= self._ends_at:
            self._end = self._end or End(StreamEnd.TIME_LIMIT)
        return None

    async def _is_taken(self) -> bool:
        """Wait until the connection takes more; False: the stream ends before."""
        taken = asyncio.ensure_future(self._exchange.go_on(b""))
        try:
            seconds = self._relay.limits.stream_unread_ms_max / 1_000
            ends: set[asyncio.Future[Any]] = {taken, self._refused, self._stops}
            await asyncio.wait(ends, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if taken.done():
                taken.result()  # raises `ClientGone`
                return not self._refused.done()
        finally:
            taken.cancel()
        if self._end is None or self._end.reason != StreamEnd.ACCESS_ENDED:
            is_late = not self._stops.done()
            self._end = End(StreamEnd.SLOW_READER if is_late else StreamEnd.DRAINING)
        return False

    # --- what is told

    def _text_of(self, news: News) -> bytes:
        """Takes the place of what it tells."""
        if self._is_over():
            return b""
        if news.refusal is not None and news.refusal.status in _REFUSED_FOR_GOOD:
            problem = msgspec.json.decode(news.refusal.body, type=EntryProblem)
            self._end = End(StreamEnd.ERROR, error=problem)
            return b""
        if news.lines is None:
            return self._partial(news.shard, is_away=True)
        parts = [self._partial(news.shard, is_away=False)]
        for told in news.lines:
            line = told.line
            if line.end is not None:
                self._note_end(news.shard, line.end)
            elif line.gap is not None:
                parts.append(self._text.gap(bytes(line.gap)))
            elif told.offsets is not None:
                parts.append(self._moved(news.shard, told.raw, line, told.offsets))
            if self._is_over():
                break
        if self._told != self._cursor and not self._is_over():
            self._told = self._cursor
            parts.append(self._text.told(self._told))
        return b"".join(parts)

    def _moved(self, shard: str, raw: bytes, line: Line, offsets: Sequence[int]) -> bytes:
        self._advance(self._offsets, shard, offsets, line.queue_id)
        self._known.add(shard)
        if line.queue_id is None:
            return b""
        self._told = self._cursor
        if self._left is not None:
            self._left -= 1
            if not self._left:
                self._end = End(StreamEnd.MESSAGE_LIMIT)
        return self._text.passed_on(raw[: raw.rindex(_CURSOR)] + b"}", self._told)

    def _note_end(self, shard: str, end: End) -> None:
        if shard == self._relay.own_shard and end.reason == StreamEnd.DRAINING:
            self._end = end
        elif end.reason == StreamEnd.ERROR and end.error is not None and end.error.retryable:
            return  # it goes away
        elif end.reason not in _GOES_ON:
            self._end = end

    def _partial(self, shard: str, *, is_away: bool) -> bytes:
        if is_away == (shard in self._away):
            return b""
        self._away ^= {shard}
        return self._text.partial(sorted(self._away))

    @property
    def _cursor(self) -> str:
        return encode_cursor(self.topic_name, self._offsets)


def _given(exchange: RequestContext, query: Query, topic: str) -> list[int] | None:
    """The offsets in the cursor that the client goes on from. Raises `IllegalOffset`."""
    header = exchange.headers.get(LAST_EVENT_ID)
    cursor = header.decode("latin-1") if header else query.text("cursor")
    return decode_cursor(topic, cursor) if cursor else None
