"""The answer to a request, read from a connection: as bytes, or as a frame while it comes.

A body goes straight to where it stays. All that an answer can do wrong is a `BadAnswer`, and every
size has a bound. A head as the service sends it is taken apart here, which costs a fifth of what
`http.client` takes; every other one is left to that, untouched. Called by `transport`.
"""

import re
import socket
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from typing import Final

import numpy as np

from pyspark_curlew.wire.frame import CONTENT_TYPE, Frame, media_type_of, read_frame
from pyspark_curlew.wire.sources import Buffer

BODY_BYTES_MAX: Final = 2**31 - 1
"""Arrow's offsets in a frame reach no farther."""

_READ_BYTES: Final = 64 * 1024
_HEAD_BYTES: Final = 4096
_HEAD: Final = re.compile(
    rb"HTTP/1\.1 ([2-5][0-9]{2})(?: [^\r\n\0]*+)?\r\n"
    rb"((?:[!#$%&'*+\-.^_`|~0-9A-Za-z]++:[^\r\n\0]*+\r\n)*+)\r\n"
)
_SPECIAL: Final = frozenset({"connection", "transfer-encoding"})
"""Headers with which a head is left to `http.client`."""


class BadAnswer(Exception):
    """What came is not a whole answer of HTTP/1.1; the connection is of no further use."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Status, headers (names in lower case, repeated ones joined by commas) and body."""

    status: int
    headers: Mapping[str, str]
    body: Buffer
    frame: Frame | None = None
    """A body that was read as such, instead of `body`."""
    is_last: bool = False
    """Whether the connection must be closed."""


def read_reply(sock: socket.socket, *, may_be_frame: bool = False) -> Answer:
    """Read the answer to the request that was sent.

    With `may_be_frame`, the body of a success that is a batch frame, of known length and not
    packed, is read as such while it comes.

    Raises `BadAnswer`, `OSError` where the connection fails, or the errors of `read_frame`. The
    caller closes the connection then.
    """
    try:
        plain = _plain_head(sock)
        if plain is not None:
            return _sized(sock.recv_into, *plain, is_last=False, may_be_frame=may_be_frame)
        with HTTPResponse(sock) as response:
            response.begin()
            return _read(response, may_be_frame=may_be_frame)
    except HTTPException as error:
        raise BadAnswer(f"{type(error).__name__}: {error}") from None


def _plain_head(sock: socket.socket) -> tuple[int, dict[str, str], int] | None:
    """Status, headers and length of an answer whose head has come whole and says nothing more of
    the connection or the body. None: nothing is taken, and it may be anything."""
    if isinstance(sock, ssl.SSLSocket):  # it cannot be asked for what comes without taking it
        return None
    match = _HEAD.match(sock.recv(_HEAD_BYTES, socket.MSG_PEEK))
    if match is None:
        return None
    headers: dict[str, str] = {}
    for line in match[2].decode("latin-1").split("\r\n")[:-1]:
        name, _, value = line.partition(":")
        headers.setdefault(name.lower(), value.strip(" \t"))
    status, size = int(match[1]), headers.get("content-length", "")
    is_plain = match[2].count(b"\n") == len(headers) and size.isdecimal()
    if not is_plain or status in {204, 304} or not _SPECIAL.isdisjoint(headers):
        return None
    sock.recv(match.end())
    return status, headers, int(size)


def _read(response: HTTPResponse, *, may_be_frame: bool) -> Answer:
    headers: dict[str, str] = {}
    for given, value in response.headers.items():
        name = given.lower()
        headers[name] = f"{headers[name]}, {value.strip()}" if name in headers else value.strip()
    status, size, is_last = response.status, response.length, response.will_close
    if size is None:
        if "transfer-encoding" not in headers:
            raise BadAnswer("the answer has no length: its head may have been cut")
        return Answer(status, headers, _all_of(response), None, is_last)
    take = response.readinto
    return _sized(take, status, headers, size, is_last=is_last, may_be_frame=may_be_frame)


def _sized(
    take: Callable[[memoryview], int],
    status: int,
    headers: Mapping[str, str],
    size: int,
    *,
    is_last: bool,
    may_be_frame: bool,
) -> Answer:
    """With the body of so many bytes that `take` reads into memory, in parts as they come."""
    _check_size(size)
    incoming = _Incoming(take)
    is_plain = status == 200 and "content-encoding" not in headers
    if may_be_frame and is_plain and media_type_of(headers) == CONTENT_TYPE:
        return Answer(status, headers, b"", read_frame(incoming, size), is_last)
    return Answer(status, headers, incoming.take(size), None, is_last)


def _all_of(response: HTTPResponse) -> Buffer:
    """A body in chunks, as proxies send them."""
    whole = bytearray()
    while piece := response.read(_READ_BYTES):
        whole += piece
        _check_size(len(whole))
    return memoryview(whole)


class _Incoming:
    """A body that comes, a `Source`."""

    def __init__(self, take: Callable[[memoryview], int]) -> None:
        self._take = take

    def take(self, size: int) -> Buffer:
        """So many bytes, read to where they stay."""
        try:
            whole = np.empty(size, dtype=np.uint8).data
        except MemoryError:
            raise BadAnswer(f"there is no memory for an answer of {size} bytes") from None
        self.take_into(whole)
        return whole

    def take_into(self, target: memoryview) -> None:
        """As many bytes as `target` has."""
        at = 0
        while at < len(target):
            count = self._take(target[at:])
            if count == 0:
                raise BadAnswer(f"the answer ends after {at} bytes of {len(target)}")
            at += count


def _check_size(size: int) -> None:
    if size > BODY_BYTES_MAX:
        raise BadAnswer(f"the answer has {size} bytes; {BODY_BYTES_MAX} are the most")
