"""Passing the answer of another node on, as it is; a stream in whole events.

When the caller of a stream may not go on, the node that was asked knows it, as only it was shown
the key. It ends the stream as it ends its own: by the event `end`, with the reason, and the cursor
that was passed on last. For that it holds back what is no whole event yet. Event loop only.
"""

import asyncio
from typing import Final, Protocol

from msgspec import DecodeError, Struct
from msgspec.json import Decoder

from app.api.dataplane.client_watch import ClientWatch
from app.api.formats import media
from app.api.formats.stream_text import EventLines, JsonLines
from app.api.http.errors import entry_problem
from app.api.http.request_context import RequestContext
from app.api.peers.connection import Interrupted, PeerConnection
from app.api.relay.calls import HOP
from app.broker.streams.stream import StreamEnd
from app.domain.errors import CurlewError

_OF_STREAMS: Final = (b"x-accel-buffering", b"no")
"""A header that streams have, and no other answer."""
_ID: Final = b"id: "
_END_EVENT: Final = b"event: end\n"
_END_LINE: Final = b'{"end":'
_WITHOUT_CURSOR: Final = (b'{"gap":', b'{"effects":', b'{"partial":')


async def pass_answer_on(
    exchange: RequestContext, connection: PeerConnection, watch: ClientWatch
) -> None:
    """Give the client the answer that comes. Raises `Interrupted` where it is cut off."""
    if connection.whole:
        await exchange.pass_on_written(connection.status, connection.whole)
        return
    headers = [each for each in connection.headers if each[0] not in HOP]
    if connection.is_complete:
        await exchange.pass_on(connection.status, headers, await connection.take())
        return
    await exchange.pass_on_start(connection.status, headers)
    if _OF_STREAMS in headers:
        is_events = (b"content-type", media.EVENT_STREAM.encode("ascii")) in headers
        passed = PassedEvents() if is_events else PassedLines()
        await _CarriedStream(exchange, connection, watch, passed).pass_on()
        return
    while part := await connection.take():
        await exchange.go_on(part)
    await exchange.finish(b"")


class Passed(Protocol):
    """What has come of a stream."""

    has_ended: bool
    """Whether the other node has ended it."""

    def take(self, part: bytes) -> bytes:
        """What is whole now that `part` has come: to be passed on."""
        ...

    def end(self, error: CurlewError) -> bytes:
        """The end of a stream whose reader may not have more."""
        ...


class _Whole:
    """Cuts what comes behind the last `mark`."""

    def __init__(self, mark: bytes) -> None:
        self._mark = mark
        self._rest = bytearray()

    def take(self, part: bytes) -> bytes:
        begin = max(0, len(self._rest) - len(self._mark) + 1)
        self._rest += part
        end = self._rest.rfind(self._mark, begin)
        if end < 0:
            return b""
        end += len(self._mark)
        whole = bytes(self._rest[:end])
        del self._rest[:end]
        return whole


class PassedEvents:
    """Server-sent events."""

    def __init__(self) -> None:
        self._whole = _Whole(b"\n\n")
        self._cursor: str | None = None
        self.has_ended = False

    def take(self, part: bytes) -> bytes:
        whole = self._whole.take(part)
        at = whole.rfind(b"\n" + _ID) + 1
        if at or whole.startswith(_ID):
            self._cursor = whole[at + len(_ID) : whole.index(b"\n", at)].decode("ascii")
        if whole:
            last = whole.rfind(b"\n\n", 0, -2)
            self.has_ended = whole.startswith(_END_EVENT, 0 if last < 0 else last + 2)
        return whole

    def end(self, error: CurlewError) -> bytes:
        reason = StreamEnd.ACCESS_ENDED.value
        return EventLines(False).end(reason, self._cursor, entry_problem(error))


class _WithCursor(Struct):
    """A line that says where to go on."""

    cursor: str | None = None


_LINE: Final = Decoder(_WithCursor)


def _last_with_cursor(lines: bytes) -> bytes:
    """The last line that may have one; empty without any."""
    end = len(lines)
    while end > 0:
        start = lines.rfind(b"\n", 0, end) + 1
        if start < end and not lines.startswith(_WITHOUT_CURSOR, start):
            return lines[start:end]
        end = start - 1
    return b""


class PassedLines:
    """Lines of JSON."""

    def __init__(self) -> None:
        self._whole = _Whole(b"\n")
        self._last = b""
        self.has_ended = False

    def take(self, part: bytes) -> bytes:
        whole = self._whole.take(part)
        lines = whole.rstrip(b"\n")  # a heartbeat is an empty line
        if lines:
            self.has_ended = lines.startswith(_END_LINE, lines.rfind(b"\n") + 1)
            self._last = _last_with_cursor(lines) or self._last
        return whole

    def end(self, error: CurlewError) -> bytes:
        try:
            cursor = _LINE.decode(self._last).cursor if self._last else None
        except DecodeError:
            cursor = None
        reason = StreamEnd.ACCESS_ENDED.value
        return JsonLines(False).end(reason, cursor, entry_problem(error))


class _CarriedStream:
    """One stream that another node answers."""

    def __init__(
        self,
        exchange: RequestContext,
        connection: PeerConnection,
        watch: ClientWatch,
        passed: Passed,
    ) -> None:
        self._exchange = exchange
        self._connection = connection
        self._watch = watch
        self._passed = passed
        self._patience: asyncio.Timeout | None = None
        """Of a wait until the client takes more."""

    async def pass_on(self) -> None:
        """Until either end ends it."""
        exchange, connection, passed = self._exchange, self._connection, self._passed
        self._watch.watch(self._end)
        try:
            await self._until_taken()
            while part := await connection.take():
                if self._watch.gone():
                    break
                if whole := passed.take(part):
                    await exchange.go_on(whole)
                await self._until_taken()
        except (Interrupted, TimeoutError):
            if not self._watch.gone():
                raise
        refusal = self._watch.refusal
        if refusal is not None and not passed.has_ended:
            await exchange.finish(passed.end(refusal))
        elif not self._watch.gone() or passed.has_ended:
            await exchange.finish(b"")

    async def _until_taken(self) -> None:
        """Wait until the connection to the client takes more, or nothing more is to be given."""
        async with asyncio.timeout(None) as patience:
            self._patience = patience
            try:
                await self._exchange.go_on(b"")
            finally:
                self._patience = None

    def _end(self) -> None:
        self._connection.abort()
        if self._patience is not None:
            self._patience.reschedule(asyncio.get_running_loop().time())
