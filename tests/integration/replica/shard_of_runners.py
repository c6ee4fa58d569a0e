"""Three replicas of a shard in one process: real sockets, directories, threads; a row in memory."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

from typing_extensions import override

from app.api.http.request_context import Receive, Scope, Send
from app.api.peers.pool import Peers
from app.api.replicas.dialing import dial
from app.api.replicas.link import ReplicaLink
from app.api.replicas.peer_links import PeerLinks
from app.api.server.cluster_listener import ClusterListener
from app.cluster.replication.events import RowChanged, RowSeen
from app.cluster.replication.replica_state import Timing
from app.cluster.replication.shard_row import RowChange, ShardRow
from app.cluster.replication.terms import Member, Term
from app.domain.errors import CurlewError
from app.domain.limits import Limits
from app.domain.message import Message
from app.domain.positions import FlushMode
from app.replica.leadership import LeaderHooks
from app.replica.ports import Database, WarmState
from app.replica.replica_status import Role
from app.replica.runner import ReplicaRunner, RunnerParts, monotonic_ms
from app.runtime.secure.cluster_secret import ClusterSecret
from app.runtime.system_clock import SystemClock
from app.store import MessageStore, OsFiles
from app.store.lifecycle.opening import ShardMeta
from app.store.replica.replica_files import ReplicaFiles
from app.store.replica.replica_store import OpeningOptions, ReplicaDirectory
from tests.support.stores.stores import SMALL

NAMES = ("a", "b", "c")
SHARD = ShardMeta("00c0ffee", SMALL.segment_bytes)
TIMING = Timing(
    lease_ms=120_000,
    replica_timeout_ms=20_000,
    ask_ms=100,
    row_ms=100,
    sign_ms=60,
    tick_ms=15,
    pause_ms=240_000,
)
"""A machine under load makes no leader step down; `Shard.let_a_lease_pass` does, which is no pause
of a node. Who is slow is let go of before a test has waited in vain."""
SECRET = ClusterSecret(b"a" * 32)


WAIT_S = 60.0

_SHARDS: list["Shard"] = []
"""Those of `shard_of` that are at work."""


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition, and leave the processor to the replicas' threads meanwhile. Raises
    `TimeoutError`, which says how the shard stands."""
    try:
        async with asyncio.timeout(WAIT_S):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.002)
    except TimeoutError as error:
        shards = "\n".join(shard.describe() for shard in _SHARDS)
        raise TimeoutError(f"not so within {WAIT_S:g} s:\n{shards}") from error


async def no_app(scope: Scope, receive: Receive, send: Send) -> None:
    raise AssertionError("no request is carried here")


class Row(Database):
    """The shard's row, as one replica asks for it. Answers come in a later turn of the loop."""

    def __init__(self, shard: "Shard") -> None:
        self.runner: ReplicaRunner
        self._shard = shard

    @override
    def read_row(self) -> None:
        asked_ms = self._shard.now_ms()

        def answer() -> None:
            row = self._shard.row
            if not row.in_sync:
                return  # the shard is being made
            self.runner.give(RowSeen(row, row.lease_until_ms - self._shard.now_ms(), asked_ms))

        self._shard.loop.call_soon_threadsafe(answer)

    @override
    def change_row(self, change: RowChange) -> None:
        asked_ms = self._shard.now_ms()

        def answer() -> None:
            if self._shard.holds(change):
                self._shard.held.append(answer)
                return
            after = change.apply(self._shard.row, self._shard.now_ms())
            self._shard.row = after or self._shard.row
            done = RowChanged(change, self._shard.row, after is not None, asked_ms)
            self.runner.give(done)

        self._shard.loop.call_soon_threadsafe(answer)


class Node:
    """One replica with its cluster port. It serves the store to the test."""

    def __init__(self, name: str, shard: "Shard") -> None:
        self.name = name
        self.store: MessageStore | None = None
        self.terms: list[Term] = []
        self.ends: list[str] = []
        self.is_cut_off = False
        """Whether the end of its broker is cancelled."""
        self.failures = 0
        """How often its broker is not to begin."""
        self._shard = shard
        listener = socket.socket()
        self._listener = listener
        listener.bind(("127.0.0.1", 0))
        shard.urls[name] = f"http://127.0.0.1:{listener.getsockname()[1]}"
        others = tuple(each for each in NAMES if each != name)
        peers = Peers(SECRET, shard.loop.time)

        async def connect(url: str, session: int, link: ReplicaLink) -> None:
            await dial(peers, SECRET, url, (name, session), link)

        self.links = PeerLinks(name, others, lambda: shard.urls, connect, silence_s=60.0)
        self._port = ClusterListener(listener, SECRET, no_app, Limits(), links=self.links.table)
        root = shard.root / name
        root.mkdir(exist_ok=True)
        files = OsFiles(root)
        row = Row(shard)
        self.runner = row.runner = ReplicaRunner(
            RunnerParts(
                name,
                others,
                TIMING,
                ReplicaDirectory(files, shard.new_number),
                OpeningOptions(SMALL, SystemClock(), shard.loop.call_soon, Limits(), shard.meta),
                self.links,
                row,
                LeaderHooks(self._serve, self._step_down, shard="orders"),
                shard.new_number,
                shard.now_ms,
            )
        )
        self.files = files

    async def start(self) -> None:
        await self._port.start()
        await self.runner.start()

    async def stop(self) -> None:
        await self.runner.stop()
        await self._port.close()

    async def close_port(self) -> None:
        await self._port.close()

    def close_listener(self) -> None:
        """Of one whose port was never started."""
        self._listener.close()

    async def kill(self) -> None:
        await self.runner.kill()
        await self._port.close()

    async def _serve(self, term: Term, store: MessageStore, _warm: WarmState) -> None:
        self.terms.append(term)
        if self.failures:
            self.failures -= 1
            raise OSError("no descriptor")
        self.store = store

    async def _step_down(self, reason: str) -> None:
        self.ends.append(reason)
        self.store = None
        if self.is_cut_off:
            raise asyncio.CancelledError

    def has_seen_the_row(self) -> bool:
        driver = self.runner._driver
        replica = None if driver is None else driver.replica
        return replica is not None and replica.state.database_since_ms is not None

    def is_at_rest(self, term: Term) -> bool:
        """Whether it leads in this term, or follows who does, and its lease is not over."""
        driver = self.runner._driver
        replica = None if driver is None else driver.replica
        if replica is None or replica.state.is_lease_over():
            return False
        leader = replica.leader
        if leader is not None:
            return leader.term == term and replica.is_serving
        return replica.is_current and replica.state.promise.term == term

    def describe(self) -> list[str]:
        """How it stands, for a failure."""
        status, driver = self.runner.status(), self.runner._driver
        lines = [
            f"{self.name}: {status.role.value} in epoch {status.epoch}, serves: {bool(self.store)},"
            f" leader {status.leader}, log {status.flushed}/{status.written},"
            f" watermark {status.high_watermark}, knows {status.in_sync}"
            f" by version {status.in_sync_version}, {status.failed or 'has not failed'}"
        ]
        lines += [f"  sees {each}" for each in status.members]
        lines += [
            f"  alarm {each.code}, {each.age_ms} ms ago: {each.detail}" for each in status.alarms
        ]
        lines.append(f"  led in {self.terms[-3:]}, which ended: {self.ends[-3:]}")
        if driver is None or driver.replica is None:
            return [*lines, "  paused"]
        state = driver.replica.state
        silent_ms, lease_ms = state.now_ms - state.heard_leader_ms, state.lease_left_ms
        lines.append(
            f"  {type(driver.replica._role).__name__}, heard {state.leader_heard}"
            f" {silent_ms} ms ago, saw a lease of {lease_ms} ms"
            f" {state.now_ms - state.lease_seen_ms} ms ago,"
            f" could not lead at {state.could_not_lead_ms}, rests: {state.is_resting()},"
            f" database since {state.database_since_ms}, now {state.now_ms};"
            f" connected to {sorted(self.connected)}"
        )
        return lines

    @property
    def connected(self) -> set[str]:
        return {name for name, peer in self.links._peers.items() if peer.link is not None}

    async def has_taken_all_in(self) -> None:
        """Wait for the replica's thread to have done all that was given to it before."""
        done = asyncio.Event()
        self.runner._queue.put(lambda: self._shard.loop.call_soon_threadsafe(done.set))
        await done.wait()

    @property
    def member(self) -> Member:
        kept = ReplicaFiles(self.files).incarnation()
        assert kept is not None
        return Member(self.name, kept.incarnation)


class Shard:
    """Nodes a, b and c; a leads at first."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.loop = asyncio.get_running_loop()
        self.row = ShardRow(min_in_sync=2)
        self.urls: dict[str, str] = {}
        self.nodes: dict[str, Node] = {}
        self._random = Random(3)
        self._passed_ms = 0
        self.meta = SHARD
        self.holds: Callable[[RowChange], bool] = lambda _: False
        """Changes of the row that the database keeps waiting."""
        self.held: list[Callable[[], object]] = []

    def new_number(self) -> int:
        return self._random.getrandbits(40)

    async def start(self, name: str) -> None:
        node = self.nodes[name] = Node(name, self)
        await node.start()

    def now_ms(self) -> int:
        """Of all nodes and the database."""
        return monotonic_ms() + self._passed_ms

    async def let_a_lease_pass(self) -> None:
        """Behind all that has come from nodes which are gone: who has it in its queue yet would
        have heard them now. And behind a first answer of the database, which counts for no less
        than a lease, too."""
        for node in self.nodes.values():
            await until(node.has_seen_the_row)
            await until(lambda node=node: not node.connected - set(self.nodes))  # type: ignore[misc]
            await node.has_taken_all_in()
        self._passed_ms += TIMING.lease_ms

    async def kill(self, name: str) -> None:
        await self.nodes.pop(name).kill()

    async def stop(self, name: str) -> None:
        await self.nodes.pop(name).stop()

    @property
    def leader(self) -> Node | None:
        found = [node for node in self.nodes.values() if node.store is not None]
        return found[0] if len(found) == 1 else None

    async def served(self, but: Node | None = None) -> Node:
        await until(lambda: self.leader is not None and self.leader is not but)
        assert self.leader is not None
        return self.leader

    def are_equal(self) -> bool:
        """Whether all replicas have, and have confirmed, the same, and are in sync."""
        found = [node.runner.status() for node in self.nodes.values()]
        ends = {(each.written, each.high_watermark) for each in found}
        is_all = {member.node for member in self.row.in_sync} == set(self.nodes)
        return is_all and len(ends) == 1 and ends == {(found[0].written,) * 2}

    def has_settled(self) -> bool:
        """Whether all follow one leader, and no lease is over: nobody stands by itself."""
        leader = self.leader
        if leader is None or self.row.leader != leader.member or self.row.handed_to is not None:
            return False
        return all(node.is_at_rest(self.row.term) for node in self.nodes.values())

    def describe(self) -> str:
        """How it stands, for a failure."""
        row, now_ms = self.row, self.now_ms()
        members = ", ".join(f"{each.node}/{each.incarnation}" for each in sorted(row.in_sync))
        lines = [
            f"row: {row.term}, leader {row.leader}, handed to {row.handed_to},"
            f" lease {row.lease_until_ms - now_ms} ms, in sync by version {row.in_sync_version}"
            f" (settled {row.settled_version}): {members}; at least {row.min_in_sync}"
        ]
        lines += [line for node in self.nodes.values() for line in node.describe()]
        lines += [f"{name}: not started" for name in NAMES if name not in self.nodes]
        return "\n".join(lines)


async def append(node: Node, bodies: list[bytes], queue_id: int = 0) -> None:
    """Send and wait until all are confirmed."""
    told: list[CurlewError | None] = []
    for body in bodies:
        assert node.store is not None
        message = Message(body, keys=(body.decode(),))
        node.store.append("orders", queue_id, [message], FlushMode.SYNC, told.append)
    await until(lambda: len(told) == len(bodies))
    assert told == [None] * len(bodies)


@asynccontextmanager
async def shard_of(root: Path, min_in_sync: int = 2) -> AsyncIterator[Shard]:
    shard = Shard(root)
    _SHARDS.append(shard)
    try:
        for name in NAMES:
            await shard.start(name)
        members = frozenset(node.member for node in shard.nodes.values())
        shard.row = ShardRow(
            in_sync=members,
            min_in_sync=min_in_sync,
            handed_to="a",
            lease_until_ms=shard.now_ms() + 60_000,
        )
        yield shard
    finally:
        _SHARDS.remove(shard)
        for name in list(shard.nodes):
            await shard.nodes.pop(name).kill()


def is_following(node: Node) -> Callable[[], bool]:
    return lambda: node.runner.status().role is Role.FOLLOWER
