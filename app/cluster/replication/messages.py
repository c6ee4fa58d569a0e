"""What replicas say to each other. Pure values; `app.cluster.replication.replica` reads them.

A follower keeps one connection to its leader; what is said on it comes in order or not at all.
`session` tells the newer of two connections of a node. Ends are exclusive physical offsets and are
ends of blocks. Questions before and after an election are single requests that may get lost.
"""

from dataclasses import dataclass
from typing import TypeAlias

from app.cluster.replication.terms import Member, Promise, Term, TermStart


@dataclass(frozen=True, slots=True)
class Hello:
    """Follower to leader, first: what it has."""

    session: int
    member: Member
    promise: Promise
    history: tuple[TermStart, ...]
    end: int


@dataclass(frozen=True, slots=True)
class Welcome:
    """Leader to follower: cut the log at `cut_to`; what follows comes from there."""

    session: int
    term: Term
    in_sync_version: int
    in_sync: frozenset[Member]
    cut_to: int
    high_watermark: int
    begins_at: int = 0
    """Where the leader's log begins, if that is behind `cut_to`: what would follow is deleted, and
    the follower's log is to begin there, too."""
    history: tuple[TermStart, ...] = ()
    """Of the leader's log below `begins_at`."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """Leader to follower: the whole blocks from `start` to `end`; the bytes travel beside."""

    session: int
    term: Term
    start: int
    end: int
    term_starts: tuple[TermStart, ...]
    """Of the terms that begin in these blocks."""
    sync_to: int
    """The follower syncs up to here, when it has it."""
    high_watermark: int


@dataclass(frozen=True, slots=True)
class Ends:
    """Follower to leader: how far its log is written and synced."""

    session: int
    term: Term
    written: int
    flushed: int
    noted_version: int
    """The newest in-sync set that it keeps in its promise."""
    would_rest: bool = False
    """R8: it could not lead a moment ago, and would wait a while if it were named now."""
    has_room: bool | None = None
    """R13: whether its disk takes messages, if it leads; None: it does not know."""
    is_clock_off: bool = False
    """R12: its clock is apart from the database's."""


@dataclass(frozen=True, slots=True)
class Watermark:
    """Leader to follower, at once when it moves, and now and then as a sign of life."""

    session: int
    term: Term
    high_watermark: int
    sync_to: int
    in_sync_version: int
    in_sync: frozenset[Member]
    log_start: int = 0
    """Below it the leader has deleted its log; a follower deletes nothing by its own judgement."""


@dataclass(frozen=True, slots=True)
class AskEnds:
    """Candidate to all replicas, before it stands."""

    question: int


@dataclass(frozen=True, slots=True)
class EndsAnswer:
    """What a replica has and has promised. It promises nothing by answering."""

    question: int
    member: Member
    promise: Promise
    last_term: Term
    end: int
    yields: bool = False
    """R8, R12, R13: it lacks something that leading needs, so nobody whose clock is off waits for
    it."""
    log_start: int = 0
    """Where its log begins: one that copies the leader's has nothing of what is below."""


@dataclass(frozen=True, slots=True)
class AskPromise:
    """R2: an elected leader to all replicas: take nothing of older terms any more."""

    term: Term
    leader: Member
    settled_version: int
    """Of the row by which it was elected."""


@dataclass(frozen=True, slots=True)
class PromiseAnswer:
    """The promise that the replica had before it was asked; `is_given`: it has promised."""

    term: Term
    member: Member
    former: Promise
    is_given: bool


Message: TypeAlias = (
    Hello | Welcome | Blocks | Ends | Watermark | AskEnds | EndsAnswer | AskPromise | PromiseAnswer
)
"""What the machine of a replica says and hears."""


@dataclass(frozen=True, slots=True)
class AskBlocks:
    """To any replica: its blocks from `start` on, in place of damaged ones. In every role."""

    question: int
    start: int
    end: int
    """Of the log of who asks."""
    history: tuple[TermStart, ...]
    """Of what is below `end`: it has to be the same at both, as far as the blocks go."""


@dataclass(frozen=True, slots=True)
class GivenBlocks:
    """The whole blocks from `start` to `end`, which are confirmed; the bytes travel beside."""

    question: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class BlocksNotGiven:
    """Why they are not."""

    question: int
    reason: str
    is_final: bool = False
    """Whether it has looked, and does not have them whole; else it may help later."""


RepairMessage: TypeAlias = AskBlocks | GivenBlocks | BlocksNotGiven
"""What replicas say beside the machine, to put damage right."""

PeerMessage: TypeAlias = Message | RepairMessage
