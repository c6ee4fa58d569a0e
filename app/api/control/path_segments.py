"""A slash within a name of a path, sent as `%2F`, parts nothing. Pure.

The framework matches the decoded path, in which such a slash is as any other. A path that has one
is matched in a form in which the names are still encoded; their handlers get them decoded.
"""

from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote

from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.http.request_context import API_PREFIX

_ENCODED: Final = "curlew.names_encoded"
"""In the scope of a request: the names in its path are still encoded."""


class WholeSegments:
    """Between the gateway and the routes. Plain ASGI."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw: bytes = scope.get("raw_path") or b""
        if b"%2F" in raw.upper() and scope["path"].startswith(API_PREFIX):
            scope["path"] = "/".join(
                unquote(segment).replace("%", "%25").replace("/", "%2F")
                for segment in raw.decode("latin-1").split("/")
            )
            scope[_ENCODED] = True
        await self._app(scope, receive, send)


def names_in_path(scope: Scope) -> Mapping[str, str]:
    """The names that a route has found in the path of a request, as they were meant."""
    names: Mapping[str, str] = scope["path_params"]
    if _ENCODED not in scope:
        return names
    return {
        parameter: name.replace("%2F", "/").replace("%25", "%") for parameter, name in names.items()
    }
