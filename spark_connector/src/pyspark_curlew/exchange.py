"""One HTTP/1.1 request and its answer, over a socket that is connected.

Written for answers of some MiB, of which a task fetches one after the other: the head is checked as
a whole by one expression and kept as a plain dict, and a body goes straight to where it stays. All
that an answer can do wrong is a `BadAnswer`; nothing is guessed, and every size has a bound. Not
for several threads on one socket. Called by `transport`.
"""

import re
import socket
import ssl
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from pyspark_curlew.frame import CONTENT_TYPE, Frame, media_type_of, read_frame
from pyspark_curlew.sources import Buffer

HEAD_BYTES_MAX: Final = 64 * 1024
"""Of an answer's head, of all interim ones before it, and of the trailers of a chunked body."""
BODY_BYTES_MAX: Final = 2**31 - 1
"""Arrow's offsets in a frame reach no farther."""
_CHUNK_LINE_MAX: Final = 1024
"""Bytes of a chunk's size with its extensions, which nobody sends."""
_READ_BYTES: Final = 64 * 1024

_HEAD: Final = re.compile(
    rb"HTTP/1\.([01]) ([1-5][0-9]{2})(?: [^\r\n\0]*+)?\r\n"
    rb"((?:[!#$%&'*+\-.^_`|~0-9A-Za-z]++:[^\r\n\0]*+\r\n)*+)"
)
_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*+(?:;[^\r\n\0]*+)?")


class BadAnswer(Exception):
    """What came is not a whole answer of HTTP/1.1; the connection is of no further use."""


class Reply(NamedTuple):
    """Status, headers (names in lower case, repeated ones joined by commas) and body."""

    status: int
    headers: Mapping[str, str]
    body: Buffer
    frame: Frame | None
    """A body that was read as such, instead of `body`."""
    is_last: bool
    """Whether the connection must be closed: that was said, or its state is not known."""


class _Body(NamedTuple):
    content: Buffer
    frame: Frame | None = None
    is_delimited: bool = True
    """Whether its end is known otherwise than by the connection's end."""


class _Head(NamedTuple):
    status: int
    headers: Mapping[str, str]
    is_last: bool


def send_request(sock: socket.socket, head: bytes, body: Sequence[Buffer] = ()) -> bool:
    """Send a request, given whole. The socket's timeout is for each step.

    Return whether it was taken: when the other side has ended the connection, its refusal may have
    come before the end of the body, so the reply should be read all the same. Raises `OSError`
    where the connection fails otherwise. The caller closes the socket then.
    """
    try:
        _send(sock, [head, *body])
    except (BrokenPipeError, ConnectionResetError):
        return False
    return True


def read_reply(sock: socket.socket, *, is_sent: bool, may_be_frame: bool = False) -> Reply:
    """Read the answer to the request that was sent. The socket's timeout is for each step.

    With `may_be_frame`, the body of a success that is a batch frame, of known length and not
    packed, is read as such while it comes.

    Raises `BadAnswer`, `OSError` where the connection fails, or the errors of `read_frame`. The
    caller closes the socket then.
    """
    incoming = _Incoming(sock)
    reply_head = incoming.head()
    reply_body = incoming.body(reply_head, may_be_frame=may_be_frame)
    is_whole = is_sent and reply_body.is_delimited and incoming.is_empty
    is_last = reply_head.is_last or not is_whole
    status, headers = reply_head.status, reply_head.headers
    return Reply(status, headers, reply_body.content, reply_body.frame, is_last)


def _send(sock: socket.socket, pieces: Sequence[Buffer]) -> None:
    """All pieces in order; as many as fit in one call, where there is no encryption."""
    sent = 0 if isinstance(sock, ssl.SSLSocket) else sock.sendmsg(pieces)
    for piece in pieces:
        if sent < len(piece):
            sock.sendall(memoryview(piece)[sent:])
        sent = max(0, sent - len(piece))


class _Incoming:
    """What comes on the socket, a `Source`; `_held` from `_at` on has come and is not used yet."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._held = b""
        self._at = 0

    @property
    def is_empty(self) -> bool:
        """Whether all that has come is used. What the kernel still has is seen by `connections`."""
        unread = self._sock.pending() if isinstance(self._sock, ssl.SSLSocket) else 0
        return unread == 0 and self._at == len(self._held)

    def head(self) -> _Head:
        """The head of the final answer, past the interim ones (1xx)."""
        left = HEAD_BYTES_MAX
        while True:
            raw = self._until(b"\r\n\r\n", left)
            left -= len(raw)
            head = _parsed(raw)
            if head.status >= 200:
                return head
            if head.status == 101:
                raise BadAnswer("the answer changes the protocol, which was not asked for")

    def body(self, head: _Head, *, may_be_frame: bool) -> _Body:
        if head.status in {204, 304}:
            return _Body(b"")
        # Twice of either makes a list, which is refused: what stands in front may go by the other.
        encoding = head.headers.get("transfer-encoding")
        length = head.headers.get("content-length")
        if encoding is not None:
            if encoding.lower() != "chunked" or length is not None:
                raise BadAnswer(f"transfer-encoding {encoding!r}, content-length {length!r}")
            return _Body(self._chunks())
        if length is None:
            return _Body(self._rest(), is_delimited=False)
        if not (length.isascii() and length.isdecimal() and len(length) <= 19):
            raise BadAnswer(f"the answer's content-length is {length[:40]!r}")
        size = _bounded(int(length))
        if may_be_frame and _is_frame(head):
            return _Body(b"", read_frame(self, size))
        return _Body(self.take(size))

    def _until(self, end: bytes, most: int) -> bytes:
        """Up to and with `end`, which comes within `most` bytes."""
        searched = self._at
        while (found := self._held.find(end, searched)) < 0 and len(self._held) - self._at < most:
            searched = max(self._at, len(self._held) - len(end) + 1)
            searched -= self._at
            self._held = self._held[self._at :] + self._more()
            self._at = 0
        stop = found + len(end)
        if found < 0 or stop - self._at > most:
            raise BadAnswer(f"a line or the head of the answer has more than {most} bytes")
        taken, self._at = self._held[self._at : stop], stop
        return taken

    def take(self, size: int) -> Buffer:
        """So many bytes; larger ones than have come are read to where they stay."""
        if size <= len(self._held) - self._at:
            self._at += size
            return self._held[self._at - size : self._at]
        try:
            whole = np.empty(size, dtype=np.uint8).data
        except MemoryError:
            raise BadAnswer(f"there is no memory for an answer of {size} bytes") from None
        self.take_into(whole)
        return whole

    def take_into(self, target: memoryview) -> None:
        """As many bytes as `target` has."""
        size = len(target)
        here = self._held[self._at : self._at + size]
        at = len(here)
        self._at += at
        target[:at] = here
        while at < size:
            count = self._sock.recv_into(target[at:])
            if count == 0:
                raise BadAnswer(f"the answer ends after {at} bytes of {size}")
            at += count

    def _chunks(self) -> Buffer:
        """A body in chunks, as proxies send them; trailers are passed over."""
        whole = bytearray()
        while True:
            line = self._until(b"\r\n", _CHUNK_LINE_MAX)
            size = _SIZE.fullmatch(line, 0, len(line) - 2)
            if size is None:
                raise BadAnswer(f"the size of a chunk is {line[:40]!r}")
            count = int(size[1], 16)
            if count == 0:
                break
            _bounded(len(whole) + count)
            whole += self.take(count)
            if self.take(2) != b"\r\n":
                raise BadAnswer("a chunk of the answer is longer than was said")
        left = HEAD_BYTES_MAX
        while (line := self._until(b"\r\n", left)) != b"\r\n":
            left -= len(line)
        return memoryview(whole)

    def _rest(self) -> Buffer:
        """All that comes until the connection ends."""
        whole = bytearray(self._held[self._at :])
        self._at = len(self._held)
        while piece := self._sock.recv(_READ_BYTES):
            _bounded(len(whole) + len(piece))
            whole += piece
        return memoryview(whole)

    def _more(self) -> bytes:
        piece = self._sock.recv(_READ_BYTES)
        if not piece:
            raise BadAnswer("the connection ended before the answer was whole")
        return piece


def _bounded(size: int) -> int:
    if size > BODY_BYTES_MAX:
        raise BadAnswer(f"the answer has {size} bytes; {BODY_BYTES_MAX} are the most")
    return size


def _is_frame(head: _Head) -> bool:
    """One that is not packed."""
    is_packed = "content-encoding" in head.headers
    return head.status == 200 and not is_packed and media_type_of(head.headers) == CONTENT_TYPE


def _parsed(raw: bytes) -> _Head:
    """A head, given with the empty line that ends it."""
    match = _HEAD.fullmatch(raw, 0, len(raw) - 2)
    if match is None:
        raise BadAnswer(f"the answer's head is not HTTP/1.1: {raw[:200]!r}")
    headers: dict[str, str] = {}
    for line in match[3].decode("latin-1").split("\r\n")[:-1]:
        name, _, value = line.partition(":")
        name, value = name.lower(), value.strip(" \t")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    is_last = match[1] == b"0" or _closes(headers.get("connection"))
    return _Head(int(match[2]), headers, is_last)


def _closes(connection: str | None) -> bool:
    if connection is None:
        return False
    return "close" in [token.strip(" \t").lower() for token in connection.split(",")]
