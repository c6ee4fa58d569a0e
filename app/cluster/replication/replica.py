"""One replica of a shard: follower, candidate or leader, and the ways between them. Pure.

`handle` takes an event with the time and returns the actions, to be carried out in their order. Not
safe for several threads.
"""

from typing import TypeAlias, assert_never

from app.cluster.replication.candidate import Candidate, Outcome, UncleanCandidate
from app.cluster.replication.confirmation import LogEnd
from app.cluster.replication.events import (
    Action,
    Appended,
    CannotLead,
    ChangeRow,
    ClockSeen,
    DatabaseAway,
    Disconnected,
    Event,
    LogBegins,
    LogEnds,
    ReadRow,
    Received,
    RoomSeen,
    RowChanged,
    RowSeen,
    Send,
    StepDown,
    StopAsked,
    SyncFailed,
    TakesNoMore,
    Tick,
    TransferAsked,
    UncleanAsked,
    UncleanJudged,
    UncleanRefusal,
)
from app.cluster.replication.follower import Follower
from app.cluster.replication.leader import Leader, Phase
from app.cluster.replication.messages import (
    AskEnds,
    AskPromise,
    Blocks,
    Ends,
    EndsAnswer,
    Hello,
    Message,
    PromiseAnswer,
    Watermark,
    Welcome,
)
from app.cluster.replication.replica_state import METADATA_REGRESSED, ReplicaState
from app.cluster.replication.shard_row import HandOver
from app.cluster.replication.terms import next_member

LocalEvent: TypeAlias = (
    Appended
    | LogEnds
    | LogBegins
    | Disconnected
    | SyncFailed
    | CannotLead
    | RoomSeen
    | ClockSeen
    | TransferAsked
    | StopAsked
    | TakesNoMore
)


class Replica:
    """The state machine of one replica, from one opening of its store to the next."""

    def __init__(self, state: ReplicaState) -> None:
        self.state = state
        self._sessions = self._questions = state.first_number
        self._role: Follower | Candidate | Leader = Follower(state, state.first_number)
        self._stood_ms = -(10**9)
        self._row_asked_ms = -(10**9)

    @property
    def leader(self) -> Leader | None:
        """The leadership, while this replica leads."""
        return self._role if isinstance(self._role, Leader) else None

    @property
    def last_number(self) -> int:
        """The highest session or question that it has used."""
        role = self._role
        sessions = role.session if isinstance(role, Follower) else self._sessions
        return max(sessions, self._questions)

    @property
    def is_current(self) -> bool:
        """Whether it follows, and may answer reads as its leader does."""
        return isinstance(self._role, Follower) and self._role.is_current

    @property
    def is_being_elected(self) -> bool:
        """Whether the row may name it from now on: it was asked to, and has not answered."""
        return isinstance(self._role, Candidate) and self._role.has_asked

    @property
    def is_serving(self) -> bool:
        """Whether it has taken over and answers requests."""
        return isinstance(self._role, Leader) and self._role.phase is Phase.SERVING

    def handle(self, event: Event, now_ms: int) -> list[Action]:
        """Take one event in. `now_ms` never goes back."""
        state = self.state
        gap_ms, state.now_ms = now_ms - state.now_ms, now_ms
        if gap_ms > state.timing.pause_ms:
            self._was_paused(gap_ms)
        if isinstance(event, RowSeen | RowChanged):
            self._row_answered(event)
        elif isinstance(event, DatabaseAway):
            self._database_away(event)
        elif isinstance(event, Received):
            self._received(event.node, event.message)
        elif isinstance(event, Tick):
            self._tick()
        elif isinstance(event, UncleanAsked):
            self._unclean_asked(event)
        else:
            self._local(event)
        self._settle_role()
        actions, state.actions = state.actions, []
        return actions

    # --- events

    def _local(self, event: LocalEvent) -> None:
        role = self._role
        self._note(event)
        if isinstance(role, Leader):
            self._local_of_leader(role, event)
        elif isinstance(role, Candidate):
            if isinstance(event, StopAsked) and not role.has_asked:
                role.stop()
                self._take_role(Follower(self.state, self._sessions))
        else:
            if isinstance(event, LogEnds):
                role.log_ends()
            elif isinstance(event, Disconnected):
                role.disconnected(event.node)

    def _note(self, event: LocalEvent) -> None:
        """What it says of this replica whatever its role."""
        state = self.state
        if isinstance(event, LogEnds):
            state.end = LogEnd(event.written, event.flushed)
        elif isinstance(event, Disconnected):
            if event.has_stopped:
                state.stopped.add(event.node)
        elif isinstance(event, LogBegins):
            state.log_start = event.start
        elif isinstance(event, Appended):
            state.given_to_log = event.end
        elif isinstance(event, SyncFailed):
            state.is_broken = True
        elif isinstance(event, StopAsked):
            state.is_stopping = True
        elif isinstance(event, RoomSeen):
            state.see_room(event.has_room)
        elif isinstance(event, ClockSeen):
            state.see_clock(is_off=event.is_off)

    def _local_of_leader(self, role: Leader, event: LocalEvent) -> None:
        if isinstance(event, Appended):
            role.appended(event)
        elif isinstance(event, LogEnds):
            role.log_ends()
        elif isinstance(event, Disconnected):
            role.disconnected(event.node)
        elif isinstance(event, SyncFailed | CannotLead):
            self.state.could_not_lead_ms = self.state.now_ms
            role.resign(event.reason if isinstance(event, CannotLead) else "a sync failed")
        elif isinstance(event, TransferAsked):
            role.leave(event)
        elif isinstance(event, StopAsked):
            self._leave_with_the_node(role)
        elif isinstance(event, TakesNoMore):
            role.takes_no_more()
        elif not isinstance(event, RoomSeen | ClockSeen | LogBegins):
            assert_never(event)

    def _leave_with_the_node(self, role: Leader) -> None:
        """R10: one that does not serve yet has nothing to bring to an end."""
        if role.phase is Phase.SERVING:
            role.leave(TransferAsked())
        else:
            role.resign("the node stops")

    def _was_paused(self, gap_ms: int) -> None:
        """This node stood still: what others said meanwhile is heard from now on."""
        if isinstance(self._role, Leader):
            self._role.was_paused(gap_ms)
        else:
            self.state.heard_leader_ms += gap_ms

    def _tick(self) -> None:
        role, state = self._role, self.state
        if isinstance(role, Leader):
            role.tick()
            return
        if state.now_ms - self._row_asked_ms >= state.timing.row_ms:
            self._row_asked_ms = state.now_ms
            state.actions.append(ReadRow())
            self._give_row_away()
        if isinstance(role, Candidate):
            self._take_outcome(role, role.tick())
            return
        role.tick()
        if self._should_stand():
            self._stood_ms = state.now_ms
            self._take_role(Candidate(state, self._next_question(role)))

    def _next_question(self, role: Follower | Candidate) -> int:
        self._questions += 1
        if isinstance(role, Follower):
            self._sessions = role.session
        return self._questions

    def _unclean_asked(self, asked: UncleanAsked) -> None:
        """Stand for it, where this replica only follows and hears of no leader. The answer of the
        others is not waited for where one was heard a moment ago."""
        role, state = self._role, self.state
        refusal, node = None, None
        if isinstance(role, Leader):
            refusal = UncleanRefusal.LEADS
        elif isinstance(role, UncleanCandidate) or (isinstance(role, Candidate) and role.term):
            refusal = UncleanRefusal.TAKING_PART
        elif state.is_stopping:
            refusal = UncleanRefusal.STOPS
        elif state.is_broken:
            refusal = UncleanRefusal.LOG_FAILED
        elif state.now_ms - state.heard_leader_ms < state.timing.silence_ms and state.heard_leader:
            refusal, node = UncleanRefusal.LEADER_ANSWERS, state.heard_leader
        else:
            question = self._next_question(role)
            self._take_role(UncleanCandidate(state, question, asked))
        if refusal is not None:
            state.actions.append(UncleanJudged(asked.number, refusal, node))

    def _should_stand(self) -> bool:
        """R1: the shard was handed to this node, or is its own, or the leader is silent for a lease
        by the row, by its connection, and since the database answers again."""
        state = self.state
        row = state.row
        if row is None or state.is_broken or state.is_stopping or state.database_since_ms is None:
            return False
        if not row.in_sync:  # too few replicas have joined, or the set was never told
            if state.is_row_behind():
                state.alarm(METADATA_REGRESSED, "the database knows of no set of the shard")
            return False
        if state.now_ms - self._stood_ms < 2 * state.timing.ask_ms or state.is_resting():
            return False
        if row.is_regressed:
            self._stood_ms = state.now_ms
            state.alarm(METADATA_REGRESSED, "the row waits for an operator")
            return False
        is_handed_back = row.leader == state.me and row.handed_to is None
        if row.handed_to == state.me.node or is_handed_back:
            return True
        lease_ms = state.timing.lease_ms
        return (
            state.is_lease_over()
            and state.now_ms - state.heard_leader_ms >= lease_ms
            and (state.now_ms - state.database_since_ms >= lease_ms or row.leader is None)
        )

    def _give_row_away(self) -> None:
        """R8: the row names this node, whose leadership ended as it could not lead, and the
        database does not know yet."""
        state, row = self.state, self.state.row
        if row is None or row.leader is None or row.leader.node != state.me.node:
            return
        to = next_member(state.not_stopped(row.in_sync - {row.leader}), state.me)
        if to is not None and row.handed_to is None and state.is_resting():
            state.actions.append(ChangeRow(HandOver(row.term, to.node)))

    def _row_answered(self, event: RowSeen | RowChanged) -> None:
        state, role = self.state, self._role
        if event.asked_ms >= state.lease_seen_ms:
            state.row = event.row
            state.lease_seen_ms = event.asked_ms
        if isinstance(event, RowSeen):
            if event.asked_ms >= state.lease_seen_ms:
                state.lease_left_ms = event.lease_left_ms
        else:
            state.lease_left_ms = state.timing.lease_ms if event.is_done else 0
        if state.database_since_ms is None:
            state.database_since_ms = state.now_ms
        if isinstance(role, Candidate):
            if isinstance(event, RowSeen):
                self._take_outcome(role, role.row_seen(event))
            else:
                self._take_outcome(role, role.row_changed(event), event)
        elif isinstance(role, Leader):
            if isinstance(event, RowSeen):
                role.row_seen(event.row)
            else:
                role.row_changed(event.change, event.row, event.is_done, event.asked_ms)

    def _database_away(self, event: DatabaseAway) -> None:
        self.state.database_since_ms = None
        if isinstance(self._role, Candidate):
            self._take_outcome(self._role, self._role.database_away(event.change))
        elif isinstance(self._role, Leader):
            self._role.database_away(event.change)

    def _received(self, node: str, message: Message) -> None:
        role, state = self._role, self.state
        state.stopped.discard(node)
        if isinstance(message, AskEnds):
            answer = EndsAnswer(
                message.question,
                state.me,
                state.promise,
                state.log_term,
                state.end.written,
                state.yields,
                state.log_start,
            )
            state.actions.append(Send(node, answer))
        elif isinstance(message, AskPromise):
            self._asked_to_promise(node, message)
        elif isinstance(message, EndsAnswer):
            if isinstance(role, Candidate):
                self._take_outcome(role, role.answer(node, message))
        elif isinstance(message, PromiseAnswer | Hello | Ends):
            if isinstance(role, Leader):
                self._to_leader(role, node, message)
        elif isinstance(role, Follower):
            self._to_follower(role, node, message)

    def _to_leader(self, role: Leader, node: str, message: PromiseAnswer | Hello | Ends) -> None:
        if isinstance(message, PromiseAnswer):
            role.promise_answer(message)
        elif isinstance(message, Hello):
            role.hello(node, message)
        else:
            role.ends(node, message)

    def _to_follower(
        self, role: Follower, node: str, message: Welcome | Blocks | Watermark
    ) -> None:
        if isinstance(message, Welcome):
            role.welcome(node, message)
        elif isinstance(message, Blocks):
            role.blocks(node, message)
        else:
            role.watermark(node, message)

    def _asked_to_promise(self, node: str, message: AskPromise) -> None:
        """R2. Who knows a newer set without the new leader, or has promised more, refuses."""
        state = self.state
        former = state.promise
        knows_better = former.knows_better(message.leader, message.settled_version)
        is_given = not knows_better and not former.term.excludes(message.term)
        if is_given:
            state.promise_term(message.term)
            state.leader_heard = (node, message.term)
            state.heard_leader_ms = state.now_ms
            if isinstance(self._role, Leader) and self._role.term != message.term:
                self._role.over = f"{node} leads in a newer term"
        answer = PromiseAnswer(message.term, state.me, former, is_given)
        state.actions.append(Send(node, answer))

    # --- roles

    def _take_outcome(
        self, candidate: Candidate, outcome: Outcome, event: RowChanged | None = None
    ) -> None:
        if outcome is Outcome.GIVEN_UP:
            self._take_role(Follower(self.state, self._sessions))
        elif outcome is Outcome.WON:
            assert event is not None
            assert candidate.term is not None
            leader = Leader(self.state, candidate.term, event.row, event.asked_ms)
            self._take_role(leader)
            if self.state.is_stopping:
                self._leave_with_the_node(leader)

    def _take_role(self, role: Follower | Candidate | Leader) -> None:
        self._role = role

    def _settle_role(self) -> None:
        """R5: a leadership that is over ends with its broker."""
        role = self._role
        if isinstance(role, Leader) and role.over is not None:
            self.state.actions.append(StepDown(role.over))
            self.state.heard_leader_ms = self.state.now_ms
            self._take_role(Follower(self.state, self._sessions))
