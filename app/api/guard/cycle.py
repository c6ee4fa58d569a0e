"""One request and its answer on the wire: uvicorn's cycle with a shorter way out.

uvicorn searches each header's name and value with a regular expression and writes head and body
apart. Here the head is checked once, as a whole, and goes out in one write with the first part of
the body. A value that would end its line is refused all the same.
"""

from http import HTTPStatus
from typing import Final

from typing_extensions import override
from uvicorn._types import ASGISendEvent
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from app.api.exchange import AT_ONCE, MUST_REACH, ClientGone

_STATUS_LINES: Final = {
    status.value: b"HTTP/1.1 %d %b\r\n" % (status.value, status.phrase.encode())
    for status in HTTPStatus
}
_BODYLESS: Final = (204, 304)


class AnswerCycle(RequestResponseCycle):
    """Made by `protocol` for each request."""

    _head = b""
    _lasts_until_close = False
    """The body has no length and HTTP/1.0 no chunks: the end of the connection is its end."""

    @override
    async def send(self, message: ASGISendEvent) -> None:
        if self.flow.write_paused and not self.disconnected and AT_ONCE not in message:
            await self.flow.drain()
        if self.disconnected:
            if MUST_REACH in message:
                raise ClientGone
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
            self.response_complete = True
            self.message_event.set()
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
            parts.append(b"connection: close\r\n")
        if (
            self.chunked_encoding is None
            and status not in _BODYLESS
            and self.scope["method"] != "HEAD"
        ):
            self.chunked_encoding = self.scope.get("http_version") != "1.0"
            self._lasts_until_close = not self.chunked_encoding
            if self.chunked_encoding:
                parts.append(b"transfer-encoding: chunked\r\n")
        head = b"".join(parts)
        count = len(parts)
        if head.count(b"\n") != count or head.count(b"\r") != count or b"\0" in head:
            raise ValueError("a header of the answer would break its line")
        return head + b"\r\n"
