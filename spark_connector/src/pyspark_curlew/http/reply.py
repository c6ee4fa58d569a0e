"""The answer to a request, read from a connection: as bytes, or as a frame while it comes.

A body goes straight to where it stays. All that an answer can do wrong is a `BadAnswer`, and every
size has a bound. Called by `transport`.
"""

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from typing import Final

import numpy as np

from pyspark_curlew.wire.frame import CONTENT_TYPE, Frame, media_type_of, read_frame
from pyspark_curlew.wire.sources import Buffer

BODY_BYTES_MAX: Final = 2**31 - 1
"""Arrow's offsets in a frame reach no farther."""

_READ_BYTES: Final = 64 * 1024


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
        with HTTPResponse(sock) as response:
            response.begin()
            return _read(response, may_be_frame=may_be_frame)
    except HTTPException as error:
        raise BadAnswer(f"{type(error).__name__}: {error}") from None


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
    _check_size(size)
    incoming = _Incoming(response)
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

    def __init__(self, response: HTTPResponse) -> None:
        self._response = response

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
            count = self._response.readinto(target[at:])
            if count == 0:
                raise BadAnswer(f"the answer ends after {at} bytes of {len(target)}")
            at += count


def _check_size(size: int) -> None:
    if size > BODY_BYTES_MAX:
        raise BadAnswer(f"the answer has {size} bytes; {BODY_BYTES_MAX} are the most")
