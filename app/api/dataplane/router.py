"""Which operation of the data plane a request names: one split and one dict look-up. Pure.

What is not in the table falls through to FastAPI; a path of the table with another method is
answered 405 here, since FastAPI does not know it.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final
from urllib.parse import unquote

from app.api.http.errors import MethodNotAllowed
from app.api.http.request_context import RequestContext, Scope
from app.api.operations.operation import Operation
from app.domain.names import NAMESPACE_SEPARATOR

Handler = Callable[..., Awaitable[None]]
"""Takes the exchange and then the names in the path, in their order."""
Route = tuple[Operation, Handler, tuple[str, ...]]
"""With the names that a request has in its path."""

_TOPIC_SEGMENTS: Final = 5  # "", v1, topics|groups, {name}, messages…|members:poll
_SCOPES: Final = ("topics", "groups")
_NESTED_SEGMENTS: Final = 7  # "", v1, topics, {topic}, queues|groups, {name}, messages…
_ONCE_SEGMENTS: Final = 4  # "", v1, receipts|replies, {id}
_ONCE: Final = ("receipts", "replies")
_ONCE_PATHS: Final = ("/v1/receipts/", "/v1/replies/")
"""Each has an id of its own; all others are used again and again."""
_RECENT_MAX: Final = 4_096
"""Paths remembered, so that a busy one costs one look-up; when full, remembering starts anew."""
_PATH_CHARS_MAX: Final = 512
"""Of a path that is remembered: two of the longest names fit in. A target may have 32 KiB."""


class Router:
    """The table of operations and handlers. Built once; look-ups are pure."""

    def __init__(self, handlers: Mapping[Operation, Handler]) -> None:
        self.operations = tuple(handlers)
        self._repeated = frozenset(
            each for each in handlers if not each.path.startswith(_ONCE_PATHS)
        )
        self._recent: dict[tuple[str, bytes | str], Route] = {}
        self._methods: dict[tuple[str, str], dict[str, tuple[Operation, Handler]]] = {}
        for operation, handler in handlers.items():
            key = _key(operation.path.split("/"))
            assert key is not None, operation.path
            by_method = self._methods.setdefault(key, {})
            assert operation.method not in by_method, operation
            by_method[operation.method] = operation, handler

    def find(self, scope: Scope) -> Route | None:
        """What answers the request; None: nothing of the data plane."""
        key = (scope["method"], scope.get("raw_path") or scope["path"])
        found = self._recent.get(key)
        if found is None:
            found = self._look_up(scope)
            is_short = len(key[1]) <= _PATH_CHARS_MAX
            if found is not None and is_short and found[0] in self._repeated:
                if len(self._recent) >= _RECENT_MAX:
                    self._recent.clear()
                self._recent[key] = found
        return found

    def sends(self, scope: Scope) -> bool:
        """Whether it is a send. Remembers nothing, so that strangers may ask."""
        with suppress(MethodNotAllowed):
            found = self._look_up(scope)
            return found is not None and found[0].sends
        return False

    def _look_up(self, scope: Scope) -> Route | None:
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
        found = by_method.get(scope["method"])
        if found is None:
            raise MethodNotAllowed(scope["method"], ", ".join(sorted(by_method)))
        names: tuple[str, ...] = (segments[3],)
        if len(segments) == _NESTED_SEGMENTS:
            names = (segments[3], segments[5])
        if any(NAMESPACE_SEPARATOR in name for name in names):
            return found[0], partial(_refuse_names, *found), names
        return *found, names


async def _refuse_names(
    operation: Operation, handler: Handler, exchange: RequestContext, *names: str
) -> None:
    """In place of the handler, where a name has the `%` that only stored names have."""
    operation.stored_names(names)  # raises, unless it is no name of a namespace
    await handler(exchange, *names)


def _key(segments: list[str]) -> tuple[str, str] | None:
    """What tells the shapes of path apart: the collection on the way, and the last segment."""
    count = len(segments)
    if count == _TOPIC_SEGMENTS:
        if segments[2] in _SCOPES and segments[1] == "v1":
            return segments[2], segments[4]
    elif count == _NESTED_SEGMENTS:
        if segments[2] == "topics" and segments[1] == "v1":
            return segments[4], segments[6]
    elif count == _ONCE_SEGMENTS and segments[2] in _ONCE and segments[1] == "v1":
        return segments[2], ""
    return None
