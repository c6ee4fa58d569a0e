"""Whom a request came from, and how, when a proxy has brought it.

`X-Forwarded-For` and `X-Forwarded-Proto` of proxies that are trusted; uvicorn's rules, which it
would apply to every request. Few have these headers.
"""

from typing import Final

from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from app.api.exchange import Event, Scope

HEADERS: Final = frozenset({b"x-forwarded-for", b"x-forwarded-proto"})
DEFAULT_TRUSTED: Final = "127.0.0.1,::1"
"""uvicorn's default of FORWARDED_ALLOW_IPS."""


class Forwarded:
    """Reads the headers of trusted proxies."""

    def __init__(self, trusted: str = DEFAULT_TRUSTED) -> None:
        self._middleware = ProxyHeadersMiddleware(_nothing, trusted)  # type: ignore[arg-type]

    async def note(self, scope: Scope) -> None:
        """Set the client and the scheme in `scope` to those that the proxy names."""
        await self._middleware(scope, _nothing, _nothing)  # type: ignore[arg-type]


async def _nothing(*_: object) -> Event:
    return {}
