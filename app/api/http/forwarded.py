"""Whom a request came from, and how, when a proxy has brought it.

`X-Forwarded-For` and `X-Forwarded-Proto` of proxies that are trusted; uvicorn's rules, which it
would apply to every request. Few have these headers. No address is trusted unless it is named: any
process of this machine can say what it likes, and so can what stands before a careless proxy.
"""

from collections.abc import Sequence
from typing import Final

from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from app.api.http.request_context import Event, Scope

HEADERS: Final = frozenset({b"x-forwarded-for", b"x-forwarded-proto"})


class Forwarded:
    """Reads the headers of trusted proxies."""

    def __init__(self, trusted: Sequence[str]) -> None:
        """`trusted` are addresses and networks."""
        self._middleware = ProxyHeadersMiddleware(_nothing, list(trusted))  # type: ignore[arg-type]

    async def note(self, scope: Scope) -> None:
        """Set the client and the scheme in `scope` to those that the proxy names."""
        await self._middleware(scope, _nothing, _nothing)  # type: ignore[arg-type]


async def _nothing(*_: object) -> Event:
    return {}
