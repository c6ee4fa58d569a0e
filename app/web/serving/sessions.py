"""Sessions of browsers: a random name in a cookie, and the API key that was signed in with, here.

In memory only, so a session ends with the node, when it is signed out, after `SESSION_S`, and when
there are more than `UI_SESSIONS_MAX`, or of one principal more than it may have (the oldest goes:
who signs in without end signs nobody else out). That a key was revoked the API says at the
next call. Event loop only.
"""

import secrets
from collections.abc import Mapping
from hashlib import sha256
from typing import Final, NamedTuple

from app.domain.clock import Clock
from app.domain.limits import UI_SESSION_S, UI_SESSIONS_MAX, UI_SESSIONS_OF_A_PRINCIPAL_MAX

COOKIE: Final = "curlew_session"
COOKIE_UNDER_TLS: Final = f"__Host-{COOKIE}"
"""Browsers take it from this host alone, over TLS: nobody beside or before it can plant one."""
_NAME_BYTES: Final = 32


def session_name(cookies: Mapping[str, str], *, is_encrypted: bool) -> str | None:
    """What a browser shows. Over TLS only a cookie that nobody else can have planted counts."""
    found = cookies.get(COOKIE_UNDER_TLS)
    return found if found is not None or is_encrypted else cookies.get(COOKIE)


class Session(NamedTuple):
    """Who signed in."""

    key: bytes
    principal: str
    ends_s: float


class Sessions:
    """Those of one node. What is stolen from its memory dump is keys, as of any client's."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sessions: dict[bytes, Session] = {}
        """By the hash of the name, so that looking one up takes the same time for every guess."""

    def begin(self, key: bytes, principal: str) -> str:
        """The name of a new session, for the cookie."""
        name = secrets.token_urlsafe(_NAME_BYTES)
        own = [key for key, each in self._sessions.items() if each.principal == principal]
        if len(own) >= UI_SESSIONS_OF_A_PRINCIPAL_MAX:
            del self._sessions[own[0]]
        elif len(self._sessions) >= UI_SESSIONS_MAX:
            del self._sessions[next(iter(self._sessions))]
        ends_s = self._clock.monotonic_s() + UI_SESSION_S
        self._sessions[_hashed(name)] = Session(key, principal, ends_s)
        return name

    def find(self, name: str | None) -> Session | None:
        """The session of that name; None when there is none any more."""
        if not name:
            return None
        hashed = _hashed(name)
        found = self._sessions.get(hashed)
        if found is not None and found.ends_s <= self._clock.monotonic_s():
            del self._sessions[hashed]
            return None
        return found

    def end(self, name: str | None) -> None:
        """Sign out; nothing when there is no such session."""
        self._sessions.pop(_hashed(name or ""), None)


def _hashed(name: str) -> bytes:
    return sha256(name.encode("utf-8", "surrogateescape")).digest()
