"""The access log: one JSON object a line, when it is asked for. Off by default.

Without query strings and headers other than the request id: they may hold what must not be kept.
JSON escapes what a client could use to forge a line.
"""

import logging
from typing import Final

from msgspec import json

from app.api.http.request_context import RequestContext

_log: Final = logging.getLogger(__name__)


def log_access(exchange: RequestContext, operation_id: str, seconds: float) -> None:
    """Write the line of an exchange that is over."""
    client = exchange.scope.get("client")
    entry = {
        "client": client[0] if client else None,
        "method": exchange.scope["method"],
        "path": exchange.instance,
        "operation": operation_id,
        "status": exchange.status or None,
        "duration_ms": round(seconds * 1_000, 3),
        "request_id": exchange.request_id.decode("ascii"),
    }
    _log.info("%s", json.encode(entry).decode())
