"""Calls an ASGI application directly: one request, no sockets, no client library."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from app.api.http.request_context import AsgiApp, Event

LOCAL = (b"host", b"localhost:8710")


@dataclass
class Answer:
    """What the application sent."""

    status: int = 0
    headers: dict[bytes, bytes] = field(default_factory=dict)
    body: bytes = b""

    def json(self) -> Any:
        return msgspec.json.decode(self.body)


def http_scope(
    method: str, path: str, headers: Sequence[tuple[bytes, bytes]], query: bytes
) -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "scheme": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query,
        "root_path": "",
        "headers": list(headers),
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8710),
        "state": {},
    }


def events_of(*parts: bytes) -> Callable[[], Awaitable[Event]]:
    """A `receive` that gives the body in parts, then a disconnect. It counts in `.taken`."""
    pending = list(parts) or [b""]

    async def receive() -> Event:
        receive.taken += 1  # type: ignore[attr-defined]
        if not pending:
            return {"type": "http.disconnect"}
        body = pending.pop(0)
        return {"type": "http.request", "body": body, "more_body": bool(pending)}

    receive.taken = 0  # type: ignore[attr-defined]
    return receive


async def call(
    app: AsgiApp,
    method: str,
    path: str,
    *parts: bytes,
    headers: Mapping[bytes, bytes] | Sequence[tuple[bytes, bytes]] = (),
    query: bytes = b"",
    receive: Callable[[], Awaitable[Event]] | None = None,
) -> Answer:
    """The answer of `app`. A local Host is added unless one is given."""
    pairs = list(headers.items() if isinstance(headers, Mapping) else headers)
    if b"host" not in dict(pairs):
        pairs.insert(0, LOCAL)
    answer = Answer()

    async def send(event: Event) -> None:
        if event["type"] == "http.response.start":
            answer.status = event["status"]
            answer.headers = dict(event["headers"])
        else:
            answer.body += event.get("body", b"")

    await app(http_scope(method, path, pairs, query), receive or events_of(*parts), send)
    return answer
