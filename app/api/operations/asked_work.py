"""What the node of a shard is asked with for its part of an operation of the control plane: work
that outlives its request (`WorkAsked`), where the queues of a member begin (`SHARE`), its copy of
offsets in SQL (`COPY`), to read a topic by offset from now on (`READ`), how far a group is behind
in topics that it has begun elsewhere (`LagAsked`), or which first use of a topic a group is to
forget (`FirstUseAsked`).

All parts of work have one name, so that any node can ask all of them how far they are. Who asks is
in the envelope of the request, so that no client can ask it. Pure.
"""

import secrets
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from app.api.http.request_context import ASKED, Scope

SHARE: Final = "share"
"""What a heartbeat asks of another shard: the member's share as it is, without the heartbeat."""
COPY: Final = "copy"
"""What a request that is done with SQL's copy of offsets asks of another shard: to write its own,
and to change nothing else."""
READ: Final = "read"
"""What a commit by force asks of a shard of which it has no queues: that the group reads the topic
by offset from now on, and nothing else."""

_LEASED: Final = "+"
_READ: Final = "-"
LAG_CHARS_MAX: Final = 4_096
"""Of the names of topics that one shard is asked for; a group that has begun in more topics is told
of the rest as far as its shards know them."""

_NONE: Final = "none"


class FirstUseAsked(NamedTuple):
    """The first use as it was before any shard was asked."""

    at_ms: int | None
    """In epoch milliseconds; None: there was none."""


class LagAsked(NamedTuple):
    """Topics, as the request calls them, in which the group has begun in another shard."""

    leased: Sequence[str] = ()
    """It begins in all queues when it is asked: so what is ready there is known."""
    read: Sequence[str] = ()
    """It begins in those queues where it commits."""


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


def is_read_asked(scope: Scope) -> bool:
    """Whether a group is only to read a topic by offset from now on."""
    asked: str = scope.get(ASKED, "")
    return asked == READ


def is_copy_asked(scope: Scope) -> bool:
    """Whether this node is only to write what SQL is to know of its offsets."""
    asked: str = scope.get(ASKED, "")
    return asked == COPY


def lag_asked(topics: Mapping[str, bool]) -> str:
    """For `CallRequest.asks`: topics, and whether the group leases them."""
    text = ""
    for name, is_leased in topics.items():
        more = f"{text} {_LEASED if is_leased else _READ}{name}".lstrip()
        if len(more) > LAG_CHARS_MAX:
            break
        text = more
    return text


def lag_of(scope: Scope) -> LagAsked:
    """What is asked for here; of a client nothing."""
    names: list[str] = scope.get(ASKED, "").split()
    return LagAsked(
        [each[1:] for each in names if each.startswith(_LEASED)],
        [each[1:] for each in names if each.startswith(_READ)],
    )


def first_use_asked(at_ms: int | None) -> str:
    """For `CallRequest.asks`."""
    return _NONE if at_ms is None else str(at_ms)


def first_use_of(scope: Scope) -> FirstUseAsked | None:
    """What is asked for here; None: nobody has looked."""
    asked: str = scope.get(ASKED, "")
    if not asked:
        return None
    return FirstUseAsked(None if asked == _NONE else int(asked))
