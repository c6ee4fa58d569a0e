"""`Prefer` headers (RFC 7240); `Preference-Applied` names the preferences that were honoured. Pure.

An operation ignores a preference that it does not know or cannot read.
"""

from functools import lru_cache
from typing import Final

from app.api.http.request_context import Headers, RequestContext

MINIMAL: Final = "return=minimal"
REPRESENTATION: Final = "return=representation"
STRICT: Final = "handling=strict"
ASYNC: Final = "respond-async"
NO_PREFERENCES: Final[frozenset[str]] = frozenset()

PREFER: Final = b"prefer"
_WAIT: Final = "wait="
_DIGITS_MAX: Final = 9


def preferences_of(exchange: RequestContext) -> frozenset[str]:
    """The preferences of a request as `name=value` or `name`, in lower case."""
    if PREFER not in exchange.headers:
        return NO_PREFERENCES
    lines = [value for name, value in exchange.scope["headers"] if name == PREFER]
    return _parse(b",".join(lines))


@lru_cache(maxsize=512)
def _parse(prefer: bytes) -> frozenset[str]:
    """Of a preference that is given twice the first counts."""
    preferences: dict[str, str] = {}
    for part in prefer.decode("latin-1").lower().split(","):
        preference = part.partition(";")[0].replace(" ", "").replace('"', "")
        if preference:
            preferences.setdefault(preference.partition("=")[0], preference)
    return frozenset(preferences.values())


def applied(headers: Headers, preferences: frozenset[str], *honoured: str) -> Headers:
    """`headers`, with `Preference-Applied` for those of `honoured` that `preferences` has."""
    if preferences is not NO_PREFERENCES:
        names = [each for each in honoured if each in preferences]
        if names:
            headers.append((b"preference-applied", ", ".join(names).encode("ascii")))
    return headers


def wait_of(
    exchange: RequestContext, given_s: float | None, wait_seconds_max: int
) -> tuple[float, Headers]:
    """Seconds to wait: `given_s`, or without it those of `Prefer: wait=n`, or else 0.

    A preference above the bound is shortened; the headers tell the client what was made of it.
    """
    if given_s is not None:
        return given_s, []
    for preference in preferences_of(exchange):
        text = preference.removeprefix(_WAIT)
        if text != preference and text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX:
            seconds = min(int(text), wait_seconds_max)
            return float(seconds), [(b"preference-applied", b"wait=%d" % seconds)]
    return 0.0, []
