"""One connection to another node's cluster port: the handshake, then one request at a time.

Small answers are there when the head is; large ones and streams come in parts, and reading pauses
while nobody takes them. Who waits needs no task. Event loop only.
"""

import asyncio
import errno
import socket
import types
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, Final

import httptools
from typing_extensions import override

from app.api.http.request_context import Headers
from app.api.peers.handshake import LINE_BYTES_MAX, Asking, Refused
from app.domain.limits import KIB
from app.runtime.direct import Resumable, has_task
from app.runtime.secure.cluster_secret import ClusterSecret

BUFFERED_BYTES_MAX: Final = 256 * KIB
"""Of an answer that nobody has taken yet; then the other node waits."""
UNHEARD_SECONDS: Final = 5
"""A connection to a machine that is gone ends so long after the last that was heard of it: it sends
no end, and what is written to it would be sent again for 15 minutes. No longer than the lease of a
leader; longer than a network or a virtual machine stands still when it is moved."""
PROBE_AFTER_SECONDS: Final = 2
"""The first probe of a connection on which nothing comes."""
PROBE_SECONDS: Final = 1
"""Between probes."""
PROBES: Final = (UNHEARD_SECONDS - PROBE_AFTER_SECONDS) // PROBE_SECONDS
"""That are not answered."""

_LENGTH: Final = b"\r\ncontent-length: "
_OF_THE_CONNECTION: Final = (b"\r\nconnection: ", b"\r\ntransfer-encoding: ")
_UNHEARD: Final = {errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH}


class Interrupted(Exception):
    """The connection ended behind the request: whether it was carried out is not known."""


class Connecting(asyncio.Protocol):
    """A connection to another node, until both have proved the secret to each other."""

    def __init__(self, asking: Asking) -> None:
        self._loop = asyncio.get_running_loop()
        self._asking: Asking | None = asking
        """None: the handshake is over."""
        self.ready: asyncio.Future[None] = self._loop.create_future()
        """Ends with `Refused` or `ConnectionError` when the other node is none of this cluster."""
        self._line = b""
        self._transport: asyncio.Transport

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        assert self._asking is not None
        transport.write(self._asking.greeting())

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        why = "it closed the connection" if exc is None else f"the connection ended: {exc}"
        self._fail(ConnectionError(why))

    @override
    def data_received(self, data: bytes) -> None:
        """Go on with the handshake."""
        self._line += data
        line, end, _ = self._line.partition(b"\n")
        if not end and len(line) <= LINE_BYTES_MAX:
            return
        assert self._asking is not None
        try:
            self._transport.write(self._asking.proof(line))
        except Refused as refusal:
            self._fail(refusal)
            self.abort()
            return
        self._asking = None
        self.proved()
        if not self.ready.done():
            self.ready.set_result(None)

    def proved(self) -> None:
        """The handshake is over; `ready` is about to be done."""

    def abort(self) -> None:
        """End it at once."""
        self._transport.abort()

    def _fail(self, error: Exception) -> None:
        if not self.ready.done():
            self.ready.set_exception(error)
            self.ready.exception()  # whoever waits gets it; nobody has to


class PeerConnection(Connecting, Resumable):
    """Made by `Peers`; ready when `ready` is done."""

    def __init__(
        self, secret: ClusterSecret, unheard: Callable[[OSError], None] | None = None
    ) -> None:
        """`unheard` is told when the connection ends as nothing is heard of the other machine."""
        super().__init__(Asking(secret))
        self._unheard = unheard
        self.is_open = False
        self.idle_since_s = 0.0
        """For who keeps it."""
        self.principal: str | None = None
        """In whose name the request is that has it; None: nobody's, or it is idle."""
        self._go_on: Callable[[], None] | None = None
        """Of who waits for news."""
        self._can_write = asyncio.Event()
        self._can_write.set()
        self._reset()

    def _reset(self) -> None:
        self._parser: httptools.HttpResponseParser | None = None
        self.headers: Headers = []
        self.status = 0
        """Of the answer; 0 before its head has come whole."""
        self.is_to_head = False
        """Whether the request is a HEAD, whose answer has no body, whatever length it names."""
        self.may_be_whole = False
        """Whether who asks takes a whole answer as it came, in `whole`, without anything of it."""
        self.whole = b""
        """The answer, head and body, when it came in one piece, may be whole, and says nothing of
        how the connection goes on."""
        self.is_complete = False
        self._is_asked = False
        """Whether anything was written of the request."""
        self._keeps_alive = False
        """As the parser says it at the end of the head: behind a body it says no to everything."""
        self._parts: list[bytes] = []
        self._size = 0
        self._is_paused = False

    # --- the transport

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.is_open = True
        notice_silence(transport, of_unacknowledged=True)
        super().connection_made(transport)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        self._can_write.set()
        super().connection_lost(exc)
        if self._unheard is not None and isinstance(exc, OSError) and exc.errno in _UNHEARD:
            self._unheard(exc)
        self._wake()

    @override
    def data_received(self, data: bytes) -> None:
        if self._asking is not None:
            super().data_received(data)
            return
        if self.is_complete or not self._is_asked:  # it would be taken for the next answer
            self.abort()
            return
        if self.may_be_whole and (status := status_of_whole(data)):
            self.status, self.whole = status, data
            self.is_complete = self._keeps_alive = True
            self._wake()
            return
        self.may_be_whole = False
        if self._parser is None:
            self._parser = httptools.HttpResponseParser(self)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.abort()
            return
        if self.status or self.is_complete:
            self._wake()

    @override
    def pause_writing(self) -> None:
        self._can_write.clear()

    @override
    def resume_writing(self) -> None:
        self._can_write.set()

    @override
    def abort(self) -> None:
        """End it at once; whoever waits for it gets `Interrupted`."""
        self.is_open = False
        super().abort()
        self._wake()

    # --- the parser

    def on_message_begin(self) -> None:
        if self.is_complete:
            raise ValueError("a second answer")  # which the parser gives as its own error

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        assert self._parser is not None, "it calls this"
        if self._parser.get_status_code() >= 200:
            self.status = self._parser.get_status_code()
            self._keeps_alive = self._parser.should_keep_alive()
            self.is_complete = self.is_to_head
        else:  # a 100 Continue that nobody asked for
            self.headers = []

    def on_body(self, body: bytes) -> None:
        self._parts.append(body)
        self._size += len(body)
        if self._size > BUFFERED_BYTES_MAX and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        if self.status:
            self.is_complete = True

    # --- one request

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send a part of the request, the first with its head."""
        self._is_asked = True
        self._transport.write(data)

    async def drain(self) -> None:
        """Wait until more can be sent."""
        await self._can_write.wait()

    async def head(self) -> None:
        """Wait for the head of the answer. Raises `Interrupted`."""
        while not self.status:
            await self._next()

    async def take(self) -> bytes:
        """What has come of the body and was not taken; empty at its end. Raises `Interrupted`."""
        while not self._parts and not self.is_complete:
            await self._next()
        parts, self._parts, self._size = self._parts, [], 0
        if self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()
        return parts[0] if len(parts) == 1 else b"".join(parts)

    @types.coroutine
    def _next(self) -> Generator[Any, None, None]:
        if not self.is_open:
            raise Interrupted
        try:
            if has_task():
                news = self._loop.create_future()
                self._go_on = partial(_tell, news)
                yield from news
            else:
                yield self
        finally:
            self._go_on = None

    @override
    def then(self, go_on: Callable[[], None]) -> None:
        self._go_on = go_on

    def _wake(self) -> None:
        if self._go_on is not None:
            self._go_on()

    def is_reusable(self) -> bool:
        """Whether another request may follow; then it is ready for it."""
        if not (self.is_open and self.is_complete and self._keeps_alive):
            return False
        self._reset()
        return True


def notice_silence(transport: asyncio.BaseTransport, *, of_unacknowledged: bool = False) -> None:
    """Have the system end a connection `UNHEARD_SECONDS` after the last that was heard of the other
    machine, where the platform can.

    `of_unacknowledged`: also while something that was sent is not acknowledged, or not taken. So
    only where the other side always reads on: Linux ends a connection as well that is full for so
    long, whatever its other side says."""
    connection = transport.get_extra_info("socket")
    if connection is None:
        return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    values = {
        "TCP_KEEPIDLE": PROBE_AFTER_SECONDS,
        "TCP_KEEPINTVL": PROBE_SECONDS,
        "TCP_KEEPCNT": PROBES,
    }
    if of_unacknowledged:
        values["TCP_USER_TIMEOUT"] = UNHEARD_SECONDS * 1_000
    for name, value in values.items():
        option = getattr(socket, name, None)
        if option is not None:
            connection.setsockopt(socket.IPPROTO_TCP, option, value)


def _tell(news: "asyncio.Future[None]") -> None:
    if not news.done():
        news.set_result(None)


def status_of_whole(data: bytes) -> int:
    """The status, when `data` is one whole answer of a node that keeps the connection; 0: it may be
    anything else. Names of headers are in lower case, as nodes write them."""
    end = data.find(b"\r\n\r\n")
    start = data.find(_LENGTH, 0, end) + len(_LENGTH)
    if start < len(_LENGTH) or not data.startswith(b"HTTP/1.1 "):
        return 0
    digits = data[start : data.find(b"\r\n", start)]
    if not digits.isdigit() or len(data) != end + 4 + int(digits):
        return 0
    if any(data.find(name, 0, end) >= 0 for name in _OF_THE_CONNECTION):
        return 0
    return int(data[9:12])
