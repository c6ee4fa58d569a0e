"""What the node of a shard is asked with for its part of an operation of the control plane: work
that outlives its request (`WorkAsked`), where the queues of a member begin (`SHARE`), or which
first use of a topic a group is to forget (`FirstUseAsked`).

All parts of work have one name, so that any node can ask all of them how far they are. Who asks is
in the envelope of the request, so that no client can ask it. Pure.
"""

import secrets
from typing import Final, NamedTuple

from app.api.http.request_context import ASKED, Scope

SHARE: Final = "share"
"""What a heartbeat asks of another shard: the member's share as it is, without the heartbeat."""

_NONE: Final = "none"


class FirstUseAsked(NamedTuple):
    """The first use as it was before any shard was asked."""

    at_ms: int | None
    """In epoch milliseconds; None: there was none."""


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


def first_use_asked(at_ms: int | None) -> str:
    """For `CallRequest.asks`."""
    return _NONE if at_ms is None else str(at_ms)


def first_use_of(scope: Scope) -> FirstUseAsked | None:
    """What is asked for here; None: nobody has looked."""
    asked: str = scope.get(ASKED, "")
    if not asked:
        return None
    return FirstUseAsked(None if asked == _NONE else int(asked))
