"""One request and its answer, as the gateway and the handlers see them. Event loop only.

Not a framework's Request object: nothing is parsed before a handler asks. Made once per request by
the gateway, which guarantees that every answer carries `MQ-Request-Id`.
"""

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from http import HTTPStatus
from time import perf_counter
from typing import Any, Final, NamedTuple, Protocol

from app.api.http.memory_budget import MemoryBudget
from app.api.http.rate_limit_headers import quota_headers
from app.domain.access.caller import OPEN, KeyHolder
from app.domain.access.standing import Permission, Standing
from app.domain.errors import BatchTooLarge, BodyTooLarge, CurlewError, InvalidRequest
from app.domain.message import Message
from app.domain.positions import TimestampMs
from app.store import FilePart

Scope = MutableMapping[str, Any]
Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]
Packer = Callable[[bytes, Headers, bytes], Awaitable[bytes]]
"""Given `Accept-Encoding`, headers and body of an answer: the body to send, packed or not."""
PACKED_FROM_BYTES: Final = 1_024
"""Smaller answers are not packed: it saves no packet."""
Hold = Callable[[int], None]
"""Counts bytes that a request holds in memory, or raises."""

API_PREFIX: Final = "/v1/"
STATE_PATHS: Final = (API_PREFIX, "/healthz", "/readyz", "/metrics")
"""What begins with these is another thing in a moment, unless its answer says otherwise."""
CACHE_CONTROL: Final = b"cache-control"
NOT_KEPT: Final = (CACHE_CONTROL, b"no-store")
"""Without it shared caches may keep an answer for some time: by RFC 9110, 15.1, also a 404."""
REQUEST_ID: Final = b"mq-request-id"
_BODYLESS: Final = (204, 304)
_OF_A_BODY: Final = (b"content-type", b"content-length", b"content-encoding")
"""Frameworks give the first to every answer, also to one without a body."""
_CACHED_METHODS: Final = ("GET", "HEAD")
AT_ONCE: Final = "curlew.at_once"
"""In an event of a body: to be written whether or not the client has read what came before."""
MUST_REACH: Final = "curlew.must_reach"
"""In an event of a body: raise `ClientGone` when the client has left, instead of saying nothing."""
WHOLE_ANSWER: Final = "curlew.whole_answer"
"""An event with `status`, `headers` and the whole `body`; an ASGI extension of our server."""
WRITTEN_ANSWER: Final = "curlew.written_answer"
"""An event with a whole `answer`, head and body, that says nothing of the connection."""
FILE_ANSWER: Final = "curlew.file_answer"
"""`WHOLE_ANSWER` with `parts` of files, which follow `body`."""
MUTE: Final = "curlew.mute"
"""An event before the answer, with `seconds`: how long the connection is not read after it."""
OUR_EXTENSIONS: Final[dict[str, dict[object, object]]] = {
    WHOLE_ANSWER: {},
    WRITTEN_ANSWER: {},
    FILE_ANSWER: {},
    MUTE: {},
}
"""In a scope, that the server knows them."""
OUR_EXTENSIONS_UNDER_TLS: Final[dict[str, dict[object, object]]] = {
    WHOLE_ANSWER: {},
    WRITTEN_ANSWER: {},
    MUTE: {},
}
"""Of an encrypted connection: what goes from files past the transport would go in clear."""
CERTIFICATE: Final = "curlew.certificate"
"""Among the extensions of a scope, what the client has shown in its handshake: a `Certificate`."""
ASKED: Final = "curlew.asked"
"""In a scope, what of the operation another node asks of this one, where it is not all."""
WHOLE_BODY: Final = "curlew.whole_body"
"""In the scope, a body that came with its head. After it is taken out, `receive` gives none."""
BODY_IN_PLACE: Final = "curlew.body_in_place"
"""In the scope, how to read a body of known length in one piece: `Gather`, instead of `receive`."""
REQUEST_ID_KEY: Final = "curlew.request_id"
"""Where applications behind the gateway find the request id in the scope."""
CONNECTION: Final = "curlew.connection"
"""In the scope, the `ConnectionMemory` of the connection that the request came on."""
HEAD: Final = "curlew.head"
"""In the scope of a request with a head that is known, the `HeadMemory` of that head."""
CONTEXT_KEY: Final = "curlew.request_context"
"""Where they find the `RequestContext`, of which they need the caller and what it may."""


Gather = Callable[[int, Hold], Awaitable[memoryview]]
"""Given the length; the memory is the caller's to write to."""


class Certificate(NamedTuple):
    """What a client has shown in its handshake, and an authority has signed."""

    names: tuple[str, ...]
    """All of its names, as `DNS:billing.example`, `URI:spiffe://…`, `email:…`, `IP:…`."""
    ends_ms: TimestampMs


class ConnectionMemory:
    """What is remembered of one connection while it is open. Nothing of it counts by itself: a
    connection may be shared by many clients, so each request is compared with what is here."""

    __slots__ = ("authorization", "caller", "keyring", "principal", "when_lost")

    def __init__(self) -> None:
        self.authorization: bytes | None = None
        """The last header with a key that was right, for `caller`, by `keyring`."""
        self.keyring: object = None
        self.caller: KeyHolder | None = None
        self.principal: str | None = None
        """Whose it was last, where connections are counted."""
        self.when_lost: Callable[[], None] | None = None
        """To be called when the connection ends."""

    def lost(self) -> None:
        """The connection has ended."""
        if self.when_lost is not None:
            self.when_lost()


class KnownAim(NamedTuple):
    """What requests with the same head are for, as long as both of what it was found by are so."""

    stamp: object
    """Of what is known of the cluster (`Places.stamp`)."""
    namespace: str
    """That they are in, which may be their caller's and not the head's."""
    shard: str | None
    """None: that of this node."""


class OpenedHead(NamedTuple):
    """What is the same of requests that another node has carried here, and that have the same head
    but for the last three headers."""

    envelope: Any
    """That they came in (`api.relay.envelope`)."""
    headers: Headers
    """Those of the client before the ones that differ."""
    says_nothing_more: bool
    """Whether none of these is one of ours, and none is there twice."""


class HeadMemory:
    """What is remembered of requests of one connection that have the same head but for the length
    of the body: who was admitted, by what was known. All of their headers are the same, so nothing
    but what may change meanwhile has to be looked at again: whoever keeps a part here keeps what
    it was found by beside it, and compares that each time. Carried requests, which `ends_alike`
    names, differ in client and request id as well, so nothing is kept of these."""

    __slots__ = (
        "aim",
        "carried",
        "ends_alike",
        "holder",
        "keyring",
        "message",
        "opened",
        "permission",
    )

    def __init__(self, *, ends_alike: bool = False) -> None:
        self.ends_alike = ends_alike
        """Whether another node has carried them here: they differ in the last three headers."""
        self.opened: OpenedHead | None = None
        """Of such: what is the same; None: none was opened so far."""
        self.aim: KnownAim | None = None
        """What they are for; None: it has to be found."""
        self.keyring: object = None
        """By which the last of them was admitted; None: none was, or one with a part that has to be
        looked at each time (an `MQ-*` header, a token, another node)."""
        self.holder: KeyHolder | None = None
        """Whose key it has; None: nobody was asked for one."""
        self.permission: Permission | None = None
        """What was decided for the holder, by who decides; None: nothing so far."""
        self.message: Message | None = None
        """Of a send: what its `MQ-*` headers say of the message, without body and content type;
        None: they were not read so far, or say more."""
        self.carried: tuple[object, bytes] | None = None
        """The head as it goes to another node, behind what it is made of beside this one."""


class Admitted(Protocol):
    """A request that counts as under way."""

    def also(self, leave: Callable[[], None]) -> None: ...

    def end(self) -> None: ...


class ClientGone(Exception):
    """The client has closed the connection: an answer would reach no one."""


class Undecided(Exception):
    """A success that nobody decided on was about to go out: a route, a mount or a handler that asks
    for no permission. It is not sent."""


class RequestContext(Standing):
    """A request, read lazily, and the ways to answer it.

    `headers` has lower-case names; of a repeated header the last wins, and repeated `MQ-*` headers
    are all in `mq_headers`.
    """

    __slots__ = (
        "_held_start",
        "admission",
        "began_s",
        "denied",
        "forward",
        "headers",
        "held_bytes",
        "mq_headers",
        "namespace",
        "packer",
        "permission",
        "pressure",
        "principal",
        "receive",
        "request_id",
        "scope",
        "send",
        "started",
        "status",
    )

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        request_id: bytes,
        pressure: MemoryBudget,
        packer: Packer | None = None,
    ) -> None:
        self.caller = OPEN
        self.is_decided = True
        self.granted = ()
        self.makes = False
        self._seen = None
        self.scope = scope
        self.receive = receive
        self.send = send
        self.request_id = request_id
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.mq_headers: Headers = []
        self.namespace = ""
        """Of what the request names; `""`: the default one. See `request_namespace`."""
        self.denied: CurlewError | None = None
        """Why the control plane refused it, when the caller may not."""
        self.permission: Permission | None = None
        """What was decided for requests with the same head; None: it has to be asked."""
        self.forward = b"yes"
        """`no`: the client asks the leader itself, and wants to be told which node that is."""
        self.started = False
        self.status = 0
        """Of the answer; 0 before it has begun."""
        self.admission: Admitted | None = None
        """Counts the request, to be ended with it; None: there are no quotas."""
        self.principal: str | None = None
        """Who asks; None: nobody was asked for a name."""
        self.began_s = perf_counter()
        self.pressure = pressure
        self.packer = packer
        self._held_start: Event | None = None
        """Of an answer that waits for its body, to be packed with it."""
        self.held_bytes = 0
        """Of the body, as counted by `MemoryBudget`; the gateway releases them."""

    @property
    def instance(self) -> str:
        """The path as sent, for problem documents."""
        raw: bytes | None = self.scope.get("raw_path")
        return str(self.scope["path"]) if raw is None else raw.decode("latin-1")

    @property
    def query(self) -> bytes:
        query: bytes = self.scope["query_string"]
        return query

    async def read_body(self, limit: int, too_large: Callable[[int], InvalidRequest]) -> bytes:
        """The whole body; refused before it is read when `Content-Length` is over `limit`."""
        if WHOLE_BODY in self.scope:
            return self.take_body(limit, too_large)
        body, more = await self._read_first(limit, too_large)
        return b"".join(await self._read_rest(body, limit, too_large)) if more else body

    async def read_own_body(
        self, limit: int, too_large: Callable[[int], InvalidRequest]
    ) -> bytes | bytearray | memoryview:
        """The body as `read_body` gives it; the caller may write to it when it is not `bytes`."""
        if WHOLE_BODY in self.scope:
            return self.take_body(limit, too_large)
        gather: Gather | None = self.scope.get(BODY_IN_PLACE)
        if gather is not None and b"content-length" in self.headers:
            return await gather(self._announced(limit, too_large), self.hold)
        body, more = await self._read_first(limit, too_large)
        return bytearray().join(await self._read_rest(body, limit, too_large)) if more else body

    def take_body(self, limit: int, too_large: Callable[[int], InvalidRequest]) -> bytes:
        """The whole body, once, where it has come with its head (`WHOLE_BODY` in the scope)."""
        body: bytes = self.scope.pop(WHOLE_BODY)
        if len(body) > limit:
            raise too_large(limit)
        return body

    def _announced(self, limit: int, too_large: Callable[[int], InvalidRequest]) -> int:
        """The length of the body, 0 when nothing is said of it."""
        size = int(self.headers.get(b"content-length", b"0"))
        if size > limit:
            raise too_large(limit)
        return size

    async def _read_first(
        self, limit: int, too_large: Callable[[int], InvalidRequest]
    ) -> tuple[bytes, bool]:
        """The first part of the body, and whether more follows."""
        self._announced(limit, too_large)
        event = await self.receive()
        if event["type"] != "http.request":
            raise ClientGone
        body: bytes = event.get("body", b"")
        more: bool = event.get("more_body", False)
        if not more and len(body) > limit:
            raise too_large(limit)
        return body, more

    async def _read_rest(
        self, first: bytes, limit: int, too_large: Callable[[int], InvalidRequest]
    ) -> list[bytes]:
        parts, size, more = [first], len(first), True
        self.hold(size)
        while more:
            if size > limit:
                raise too_large(limit)
            event = await self.receive()
            if event["type"] != "http.request":
                raise ClientGone
            part: bytes = event.get("body", b"")
            self.hold(len(part))
            parts.append(part)
            size += len(part)
            more = event.get("more_body", False)
        if size > limit:
            raise too_large(limit)
        return parts

    def hold(self, size: int) -> None:
        """Count bytes that this request holds in memory; `SystemBusy` when the node has none."""
        self.pressure.hold(size, self.caller.name)
        self.held_bytes += size

    def let_go(self, kept_bytes: int = 0) -> None:
        """Give back what `hold` has counted, but for `kept_bytes`: the request is over, or what
        went on after it, or something that it held for a while."""
        self.pressure.release(self.held_bytes - kept_bytes, self.caller.name)
        self.held_bytes = kept_bytes

    async def mute(self, seconds: float) -> None:
        """Let the server read nothing more of this connection for so long after the answer."""
        if seconds > 0 and MUTE in (self.scope.get("extensions") or ()):
            await self.send({"type": MUTE, "seconds": seconds})

    async def answer(
        self, status: int, headers: Headers, body: bytes, *, must_reach: bool = False
    ) -> None:
        """Send the whole answer. `headers` is taken over; length and request id are added."""
        if self.held_bytes and self.pressure.are_bodies_near:
            headers += quota_headers(self.pressure.bodies)
        if not self.is_decided and status < HTTPStatus.BAD_REQUEST:
            raise Undecided(self.instance)
        if len(body) >= PACKED_FROM_BYTES and self.packer is not None:
            accepted = self.headers.get(b"accept-encoding")
            if accepted is not None:
                body = await self.packer(accepted, headers, body)
        headers.append((b"content-length", b"%d" % len(body)))
        headers.append((REQUEST_ID, self.request_id))
        self.started = True
        self.status = status
        extensions = self.scope.get("extensions")
        if extensions is OUR_EXTENSIONS or WHOLE_ANSWER in (extensions or ()):
            last: Event = {"type": WHOLE_ANSWER, "status": status, "headers": headers, "body": body}
        else:
            await self.send({"type": "http.response.start", "status": status, "headers": headers})
            last = {"type": "http.response.body", "body": body}
        if must_reach:
            last[MUST_REACH] = True
        await self.send(last)

    async def answer_or_tell(self, status: int, headers: Headers, body: bytes) -> None:
        """As `answer`; raises `ClientGone` when the client has left and nothing was sent."""
        try:
            await self.answer(status, headers, body, must_reach=True)
        except ClientGone:
            self.status = 0
            raise

    async def answer_in_parts(
        self, status: int, headers: Headers, parts: Sequence[bytes | memoryview]
    ) -> None:
        """As `answer`, for a body in parts, of which only the first is copied: a small one."""
        headers.append((b"content-length", b"%d" % sum(map(len, parts))))
        await self.begin(status, headers)
        body = "http.response.body"
        for part in parts[:-1]:
            await self.send({"type": body, "body": part, "more_body": True, AT_ONCE: True})
        await self.send({"type": body, "body": parts[-1], AT_ONCE: True})

    @property
    def certificate(self) -> Certificate | None:
        """What the client has shown in its handshake."""
        extensions = self.scope.get("extensions")
        return None if extensions is None else extensions.get(CERTIFICATE)

    @property
    def can_send_files(self) -> bool:
        """Whether `answer_from_files` is possible."""
        return self.scope.get("extensions") is OUR_EXTENSIONS

    async def answer_from_files(
        self, status: int, headers: Headers, first: bytes, parts: Sequence[FilePart]
    ) -> None:
        """As `answer`, for a body of `first` and what stands in files, which is not read here.

        Returns when the client has taken it. Raises `ClientGone` when it takes no more, or a file
        cannot be read: then the connection ends within the body.
        """
        if not self.is_decided:
            raise Undecided(self.instance)
        size = len(first) + sum(part.size for part in parts)
        headers.append((b"content-length", b"%d" % size))
        headers.append((REQUEST_ID, self.request_id))
        self.started = True
        self.status = status
        event = {"type": FILE_ANSWER, "status": status, "headers": headers}
        await self.send({**event, "body": first, "parts": parts})

    async def answer_empty(self, status: int, headers: Headers) -> None:
        """Send an answer without a body (204, 304, or `Prefer: return=minimal`)."""
        if status not in _BODYLESS:
            await self.answer(status, headers, b"")
            return
        await self.begin(status, headers)
        await self.send({"type": "http.response.body", "body": b""})

    async def begin(self, status: int, headers: Headers) -> None:
        """Begin an answer of unknown length; `go_on` sends its parts."""
        if not self.is_decided and status < HTTPStatus.BAD_REQUEST:
            raise Undecided(self.instance)
        headers.append((REQUEST_ID, self.request_id))
        self.started = True
        self.status = status
        await self.send({"type": "http.response.start", "status": status, "headers": headers})

    async def go_on(self, part: bytes) -> None:
        """Send a part, once the connection takes it; without a part, wait until it does.

        Raises `ClientGone` when the client has left.
        """
        event = {"type": "http.response.body", "body": part, "more_body": True, MUST_REACH: True}
        await self.send(event)

    async def pass_on(self, status: int, headers: Headers, body: bytes) -> None:
        """Send the whole answer that another node has given, which decided on it as this one did.
        `headers` are all but its length."""
        self.is_decided = True
        self.started, self.status = True, status
        if status not in _BODYLESS and all(name != b"content-length" for name, _ in headers):
            headers.append((b"content-length", b"%d" % len(body)))
        extensions = self.scope.get("extensions")
        if extensions is OUR_EXTENSIONS or WHOLE_ANSWER in (extensions or ()):
            event: Event = {"type": WHOLE_ANSWER, "status": status, "headers": headers}
            await self.send({**event, "body": body, MUST_REACH: True})
            return
        await self.send({"type": "http.response.start", "status": status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})

    async def pass_on_written(self, status: int, answer: bytes) -> None:
        """As `pass_on`, of an answer as that node wrote it, in one piece. For `takes_written`."""
        self.is_decided = True
        self.started, self.status = True, status
        await self.send({"type": WRITTEN_ANSWER, "answer": answer, MUST_REACH: True})

    @property
    def takes_written(self) -> bool:
        """Whether the client can be given an answer that another node wrote, as it is."""
        extensions = self.scope.get("extensions")
        return extensions is OUR_EXTENSIONS or WRITTEN_ANSWER in (extensions or ())

    async def pass_on_start(self, status: int, headers: Headers) -> None:
        """As `pass_on`, for an answer of which more is to come; `go_on` sends its parts."""
        self.is_decided = True
        self.started, self.status = True, status
        await self.send({"type": "http.response.start", "status": status, "headers": headers})

    async def finish(self, part: bytes) -> None:
        """Send the last part, whether or not the connection takes more now."""
        await self.send({"type": "http.response.body", "body": part, AT_ONCE: True})

    async def send_with_request_id(self, event: Event) -> None:
        """`send` for applications that know nothing of request ids."""
        if event["type"] == "http.response.start":
            if not self.is_decided and event["status"] < HTTPStatus.BAD_REQUEST:
                raise Undecided(self.instance)
            self.started = True
            self.status = event["status"]
            headers = [*event.get("headers", ()), (REQUEST_ID, self.request_id)]
            if self.status in _BODYLESS:
                headers = [each for each in headers if each[0] not in _OF_A_BODY]
            if self._may_be_kept(headers):
                headers.append(NOT_KEPT)
            event["headers"] = headers
            is_asked = self.packer is not None and b"accept-encoding" in self.headers
            if is_asked and _length_of(headers) >= PACKED_FROM_BYTES:
                self._held_start = event
                return
        elif self._held_start is not None:
            start, self._held_start = self._held_start, None
            await self._pack_whole(start, event)
            await self.send(start)
        await self.send(event)

    async def _pack_whole(self, start: Event, event: Event) -> None:
        """Pack an answer of which all is there; both events are changed."""
        headers: Headers = start["headers"]
        body: bytes = event.get("body", b"")
        if event.get("more_body", False) or len(body) != _length_of(headers):
            return
        assert self.packer is not None
        packed = await self.packer(self.headers[b"accept-encoding"], headers, body)
        if packed is not body:
            event["body"] = packed
            start["headers"] = [
                (name, b"%d" % len(packed) if name == b"content-length" else value)
                for name, value in headers
            ]

    def _may_be_kept(self, headers: Headers) -> bool:
        """Whether a shared cache could keep what is another thing in a moment."""
        scope = self.scope
        is_state = scope["method"] in _CACHED_METHODS and scope["path"].startswith(STATE_PATHS)
        return is_state and all(name != CACHE_CONTROL for name, _ in headers)


def _length_of(headers: Headers) -> int:
    """What `Content-Length` says; 0 without one."""
    return next((int(value) for name, value in headers if name == b"content-length"), 0)


def body_too_large(limit: int) -> InvalidRequest:
    """The refusal of a message body over `limit` bytes."""
    return BodyTooLarge(
        f"the body is over {limit} bytes",
        hint="send the payload to an object store and its address as the message",
        fields={"limit_bytes": limit},
    )


def batch_too_large(limit: int) -> InvalidRequest:
    """The refusal of a request body over `limit` bytes that is not a single message."""
    return BatchTooLarge(f"the request body is over {limit} bytes", fields={"limit_bytes": limit})
