"""Requests that a node makes of another for a part of what it was asked, and of itself for its own
part: the same request, whichever node carries it out."""

import asyncio
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, unquote_to_bytes, urlencode

from app.api.http.request_context import (
    ASKED,
    REQUEST_ID,
    WHOLE_BODY,
    AsgiApp,
    Event,
    Headers,
    RequestContext,
)
from app.api.peers.connection import PeerConnection
from app.api.relay.envelope import PREFIX, RELAYED, Envelope, client_line

Query = dict[str, str]
"""Parameters of a query by their names."""

RAW_QUERY: Final = "curlew.raw_query"
"""In a scope, the query as it came, where something was taken out of it."""
HOP: Final = frozenset(
    {
        *(b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer", b"upgrade"),
        *(b"transfer-encoding", b"expect"),
    }
)
"""Headers of one connection."""
STAYS: Final = HOP | {b"authorization", b"cookie", REQUEST_ID, b"content-length"}
"""What of a request is for the node that was asked only, or is written anew."""
_OF_THE_WHOLE: Final = STAYS | {
    *(b"accept-encoding", b"if-none-match", b"content-encoding", b"host", b"mq-forward"),
}
"""What is of a whole request, and not of its parts."""
_KEPT: Final = ("type", "asgi", "http_version", "scheme", "server", "client", "root_path")


class CallRequest(NamedTuple):
    """A request that this node makes of another, for a part of one that it was asked for."""

    method: str
    target: bytes
    """Path and query, names as clients write them, with `namespace=` where there is one."""
    headers: Headers
    """Without lengths."""
    body: bytes = b""
    asks: str = ""
    """What of the operation is asked for, where it is not all; see `Envelope`."""
    is_of_node: bool = False
    """The node asks by itself, whatever the caller may still do; see `Envelope`."""


class CallAnswer(NamedTuple):
    """Its whole answer: a success, or a problem document."""

    status: int
    headers: Headers
    body: bytes

    def header(self, name: bytes) -> bytes | None:
        """The first of this name."""
        return next((value for each, value in self.headers if each == name), None)

    @property
    def own_headers(self) -> Headers:
        """A new list of those that the whole answer has as well."""
        return [each for each in self.headers if each[0] not in STAYS]


async def pass_on(exchange: RequestContext, answer: CallAnswer) -> None:
    """Let the client have the answer of one part as that of the whole."""
    await exchange.answer(answer.status, answer.own_headers, answer.body)


async def whole_of(connection: PeerConnection, exchange: RequestContext | None = None) -> bytes:
    """The body that comes on a connection; counted for the request that holds it."""
    parts: list[bytes] = []
    while part := await connection.take():
        if exchange is not None:
            exchange.hold(len(part))
        parts.append(part)
    return b"".join(parts)


def path_of(exchange: RequestContext) -> bytes:
    """As the client wrote it."""
    path: bytes = exchange.scope.get("raw_path") or exchange.scope["path"].encode()
    return path


def target_of(exchange: RequestContext) -> bytes:
    """Path and query, as the client wrote them."""
    path, query = path_of(exchange), query_of(exchange)
    return b"%b?%b" % (path, query) if query else path


def query_of(exchange: RequestContext) -> bytes:
    """As the client wrote it, with its namespace."""
    query: bytes = exchange.scope.get(RAW_QUERY, exchange.scope["query_string"])
    return query


def parsed_query(exchange: RequestContext) -> Query:
    """The texts of `query_of`. A query with a name that stands twice was refused before."""
    return dict(parse_qsl(query_of(exchange).decode("latin-1"), keep_blank_values=True))


def query_without(query: Query, *names: str) -> Query:
    """The other parameters."""
    return {name: text for name, text in query.items() if name not in names}


def query_bytes(query: Query) -> bytes:
    """As it stands in a target."""
    return urlencode(query).encode("ascii")


def part_of(exchange: RequestContext, query: bytes, body: bytes = b"") -> CallRequest:
    """The same operation for a part of what `exchange` asks."""
    path = path_of(exchange)
    headers = [
        (name, value)
        for name, value in exchange.scope["headers"]
        if name not in _OF_THE_WHOLE and not name.startswith(PREFIX)
    ]
    target = b"%b?%b" % (path, query) if query else path
    return CallRequest(exchange.scope["method"], target, headers, body)


def written_to(request: CallRequest, envelope: Envelope, exchange: RequestContext) -> bytes:
    """A request as another node reads it, for a part of `exchange`."""
    headers = [*request.headers, (b"host", b"cluster"), *envelope.headers()]
    head = head_lines(request.method, request.target, headers)
    return head + late_lines(exchange, b"content-length: %d" % len(request.body)) + request.body


def head_lines(method: str, target: bytes, headers: Headers) -> bytes:
    """The beginning of a head for another node; `late_lines` follow."""
    lines = [b"%b %b HTTP/1.1" % (method.encode(), target)]
    return b"\r\n".join([*lines, *(b"%b: %b" % each for each in headers), b""])


def late_lines(exchange: RequestContext, length: bytes) -> bytes:
    """The end of a head: what differs where all else is the same (`api.http.known_head`). `length`:
    the line of it; empty without a body."""
    client = client_line(exchange.scope)
    end = b"\r\n" if length else b""
    return b"%bmq-request-id: %b\r\n%b%b\r\n" % (client, exchange.request_id, length, end)


async def call_own(
    app: AsgiApp, exchange: RequestContext, request: CallRequest, envelope: Envelope
) -> CallAnswer:
    """Have this node answer as another one would, without a connection."""
    path, _, query = request.target.partition(b"?")
    scope: dict[str, Any] = {name: exchange.scope[name] for name in _KEPT if name in exchange.scope}
    scope |= {
        "method": request.method,
        "path": unquote_to_bytes(path).decode("utf-8", "replace"),
        "raw_path": path,
        "query_string": query,
        "headers": [
            *request.headers,
            (b"host", b"cluster"),
            (b"content-length", b"%d" % len(request.body)),
            (REQUEST_ID, exchange.request_id),
        ],
        RELAYED: envelope,
        ASKED: envelope.asks,
        WHOLE_BODY: request.body,
    }
    events: list[Event] = []

    async def send(event: Event) -> None:
        events.append(event)

    given = False

    async def receive() -> Event:
        nonlocal given
        if given:
            await asyncio.get_running_loop().create_future()  # it leaves by being cancelled
        given = True
        return {"type": "http.request", "body": scope.pop(WHOLE_BODY, b""), "more_body": False}

    await app(scope, receive, send)
    start = next(event for event in events if event["type"] == "http.response.start")
    body = b"".join(bytes(e.get("body", b"")) for e in events if e["type"] != start["type"])
    headers = [(name.lower(), value) for name, value in start.get("headers", ())]
    return CallAnswer(start["status"], headers, body)
