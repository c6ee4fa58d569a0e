"""Streams over HTTP: server-sent events or lines of JSON, until something ends them.

A stream is pulled, never pushed: the next chunk is asked of the broker only when the connection has
taken the one before. So a slow reader delays no other, costs no memory, and is leased nothing that
could not be sent. Every end says why, in an `end` event or line, and a client that leaves frees its
place at once.
"""

import asyncio
from typing import Final

from msgspec.json import encode as json_bytes

from app.api.access.access_watch import AccessWatch
from app.api.access.named_elsewhere import NamedElsewhere
from app.api.bodies.plain_bodies import unpack_deliveries
from app.api.dataplane.client_watch import unless_gone
from app.api.dataplane.receive_parts import is_place, is_room
from app.api.dataplane.receiving import invisible_ms_of
from app.api.formats import media
from app.api.formats.decoding import is_header_text
from app.api.formats.stream_text import EventLines, JsonLines, StreamText
from app.api.http.errors import InvalidBody, entry_problem
from app.api.http.parameters import QUEUE_ID_MAX, Query, duration_ms_of, point_of
from app.api.http.request_context import NOT_KEPT, Headers, RequestContext, batch_too_large
from app.api.telemetry.callers import client_id_of, note_received
from app.api.telemetry.request_metrics import RequestMetrics
from app.broker import Broker
from app.broker.streams.group_stream import GroupStream, GroupStreamRequest
from app.broker.streams.stream import Stream, StreamEnd, StreamEnded
from app.broker.streams.topic_stream import TopicStream, TopicStreamRequest
from app.domain.access.standing import Standing
from app.domain.errors import CurlewError, IllegalOffset, InvalidRequest
from app.domain.limits import Limits
from app.domain.settings import StartPosition

TOPIC_STREAM_PARAMETERS: Final = frozenset(
    {
        *("at", "offset", "tail", "cursor", "queue_id", "clamp"),
        *("filter", "max_messages", "duration", "body"),
    }
)
GROUP_STREAM_PARAMETERS: Final = frozenset(
    {"credit", "invisible", "invisible_ms", "filter", "max_messages", "duration", "body", "force"}
    | {"replace_subscription"}
)
LAST_EVENT_ID: Final = b"last-event-id"
DEFAULT_CREDIT: Final = 16
"""Enough to hide a round trip, few enough to share with other consumers."""


class Streaming:
    """Handlers of the two streams. Stateless beside its collaborators."""

    def __init__(
        self, broker: Broker, limits: Limits, traffic: RequestMetrics, named: NamedElsewhere
    ) -> None:
        self._broker = broker
        self._named = named
        self._limits = limits
        self._traffic = traffic

    async def stream_topic(self, exchange: RequestContext, topic: str) -> None:
        query = Query(exchange.query, TOPIC_STREAM_PARAMETERS)
        request = _topic_request(query, exchange)
        text = await self._text_of(exchange, query)
        with await self._broker.streams.open_topic(topic, request) as stream:
            await self._serve(exchange, stream, text)

    async def stream_group(self, exchange: RequestContext, topic: str, group: str) -> None:
        if is_room(exchange):
            self._broker.streams.check_room(exchange.caller.name)
            await exchange.answer_empty(204, [])
            return
        query = Query(exchange.query, GROUP_STREAM_PARAMETERS)
        most = self._limits.stream_credit_max
        credit = query.integer("credit", low=1, high=most)
        request = GroupStreamRequest(
            credit=min(DEFAULT_CREDIT, self._limits.stream_credit_max)
            if credit is None
            else credit,
            invisible_ms=invisible_ms_of(None, None, query),
            force=query.flag("force"),
            replace_subscription=query.flag("replace_subscription"),
            filter=query.text("filter"),
            max_messages=query.integer("max_messages", low=1),
            duration_ms=duration_ms_of(
                "duration", query.text("duration"), None, error=InvalidRequest
            ),
            principal=exchange.caller.name,
        )
        if request.force or request.replace_subscription:
            await self._named.force(exchange, group)
        text = await self._text_of(exchange, query)
        client_id_of(exchange)  # refused before there is a stream
        with await self._broker.streams.open_group(topic, group, request) as stream:
            if is_place(exchange):
                stream.credit.limit = 0
            await self._serve(exchange, stream, text)

    async def _text_of(self, exchange: RequestContext, query: Query) -> StreamText:
        """The form that the client asked for; its request has no body."""
        kind = media.stream_kind(exchange.headers.get(b"accept"))
        force_base64 = query.choice("body", ("auto", "base64")) == "base64"
        if await exchange.read_body(self._limits.batch_bytes_max, batch_too_large):
            raise InvalidBody("a stream has no body", hint="use query parameters")
        return EventLines(force_base64) if kind == "events" else JsonLines(force_base64)

    async def _serve(
        self, exchange: RequestContext, stream: TopicStream | GroupStream, text: StreamText
    ) -> None:
        access = AccessWatch(exchange, stream.refuse).begin()
        try:
            # That the caller may not go on is told by the stream, in an event of its own.
            await unless_gone(
                exchange.receive,
                Standing(),
                lambda _: self._write(exchange, stream, text),
                lambda _: None,
            )
        finally:
            access.stop()

    async def _write(
        self, exchange: RequestContext, stream: TopicStream | GroupStream, text: StreamText
    ) -> None:
        """Everything until the end, and the end itself."""
        part, ended = b"", None
        if isinstance(stream, GroupStream) and stream.effects:
            part = text.effects(stream.effects)
        if isinstance(stream, TopicStream):
            # Stored messages come first: an error of that read is the answer, as elsewhere.
            # Of a group nothing is leased before the answer has begun.
            try:
                part = await self._read(stream, text, 0.0)
            except StreamEnded as end:
                ended = end
        headers: Headers = [
            (b"content-type", text.content_type),
            NOT_KEPT,
            (b"x-accel-buffering", b"no"),
        ]
        if elsewhere := stream.elsewhere:
            headers.append((b"mq-partial", json_bytes(elsewhere)))
        await exchange.begin(200, headers)
        await exchange.go_on(text.preamble + part)
        ended = ended or await self._write_on(exchange, stream, text)
        problem = None if ended.error is None else entry_problem(ended.error)
        cursor = stream.cursor if isinstance(stream, TopicStream) else None
        stream.close(ended.reason)
        await exchange.finish(text.end(ended.reason.value, cursor, problem))

    async def _write_on(
        self, exchange: RequestContext, stream: TopicStream | GroupStream, text: StreamText
    ) -> StreamEnded:
        """Chunk by chunk; returns how it ended."""
        heartbeat_s = self._limits.stream_heartbeat_ms / 1_000
        try:
            while True:
                await self._until_taken(exchange, stream)
                if isinstance(stream, GroupStream):
                    await self._deliver(exchange, stream, text, heartbeat_s)
                else:
                    part = await self._read(stream, text, heartbeat_s)
                    await exchange.go_on(part or text.heartbeat)
                await asyncio.sleep(0)  # a reader as fast as the disk must not hold up the others
        except StreamEnded as ended:
            return ended
        except CurlewError as error:
            return StreamEnded(StreamEnd.ERROR, error)

    async def _read(self, stream: TopicStream, text: StreamText, wait_s: float) -> bytes:
        chunk = await stream.next(wait_s)
        size = sum([len(each.message.body) for each in chunk.messages])
        self._traffic.sent_out(len(chunk.messages), size)
        figures = self._broker.statistics.topic(stream.topic_name)
        if figures is not None:
            figures.given(len(chunk.messages), size)
        return text.chunk(chunk)

    async def _deliver(
        self, exchange: RequestContext, stream: GroupStream, text: StreamText, wait_s: float
    ) -> None:
        """Lease and send; what could not be sent is given back at once."""
        deliveries = await stream.next(wait_s)
        figures = self._broker.statistics.group(stream.group_name, stream.topic_name)
        try:
            await unpack_deliveries(deliveries)
            await exchange.go_on(text.deliveries(deliveries) or text.heartbeat)
        except BaseException:
            self._broker.receiver.give_back(deliveries)
            raise
        size = sum([len(each.message.body) for each in deliveries])
        self._traffic.sent_out(len(deliveries), size)
        if figures is not None:
            figures.given(len(deliveries), size)
        place = stream.group_name, stream.topic_name, stream.filter
        note_received(
            self._broker.clients, exchange, place, "stream", client_id_of(exchange), len(deliveries)
        )

    async def _until_taken(self, exchange: RequestContext, stream: Stream) -> None:
        """Wait until the connection takes more; end the stream when that takes too long."""
        loop = asyncio.get_running_loop()
        patience_s = 0.0 if stream.is_draining else self._limits.stream_unread_ms_max / 1_000
        try:
            async with asyncio.timeout(patience_s) as patience:
                stream.on_draining = lambda: patience.reschedule(loop.time())
                try:
                    await exchange.go_on(b"")
                finally:
                    stream.on_draining = None
        except TimeoutError:
            raise StreamEnded(stream.end_of_a_late_reader()) from None


def _topic_request(query: Query, exchange: RequestContext) -> TopicStreamRequest:
    """What the query asks for; a `Last-Event-ID` outweighs where it wants to start.

    A browser that connects again repeats the URL and adds what it has seen.
    """
    at = query.text("at")
    start: StartPosition | None = None
    if at is not None:
        start = point_of(at)
    cursor, offset = query.text("cursor"), query.integer("offset", error=IllegalOffset)
    tail = query.integer("tail", error=IllegalOffset)
    last_event_id = exchange.headers.get(LAST_EVENT_ID)
    if last_event_id:
        text = last_event_id.decode("latin-1")
        if not is_header_text(text):
            raise IllegalOffset("Last-Event-ID is no cursor", fields={"header": "Last-Event-ID"})
        cursor, start, offset, tail = text, None, None, None
    return TopicStreamRequest(
        cursor=cursor,
        at=start,
        offset=offset,
        tail=tail,
        queue_id=query.integer("queue_id", high=QUEUE_ID_MAX),
        filter=query.text("filter"),
        clamp=query.flag("clamp"),
        max_messages=query.integer("max_messages", low=1),
        duration_ms=duration_ms_of("duration", query.text("duration"), None, error=InvalidRequest),
        principal=exchange.caller.name,
    )
