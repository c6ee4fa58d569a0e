"""A stream of a group over several shards: one credit, and messages of all of them.

The node that was asked keeps the stream. It receives from the shards in turn, as a receive does,
for as many messages as there is room; each shard says how many of the stream are unsettled there,
and is waited for when there is no room, or what it has said is about to count no more. At its own
shard it holds a place: a stream that is leased nothing, which is refused as any other is, and says
when it ends (the topic or group is deleted, its time is over, the node stops). A shard that is away
is told (`partial`), and left alone until it answers. What was leased and not written is released.
Event loop only.
"""

import asyncio
import logging
import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import Any, Final, NamedTuple

import msgspec

from app.api.access.access_watch import AccessWatch
from app.api.dataplane.client_watch import unless_gone
from app.api.dataplane.receive_parts import PLACE, ROOM, unsettled_asked, unsettled_in
from app.api.dataplane.streaming import DEFAULT_CREDIT, GROUP_STREAM_PARAMETERS, LAST_EVENT_ID
from app.api.formats import media
from app.api.formats.stream_text import EventLines, JsonLines, MergedText
from app.api.http.errors import EntryProblem, entry_problem
from app.api.http.parameters import Query, duration_ms_of
from app.api.http.request_context import NOT_KEPT, Headers, RequestContext
from app.api.peers.connection import Interrupted
from app.api.relay.calls import (
    CallAnswer,
    CallRequest,
    parsed_query,
    part_of,
    pass_on,
    path_of,
    query_bytes,
    query_without,
    whole_of,
)
from app.api.relay.consuming.receives import Asked, Receive, ReceivesInTurn
from app.api.relay.consuming.shared_waits import Key
from app.api.relay.fan_out import PART_SECONDS, ask
from app.api.relay.relay import Relay
from app.api.relay.streams.shard_streams import AGAIN_SECONDS, End, Line
from app.api.relay.streams.unsettled import UnsettledOfShards
from app.api.telemetry.callers import client_id_of
from app.broker.leasing.holders import LEASES_QUOTA
from app.broker.streams.credit_elsewhere import Unsettled
from app.broker.streams.stream import StreamEnd
from app.domain.access.standing import Standing
from app.domain.errors import CurlewError, InvalidRequest
from app.domain.limits import Limits
from app.runtime.system_clock import SystemClock

_LOG: Final = logging.getLogger(__name__)

NEWS_SECONDS: Final = 20.0
"""How long a shard is asked at a time to wait until something is settled."""
LISTENS_MAX: Final = 128
"""So many streams of a node wait at one shard at a time, each with a connection; others ask it each
`AGAIN_SECONDS`."""
ROOM_LOOK_S: Final = 0.5
"""How often is looked whether the principal, who holds as much as it may, may have more."""
_FORCES: Final = ("force", "replace_subscription")
_OF_RECEIVES: Final = ("namespace", "filter", "invisible", "invisible_ms", "body")
_NOT_SENT: Final = frozenset({b"accept", LAST_EVENT_ID, b"content-type"})

_encode: Final = msgspec.json.encode
_line: Final = msgspec.json.Decoder(Line).decode


class _Given(msgspec.Struct):
    messages: list[msgspec.Raw]


class _Leased(msgspec.Struct):
    invisible_until_ms: int


_given: Final = msgspec.json.Decoder(_Given).decode
_leased: Final = msgspec.json.Decoder(_Leased).decode


class _Wanted(NamedTuple):
    """What a client asks of its stream."""

    credit: int
    max_messages: int | None
    changes: bool
    """It may end what others of the group do."""
    filter: str | None
    client_id: str | None


class GroupStreams:
    """One per node."""

    def __init__(self, relay: Relay, receives: ReceivesInTurn) -> None:
        self._relay = relay
        self._receives = receives
        self._listening: Counter[str] = Counter()
        """Streams that wait at each shard."""

    async def answered(self, exchange: RequestContext, names: Key) -> bool:
        """Answer a stream of several shards; False: it is of this one, or not understood."""
        relay = self._relay
        if len(self._receives.shards_of(names[0])) < 2 or await relay.body_of(exchange):
            return False
        try:
            wanted = _wanted(exchange, relay.limits)
        except CurlewError:
            return False  # the handler says what is wrong
        kind = media.stream_kind(exchange.headers.get(b"accept"))
        text: MergedText = EventLines(False) if kind == "events" else JsonLines(False)
        shared = _Shared(relay, self._receives, self._listening)
        stream = _GroupStream(shared, exchange, names, wanted, text)
        exchange.is_decided = True  # where the parts are, by the same policies
        access = AccessWatch(exchange, stream.refuse).begin()
        try:
            await unless_gone(exchange.receive, Standing(), lambda _: stream.run(), lambda _: None)
        finally:
            access.stop()
        return True


class _Shared(NamedTuple):
    """What all streams of a node share."""

    relay: Relay
    receives: ReceivesInTurn
    listening: Counter[str]


class _GroupStream:
    """One stream. It is the client of its receives."""

    def __init__(
        self,
        shared: _Shared,
        exchange: RequestContext,
        names: Key,
        wanted: _Wanted,
        text: MergedText,
    ) -> None:
        self._relay, self._receives, self._listening = shared
        self._exchange = exchange
        self._names = names
        self._wanted = wanted
        self._text = text
        self._left = wanted.max_messages
        self._id = secrets.token_hex(8)
        self._loop = loop = asyncio.get_running_loop()
        self._unsettled = UnsettledOfShards(wanted.credit)
        self._listens: dict[str, asyncio.Task[None]] = {}
        """To shards that have something unsettled."""
        self._has_room = asyncio.Event()
        self._away: set[str] = set()
        self._ended: asyncio.Future[End] = loop.create_future()
        self._end_wait: Callable[[], object] | None = None
        self._opened: asyncio.Future[CallAnswer | None] = loop.create_future()
        """Whether the place is there; or what refuses it."""
        self._tasks: list[asyncio.Future[Any]] = []

    # --- its end

    def gone(self) -> bool:
        """Whether nothing may be given any more."""
        return self._ended.done()

    def watch(self, end_wait: Callable[[], object]) -> None:
        """Call `end_wait` as soon as the stream ends."""
        self._end_wait = end_wait
        if self.gone():
            end_wait()

    def refuse(self, error: CurlewError) -> None:
        """Give nothing more: the reader may not have it."""
        self._end(End(StreamEnd.ACCESS_ENDED, error=entry_problem(error)))

    def _end(self, end: End) -> None:
        if self.gone():
            return
        self._ended.set_result(end)
        self._has_room.set()
        if self._end_wait is not None:
            self._end_wait()

    async def _end_with_the_node(self) -> None:
        await self._relay.stops.wait()
        self._end(End(StreamEnd.DRAINING))

    async def _look_out(self) -> None:
        """Have a wait end when a shard goes away: the client is told."""
        while True:
            await asyncio.sleep(AGAIN_SECONDS)
            if self._down() - self._away:
                self._has_room.set()
                if self._end_wait is not None:
                    self._end_wait()

    # --- its place

    async def _hold_place(self) -> None:
        """Have the stream counted, and hear of its end."""
        request = self._asking_for_place(PLACE)
        try:
            await self._follow_place(request)
        except Interrupted:
            pass
        except Exception as error:
            if not self._opened.done():
                self._opened.set_exception(error)
            elif not isinstance(error, CurlewError):
                _LOG.exception("the place of a group's stream is lost")
                raise
        finally:
            self._end(End(StreamEnd.DRAINING))
            if not self._opened.done():
                self._opened.set_result(None)

    async def _follow_place(self, request: CallRequest) -> None:
        relay = self._relay
        async with relay.in_parts(self._exchange, relay.own_shard, request) as connection:
            if connection.status != HTTPStatus.OK:
                body = await whole_of(connection)
                refusal = CallAnswer(connection.status, connection.headers, body)
                self._opened.set_result(refusal)
                return
            self._opened.set_result(None)
            rest = b""
            while part := await connection.take():
                *lines, rest = (rest + part).split(b"\n")
                for raw in filter(None, lines):
                    if (end := _line(raw).end) is not None:
                        self._end(end)

    async def _take_place(self) -> bool:
        """Whether it is there; what refuses it is answered."""
        self._tasks.append(asyncio.ensure_future(self._hold_place()))
        refusal = await self._opened
        if refusal is not None:
            await pass_on(self._exchange, refusal)
        return refusal is None

    async def _has_place(self) -> bool:
        """Whether there is one now, before anything is ended for it; its refusal is answered."""
        request = self._asking_for_place(ROOM)
        outcome = await ask(self._relay, self._exchange, self._relay.own_shard, request)
        if isinstance(outcome, CurlewError):
            raise outcome
        if outcome.status != HTTPStatus.NO_CONTENT:
            await pass_on(self._exchange, outcome)
        return outcome.status == HTTPStatus.NO_CONTENT

    # --- going on

    async def run(self) -> None:
        """Everything until the end, and the end itself; or a refusal."""
        try:
            # What is forced is ended first: with members at work the place is refused.
            is_first = self._has_place if self._wanted.changes else self._take_place
            if not await is_first():
                return
            begun = self._receive(1, 0.0)
            await begun.begin()
            if begun.refusal is not None:
                await pass_on(self._exchange, begun.refusal)
                return
            if self._wanted.changes and not await self._take_place():
                return
            self._tasks.append(asyncio.ensure_future(self._end_with_the_node()))
            self._tasks.append(asyncio.ensure_future(self._look_out()))
            await self._write(begun)
        finally:
            parts = [*self._tasks, *self._listens.values()]
            for part in parts:
                part.cancel()
            await asyncio.gather(*parts, return_exceptions=True)

    async def _write(self, begun: Receive) -> None:
        exchange, text = self._exchange, self._text
        headers: Headers = [
            (b"content-type", text.content_type),
            NOT_KEPT,
            (b"x-accel-buffering", b"no"),
        ]
        part = text.preamble + self._partial(begun)
        if begun.effects:
            part += text.effects(begun.effects)
        if self._away:
            headers.append((b"mq-partial", _encode(sorted(self._away))))
        await exchange.begin(HTTPStatus.OK, headers)
        await exchange.go_on(part)
        try:
            while not self.gone() and await self._is_taken():
                await self._go_on()
                await asyncio.sleep(0)  # a reader as fast as the shards holds up no others
        except CurlewError as error:
            self._end(End(StreamEnd.ERROR, error=entry_problem(error)))
        end = self._ended.result()
        await exchange.finish(text.end(end.reason, None, end.error))

    async def _is_taken(self) -> bool:
        """Wait until the connection takes more; False: the stream ends before."""
        taken = asyncio.ensure_future(self._exchange.go_on(b""))
        try:
            seconds = self._relay.limits.stream_unread_ms_max / 1_000
            ends: set[asyncio.Future[Any]] = {taken, self._ended}
            await asyncio.wait(ends, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if taken.done():
                taken.result()  # raises `ClientGone`
                return not self.gone()
        finally:
            taken.cancel()
        self._end(End(StreamEnd.SLOW_READER))
        return False

    async def _go_on(self) -> None:
        """Give what there is; a heartbeat, when there is nothing for that long."""
        seconds = self._relay.limits.stream_heartbeat_ms / 1_000
        if self._away:
            seconds = min(seconds, AGAIN_SECONDS)  # it may be back
        room = self._unsettled.room(self._loop.time())
        if room <= 0:
            is_due = not await self._wait_for_room(seconds)
            await self._exchange.go_on(self._partial() or (self._text.heartbeat if is_due else b""))
            return
        if self._left is not None:
            room = min(room, self._left)
        self._listen_before(self._loop.time() + seconds + PART_SECONDS)
        receive = self._receive(room, seconds)
        try:
            await receive.find(self)
            if receive.gives is not None and not self.gone():
                await self._give(receive, *receive.gives)
                return
        except BaseException:
            if receive.gives is not None:
                self._receives.release(self._exchange, *receive.gives)
            raise
        finally:
            self._end_wait = None
        if receive.gives is not None:
            self._receives.release(self._exchange, *receive.gives)
            return
        self._exchange.let_go()
        await self._give_nothing(receive)

    async def _give(self, receive: Receive, shard: str, answer: CallAnswer) -> None:
        messages = _given(answer.body).messages
        parts = [self._partial(receive), *(self._text.given(bytes(each)) for each in messages)]
        self._count(shard, answer, messages)
        await self._exchange.go_on(b"".join(parts))
        self._receives.note_turn(self._names, shard)
        self._exchange.let_go()
        if self._left is not None:
            self._left -= len(messages)
            if self._left <= 0:
                self._end(End(StreamEnd.MESSAGE_LIMIT))

    def _count(self, shard: str, answer: CallAnswer, messages: Sequence[msgspec.Raw]) -> None:
        now_s = self._loop.time()
        if (said := unsettled_in(answer.headers)) is not None:
            self._unsettled.note(shard, said, now_s)
        elif messages:
            until_ms = max(_leased(each).invisible_until_ms for each in messages)
            left_s = (until_ms - SystemClock().now_ms()) / 1_000
            self._unsettled.count_unsaid(shard, len(messages), now_s + left_s)

    async def _give_nothing(self, receive: Receive) -> None:
        if self.gone():
            return
        refusal = receive.refusal or next(iter(receive.full.values()), None)
        part = self._partial(receive)
        if refusal is None:
            await self._exchange.go_on(part or self._text.heartbeat)
            if receive.heard:
                return
            await self._until_ended(AGAIN_SECONDS)  # no shard answers
        elif _is_of_leases(refusal):
            await self._exchange.go_on(part)
            await self._until_ended(ROOM_LOOK_S)
        elif not await self._until_ended(AGAIN_SECONDS if _is_gone(refusal) else 0.0):
            problem = msgspec.json.decode(refusal.body, type=EntryProblem)
            self._end(End(StreamEnd.ERROR, error=problem))

    async def _until_ended(self, seconds: float) -> bool:
        """Whether the stream ends in so many seconds."""
        await asyncio.wait((self._ended,), timeout=seconds)
        return self.gone()

    # --- what it asks

    def _receive(self, most: int, wait_s: float) -> Receive:
        """A receive of at most so many messages; one that waits changes nothing any more."""
        kind = self._wanted.filter, self._wanted.client_id, None
        asked = Asked(wait_s, False, False, False, kind, self._id)
        request = self._request(most, _FORCES if not wait_s else ())
        return self._receives.begun(self._exchange, self._names, asked, request)

    def _request(self, most: int = 1, more: Sequence[str] = ()) -> CallRequest:
        limits = self._relay.limits
        given = parsed_query(self._exchange)
        query = {name: given[name] for name in (*_OF_RECEIVES, *more) if name in given}
        query["max_messages"] = str(min(most, limits.receive_messages_max))
        query["max_bytes"] = str(min(limits.stream_chunk_bytes_max, limits.receive_bytes_max))
        folder, _, _ = path_of(self._exchange).rpartition(b"/")
        target = b"%b/messages:receive?%b" % (folder, query_bytes(query))
        request = self._asking(part_of(self._exchange, b""))
        return request._replace(method="POST", target=target)

    def _asking_for_place(self, asks: str) -> CallRequest:
        query = query_without(parsed_query(self._exchange), "max_messages", *_FORCES)
        request = self._asking(part_of(self._exchange, query_bytes(query)))
        headers = [*request.headers, (b"accept", media.NDJSON.encode("ascii"))]
        return request._replace(headers=headers, asks=asks)

    def _asking(self, request: CallRequest) -> CallRequest:
        headers = [each for each in request.headers if each[0] not in _NOT_SENT]
        return request._replace(headers=headers)

    def _down(self) -> set[str]:
        """Shards that do not answer, as far as is known."""
        shards = self._receives.shards_of(self._names[0])
        return {each for each in shards if not self._relay.is_up(each)}

    def _partial(self, receive: Receive | None = None) -> bytes:
        """What is to be told of shards that have gone away, or have answered again."""
        away = self._away | self._down()
        if receive is not None:
            away = (away - set(receive.heard)) | receive.missing.keys()
        if away == self._away:
            return b""
        self._away = away
        return self._text.partial(sorted(away))

    # --- its credit

    async def _wait_for_room(self, seconds: float) -> bool:
        """Whether there is room, or the stream has ended, or a shard has gone away, in so many
        seconds."""
        deadline_s = self._loop.time() + seconds
        while True:
            self._has_room.clear()
            now_s = self._loop.time()
            if self._unsettled.room(now_s) > 0 or self.gone() or self._down() - self._away:
                return True
            if now_s >= deadline_s:
                return False
            self._listen_before(None)
            until_s = self._unsettled.until_s()
            until_s = deadline_s if until_s is None else min(until_s, deadline_s)
            with suppress(TimeoutError):
                async with asyncio.timeout_at(until_s):
                    await self._has_room.wait()

    def _listen_before(self, before_s: float | None) -> None:
        """Listen to the shards of which something counts; with `before_s`, where it counts no more
        by then, as it may have been extended."""
        for shard in self._receives.shards_of(self._names[0]):
            is_heard = shard in self._listens and not self._listens[shard].done()
            if self._unsettled.is_used(shard, before_s) and not is_heard:
                self._listens[shard] = asyncio.ensure_future(self._listen(shard))

    async def _listen(self, shard: str) -> None:
        """Hear what is settled and extended in a shard, until nothing is unsettled there."""
        unsettled, loop = self._unsettled, self._loop
        while unsettled.is_used(shard):
            known, asked_s = unsettled.version(shard), loop.time()
            said = await self._said_of(shard, known)
            if said is not None and unsettled.note(shard, said, loop.time()):
                self._has_room.set()
                continue
            # Others have noted it already, or the wait is over: it is asked again at once.
            is_early = loop.time() - asked_s < AGAIN_SECONDS
            if said is None or (is_early and unsettled.version(shard) == known):
                await asyncio.sleep(AGAIN_SECONDS)

    async def _said_of(self, shard: str, known: int) -> Unsettled | None:
        """What a shard says once it is another version; at once, where many wait for it."""
        listening = self._listening
        is_waiting = listening[shard] < LISTENS_MAX
        seconds = NEWS_SECONDS if is_waiting else 0.0
        request = self._request()._replace(asks=unsettled_asked(self._id, known, seconds))
        listening[shard] += is_waiting
        try:
            seconds += PART_SECONDS
            outcome = await ask(self._relay, self._exchange, shard, request, seconds=seconds)
        finally:
            listening[shard] -= is_waiting
        return None if isinstance(outcome, CurlewError) else unsettled_in(outcome.headers)


def _wanted(exchange: RequestContext, limits: Limits) -> _Wanted:
    """Raises for what the handler refuses."""
    query = Query(exchange.query, GROUP_STREAM_PARAMETERS)
    credit = query.integer("credit", low=1, high=limits.stream_credit_max)
    query.choice("body", ("auto", "base64"))
    lasts_ms = duration_ms_of("duration", query.text("duration"), None, error=InvalidRequest)
    if lasts_ms is not None and lasts_ms < 1:
        raise InvalidRequest("a stream lasts for at least 1 ms")
    return _Wanted(
        min(DEFAULT_CREDIT, limits.stream_credit_max) if credit is None else credit,
        query.integer("max_messages", low=1),
        query.flag("force") or query.flag("replace_subscription"),
        query.text("filter"),
        client_id_of(exchange),
    )


def _is_of_leases(refusal: CallAnswer) -> bool:
    """Whether the principal holds as much as it may, and something has to be settled."""
    policy = refusal.header(b"ratelimit-policy") or b""
    return LEASES_QUOTA.encode("ascii") in policy


def _is_gone(refusal: CallAnswer) -> bool:
    """Whether the topic or group is deleted, which the place is about to say."""
    return refusal.status == HTTPStatus.NOT_FOUND
