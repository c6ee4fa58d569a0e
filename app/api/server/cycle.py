"""One request and its answer on the wire: uvicorn's cycle with a shorter way in and out.

The way in: a body that has come whole is handed over as it is, with no event to wait for.

The way out: uvicorn searches each header's name and value with a regular expression and writes head
and body apart. Here the head is checked once, as a whole, and goes out in one write with the first
part of the body. A value that would end its line is refused all the same.
"""

import asyncio
import logging
from collections.abc import Callable, Sized
from http import HTTPStatus
from itertools import chain
from typing import Final, Protocol

from typing_extensions import override
from uvicorn._types import ASGIReceiveEvent, ASGISendEvent, HTTPScope
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from app.api.http.request_context import (
    AT_ONCE,
    FILE_ANSWER,
    MUST_REACH,
    MUTE,
    WHOLE_ANSWER,
    WHOLE_BODY,
    WRITTEN_ANSWER,
    ClientGone,
    Event,
    Headers,
)
from app.api.server.file_sending import FileAnswers, FileSending

_STATUS_LINES: Final = {
    status.value: b"HTTP/1.1 %d %b\r\n" % (status.value, status.phrase.encode())
    for status in HTTPStatus
}
_BODYLESS: Final = (204, 304)
_CLOSES: Final = (b"connection", b"close")
_CLOSE_LINE: Final = b"connection: close\r\n"
_FORMS: Final = [b"%b" + b"%b: %b\r\n" * count + b"\r\n" for count in range(17)]
"""Heads of a status line and so many headers: made by one formatting, not by one for each line."""


PIPELINED_MAX: Final = 8
"""Requests of a connection that wait for the one at work; with so many nothing is read. What came
with the last of them in one read waits as well."""


class RequestFlow(FlowControl):
    """uvicorn's, which reads on behind each answer, however many requests wait."""

    def __init__(self, transport: asyncio.Transport, pipeline: Sized) -> None:
        super().__init__(transport)
        self._pipeline = pipeline

    @override
    def resume_reading(self) -> None:
        if len(self._pipeline) < PIPELINED_MAX:
            super().resume_reading()


class Guard(Protocol):
    """What the connections of a server share."""

    @property
    def file_answers(self) -> FileAnswers: ...


class Connection(Protocol):
    """Whose request it is."""

    @property
    def guard(self) -> Guard: ...

    def muted_for(self, seconds: float) -> Callable[[], None]:
        """What to call when the answer is complete, so that nothing is read for so long."""
        ...


class AnswerCycle(RequestResponseCycle):
    """Made by `protocol` for each request.

    uvicorn sets twenty attributes for each; here those that all begin with are the class's.
    """

    access_log = False
    disconnected = False
    more_body = True
    response_started = False
    response_complete = False
    chunked_encoding: bool | None = None
    expected_content_length = 0
    _event: asyncio.Event | None = None
    _is_news = False
    """Something has come since the last `receive`."""
    _head = b""
    _sending: FileSending | None = None
    _lasts_until_close = False
    """The body has no length and HTTP/1.0 no chunks: the end of the connection is its end."""

    def __init__(
        self,
        scope: HTTPScope,
        transport: asyncio.Transport,
        flow: FlowControl,
        logger: logging.Logger,
        on_response: Callable[[], None],
        *,
        expects: bool,
        keep_alive: bool,
        connection: "Connection",
    ) -> None:
        self.scope = scope
        self.transport = transport
        self.flow = flow
        self.logger = logger
        self.on_response = on_response
        self.keep_alive = keep_alive
        self._connection = connection
        self.waiting_for_100_continue = expects
        self.body: bytes | bytearray = b""  # type: ignore[assignment]

    @property
    @override
    def message_event(self) -> asyncio.Event:  # type: ignore[override]
        """Wakes `receive`. Most requests have come whole and need none."""
        if self._event is None:
            self._event = asyncio.Event()
        return self._event

    def take(self, part: bytes) -> None:
        """A part of the body has come."""
        if self.body:
            if isinstance(self.body, bytes):
                self.body = bytearray(self.body)
            self.body += part
        else:
            self.body = part
        if len(self.body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
        self._tell()

    def end_body(self) -> None:
        """The request has come whole."""
        self.more_body = False
        self._tell()

    def offer_body(self) -> None:
        """Put a body that has come with its head where it can be had without waiting."""
        if self.flow.read_paused:
            self.flow.resume_reading()
        if self.waiting_for_100_continue:
            self._is_news = True
            return
        self.scope[WHOLE_BODY] = bytes(self.body)  # type: ignore[typeddict-unknown-key]
        self.body = b""
        self._is_news = False

    def await_body(self) -> None:
        """There is more to come than what has come with the head, if anything has."""
        self._is_news = bool(self.body)
        if len(self.body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()

    def _tell(self) -> None:
        self._is_news = True
        if self._event is not None:
            self._event.set()

    @override
    async def receive(self) -> ASGIReceiveEvent:
        if WHOLE_BODY in self.scope:
            body: bytes = self.scope.pop(WHOLE_BODY)  # type: ignore[typeddict-item]
            return {"type": "http.request", "body": body, "more_body": False}
        self._invite()
        if not self.disconnected and not self.response_complete:
            self.flow.resume_reading()
            if not self._is_news:
                await self.message_event.wait()
        if self.disconnected or self.response_complete:
            return {"type": "http.disconnect"}
        self._is_news = False
        if self._event is not None:
            self._event.clear()
        part, self.body = bytes(self.body), b""
        return {"type": "http.request", "body": part, "more_body": self.more_body}

    def _invite(self) -> None:
        """Tell a client that waits for it that the body may come."""
        if self.waiting_for_100_continue and not self.transport.is_closing():
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.waiting_for_100_continue = False

    def begin_body(self) -> bytes | bytearray:
        """What has come of the body, to be read on in another way than by `receive`."""
        self._invite()
        self._is_news = False
        first, self.body = self.body, b""
        return first

    async def wait_for_body(self) -> None:
        """Until all of the body has come, or none will."""
        self.message_event.clear()
        if not self.disconnected:
            await self.message_event.wait()

    @override
    async def send(self, message: ASGISendEvent) -> None:
        if self.flow.write_paused and not self.disconnected and AT_ONCE not in message:
            await self.flow.drain()
        if self.disconnected:
            if MUST_REACH in message:
                raise ClientGone
            return
        if message["type"] == WHOLE_ANSWER:  # type: ignore[comparison-overlap]
            head = self._whole_head(message)  # type: ignore[unreachable]
            self.transport.write(head if self.scope["method"] == "HEAD" else head + message["body"])
            self._finish()
            return
        if message["type"] == WRITTEN_ANSWER:  # type: ignore[comparison-overlap]
            self._send_written(message["answer"])  # type: ignore[unreachable]
            return
        if message["type"] == FILE_ANSWER:  # type: ignore[comparison-overlap]
            await self._answer_from_files(message)  # type: ignore[unreachable]
            return
        if message["type"] == MUTE:  # type: ignore[comparison-overlap]
            self.on_response = self._connection.muted_for(message["seconds"])  # type: ignore[unreachable]
            return
        if not self.response_started:
            assert message["type"] == "http.response.start"
            self.response_started = True
            self.waiting_for_100_continue = False
            self._head = self._head_of(message["status"], message.get("headers", ()))
            return
        assert message["type"] == "http.response.body"
        assert not self.response_complete, "the answer is complete already"
        more_body = message.get("more_body", False)
        self.transport.write(self._framed(message.get("body", b""), more_body))
        if not more_body:
            assert self.expected_content_length == 0, "the body is shorter than its length"
            self._finish()

    def _send_written(self, answer: bytes) -> None:
        """A whole answer as another node wrote it, on a connection that it knows nothing of."""
        assert not self.response_started, "the answer has begun already"
        self.response_started = True
        self.waiting_for_100_continue = False
        if not self.keep_alive:
            head, _, body = answer.partition(b"\r\n\r\n")
            answer = b"%b\r\n%b\r\n%b" % (head, _CLOSE_LINE, body)
        self.transport.write(answer)
        self._finish()

    async def _answer_from_files(self, message: Event) -> None:
        """Write a whole answer, as above, with a body that goes on in files."""
        head = self._whole_head(message)
        sending = self._sending = FileSending(
            self.transport, self.message_event, self._connection.guard.file_answers
        )
        try:
            await sending.run(head + message["body"], message["parts"])
        except ClientGone:
            self.disconnected = True
            raise
        self._finish()

    @property
    def unsent_bytes(self) -> int:
        """Of an answer from files, what the client has not taken yet."""
        return self._sending.unsent_bytes if self._sending is not None else 0

    def _whole_head(self, message: Event) -> bytes:
        """The head of a whole answer, whose headers say how long it is."""
        assert not self.response_started, "the answer has begun already"
        headers: Headers = message["headers"]
        self.response_started = True
        self.waiting_for_100_continue = False
        if _CLOSES in headers:
            self.keep_alive = False
        elif not self.keep_alive:
            headers = [*headers, _CLOSES]
        count = len(headers)
        if count >= len(_FORMS):
            lines = [b"%b: %b\r\n" % header for header in headers]
            return _checked([_STATUS_LINES[message["status"]], *lines])
        head = _FORMS[count] % (_STATUS_LINES[message["status"]], *chain.from_iterable(headers))
        _check_lines(head, count + 2)
        return head

    def _finish(self) -> None:
        self.response_complete = True
        if self._event is not None:
            self._event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()

    def _framed(self, body: bytes | memoryview, more_body: bool) -> bytes | memoryview:
        """What to write for a part of the body, the head before the first."""
        head, self._head = self._head, b""
        if self.scope["method"] == "HEAD":
            self.expected_content_length = 0
            return head
        if self._lasts_until_close:
            return head + body
        if self.chunked_encoding:
            chunk = b"%x\r\n%b\r\n" % (len(body), bytes(body)) if body else b""
            return head + chunk if more_body else b"%b%b0\r\n\r\n" % (head, chunk)
        self.expected_content_length -= len(body)
        assert self.expected_content_length >= 0, "the body is longer than its length"
        return head + body if head else body

    def _head_of(self, status: int, headers: object) -> bytes:
        parts = [_STATUS_LINES[status]]
        closes = False
        for name, value in headers:  # type: ignore[attr-defined]
            if name == b"content-length":
                self.chunked_encoding = False
                self.expected_content_length = int(value)
            elif name == b"connection" and value.lower() == b"close":
                self.keep_alive, closes = False, True
            parts.append(b"%b: %b\r\n" % (name, value))
        if not self.keep_alive and not closes:
            parts.append(_CLOSE_LINE)
        if (
            self.chunked_encoding is None
            and status not in _BODYLESS
            and self.scope["method"] != "HEAD"
        ):
            self.chunked_encoding = self.scope.get("http_version") != "1.0"
            self._lasts_until_close = not self.chunked_encoding
            if self.chunked_encoding:
                parts.append(b"transfer-encoding: chunked\r\n")
        return _checked(parts)


def _checked(lines: list[bytes]) -> bytes:
    """The lines of a head and its end; `ValueError` when one of them is not one line."""
    head = b"".join([*lines, b"\r\n"])
    _check_lines(head, len(lines) + 1)
    return head


def _check_lines(head: bytes, count: int) -> None:
    """Raise `ValueError` unless the head has so many lines, with its end."""
    if head.count(b"\n") != count or head.count(b"\r") != count or b"\0" in head:
        raise ValueError("a header of the answer would break its line")
