"""A shard of several replicas in a simulated world, with faults, and a judge of what they show.

One seed gives one history. `Violation` is raised in the turn in which a promise breaks, with the
seed and the last lines of the history.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from random import Random

from app.cluster.replication.confirmation import LogEnd
from app.cluster.replication.events import (
    Action,
    Alarm,
    Appended,
    AppendTermStart,
    ChangeRow,
    CutLog,
    DatabaseAway,
    Disconnected,
    Event,
    KeepHistory,
    KeepPromise,
    LogEnds,
    MoveWatermark,
    ReadRow,
    Received,
    RowChanged,
    RowSeen,
    Send,
    SendBlocks,
    Serve,
    StepDown,
    SyncLog,
    TakeNoMore,
    Tick,
    TransferAsked,
    WriteBlocks,
)
from app.cluster.replication.messages import Blocks
from app.cluster.replication.replica import Replica
from app.cluster.replication.replica_state import METADATA_REGRESSED, ReplicaState, Timing
from app.cluster.replication.shard_row import ElectAfterLoss, RowChange, ShardRow
from app.cluster.replication.terms import Member, Term, TermStart, cut_history
from tests.property.replication.judge import Judge, Violation
from tests.property.replication.simulated_parts import (
    Joined,
    Schedule,
    SimBlock,
    SimDatabase,
    SimDisk,
    SimNetwork,
)

TIMING = Timing(lease_ms=2_000, replica_timeout_ms=1_200, fence_ms=400, ask_ms=120, row_ms=400)
BEAT_MS = 1_000
BLOCK_BYTES = 100
TERM_START_BYTES = 10


class Node:
    """One process with its disk."""

    def __init__(self, name: str, shard: "SimulatedShard") -> None:
        self.name = name
        self._shard = shard
        self._random = shard.random
        self.disk = SimDisk(self._random.getrandbits(40))
        self.replica: Replica | None = None
        self.life = 0
        """Rises with each start and end: what was asked for in another life does not happen."""
        self.paused_until_ms = 0
        self._writes: deque[SimBlock] = deque()
        self._is_writing = False
        self._incoming: dict[tuple[int, int], list[SimBlock]] = {}
        self._shown = 0
        self.takes_no_more = False
        self.alarms: set[str] = set()
        self._joined = Joined()
        """As it was heard of at the start."""

    @property
    def member(self) -> Member:
        return Member(self.name, self.disk.incarnation)

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
        disk, schedule = self.disk, self._shard.schedule
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
            now_ms=schedule.now_ms,
        )
        self.replica = Replica(state)
        self._shown = disk.high_watermark
        self._writes.clear()
        self._incoming.clear()
        self._is_writing = self.takes_no_more = False
        self._tick(self.life)
        if self._shard.joins_ms:
            self._later(self._random.randint(0, BEAT_MS), self._beat)

    def _beat(self) -> None:
        """Another one has joined: begin anew, with it. Of an older copy nothing is taken over."""
        database = self._shard.database
        if not database.is_away and database.joined.version > self._joined.version:
            self.stop()
            self.start()
        else:
            self._later(BEAT_MS, self._beat)

    def stop(self) -> None:
        self.life += 1
        self.replica = None
        for other in self._shard.nodes:
            if other != self.name:
                self._shard.network.break_pair(self.name, other, self._random.randint(0, 50))

    def _tick(self, life: int) -> None:
        if self.life == life:
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
            self._incoming[blocks.start, blocks.end] = payload
            message = blocks
        self.give(Received(sender, message))  # type: ignore[arg-type]

    def disconnected(self, other: str) -> None:
        self._later(0, lambda: self.give(Disconnected(other)))

    # --- the state machine

    def give(self, event: Event) -> None:
        if self.replica is None:
            return
        life = self.life
        self._shard.note(self.name, event)
        for action in self.replica.handle(event, self._shard.schedule.now_ms):
            if self.life != life:
                return  # it was killed between two actions
            self._carry_out(action)
            if self._random.random() < self._shard.kills_between_actions:
                loses_power = self._random.random() < 0.3 and not self._shard.forgets
                self._shard.kill(self, loses_power=loses_power)

    def _carry_out(self, action: Action) -> None:  # noqa: C901 - one line for each action
        shard, disk = self._shard, self.disk
        match action:
            case Send(node, message):
                shard.network.send(self.name, node, message)
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
                self._writes.extend(self._incoming.pop((start, end)))
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
            case StepDown():
                self.takes_no_more = False
            case TakeNoMore():
                self.takes_no_more = True
            case Alarm(code, _):
                self.alarms.add(code)
                if code != METADATA_REGRESSED and not shard.database.row.possible_loss:
                    raise Violation(f"{self.name}: {action}")

    def _ask(self, change: RowChange | None) -> None:
        asked_ms = self._shard.schedule.now_ms

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
        """As a client: whether this node takes it."""
        replica = self.replica
        if replica is None or not replica.is_serving or self.takes_no_more:
            return False
        leader = replica.leader
        assert leader is not None
        self._append(BLOCK_BYTES, wants_sync=wants_sync, value=value, term=leader.term)
        return True

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


class SimulatedShard:
    """Nodes, database, network, clients and faults of one seed."""

    def __init__(
        self,
        seed: int,
        *,
        replicas: int = 3,
        min_in_sync: int = 1,
        forgets: bool = False,
        days: "tuple[Day, ...]" = (),
        joins_ms: int = 0,
    ) -> None:
        """`forgets`: the database forgets what it has confirmed, where else disks lose something.
        The two together are more than is promised. `days`: the faults, other than the usual.
        `joins_ms`: the replicas join one by one, within that time; 0: at once, and before."""
        self.seed = seed
        self.forgets = forgets
        self.days = days or (FORGETFUL_DAYS if forgets else DAYS)
        self.random = Random(seed)
        self.schedule = Schedule()
        self.network = SimNetwork(self.schedule, self.random)
        self.network.deliver = self._deliver
        self.network.tell_break = lambda one, other: self.nodes[one].disconnected(other)
        self.judge = Judge()
        self.kills_between_actions = 0.0
        self.sync_ms = 8
        self._history: deque[str] = deque(maxlen=80)
        self._sent = 0
        self.nodes: dict[str, Node] = {}
        for name in "ABCDE"[:replicas]:
            self.nodes[name] = Node(name, self)
        self.joins_ms = joins_ms
        row = ShardRow(min_in_sync=min_in_sync, target_replicas=replicas)
        self.database = SimDatabase(self.schedule, self.random, row)
        self.database.on_change = self._row_changed
        if joins_ms:
            for node in self.nodes.values():
                self.schedule.after(self.random.randint(0, joins_ms), partial(self.start, node))
            return
        for node in self.nodes.values():
            self.database.join(node.member)
        for node in self.nodes.values():
            node.start()

    def join(self, member: Member) -> Joined | None:
        """Where replicas do not join one by one they know each other, and need no database."""
        if self.joins_ms:
            return self.database.join(member)
        return Joined(tuple(node.member for node in self.nodes.values()))

    def note(self, node: str, event: object) -> None:
        if not isinstance(event, Tick):
            self._history.append(f"{self.schedule.now_ms} {node} {event}")

    def history(self) -> str:
        return "\n".join(self._history)

    def _deliver(self, sender: str, receiver: str, message: object) -> None:
        self.nodes[receiver].receive(sender, message)

    def _row_changed(self, change: RowChange, before: ShardRow, after: ShardRow) -> None:
        del before, after
        if isinstance(change, ElectAfterLoss):
            self.judge.may_lose(self.nodes[change.candidate.node].disk.written)

    # --- clients

    def send(self) -> None:
        """One client's message to whoever serves, asking for the medium or not."""
        self._sent += 1
        names = list(self.nodes)
        self.random.shuffle(names)
        for name in names:
            wants_sync = self.random.random() < 0.4
            if self.nodes[name].send_value(f"m{self._sent}", wants_sync=wants_sync):
                return

    def load(self, until_ms: int) -> None:
        if self.schedule.now_ms < until_ms:
            self.send()
            self.schedule.after(self.random.randint(5, 120), lambda: self.load(until_ms))

    # --- faults

    def kill_process(self, node: Node, other: str) -> None:
        """As by SIGKILL: what was written stays."""
        del other
        self.kill(node, loses_power=False)

    def cut_power(self, node: Node, other: str) -> None:
        """What was not synced may be gone."""
        del other
        self.kill(node, loses_power=True)

    def kill(self, node: Node, *, loses_power: bool) -> None:
        """The process ends, and starts again some time later."""
        if node.replica is None:
            return
        node.stop()
        if loses_power:
            node.disk.lose_power(self.random)
        self.schedule.after(self.random.randint(50, 4_000), lambda: self.start(node))

    def start(self, node: Node) -> None:
        """If it does not run."""
        if node.replica is None:
            node.start()

    def empty_disk(self, node: Node, other: str) -> None:
        """A new disk under the old name, unless it has the only copy that the row knows."""
        del other
        others = [
            self.nodes[member.node]
            for member in self.database.row.in_sync
            if member.node != node.name
        ]
        if any(other.member in self.database.row.in_sync for other in others):
            node.stop()
            node.disk = SimDisk(self.random.getrandbits(40))
            self.schedule.after(self.random.randint(50, 3_000), lambda: self.start(node))

    def fault(self) -> None:
        """One of the bad days of this world."""
        node = self.random.choice(list(self.nodes.values()))
        other = self.random.choice([each for each in self.nodes if each != node.name])
        self.random.choice(self.days)(self, node, other)

    def partition(self, node: Node, other: str) -> None:
        """One way or both, for a while."""
        self.network.block(node.name, other)
        if self.random.random() < 0.5:
            self.network.block(other, node.name)
        self.schedule.after(self.random.randint(200, 5_000), self.network.heal)

    def pause(self, node: Node, other: str) -> None:
        """Frozen, as by SIGSTOP."""
        del other
        until_ms = self.schedule.now_ms + self.random.randint(100, 5_000)
        node.paused_until_ms = max(node.paused_until_ms, until_ms)

    def cut_connection(self, node: Node, other: str) -> None:
        """What is on its way is lost; from now on the network is fast or slow."""
        self.network.break_pair(node.name, other)
        self.network.delay_ms = self.random.choice([3, 30, 300])

    def take_database_away(self, node: Node, other: str) -> None:
        """For a while."""
        del node, other
        self.database.is_away = True
        self.schedule.after(self.random.randint(200, 6_000), self._database_returns)

    def lose_answers(self, node: Node, other: str) -> None:
        """Changes of the row are carried out or not, at once or late, and nobody is told."""
        del node, other
        self.database.lost_answers = self.random.choice([0.0, 0.3, 0.8])

    def transfer(self, node: Node, other: str) -> None:
        """An operator, or a stop in order."""
        del other
        node.give(TransferAsked())

    def slow_disks(self, node: Node, other: str) -> None:
        """Slow syncs, and processes that die between two actions."""
        del node, other
        self.kills_between_actions = self.random.choice([0.0, 0.0005])
        self.sync_ms = self.random.choice([8, 8, 80])

    def fail_database_over(self, node: Node, other: str) -> None:
        """To a standby that was behind by a few changes."""
        del node, other
        self.database.is_away = True

        def returns() -> None:
            self.database.forget(self.random.randint(1, 6))
            self.database.is_away = False

        self.schedule.after(self.random.randint(300, 3_000), returns)

    def restore_database(self, node: Node, other: str) -> None:
        """As an operator does, from a copy of any earlier day."""
        del node, other
        self.database.forget(self.random.randint(1, max(1, len(self.database.former))))

    def _database_returns(self) -> None:
        self.database.is_away = False

    def heal(self) -> None:
        """All faults end."""
        self.network.heal()
        self.database.is_away = False
        self.database.lost_answers = self.kills_between_actions = 0.0
        self.sync_ms = 8
        for node in self.nodes.values():
            self.start(node)

    # --- runs

    def run(self, faults: int = 12) -> None:
        """A history with faults, then calm. Raises `Violation`."""
        try:
            self._run(faults)
        except (Violation, AssertionError) as error:
            text = f"seed {self.seed}: {error}\n{self.history()}"
            raise Violation(text) from error

    def restore_row(self) -> None:
        """As an operator does where the database has forgotten and no leader lives: the newest
        that any replica has promised, in an epoch above all promises. Where none has noted a set,
        nothing was ever confirmed, and all are as good."""
        promises = [node.disk.promise for node in self.nodes.values()]
        newest = max(promises, key=lambda promise: promise.in_sync_version)
        all_of_them = frozenset(node.member for node in self.nodes.values())
        self.database.row = ShardRow(
            Term(max(promise.term.epoch for promise in promises) + 1, 0),
            None,
            newest.in_sync or all_of_them,
            newest.in_sync_version,
            newest.in_sync_version,
            min_in_sync=self.database.row.min_in_sync,
            target_replicas=self.database.row.target_replicas,
        )

    def operate(self) -> None:
        """What the alarms ask of an operator."""
        alarms = {alarm for node in self.nodes.values() for alarm in node.alarms}
        if METADATA_REGRESSED in alarms and not self._serving():
            self.restore_row()
        self.reset_replicas()
        self.restart_forgotten()

    def _serving(self) -> list[Node]:
        return [each for each in self.nodes.values() if each.replica and each.replica.is_serving]

    def reset_replicas(self) -> None:
        """As an operator does with a replica that has more than its leader after a told loss."""
        for node in self.nodes.values():
            if "CUT_BELOW_WATERMARK" in node.alarms:
                node.alarms.discard("CUT_BELOW_WATERMARK")
                node.stop()
                node.disk = SimDisk(self.random.getrandbits(40))
                node.start()

    def restart_forgotten(self) -> None:
        """As an operator does with those of which the database does not know that they joined."""
        for node in self.nodes.values():
            if self.joins_ms and node.name not in self.database.joined.names:
                node.stop()
                node.start()

    def _run(self, faults: int) -> None:
        end_ms = 3_000 + 1_500 * faults
        self.load(end_ms)
        for _ in range(faults):
            self.schedule.after(self.random.randint(2_500, end_ms), self.fault)
        self.schedule.run_until(end_ms)
        self.heal()
        self.schedule.run_until(end_ms + 8_000)
        self.operate()
        self.schedule.run_until(end_ms + 18_000)
        self.expect_service()

    def expect_service(self) -> None:
        """Behind all faults: one node serves, what is sent is confirmed, and all have it."""
        newest = max(self._serving(), key=lambda node: node.disk.promise.term, default=None)
        if newest is None:
            raise Violation("nobody serves though all faults are over")
        before = self.judge.end
        newest.send_value("last", wants_sync=True)
        self.schedule.run_until(self.schedule.now_ms + 3_000)
        if self.judge.end <= before:
            raise Violation("a message is not confirmed though all faults are over")
        if len(self.database.row.in_sync) != len(self.nodes):
            raise Violation(f"not all are in sync again: {self.database.row}")
        logs = {node.name: node.disk.blocks for node in self.nodes.values()}
        if any(log != newest.disk.blocks for log in logs.values()):
            ends = {name: log[-1].end for name, log in logs.items() if log}
            raise Violation(f"the replicas are not alike: {ends}")


Day = Callable[[SimulatedShard, Node, str], None]
"""A fault, of a node and another one."""

_ALWAYS: tuple[Day, ...] = (
    SimulatedShard.kill_process,
    SimulatedShard.kill_process,
    SimulatedShard.pause,
    SimulatedShard.partition,
    SimulatedShard.cut_connection,
    SimulatedShard.take_database_away,
    SimulatedShard.lose_answers,
    SimulatedShard.transfer,
    SimulatedShard.slow_disks,
)
DAYS: tuple[Day, ...] = (*_ALWAYS, SimulatedShard.cut_power, SimulatedShard.empty_disk)
FORGETFUL_DAYS: tuple[Day, ...] = (*_ALWAYS, SimulatedShard.fail_database_over)
DAYS_WITH_BACKUPS: tuple[Day, ...] = (*FORGETFUL_DAYS, SimulatedShard.restore_database)
