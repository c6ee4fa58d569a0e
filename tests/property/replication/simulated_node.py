"""One node of a simulated shard: the machine of a replica, with its disk and what it writes."""

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from app.cluster.replication.confirmation import LogEnd
from app.cluster.replication.events import (
    Action,
    Alarm,
    Appended,
    AppendTermStart,
    BeginAnew,
    CannotLead,
    ChangeRow,
    ClockSeen,
    CutLog,
    DatabaseAway,
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
    RoomSeen,
    RowChanged,
    RowSeen,
    Send,
    SendBlocks,
    Serve,
    StepDown,
    SyncLog,
    TakeNoMore,
    TakesNoMore,
    Tick,
    UncleanJudged,
    WriteBlocks,
)
from app.cluster.replication.leader import Leader
from app.cluster.replication.messages import Blocks, Ends, Hello, Message, Watermark
from app.cluster.replication.replica import Replica
from app.cluster.replication.replica_state import METADATA_REGRESSED, ReplicaState, Timing
from app.cluster.replication.shard_row import HandOver, RowChange, ShardRow
from app.cluster.replication.terms import Member, Term, TermStart, cut_history
from tests.property.replication.judge import Outcome, Violation
from tests.property.replication.simulated_parts import (
    NO_ANSWER_MS,
    Joined,
    SimBlock,
    SimDisk,
)

if TYPE_CHECKING:
    from tests.property.replication.simulated_shard import SimulatedShard

TIMING = Timing(
    lease_ms=2_000,
    replica_timeout_ms=1_200,
    fence_ms=400,
    ask_ms=120,
    row_ms=400,
    rest_ms=6_000,
    clock_ms=900,
)
BEAT_MS = 1_000
BLOCK_BYTES = 100
TERM_START_BYTES = 10
PAUSE_MS = 500
"""Of a process that lacked something."""
WAIT_MS = 400
"""A client waits so long for the confirmation of what it has sent."""


class Node:
    """One process with its disk."""

    def __init__(self, name: str, shard: "SimulatedShard") -> None:
        self.name = name
        self._shard = shard
        self._random = shard.random
        self.disk = SimDisk(self._random.getrandbits(40))
        self.clock_ahead_ms = (shard.seed + ord(name)) % 3 * 10_000
        """Of this node's clock: only the database's is common to all."""
        self.replica: Replica | None = None
        self.life = 0
        """Rises with each start and end: what was asked for in another life does not happen."""
        self.paused_until_ms = 0
        self.lacks_until_ms = 0
        """It cannot carry out an action of the kind `lacking` before: its disk is full, or its
        broker does not begin."""
        self.lacking: type[Action] = Serve
        self.full_until_ms = 0
        """Its disk takes no messages of clients before."""
        self.clock_off_until_ms = 0
        """Its clock is apart from the database's before."""
        self.no_database_until_ms = 0
        """It does not reach the database before, whoever else does."""
        self._could_not_lead_ms: int | None = None
        self._waiting: dict[int, str] = {}
        """End of a block that is not confirmed yet → what its client has sent."""
        self._writes: deque[SimBlock] = deque()
        self._is_writing = False
        self._incoming: dict[tuple[int, int], tuple[Term, list[SimBlock]]] = {}
        self._shown = 0
        self._knows_of_room: bool | None = None
        self.takes_no_more = False
        self._is_leaving = self._is_giving_up = False
        """Whether it was told to take no more, and whether it has named another node before: then
        it lacks something, and goes on until the row has that."""
        self.alarms: set[str] = set()
        self.judgements: list[UncleanJudged] = []
        self.made_anew = self.begun_anew = 0
        self._joined = Joined()
        """As it was heard of at the start."""
        self._tells_more = False
        """Whether what is being carried out writes or syncs the log: its ends come behind that."""
        self._said: tuple[str, Ends | None, int] = ("", None, 0)
        """To which node, what, and when: of ends."""

    outcome_of_a_time_out = Outcome.UNKNOWN

    @property
    def member(self) -> Member:
        return Member(self.name, self.disk.incarnation)

    @property
    def has_room(self) -> bool:
        return self._shard.schedule.now_ms >= self.full_until_ms

    @property
    def is_clock_off(self) -> bool:
        return self._shard.schedule.now_ms < self.clock_off_until_ms

    @property
    def clock_ms(self) -> int:
        """As the machine of this node is told."""
        return self._shard.schedule.now_ms + self.clock_ahead_ms

    @property
    def assigned(self) -> int:
        return self._writes[-1].end if self._writes else self.disk.written

    # --- life

    def start(self) -> None:
        """Once the database has said who the others are."""
        joined = self._shard.join(self.member)
        if joined is None:
            self._shard.schedule.after(300, lambda: self._shard.start(self))
            return
        self._joined = joined
        disk = self.disk
        self._knows_of_room = None
        self.life += 1
        disk.history = cut_history(disk.history, disk.written)
        disk.flushed = disk.written  # an opening syncs the log
        disk.high_watermark = min(disk.high_watermark, disk.written)
        state = ReplicaState(
            me=self.member,
            timing=TIMING,
            new_grant=lambda: self._random.getrandbits(48),
            peers=tuple(each.node for each in joined.members if each.node != self.name),
            promise=disk.promise,
            history=disk.history,
            end=LogEnd(disk.written, disk.flushed),
            high_watermark=disk.high_watermark,
            log_start=disk.start,
            now_ms=self.clock_ms,
            could_not_lead_ms=self._could_not_lead_ms,
            clock_off_since_ms=self.clock_ms if self.is_clock_off else None,
        )
        self.replica = Replica(state)
        self._shown = disk.high_watermark
        self._writes.clear()
        self._incoming.clear()
        self._waiting.clear()
        self._is_writing = self.takes_no_more = self._is_leaving = self._is_giving_up = False
        self._said = ("", None, 0)
        self._tick(self.life)
        if self._shard.joins_ms:
            self._later(self._random.randint(0, BEAT_MS), self._beat)

    def _make_anew(self) -> None:
        """What it has shown is told to be lost; the log stays, to be cut."""
        self.made_anew += 1
        self.disk.high_watermark = 0
        self.disk.incarnation = self._random.getrandbits(40)
        self.stop()
        self.start()

    def _begin_anew(self, action: BeginAnew) -> None:
        """What comes next is deleted everywhere."""
        self.begun_anew += 1
        if self.member in self._shard.database.row.in_sync:
            raise Violation(f"{self.name} is in sync, and needs what the leader has deleted")
        self.disk.begin(action.start, action.history)
        self.disk.incarnation = self._random.getrandbits(40)
        self.stop()
        self.start()

    @property
    def expirable(self) -> int:
        """Up to here no replica in sync needs the log that this one leads."""
        return min(self._shown, self.disk.flushed)

    def expire(self, *, is_all: bool = False) -> None:
        """As retention does on a leader: some of what is confirmed and synced goes, or all."""
        replica, disk = self.replica, self.disk
        if replica is None or not replica.is_serving:
            return
        ends = [block.end for block in disk.blocks if block.end <= self.expirable]
        if ends:
            disk.delete_below(max(ends) if is_all else self._random.choice(ends))

    def _beat(self) -> None:
        """Another one has joined: begin anew, with it. Of an older copy nothing is taken over."""
        database = self._shard.database
        if not database.is_away and database.joined.version > self._joined.version:
            self.stop()
            self.start()
        else:
            self._later(BEAT_MS, self._beat)

    def stop(self, *, is_process: bool = True) -> None:
        """`is_process`: what it has in memory is gone."""
        self.life += 1
        if is_process:
            self._could_not_lead_ms = None
        self.replica = None
        for other in self._shard.nodes:
            if other != self.name:
                self._shard.network.break_pair(self.name, other, self._random.randint(0, 50))

    def _tick(self, life: int) -> None:
        if self.life == life:
            if self.has_room != self._knows_of_room:
                self._knows_of_room = self.has_room
                self.give(RoomSeen(self.has_room))
            replica = self.replica
            if replica is not None and self.is_clock_off != replica.state.is_clock_off:
                self.give(ClockSeen(self.is_clock_off))
            self.give(Tick())
            self._later(TIMING.tick_ms, lambda: self._tick(life))

    def _later(self, delay_ms: int, happen: Callable[[], object]) -> None:
        life = self.life

        def wake() -> None:
            if self.life != life:
                return
            wait_ms = self.paused_until_ms - self._shard.schedule.now_ms
            if wait_ms > 0:
                self._shard.schedule.after(wait_ms, wake)
            else:
                happen()

        self._shard.schedule.after(delay_ms, wake)

    def receive(self, sender: str, message: object) -> None:
        """Also while it is paused: then later, in order."""
        self._later(0, lambda: self._received(sender, message))

    def _received(self, sender: str, message: object) -> None:
        if isinstance(message, tuple):
            blocks, payload = message
            assert isinstance(blocks, Blocks)
            self._incoming[blocks.start, blocks.end] = blocks.term, payload
            message = blocks
        if isinstance(message, Hello) and self.replica is not None and self.replica.leader:
            self.give(LogBegins(self.disk.start))
        self.give(Received(sender, message))  # type: ignore[arg-type]

    def disconnected(self, other: str) -> None:
        self._later(0, lambda: self.give(Disconnected(other)))

    # --- the state machine

    def give(self, event: Event) -> None:
        if self.replica is None:
            return
        life = self.life
        self._shard.note(self.name, event)
        actions = self.replica.handle(event, self.clock_ms)
        self._tells_more = any(isinstance(each, SyncLog | WriteBlocks) for each in actions)
        for action in actions:
            if self.life != life:
                return  # it was killed between two actions
            if self._lacks(action):
                return
            self._carry_out(action)
            if self._random.random() < self._shard.kills_between_actions:
                loses_power = self._random.random() < 0.3 and not self._shard.forgets
                self._shard.kill(self, loses_power=loses_power)

    def _lacks(self, action: Action) -> bool:
        """As the driver does: give the row away, pause, and go on as after a kill."""
        replica, shard = self.replica, self._shard
        if shard.schedule.now_ms >= self.lacks_until_ms or not isinstance(action, self.lacking):
            return False
        assert replica is not None
        if replica.leader is not None:
            for action in replica.handle(CannotLead("no room"), self.clock_ms):
                if isinstance(action, ChangeRow):
                    self._ask(action.change)
        self._could_not_lead_ms = replica.state.could_not_lead_ms
        self.stop(is_process=False)
        shard.schedule.after(PAUSE_MS, lambda: shard.start(self))
        return True

    def _carry_out(self, action: Action) -> None:  # noqa: C901 - one line for each action
        shard, disk = self._shard, self.disk
        match action:
            case Send(node, message):
                self._send(node, message)
            case SendBlocks():
                self._send_blocks(action)
            case ReadRow():
                self._ask(None)
            case ChangeRow(change):
                self._ask(change)
            case KeepPromise(promise):
                disk.promise = promise
            case KeepHistory(history):
                disk.history = history
            case WriteBlocks(start, end):
                term, blocks = self._incoming.pop((start, end))
                shard.judge.takes(self.name, term, disk.promise)
                self._writes.extend(blocks)
                self._write()
            case SyncLog():
                self._sync()
            case CutLog(end):
                self._cut(end)
            case AppendTermStart(term):
                self._append(TERM_START_BYTES, wants_sync=True, value=None, term=term)
            case MoveWatermark(high_watermark):
                self._show(high_watermark)
            case Serve(term):
                shard.judge.serves(self.name, term)
            case StepDown(reason):
                self._end_term(reason)
            case TakeNoMore():
                self._is_leaving = True
                role = None if self.replica is None else self.replica.leader
                self._later(self._random.randint(0, 4), lambda: self._take_no_more(role))
            case UncleanJudged():
                self.judgements.append(action)
            case MakeAnew():
                self._make_anew()
            case BeginAnew():
                self._begin_anew(action)
            case DeleteBelow(start):
                disk.delete_below(min(start, self._shown, disk.flushed))
            case Alarm(code, _):
                self.alarms.add(code)
                if code != METADATA_REGRESSED:
                    raise Violation(f"{self.name}: {action}")

    def _take_no_more(self, role: Leader | None) -> None:
        """Some time after it was told so, if that term goes on: what is taken until then counts."""
        if self.replica is None or self.replica.leader is not role:
            return
        self.takes_no_more = True
        self.give(TakesNoMore())

    def _end_term(self, reason: str) -> None:
        """Whoever waits is told that the outcome is unknown: nobody behind an orderly hand-over."""
        is_orderly = self._is_leaving and not self._is_giving_up and reason == "handed over"
        if is_orderly and self._waiting:
            raise Violation(f"{self.name} hands over, and {self._waiting} are unknown")
        self.takes_no_more = self._is_leaving = self._is_giving_up = False
        self._waiting.clear()

    def _send(self, node: str, message: Message) -> None:
        if isinstance(message, Ends):
            self._shard.judge.takes(self.name, message.term, self.disk.promise)
            if self._shard.says_news_only and not self._is_news(node, message):
                return
        elif isinstance(message, Watermark):  # as the driver does
            message = replace(message, log_start=self.disk.start)
        self._shard.network.send(self.name, node, message)

    def _is_news(self, node: str, ends: Ends) -> bool:
        """As the driver judges it."""
        if self._tells_more:
            return False
        before, self._said = self._said, (node, ends, self.clock_ms)
        if before[:2] == (node, ends) and self.clock_ms - before[2] < TIMING.repeat_ms:
            self._said = before
            return False
        return True

    def _ask(self, change: RowChange | None) -> None:
        self._is_giving_up |= isinstance(change, HandOver) and not self._is_leaving
        asked_ms = self.clock_ms
        if self._shard.schedule.now_ms < self.no_database_until_ms:
            self._later(NO_ANSWER_MS, lambda: self.give(DatabaseAway(change)))
            return

        def answer(row: ShardRow | None, is_done: bool, left_ms: int) -> None:
            event: Event
            if row is None:
                event = DatabaseAway(change)
            elif change is None:
                event = RowSeen(row, left_ms, asked_ms)
            else:
                event = RowChanged(change, row, is_done, asked_ms)
            self._later(0, lambda: self.give(event))

        life = self.life
        self._shard.database.ask(
            change, lambda *answered: answer(*answered) if self.life == life else None
        )

    # --- the log

    def send_value(self, value: str, *, wants_sync: bool) -> bool:
        """As a client: whether this node takes it. One that is frozen may, when it wakes."""
        replica = self.replica
        is_frozen = self._shard.schedule.now_ms < self.paused_until_ms
        if is_frozen and self._shard.holds_requests and replica is not None:
            self._later(0, lambda: self.send_value(value, wants_sync=wants_sync))
            return True
        if replica is None or not replica.is_serving or self.takes_no_more or not self.has_room:
            return False
        leader = replica.leader
        assert leader is not None
        end = self.assigned + BLOCK_BYTES
        self._waiting[end] = value
        self._later(WAIT_MS, lambda: self._wait_no_more(end, value))
        self._append(BLOCK_BYTES, wants_sync=wants_sync, value=value, term=leader.term)
        return True

    def _wait_no_more(self, end: int, value: str) -> None:
        """Its block may be confirmed yet."""
        if self._waiting.get(end) == value:
            del self._waiting[end]
            self._shard.judge.is_told(value, self.outcome_of_a_time_out)

    def _append(self, size: int, *, wants_sync: bool, value: str | None, term: Term) -> None:
        start = self.assigned
        block = SimBlock(start, start + size, wants_sync, value, term)
        self._writes.append(block)
        term_start = None if value is not None else TermStart(term, start)
        life = self.life
        self.give(Appended(block.end, wants_sync, term_start))
        if self.life == life:
            self._write()

    def _write(self) -> None:
        if not self._is_writing and self._writes:
            self._is_writing = True
            self._later(self._random.randint(0, 4), self._written)

    def _written(self) -> None:
        self._is_writing = False
        count = self._random.randint(1, max(1, len(self._writes)))
        wants_sync = False
        for _ in range(min(count, len(self._writes))):
            block = self._writes.popleft()
            assert block.start == self.disk.written, "a block stands at its place"
            self.disk.blocks.append(block)
            wants_sync |= block.wants_sync
        self._write()
        self._say_ends()
        replica = self.replica
        if wants_sync and replica is not None and replica.leader is not None:
            self._sync()

    def _sync(self) -> None:
        end = self.disk.written

        def synced() -> None:
            self.disk.flushed = max(self.disk.flushed, min(end, self.disk.written))
            self._say_ends()

        self._later(self._random.randint(1, self._shard.sync_ms), synced)

    def _say_ends(self) -> None:
        self.give(LogEnds(self.disk.written, self.disk.flushed))

    def _cut(self, end: int) -> None:
        while self._writes and self._writes[-1].end > end:
            self._writes.pop()
        if self.disk.written > end:
            if end < self._shown:
                raise Violation(f"{self.name} cuts at {end} what it showed up to {self._shown}")
            self.disk.cut(end)

    def _send_blocks(self, action: SendBlocks) -> None:
        assert self.replica is not None
        leader = self.replica.leader
        if leader is None:
            return
        if action.start < self.disk.start:
            self._shard.network.break_pair(self.name, action.node)
            return
        blocks = [each for each in self.disk.blocks if action.start <= each.start < action.end]
        while blocks:
            count = self._random.randint(1, len(blocks))
            part, blocks = blocks[:count], blocks[count:]
            starts = tuple(TermStart(each.term, each.start) for each in part if each.value is None)
            message = Blocks(
                action.session,
                leader.term,
                part[0].start,
                part[-1].end,
                starts,
                action.sync_to,
                action.high_watermark,
            )
            self._shard.network.send(self.name, action.node, (message, part))

    def _show(self, high_watermark: int) -> None:
        for end in [end for end in self._waiting if end <= high_watermark]:
            del self._waiting[end]  # its client is told that it is stored
        shown = self._shown
        if high_watermark <= shown:
            raise Violation(f"{self.name}: the watermark goes from {shown} to {high_watermark}")
        for block in self.disk.blocks:
            if shown < block.end <= high_watermark:
                self._shard.judge.shown(self.name, block)
                shown = block.end
        if shown != high_watermark:
            raise Violation(f"{self.name} shows {high_watermark}, inside of a block or beyond")
        self._shown = shown
        if self._random.random() < 0.2:
            self.disk.high_watermark = min(shown, self.disk.flushed)
