"""HTTP/1.1 as a client speaks it to Curlew: heads of requests, and answers from their bytes.

One answer at a time on a connection. Answers have a length, are chunked, or end with the
connection. Bounds: `HEAD_BYTES_MAX` and `ANSWER_BYTES_MAX`.
"""

from typing import Final
from urllib.parse import quote

HEAD_BYTES_MAX: Final = 256 * 1024
ANSWER_BYTES_MAX: Final = 256 * 1024 * 1024

_SAFE_IN_HEADERS: Final = "!#$&'()*+,-./0123456789:;<=>?@[\\]^_`{|}~"
_BODILESS: Final = frozenset({204, 304})
_HEX_DIGITS: Final = frozenset(b"0123456789abcdefABCDEF")


class MalformedAnswer(ValueError):
    """What came is no answer of HTTP/1.1, or goes beyond a bound."""


class Answer:
    """An answer: status, headers (names in lower case, the last of a name counts), body."""

    __slots__ = ("_head", "body", "keep_alive", "status")

    def __init__(self, status: int, head: bytes, body: bytes, *, keep_alive: bool) -> None:
        self.status = status
        self._head = head
        self.body = body
        self.keep_alive = keep_alive

    @property
    def headers(self) -> dict[str, str]:
        """Read anew at each call: hot paths do not need them."""
        return _fields_of(self._head)


def header_value(text: str) -> str:
    """`text` as the value of an `MQ-*` header: percent-encoded unless it is plain ASCII."""
    if text.isascii() and text.isalnum():
        return text
    return quote(text, safe=_SAFE_IN_HEADERS)


def path_part(name: str) -> str:
    """A name as one segment of a path."""
    return name if name.isascii() and name.isalnum() else quote(name, safe="")


class AnswerParser:
    """Takes bytes as they come; `feed` returns the answer when it is complete.

    After that the parser is ready for the next answer of the connection. Bytes behind an answer
    that nobody asked for are an error.
    """

    __slots__ = ("_body_at", "_buffer", "_head", "_length", "_status")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._reset()

    def _reset(self) -> None:
        self._buffer.clear()
        self._head: bytes | None = None
        self._status = 0
        self._body_at = 0
        self._length: int | None = None
        """Bytes of the body; -1: chunked; None: to the end of the connection."""

    @property
    def has_begun(self) -> bool:
        """Whether any byte of the answer has come."""
        return bool(self._buffer)

    def feed(self, data: bytes) -> Answer | None:
        """The whole answer, or None while some of it is missing. Raises `MalformedAnswer`."""
        self._buffer += data
        if len(self._buffer) > ANSWER_BYTES_MAX:
            raise MalformedAnswer(f"the answer has more than {ANSWER_BYTES_MAX} bytes")
        while self._head is None:
            if not self._read_head():
                return None
        if self._length is None:
            return None
        if self._length < 0:
            return self._chunked()
        end = self._body_at + self._length
        if len(self._buffer) < end:
            return None
        if len(self._buffer) > end:
            raise MalformedAnswer("bytes came that nobody asked for")
        return self._complete(bytes(memoryview(self._buffer)[self._body_at : end]))

    def end(self) -> Answer | None:
        """The connection has ended: the answer if that was its end."""
        if self._head is None or self._length is not None:
            return None
        return self._complete(bytes(memoryview(self._buffer)[self._body_at :]), ended=True)

    def _complete(self, body: bytes, *, ended: bool = False) -> Answer:
        head = self._head or b""
        closes = b"\r\nconnection: close" in head.lower() or not head.startswith(b"HTTP/1.1")
        answer = Answer(self._status, head, body, keep_alive=not closes and not ended)
        self._reset()
        return answer

    def _read_head(self) -> bool:
        """Whether there was a head; one of an interim answer is passed over."""
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            self._check_beginning()
            return False
        head = bytes(memoryview(self._buffer)[:end])
        if not head.startswith(b"HTTP/1."):
            raise MalformedAnswer(f"the answer begins with {head[:40]!r}, which is not HTTP/1.1")
        try:
            self._status = int(head[9:12])
        except ValueError:
            raise MalformedAnswer(f"there is no status in {head[:40]!r}") from None
        if 100 <= self._status < 200:
            del self._buffer[: end + 4]
            return bool(self._buffer)
        self._head, self._body_at = head, end + 4
        self._length = _length_of(head, self._status)
        return True

    def _check_beginning(self) -> None:
        start = bytes(memoryview(self._buffer)[:7])
        if len(self._buffer) > HEAD_BYTES_MAX or not b"HTTP/1.".startswith(start):
            raise MalformedAnswer(f"the answer begins with {start!r}, which is not HTTP/1.1")

    def _chunked(self) -> Answer | None:
        """Chunks are read again from the first one: long answers of a proxy are rare."""
        parts: list[bytes] = []
        at = self._body_at
        while True:
            line_end = self._buffer.find(b"\r\n", at)
            if line_end < 0:
                return None
            size = chunk_size(bytes(memoryview(self._buffer)[at:line_end]))
            at = line_end + 2
            if size == 0:
                is_whole = self._buffer.startswith(b"\r\n", at)
                is_whole = is_whole or self._buffer.find(b"\r\n\r\n", at) >= 0
                return self._complete(b"".join(parts)) if is_whole else None
            if len(self._buffer) < at + size + 2:
                return None
            parts.append(bytes(memoryview(self._buffer)[at : at + size]))
            at += size + 2


def chunk_size(line: bytes) -> int:
    """The size in the line before a chunk. Raises `MalformedAnswer`."""
    digits = line.partition(b";")[0].rstrip()
    if not _HEX_DIGITS.issuperset(digits) or not digits:  # `int` takes signs, `0x` and `_`
        raise MalformedAnswer("a chunk has no size")
    return int(digits, 16)


def _length_of(head: bytes, status: int) -> int | None:
    """As `AnswerParser._length`."""
    if status in _BODILESS:
        return 0
    lower = head.lower()
    at = lower.find(b"\r\ncontent-length:")
    if at >= 0 and b"\r\ntransfer-encoding:" not in lower:
        end = lower.find(b"\r\n", at + 2)
        value = lower[at + 17 : end if end >= 0 else len(lower)].strip()
        if not value.isdigit() or int(value) > ANSWER_BYTES_MAX:
            raise MalformedAnswer(f"the length of the answer is {value[:40]!r}")
        return int(value)
    encoding = _fields_of(head).get("transfer-encoding", "")
    return -1 if encoding.lower().endswith("chunked") else None


def _fields_of(head: bytes) -> dict[str, str]:
    fields: dict[str, str] = {}
    for line in head.decode("latin-1").split("\r\n")[1:]:
        name, _, value = line.partition(":")
        fields[name.lower()] = value.strip()
    return fields
