"""The directory of a replica, as its driver needs it: opened to follow, led, and opened anew.

On the driver's thread, which waits for the event loop where a term ends; the event loop never waits
for this thread.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from typing_extensions import override

from app.cluster.replication.confirmation import LogEnd
from app.cluster.replication.events import Appended, Event, RoomSeen, UncleanJudged
from app.cluster.replication.terms import Term, TermStart
from app.domain.clock import StepTimes
from app.domain.errors import ShardUnavailable
from app.domain.limits import MIB
from app.domain.shortages import shortage_of
from app.replica.kept_terms import history_document
from app.replica.leadership import LeaderHooks, Leadership
from app.replica.log_repairs import LogRepairs
from app.replica.ports import ColdState, CutTail, ReplicaOwner, WarmState
from app.store import MessageStore
from app.store.damage import DamageKind
from app.store.followed_store import FollowedStore
from app.store.lifecycle.checkpoints import Checkpointing
from app.store.replica.block_walk import BlocksRefused, BlocksUnreadable
from app.store.replica.replica_log import ReplicaLogFailed
from app.store.replica.replica_store import (
    KeptLock,
    OpeningOptions,
    ReplicaDirectory,
    ReplicaStore,
)
from app.store.replica.term_block import end_behind, term_block

_LOG: Final = logging.getLogger(__name__)

_Returned = TypeVar("_Returned")

CHECKPOINT_MS: Final = 5_000
"""Between two checkpoints of a follower that has dispatched something."""

CHECKPOINT_BYTES: Final = 256 * MIB
"""Of the log, behind which one is due at once."""

ROOM_MS: Final = 500
"""Between two looks whether the disk takes messages."""


@dataclass(slots=True)
class AlarmState:
    """One alarm, since it was raised for the first time."""

    code: str
    detail: str
    since_ms: int
    last_ms: int
    count: int = 1


class StoreOwner(ReplicaOwner):
    """Over one `ReplicaDirectory`. `open` before anything else."""

    def __init__(
        self,
        directory: ReplicaDirectory,
        options: OpeningOptions,
        hooks: LeaderHooks,
        loop: asyncio.AbstractEventLoop,
        post: Callable[[Callable[[], object]], object],
    ) -> None:
        """`post` has a callable called on this thread, between two events of the driver."""
        self.give: Callable[[Event], object]
        """Of the driver, while it carries actions out: what is given is taken in behind them."""
        self.lacks: Callable[[str], object]
        """Of the driver."""
        self.tell_leading: Callable[[], object]
        """Of the runner: whether enough replicas are in sync."""
        self.repairs: LogRepairs
        """Set before it is opened."""
        self.alarms: dict[str, AlarmState] = {}
        self.following: ReplicaStore
        self.followed: FollowedStore | None = None
        """What of it may be read, until this replica begins to lead."""
        self.leading: Leadership | None = None
        self.is_spoiled = False
        """More is dispatched than is confirmed, or the store is closed: it has to be opened anew
        before this replica follows."""
        self._directory = directory
        self._options = options
        self._hooks = hooks
        self._loop = loop
        self._post = post
        self._high_watermark = 0
        self.is_open = False
        """Whether `following` is there; also behind an opening that has failed: the one before."""
        self._is_to_begin = False
        self._unreadable: tuple[str, str] | None = None
        """The alarm that tells why nothing more is dispatched before the store is opened anew."""
        self._pool = ThreadPoolExecutor(1, "curlew-replica-checkpoint")
        self._warm_pool = ThreadPoolExecutor(1, "curlew-replica-timers")
        """Not the other one: who begins to lead waits for a checkpoint."""
        self._writing: Future[None] | None = None
        self._checkpoint_ms = _now_ms()
        self._checkpoint_end = 0
        self._written_end = 0
        """That of the last checkpoint that is on the medium."""
        self._room_ms = 0
        self._is_full = False
        """As was told last."""
        self._to_do_before: Callable[[], object] | None = None
        """Before the next opening."""
        self._delete_below = 0
        """Where the leader's log begins, as it said."""
        self._warm: WarmState = ColdState()
        self._accepted: Term | None = None
        """The last term for which an operator has accepted a loss."""

    def open(self) -> None:
        """Open the directory to follow. Raises as `ReplicaStore.open`."""
        self.following = ReplicaStore.open(self._directory, self._options)
        parts, repairs = self.following.parts, self.repairs
        for found in parts.recovery.damages:
            repairs.found(found.start, found.end)
        parts.reader.source.repair.others = repairs
        repairs.is_loss_accepted = False
        repairs.begin()
        self._high_watermark = self._checkpoint_end = self.following.high_watermark
        self._written_end = self._checkpoint_end
        self.is_open = True
        self.followed = FollowedStore(self.following.parts)
        self.following.dispatcher.before_floors = self.followed.hold
        self._warm = self._hooks.keep_warm(self.followed, self._warm_pool.submit)
        self.is_spoiled, self._unreadable = False, None
        self._delete_below = 0  # another leader may have said it, whose log went further

    # --- between two events

    def between(self) -> None:
        """Behind an event: what had to wait until the driver has taken all in."""
        if self._is_to_begin and self.leading is not None:
            self._loop.call_soon_threadsafe(self.leading.begin)
        self._is_to_begin = False
        if self.leading is None and not self.is_spoiled:
            self.following.let_go()  # when who waits for the sync has been told

    def advance(self) -> bool:
        """Dispatch a piece of what is confirmed; whether there is more."""
        followed = self.followed
        if self.is_spoiled or self._unreadable is not None or followed is None:
            return False
        damaged = self.repairs.first_behind(self.following.high_watermark)
        end = self._high_watermark if damaged is None else min(self._high_watermark, damaged)
        try:
            has_more = self.following.advance(end)
            has_more |= followed.take_floors()
            return self._keep_warm(self._warm.advance) or has_more
        except BlocksUnreadable as error:
            if damaged is not None:  # within a step, which is being put right
                return False
            self._unreadable = "BLOCKS_UNREADABLE", str(error)
            self.alarm(*self._unreadable)
            self.is_damaged(self.following.high_watermark)
        except ShardUnavailable as error:  # the next tick goes on
            self.alarm("LOG_DAMAGED", error.detail)
        except OSError as error:
            if shortage_of(error) is None:
                self._unreadable = "DISPATCH_FAILED", str(error)
            self.alarm("DISPATCH_FAILED", str(error))  # a shortage: the next turn goes on
        return False

    def _keep_warm(self, step: Callable[[], bool | None]) -> bool:
        """What `step` returns. A defect there keeps no replica from following: who begins to lead
        reads all from the log then."""
        try:
            return bool(step())
        except (ShardUnavailable, OSError):
            raise
        except Exception:  # noqa: BLE001 - it is told, and read from the log
            _LOG.exception("what a broker begins with is kept up no more")
            warm, self._warm = self._warm, ColdState()
            warm.end()
            return False

    def tick(self) -> None:
        """Tell again what lasts, and begin a checkpoint, if one is due."""
        store = self.following
        if _now_ms() - self._room_ms >= ROOM_MS:
            self._room_ms = _now_ms()
            self._look_for_room()
        if self._unreadable is not None:
            self.alarm(*self._unreadable)
        if self.is_spoiled or (self._writing is not None and not self._writing.done()):
            return
        self._delete(store)
        self._tick_warm(store)
        behind = store.high_watermark - self._checkpoint_end
        is_late = _now_ms() - self._checkpoint_ms >= CHECKPOINT_MS
        if behind and (is_late or behind > CHECKPOINT_BYTES):
            self._checkpoint_ms, self._checkpoint_end = _now_ms(), store.high_watermark
            end = min(store.high_watermark, store.log.flushed)
            self._writing = self._pool.submit(self._write, store.begin_checkpoint(), end)

    def _tick_warm(self, store: ReplicaStore) -> None:
        try:
            self._keep_warm(lambda: self._warm.tick(store.high_watermark, store.log.flushed))
        except OSError as error:  # the next tick goes on
            self.alarm("CHECKPOINT_FAILED", f"the timer log: {error}")

    def _look_for_room(self) -> None:
        """Find out whether the disk takes messages, if this replica leads."""
        leading = self.leading
        if leading is not None:
            self._loop.call_soon_threadsafe(self._ask_store_for_room, leading)
        elif not self.is_spoiled:
            self._tell_of_room(lambda: self.following.refusal)

    def _ask_store_for_room(self, leading: Leadership) -> None:
        """On the event loop."""
        refusal = leading.store.status().refusal_here
        self._post(lambda: self._tell_of_room(lambda: refusal) if self.leading is leading else None)

    def _tell_of_room(self, find: Callable[[], str | None]) -> None:
        """`find` says why messages are refused. One that was full has room when there is some to
        spare: also in a new term, whose store looks at the disk later."""
        try:
            refusal = find()
            if refusal is None and self._is_full:
                refusal = self.following.lack_of_spare_room
        except OSError:  # what needs the disk will tell
            self.give(RoomSeen(None))
            return
        self._is_full = refusal is not None
        if refusal is not None:
            self.alarm("REPLICA_FULL", f"this replica takes no messages: {refusal}")
        self.give(RoomSeen(refusal is None))

    def _delete(self, store: ReplicaStore) -> None:
        """Delete what the leader has deleted, while no checkpoint is being written."""
        try:
            store.delete_below(self._delete_below, self._written_end)
        except OSError as error:  # the next tick goes on
            self.alarm("DELETE_FAILED", f"segments below {self._delete_below}: {error}")

    def _write(self, checkpointing: Checkpointing, end: int) -> None:
        """On the pool's thread."""
        try:
            checkpointing.run()
            self._written_end = end
        except OSError as error:
            detail = str(error)
            if not self.following.checkpoints.note(error):
                self._post(lambda: self.alarm("CHECKPOINT_FAILED", detail))

    def _end_checkpoint(self) -> None:
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    # --- the port

    @override
    def accept_loss(self, term: Term) -> None:
        self._accepted = term

    @override
    def append_term_start(self, term: Term) -> None:
        self.repairs.is_loss_accepted = term == self._accepted
        self._refuse_to_lead_over_damage()
        self._end_checkpoint()
        followed = self.followed
        self._end_reads()  # what is dispatched from here on may not be confirmed
        following, self.is_spoiled = self.following, True
        start = following.log.written
        block = term_block(*term)
        end = end_behind(block, start, following.parts.meta.segment_bytes)
        leading = Leadership(term, self._hooks, block, end, self._pass_on, self._pass_lack)
        times = StepTimes(time.monotonic)
        try:
            following.dispatch_all()
            times.end("queues and index")
            leading.store = MessageStore.over(
                following.parts,
                KeptLock(),
                self._loop,
                leading.gate,
                following.checkpoints,
                self._high_watermark,
                leading.make_writer,
                None if followed is None else followed.hand_over(),
            )
        except BlocksUnreadable as error:
            self.is_damaged(following.high_watermark)
            self._refuse_to_lead_over_damage()
            raise ReplicaLogFailed(f"the own log cannot be read: {error}") from error
        except ShardUnavailable as error:
            raise BlocksRefused(error.detail) from error
        times.end("store")
        _LOG.info("the take-over of the log took %s", times)
        leading.warm, self._warm = self._warm, ColdState()
        self.leading = leading
        self.repairs.begin()
        self._is_to_begin = True
        self.give(Appended(end, wants_sync=True, term_start=TermStart(term, start)))

    def _refuse_to_lead_over_damage(self) -> None:
        """What is not dispatched yet is damaged, and another replica may have it: that comes first.
        Where all have said that they do not, or an operator has an unclean election, it leads with
        what is good."""
        start = self.following.high_watermark
        damaged = self.repairs.first_behind(start)
        if damaged is not None and not self.repairs.is_hopeless(start):
            raise BlocksRefused(f"the log is damaged at {damaged}; it is being put right")

    def _pass_on(self, leading: Leadership, events: Sequence[Event]) -> None:
        def give() -> None:
            if self.leading is leading:
                for event in events:
                    self.give(event)

        self._post(give)

    def _pass_lack(self, leading: Leadership, reason: str) -> None:
        self._post(lambda: self.lacks(reason) if self.leading is leading else None)

    @override
    def move_watermark(self, high_watermark: int) -> None:
        self._high_watermark = high_watermark
        leading = self.leading
        if leading is not None:
            self._loop.call_soon_threadsafe(leading.confirm, high_watermark)

    @override
    def delete_below(self, start: int) -> None:
        self._delete_below = max(self._delete_below, start)

    @override
    def is_damaged(self, at: int) -> None:
        self.repairs.found(at, at + 1)

    def is_mended(self, remaining_count: int) -> None:
        """The log was put right at a place; so many damaged ones are left."""
        self._unreadable = None
        if not remaining_count:
            self.alarms.pop("LOG_DAMAGED", None)
            self.following.parts.repair.damages.put_right(DamageKind.LOG)
            try:
                self._directory.incarnation.note_mended(0)
            except OSError as error:  # the next opening judges by what it finds
                if shortage_of(error) is None:
                    raise

    @override
    def serve(self, term: Term) -> None:
        assert self.leading is not None
        self.tell_leading()  # before the broker takes anything
        self._loop.call_soon_threadsafe(self.leading.serve)

    @override
    def take_no_more(self) -> None:
        if self.leading is not None:
            self._loop.call_soon_threadsafe(self.leading.take_no_more)

    @override
    def step_down(self, reason: str) -> LogEnd:
        log = self.following.log
        self.repairs.shut()
        leading, self.leading = self.leading, None
        self._is_to_begin = False
        if leading is None:
            return LogEnd(log.written, log.flushed)
        try:
            asyncio.run_coroutine_threadsafe(leading.end_broker(reason), self._loop).result()
        except CancelledError:
            _LOG.warning("the end of the broker was cut off; its store is closed all the same")
        leading.end_writer()
        return self._on_loop(leading.close)

    def abandon(self, reason: str) -> None:
        """End a term as a kill does, but for the threads of this process."""
        self.repairs.shut()
        leading, self.leading = self.leading, None
        self._is_to_begin = False
        if leading is not None:
            self._on_loop(lambda: leading.cut_off(reason))
            leading.end_writer()
            self._on_loop(leading.close)

    def _on_loop(self, call: Callable[[], _Returned]) -> _Returned:
        """Wait for a call of the event loop, which no end of its tasks cuts off."""
        returned: Future[_Returned] = Future()

        def run() -> None:
            try:
                returned.set_result(call())
            except BaseException as error:  # noqa: BLE001 - it is this thread's
                returned.set_exception(error)

        self._loop.call_soon_threadsafe(run)
        return returned.result()

    @override
    def unclean_judged(self, judged: UncleanJudged) -> None:
        newest_ms = self.following.store_time_ms
        self._loop.call_soon_threadsafe(self._hooks.on_unclean_judged, judged, newest_ms)

    @override
    def before_cut(self) -> None:
        self._warm.before_cut()

    @override
    def was_cut(self, tail: CutTail) -> None:
        self._loop.call_soon_threadsafe(self._hooks.on_cut, tail)

    @override
    def make_anew(self, reason: str) -> None:
        self.alarm("REPLICA_MADE_ANEW", reason)
        self._to_do_before = partial(self._directory.make_anew, reason)
        self.is_spoiled = True

    @override
    def begin_anew(self, start: int, history: tuple[TermStart, ...], reason: str) -> None:
        self.alarm("REPLICA_BEGINS_ANEW", reason)
        starts = history_document(history).starts
        self._to_do_before = partial(self._directory.begin_anew, start, starts, reason)
        self.is_spoiled = True

    @override
    def alarm(self, code: str, detail: str) -> None:
        now_ms, known = _now_ms(), self.alarms.get(code)
        if known is None or known.detail != detail:
            _LOG.warning("%s: %s", code, detail)
        if known is None:
            self.alarms[code] = AlarmState(code, detail, now_ms, now_ms)
        else:
            known.detail, known.last_ms, known.count = detail, now_ms, known.count + 1

    # --- the end

    def _end_reads(self) -> None:
        self.repairs.shut()
        followed, self.followed = self.followed, None
        if followed is not None:
            followed.shut()

    def open_again(self) -> None:
        """Behind a term: throw away what it has dispatched. Raises as `open`."""
        self._end_reads()
        self._end_checkpoint()
        self._warm.end()
        self._warm_pool.submit(_drained).result()
        self.following.close()
        if self._to_do_before is not None:
            self._to_do_before()
            self._to_do_before = None
        self.open()

    def close(self, *, is_clean: bool) -> None:
        """Let go of the directory; `is_clean`: the driver has stopped, write a last checkpoint."""
        try:
            self._end_checkpoint()
            warm, self._warm = self._warm, ColdState()  # a stop does not wait for what is behind
            warm.end()
            if is_clean and not self.is_spoiled:
                while self.advance():
                    pass
                self.following.stop()
        finally:
            self._pool.shutdown()
            self._warm_pool.shutdown()
            self._end_reads()
            if self.is_open:
                self.following.close()
            self._directory.release()


def _drained() -> None:
    """Behind what a term has left to be done."""


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
