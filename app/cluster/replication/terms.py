"""Members, terms, promises and histories. Pure values.

A *term* is the time in which one replica leads: an epoch, and the grant that tells apart two
elections to which a database that forgot one gave the same epoch. A *history* says in which terms
the bytes of a log were made. A *promise* is the newest term, and the newest in-sync set, that a
replica has heard of; it takes nothing of an older term.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Member(NamedTuple):
    """One replica, as the in-sync set names it."""

    node: str
    incarnation: int
    """Of its data directory; another one when the node cannot prove that it kept everything."""


class Term(NamedTuple):
    """One leadership. Of two with one epoch neither is older: the database has forgotten one."""

    epoch: int
    grant: int
    """Random, made by who stands for election; 0 before the first election."""

    def excludes(self, other: "Term") -> bool:
        """R2: whether who has promised this takes nothing of `other`, which is older, or another
        grant of the same epoch."""
        return self.epoch > other.epoch or (self.epoch == other.epoch and self != other)


NO_TERM = Term(0, 0)


class TermStart(NamedTuple):
    """From `start` on, up to the next entry, the log was made in `term`."""

    term: Term
    start: int
    """Physical offset of the block that begins the term."""


@dataclass(frozen=True, slots=True)
class Promise:
    """What a replica has heard of and does not fall behind. Kept synced."""

    term: Term = NO_TERM
    in_sync_version: int = 0
    in_sync: frozenset[Member] = frozenset()

    def knows_better(self, elected: Member, settled_version: int) -> bool:
        """R2: whether this is of a set behind `settled_version`, the last that the row knew of when
        `elected` was, and `elected` is not in it: the row had forgotten a change."""
        return self.in_sync_version > settled_version and elected not in self.in_sync


def next_member(members: Iterable[Member], me: Member) -> Member | None:
    """The one behind `me` by name, the first behind the last: so all have their turn."""
    others = sorted(each for each in members if each != me)
    behind = [each for each in others if each.node > me.node]
    return next(iter(behind or others), None)


def last_term(history: Sequence[TermStart]) -> Term:
    """The term in which the end of the log was made."""
    return history[-1].term if history else NO_TERM


def common_end(
    history: Sequence[TermStart], end: int, other: Sequence[TermStart], other_end: int
) -> int:
    """Up to where two logs have the same bytes: the larger of no more than this is a block's end.

    In one term there was one leader, so the logs are equal as long as their histories are, and in
    the last term that both have up to the nearer of its two ends.
    """
    common = 0
    for number, (mine, theirs) in enumerate(zip(history, other, strict=False)):
        if mine != theirs:
            break
        common = min(_end_of(history, number, end), _end_of(other, number, other_end))
    return common


def _end_of(history: Sequence[TermStart], number: int, end: int) -> int:
    return history[number + 1].start if number + 1 < len(history) else end


def cut_history(history: Sequence[TermStart], end: int) -> tuple[TermStart, ...]:
    """What is left of a history when the log is cut at `end`."""
    return tuple(entry for entry in history if entry.start < end)
