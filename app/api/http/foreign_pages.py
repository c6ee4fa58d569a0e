"""What a page of another origin could make a browser send to a node without authentication. Pure.

An open node takes everybody who reaches it for its operator, and a browser on this machine does
reach it, for any page that it shows. Three headers that no page can set tell: `Host` (the page's
own name was pointed here: DNS rebinding), `Origin` (of requests by script and of forms), and, since
browsers send no `Origin` with an image, a script, a style or a link, `Sec-Fetch-Site`.

Clients other than browsers send neither of the last two. Browsers send them to this machine's names
also over plain HTTP; those before 2023 send no `Sec-Fetch-Site`.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from app.api.http.errors import Forbidden
from app.api.http.request_context import Scope
from app.domain.access.refusals import Unauthorized

SITE: Final = b"sec-fetch-site"
MODE: Final = b"sec-fetch-mode"
_DESTINATION: Final = b"sec-fetch-dest"
NAVIGATION: Final = b"navigate"
_OURS: Final = frozenset({b"none", b"same-origin"})
"""By hand (address bar, bookmark), and by our own pages. Another port of localhost is `same-site`:
another program."""
_LOCAL_NAMES: Final = frozenset({b"localhost", b"127.0.0.1", b"[::1]"})
ENTRANCES: Final = ("/", "/docs", "/ui")
"""What a link on any page may open, as a page of its own: it shows, it changes nothing."""
PAGES: Final = "/ui/"


def check_host(headers: Mapping[bytes, bytes]) -> None:
    """Raise `Forbidden` unless `Host` is a name of this machine and `Origin` is of that host."""
    host = headers.get(b"host")
    if host is None or not _is_local(host):
        raise Forbidden(
            f"Host {(host or b'').decode('latin-1')!r} is not served: this node is open to local "
            "clients only",
            hint="use localhost or 127.0.0.1; other names are served with --insecure-anonymous, "
            "to everybody who can reach the node",
        )
    origin = headers.get(b"origin")
    if origin is not None and origin not in (b"http://" + host, b"https://" + host):
        raise Forbidden(
            f"Origin {origin.decode('latin-1')!r} is foreign to this server",
            hint="web pages of other origins may not use a node without authentication",
        )


def check_site(scope: Scope, headers: Mapping[bytes, bytes]) -> None:
    """Raise `Forbidden` for what a browser was told to ask by a page that is not ours."""
    site = headers.get(SITE)
    if site is None or site in _OURS or _is_entered(scope, headers):
        return
    raise Forbidden(
        f"a web page of another origin made a browser ask this (Sec-Fetch-Site: "
        f"{site.decode('latin-1')})",
        hint="web pages of other origins may not use a node without authentication; to look at "
        "this address yourself, type it or paste it",
    )


def check_kept_credentials(headers: Mapping[bytes, bytes]) -> None:
    """Raise `Unauthorized` for Basic credentials with an `Origin` that is not the host's.

    A browser keeps those that somebody typed, and shows them for pages of anybody: over plain HTTP
    to another machine, and before 2023, without `Sec-Fetch-Site`. `Bearer` is set by scripts only,
    and one of another origin is not let.
    """
    origin, credentials = headers.get(b"origin"), headers.get(b"authorization", b"")
    if origin is None or credentials[:6].lower() != b"basic ":
        return
    host = origin.partition(b"://")[2]
    if not host or host not in {headers.get(b"host"), headers.get(b"x-forwarded-host")}:
        raise Unauthorized(
            f"Origin {origin.decode('latin-1')!r} is foreign to this server, and a browser shows "
            "Basic credentials for any page: they do not count here"
        )


def check_navigation(headers: Mapping[bytes, bytes]) -> None:
    """Raise `Forbidden` when a browser would show the answer of an operation that has effects.

    A redirect of a page whose address was typed counts as typed, so `Sec-Fetch-Site` is `none`.
    """
    if headers.get(MODE) == NAVIGATION:
        raise Forbidden(
            "this leases messages, so it is nothing for an address bar or a link",
            hint="use curl, or EventSource in a page of this node",
        )


def _is_entered(scope: Scope, headers: Mapping[bytes, bytes]) -> bool:
    """Whether a whole page is opened that is meant to be linked to."""
    path: str = scope["path"]
    return (
        scope["method"] == "GET"
        and headers.get(MODE) == NAVIGATION
        and headers.get(_DESTINATION) == b"document"
        and (path in ENTRANCES or path.startswith(PAGES))
    )


@lru_cache(maxsize=256)
def _is_local(host: bytes) -> bool:
    name, _, port = host.rpartition(b":")
    if not port.isdigit():
        name = host
    return name.lower() in _LOCAL_NAMES
