"""What a replica knows whatever its role: what it keeps, what it has seen of the row. Pure."""

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from app.cluster.replication.confirmation import LogEnd
from app.cluster.replication.events import Action, Alarm, KeepHistory, KeepPromise
from app.cluster.replication.shard_row import ShardRow
from app.cluster.replication.terms import (
    Member,
    Promise,
    Term,
    TermStart,
    cut_history,
    last_term,
)

METADATA_REGRESSED = "METADATA_REGRESSED"


@dataclass(frozen=True, slots=True)
class Timing:
    """How long replicas of a shard wait for each other, in milliseconds. The same on all."""

    lease_ms: int = 5_000
    """A leader that is not heard for so long may be replaced."""
    replica_timeout_ms: int = 3_000
    """A member that has not taken what was offered to it for so long leaves the set."""
    fence_ms: int = 1_000
    """An elected leader waits so long for promises."""
    ask_ms: int = 300
    """A candidate waits so long for answers, and so long before it stands again."""
    row_ms: int = 1_000
    """Between two looks at the row; a leader renews its lease as often."""
    sign_ms: int = 500
    """Between two signs of life of a leader to its followers."""
    pause_ms: int = 400
    """A gap between two events that is longer than this was a pause of this node itself."""
    tick_ms: int = 50
    hand_over_ms: int = 2_000
    """A hand-over that an operator asks for is given up after so long; the term ends all the same.
    """
    rest_ms: int = 15_000
    """Who could not lead leaves the shard to the other members for so long."""
    clock_ms: int = 3_000
    """A leader whose clock is off waits so long before it hands over: each replica compares its
    clock each second, and the database's may be the wrong one."""

    @property
    def repeat_ms(self) -> int:
        """A follower that has nothing new to say says it again to a sign that comes so long behind:
        so each of those that a leader gives in time is answered."""
        return self.sign_ms // 2

    @property
    def silence_ms(self) -> int:
        """Who is not heard for so long is not reached: three signs of life are missing."""
        return 3 * self.sign_ms + self.ask_ms


@dataclass(slots=True)
class ReplicaState:
    """Shared by the roles of one replica, which are made anew with each change of role."""

    me: Member
    timing: Timing
    new_grant: Callable[[], int]
    peers: tuple[str, ...]
    """The other nodes that have a replica of the shard."""
    promise: Promise
    history: tuple[TermStart, ...]
    end: LogEnd
    high_watermark: int
    """The highest that was heard, or that the checkpoint has."""
    log_start: int = 0
    """Where the log begins here, or where the leader's does, as it said last."""
    given_to_log: int = 0
    """The end of the blocks that the log was given; those behind `end.written` are being written,
    also when the connection they came by is gone."""
    now_ms: int = 0
    promised_ms: int = -1
    """When the promise was last renewed; an answer to an older question cannot know it."""
    row: ShardRow | None = None
    lease_left_ms: int = 0
    lease_seen_ms: int = 0
    """When the question was asked that `row` and `lease_left_ms` answer."""
    database_since_ms: int | None = None
    """Since when the database has answered without a break."""
    heard_leader_ms: int = -(10**9)
    leader_heard: tuple[str, Term] | None = None
    """The node to which the last promise was given, which may be newer than `row`."""
    row_behind_since_ms: int | None = None
    heard_end: int = 0
    """The highest watermark that a leader has said."""
    first_number: int = 0
    """Sessions and questions are counted from here: above all that this replica has ever used, so
    that nobody takes a late answer for one of now."""
    could_not_lead_ms: int | None = None
    """When this process lacked what leading needs for the last time, in whichever opening."""
    has_room: bool | None = None
    """As was seen last; None: nobody has looked, or could."""
    full_since_ms: int | None = None
    """R13: since when the disk takes no messages, if this replica leads; None: it does."""
    clock_off_since_ms: int | None = None
    """R12: since when the clock of this node is apart from the database's; None: it is not, as far
    as is known."""
    yielded_ms: int | None = None
    """R12: when this replica began to let others stand first, for the last time."""
    stopped: set[str] = field(default_factory=set)
    """Nodes that have said that they stop, and nothing since. A leader does not wait for them, also
    where it was elected behind that."""
    is_stopping: bool = False
    """R10: the node stops; nothing else follows in this opening."""
    is_broken: bool = False
    """A sync failed: nothing is written any more, so it neither follows nor leads."""
    actions: list[Action] = field(default_factory=list)

    def promise_term(self, term: Term) -> None:
        """Take nothing of older terms any more."""
        if term.epoch > self.promise.term.epoch:
            self._keep(replace(self.promise, term=term))

    def note_in_sync(self, version: int, in_sync: frozenset[Member]) -> None:
        """Keep a set that a leader has, whose fence has not found a newer one."""
        if version > self.promise.in_sync_version:
            self._keep(replace(self.promise, in_sync_version=version, in_sync=in_sync))

    def _keep(self, promise: Promise) -> None:
        self.promise = promise
        self.promised_ms = self.now_ms
        self.actions.append(KeepPromise(promise))

    def keep_history(self, history: tuple[TermStart, ...]) -> None:
        if history != self.history:
            self.history = history
            self.actions.append(KeepHistory(history))

    @property
    def heard_leader(self) -> str | None:
        """Another node that leads, as this replica knows; None: it knows of none."""
        row = self.row
        node = None if row is None or row.leader is None else row.leader.node
        if self.leader_heard is not None:
            node = self.leader_heard[0]
        return None if node == self.me.node else node

    def not_stopped(self, members: AbstractSet[Member]) -> AbstractSet[Member]:
        """Those whose nodes have not said that they stop; all of them, where that leaves nobody."""
        return {each for each in members if each.node not in self.stopped} or members

    @property
    def is_in_sync(self) -> bool:
        """By the newest set that it has noted."""
        return self.me in self.promise.in_sync

    @property
    def has_watermark_of_term(self) -> bool:
        """Whether the block that begins the newest term is confirmed, and so is all before it."""
        history = self.history
        is_of_term = bool(history) and history[-1].term == self.promise.term
        return is_of_term and self.high_watermark > history[-1].start

    def see_room(self, has_room: bool | None) -> None:
        """Whether the disk takes messages. Where that cannot be told a full one stays full."""
        self.has_room = has_room
        if has_room:
            self.full_since_ms = None
        elif has_room is False and self.full_since_ms is None:
            self.full_since_ms = self.now_ms

    def see_clock(self, *, is_off: bool) -> None:
        """Whether the clock of this node is apart from the database's."""
        if not is_off:
            self.clock_off_since_ms = None
        elif self.clock_off_since_ms is None:
            self.clock_off_since_ms = self.now_ms

    @property
    def is_clock_off(self) -> bool:
        """R12."""
        return self.clock_off_since_ms is not None

    @property
    def yields(self) -> bool:
        """Whether this replica lacks something that leading needs, and another may not."""
        lacks = self.is_broken or self.is_clock_off or self.has_room is False
        return lacks or self.is_resting()

    def may_yield(self) -> bool:
        """R12: whether it may let others stand first, now that it would. For a lease: one that has
        not stood by then cannot. It is a new occasion when the last one was long ago."""
        began_ms, timing = self.yielded_ms, self.timing
        if began_ms is None or self.now_ms - began_ms >= timing.rest_ms:
            began_ms = self.yielded_ms = self.now_ms
        return self.now_ms - began_ms < timing.lease_ms

    @property
    def log_term(self) -> Term:
        """In which the last block of the log was made."""
        return last_term(cut_history(self.history, self.end.written))

    @property
    def has_nothing(self) -> bool:
        """Whether the log is empty, at its beginning wherever that is."""
        return self.end.written == self.log_start

    @property
    def log_position(self) -> tuple[int, int]:
        """(epoch, end) of the log: of two that may be elected, the larger has more."""
        return self.log_term.epoch, self.end.written

    def is_lease_over(self) -> bool:
        """By the database's clock, as of the last look at the row."""
        return self.now_ms - self.lease_seen_ms >= self.lease_left_ms

    def is_resting(self) -> bool:
        """R8: whether this replica, which could not lead a while ago, lets the other members go
        first. One that is named rests a lease: who names it may not know. Where it is alone in the
        set it waits only so that it does not try without a pause."""
        row, timing = self.row, self.timing
        if self.could_not_lead_ms is None or row is None:
            return False
        rest_ms = timing.rest_ms
        if not row.in_sync - {self.me}:
            rest_ms = timing.row_ms
        elif row.handed_to == self.me.node:
            return self.would_rest
        return self.now_ms - self.could_not_lead_ms < rest_ms

    @property
    def would_rest(self) -> bool:
        """Whether this replica would rest if it were named now."""
        could_not_ms = self.could_not_lead_ms
        return could_not_ms is not None and self.now_ms - could_not_ms < self.timing.lease_ms

    def is_row_behind(self) -> bool:
        """R9: whether the row knows less than this replica has promised."""
        row = self.row
        if row is None or self.lease_seen_ms <= self.promised_ms:
            return False
        if row.term.epoch == self.promise.term.epoch and row.term != self.promise.term:
            return self.promise.term.epoch > 0
        return (
            row.term.epoch < self.promise.term.epoch
            or row.in_sync_version < self.promise.in_sync_version
        )

    def alarm(self, code: str, detail: str) -> None:
        self.actions.append(Alarm(code, detail))
