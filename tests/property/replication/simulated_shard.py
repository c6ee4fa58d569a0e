"""A shard of several replicas in a simulated world, with faults, and a judge of what they show.

One seed gives one history. `Violation` is raised in the turn in which a promise breaks, with the
seed and the last lines of the history.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from random import Random

from app.cluster.replication.events import (
    AppendTermStart,
    KeepPromise,
    Serve,
    Tick,
    TransferAsked,
    WriteBlocks,
)
from app.cluster.replication.replica_state import METADATA_REGRESSED
from app.cluster.replication.shard_row import ElectAfterLoss, ElectUnclean, RowChange, ShardRow
from app.cluster.replication.terms import Member, Term
from tests.property.replication.judge import Judge, Violation
from tests.property.replication.simulated_node import Node
from tests.property.replication.simulated_parts import (
    Joined,
    Schedule,
    SimDatabase,
    SimDisk,
    SimNetwork,
)


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
        holds_requests: bool = False,
        says_news_only: bool = False,
    ) -> None:
        """`forgets`: the database forgets what it has confirmed, where else disks lose something.
        The two together are more than is promised. `days`: the faults, other than the usual.
        `joins_ms`: the replicas join one by one, within that time; 0: at once, and before.
        `holds_requests`: those that come to a frozen node wait there until it wakes.
        `says_news_only`: followers leave out the answers that the driver of one leaves out."""
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
        self.lost = 0
        """Confirmed blocks that unclean elections have given up."""
        self.nodes: dict[str, Node] = {}
        for name in "ABCDE"[:replicas]:
            self.nodes[name] = Node(name, self)
        self.joins_ms, self.holds_requests = joins_ms, holds_requests
        self.says_news_only = says_news_only
        self.never_leads: set[str] = set()
        """Nodes whose lack does not end."""
        self.stays_full: set[str] = set()
        """Nodes whose disk has never room for messages, and for blocks of a leader."""
        self.stays_off: set[str] = set()
        """Nodes whose clock is never right."""
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
        if isinstance(change, ElectUnclean):
            self.lost += self.judge.loses(self.nodes[change.candidate.node].disk.written)
        elif isinstance(change, ElectAfterLoss):
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

    def isolate(self, node: Node, other: str) -> None:
        """Cut off from all the others for a while, and half of the time from the database, too."""
        del other
        for name in self.nodes.keys() - {node.name}:
            self.network.block(node.name, name)
            self.network.block(name, node.name)
        length_ms = self.random.randint(500, 6_000)
        if self.random.random() < 0.5:
            node.no_database_until_ms = self.schedule.now_ms + length_ms
        self.schedule.after(length_ms, self.network.heal)

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
        """An operator, who names another node each second time, or a stop in order."""
        is_named = self.schedule.now_ms % 2 == 0 and other != node.name
        node.give(TransferAsked(other, "an operator") if is_named else TransferAsked())

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

    def cannot_lead(self, node: Node, other: str) -> None:
        """A full disk, or a broker that does not begin."""
        del other
        if node.name in self.never_leads:
            return
        node.lacks_until_ms = self.schedule.now_ms + self.random.randint(200, 9_000)
        node.lacking = self.random.choice([AppendTermStart, KeepPromise, Serve])

    def fill_disk(self, node: Node, other: str) -> None:
        """It takes no messages, and some take no blocks either."""
        del other
        if node.name in self.stays_full | self.never_leads:
            return
        node.full_until_ms = self.schedule.now_ms + self.random.randint(200, 9_000)
        if self.random.random() < 0.5:
            node.lacks_until_ms, node.lacking = node.full_until_ms, WriteBlocks

    def expire(self, node: Node, other: str) -> None:
        """Whoever serves deletes the beginning of its log."""
        del node, other
        for each in self._serving():
            each.expire()

    def set_node_clock(self, node: Node, other: str) -> None:
        """It is apart from the database's for a while."""
        del other
        if node.name not in self.stays_off:
            node.clock_off_until_ms = self.schedule.now_ms + self.random.randint(200, 9_000)

    def set_database_clock(self, node: Node, other: str) -> None:
        """Ten seconds on or back, as behind a fail-over to a machine whose clock is off."""
        del node, other
        self.database.clock_ahead_ms = self.random.choice([0, 10_000])

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
            if node.name not in self.never_leads:
                node.lacks_until_ms = 0
            if node.name not in self.stays_full:
                node.full_until_ms = 0
            if node.name not in self.stays_off:
                node.clock_off_until_ms = 0
            node.no_database_until_ms = 0
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
        self.restart_forgotten()

    def _serving(self) -> list[Node]:
        return [each for each in self.nodes.values() if each.replica and each.replica.is_serving]

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
        if SimulatedShard.expire in self.days:
            newest.expire(is_all=True)  # a follower that led before may have deleted more than some
            self.schedule.run_until(self.schedule.now_ms + 1_000)
            starts = {node.name: node.disk.start for node in self.nodes.values()}
            if len(set(starts.values())) > 1:
                raise Violation(f"the logs begin at different places: {starts}")
        start = max(node.disk.start for node in self.nodes.values())
        logs = {
            node.name: [block for block in node.disk.blocks if block.start >= start]
            for node in self.nodes.values()
        }
        if any(log != logs[newest.name] for log in logs.values()):
            ends = {name: log[-1].end for name, log in logs.items() if log}
            raise Violation(f"the replicas are not alike: {ends}")


Day = Callable[[SimulatedShard, Node, str], None]
"""A fault, of a node and another one."""

_ALWAYS: tuple[Day, ...] = (
    SimulatedShard.kill_process,
    SimulatedShard.kill_process,
    SimulatedShard.pause,
    SimulatedShard.partition,
    SimulatedShard.isolate,
    SimulatedShard.cut_connection,
    SimulatedShard.take_database_away,
    SimulatedShard.lose_answers,
    SimulatedShard.transfer,
    SimulatedShard.cannot_lead,
    SimulatedShard.fill_disk,
    SimulatedShard.slow_disks,
)
DAYS: tuple[Day, ...] = (*_ALWAYS, SimulatedShard.cut_power, SimulatedShard.empty_disk)
FORGETFUL_DAYS: tuple[Day, ...] = (*_ALWAYS, SimulatedShard.fail_database_over)
DAYS_WITH_BACKUPS: tuple[Day, ...] = (*FORGETFUL_DAYS, SimulatedShard.restore_database)
DAYS_WITH_RETENTION: tuple[Day, ...] = (
    *DAYS,
    *(SimulatedShard.expire,) * 8,
    SimulatedShard.empty_disk,
)
DAYS_WITH_CLOCKS: tuple[Day, ...] = (
    *DAYS,
    SimulatedShard.set_database_clock,
    SimulatedShard.set_node_clock,
)
DAYS_WITHOUT_LOSS: tuple[Day, ...] = (
    SimulatedShard.kill_process,
    SimulatedShard.pause,
    SimulatedShard.partition,
    SimulatedShard.cut_connection,
    SimulatedShard.take_database_away,
    SimulatedShard.lose_answers,
    SimulatedShard.transfer,
    SimulatedShard.slow_disks,
)
"""No member loses its disk: one that is left alone in the set keeps all others out by right."""
