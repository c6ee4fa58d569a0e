"""Events that a replica is given and actions that it returns. Pure values.

Times are milliseconds of one clock of the node that never goes back.
"""

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from app.cluster.replication.messages import Message
from app.cluster.replication.shard_row import RowChange, ShardRow
from app.cluster.replication.terms import Promise, Term, TermStart

# --- events


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed. Given at least every `Timing.tick_ms`."""


@dataclass(frozen=True, slots=True)
class Received:
    """A message of another replica has come."""

    node: str
    message: Message


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The connection with another replica has ended; what was on its way may be lost."""

    node: str
    has_stopped: bool = False
    """Whether the other one has said that it stops; else it may come back at any moment."""


@dataclass(frozen=True, slots=True)
class RowSeen:
    """The database has answered `ReadRow`."""

    row: ShardRow
    lease_left_ms: int
    """By the database's clock; 0 or less: the lease is over."""
    asked_ms: int


@dataclass(frozen=True, slots=True)
class RowChanged:
    """The database has answered a `ChangeRow`: the row now, and whether it was changed."""

    change: RowChange
    row: ShardRow
    is_done: bool
    asked_ms: int


@dataclass(frozen=True, slots=True)
class DatabaseAway:
    """A question was not answered; `change` may have been carried out all the same."""

    change: RowChange | None


@dataclass(frozen=True, slots=True)
class Appended:
    """The leader's own appender has given a block its place; it will be written."""

    end: int
    wants_sync: bool
    term_start: TermStart | None = None
    """Set for the block that begins a term."""


@dataclass(frozen=True, slots=True)
class LogEnds:
    """How far this replica's own log is written and synced by now; both end a block."""

    written: int
    flushed: int


@dataclass(frozen=True, slots=True)
class LogBegins:
    """Where the log of this replica begins, as retention has left it: from there on the log says
    all, also where queues begin of which it has no message. Given to a leader before each `Hello`.
    """

    start: int


@dataclass(frozen=True, slots=True)
class SyncFailed:
    """The medium has failed. The node takes no more writes until it starts again (R8)."""


@dataclass(frozen=True, slots=True)
class CannotLead:
    """Something that leading needs is not there: a broker that begins, room, a descriptor. Without
    meaning where this replica does not lead."""

    reason: str


@dataclass(frozen=True, slots=True)
class RoomSeen:
    """R13: whether the disk of this node takes messages, if it leads."""

    has_room: bool | None
    """None: that cannot be told."""


@dataclass(frozen=True, slots=True)
class ClockSeen:
    """R12: whether the clock of this node is apart from the database's."""

    is_off: bool


@dataclass(frozen=True, slots=True)
class TransferAsked:
    """R10: another replica is to lead. Without `to` the node stops: whoever has everything is named
    as soon as there is one."""

    to: str | None = None
    """The node that an operator asks for. Refused while it is not in sync and connected, and given
    up after `Timing.hand_over_ms`: this replica stands again then."""
    by: str = ""
    """Who asks, for the event that tells of it."""


@dataclass(frozen=True, slots=True)
class StopAsked:
    """R10: the node stops, and this replica with it. A leader hands over as when it is asked to;
    one that does not lead stands no more; one that is elected all the same, as it had asked for
    that before, names another member at once. Else the shard would be its own for a lease."""


@dataclass(frozen=True, slots=True)
class TakesNoMore:
    """R10: `TakeNoMore` is carried out. No block of a client gets a place in the log any more, and
    each that has one was said by `Appended` before."""


@dataclass(frozen=True, slots=True)
class UncleanAsked:
    """An operator asks that this replica leads although it is not in sync. `UncleanJudged` follows
    in any case, unless the process ends."""

    number: int
    """Names the answer."""
    by: str = ""
    is_dry_run: bool = False
    """Only the judgement is wanted."""


Event: TypeAlias = (
    Tick
    | Received
    | Disconnected
    | RowSeen
    | RowChanged
    | DatabaseAway
    | Appended
    | LogEnds
    | LogBegins
    | SyncFailed
    | CannotLead
    | RoomSeen
    | ClockSeen
    | TransferAsked
    | StopAsked
    | TakesNoMore
    | UncleanAsked
)

# --- actions


@dataclass(frozen=True, slots=True)
class Send:
    """Say something to another replica."""

    node: str
    message: Message


@dataclass(frozen=True, slots=True)
class SendBlocks:
    """Read whole blocks of the own log from `start` up to at most `end`, and send them."""

    node: str
    session: int
    start: int
    end: int
    sync_to: int
    high_watermark: int


@dataclass(frozen=True, slots=True)
class ReadRow:
    """Ask the database for the shard's row."""


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """Carry a change of the row out."""

    change: RowChange


@dataclass(frozen=True, slots=True)
class KeepPromise:
    """Write the promise and sync it, before any further action."""

    promise: Promise


@dataclass(frozen=True, slots=True)
class KeepHistory:
    """Write the history and sync it, before any further action."""

    history: tuple[TermStart, ...]


@dataclass(frozen=True, slots=True)
class WriteBlocks:
    """Write what came with `blocks` at its place; `LogEnds` follows."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class SyncLog:
    """Sync the log; `LogEnds` follows."""


@dataclass(frozen=True, slots=True)
class CutLog:
    """Keep a copy of what stands behind `end`, then cut it, also what is still being written."""

    end: int
    is_loss: bool = False
    """Whether an election that gave up what others may have is why: what is cut may have been
    confirmed."""


@dataclass(frozen=True, slots=True)
class DeleteBelow:
    """Delete segments that lie wholly below `start`, where the leader's log begins, once nothing
    here needs them any more."""

    start: int


@dataclass(frozen=True, slots=True)
class AppendTermStart:
    """R3: append and sync the block that begins the term; `Appended` follows."""

    term: Term


@dataclass(frozen=True, slots=True)
class MoveWatermark:
    """All below `high_watermark` is confirmed: dispatch it, show it, answer who waits."""

    high_watermark: int


@dataclass(frozen=True, slots=True)
class Serve:
    """R3: everything is dispatched; the broker of this term begins."""

    term: Term


@dataclass(frozen=True, slots=True)
class TakeNoMore:
    """R10: answer new work with `NOT_LEADER`; what is under way goes on. `TakesNoMore` follows."""


@dataclass(frozen=True, slots=True)
class StepDown:
    """R5: throw the broker of the term away; whoever waits gets `unknown`."""

    reason: str


@dataclass(frozen=True, slots=True)
class Alarm:
    """Something that an operator has to know. Repeated while it lasts."""

    code: str
    detail: str


class UncleanRefusal(Enum):
    """Why a replica is not made to lead."""

    LEADS = "leads"
    IN_SYNC = "in_sync"
    """It is a member of the set, and is elected without a command."""
    MEMBER_ANSWERS = "in_sync_member_answers"
    LEASE_HOLDS = "lease_holds"
    LEADER_ANSWERS = "leader_answers"
    """It has said something within a lease, whatever the row says."""
    ANOTHER_HAS_MORE = "another_has_more"
    METADATA_REGRESSED = "metadata_regressed"
    NOT_FOUNDED = "not_founded"
    """No set was ever told, so nothing was confirmed."""
    DATABASE_AWAY = "database_away"
    LOG_FAILED = "log_failed"
    TAKING_PART = "taking_part"
    """It stands for election itself."""
    STOPS = "stops"
    """Its node stops."""


@dataclass(frozen=True, slots=True)
class UncleanJudged:
    """What an unclean election would lose, as far as anybody knows who answers, and why it is not
    to be. Without a refusal, and where it was no dry run, the election has begun."""

    number: int
    refusal: UncleanRefusal | None
    node: str | None = None
    """The one that the refusal is about."""
    end: int = 0
    """Of the own log: what stands behind it is lost."""
    known_end: int = 0
    """The highest end or watermark that this replica has ever heard of since it started; never less
    than `end`."""
    in_sync: tuple[str, ...] = ()
    """Nodes of the row's set."""
    answered: tuple[str, ...] = ()
    """Nodes that answer."""


@dataclass(frozen=True, slots=True)
class MakeAnew:
    """What this replica has shown was given up by an election that said so: forget what is made of
    the log and take another incarnation. The log itself stays, to be cut where the leader's parts
    from it. Nothing more is done before the store is opened again."""

    reason: str


@dataclass(frozen=True, slots=True)
class BeginAnew:
    """The leader has deleted what would come next here: throw away the log and all that is made of
    it, take another incarnation, and have an empty log begin at `start`. Nothing more is done
    before the store is opened again."""

    start: int
    history: tuple[TermStart, ...]
    """Of the leader's log below `start`."""
    reason: str
    is_loss: bool = False
    """Whether an election gave up all that this log has: that is told."""


Action: TypeAlias = (
    Send
    | SendBlocks
    | ReadRow
    | ChangeRow
    | KeepPromise
    | KeepHistory
    | WriteBlocks
    | SyncLog
    | CutLog
    | DeleteBelow
    | AppendTermStart
    | MoveWatermark
    | Serve
    | TakeNoMore
    | StepDown
    | Alarm
    | UncleanJudged
    | MakeAnew
    | BeginAnew
)
