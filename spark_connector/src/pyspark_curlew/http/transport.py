"""One HTTP request with retries, and what its failures mean.

Connections are kept for each process by `connections`, so a transport is cheap to make and holds
plain values only. Safe to use from several threads. Called by `client`.
"""

import json
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from math import inf
from typing import Final, TypeVar
from urllib.parse import urlencode, urlsplit

from pyspark_curlew.errors import AccessDenied, RequestRefused, TopicNotFound
from pyspark_curlew.http.connections import Connections
from pyspark_curlew.http.credentials import authorization, described
from pyspark_curlew.http.http_options import HttpOptions
from pyspark_curlew.http.reply import Answer, BadAnswer, read_reply
from pyspark_curlew.http.retry import RetryPolicy, TryLater
from pyspark_curlew.wire.sources import Buffer

Result = TypeVar("Result")

_RETRIED: Final = frozenset({408, 429, 500, 502, 503, 504})
_OF_THE_TOPIC: Final = "NO_PERMISSION"
"""The topic or queue takes no messages, or gives none, whoever asks."""
_NO_SUCH_TOPIC: Final = frozenset({"TOPIC_NOT_FOUND", "QUEUE_NOT_FOUND"})
"""Any other 404 is an address where the service is not, perhaps for a moment, behind a proxy."""
LEADER_CONNECT_S: Final = 1.0
"""Where there is another way, nobody waits for longer until a connection is made."""
_DEFAULTS: Final = {"User-Agent": "pyspark-curlew", "Accept-Encoding": "identity"}

_turns: dict[tuple[str, ...], int] = {}
"""By addresses, which of them it is. For the process: clients are made for one call or two."""


@dataclass(frozen=True, slots=True)
class Request:
    """What to send; a body comes in pieces, so that large ones are not copied together.
    `wait_s` is how long the service may wait before it answers; `may_be_frame` as in `reply`."""

    method: str
    path: str
    query: Mapping[str, str | int]
    headers: Mapping[str, str]
    body: tuple[Buffer, ...] | None = None
    wait_s: int = 0
    may_be_frame: bool = False


class Transport:
    """Requests to one service. After a failure that may pass, its next address is tried."""

    def __init__(self, options: HttpOptions, policy: RetryPolicy | None = None) -> None:
        self._options = options
        self._policy = policy or RetryPolicy(options.retry_timeout_ms)

    def run(self, what: str, request: Request, read: Callable[[Answer], Result]) -> Result:
        """Send until `read` makes a result of the answer or the policy gives up."""
        return self.repeat(what, lambda: read(self.once(request)))

    def repeat(self, what: str, attempt: Callable[[], Result]) -> Result:
        """Make attempts, each of calls of `once`, until one has a result or the policy gives up."""
        return self._policy.run(what, attempt)

    def once(self, request: Request) -> Answer:
        """Send one time, to the address whose turn it is; raise `TryLater` for what may pass."""
        endpoints = self._options.endpoints
        turn = _turns.get(endpoints, 0)
        try:
            with closing(self._begin(request, endpoints[turn])) as call:
                return call.answer()
        except TryLater:
            if _turns.get(endpoints, 0) == turn:  # or another thread has gone on already
                _turns[endpoints] = (turn + 1) % len(endpoints)
            raise

    def begin(self, request: Request, endpoint: str | None = None) -> "Call":
        """Send a request whose answer is read later: to `endpoint`, which should be near, else as
        `once`.

        Each has a connection of its own, so that the service works on several at a time.
        """
        if endpoint is not None:
            return self._begin(request, endpoint, LEADER_CONNECT_S)
        endpoints = self._options.endpoints
        return self._begin(request, endpoints[_turns.get(endpoints, 0)])

    def _begin(self, request: Request, endpoint: str, connect_max_s: float = inf) -> "Call":
        options = self._options
        connections = Connections(endpoint, options.tls)
        timeout_s = options.read_timeout_ms / 1000 + request.wait_s
        try:
            connect_s = min(options.connect_timeout_ms / 1000, connect_max_s)
            sock = connections.take(connect_s, timeout_s)
            try:
                is_sent = self._send(sock, request, endpoint)
            except BaseException:
                sock.close()
                raise
        except OSError as error:
            raise _passing(error) from None
        return Call(connections, sock, is_sent=is_sent, may_be_frame=request.may_be_frame)

    def _send(self, sock: socket.socket, request: Request, endpoint: str) -> bool:
        """Return whether it was taken: when the other side has ended the connection, its refusal
        may have come before the end of the body, so the answer should be read all the same."""
        pieces = self._packed(request.body or ())
        head = self._head(request, endpoint, sum(map(len, pieces)))
        with suppress(BrokenPipeError, ConnectionResetError):
            _send_all(sock, (head, *pieces))
            return True
        return False

    def _head(self, request: Request, endpoint: str, length: int) -> bytes:
        """Request line and headers; what options say was checked there."""
        base = urlsplit(endpoint)
        query = f"?{urlencode(request.query)}" if request.query else ""
        lines = [f"{request.method} {base.path}{request.path}{query} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in self._headers(request).items()]
        lines.append(f"Host: {base.netloc}")
        if request.body is not None:
            lines.append(f"Content-Length: {length}")
        head = "\n".join(lines)
        if head.count("\n") != len(lines) - 1 or "\r" in head:
            raise ValueError("a line of the request's head has a line break in it")
        return (head.replace("\n", "\r\n") + "\r\n\r\n").encode("latin-1")

    def require_success(self, answer: Answer, subject: str) -> None:
        """Raise what the status means, unless it is a success."""
        if 200 <= answer.status < 300:
            return
        if answer.status in {401, 403} and document_of(answer.body).get("code") != _OF_THE_TOPIC:
            how = described(self._options.credentials)
            raise AccessDenied(f"{subject}: {describe(answer)}; the request was sent {how}")
        if answer.status == 404 and document_of(answer.body).get("code") in _NO_SUCH_TOPIC:
            raise TopicNotFound(f"{subject}: {describe(answer)}")
        raise RequestRefused(f"{subject}: {describe(answer)}")

    def _headers(self, request: Request) -> dict[str, str]:
        given = dict(self._options.headers)
        names = {name.lower() for name in given}
        ours = {name: value for name, value in _DEFAULTS.items() if name.lower() not in names}
        headers = {**ours, **given, **request.headers}
        compression = self._options.compression
        if compression != "none":
            headers["Accept-Encoding"] = compression
            if request.body is not None:
                headers["Content-Encoding"] = compression
        value = authorization(self._options.credentials)
        return headers if value is None else {**headers, "Authorization": value}

    def _packed(self, body: tuple[Buffer, ...]) -> tuple[Buffer, ...]:
        if not body or self._options.compression == "none":
            return body
        import pyarrow as pa

        return (pa.compress(b"".join(body), codec=self._options.compression, asbytes=True),)


class Call:
    """A request that has been sent. To be closed, whether its answer is read or not."""

    def __init__(
        self,
        connections: Connections,
        sock: socket.socket,
        *,
        is_sent: bool,
        may_be_frame: bool,
    ) -> None:
        self._connections = connections
        self._sock: socket.socket | None = sock
        self._is_sent = is_sent
        self._may_be_frame = may_be_frame

    def close(self) -> None:
        """Give up the connection, unless it was kept for another request."""
        if self._sock is not None:
            self._sock.close()

    def answer(self) -> Answer:
        """Wait for the answer, once; raise `TryLater` for what may pass."""
        sock = self._sock
        assert sock is not None, "the answer was read before"
        try:
            answer = read_reply(sock, may_be_frame=self._may_be_frame)
        except (OSError, BadAnswer) as error:
            raise _passing(error) from None
        if self._is_sent and not answer.is_last:
            self._connections.keep(sock)
            self._sock = None
        answer = _unpacked(answer)
        if answer.status in _RETRIED:
            raise TryLater(describe(answer), _retry_after_s(answer.headers))
        return answer


def _send_all(sock: socket.socket, pieces: Sequence[Buffer]) -> None:
    """In order; as many as fit go in one call, where there is no encryption."""
    sent = 0 if isinstance(sock, ssl.SSLSocket) else sock.sendmsg(pieces)
    for piece in pieces:
        if sent < len(piece):
            sock.sendall(memoryview(piece)[sent:])
        sent = max(0, sent - len(piece))


def _passing(error: Exception) -> TryLater:
    """What may pass; a certificate that is not trusted will not."""
    if isinstance(error, ssl.SSLCertVerificationError):
        raise AccessDenied(
            f"the service's certificate is not trusted ({error.verify_message}); option 'tls.ca'"
            " names the file of the authority that signed it"
        ) from None
    return TryLater(f"{type(error).__name__}: {error}")


def _unpacked(answer: Answer) -> Answer:
    """Without its content encoding, which only answers have that were asked for it."""
    encoding = answer.headers.get("content-encoding", "identity")
    if encoding != "zstd":
        return answer
    import pyarrow as pa

    try:
        with pa.CompressedInputStream(pa.BufferReader(answer.body), encoding) as stream:
            return replace(answer, body=stream.read())
    except OSError as error:
        raise TryLater(f"the packed answer cannot be unpacked: {error}") from None


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    value = headers.get("retry-after", "")
    return float(value) if value.isdecimal() else None


def describe(answer: Answer) -> str:
    """Status, code, detail, hint and request id, as far as the answer has them."""
    problem = document_of(answer.body)
    parts = [f"HTTP {answer.status}"]
    parts += [str(problem[name]) for name in ("code", "detail", "hint") if problem.get(name)]
    request_id = answer.headers.get("mq-request-id")
    if request_id:
        parts.append(f"request {request_id}")
    return "; ".join(parts)


def document_of(body: Buffer) -> Mapping[str, object]:
    """The JSON object of a body; an empty one when there is none."""
    try:
        document = json.loads(bytes(body))
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
