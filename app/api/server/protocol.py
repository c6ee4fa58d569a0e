"""One connection: uvicorn's HTTP/1.1 protocol with deadlines, bounds and refusals.

uvicorn has no deadline for a request and no bound for its head, answers a malformed one in plain
text, adds trailers to the headers, and goes on reading a body that nobody wants. Here:

- a connection is in one phase, and every phase in which the client has to act has a deadline;
- a refusal is a problem document, and the last thing that a connection says;
- an answer before the end of the request's body closes the connection, after the client had the
  chance to read it (a lingering close: an early RST would destroy the answer on its way).

A request that arrives in one piece pays for a few comparisons. Event loop only.
"""

import asyncio
import enum
import itertools
import logging
import secrets
from collections.abc import Callable
from contextvars import Context
from functools import partial
from typing import Any, ClassVar, Final

import httptools
import uvicorn
from typing_extensions import override
from uvicorn._types import ASGIVersions, HTTPScope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from app.api.http.errors import HeadersTooLarge, MalformedRequest, RequestTooSlow, render_problem
from app.api.http.known_head import KnownHeads
from app.api.http.request_context import (
    BODY_IN_PLACE,
    CONNECTION,
    OUR_EXTENSIONS,
    WHOLE_BODY,
    ClientGone,
    ConnectionMemory,
    Hold,
    batch_too_large,
)
from app.api.server.body_reader import BodyReader
from app.api.server.certificates import extensions_of
from app.api.server.connections import NEVER, Connections
from app.api.server.cycle import AnswerCycle, RequestFlow
from app.api.server.declined_offer import AfterOffer, has_body, head_of_body
from app.api.server.head import check_head, split_target
from app.api.server.lingering_close import LingeringClose
from app.domain.errors import CurlewError
from app.domain.limits import MIB
from app.runtime.direct import DirectRun, Run

_log: Final = logging.getLogger(__name__)
_ID_PREFIX: Final = b"guard-" + secrets.token_hex(4).encode("ascii")
_NUMBERS: Final = itertools.count(1)
_JUST_BEGUN: Final = -1
_ASGI: Final[ASGIVersions] = {"version": "3.0", "spec_version": "2.3"}
_SEND_PATHS: Final = ("/messages", "/messages:batch")


class Phase(enum.Enum):
    """Who has to act, and on what."""

    IDLE = "the client may send a request"
    HEAD = "the client is sending a request head"
    BODY = "the client is sending a request body"
    BUSY = "the server is working on a request that has come whole"
    LINGERING = "the server has said its last word; what the client sends is thrown away"


_IDLE: Final = Phase.IDLE
_HEAD: Final = Phase.HEAD
_BODY: Final = Phase.BODY
_BUSY: Final = Phase.BUSY
_LINGERING: Final = Phase.LINGERING


class HttpProtocol(HttpToolsProtocol):
    """A connection with a guard. `guarded` binds the class to a server's connections."""

    guard: ClassVar[Connections]
    header_bytes_max: ClassVar[int]
    headers_max: ClassVar[int]

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.deadline = NEVER
        self._phase = _IDLE
        self._refusal: CurlewError | None = None
        self._address = ""
        self.cycle: AnswerCycle
        self.url = b""
        self._came: AnswerCycle | None = None
        self._line = (b"", b"", "")
        """Target, method and version of the last request."""
        self._scope: HTTPScope
        """What all requests with that line have in common; nobody else has this dictionary."""
        self._at_work: RequestResponseCycle | None = None
        """The request that is being answered; `cycle` is the one that came last."""
        self._extensions = OUR_EXTENSIONS
        self._memory = ConnectionMemory()
        self._known = KnownHeads()
        self._head_bytes = 0
        self._header_bytes = 0
        self._body_bytes = 0
        self._body_started = 0.0
        self._unread = (0, 0.0)
        self._unread_bytes = 0
        self._gathering: BodyReader | None = None
        """Has the transport while it reads a body."""

    # Opening and closing

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = RequestFlow(transport, self.pipeline)
        self._address = self.client[0] if self.client else ""
        if self.scheme == "https":
            self._extensions = extensions_of(transport.get_extra_info("peercert"))
        refusal = self.guard.enter(self, self._address)
        if refusal is not None:
            if self.guard.is_overrun:  # who is told why keeps a descriptor for a while
                self.transport.abort()
            else:
                self._say_last(refusal)
            return
        self._enter(_IDLE, self.guard.limits.first_byte_ms_max)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self.deadline = NEVER
        self._gathering = None
        self.guard.leave(self, self._address)
        self._memory.lost()
        self._count_unread(0)
        at_work = self._at_work
        if at_work is not None and not at_work.response_complete:
            at_work.disconnected = True
            at_work.message_event.set()
        super().connection_lost(exc)

    def _enter(self, phase: Phase, ms_max: int) -> None:
        self._phase = phase
        self.deadline = self.loop.time() + ms_max / 1_000

    # Reading

    @override
    def data_received(self, data: bytes) -> None:
        before = self._phase
        if before is _LINGERING:
            return
        if before is _IDLE:
            found = self._known.find(data)
            if found is not None:
                self._start_known(*found)
                return
        try:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as offer:
                self._decline(data, offer)
        except httptools.HttpParserError as error:
            self._start_what_came()
            self._refuse(self._refusal or MalformedRequest(f"not HTTP/1.1: {error}"))
            return
        came = self._came
        if before is _IDLE and self._phase is _BUSY and came is not None and came is self.cycle:
            self._known.learn(data, came.scope)
        self._start_what_came()
        phase = self._phase
        if phase is _BUSY:
            self.deadline = NEVER
        elif phase is _HEAD:
            self._head_continues(data)
        elif phase is _BODY:
            self.body_grew(len(data))

    def _decline(self, data: bytes, offer: httptools.HttpParserUpgrade) -> None:
        """Pass an offer of another protocol over: the request counts, and so does what follows."""
        while True:
            data = data[offer.args[0] :]
            if not has_body(self.headers):
                if not self.cycle.keep_alive:
                    return
                self._make_parser()
            else:
                self._phase = _BODY
                self._body_bytes = _JUST_BEGUN
                self.cycle.more_body = True
                after = AfterOffer(self)
                keep_alive = self.cycle.keep_alive
                self._make_parser(after)
                self.parser.feed_data(head_of_body(self.headers, keep_alive=keep_alive))
                after.is_in_head = False
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as another:
                offer = another
            else:
                return

    def _head_continues(self, data: bytes) -> None:
        """A part of a head has come: what the parser keeps of it is bounded, and so is the time."""
        if self._head_bytes == _JUST_BEGUN:
            self._enter(_HEAD, self.guard.limits.request_head_ms_max)
            self._head_bytes = 0
            return
        self._head_bytes += len(data)
        limits = self.guard.limits
        if self._head_bytes > limits.header_block_bytes_max + limits.request_target_bytes_max:
            self._refuse(self._headers_too_large())

    def body_grew(self, size: int) -> None:
        """A part of a body has come: it may take longer the more of it comes, up to a bound."""
        limits = self.guard.limits
        if self._body_bytes == _JUST_BEGUN:
            self._body_started = self.loop.time()
            self._body_bytes = 0
            self.cycle.keep_alive = False
            self.cycle.transport = LingeringClose(self.transport, self.linger)  # type: ignore[assignment]
        self._body_bytes += size
        if self._body_bytes > 2 * limits.batch_bytes_max + MIB:  # chunks may double the size
            self._refuse(batch_too_large(limits.batch_bytes_max))
            return
        allowed_s = limits.request_body_ms_max / 1_000
        allowed_s += self._body_bytes / limits.request_body_bytes_per_second_min
        self.deadline = self._body_started + allowed_s

    async def _gather(self, cycle: AnswerCycle, size: int, hold: Hold) -> memoryview:
        """The whole body of the request at work, of `size` bytes, read to where it stays.

        In place of the cycle's `receive`. Raises what `hold` raises, and `ClientGone`.
        """
        first = cycle.begin_body()
        hold(len(first))
        if not cycle.more_body:
            return memoryview(first)
        gathering = self._gathering = BodyReader(self, first, size, hold)
        try:
            self.transport.set_protocol(gathering)
            self.flow.resume_reading()
            await cycle.wait_for_body()
        finally:
            self._stop_gathering()
        if gathering.refusal is not None:
            raise gathering.refusal
        if not gathering.is_whole:
            raise ClientGone
        return gathering.take()

    def body_ended(self) -> None:
        gathering = self._gathering
        self._stop_gathering()
        if gathering is None or not gathering.is_whole:
            self.cycle.message_event.set()
            return
        keep_alive = self.parser.should_keep_alive()
        self._make_parser()  # the old one waits for a body that it will not see
        self._end_message(keep_alive=keep_alive)
        self.deadline = NEVER

    def _stop_gathering(self) -> None:
        gathering, self._gathering = self._gathering, None
        if gathering is not None and not self.transport.is_closing():
            self.transport.set_protocol(self)

    def _make_parser(self, told: object = None) -> None:
        """As uvicorn does."""
        self.parser = httptools.HttpRequestParser(told or self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)

    # What the parser calls

    @override
    def on_message_begin(self) -> None:
        self._phase = _HEAD
        self._head_bytes = _JUST_BEGUN
        self._header_bytes = 0
        self.url = b""
        self.headers = []

    @override
    def on_header(self, name: bytes, value: bytes) -> None:
        if self._phase is not _HEAD:
            return  # a trailer: nothing here reads one, and it must not look like a header
        headers = self.headers
        size = self._header_bytes = self._header_bytes + len(name) + len(value)
        if size > self.header_bytes_max or len(headers) >= self.headers_max:
            self._refusal = self._headers_too_large()
            raise self._refusal
        headers.append((name.lower(), value))

    @override
    def on_headers_complete(self) -> None:
        version = self.parser.get_http_version()
        try:
            expects = check_head(self.url, version, self.headers, self.guard.limits)
        except CurlewError as refusal:
            self._refusal = refusal
            raise
        self._phase = _BODY
        self._body_bytes = _JUST_BEGUN
        earlier: RequestResponseCycle | None = self.cycle
        self.cycle = AnswerCycle(
            self._scope_of(version),
            self.transport,
            self.flow,
            self.logger,
            self.on_response_complete,
            expects=expects,
            keep_alive=version == "1.1" and self.parser.should_keep_alive(),
            connection=self,
        )
        if earlier is None or earlier.response_complete:
            self._came = self.cycle
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, self.app))

    def _scope_of(self, version: str) -> HTTPScope:
        """Of the request whose head has come. All but the headers is as in the one before where the
        client repeats itself: then that is copied."""
        line = (self.url, self.parser.get_method(), version)
        if line != self._line:
            self._line, self._scope = line, self._scope_of_line(*line)
        scope = self._scope.copy()
        scope["headers"] = self.headers
        return scope

    def _scope_of_line(self, url: bytes, method: bytes, version: str) -> HTTPScope:
        raw_path, path, query = split_target(url)
        return {
            "type": "http",
            "asgi": _ASGI,
            "http_version": version,
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme or "http",
            "method": method.decode("ascii"),
            "root_path": "",
            "path": path,
            "raw_path": raw_path,
            "query_string": query,
            "headers": (),
            "extensions": self._extensions,
            CONNECTION: self._memory,  # type: ignore[typeddict-unknown-key]
        }

    @override
    def on_body(self, body: bytes) -> None:
        cycle = self.cycle
        if not cycle.body and cycle is self._came:
            cycle.body = body  # most often the whole of it, and nobody to tell
        elif not cycle.response_complete:
            cycle.take(body)

    @override
    def on_message_complete(self) -> None:
        if self.cycle is self._came:
            self._phase = _BUSY
            self.cycle.more_body = False
            return
        self._end_message(keep_alive=self.parser.should_keep_alive())

    def _end_message(self, *, keep_alive: bool) -> None:
        cycle = self.cycle
        self._phase = _BUSY
        if cycle.transport is not self.transport and not cycle.response_started:
            cycle.transport = self.transport
            cycle.keep_alive = keep_alive
        if not cycle.response_complete:
            cycle.end_body()

    # Starting

    def _start_what_came(self) -> None:
        """Start the request whose head has come with this read, unless it stands in the queue.

        Not before the read is over: most requests have come whole by then.
        """
        cycle, self._came = self._came, None
        if cycle is None:
            return
        self._at_work = cycle
        if cycle.more_body:
            cycle.await_body()
            cycle.scope[BODY_IN_PLACE] = partial(self._gather, cycle)  # type: ignore[typeddict-unknown-key]
            self._start_asgi_task(cycle, self.app)
        else:
            cycle.offer_body()
            DirectRun(cycle.run_asgi(self.app), self._start_task).go_on()

    def _start_known(self, scope: HTTPScope, body: bytes) -> None:
        """Start a request that has come whole, with a head that is known."""
        scope[WHOLE_BODY] = body  # type: ignore[typeddict-unknown-key]
        self.url = scope["raw_path"]
        cycle = self.cycle = self._at_work = AnswerCycle(
            scope,
            self.transport,
            self.flow,
            self.logger,
            self.on_response_complete,
            expects=False,
            keep_alive=True,
            connection=self,
        )
        cycle.more_body = False
        self._phase = _BUSY
        self.deadline = NEVER
        DirectRun(cycle.run_asgi(self.app), self._start_task).go_on()

    def _start_task(self, run: Run, context: Context) -> None:
        task = self.loop.create_task(run, context=context)
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)

    # Answers

    @override
    def on_response_complete(self) -> None:
        """Go on to the next request. Without uvicorn's timer per answer: deadlines do its work."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        next_one = self.pipeline.pop() if self.pipeline else None
        if self.flow.read_paused:
            self.flow.resume_reading()
        if next_one is not None:
            self._at_work = next_one[0]
            self._start_asgi_task(*next_one)
        elif self._phase is _BUSY:
            self._phase = _IDLE
            self.deadline = self.loop.time() + self.guard.limits.idle_connection_ms_max / 1_000

    def muted_for(self, seconds: float) -> Callable[[], None]:
        """What a cycle calls when its answer is complete, so that nothing is read for so long."""

        def on_response_complete() -> None:
            self.server_state.total_requests += 1
            if self.transport.is_closing():
                return
            self.flow.pause_reading()
            if self._phase is _BUSY:
                self.deadline = NEVER
            self.loop.call_later(seconds, self._unmute)

        return on_response_complete

    def _unmute(self) -> None:
        self.server_state.total_requests -= 1  # counted below
        self.on_response_complete()

    def linger(self) -> None:
        """Close once the client has read what was written, or had the time to."""
        if self._phase is _BUSY:  # the request did come whole in the meantime
            self.transport.close()
            return
        self._stop_gathering()
        self._enter(_LINGERING, self.guard.limits.linger_ms_max)
        self.flow.resume_reading()
        if self.transport.is_closing():
            return
        if self.transport.can_write_eof():
            self.transport.write_eof()
        else:  # TLS says that this is the end, and throws away what comes until the client does
            self.transport.close()

    @override
    def shutdown(self) -> None:
        super().shutdown()
        if self.transport.is_closing() and not self.transport.get_write_buffer_size():
            self._enter(_LINGERING, self.guard.limits.linger_ms_max)  # TLS waits for the client

    def _refuse(self, refusal: CurlewError) -> None:
        """Answer what came last, unless earlier answers are still to go out; then close."""
        cycle: RequestResponseCycle | None = self.cycle
        self.guard.refused_count += 1
        if cycle is None or cycle.response_complete:
            self._say_last(refusal)
        elif self._phase is _BODY and not self.pipeline:
            cycle.disconnected = True
            cycle.message_event.set()
            if cycle.response_started:
                self.transport.close()
            else:
                self._say_last(refusal)
        elif self._phase is _BODY:
            self.transport.close()
        else:
            cycle.keep_alive = False
            self._phase, self.deadline = _LINGERING, NEVER

    def _say_last(self, refusal: CurlewError) -> None:
        path = self._path_asked_for()
        if path.endswith(_SEND_PATHS):
            refusal.outcome = "not_stored"
        request_id = b"%b-%x" % (_ID_PREFIX, next(_NUMBERS))
        status, headers, body = render_problem(refusal, instance=path, request_id=request_id)
        headers += [
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
            (b"mq-request-id", request_id),
        ]
        lines = [b"HTTP/1.1 %d %b" % (status, refusal.title.encode())]
        lines += [b"%b: %b" % header for header in headers]
        _log.debug("refused %s: %d %s", self._address, status, refusal.detail)
        self.transport.write(b"\r\n".join(lines) + b"\r\n\r\n" + body)
        self._phase = _LINGERING
        self.linger()

    def _path_asked_for(self) -> str:
        """The path of the request that came last, as far as it has come."""
        return self.url.partition(b"?")[0].decode("latin-1") or "/"

    def _headers_too_large(self) -> CurlewError:
        limits = self.guard.limits
        return HeadersTooLarge(
            "the header block is over the limit",
            hint="send many properties in a JSON envelope",
            fields={
                "limit_bytes": limits.header_block_bytes_max,
                "limit_headers": limits.header_count_max,
            },
        )

    @override
    def pause_writing(self) -> None:
        super().pause_writing()
        self._count_unread(self.transport.get_write_buffer_size())

    @override
    def resume_writing(self) -> None:
        super().resume_writing()
        self._count_unread(0)

    def _count_unread(self, size: int) -> None:
        """Tell how much of the answer this connection holds, now that it is much, or no more."""
        self.guard.pressure.add_unread(size - self._unread_bytes)
        self._unread_bytes = size

    # What the guard calls

    def on_late(self, now: float) -> None:
        """The deadline has passed."""
        if self._phase is _LINGERING:
            self.transport.abort()
        elif self._phase is _IDLE and self._extensions is OUR_EXTENSIONS:
            self.transport.close()
        elif self._phase is _IDLE:
            self.linger()
        elif self.flow.read_paused or self._is_expecting():
            self._body_started = now  # we are the one who is late
            self.deadline = now + self.guard.limits.request_body_ms_max / 1_000
        elif self._phase is _HEAD:
            self._refuse(RequestTooSlow("the request head did not come in time"))
        else:
            self._refuse(RequestTooSlow("the request body did not come in time"))

    def _is_expecting(self) -> bool:
        return self._phase is _BODY and self.cycle.waiting_for_100_continue

    def check_reader(self, now: float) -> None:
        at_work = self._at_work
        unsent_bytes = at_work.unsent_bytes if isinstance(at_work, AnswerCycle) else 0
        if not self.flow.write_paused and not unsent_bytes:
            self._unread = (0, now)
            return
        unread_bytes = self.transport.get_write_buffer_size() + unsent_bytes
        if unread_bytes != self._unread[0]:
            self._unread = (unread_bytes, now)
        elif now - self._unread[1] > self.guard.limits.unread_answer_ms_max / 1_000:
            self.guard.late_count += 1
            self.transport.abort()


def guarded(connections: Connections) -> type[asyncio.Protocol]:
    """The protocol class of the server that `connections` belong to."""
    limits = connections.limits
    members = {
        "guard": connections,
        "header_bytes_max": limits.header_block_bytes_max,
        "headers_max": limits.header_count_max,
    }
    return type("ServedProtocol", (HttpProtocol,), members)
