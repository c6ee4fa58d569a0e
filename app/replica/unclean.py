"""What an unclean election would lose, and why there is none: sentences for an operator. Pure."""

from dataclasses import dataclass
from typing import Final

from app.cluster.replication.events import UncleanJudged, UncleanRefusal
from app.domain.errors import UncleanElectionRefused

_WHY: Final[dict[UncleanRefusal, tuple[str, str]]] = {
    UncleanRefusal.LEADS: ("it leads the shard", "nothing has to be done"),
    UncleanRefusal.IN_SYNC: (
        "it is in sync, and is elected without a command",
        "wait some seconds; GET /v1/cluster says who leads",
    ),
    UncleanRefusal.MEMBER_ANSWERS: (
        "the node {node} is in sync and answers, so nothing need be lost",
        "wait until {node} leads; if it cannot, stop it for good before you ask again",
    ),
    UncleanRefusal.LEASE_HOLDS: (
        "the lease of its leader {node} is not over",
        "ask again in some seconds; if {node} is at work still, stop it first",
    ),
    UncleanRefusal.LEADER_ANSWERS: (
        "its leader {node} was heard a moment ago",
        "a leader that lives has what is confirmed: stop it first, if it is to lead no more",
    ),
    UncleanRefusal.ANOTHER_HAS_MORE: (
        "the node {node} has more of the log",
        "have {node} lead; if it cannot, stop it before you ask again",
    ),
    UncleanRefusal.METADATA_REGRESSED: (
        "the database knows less than replicas have promised",
        "bring its newest copy back first",
    ),
    UncleanRefusal.NOT_FOUNDED: (
        "it was never led, so there is nothing to give up",
        "start as many replicas as the shard needs in sync",
    ),
    UncleanRefusal.DATABASE_AWAY: (
        "the database does not answer",
        "nobody is elected without it: ask again when it answers",
    ),
    UncleanRefusal.LOG_FAILED: (
        "the log of this replica has failed",
        "start the node again on a good disk",
    ),
    UncleanRefusal.TAKING_PART: (
        "it stands for election at this moment",
        "ask again in a second",
    ),
    UncleanRefusal.STOPS: (
        "its node stops",
        "ask again when it has been started",
    ),
}


@dataclass(frozen=True, slots=True)
class UncleanLoss:
    """What an unclean election gives up, as far as anybody who answers knows. Ends are exclusive
    physical offsets of the shard's log."""

    lost_from: int
    """The end of the log of the replica that is to lead."""
    known_end: int | None
    """None: nobody who answers has heard of more; those in sync may have it all the same."""
    newest_ms: int
    """When the newest message was stored that the replica has, in epoch milliseconds; 0: none."""
    in_sync: tuple[str, ...]
    """The nodes that have what may be lost."""
    answered: tuple[str, ...]


def loss_of(shard: str, node: str, judged: UncleanJudged, newest_ms: int) -> UncleanLoss:
    """Raises `UncleanElectionRefused`."""
    if judged.refusal is not None:
        detail, hint = _WHY[judged.refusal]
        named = judged.node or "(unknown)"
        raise UncleanElectionRefused(
            f"{node} is not made to lead the shard {shard!r}: {detail.format(node=named)}",
            hint=hint.format(node=named),
            fields={"shard": shard, "replica": node, "reason": judged.refusal.value},
        )
    known = judged.known_end if judged.known_end > judged.end else None
    return UncleanLoss(judged.end, known, newest_ms, judged.in_sync, judged.answered)
