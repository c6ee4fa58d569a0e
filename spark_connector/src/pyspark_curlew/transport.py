"""One HTTP request with retries, and what its failures mean. Over urllib3.

urllib3 and not httpx: fetching a 4 MiB answer costs it a quarter of the CPU time. Connections are
kept for each process (Spark forks its workers, and a socket must not be shared by two of them), so
a transport is cheap to make and holds plain values only. Safe to use from several threads. Called
by `client`.
"""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar, cast
from urllib.parse import urlencode

import urllib3

from pyspark_curlew.credentials import authorization, described
from pyspark_curlew.errors import AccessDenied, RequestRefused, TopicNotFound
from pyspark_curlew.http_options import HttpOptions
from pyspark_curlew.retry import RetryPolicy, TryLater

Result = TypeVar("Result")
Buffer = bytes | memoryview

_RETRIED: Final = frozenset({408, 429, 500, 502, 503, 504})
_NO_SUCH_TOPIC: Final = frozenset({"TOPIC_NOT_FOUND", "QUEUE_NOT_FOUND"})
"""Any other 404 is an address where the service is not, perhaps for a moment, behind a proxy."""
_CONNECTIONS_PER_PROCESS: Final = 16

_pools: dict[tuple[int, HttpOptions], urllib3.PoolManager] = {}
"""By process id: a forked worker finds its parent's entry and must not use it."""

_turns: dict[tuple[str, ...], int] = {}
"""By addresses, which of them it is. For the process: clients are made for one call or two."""


@dataclass(frozen=True, slots=True)
class Request:
    """What to send; a body may come in pieces, so that large ones are not copied together.
    `wait_s` is how long the service may wait before it answers."""

    method: str
    path: str
    query: Mapping[str, str | int]
    headers: Mapping[str, str]
    body: Buffer | tuple[Buffer, ...] | None = None
    wait_s: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """Status, headers (names in lower case) and body of one response."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Transport:
    """Requests to one service. After a failure that may pass, its next address is tried."""

    def __init__(self, options: HttpOptions, policy: RetryPolicy | None = None) -> None:
        self._options = options
        self._policy = policy or RetryPolicy.of(options)

    def run(self, what: str, request: Request, read: Callable[[Answer], Result]) -> Result:
        """Send until `read` makes a result of the answer or the policy gives up."""
        return self._policy.run(what, lambda: read(self.once(request)))

    def once(self, request: Request) -> Answer:
        """Send one time, to the address whose turn it is; raise `TryLater` for what may pass."""
        endpoints = self._options.endpoints
        turn = _turns.get(endpoints, 0)
        try:
            return self._once(request, endpoints[turn])
        except TryLater:
            if _turns.get(endpoints, 0) == turn:  # or another thread has gone on already
                _turns[endpoints] = (turn + 1) % len(endpoints)
            raise

    def _once(self, request: Request, endpoint: str) -> Answer:
        options = self._options
        timeout = urllib3.Timeout(
            connect=options.connect_timeout_ms / 1000,
            read=options.read_timeout_ms / 1000 + request.wait_s,
        )
        address = f"{endpoint}{request.path}"
        if request.query:
            address += f"?{urlencode(request.query)}"
        headers = self._headers(request)
        body = self._packed(request.body)
        if isinstance(body, tuple):  # or it would be sent in chunks
            headers["Content-Length"] = str(sum(len(piece) for piece in body))
        try:
            response = self._pool().request(
                request.method,
                address,
                body=cast("bytes", body),  # urllib3 takes any buffer, or several
                headers=headers,
                timeout=timeout,
                retries=False,
                decode_content=False,
            )
        except urllib3.exceptions.HTTPError as error:
            raise TryLater(f"{type(error).__name__}: {error}") from None
        found = {name.lower(): value for name, value in response.headers.items()}
        answer = Answer(response.status, found, _unpacked(response.data, found))
        if answer.status in _RETRIED:
            raise TryLater(describe(answer), _retry_after_s(found))
        return answer

    def require_success(self, answer: Answer, subject: str) -> None:
        """Raise what the status means, unless it is a success."""
        if 200 <= answer.status < 300:
            return
        if answer.status in {401, 403}:
            how = described(self._options.credentials)
            raise AccessDenied(f"{subject}: {describe(answer)}; the request was sent {how}")
        if answer.status == 404 and document_of(answer.body).get("code") in _NO_SUCH_TOPIC:
            raise TopicNotFound(f"{subject}: {describe(answer)}")
        raise RequestRefused(f"{subject}: {describe(answer)}")

    def _headers(self, request: Request) -> dict[str, str]:
        headers = {**dict(self._options.headers), **request.headers}
        compression = self._options.compression
        if compression != "none":
            headers["Accept-Encoding"] = compression
            if request.body is not None:
                headers["Content-Encoding"] = compression
        value = authorization(self._options.credentials)
        return headers if value is None else {**headers, "Authorization": value}

    def _packed(
        self, body: Buffer | tuple[Buffer, ...] | None
    ) -> Buffer | tuple[Buffer, ...] | None:
        if body is None or self._options.compression == "none":
            return body
        import pyarrow as pa

        whole = b"".join(body) if isinstance(body, tuple) else body
        packed: bytes = pa.compress(whole, codec=self._options.compression, asbytes=True)
        return packed

    def _pool(self) -> urllib3.PoolManager:
        key = (os.getpid(), self._options)
        if key not in _pools:
            tls = self._options.tls
            _pools[key] = urllib3.PoolManager(
                maxsize=_CONNECTIONS_PER_PROCESS,
                cert_reqs="CERT_REQUIRED" if tls.verify else "CERT_NONE",
                ca_certs=tls.ca,
                cert_file=tls.cert,
                key_file=tls.key,
            )
        return _pools[key]


def _unpacked(body: bytes, headers: Mapping[str, str]) -> bytes:
    """The body without its content encoding, which only answers have that were asked for it."""
    encoding = headers.get("content-encoding", "identity")
    if encoding not in {"zstd", "gzip"}:
        return body
    import pyarrow as pa

    try:
        with pa.CompressedInputStream(pa.BufferReader(body), encoding) as stream:
            unpacked: bytes = stream.read()
    except OSError as error:
        raise TryLater(f"the {encoding} answer cannot be unpacked: {error}") from None
    return unpacked


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


def document_of(body: bytes) -> Mapping[str, object]:
    """The JSON object of a body; an empty one when there is none."""
    try:
        document = json.loads(body)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
