"""Wishes in `Prefer` headers (RFC 7240): what is honoured is named in `Preference-Applied`. Pure.

A wish is no demand: what an operation does not know, or cannot read, it passes over in silence.
"""

from functools import lru_cache
from typing import Final

from app.api.http.request_context import Headers, RequestContext

MINIMAL: Final = "return=minimal"
REPRESENTATION: Final = "return=representation"
STRICT: Final = "handling=strict"
ASYNC: Final = "respond-async"
NO_WISHES: Final[frozenset[str]] = frozenset()

PREFER: Final = b"prefer"
_WAIT: Final = "wait="
_WAIT_DIGITS_MAX: Final = 9


def wishes_of(exchange: RequestContext) -> frozenset[str]:
    """The preferences of a request as `name=value` or `name`, in lower case."""
    if PREFER not in exchange.headers:
        return NO_WISHES
    lines = [value for name, value in exchange.scope["headers"] if name == PREFER]
    return _parse(b",".join(lines))


@lru_cache(maxsize=512)
def _parse(prefer: bytes) -> frozenset[str]:
    """Of a preference that is given twice the first counts."""
    wishes: dict[str, str] = {}
    for part in prefer.decode("latin-1").lower().split(","):
        wish = part.partition(";")[0].replace(" ", "").replace('"', "")
        if wish:
            wishes.setdefault(wish.partition("=")[0], wish)
    return frozenset(wishes.values())


def applied(headers: Headers, wishes: frozenset[str], *honoured: str) -> Headers:
    """`headers`, with those of `honoured` that were wished for named in `Preference-Applied`."""
    if wishes is not NO_WISHES:
        names = [wish for wish in honoured if wish in wishes]
        if names:
            headers.append((b"preference-applied", ", ".join(names).encode("ascii")))
    return headers


def wished_wait(exchange: RequestContext, wait_seconds_max: int) -> tuple[float, Headers]:
    """How long `Prefer: wait=n` wants to wait, which a bound may shorten; 0 when it is not there.

    The headers tell what was made of the wish.
    """
    for wish in wishes_of(exchange):
        text = wish.removeprefix(_WAIT)
        if text != wish and text.isascii() and text.isdigit() and len(text) <= _WAIT_DIGITS_MAX:
            seconds = min(int(text), wait_seconds_max)
            return float(seconds), [(b"preference-applied", b"wait=%d" % seconds)]
    return 0.0, []
