"""A replica that stands for election (R1, R7); it takes nothing of the former leader. Pure.

No replica votes. The others tell where their logs end, and a candidate asks the shard's row in the
database to name it. The row is changed only if it is still as it was seen, so one candidate wins
(`shard_row` has the rule, `cluster.metadata.nodes.shard_rows` the statement).
"""

from collections.abc import Callable
from enum import Enum, auto

from typing_extensions import override

from app.cluster.replication.events import (
    ChangeRow,
    ReadRow,
    RowChanged,
    RowSeen,
    Send,
    UncleanAsked,
    UncleanJudged,
    UncleanRefusal,
)
from app.cluster.replication.messages import AskEnds, EndsAnswer
from app.cluster.replication.replica_state import METADATA_REGRESSED, ReplicaState
from app.cluster.replication.shard_row import (
    Elect,
    ElectAfterLoss,
    ElectUnclean,
    HandOver,
    RowChange,
    ShardRow,
)
from app.cluster.replication.terms import Term


class Outcome(Enum):
    """What became of standing for election."""

    WAITING = auto()
    GIVEN_UP = auto()
    """Another one is to go first, or the row does not allow it; follow, and look again later."""
    WON = auto()


class Candidate:
    """One per attempt. The attempt is over when an outcome other than `WAITING` is returned."""

    def __init__(self, state: ReplicaState, question: int) -> None:
        self._state = state
        self._question = question
        self._since_ms = state.now_ms
        self._answers: dict[str, EndsAnswer] = {}
        self._change: RowChange | None = None
        self.term: Term | None = None
        """The term that was asked for."""
        for node in state.peers:
            state.actions.append(Send(node, AskEnds(question)))
        state.actions.append(ReadRow())

    def answer(self, node: str, message: EndsAnswer) -> Outcome:
        """Another replica says what it has."""
        if message.question == self._question and self._change is None:
            self._answers[node] = message
            if self._is_complete or self._waited_ms >= self._state.timing.ask_ms:
                return self._stand()
        return Outcome.WAITING

    def tick(self) -> Outcome:
        """Stand with the answers that have come in time."""
        waited_ms, timing = self._waited_ms, self._state.timing
        if self._change is None and waited_ms >= timing.ask_ms:
            return self._stand()
        if waited_ms >= timing.lease_ms:
            return Outcome.GIVEN_UP  # the database says nothing; the row will tell later
        return Outcome.WAITING

    def row_seen(self, event: RowSeen) -> Outcome:
        """A row of before the attempt began says nothing."""
        del event
        return self._stand() if self._is_complete and self._change is None else Outcome.WAITING

    def row_changed(self, event: RowChanged) -> Outcome:
        """The database has decided."""
        if event.change is not self._change:
            return Outcome.WAITING
        return Outcome.WON if event.is_done else Outcome.GIVEN_UP

    def database_away(self, change: RowChange | None) -> Outcome:
        """Whether it was carried out is seen in the row: then this replica is its leader, and
        stands once more under a new term."""
        return Outcome.GIVEN_UP if change is self._change else Outcome.WAITING

    def stop(self) -> None:
        """The node stops, and the row was not asked for anything: the attempt is over."""

    @property
    def has_asked(self) -> bool:
        """Whether the row was asked to name this replica, and has not answered."""
        return self._change is not None

    @property
    def _is_complete(self) -> bool:
        return len(self._answers) == len(self._state.peers)

    @property
    def _waited_ms(self) -> int:
        return self._state.now_ms - self._since_ms

    def _stand(self) -> Outcome:
        state, row = self._state, self._state.row
        if row is None or state.lease_seen_ms < self._since_ms:
            return Outcome.WAITING  # the row is asked for, and not seen yet
        is_behind = self._is_row_behind(row)
        may_wait = not is_behind and self._waited_ms < state.timing.fence_ms
        if may_wait and state.me in row.in_sync and self._has_too_few(row):
            return Outcome.WAITING
        self._change = self._change_for(row, is_behind=is_behind)
        if self._change is None:
            return Outcome.GIVEN_UP
        state.actions.append(ChangeRow(self._change))
        return Outcome.WAITING

    def _change_for(self, row: ShardRow, *, is_behind: bool) -> RowChange | None:
        """What to ask of the row that was seen; None: nothing. `is_behind`: it has forgotten."""
        state = self._state
        if is_behind:
            return None
        term = self._new_term(row)
        if state.me in row.in_sync:
            is_first = self._may_stand(row) and not self._another_has_more(row)
            if not is_first or self._has_yielded(row):
                return None
            return Elect(row.term, term, state.me, state.timing.lease_ms)
        if not self._all_lost_their_incarnation(row):
            return None
        return ElectAfterLoss(row.term, row.in_sync_version, term, state.me, state.timing.lease_ms)

    def _new_term(self, row: ShardRow) -> Term:
        state = self._state
        promised = [each.promise.term.epoch for each in self._answers.values()]
        epoch = max(row.term.epoch, state.promise.term.epoch, *promised, 0) + 1
        self.term = Term(epoch, state.new_grant())
        return self.term

    def _is_row_behind(self, row: ShardRow) -> bool:
        """R9: what anybody who answers has promised, the database must know."""
        state = self._state
        is_behind = state.is_row_behind() or any(
            each.promise.term.epoch > row.term.epoch
            or each.promise.in_sync_version > row.in_sync_version
            for each in self._answers.values()
        )
        if not is_behind:
            state.row_behind_since_ms = None
        elif state.row_behind_since_ms is None:
            state.row_behind_since_ms = state.now_ms  # or another one was elected just now
        elif state.now_ms - state.row_behind_since_ms >= state.timing.lease_ms:
            state.alarm(METADATA_REGRESSED, "the database knows less than replicas have promised")
        return is_behind

    def _is_named(self, row: ShardRow) -> bool:
        me = self._state.me
        return row.handed_to == me.node or row.leader == me

    def _may_stand(self, row: ShardRow) -> bool:
        is_free = self._state.is_lease_over() and not self._has_too_few(row)
        return self._is_named(row) or is_free

    def _has_too_few(self, row: ShardRow) -> bool:
        """Whether fewer replicas answer than it needs to confirm something, where the row does not
        name it: it would end the reads of a leader, and serve none itself."""
        return not self._is_named(row) and len(self._answers) + 1 < row.min_in_sync

    def _another_has_more(self, row: ShardRow) -> bool:
        """A member of the set with a longer log goes first; of equal ones it does not matter."""
        return any(
            each.member in row.in_sync
            and (each.last_term.epoch, each.end) > self._state.log_position
            and row.handed_to != self._state.me.node
            for each in self._answers.values()
        )

    def _has_yielded(self, row: ShardRow) -> bool:
        """R12: whether a member with as much, which answers and lacks nothing, is to go first, as
        the clock of this node is off. Where the row names this node as the leader, which has begun
        anew, it names that member: nobody has to wait for the lease."""
        state = self._state
        if not state.is_clock_off or row.handed_to == state.me.node:
            return False
        fit = [
            (each.last_term.epoch, each.end, node)
            for node, each in self._answers.items()
            if each.member in row.in_sync and not each.yields
        ]
        best = max(fit, default=None)
        if best is None or best[:2] < state.log_position or not state.may_yield():
            return False
        if row.leader == state.me and row.handed_to is None:
            state.actions.append(ChangeRow(HandOver(row.term, best[2])))
        return True

    def _all_lost_their_incarnation(self, row: ShardRow) -> bool:
        """R7: whether every member of the set has come back without proof that it kept everything,
        and this replica has the most of all that answer, also of those outside of the set."""
        state = self._state
        if not state.is_lease_over() or (state.has_nothing and not self._is_complete):
            return False  # who has nothing leads only where nobody has anything
        for member in row.in_sync:
            answer = self._answers.get(member.node)
            is_back = answer is not None and answer.member != member
            if member.node != state.me.node and not is_back:
                return False
        mine = (not state.has_nothing, *state.log_position, state.me.node)
        return all(
            (each.log_start != each.end, each.last_term.epoch, each.end, each.member.node) <= mine
            for each in self._answers.values()
        )


class UncleanCandidate(Candidate):
    """A replica that an operator has stand, which is not in sync, where all that are may be lost.

    It goes the way of any other one, but for whom the row has to allow it and who has to be silent.
    What it may lose is told first. One per command.
    """

    def __init__(self, state: ReplicaState, question: int, asked: UncleanAsked) -> None:
        super().__init__(state, question)
        self._asked = asked
        self._is_judged = False

    @override
    def tick(self) -> Outcome:
        outcome, state = super().tick(), self._state
        if not self._is_judged and self._waited_ms >= state.timing.lease_ms:
            outcome = Outcome.GIVEN_UP  # whoever asked has no row to wait for
        return self._told(outcome)

    @override
    def database_away(self, change: RowChange | None) -> Outcome:
        return self._told(super().database_away(change))

    @override
    def stop(self) -> None:
        self._refuse(UncleanRefusal.STOPS)

    def _told(self, outcome: Outcome) -> Outcome:
        if outcome is Outcome.GIVEN_UP:
            self._refuse(UncleanRefusal.DATABASE_AWAY)
        return outcome

    def _refuse(self, why: UncleanRefusal) -> None:
        """Whoever asked gets one answer."""
        if not self._is_judged:
            self._is_judged = True
            self._state.actions.append(UncleanJudged(self._asked.number, why))

    @override
    def _change_for(self, row: ShardRow, *, is_behind: bool) -> RowChange | None:
        state, asked = self._state, self._asked
        refusal, node = self._refusal(row, is_behind=is_behind)
        ends = [each.end for each in self._answers.values()]
        self._is_judged = True
        state.actions.append(
            UncleanJudged(
                asked.number,
                refusal,
                node,
                state.end.written,
                max(state.end.written, state.high_watermark, state.heard_end, *ends),
                tuple(sorted(member.node for member in row.in_sync)),
                tuple(sorted(self._answers)),
            )
        )
        if refusal is not None or asked.is_dry_run:
            return None
        term = self._new_term(row)
        return ElectUnclean(
            row.term, row.in_sync_version, term, state.me, state.timing.lease_ms, asked.by
        )

    def _refusal(
        self, row: ShardRow, *, is_behind: bool
    ) -> tuple[UncleanRefusal | None, str | None]:
        """Why not, and which node it is about."""
        state, leader = self._state, None if row.leader is None else row.leader.node
        found: tuple[UncleanRefusal | None, str | None] = (None, None)
        if is_behind or row.is_regressed:
            found = UncleanRefusal.METADATA_REGRESSED, None
        elif not row.in_sync:
            found = UncleanRefusal.NOT_FOUNDED, None
        elif state.me in row.in_sync:
            found = UncleanRefusal.IN_SYNC, state.me.node
        elif (member := self._first(lambda each: each.member in row.in_sync)) is not None:
            found = UncleanRefusal.MEMBER_ANSWERS, member
        elif not state.is_lease_over():
            found = UncleanRefusal.LEASE_HOLDS, leader
        elif state.now_ms - state.heard_leader_ms < state.timing.lease_ms:
            found = UncleanRefusal.LEADER_ANSWERS, state.heard_leader or leader
        elif (ahead := self._first(self._has_more)) is not None:
            found = UncleanRefusal.ANOTHER_HAS_MORE, ahead
        return found

    def _first(self, is_it: Callable[[EndsAnswer], bool]) -> str | None:
        return next((node for node, each in sorted(self._answers.items()) if is_it(each)), None)

    def _has_more(self, answer: EndsAnswer) -> bool:
        """One that is copying from where the leader's log began may have nothing yet, or only what
        comes far behind the end of this one: neither has more then, and the operator decides."""
        state = self._state
        if answer.log_start == answer.end:
            return False
        if state.has_nothing:
            return True
        is_apart = answer.log_start > state.end.written
        return not is_apart and (answer.last_term.epoch, answer.end) > state.log_position
