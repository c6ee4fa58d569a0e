"""A replica that follows: it takes blocks at their places and shows what is confirmed. Pure."""

from dataclasses import dataclass

from app.cluster.replication.confirmation import LogEnd
from app.cluster.replication.events import (
    Action,
    BeginAnew,
    CutLog,
    DeleteBelow,
    MakeAnew,
    MoveWatermark,
    Send,
    SyncLog,
    WriteBlocks,
)
from app.cluster.replication.messages import Blocks, Ends, Hello, Watermark, Welcome
from app.cluster.replication.replica_state import ReplicaState
from app.cluster.replication.terms import Term, cut_history

CUT_BELOW_WATERMARK = "CUT_BELOW_WATERMARK"


@dataclass(slots=True)
class _Connection:
    node: str
    session: int
    greeted_ms: int
    term: Term | None = None
    """Set by the leader's welcome."""
    received: int = 0
    """The end of what has come, written or not."""
    high_watermark: int = 0
    """As the leader said it; what is not written yet waits for `LogEnds`."""
    sync_to: int = 0
    synced_to: int = 0
    """The end for which a sync was asked for last."""
    has_all_shown: bool = False
    """Whether all is written here that was confirmed when it was made, or a while later."""


class Follower:
    """One per time of following."""

    def __init__(self, state: ReplicaState, first_session: int) -> None:
        self._state = state
        self._connection: _Connection | None = None
        self.session = first_session
        self._stopped: str | None = None
        """Why it takes nothing any more."""

    # --- the connection

    def tick(self) -> None:
        """Greet the leader that the row names, or that was promised to last."""
        state, node = self._state, self._leader_node()
        if self._stopped is not None:
            state.alarm(CUT_BELOW_WATERMARK, self._stopped)
            return
        if node is None or state.is_broken:
            return
        connection = self._connection
        is_silent = state.now_ms - state.heard_leader_ms >= state.timing.ask_ms
        if connection is not None and connection.node == node:
            is_young = state.now_ms - connection.greeted_ms < state.timing.ask_ms
            if is_young or (connection.term is not None and not self._is_dead(is_silent)):
                return
        self._greet(node)

    @property
    def is_current(self) -> bool:
        """Whether a leader was heard within a lease that counts this replica as in sync, and all
        is here that anybody has been shown before this connection was made."""
        connection, state = self._connection, self._state
        return (
            connection is not None
            and connection.term == state.promise.term
            and connection.has_all_shown
            and state.is_in_sync
            and state.has_watermark_of_term
            and state.now_ms - state.heard_leader_ms < state.timing.lease_ms
        )

    def _is_dead(self, is_silent: bool) -> bool:
        """A leader gives a sign of life each `sign_ms`; three that are missing end a connection."""
        state = self._state
        silence = state.now_ms - state.heard_leader_ms
        return is_silent and silence > state.timing.silence_ms

    def _leader_node(self) -> str | None:
        state = self._state
        heard, row = state.leader_heard, state.row
        if heard is not None and (row is None or row.term.epoch <= heard[1].epoch):
            return heard[0]
        return None if row is None or row.leader is None else row.leader.node

    def _greet(self, node: str) -> None:
        state = self._state
        if node == state.me.node:
            return
        self.session += 1
        self._connection = _Connection(node, self.session, state.now_ms)
        history = cut_history(state.history, state.end.written)
        hello = Hello(self.session, state.me, state.promise, history, state.end.written)
        state.actions.append(Send(node, hello))

    def disconnected(self, node: str) -> None:
        """What was on its way may be lost; the next tick greets again."""
        if self._connection is not None and self._connection.node == node:
            self._connection = None

    def _current(self, node: str, session: int) -> _Connection | None:
        connection = self._connection
        if connection is None or connection.node != node or connection.session != session:
            return None
        return connection

    # --- what the leader says

    def welcome(self, node: str, message: Welcome) -> None:
        """The leader has compared the histories: cut what it does not have, then follow."""
        connection, state = self._current(node, message.session), self._state
        if connection is None or connection.term is not None or not self._accepts(message.term):
            return
        if message.cut_to < state.high_watermark:
            row = state.row
            if row is None or row.term.epoch < message.term.epoch:
                return  # it greets again, until the row says whether a loss was told
            self._cannot_cut(node, message, is_told=row.loss_epoch > state.log_term.epoch)
            return
        row = state.row
        is_loss = row is not None and row.loss_epoch > state.log_term.epoch
        if message.begins_at > message.cut_to:
            if state.log_start <= message.cut_to < state.end.written:
                state.actions.append(CutLog(message.cut_to, is_loss))  # which is kept
            reason = (
                f"the log of {node} begins at {message.begins_at}, and this one has it up to"
                f" {message.cut_to}"
            )
            state.actions.append(BeginAnew(message.begins_at, message.history, reason))
            return
        state.promise_term(message.term)
        state.note_in_sync(message.in_sync_version, message.in_sync)
        state.heard_leader_ms = state.now_ms
        if message.cut_to < max(state.end.written, state.given_to_log):
            state.given_to_log = message.cut_to
            row = state.row
            state.actions.append(CutLog(message.cut_to, is_loss))
            state.keep_history(cut_history(state.history, message.cut_to))
            state.end = LogEnd(message.cut_to, min(state.end.flushed, message.cut_to))
        connection.term = message.term
        connection.received = message.cut_to
        self._heard_watermark(connection, message.high_watermark)
        self._say_ends(connection)

    def _cannot_cut(self, node: str, message: Welcome, *, is_told: bool) -> None:
        """The leader lacks what was confirmed here. Where that loss was told (`is_told`) what was
        made of the log is thrown away; the log stays, if any of it is the leader's, too. Else it
        is all given up, and this replica begins where the leader's log does. A leader that has all
        from 0 on, or from before `cut_to`, says 0; it is greeted again from there."""
        state, cut_to = self._state, message.cut_to
        if is_told and cut_to >= state.log_start:
            state.actions.append(MakeAnew(f"{node} leads since a loss that was told"))
        elif is_told:
            reason = (
                f"{node} leads since a loss that was told, and has the log only up to {cut_to};"
                f" this one begins at {state.log_start}"
            )
            anew = BeginAnew(message.begins_at, message.history, reason, is_loss=True)
            state.actions.append(anew)
        else:
            self._stopped = (
                f"{node} has the log only up to {cut_to}, and up to {state.high_watermark} it was"
                " confirmed"
            )
            state.alarm(CUT_BELOW_WATERMARK, self._stopped)

    def _accepts(self, term: Term) -> bool:
        return not self._state.promise.term.excludes(term)

    def blocks(self, node: str, message: Blocks) -> bool:
        """Take blocks; False: they are not what comes next, and nothing was taken."""
        connection, state = self._current(node, message.session), self._state
        if connection is None or connection.term != message.term:
            return False
        if not self._accepts(message.term) or state.is_broken:
            return False
        if message.start != connection.received:
            self._connection = None
            return False
        state.heard_leader_ms = state.now_ms
        if message.term_starts:
            state.keep_history((*state.history, *message.term_starts))
        state.actions.append(WriteBlocks(message.start, message.end))
        state.given_to_log = message.end
        connection.received = message.end
        connection.sync_to = max(connection.sync_to, message.sync_to)
        self._heard_watermark(connection, message.high_watermark)
        return True

    def watermark(self, node: str, message: Watermark) -> None:
        """The sign of life, with the in-sync set to note."""
        connection, state = self._current(node, message.session), self._state
        if connection is None or connection.term != message.term:
            return
        if not self._accepts(message.term):
            return
        state.heard_leader_ms = state.now_ms
        state.promise_term(message.term)
        state.note_in_sync(message.in_sync_version, message.in_sync)
        connection.sync_to = max(connection.sync_to, message.sync_to)
        self._heard_watermark(connection, message.high_watermark)
        if message.log_start > state.log_start:
            state.log_start = message.log_start
            state.actions.append(DeleteBelow(message.log_start))
        self._sync(connection)
        self._say_ends(connection)

    # --- the own log

    def log_ends(self) -> None:
        """The own log is written or synced further."""
        connection = self._connection
        if connection is not None and connection.term is not None:
            self._heard_watermark(connection, connection.high_watermark)
            self._sync(connection)
            self._say_ends(connection)

    def _heard_watermark(self, connection: _Connection, high_watermark: int) -> None:
        connection.high_watermark = max(connection.high_watermark, high_watermark)
        state = self._state
        state.heard_end = max(state.heard_end, high_watermark)
        shown = min(connection.high_watermark, state.end.written)
        connection.has_all_shown |= shown == connection.high_watermark
        if shown > state.high_watermark:
            state.high_watermark = shown
            state.actions.append(MoveWatermark(shown))

    def _sync(self, connection: _Connection) -> None:
        state = self._state
        needed = min(connection.sync_to, state.end.written)
        if needed > max(state.end.flushed, connection.synced_to):
            connection.synced_to = needed
            state.actions.append(SyncLog())

    def _say_ends(self, connection: _Connection) -> None:
        state = self._state
        assert connection.term is not None
        if not self._accepts(connection.term):
            self._connection = None
            return
        action: Action = Send(
            connection.node,
            Ends(
                connection.session,
                connection.term,
                min(state.end.written, connection.received),
                min(state.end.flushed, connection.received),
                state.promise.in_sync_version,
                state.would_rest,
                state.has_room,
                state.is_clock_off,
            ),
        )
        state.actions.append(action)
