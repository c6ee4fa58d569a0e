"""What a client has shown in its TLS handshake, for the scopes of its connection. Pure.

Only the exact names of the extension for them (SAN) count, never a rendered subject, which a client
may choose to look like another. The event loop has checked the chain and the time.
"""

import ssl
from collections.abc import Mapping
from typing import Any, Final

from app.api.http.request_context import CERTIFICATE, OUR_EXTENSIONS_UNDER_TLS, Certificate
from app.domain.positions import TimestampMs

_KINDS: Final = {"DNS": "DNS", "URI": "URI", "email": "email", "IP Address": "IP"}


def extensions_of(shown: Mapping[str, Any] | None) -> dict[str, Any]:
    """The extensions of an encrypted connection. `shown` is as `SSLObject.getpeercert` gives it."""
    if not shown:
        return OUR_EXTENSIONS_UNDER_TLS
    names = tuple(
        f"{_KINDS[kind]}:{name}" for kind, name in shown.get("subjectAltName", ()) if kind in _KINDS
    )
    ends_ms = TimestampMs(int(ssl.cert_time_to_seconds(shown["notAfter"]) * 1_000))
    return {**OUR_EXTENSIONS_UNDER_TLS, CERTIFICATE: Certificate(names, ends_ms)}
