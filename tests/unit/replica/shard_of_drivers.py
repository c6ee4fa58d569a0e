"""Three drivers in one process: real logs and files, a fake network, row, clock and broker."""

from collections import deque
from collections.abc import Callable
from itertools import pairwise
from random import Random

from typing_extensions import override

from app.cluster.replication.confirmation import LogEnd
from app.cluster.replication.events import (
    Appended,
    DatabaseAway,
    Disconnected,
    Event,
    LogEnds,
    RowChanged,
    RowSeen,
    TakesNoMore,
    Tick,
    UncleanJudged,
)
from app.cluster.replication.messages import (
    AskBlocks,
    Blocks,
    BlocksNotGiven,
    GivenBlocks,
    PeerMessage,
)
from app.cluster.replication.replica_state import Timing
from app.cluster.replication.shard_row import RowChange, ShardRow
from app.cluster.replication.terms import Member, Term, TermStart
from app.domain.limits import Limits
from app.replica.driver import ReplicaDriver, ReplicaParts
from app.replica.log_repairs import LogRepairs, LogView, RepairHost
from app.replica.ports import CutTail, Database, Peers, ReplicaOwner
from app.store.formats.record.record import encode_record
from app.store.fs.files import FileSystem
from app.store.lifecycle.opening import ShardMeta
from app.store.lifecycle.store_parts import StoreParts
from app.store.log.commit_log import AppendCursor
from app.store.replica.block_reader import BlockReader
from app.store.replica.block_walk import LogShape
from app.store.replica.incarnation import Incarnation
from app.store.replica.replica_files import ReplicaFiles
from app.store.replica.replica_log import ReplicaLog
from tests.support.stores.clock import FakeClock
from tests.support.stores.simulated_files import SimulatedFiles
from tests.support.stores.stores import SMALL

TIMING = Timing(lease_ms=2_000, replica_timeout_ms=1_200, fence_ms=400, ask_ms=120, row_ms=400)
SHAPE = LogShape(SMALL.segment_bytes)
META = ShardMeta("01020304", SMALL.segment_bytes)
RANGE_BYTES = 1_000


class Node(Peers, Database, ReplicaOwner, RepairHost):
    """One process with its directory; it is its driver's connections, database and node."""

    def __init__(
        self, name: str, shard: "Shard", files: FileSystem, peers: tuple[str, ...]
    ) -> None:
        self.name = name
        self.files = files
        self.alarms: list[str] = []
        self.alarm_details: dict[str, str] = {}
        self.cuts: list[CutTail] = []
        self.log_has_failed = False
        self.repairs = LogRepairs(self, peers, self, lambda: shard.now_ms, lambda call: call())
        self.shown = 0
        self.serving: Term | None = None
        self.has_no_room = self.is_clock_apart = self.has_more_blocks = False
        self._shard = shard
        replica_files = ReplicaFiles(files)
        self.incarnation = Incarnation(files, replica_files, lambda: shard.random.getrandbits(40))
        self.incarnation.begin_opening()
        clock = FakeClock()
        parts = StoreParts.open(files, SMALL, clock, lambda _call: None, Limits(), META)
        self.incarnation.end_opening(parts.recovery)
        self.log = parts.log
        self.replica_log = ReplicaLog(files, parts.log, SHAPE, parts.recovery.end)
        self.member = Member(name, self.incarnation.number)
        self.reader = BlockReader(parts.log, SHAPE, RANGE_BYTES)
        self.remaining_count: int | None = None
        """As was told last; None: nothing was put right."""
        for found in parts.recovery.damages:
            self.repairs.found(found.start, found.end)
        self._cursor = AppendCursor(parts.recovery.end, SMALL.segment_bytes)
        self._parts = ReplicaParts(
            name,
            peers,
            TIMING,
            self.replica_log,
            self.reader,
            replica_files,
            self.incarnation,
            0,
            self,
            self,
            self,
            lambda: shard.now_ms,
            lambda: shard.random.getrandbits(48),
            is_clock_apart=lambda: self.is_clock_apart,
            has_more_blocks=lambda: self.has_more_blocks,
        )
        self.driver: ReplicaDriver

    def begin(self) -> None:
        """The row may name the member by now."""
        self.driver = ReplicaDriver(self._parts)

    # --- connections

    @override
    def send(self, node: str, message: PeerMessage) -> None:
        self._shard.post(self.name, node, message, b"")

    @override
    def send_blocks(
        self, node: str, message: Blocks | GivenBlocks, data: bytes | memoryview
    ) -> None:
        self._shard.post(self.name, node, message, bytes(data))

    @override
    def has_room(self, node: str) -> bool:
        return not self.has_no_room

    @override
    def close(self, node: str) -> None:
        self._shard.disconnect(self.name, node)

    # --- the row

    @override
    def read_row(self) -> None:
        shard, asked_ms = self._shard, self._shard.now_ms
        shard.later(
            self, lambda: RowSeen(shard.row, shard.row.lease_until_ms - shard.now_ms, asked_ms)
        )

    @override
    def change_row(self, change: RowChange) -> None:
        shard, asked_ms = self._shard, self._shard.now_ms

        def answer() -> Event:
            if shard.is_database_away:
                return DatabaseAway(change)
            after = change.apply(shard.row, shard.now_ms)
            shard.row = after or shard.row
            return RowChanged(change, shard.row, after is not None, asked_ms)

        shard.later(self, answer)

    # --- the node

    @override
    def delete_below(self, start: int) -> None:
        raise AssertionError("nobody deletes here")

    @override
    def accept_loss(self, term: Term) -> None:
        raise AssertionError(f"nobody asks here: {term}")

    @override
    def append_term_start(self, term: Term) -> None:
        self._append(b"term", term)

    def append(self, body: bytes) -> None:
        """As the broker of the leader would."""
        assert self.serving is not None
        self._append(body, None)

    def _append(self, body: bytes, term: Term | None) -> None:
        def encode(at: int) -> bytes:
            return encode_record(
                topic=b"orders",
                queue_id=0,
                queue_offset=0,
                physical_offset=at,
                body=body,
                properties=b"",
                born_time_ms=1,
                store_time_ms=1,
                store_host=SMALL.store_host,
            )

        self._cursor.end = start = self.replica_log.written
        placement = self._cursor.place([len(encode(0))])
        at = placement.physical_offsets[0]
        self._shard.later(
            self,
            lambda: Appended(placement.end, True, None if term is None else TermStart(term, start)),
        )

        def write() -> Event:
            self.log.prepare(self.log.base_of(at))
            for place, mark in placement.closing:
                self.log.prepare(self.log.base_of(place))
                self.log.write(place, [mark])
            self.log.write(at, [encode(at)])
            self.log.sync()
            return LogEnds(placement.end, placement.end)

        self._shard.later(self, write)
        self._shard.run()

    @override
    def move_watermark(self, high_watermark: int) -> None:
        assert high_watermark > self.shown
        assert high_watermark <= self.replica_log.written
        self.shown = high_watermark

    @override
    def serve(self, term: Term) -> None:
        self.serving = term

    @override
    def take_no_more(self) -> None:
        self.serving = None
        self._shard.later(self, TakesNoMore)

    @override
    def step_down(self, reason: str) -> LogEnd:
        self.serving = None
        return LogEnd(self.replica_log.written, self.replica_log.flushed)

    @override
    def unclean_judged(self, judged: UncleanJudged) -> None:
        raise AssertionError("nobody asks here")

    @override
    def before_cut(self) -> None:
        """Nothing is made of the log here."""

    @override
    def was_cut(self, tail: CutTail) -> None:
        assert not tail.is_loss, "no loss is told here"
        self.cuts.append(tail)

    @override
    def is_damaged(self, at: int) -> None:
        self.repairs.found(at, at + 1)

    # --- repairs

    @override
    def log_view(self) -> LogView | None:
        driver, log = self.driver, self.replica_log
        return LogView(log, self.reader, driver.history(), None)

    @override
    def log_failed(self, reason: str) -> None:
        self.log_has_failed = True

    @override
    def is_mended(self, remaining_count: int) -> None:
        self.remaining_count = remaining_count

    # --- the node

    @override
    def make_anew(self, reason: str) -> None:
        raise AssertionError(f"no loss is told here: {reason}")

    @override
    def begin_anew(self, start: int, history: tuple[TermStart, ...], reason: str) -> None:
        raise AssertionError(f"nothing is deleted here: {start}, {history}, {reason}")

    @override
    def alarm(self, code: str, detail: str) -> None:
        self.alarms.append(code)
        self.alarm_details[code] = detail


class Shard:
    """Nodes a, b and c; a leads at first."""

    def __init__(self, directories: dict[str, FileSystem], min_in_sync: int = 2) -> None:
        self.random = Random(7)
        self.now_ms = 10_000
        self.is_database_away = False
        self.row = ShardRow(min_in_sync=min_in_sync)
        self.nodes: dict[str, Node] = {}
        self.damage: Callable[[str, bytes], bytes] = lambda _receiver, data: data
        self.cut_off: set[str] = set()
        self._names = tuple(directories)
        self._on_the_way: deque[Callable[[], object]] = deque()
        self._number: dict[frozenset[str], int] = {}
        self._is_running = False
        for name, files in directories.items():
            self.open(name, files)
        members = frozenset(node.member for node in self.nodes.values())
        self.row = ShardRow(in_sync=members, min_in_sync=min_in_sync, handed_to="a")
        for node in self.nodes.values():
            node.begin()

    def open(self, name: str, files: FileSystem) -> Node:
        peers = tuple(each for each in self._names if each != name)
        node = self.nodes[name] = Node(name, self, files, peers)
        return node

    def kill(self, name: str) -> FileSystem:
        """What its directory has then."""
        node = self.nodes.pop(name)
        for other in self._names:
            self.disconnect(name, other)
        node.log.close()
        files = node.files
        return files.kill() if isinstance(files, SimulatedFiles) else files

    def start(self, name: str, files: FileSystem) -> None:
        self.open(name, files).begin()

    def later(self, node: Node, event: Callable[[], Event]) -> None:
        def happen() -> None:
            if self.nodes.get(node.name) is node:
                node.driver.give(event())

        self._on_the_way.append(happen)

    def post(self, sender: str, receiver: str, message: PeerMessage, data: bytes) -> None:
        pair = frozenset({sender, receiver})
        number = self._number.get(pair, 0)

        def arrive() -> None:
            node = self.nodes.get(receiver)
            is_open = number == self._number.get(pair, 0) and not pair & self.cut_off
            if node is not None and is_open:
                if isinstance(message, AskBlocks | GivenBlocks | BlocksNotGiven):
                    node.repairs.heard(sender, message, self.damage(receiver, data))
                    return
                node.driver.received(sender, message, self.damage(receiver, data))

        self._on_the_way.append(arrive)

    def disconnect(self, one: str, other: str) -> None:
        pair = frozenset({one, other})
        self._number[pair] = self._number.get(pair, 0) + 1
        for name, gone in ((one, other), (other, one)):
            node = self.nodes.get(name)
            if node is not None:
                self.later(node, lambda gone=gone: Disconnected(gone))  # type: ignore[misc]

    def run(self) -> None:
        """Until nothing is on its way."""
        if self._is_running:
            return
        self._is_running = True
        try:
            while self._on_the_way:
                self._on_the_way.popleft()()
        finally:
            self._is_running = False

    def until(self, is_met: Callable[[], bool], within_ms: int = 60_000) -> None:
        """Let time pass until a condition is met."""
        end_ms = self.now_ms + within_ms
        while not is_met():
            assert self.now_ms < end_ms, self.describe()
            self.pass_time()

    def pass_time(self, turns: int = 1) -> None:
        for _ in range(turns):
            self.now_ms += TIMING.tick_ms
            for node in list(self.nodes.values()):
                node.driver.give(Tick())
                node.repairs.work()
            self.run()

    def describe(self) -> str:
        lines = [f"{self.now_ms} {self.row}"]
        for node in self.nodes.values():
            log = node.replica_log
            lines.append(f"{node.name} {log.written} {log.flushed} {node.shown} {node.alarms[-5:]}")
        return "\n".join(lines)

    # --- what tests ask

    @property
    def leader(self) -> Node:
        (found,) = [node for node in self.nodes.values() if node.serving is not None]
        return found

    def is_served(self) -> bool:
        return any(node.serving is not None for node in self.nodes.values())

    def are_equal(self) -> bool:
        """Whether all replicas have and show the same end."""
        ends = {(node.replica_log.written, node.shown) for node in self.nodes.values()}
        return len(ends) == 1 and ends == {(max(ends)[0],) * 2}

    def log_bytes(self, name: str, end: int) -> bytes:
        """A replica's log up to `end`, without filler."""
        reader, found, start = BlockReader(self.nodes[name].log, SHAPE), [], 0
        while start < end:
            blocks = reader.read(start, end)
            found.append(bytes(blocks.data))
            start = blocks.end
        return b"".join(found)

    def check_equal_logs(self) -> None:
        """Byte by byte, as far as each pair shows."""
        names = list(self.nodes)
        for one, other in pairwise(names):
            end = min(self.nodes[one].shown, self.nodes[other].shown)
            assert self.log_bytes(one, end) == self.log_bytes(other, end)
