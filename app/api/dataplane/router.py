"""Which hot operation a request names: one split and one dict look-up. Pure.

Whatever is not in the table falls through to FastAPI; a path of the lane with another method is
answered 405 here, since FastAPI does not know it.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple
from urllib.parse import unquote

from app.api.http.errors import MethodNotAllowed
from app.api.http.request_context import Scope

Handler = Callable[..., Awaitable[None]]
"""Takes the exchange and then the names in the path, in their order."""


class Operation(NamedTuple):
    """A hot operation. `path` is its template in the OpenAPI document."""

    operation_id: str
    method: str
    path: str
    handler: Handler
    sends: bool = False
    """Its errors say whether the message was stored (`outcome`)."""
    takes_mq_headers: bool = False
    reads: bool = False
    """Its answer may be large: refused while too much waits to be read."""
    leases_by_get: bool = False
    """A GET that changes something: no link and no redirect may lead a browser to it."""
    is_direct: bool = False
    """Begins without a task, and asks for one (`in_task`) when it needs more than confirmations."""

    @property
    def is_repeated(self) -> bool:
        """Whether clients use one path again and again; receipts and replies have their own."""
        return not self.path.startswith(("/v1/receipts/", "/v1/replies/"))


Names = tuple[str, ...]

_TOPIC_SEGMENTS: Final = 5  # "", v1, topics, {topic}, messages…
_NESTED_SEGMENTS: Final = 7  # "", v1, topics, {topic}, queues|groups, {name}, messages…
_ONCE_SEGMENTS: Final = 4  # "", v1, receipts|replies, {id}
_ONCE: Final = ("receipts", "replies")
_RECENT_MAX: Final = 4_096
"""Paths remembered, so that a busy one costs one look-up; when full, remembering starts anew."""
_PATH_CHARS_MAX: Final = 512
"""Of a path that is remembered: two of the longest names fit in. A target may have 32 KiB."""


class Router:
    """The table of hot operations. Built once; look-ups are pure."""

    def __init__(self, operations: list[Operation]) -> None:
        self.operations = tuple(operations)
        self._recent: dict[tuple[str, bytes | str], tuple[Operation, Names]] = {}
        self._methods: dict[tuple[str, str], dict[str, Operation]] = {}
        for operation in operations:
            key = _key(operation.path.split("/"))
            assert key is not None, operation.path
            by_method = self._methods.setdefault(key, {})
            assert operation.method not in by_method, operation
            by_method[operation.method] = operation

    def find(self, scope: Scope) -> tuple[Operation, Names] | None:
        """The operation of the request and the names in its path; None: not the lane's."""
        key = (scope["method"], scope.get("raw_path") or scope["path"])
        found = self._recent.get(key)
        if found is None:
            found = self._look_up(scope)
            is_short = len(key[1]) <= _PATH_CHARS_MAX
            if found is not None and found[0].is_repeated and is_short:
                if len(self._recent) >= _RECENT_MAX:
                    self._recent.clear()
                self._recent[key] = found
        return found

    def _look_up(self, scope: Scope) -> tuple[Operation, Names] | None:
        raw_path: bytes | None = scope.get("raw_path")
        if raw_path is not None and b"%" in raw_path:
            segments = [unquote(part) for part in raw_path.decode("latin-1").split("/")]
        else:
            segments = scope["path"].split("/")
        key = _key(segments)
        if key is None:
            return None
        by_method = self._methods.get(key)
        if by_method is None:
            return None
        operation = by_method.get(scope["method"])
        if operation is None:
            raise MethodNotAllowed(scope["method"], allow_of(by_method))
        if len(segments) == _NESTED_SEGMENTS:
            return operation, (segments[3], segments[5])
        return operation, (segments[3],)


def allow_of(methods: Mapping[str, object]) -> str:
    """The value of the `Allow` header."""
    return ", ".join(sorted(methods))


def _key(segments: list[str]) -> tuple[str, str] | None:
    """What tells the shapes of path apart: the collection on the way, and the last segment."""
    count = len(segments)
    if count == _TOPIC_SEGMENTS:
        if segments[2] == "topics" and segments[1] == "v1":
            return "topics", segments[4]
    elif count == _NESTED_SEGMENTS:
        if segments[2] == "topics" and segments[1] == "v1":
            return segments[4], segments[6]
    elif count == _ONCE_SEGMENTS and segments[2] in _ONCE and segments[1] == "v1":
        return segments[2], ""
    return None
