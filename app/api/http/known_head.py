"""The heads of the last requests of a connection: one like them need not be parsed. Pure.

Most clients send one head again and again, but for the length of the body. What the parser made
of it once holds for the same bytes again: the parser is between two requests then, and stays there.
So only a head is known that came whole with its body in one read, was taken without any objection,
is not long, says nothing of how the connection goes on, and has its length in digits.
"""

import re
from typing import Final

from uvicorn._types import HTTPScope

from app.api.http.request_context import HEAD, REQUEST_ID, HeadMemory

Headers = list[tuple[bytes, bytes]]

_LENGTH: Final = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,15})[ \t]*\r\n", re.IGNORECASE)
_DIGITS_MAX: Final = 15
CARRIED_FOR: Final = b"curlew-client"
"""Address and port of the client for whom another node has carried a request here."""
_LATE_BEGIN: Final = b"\r\n%b: " % CARRIED_FOR
LATE: Final = (CARRIED_FOR, REQUEST_ID, b"content-length")
"""The last headers of a request that another node has carried here, in the order in which
`api.relay.calls.late_lines` writes them."""
_LATE_VALUES: Final = re.compile(
    rb"([0-9A-Za-z.:%_-]{1,64} [0-9]{1,5})\r\n"
    rb"mq-request-id: ([A-Za-z0-9._:/+=-]{1,128})\r\n"
    rb"content-length: ([0-9]{1,15})\r\n\r\n"
)
_OF_THE_CONNECTION: Final = frozenset(
    {b"connection", b"expect", b"trailer", b"transfer-encoding", b"upgrade"}
)
"""Headers that a head may not have; but a client may say that it keeps the connection."""
_KEPT: Final = (b"connection", b"keep-alive")
_HEAD_BYTES_MAX: Final = 4_096
"""Of a head that is learnt: a connection keeps it before its client has shown who it is, and each
head that comes is compared with those that are kept."""
_HEADERS_MAX: Final = 64
"""Of a head that is learnt: parsed, each takes far more than its bytes."""
_HEADS_MAX: Final = 4
"""Of a connection. A consumer has two: it receives and settles."""
_LEARNT_ALWAYS: Final = 8
_LEARNT_SELDOM: Final = 32
"""After so many heads that no other was like, one of how many is kept."""


class KnownHead:
    """What a head is, as bytes and as a scope, which is to be copied for each request."""

    __slots__ = ("_before", "_behind", "_place", "_size", "_whole", "scope")

    def __init__(
        self, before: bytes, digits: bytes, behind: bytes, scope: HTTPScope, place: int
    ) -> None:
        """`before` and `behind` the `digits` of the length, which stands in that `place` among the
        headers; without a length (-1) all is before."""
        self._before, self._behind = before, behind
        self._place = place
        self._whole = before + digits + behind
        self._size = len(self._whole) + int(digits or b"0")
        """Of head and body."""
        self.scope = scope

    def find(self, data: bytes) -> tuple[HTTPScope, bytes] | None:
        """As `KnownHeads.find`, for a request that has this head, or one that differs in its length
        only; then that is the one that is known."""
        body = self._body_of(data)
        return None if body is None else (self.scope.copy(), body)

    def _body_of(self, data: bytes) -> bytes | None:
        whole = self._whole
        if data.startswith(whole):
            return data[len(whole) :] if len(data) == self._size else None
        before, behind, place = self._before, self._behind, self._place
        if place < 0 or not data.startswith(before):
            return None
        start = len(before)
        end = data.find(behind, start, start + _DIGITS_MAX + len(behind))
        digits = data[start:end]
        if end < 0 or not digits.isdigit() or len(data) != end + len(behind) + int(digits):
            return None
        scope = self.scope.copy()
        headers: Headers = list(scope["headers"])
        headers[place] = (headers[place][0], digits)
        scope["headers"] = headers
        self._whole, self._size, self.scope = data[: end + len(behind)], len(data), scope
        return data[end + len(behind) :]


class CarriedHead:
    """The same of a request that another node has carried here, one of many clients that say the
    same. Its last three headers differ, as that node writes them: `LATE`."""

    __slots__ = ("_before", "_headers", "_scope")

    def __init__(self, before: bytes, scope: HTTPScope) -> None:
        """`before`: up to the value of the first of the three."""
        self._before = before
        self._scope = scope
        self._headers: Headers = list(scope["headers"])[:-3]

    def find(self, data: bytes) -> tuple[HTTPScope, bytes] | None:
        """As `KnownHeads.find`."""
        before = self._before
        if not data.startswith(before):
            return None
        late = _LATE_VALUES.match(data, len(before))
        if late is None:
            return None
        client, request_id, digits = late.groups()
        end = late.end()
        if len(data) != end + int(digits):
            return None
        scope = self._scope.copy()
        scope["headers"] = [
            *self._headers,
            (CARRIED_FOR, client),
            (REQUEST_ID, request_id),
            (b"content-length", digits),
        ]
        return scope, data[end:]


class KnownHeads:
    """Those of one connection: of the last few kinds of requests."""

    __slots__ = ("_found", "_heads", "_learnt", "_newest", "_next", "_unlike")

    def __init__(self) -> None:
        self._heads: list[KnownHead | CarriedHead] = []
        self._next = [0] * _HEADS_MAX
        """Which head came after each the last time: a consumer's settle comes after its receive."""
        self._found = 0
        """The head of the request before."""
        self._newest = 0
        self._learnt = 0
        self._unlike = 0
        """Heads in a row that were like none before."""

    def find(self, data: bytes) -> tuple[HTTPScope, bytes] | None:
        """A scope of its own and the body, when `data` is one whole request with a known head."""
        heads = self._heads
        if not heads:
            return None
        likely = self._next[self._found]
        found = heads[likely].find(data)
        if found is not None:
            self._found, self._unlike = likely, 0
            return found
        # Where each head differs, one is looked at that a client who begins to repeat itself has.
        seldom = self._unlike > _LEARNT_ALWAYS
        for place in (self._newest,) if seldom else range(len(heads)):
            found = None if place == likely else heads[place].find(data)
            if found is not None:
                self._next[self._found] = place
                self._found, self._unlike = place, 0
                return found
        return None

    def learn(self, data: bytes, scope: HTTPScope) -> None:
        """`data`, which began between two requests, was read as one whole request, with `scope`."""
        self._unlike += 1
        if self._unlike > _LEARNT_ALWAYS and self._unlike % _LEARNT_SELDOM:
            return
        found = known_head(data, scope.copy())
        if found is None:
            return
        self._newest = self._learnt % _HEADS_MAX
        if self._newest == len(self._heads):
            self._heads.append(found)
        else:
            self._heads[self._newest] = found
        self._learnt += 1


def known_head(data: bytes, scope: HTTPScope) -> KnownHead | CarriedHead | None:
    """The head of the whole request that is `data`; None when it may not be known."""
    headers: Headers = scope["headers"]  # type: ignore[assignment]
    if len(headers) > _HEADERS_MAX:
        return None
    names = tuple(name for name, _ in headers[-3:])
    scope[HEAD] = HeadMemory(ends_alike=names == LATE)  # type: ignore[typeddict-unknown-key]
    size = dict(headers).get(b"content-length")
    end = data.find(b"\r\n\r\n", 0, _HEAD_BYTES_MAX) + 4
    if end < 4 or end + int(size or b"0") != len(data) or not _may_be_known(data, scope, headers):
        return None
    if names == LATE:
        before = data.rfind(_LATE_BEGIN, 0, end)
        start = before + len(_LATE_BEGIN)
        late = _LATE_VALUES.match(data, start) if before >= 0 else None
        return CarriedHead(data[:start], scope) if late is not None and late.end() == end else None
    if size is None:
        return KnownHead(data, b"", b"", scope, -1)
    found = _LENGTH.search(data, 0, end)
    if found is None or found[1] != size:
        return None
    start, behind = found.span(1)
    place = headers.index((b"content-length", size))
    return KnownHead(data[:start], size, data[behind:end], scope, place)


def _may_be_known(data: bytes, scope: HTTPScope, headers: Headers) -> bool:
    """Whether the head says nothing of how the connection goes on, and has nothing before it."""
    own = [(name, value.lower()) for name, value in headers if name in _OF_THE_CONNECTION]
    return own in ([], [_KEPT]) and scope["method"] != "CONNECT" and data[:1].isalpha()
