"""Pages of one namespace are at `/ui/in/{namespace}/…`: there every link stays within it. Plain
ASGI; the routes know nothing of it."""

import re
from typing import Final

from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

NAMESPACE: Final = "curlew.page_namespace"
PATH: Final = "curlew.page_path"
"""In the scope: the path below the namespace as it was sent."""
_WITHIN: Final = re.compile(r"/in/([^/]+)(/.*)?", re.DOTALL)


class InNamespace:
    """Takes the namespace out of the path."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        outer = scope.get("root_path", "")
        path, raw = scope["path"].removeprefix(outer), _sent(scope).removeprefix(outer)
        inner = dict(scope)
        inner[PATH] = raw or "/"
        if found := _WITHIN.fullmatch(path):
            namespace, below = found[1], found[2]
            if below is None:
                await RedirectResponse(f"./{namespace}/")(scope, receive, send)
                return
            inner[NAMESPACE] = namespace
            inner["path"] = outer + below
            inner[PATH] = "/" + _below(raw)
        await self._app(inner, receive, send)


def _below(raw: str) -> str:
    """What is behind the namespace; a slash that was sent as `%2F` is none here."""
    parts = raw.split("/", 3)
    return parts[3] if len(parts) > 3 else ""


def _sent(scope: Scope) -> str:
    raw: bytes | None = scope.get("raw_path")
    return str(scope["path"]) if raw is None else raw.decode("latin-1")
