"""Work that outlives its request, of which each shard does a part: what its node is asked with.

All parts have one name, so that any node can ask all of them how far they are. Who asks is in the
envelope of the request, so that no client can ask it. Pure.
"""

import secrets
from typing import NamedTuple

from app.api.http.request_context import ASKED, Scope


class WorkAsked(NamedTuple):
    """A node's part of the work."""

    name: str | None = None
    """Behind the kind of work; None: the node finds one."""
    parts: int = 1
    """Of how many this is one."""


def work_asked(parts: int) -> str:
    """For `CallRequest.asks`."""
    return f"{secrets.token_hex(8)} {parts}"


def work_of(scope: Scope) -> WorkAsked:
    """What is asked for here; of a client all."""
    name, _, parts = scope.get(ASKED, "").partition(" ")
    return WorkAsked(name, int(parts)) if name else WorkAsked()
