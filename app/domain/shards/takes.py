"""What a shard takes, and where the messages go that one does not take any more. Pure.

A shard drains before it is taken away: what is in it is read, comes due and is decided there as
ever, and what is new goes to other shards. Messages without a key do so at once. Those of a key
follow at a moment that an operator names, as order and idempotence do not hold across it.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple


class Takes(StrEnum):
    """What of new messages a shard takes."""

    ALL = "all"
    KEYED = "keyed"
    """It drains. It takes those whose sharding key, idempotency key or producer belongs there."""
    NONE = "none"
    """It drains, and all keys have moved."""


NOBODYS: Final = ""
"""In place of a shard's name: it was released, and no other has its queues yet."""


_RANKS: Final = (Takes.ALL, Takes.KEYED, Takes.NONE)
_NONE: Final = _RANKS.index(Takes.NONE)
_NOBODY: Final = len(_RANKS)


class Intake(NamedTuple):
    """Which queues of a topic take what is new."""

    open: Sequence[int]
    """Those that messages without a key go to."""
    moved: frozenset[int]
    """Those whose keys belong to others by now."""


def intake_of(
    shards: Sequence[str], drains: Mapping[str, Takes], queues: int, write_queues: int
) -> Intake:
    """The intake of a topic whose queues are in these shards; none named: in one. The first
    `write_queues` take messages. Where all of them drain those go on that took most, as messages
    have to go somewhere: of keys, else of any; what is nobody's takes none while another can.
    """
    every = Intake(range(write_queues), frozenset())
    if not drains and NOBODYS not in shards:
        return every
    ranks = [_rank(each, drains) for each in shards]
    best = min(ranks[:write_queues], default=_NOBODY)
    still_open = tuple(each for each in range(write_queues) if ranks[each] == best)
    if best == _NOBODY or len(still_open) == write_queues == queues:
        return every
    closed_from = max(best + 1, _NONE)
    return Intake(
        still_open, frozenset(each for each in range(queues) if ranks[each] >= closed_from)
    )


def _rank(shard: str, drains: Mapping[str, Takes]) -> int:
    """The less it takes the higher."""
    return _NOBODY if shard == NOBODYS else _RANKS.index(drains.get(shard, Takes.ALL))
