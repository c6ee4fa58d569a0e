"""The replica that leads: it fences, takes over, sends blocks, confirms, and changes the set. Pure.

R2 fence, R3 take over, R4 acknowledge, R8 leases, R9 write back, R10 hand over, R12 clocks, R13
room.
"""

from enum import Enum, auto

from app.cluster.replication.confirmation import Confirmation, LogEnd
from app.cluster.replication.events import (
    Appended,
    AppendTermStart,
    ChangeRow,
    MoveWatermark,
    ReadRow,
    Send,
    SendBlocks,
    Serve,
    TakeNoMore,
    TransferAsked,
)
from app.cluster.replication.followers import NOTHING, Followers, FollowerView
from app.cluster.replication.in_sync_set import InSyncSet
from app.cluster.replication.messages import (
    AskPromise,
    Ends,
    Hello,
    PromiseAnswer,
    Watermark,
    Welcome,
)
from app.cluster.replication.replica_state import ReplicaState
from app.cluster.replication.shard_row import (
    ChangeInSync,
    HandOver,
    Renew,
    RowChange,
    ShardRow,
    TellRegressed,
    WriteBack,
)
from app.cluster.replication.terms import Member, Term, common_end, cut_history, next_member


class Phase(Enum):
    """How far the take-over has come (R3)."""

    FENCING = auto()
    TAKING_OVER = auto()
    SERVING = auto()


class Leader:
    """One per term. It is over when `is_over` gives a reason."""

    def __init__(self, state: ReplicaState, term: Term, row: ShardRow, asked_ms: int) -> None:
        """`row` is the row behind the election, which was asked for at `asked_ms`."""
        self._state = state
        self.term = term
        self.phase = Phase.FENCING
        self.over: str | None = None
        """Why this leadership has ended; the replica follows then."""
        self._in_sync = InSyncSet(row.in_sync, row.in_sync_version)
        self._settled_version = row.settled_version
        self._min_in_sync = row.min_in_sync
        self._target_replicas = row.target_replicas
        self._replicas = max(row.target_replicas, len(state.peers) + 1)
        """That may have noted a set: this node may not have heard yet of one that has joined."""
        self._possible_loss, self._loss_epoch = row.possible_loss, row.loss_epoch
        self._followers = Followers(state.peers, state.now_ms)
        self._confirmation = Confirmation(state.high_watermark)
        if state.end.written > state.high_watermark:
            self._confirmation.append(state.end.written, wants_sync=True)
        self._inherited_end = state.end.written
        """Up to here leaders before may have confirmed."""
        self._promised = {state.me}
        self._since_ms = state.now_ms
        self._lease_end_ms = asked_ms + state.timing.lease_ms
        self._renewed_ms = asked_ms
        self._signed_ms = state.now_ms
        self._change: ChangeInSync | None = None
        self._change_asked_ms = 0
        self._write_back: WriteBack | None = None
        self._leaving: TransferAsked | None = None
        """How the shard is to be handed over; None: it is not."""
        self._leaving_ms = 0
        """When that began."""
        self._takes_no_more = False
        """Whether no client's block gets a place in the log any more: only then is the end known
        that the next leader needs."""
        self._serving_ms = 0
        self._passed_on_ms = state.now_ms
        """When a member that lacks nothing was named last; not before this term."""
        self._hand_over: HandOver | None = None
        state.promise_term(term)
        self._ask_for_promises()
        self._try_to_end_fence()

    @property
    def in_sync(self) -> frozenset[Member]:
        """The set as the row is known to have it."""
        return self._in_sync.in_sync

    @property
    def followers(self) -> Followers:
        """What is known of the other replicas; not to be changed."""
        return self._followers

    @property
    def lacking_members(self) -> int:
        """How many more members than those on connections a block needs: too few are in sync."""
        on = {view.member for view in self._followers.connected()} | {self._state.me}
        return max(self._min_in_sync - len(self.in_sync & on), 0)

    @property
    def full_nodes(self) -> tuple[str, ...]:
        """R13: members whose disks take no messages, where fewer than `min_in_sync` others are left
        in the set. What they still have room for is kept for what the log has to say before
        anything may be deleted; without it nothing is confirmed, and nothing deleted, ever."""
        full = {view.member for view in self._followers if view.has_room is False}
        is_needed = len(self.in_sync - full) < self._min_in_sync
        return tuple(sorted(each.node for each in self.in_sync & full)) if is_needed else ()

    # --- R2, R3

    def promise_answer(self, message: PromiseAnswer) -> None:
        """A replica takes nothing of older terms any more, or knows better."""
        if message.term != self.term:
            return
        settled, me = self._settled_version, self._state.me
        if not message.is_given or message.former.knows_better(me, settled):
            self._give_back(message.member.node)
            return
        self._has_promised(message.member)
        self._try_to_end_fence()

    def _ask_for_promises(self) -> None:
        """Ask those that have not promised, again and again: a former leader that heard nothing of
        the election takes itself for the leader until this reaches it, or the row does."""
        state = self._state
        ask = AskPromise(self.term, state.me, self._settled_version)
        promised = {member.node for member in self._promised}
        for node in state.peers:
            if node not in promised:
                state.actions.append(Send(node, ask))

    def _has_promised(self, member: Member) -> None:
        if member not in self._promised:
            self._promised.add(member)
            self._note()

    @property
    def _is_proven(self) -> bool:
        """R2: whether the row of this election had forgotten nothing. Each set that counts was
        noted by `min_in_sync` replicas at least, so one of all but `min_in_sync` - 1 knows it; and
        who confirms with every member has asked as many, where two sets always meet."""
        if self.phase is Phase.SERVING:
            return True
        promised = {member.node for member in self._promised}
        return len(promised) > self._replicas - self._min_in_sync

    def _note(self) -> None:
        """Note the set that the row has, and let those that follow note it. Where two sets always
        meet a leader without proof notes nothing: an operator who restores the row would take it
        for what was confirmed with. Elsewhere it has to: a single replica may have to go on."""
        state = self._state
        do_sets_meet = 2 * self._min_in_sync > self._replicas
        if self.phase is Phase.FENCING or (do_sets_meet and not self._is_proven):
            return
        if self._in_sync.version > state.promise.in_sync_version:
            state.note_in_sync(self._in_sync.version, self._in_sync.in_sync)
            self._in_sync.noted(self._noted())
            self._sign()

    def _give_back(self, node: str) -> None:
        """R2: the election rested on a row that had forgotten; the row says so from now on."""
        self._state.actions.append(ChangeRow(TellRegressed(self.term)))
        self.over = f"{node} has promised something newer"

    def _try_to_end_fence(self) -> None:
        state = self._state
        if self.phase is not Phase.FENCING:
            return
        is_late = state.now_ms - self._since_ms >= state.timing.fence_ms
        if self._in_sync.in_sync <= self._promised or is_late:
            self.phase = Phase.TAKING_OVER
            self._note()
            state.actions.append(AppendTermStart(self.term))
            silent = sorted(self._in_sync.in_sync - self._promised)
            self._shrink(silent)

    # --- the own log

    def appended(self, event: Appended) -> None:
        """The appender of this node has given a block its place."""
        self._confirmation.append(event.end, event.wants_sync)
        if event.term_start is not None:
            self._state.keep_history((*self._state.history, event.term_start))

    def log_ends(self) -> None:
        """The own log is written or synced further: it can be sent, and counts. What nobody waits
        for goes to every medium when it has gone to this one."""
        self._confirmation.note_flushed(self._state.end.flushed)
        self._offer()
        self._confirm()

    def _offer(self) -> None:
        state, end = self._state, self._state.end.written
        for view in self._followers.connected():
            if view.sent < end:
                state.actions.append(
                    SendBlocks(
                        view.node,
                        view.session,
                        view.sent,
                        end,
                        min(self._confirmation.sync_to, end),
                        self._confirmation.high_watermark,
                    )
                )
                view.sent = end

    def _confirm(self) -> None:
        state = self._state
        ends = [
            state.end if member == state.me else self._followers.ends_of(member)
            for member in self._in_sync.required
        ]
        if not self._confirmation.confirm(ends):
            return
        state.high_watermark = self._confirmation.high_watermark
        state.actions.append(MoveWatermark(state.high_watermark))
        self._sign()
        starts = [entry.start for entry in state.history if entry.term == self.term]
        if self.phase is Phase.TAKING_OVER and starts and state.high_watermark > starts[-1]:
            self.phase = Phase.SERVING
            self._serving_ms = state.now_ms
            self._settled_version = self._in_sync.version
            self._note()
            state.actions.append(Serve(self.term))
            if self._leaving is not None:
                state.actions.append(TakeNoMore())

    # --- followers

    def hello(self, node: str, message: Hello) -> None:
        """A follower connects: compare the histories, say where it goes on."""
        state = self._state
        if message.promise.term.excludes(self.term):
            self.over = f"{node} has promised {message.promise.term}"  # it would take nothing
            return
        if message.promise.knows_better(state.me, self._settled_version):
            self._give_back(node)
            return
        if self.phase is Phase.FENCING:
            return  # it greets again
        view = self._followers.of(node, state.now_ms)
        if view.is_connected and view.member == message.member and message.session <= view.session:
            return  # an older connection of the same process
        history = cut_history(state.history, state.end.written)
        cut_to = common_end(history, state.end.written, message.history, message.end)
        if cut_to < state.log_start:
            self._have_begin_anew(node, message, cut_to)
            return
        if view.member != message.member:
            view.ends = NOTHING
            view.mark_end, view.mark_ms = state.end.written, state.now_ms
        elif message.end < view.ends.written:
            state.alarm("REPLICA_LOST_BLOCKS", f"{node} had {view.ends.written}: {message.end}")
            return
        view.member, view.session = message.member, message.session
        view.is_connected = True
        view.sent, view.noted_version = cut_to, message.promise.in_sync_version
        state.actions.append(
            Send(
                node,
                Welcome(
                    message.session,
                    self.term,
                    state.promise.in_sync_version,
                    state.promise.in_sync,
                    cut_to,
                    min(self._confirmation.high_watermark, cut_to),
                ),
            )
        )

    def _have_begin_anew(self, node: str, message: Hello, cut_to: int) -> None:
        """The log of the follower goes on where this one's is deleted. It is no follower before it
        greets again."""
        state, start = self._state, self._state.log_start
        history = cut_history(state.history, start)
        version, in_sync = state.promise.in_sync_version, state.promise.in_sync
        welcome = Welcome(
            message.session, self.term, version, in_sync, cut_to, cut_to, start, history
        )
        state.actions.append(Send(node, welcome))

    def ends(self, node: str, message: Ends) -> None:
        """A follower has written or synced further, or has noted a set."""
        view, state = self._followers.current(node, message.session), self._state
        if view is None or message.term != self.term or view.member is None:
            return
        first = view.ends.written < 0 or view.ends.written > message.written
        view.ends, view.heard_ms = LogEnd(message.written, message.flushed), state.now_ms
        view.noted_version = message.noted_version
        view.would_rest, view.has_room = message.would_rest, message.has_room
        view.is_clock_off = message.is_clock_off
        self._has_promised(view.member)
        view.caught_up(state.end.written, state.now_ms)
        self._in_sync.noted(self._noted())
        self._offer()
        self._confirm()
        if first:
            self._sign_to(view)
        self._grow()

    def _noted(self) -> dict[Member, int]:
        return {**self._followers.noted(), self._state.me: self._state.promise.in_sync_version}

    def disconnected(self, node: str) -> None:
        """Its ends stay: what it has written it has."""
        self._followers.of(node, self._state.now_ms).is_connected = False

    def _sign(self) -> None:
        self._signed_ms = self._state.now_ms
        for view in self._followers.connected():
            self._sign_to(view)

    def _sign_to(self, view: FollowerView) -> None:
        sign = Watermark(
            view.session,
            self.term,
            self._confirmation.high_watermark,
            min(self._confirmation.sync_to, view.sent),
            self._state.promise.in_sync_version,
            self._state.promise.in_sync,
        )
        self._state.actions.append(Send(view.node, sign))

    # --- R4: the in-sync set

    def _grow(self) -> None:
        """Take in who has all that is or was confirmed (in Kafka: up to the start of the leader's
        epoch), one change of the row at a time. Without proof the set only shrinks, so who is
        elected is in each set that was noted since the row knew the last settled one (R2)."""
        is_early = self.phase is Phase.FENCING or not self._is_proven
        if is_early or not self._in_sync.is_settled:
            return
        written = max(self._confirmation.high_watermark, self._inherited_end)
        flushed = max(self._confirmation.synced_below, self._inherited_end)
        for view in self._followers.connected():
            member = view.member
            if member is None or member in self._in_sync.in_sync:
                continue
            if view.ends.written >= written and view.ends.flushed >= flushed:
                others = {each for each in self._in_sync.in_sync if each.node != member.node}
                self._ask(frozenset(others | {member}))
                return

    def _shrink(self, slow: list[Member]) -> None:
        """Let go of who is slow, the slowest first, never below `min_in_sync`."""
        if not slow or not self._in_sync.is_settled or self._hand_over is not None:
            return
        left = set(self._in_sync.in_sync)
        for member in slow:
            if len(left) > self._min_in_sync and member != self._state.me:
                left.discard(member)
        if left != self._in_sync.in_sync:
            self._ask(frozenset(left))

    def _ask(self, in_sync: frozenset[Member]) -> None:
        self._in_sync.ask(in_sync)
        self._change = ChangeInSync(self.term, self._in_sync.version, in_sync, self._is_proven)
        self._repeat_change()

    def _repeat_change(self) -> None:
        """A change without an answer may be carried out later: only its own repetition tells."""
        if self._change is not None:
            self._change_asked_ms = self._state.now_ms
            self._state.actions.append(ChangeRow(self._change))

    # --- the row

    def row_changed(self, change: RowChange, row: ShardRow, is_done: bool, asked_ms: int) -> None:
        """The database has answered a change of this term."""
        if change is self._hand_over:
            self.over = "handed over"
            return
        if change is self._write_back:
            self._write_back = None
        if isinstance(change, Renew) and is_done:
            self._lease_end_ms = asked_ms + self._state.timing.lease_ms
        self.row_seen(row)
        if change is self._change and self.over is None:
            self._change = None
            if not is_done and row.in_sync_version <= self._in_sync.version:
                self._in_sync.refused()
            self._confirm()

    def row_seen(self, row: ShardRow) -> None:
        """Compare the row with what this leader knows (R2, R9)."""
        state = self._state
        if row.term.excludes(self.term):
            self.over = "the row names another term"
            return
        if row.term != self.term or row.in_sync_version < self._in_sync.version:
            self._restore(row)
            return
        if row.in_sync_version > self._in_sync.version:
            if self._change is None or self._change.in_sync != row.in_sync:
                self._followers.put_out(self._in_sync.in_sync - row.in_sync)
            self._in_sync.seen(row.in_sync, row.in_sync_version)
            self._note()
        if row.handed_to is not None and row.handed_to != state.me.node:
            self.over = "handed over"

    def _restore(self, row: ShardRow) -> None:
        """The database has forgotten: write back what this living leader knows. The set that is
        written must be one that the leader requires, under a version that nobody has seen. It is
        settled only when the row that this leader was elected by had not forgotten itself."""
        if self._write_back is not None:
            return
        version = max(self._in_sync.version, row.in_sync_version) + 1
        known = ShardRow(
            self.term,
            self._state.me,
            self._in_sync.in_sync,
            version,
            version if self._is_proven else self._settled_version,
            min_in_sync=self._min_in_sync,
            target_replicas=self._target_replicas,
            possible_loss=self._possible_loss,
            loss_epoch=self._loss_epoch,
        )
        self._write_back = WriteBack(row, known, self._state.timing.lease_ms)
        self._state.actions.append(ChangeRow(self._write_back))

    def database_away(self, change: RowChange | None) -> None:
        """Nothing is concluded; `tick` asks again."""
        if change is self._write_back:
            self._write_back = None

    # --- R8, R10 and time

    def was_paused(self, gap_ms: int) -> None:
        """This node itself stood still: nobody was slow or silent in that time."""
        self._followers.was_paused(gap_ms)

    def tick(self) -> None:
        """Renew, repeat, give signs, look who is slow."""
        state, timing = self._state, self._state.timing
        if state.now_ms - self._renewed_ms >= timing.row_ms:
            self._renewed_ms = state.now_ms
            renewal = ChangeRow(Renew(self.term, timing.lease_ms))
            state.actions.append(ReadRow() if self._is_unheard() else renewal)
            self._ask_for_promises()
            self._repeat_lost_changes()
        if state.now_ms - self._signed_ms >= timing.sign_ms:
            self._sign()
        self._try_to_end_fence()
        for view in self._followers:
            view.caught_up(state.end.written, state.now_ms)
            is_out = view.member is None or view.member not in self._in_sync.in_sync
            view.out_ms = (view.out_ms or state.now_ms) if is_out else None
        members = self._in_sync.in_sync - {state.me}
        before_ms = state.now_ms - timing.replica_timeout_ms
        if self.phase is not Phase.FENCING:
            self._shrink(self._followers.slow(members, before_ms, state.stopped))
            self._grow()
        if self._leaving is not None:
            self._hand_over_if_possible(self._leaving)
        elif state.full_since_ms is not None or state.is_clock_off:
            self._pass_on()

    def _pass_on(self) -> None:
        """R12, R13: name a member that takes messages, or whose clock is right. This one goes on
        until the row has it: where the database does not answer, or the other one dies, reads are
        served as before. Named again as long as it is so, since an answer may be lost."""
        state, timing = self._state, self._state.timing
        has_all = self._confirmation.high_watermark >= self._confirmation.end
        if not has_all or state.now_ms - self._passed_on_ms < timing.row_ms:
            return
        fit = self._fitter()
        if fit and self._in_sync.is_settled:
            self._passed_on_ms = state.now_ms
            best = max(fit, key=self._followers.fitness_and_ends_of)
            state.actions.append(ChangeRow(HandOver(self.term, best.node)))

    def _fitter(self) -> list[Member]:
        """Members that have all, and what this one lacks, as they have said since it does. None
        while the database does not answer: nobody could be named. Who has just been elected stays
        for a lease, so that two whose disks are nearly full do not pass the shard on and on."""
        state, timing = self._state, self._state.timing
        is_new = state.now_ms - self._serving_ms < timing.lease_ms
        is_old = self._lease_end_ms - state.now_ms < timing.lease_ms // 2
        if self.phase is not Phase.SERVING or is_new or is_old:
            return []
        fit = self._without_lack()
        return [
            each
            for each in self._successors()
            if each in fit and self._followers.ends_of(each).written >= self._confirmation.end
        ]

    def _without_lack(self) -> set[Member | None]:
        """R13 before R12: one with a full disk takes no messages, whatever its clock says."""
        state, timing = self._state, self._state.timing
        full_ms, off_ms, now_ms = state.full_since_ms, state.clock_off_since_ms, state.now_ms
        if full_ms is not None:
            is_early = now_ms - full_ms < 2 * timing.sign_ms
            return set() if is_early else self._followers.with_room(full_ms)
        if off_ms is None or now_ms - off_ms < timing.clock_ms:
            return set()
        return self._followers.with_right_clock(now_ms - timing.silence_ms)

    def _is_unheard(self) -> bool:
        """R8: too few of the set answer to confirm anything, where the other replicas might without
        this one. It goes on, and reads are served, but its lease ends: who does not hear it either,
        and is heard by enough, is elected. It renews again once it is heard."""
        state, in_sync = self._state, self._in_sync.in_sync
        since_ms = state.now_ms - state.timing.silence_ms
        heard = [each for each in in_sync - {state.me} if self._followers.was_heard(each, since_ms)]
        others_may = in_sync != {state.me} and len(state.peers) >= self._min_in_sync
        return others_may and len(heard) + 1 < self._min_in_sync

    def _repeat_lost_changes(self) -> None:
        state = self._state
        if state.now_ms - self._change_asked_ms >= state.timing.row_ms:
            self._repeat_change()
        if self._hand_over is not None:
            state.actions.append(ChangeRow(self._hand_over))

    def leave(self, asked: TransferAsked) -> None:
        """Hand the shard over to an in-sync member as soon as one that answers has everything. To
        a named one only where it is in sync and answers, and the database does: else nothing
        changes."""
        is_under_way = self._leaving is not None
        if asked.to is not None:
            named = [each for each in self._successors() if each.node == asked.to]
            is_away = self._state.database_since_ms is None
            if is_under_way or is_away or self.phase is not Phase.SERVING or not named:
                return
        self._leaving = asked  # a stop outweighs what an operator has asked for
        if not is_under_way:
            self._leaving_ms = self._state.now_ms
            if self.phase is Phase.SERVING:
                self._state.actions.append(TakeNoMore())
            self._hand_over_if_possible(asked)

    def takes_no_more(self) -> None:
        """Whatever was given a place is known: the shard goes on once a member has it."""
        self._takes_no_more = True
        if self._leaving is not None:
            self._hand_over_if_possible(self._leaving)

    def _successors(self) -> list[Member]:
        """The other members of the set that answer."""
        connected = {view.member for view in self._followers.connected()}
        return sorted((self._in_sync.in_sync - {self._state.me}) & connected)

    def resign(self, reason: str) -> None:
        """R8: what leading needs is not there. Name another member, if there is one, and end at
        once, whatever becomes of that: every member has all that is confirmed. One that answers is
        named before one that may be gone, and that before one whose node has said that it stops."""
        state = self._state
        others = state.not_stopped(self._in_sync.in_sync - {state.me})
        named = set(self._successors()) or others & self._promised or others
        best = max(map(self._followers.fitness_of, named), default=0)
        fit = [each for each in named if self._followers.fitness_of(each) == best]
        to = next_member(fit, state.me)
        if to is not None and self._hand_over is None:
            state.actions.append(ChangeRow(HandOver(self.term, to.node)))
        self.over = reason

    def _hand_over_if_possible(self, asked: TransferAsked) -> None:
        state, end = self._state, self._confirmation.end
        if self._hand_over is not None:
            return
        is_late = state.now_ms - self._leaving_ms >= state.timing.hand_over_ms
        if asked.to is not None and is_late:
            self.over = f"{asked.to} did not take over in time"
            return
        if self.phase is Phase.SERVING and not self._takes_no_more:
            return
        if not self._in_sync.is_settled or self._confirmation.high_watermark < end:
            return
        have_all = [
            member
            for member in self._successors()
            if self._followers.ends_of(member).written >= end and asked.to in {None, member.node}
        ]
        if have_all:
            best = max(have_all, key=self._followers.fitness_and_ends_of)
            self._hand_over = HandOver(self.term, best.node, asked.by)
            state.actions.append(ChangeRow(self._hand_over))
