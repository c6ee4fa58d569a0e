"""The stream of one shard, as a stream of all shards reads it: opened again whenever it breaks.

A reader knows how far it has handed on, and asks again from behind that, whatever of it is written
out by now: so nothing comes twice. A shard that does not begin its answer, or of which not even a
heartbeat comes, has broken: its node may have lost its power, of which no connection tells. The
time stands still while the client holds the reader up. Event loop only.
"""

import asyncio
from collections.abc import Sequence
from http import HTTPStatus
from typing import Final, NamedTuple, Protocol

import msgspec

from app.api.dataplane.streaming import LAST_EVENT_ID
from app.api.formats import media
from app.api.http.errors import EntryProblem
from app.api.http.request_context import RequestContext
from app.api.peers.connection import Interrupted, PeerConnection
from app.api.relay.calls import (
    CallAnswer,
    CallRequest,
    parsed_query,
    part_of,
    query_bytes,
    query_without,
    whole_of,
)
from app.api.relay.fan_out import PART_SECONDS
from app.api.relay.relay import Relay
from app.domain.errors import CurlewError
from app.domain.handles.cursors import decode_cursor

AGAIN_SECONDS: Final = 1.0
"""How long a shard that has gone away is not asked."""
HEARTBEATS_MISSED: Final = 3
"""So many in a row, and the shard has gone away."""
_STARTS: Final = ("cursor", "at", "offset", "tail")


class End(msgspec.Struct):
    """Why a stream has ended."""

    reason: str
    cursor: str | None = None
    error: EntryProblem | None = None


class Line(msgspec.Struct):
    """What stands in a line: a message has a place, all else one member."""

    cursor: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    gap: msgspec.Raw | None = None
    end: End | None = None


_line: Final = msgspec.json.Decoder(Line).decode


class Told(NamedTuple):
    """A line, as it came, and the offsets in its cursor."""

    raw: bytes
    line: Line
    offsets: Sequence[int] | None


class News(NamedTuple):
    """What a shard has told: lines, or a refusal; neither: it has gone away."""

    shard: str
    lines: Sequence[Told] | None = None
    refusal: CallAnswer | None = None


class Whole(Protocol):
    """The stream of all shards, as its readers see it."""

    topic_name: str
    news: asyncio.Queue[News]
    """Of one place: a reader that has handed something on waits until it is taken."""
    has_begun: asyncio.Event

    def start_of(self, shard: str, offsets: Sequence[int] | None) -> str | None:
        """The cursor from which a shard is asked that has told `offsets` last, or nothing yet;
        None: as the client has asked."""
        ...


class ShardStream:
    """Reads one shard."""

    def __init__(self, relay: Relay, exchange: RequestContext, whole: Whole, shard: str) -> None:
        self._relay = relay
        self._exchange = exchange
        self._whole = whole
        self._shard = shard
        self._offsets: Sequence[int] | None = None
        """Behind all that was handed on."""
        self._queues_looked_for = 0

    async def run(self) -> None:
        """Tell what the shard tells, again and again."""
        relay, shard, news = self._relay, self._shard, self._whole.news
        while True:
            try:
                async with (
                    asyncio.timeout(PART_SECONDS) as patience,
                    relay.in_parts(self._exchange, shard, self._request()) as connection,
                ):
                    await self._read(connection, patience)
            except (CurlewError, Interrupted, TimeoutError):
                pass
            await news.put(News(shard))
            await asyncio.sleep(AGAIN_SECONDS)

    async def _read(self, connection: PeerConnection, patience: asyncio.Timeout) -> None:
        if connection.status != HTTPStatus.OK:
            body = await whole_of(connection)
            patience.reschedule(None)
            answer = CallAnswer(connection.status, connection.headers, body)
            await self._whole.news.put(News(self._shard, refusal=answer))
            return
        loop = asyncio.get_running_loop()
        silence_s = HEARTBEATS_MISSED * self._relay.limits.stream_heartbeat_ms / 1_000
        rest = b""
        while True:
            patience.reschedule(loop.time() + silence_s)
            part = await connection.take()
            patience.reschedule(None)
            if not part:
                return
            *lines, rest = (rest + part).split(b"\n")
            if told := [self._told(raw) for raw in lines if raw]:
                await self._hand_on(told)

    def _told(self, raw: bytes) -> Told:
        line = _line(raw)
        cursor = line.cursor if line.end is None else line.end.cursor
        if cursor is None:
            return Told(raw, line, None)
        return Told(raw, line, decode_cursor(self._whole.topic_name, cursor))

    async def _hand_on(self, told: Sequence[Told]) -> None:
        places = [each.offsets for each in told if each.offsets is not None]
        if places:
            await self._learn_of(max(map(len, places)))
        await self._whole.news.put(News(self._shard, told))
        if places:
            self._offsets = places[-1]
        if self._offsets is not None:  # it has said where it begins; others may not have
            await self._whole.has_begun.wait()

    async def _learn_of(self, queues: int) -> None:
        """Hear of queues that were added, of which the other node knows already."""
        topic = self._relay.places.topic(self._whole.topic_name)
        if topic is not None and max(topic.queues, self._queues_looked_for) < queues:
            self._queues_looked_for = queues
            await self._relay.refresh()

    def _request(self) -> CallRequest:
        """As lines of JSON, from behind what was handed on."""
        query = parsed_query(self._exchange)
        start = self._whole.start_of(self._shard, self._offsets)
        if start is not None:
            query = query_without(query, *_STARTS) | {"cursor": start}
        request = part_of(self._exchange, query_bytes(query))
        headers = [each for each in request.headers if each[0] not in (b"accept", LAST_EVENT_ID)]
        return request._replace(headers=[*headers, (b"accept", media.NDJSON.encode("ascii"))])
