"""A replica at work: its driver on a thread of its own, with ticks, between connections, database
and node.

Whatever comes goes into one queue, in its order, from any thread. The event loop never waits for
the thread. Behind a term the thread opens the directory anew and makes another driver: for the
machine that is a restart.
"""

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from typing_extensions import override

from app.cluster.replication.events import (
    Disconnected,
    Event,
    StopAsked,
    SyncFailed,
    Tick,
    TransferAsked,
)
from app.cluster.replication.messages import (
    AskBlocks,
    BlocksNotGiven,
    GivenBlocks,
    PeerMessage,
)
from app.cluster.replication.replica_state import Timing
from app.domain.shortages import shortage_of
from app.replica.driver import PAUSE_MS, ReplicaDriver, ReplicaParts, never_apart
from app.replica.leadership import LeaderHooks
from app.replica.log_repairs import LogRepairs, LogView, RepairHost
from app.replica.owner import StoreOwner
from app.replica.ports import Connections, Database, Replicating
from app.replica.replica_status import NOTHING, ReplicaAlarm, ReplicaStatus, Role, status_of
from app.store import LogFigures
from app.store.followed_store import FollowedStore
from app.store.replica.replica_store import OpeningOptions, ReplicaDirectory

_LOG: Final = logging.getLogger(__name__)

ALARM_SHOWN_MS: Final = 60_000
"""How long an alarm that is not raised again is shown."""

ELECTED_S: Final = 4.5
"""A stop waits so long to hear whether this replica was elected just now: for longer than two
questions may take, since what the row is may be asked before."""

_LEADING: Final = (Role.LEADER, Role.TAKING_OVER)


class StopWait:
    """How long a stop waits for another replica to lead. Pure; seconds of one clock."""

    def __init__(self, since_s: float, within_s: float) -> None:
        """`within_s`: for a hand-over, from when it is known that there is one."""
        self._undecided_until_s = since_s + ELECTED_S
        self._within_s = within_s
        self._leads_until_s: float | None = None

    def is_over(self, now_s: float, *, is_undecided: bool, leads: bool) -> bool:
        """`is_undecided`: the stop was not heard yet, or what becomes of an election."""
        if is_undecided:
            return now_s >= self._undecided_until_s
        if not leads:
            return True
        if self._leads_until_s is None:
            self._leads_until_s = now_s + self._within_s
        return now_s >= self._leads_until_s


def monotonic_ms() -> int:
    """The clock of a replica and of `asked_ms` in the database's answers. Never goes back."""
    return time.monotonic_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class RunnerParts:
    """What a replica is made of."""

    node: str
    peer_nodes: tuple[str, ...]
    """The other nodes that have a replica of the shard."""
    timing: Timing
    directory: ReplicaDirectory
    options: OpeningOptions
    connections: Connections
    database: Database
    """Called on the replica's thread; answers come by `ReplicaRunner.give`."""
    hooks: LeaderHooks
    new_grant: Callable[[], int]
    now_ms: Callable[[], int] = monotonic_ms
    is_clock_apart: Callable[[], bool] = never_apart


class ReplicaRunner(Replicating, RepairHost):
    """`start`, then `stop`, on the event loop. What is given may come from any thread."""

    def __init__(self, parts: RunnerParts) -> None:
        """On the event loop."""
        self._parts = parts
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._owner = StoreOwner(
            parts.directory, parts.options, parts.hooks, self._loop, self._queue.put
        )
        self._owner.give = self._give
        self._owner.lacks = self._lacks
        self._owner.tell_leading = self._look
        self._owner.repairs = self._repairs = LogRepairs(
            parts.connections, parts.peer_nodes, self, parts.now_ms, self._queue.put
        )
        self._driver: ReplicaDriver | None = None
        self._failed: str | None = None
        self._status = NOTHING
        self._open_again_ms = 0
        self._could_not_lead_ms: int | None = None
        self._last_number = 0
        """Both as the driver before this one says."""
        self._openings = self._heard_openings = 0
        """How often connections were to be made anew, and how often the event loop has done it."""
        self._blocks_come = self._blocks_taken = 0
        """Messages with blocks: the event loop counts the first, the thread the other."""
        self._too_few: str | None = None
        self._full_nodes: tuple[str, ...] = ()
        self._is_stopping = self._is_killed = False
        self._is_stop_asked = False
        """By the event loop, also before there is a thread that can stop."""
        self._is_stop_heard = False
        """By the thread; `status` is of behind it."""
        self._started: asyncio.Future[None] = self._loop.create_future()
        self._thread = threading.Thread(target=self._run, name="curlew-replica", daemon=True)

    # --- for the node

    async def start(self) -> None:
        """Open the directory and begin to follow; one that is stopped meanwhile makes no
        connection. Raises `StoreUnusable`, `ReplicaFileDamaged` or `OSError`."""
        assert not self._is_stop_asked, "it was stopped, and is not started again"
        self._thread.start()
        await self._started
        if not self._is_stop_asked:
            self._parts.connections.start(self)

    async def stop(self, within_s: float = 10.0) -> None:
        """Hand over if this replica leads, within this time; bring all to the medium, and close.
        One that is being elected waits for what becomes of that first. Cancelled it does not hand
        over, and is cancelled when it has closed all the same."""
        self._is_stop_asked = True
        waits = StopWait(self._loop.time(), within_s)
        self._queue.put(self._hear_stop)
        try:
            while not self._is_left(waits):  # noqa: ASYNC110
                await asyncio.sleep(self._parts.timing.tick_ms / 1_000)
        finally:
            self._queue.put(self._stop)
            await self._join()

    def _is_left(self, waits: StopWait) -> bool:
        """Whether a stop waits for no other one to lead, as far as is known by now."""
        if not self._thread.is_alive() or self._failed is not None:
            return True
        status = self._status
        return waits.is_over(
            self._loop.time(),
            is_undecided=not self._is_stop_heard or status.is_being_elected,
            leads=status.role in _LEADING,
        )

    def _hear_stop(self) -> None:
        self._give(StopAsked())
        self._look()
        self._is_stop_heard = True

    async def kill(self) -> None:
        """End at once, as by a kill: nothing is handed over, synced or noted."""
        self._is_killed = self._is_stop_asked = True
        leading = self._owner.leading
        if leading is not None:
            leading.cut_off("the node was killed")
        self._queue.put(self._stop)
        await self._join()

    async def _join(self) -> None:
        """Wait for the thread, also where this is cancelled: who goes on behind it lets go of the
        directory, which another process may open then."""
        if self._thread.ident is None:  # it was never started
            await asyncio.to_thread(self._owner.close, is_clean=False)
        cut_off: asyncio.CancelledError | None = None
        while self._thread.is_alive():
            try:
                await asyncio.sleep(0.005)  # the thread may wait for the loop
            except asyncio.CancelledError as error:
                cut_off = error
        await self._parts.connections.stop(is_told=not self._is_killed)
        if cut_off is not None:
            raise cut_off

    def transfer(self, asked: TransferAsked) -> None:
        """Another replica is to lead, if this one does. Any thread."""
        self.give(asked)

    def give(self, event: Event) -> None:
        """An answer of the database. Any thread."""
        self._queue.put(lambda: self._give(event))

    def status(self) -> ReplicaStatus:
        """As it was at the last tick. Any thread."""
        return self._status

    @property
    def mended_bytes(self) -> int:
        """Of its log, put right from another replica by now; `status` has it at the next tick."""
        return self._repairs.mended_bytes

    def readable(self, *, is_stale: bool) -> FollowedStore | None:
        """What may be read here while this replica follows: as the leader has it, but for the end;
        `is_stale`: whatever was confirmed when it was in sync last. None: nothing. Event loop."""
        status = self._status
        is_readable = status.is_member if is_stale else status.is_current
        return self._owner.followed if is_readable and status.role is Role.FOLLOWER else None

    def log_figures(self) -> LogFigures | None:
        """Of the log of this replica; None: it is not open. Any thread."""
        return self._owner.following.figures() if self._owner.is_open else None

    # --- connections

    @override
    def received(
        self,
        node: str,
        message: PeerMessage,
        blocks: Sequence[bytes | memoryview],
        done: Callable[[], object],
    ) -> None:
        opening = self._heard_openings
        self._blocks_come += len(blocks) > 0

        def receive() -> None:
            self._blocks_taken += len(blocks) > 0
            if isinstance(message, AskBlocks | GivenBlocks | BlocksNotGiven):
                self._repairs.heard(node, message, b"".join(blocks))
            elif self._driver is not None and opening == self._openings:
                data = blocks[0] if len(blocks) == 1 else b"".join(blocks)
                self._driver.received(node, message, data)
            done()

        self._queue.put(receive)

    @override
    def has_room(self, node: str) -> None:
        def tell() -> None:
            if self._driver is not None:
                self._driver.has_room(node)

        self._queue.put(tell)

    @override
    def disconnected(self, node: str, *, has_stopped: bool) -> None:
        self.give(Disconnected(node, has_stopped))

    # --- what repairs need, on the thread

    @override
    def log_view(self) -> LogView | None:
        driver, owner = self._driver, self._owner
        if self._failed is not None or driver is None or driver.replica is None:
            return None
        if owner.is_spoiled and owner.leading is None:  # it is about to be opened again
            return None
        store, state = owner.following, driver.replica.state
        heard = state.leader_heard
        return LogView(
            store.log,
            store.reader,
            driver.history(),
            None if heard is None or owner.leading is not None else heard[0],
        )

    @override
    def log_failed(self, reason: str) -> None:
        self._owner.alarm("LOG_FAILED", reason)
        self._give(SyncFailed())

    @override
    def is_mended(self, remaining_count: int) -> None:
        self._owner.is_mended(remaining_count)

    @override
    def alarm(self, code: str, detail: str) -> None:
        self._owner.alarm(code, detail)

    # --- the thread

    def _run(self) -> None:
        try:
            self._owner.open()
            self._driver = self._new_driver()
            self._look()
        except BaseException as error:  # noqa: BLE001 - who waits has to be told
            try:
                self._owner.close(is_clean=False)  # first: who hears of it may open it again
            except Exception:  # noqa: BLE001 - the reason of the start is told
                _LOG.exception("the directory was not let go of in order")
            self._tell_started(error)
            return
        self._tell_started(None)
        next_tick_ms = self._parts.now_ms()
        while not self._is_stopping:
            now_ms = self._parts.now_ms()
            if now_ms >= next_tick_ms:
                next_tick_ms = now_ms + self._parts.timing.tick_ms
                self._guarded(self._tick)
            has_more = self._failed is None and self._guarded(self._owner.advance)
            try:
                wait_s = 0 if has_more else max(next_tick_ms - self._parts.now_ms(), 0) / 1_000
                work = self._queue.get(timeout=wait_s) if wait_s else self._queue.get_nowait()
            except queue.Empty:
                continue
            self._guarded(work)
        self._end()

    def _tell_started(self, error: BaseException | None) -> None:
        def tell() -> None:
            if self._started.cancelled():
                return
            if error is None:
                self._started.set_result(None)
            else:
                self._started.set_exception(error)

        self._loop.call_soon_threadsafe(tell)

    def _guarded(self, work: Callable[[], object]) -> object:
        """What `work` returns; None behind a fault."""
        try:
            returned = work()
            if self._failed is None and self._driver is not None and self._driver.failed:
                self._failed = self._driver.failed
                self._look()
            self._owner.between()
            if self._owner.is_spoiled and self._owner.leading is None:
                self._follow_again()
        except Exception as error:  # noqa: BLE001 - the node lives on, and shows it
            _LOG.exception("the replica ends")
            self._fail(repr(error))
            return None
        return returned

    def _fail(self, reason: str) -> None:
        """A fault that nobody knows how to go on from. Each step is done whatever became of those
        before it: the thread lives on, to tell of the fault and to stop in order."""
        self._failed, self._driver = reason, None
        leads = self._owner.leading is not None and not self._is_killed
        steps: list[Callable[[], object]] = [
            lambda: self._owner.alarm("REPLICA_FAILED", reason),
            *((lambda: self._owner.step_down(reason),) if leads else ()),
            self._make_connections_anew,
            self._look,
        ]
        for step in steps:
            try:
                step()
            except Exception:  # noqa: BLE001 - one fault is told, the others are in the log
                _LOG.exception("the replica did not end in order")

    def _make_connections_anew(self) -> None:
        """What comes until the event loop has ended the old ones was said to the driver before."""
        for node in self._parts.peer_nodes:
            self._parts.connections.close(node)
        self._openings += 1
        self._loop.call_soon_threadsafe(self._note_opening, self._openings)

    def _note_opening(self, opening: int) -> None:
        self._heard_openings = opening

    def _give(self, event: Event) -> None:
        if self._driver is not None:
            self._driver.give(event)

    def _lacks(self, reason: str) -> None:
        if self._driver is not None:
            self._driver.lacks(reason)

    def _tick(self) -> None:
        if self._failed is not None or self._is_stopping:
            return
        self._give(Tick())
        self._owner.tick()
        self._repairs.work()
        self._look()

    def _follow_again(self) -> None:
        """A term is over, or did not come to be: begin anew with what is kept."""
        driver, now_ms = self._driver, self._parts.now_ms()
        if self._failed is not None or now_ms < self._open_again_ms:
            return
        if driver is not None:
            is_paused = driver.replica is None
            self._could_not_lead_ms = driver.could_not_lead_ms
            self._driver, self._last_number = None, driver.last_number
            self._make_connections_anew()
            if is_paused:
                self._open_again_ms = now_ms + PAUSE_MS
                return
        try:
            self._owner.open_again()
            self._driver = self._new_driver()
        except (OSError, MemoryError) as error:
            if shortage_of(error) is None:
                raise
            self._owner.is_spoiled = True
            self._owner.alarm("REPLICA_PAUSED", str(error))
            self._open_again_ms = now_ms + PAUSE_MS

    def _new_driver(self) -> ReplicaDriver:
        parts, owner = self._parts, self._owner
        store = owner.following
        first_number = max(parts.options.clock.now_ms(), self._last_number + 1)
        return ReplicaDriver(
            ReplicaParts(
                parts.node,
                parts.peer_nodes,
                parts.timing,
                store.log,
                store.reader,
                parts.directory.replica_files,
                parts.directory.incarnation,
                store.high_watermark,
                parts.connections,
                parts.database,
                owner,
                parts.now_ms,
                parts.new_grant,
                first_number,
                self._could_not_lead_ms,
                parts.is_clock_apart,
                lambda: self._blocks_come > self._blocks_taken,
            )
        )

    def _look(self) -> None:
        """What `status` shows, and whether enough replicas are in sync."""
        now_ms, driver = self._parts.now_ms(), self._driver
        alarms = [
            ReplicaAlarm(each.code, each.detail, now_ms - each.last_ms)
            for each in self._owner.alarms.values()
            if now_ms - each.last_ms < ALARM_SHOWN_MS
        ]
        repairs = self._repairs
        if driver is None or driver.replica is None:
            role = Role.PAUSED if self._failed is None else Role.FAILED
            self._status = replace(
                self._status,
                role=role,
                damaged_places=repairs.damaged_count,
                mended_bytes=repairs.mended_bytes,
                leader=None,
                members=(),
                full_nodes=(),
                lacking_count=0,
                is_being_elected=False,
                alarms=tuple(alarms),
                failed=self._failed,
            )
            return
        status = status_of(driver.replica, driver.high_watermark, alarms)
        self._status = replace(
            status, damaged_places=repairs.damaged_count, mended_bytes=repairs.mended_bytes
        )
        leader, leading = driver.replica.leader, self._owner.leading
        if leader is not None and leading is not None:
            lacking = self._status.lacking_count
            too_few = f"{lacking} more would have to answer" if lacking else None
            if too_few != self._too_few:
                self._too_few = too_few
                self._loop.call_soon_threadsafe(leading.refuse_while, too_few)
            full_nodes = self._status.full_nodes
            if full_nodes != self._full_nodes:
                self._full_nodes = full_nodes
                self._loop.call_soon_threadsafe(leading.take_no_messages_while_full, full_nodes)
        else:
            self._too_few, self._full_nodes = None, ()

    # --- the end

    def _stop(self) -> None:
        self._is_stopping = True

    def _end(self) -> None:
        owner, is_clean = self._owner, False
        try:
            if self._is_killed:
                owner.abandon("the node was killed")
            else:
                if owner.leading is not None:
                    owner.step_down("the node stops")
                if owner.is_spoiled and self._failed is None:
                    owner.open_again()
                    self._driver = self._new_driver()
                if self._driver is not None and self._failed is None:
                    self._driver.stop()
                    is_clean = True
        except Exception:  # noqa: BLE001 - the directory has to be let go of
            _LOG.exception(
                "the replica did not stop in order; the next start reads more of its log"
            )
        try:
            owner.close(is_clean=is_clean)
        except Exception:  # noqa: BLE001 - the thread ends here
            _LOG.exception("the replica's last checkpoint was not written")
