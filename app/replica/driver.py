"""Carries out what the machine of a replica says, in the order in which it says it.

Events come from the connections, the database, the node's own writer and a timer; what comes of an
action is a further event. Blocks that came are checked before the machine hears of them. Promise
and history are on the medium before any later action.

Where more blocks are here already, a sync waits for them: one brings all of them to the medium.

An action that lacks something (`app.domain.shortages`) ends its turn: what would have followed is
not done, connections are closed, and after a pause the machine is made anew of what is kept. For
the machine that is a kill, which may come between any two actions. A fault of the log makes the
replica one that neither follows nor leads; one of the small files ends it.

One thread, which may wait for the disk; not the event loop.
"""

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from app.cluster.replication.confirmation import LogEnd
from app.cluster.replication.events import (
    Action,
    Alarm,
    AppendTermStart,
    BeginAnew,
    CannotLead,
    ChangeRow,
    ClockSeen,
    CutLog,
    DeleteBelow,
    Disconnected,
    Event,
    KeepHistory,
    KeepPromise,
    LogBegins,
    LogEnds,
    MakeAnew,
    MoveWatermark,
    ReadRow,
    Received,
    Send,
    SendBlocks,
    Serve,
    StepDown,
    SyncFailed,
    SyncLog,
    TakeNoMore,
    Tick,
    UncleanJudged,
    WriteBlocks,
)
from app.cluster.replication.messages import Blocks, Ends, Hello, Message, Watermark, Welcome
from app.cluster.replication.replica import Replica
from app.cluster.replication.replica_state import ReplicaState, Timing
from app.cluster.replication.shard_row import ElectUnclean
from app.cluster.replication.terms import Member, TermStart, cut_history
from app.domain.limits import MIB
from app.domain.shortages import shortage_of
from app.replica.kept_terms import history_document, history_of, promise_document, promise_of
from app.replica.outgoing import Outgoing
from app.replica.ports import CutTail, Database, Peers, ReplicaOwner
from app.store.replica.block_reader import BlockReader
from app.store.replica.block_walk import BlockRange, BlocksRefused, BlocksUnreadable
from app.store.replica.incarnation import Incarnation
from app.store.replica.replica_files import ReplicaFiles
from app.store.replica.replica_log import (
    CheckedBlocks,
    CutBelowWatermark,
    KeptTail,
    ReplicaLog,
    ReplicaLogFailed,
)

_LOG: Final = logging.getLogger(__name__)

PAUSE_MS: Final = 1_000
"""Behind an action that lacked something."""

UNSYNCED_BYTES_MAX: Final = 16 * MIB
"""Of a follower's log, behind which a sync waits for nothing more."""

CLOCK_APART: Final = (
    "CLOCK_APART",
    "the clock is apart from the database's: this replica leads only where no other can",
)


def never_apart() -> bool:
    """Of a node whose clock nobody compares."""
    return False


def no_more() -> bool:
    """Of blocks that come one by one."""
    return False


@dataclass(frozen=True, slots=True)
class ReplicaParts:
    """What of the opened store, and of the node, one replica has."""

    node: str
    peer_nodes: tuple[str, ...]
    """The other nodes that have a replica of the shard."""
    timing: Timing
    log: ReplicaLog
    reader: BlockReader
    files: ReplicaFiles
    incarnation: Incarnation
    """Behind its `end_opening`."""
    high_watermark: int
    """As far as the checkpoint says that all was confirmed."""
    peers: Peers
    database: Database
    owner: ReplicaOwner
    now_ms: Callable[[], int]
    """Never goes back."""
    new_grant: Callable[[], int]
    first_number: int = 0
    """Above all numbers of drivers before this one, and of processes before this one."""
    could_not_lead_ms: int | None = None
    """When a driver before this one could not, for the last time."""
    is_clock_apart: Callable[[], bool] = never_apart
    """From the database's. Asked at each tick."""
    has_more_blocks: Callable[[], bool] = no_more
    """Whether blocks are here that `received` was not given yet."""


class ReplicaDriver:
    """From one opening of the store to the next."""

    def __init__(self, parts: ReplicaParts) -> None:
        """Raises `ReplicaFileDamaged` or `OSError`."""
        self.failed: str | None = None
        """Why this replica does nothing any more."""
        self.high_watermark = parts.high_watermark
        self._parts = parts
        self._log = parts.log
        self._events: deque[tuple[Event, CheckedBlocks | None]] = deque()
        self._is_busy = False
        self._said: tuple[str, Ends | None, int] = ("", None, 0)
        """To which node, what, and when: of ends."""
        self._incoming: CheckedBlocks | None = None
        self._is_owner_leading = False
        """From the election until `step_down` was called, whatever came of the actions between."""
        self._paused_until_ms = 0
        self._owes_sync = False
        """Whether a sync waits for more blocks to be written."""
        self._is_loss_to_tell = False
        """Whether what is being cut may have been confirmed; a cut may end behind a pause."""
        self._could_not_lead_ms = parts.could_not_lead_ms
        self._full_since_ms: int | None = None
        """As the machine before the pause knew it."""
        self._last_number = parts.first_number
        self._replica: Replica | None = self._new_replica()
        self._outgoing = Outgoing(parts.peers, parts.reader, self.history, self._log.check)

    @property
    def replica(self) -> Replica | None:
        """The machine; None while it is paused, and when it has failed."""
        return self._replica

    @property
    def could_not_lead_ms(self) -> int | None:
        """When leading lacked something for the last time: who is named then lets others try."""
        if self._replica is None:
            return self._could_not_lead_ms
        return self._replica.state.could_not_lead_ms

    @property
    def last_number(self) -> int:
        """The highest session or question that it has used."""
        return self._last_number if self._replica is None else self._replica.last_number

    def received(self, node: str, message: Message, data: bytes | memoryview = b"") -> None:
        """A message of another replica, with the bytes of its blocks beside it."""
        checked = None
        if isinstance(message, Blocks):
            try:
                checked = self._log.check(BlockRange(message.start, message.end, data))
            except BlocksRefused as error:
                self._parts.owner.alarm("BLOCKS_REFUSED", f"from {node}: {error}")
                self._close(node)
                self._run()
                return
        elif isinstance(message, Hello) and self._is_owner_leading:
            self._events.append((LogBegins(self._log.start), None))
        self._events.append((Received(node, message), checked))
        self._run()

    def give(self, event: Event) -> None:
        """Any other event."""
        if isinstance(event, LogEnds) and self._is_owner_leading:  # else it came late
            self._log.moved(event.written, event.flushed)
        self._events.append((event, None))
        self._run()

    def has_room(self, node: str) -> None:
        """The connection to a follower takes more blocks."""
        self._send_blocks(node)
        self._run()

    def lacks(self, reason: str) -> None:
        """What the owner needs to lead is not there: end as after an action that lacked it."""
        if self._replica is not None:
            self._pause(reason)

    def stop(self) -> None:
        """Bring all to the medium and say so. No event may follow. Raises `ReplicaLogFailed`.

        The owner has stopped its writer before, and given its last `LogEnds`.
        """
        self._replica = None
        self._log.sync(self._log.written)
        self._parts.incarnation.note_stop(self._log.written)

    # --- the machine

    def _run(self) -> None:
        """Take events in until there are none; one at a time, whoever calls."""
        if self._is_busy:
            return
        self._is_busy = True
        try:
            while self._events or self._is_sync_due():
                if self._events:
                    self._handle(*self._events.popleft())
                else:
                    self._is_done(SyncLog())
        finally:
            self._is_busy = False

    def _handle(self, event: Event, checked: CheckedBlocks | None) -> None:
        if self._replica is None:
            if isinstance(event, Tick):
                self._resume()
            return
        if isinstance(event, LogEnds):  # as they are by now: it may have been cut meanwhile
            event = LogEnds(self._log.written, self._log.flushed)
        elif isinstance(event, Disconnected):
            self._outgoing.forget(event.node)
        self._incoming = checked
        actions = self._replica.handle(event, self._parts.now_ms())
        self._is_owner_leading |= self._replica.leader is not None
        for action in actions:
            if not self._is_done(action):
                return
        if isinstance(event, Tick):
            self._ticked(self._replica)

    def _ticked(self, replica: Replica) -> None:
        """Go on with what waits, and tell again what lasts. The machine hears of a clock that is
        off, or right again (R12)."""
        for node in self._outgoing.nodes:
            self._send_blocks(node)
        if self._log.failed is not None:
            self._parts.owner.alarm("LOG_FAILED", self._log.failed)
        is_off = self._parts.is_clock_apart()
        if is_off != replica.state.is_clock_off:
            self._events.append((ClockSeen(is_off), None))
        if is_off:
            self._parts.owner.alarm(*CLOCK_APART)

    def _is_done(self, action: Action) -> bool:
        """Carry it out; False: it could not be, and nothing that follows may."""
        try:
            self._carry_out(action)
        except ReplicaLogFailed as error:
            self._parts.owner.alarm("LOG_FAILED", str(error))
            self._events.append((SyncFailed(), None))
            return False
        except CutBelowWatermark as error:
            self._end("CUT_BELOW_WATERMARK", str(error))
            return False
        except BlocksRefused as error:
            self._pause(str(error))
            return False
        except OSError as error:
            if shortage_of(error) is None:
                self._end("REPLICA_FAILED", f"{type(action).__name__}: {error}")
            else:
                self._pause(f"{type(action).__name__}: {error}")
            return False
        return self._replica is not None

    def _carry_out(self, action: Action) -> None:  # noqa: C901 - one line for each action
        parts, owner = self._parts, self._parts.owner
        match action:
            case Send(node, message):
                self._send(node, message)
            case SendBlocks():
                self._offer(action)
            case ReadRow():
                parts.database.read_row()
            case ChangeRow(change):
                if isinstance(change, ElectUnclean):
                    owner.accept_loss(change.term)
                parts.database.change_row(change)
            case KeepPromise(promise):
                parts.files.keep_promise(promise_document(promise))
            case KeepHistory(history):
                parts.files.keep_history(history_document(history))
            case WriteBlocks(start, end):
                self._write(start, end)
            case SyncLog():
                self._owes_sync = True
                if self._is_sync_due():
                    self._owes_sync = False
                    self._log.sync(self._log.written)
                    self._tell_ends()
            case CutLog(end, is_loss):
                self._cut(end, is_loss=is_loss)
            case DeleteBelow(start):
                owner.delete_below(start)
            case AppendTermStart(term):
                owner.append_term_start(term)
            case MoveWatermark(high_watermark):
                self.high_watermark = high_watermark
                owner.move_watermark(high_watermark)
            case Serve(term):
                owner.serve(term)
            case TakeNoMore():
                owner.take_no_more()
            case StepDown(reason):
                self._step_down(reason)
            case Alarm(code, detail):
                owner.alarm(code, detail)
            case UncleanJudged():
                owner.unclean_judged(action)
            case MakeAnew(reason):
                owner.make_anew(reason)
                self._leave_all(reason)
            case BeginAnew(start, history, reason, is_loss):
                self._log.check_begins(start)
                owner.begin_anew(start, history, reason)
                if is_loss:
                    first = self._log.start
                    owner.was_cut(CutTail(first, self._log.written - first, "", is_loss=True))
                self._leave_all(reason)

    # --- actions

    def _send(self, node: str, message: Message) -> None:
        if isinstance(message, Welcome):
            self._outgoing.forget(node)  # what was offered on a connection before this one
        elif isinstance(message, Watermark):  # the machine does not know what retention does
            message = replace(message, log_start=self._log.start)
        elif isinstance(message, Ends) and not self._is_news(node, message):
            return  # as if it were lost on the way, which the machine expects of any message
        self._parts.peers.send(node, message)

    def _is_news(self, node: str, ends: Ends) -> bool:
        """Whether the leader has to hear it: not where more is said behind what waits here, as
        behind a sync, nor where it was told the same a moment ago."""
        if any(isinstance(event, LogEnds) for event, _ in self._events):
            return False
        now_ms, before = self._parts.now_ms(), self._said
        if before[:2] == (node, ends) and now_ms - before[2] < self._parts.timing.repeat_ms:
            return False
        self._said = (node, ends, now_ms)
        return True

    def _offer(self, action: SendBlocks) -> None:
        leader = None if self._replica is None else self._replica.leader
        if leader is not None:
            self._outgoing.offer(action, leader.term)
            self._send_blocks(action.node)

    def _send_blocks(self, node: str) -> None:
        try:
            self._outgoing.send(node)
        except (BlocksUnreadable, BlocksRefused) as error:
            self._parts.owner.alarm("BLOCKS_UNREADABLE", str(error))
            at = error.at if isinstance(error, BlocksRefused) else self._outgoing.next_start(node)
            self._close(node)
            if at is not None and at < self.high_watermark:
                self._parts.owner.is_damaged(at)
        except OSError as error:
            if shortage_of(error) is None:
                self._parts.owner.alarm("BLOCKS_UNREADABLE", str(error))
                self._close(node)  # else the next tick goes on

    def _write(self, start: int, end: int) -> None:
        checked = self._incoming
        assert checked is not None
        assert (checked.blocks.start, checked.blocks.end) == (start, end)
        self._log.write(checked)
        self._tell_ends()

    def _is_sync_due(self) -> bool:
        """Whether a sync is owed that waits for nothing more. Who leads has another writer."""
        if not self._owes_sync or self._is_owner_leading or self._replica is None:
            return False
        is_much = self._log.written - self._log.flushed >= UNSYNCED_BYTES_MAX
        return is_much or not self._parts.has_more_blocks()

    def _cut(self, end: int, *, is_loss: bool) -> None:
        if end < self._log.written:
            self._parts.owner.before_cut()
        self._parts.incarnation.note_cut(end)
        self._is_loss_to_tell |= is_loss
        before = self._log.written
        self._tell_cut(before, self._log.cut(end, self.high_watermark))

    def _tell_cut(self, before: int, kept: KeptTail | None) -> None:
        """`before` is where the log ended; `kept` is None where nothing was cut."""
        end = self._log.written
        if kept is not None and end < before:
            tail = CutTail(end, before - end, kept.path, self._is_loss_to_tell)
            self._parts.owner.was_cut(tail)
        self._is_loss_to_tell = False

    def _tell_ends(self) -> None:
        self._events.append((LogEnds(self._log.written, self._log.flushed), None))

    def _step_down(self, reason: str) -> None:
        self._outgoing.forget_all()
        self._end_owner(reason)
        self._tell_ends()

    def _end_owner(self, reason: str) -> None:
        self._is_owner_leading = False
        self._log.moved(*self._parts.owner.step_down(reason))

    def _close(self, node: str) -> None:
        self._outgoing.forget(node)
        self._parts.peers.close(node)
        self._events.append((Disconnected(node), None))

    # --- shortages and faults

    def _pause(self, reason: str) -> None:
        """Do nothing for a while, then go on as after a kill."""
        self._parts.owner.alarm("REPLICA_PAUSED", reason)
        self._leave_all(reason)
        self._paused_until_ms = self._parts.now_ms() + PAUSE_MS

    def _end(self, code: str, reason: str) -> None:
        _LOG.error("the replica ends: %s", reason)
        self._parts.owner.alarm(code, reason)
        self.failed = reason
        self._leave_all(reason)

    def _leave_all(self, reason: str) -> None:
        self._resign(reason)
        self._owes_sync = False
        self._could_not_lead_ms, self._last_number = self.could_not_lead_ms, self.last_number
        if self._replica is not None:
            self._full_since_ms = self._replica.state.full_since_ms
        self._replica = None
        self._events.clear()
        self._outgoing.forget_all()
        if self._is_owner_leading:  # also when `StepDown` was among what is not done
            self._end_owner(reason)
        for node in self._parts.peer_nodes:
            self._parts.peers.close(node)

    def _resign(self, reason: str) -> None:
        """The row goes to another replica at once: that needs nothing of what is lacking here, and
        nothing else that the machine says is done any more."""
        replica = self._replica
        if replica is not None and replica.leader is not None:
            for action in replica.handle(CannotLead(reason), self._parts.now_ms()):
                if isinstance(action, ChangeRow):
                    self._parts.database.change_row(action.change)

    def _resume(self) -> None:
        if self.failed is not None or self._parts.now_ms() < self._paused_until_ms:
            return
        try:
            self._tell_cut(self._log.written, self._log.finish_cut())
            self._replica = self._new_replica()
        except ReplicaLogFailed as error:
            self._end("LOG_FAILED", str(error))
        except OSError as error:
            if shortage_of(error) is None:
                self._end("REPLICA_FAILED", str(error))
            else:
                self._pause(str(error))

    def _new_replica(self) -> Replica:
        """The machine, of what is kept. Terms whose blocks are not in the log never came to be."""
        parts, log = self._parts, self._log
        kept = history_of(parts.files.history())
        history = cut_history(kept, log.written)
        if history != kept:
            parts.files.keep_history(history_document(history))
        state = ReplicaState(
            me=Member(parts.node, parts.incarnation.number),
            timing=parts.timing,
            new_grant=parts.new_grant,
            peers=parts.peer_nodes,
            promise=promise_of(parts.files.promise()),
            history=history,
            end=LogEnd(log.written, log.flushed),
            high_watermark=min(self.high_watermark, log.written),
            log_start=log.start,
            now_ms=parts.now_ms(),
            first_number=self._last_number,
            could_not_lead_ms=self._could_not_lead_ms,
            has_room=None if self._full_since_ms is None else False,
            full_since_ms=self._full_since_ms,
            clock_off_since_ms=parts.now_ms() if parts.is_clock_apart() else None,
            is_broken=log.failed is not None,
        )
        return Replica(state)

    def history(self) -> tuple[TermStart, ...]:
        """Of the log; empty while it is paused."""
        return () if self._replica is None else self._replica.state.history
