"""What the node of a shard is asked with for its part of an operation of the control plane: work
that outlives its request (`WorkAsked`), or where the queues of a member begin (`SHARE`).

All parts of work have one name, so that any node can ask all of them how far they are. Who asks is
in the envelope of the request, so that no client can ask it. Pure.
"""

import secrets
from typing import Final, NamedTuple

from app.api.http.request_context import ASKED, Scope

SHARE: Final = "share"
"""What a heartbeat asks of another shard: the member's share as it is, without the heartbeat."""


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


def is_share_asked(scope: Scope) -> bool:
    """Whether the share of a member is asked for, which another node has kept alive."""
    asked: str = scope.get(ASKED, "")
    return asked == SHARE
