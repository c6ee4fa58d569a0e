"""The one writer of a store: batching, group commit, the three watermarks, sticky failure.

Blocks are submitted on the event loop. What was submitted during one turn of the loop becomes one
batch. A batch that needs neither a sync nor a new segment is written inline at the end of the turn;
any other goes to the writer thread, which encodes large steps, writes it, syncs once for all that
wait, and reports back to the loop. While it works the next batch forms; there is no timer. A flush
of what is written already is the thread's alone: the loop goes on writing. (docs/adr, "Who
writes".)

A block that fails takes everything behind it along, because the log has no holes:

- A shortage (`app.domain.shortages`: no room, no descriptor, …): nothing of the batch stays in the
  file. What may be there of it is taken back by the worker, on the medium too, before anyone is
  told: what was refused must not come back, nor its bytes stand between later ones. The blocks fail
  (not stored), the assignment of positions goes back to what is written, and sending works again
  when there is enough.
- A block that cannot be encoded, which should not happen, fails as if there was a shortage.
- Any other failure of a write, and every one of a sync, is sticky. After a failed fsync the kernel
  may have dropped the dirty pages, so a second one that succeeds proves nothing. What was in the
  batch has an unknown outcome, what was waiting is not stored, and nothing is written any more.

Where there is a gate (`gate`), what is written is confirmed when it says so. It hears of a batch
before the sync, and again behind it, so that other replicas sync at the same time. What waits there
when the store fails, is fenced or stops has an unknown outcome, for it is in the log.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

import msgspec

from app.domain.errors import CurlewError, DiskFull, Outcome, StoreFailed, SystemBusy
from app.domain.shortages import HINTS, Shortage, shortage_of
from app.runtime.shortage_log import ShortageLog
from app.store.fs.files import Buffer
from app.store.log.commit_log import CommitLog
from app.store.log.page_cache_limit import PageCacheLimit
from app.store.write.blocks import Block, Done, Watermarks, Write
from app.store.write.gate import Gate
from app.store.write.worker import Turns, Workers, WriterThread

_LOG: Final = logging.getLogger(__name__)

NO_ROOM: Final = "the disk has no room for another segment of the log"
LACK: Final = "sends"
"""The writer's name in the log of shortages."""
RESTART_HINT: Final = "reading goes on; mend the disk and restart the node"


class EncodingFailed(Exception):
    """A block has no writes: nothing of its batch was written."""


class _Attempt(msgspec.Struct, eq=False):
    batch: list[Block]
    synced: bool
    failure: Exception | None
    touched: bool
    """Whether anything of the batch may be in the file."""


class _Flush(msgspec.Struct, eq=False):
    """A sync of what was written when it began."""

    end: int
    segments: list[int]
    waiting: list[Block]
    failure: Exception | None = None


class Writer:
    """Takes blocks in order and confirms them in order. Methods are for the event loop."""

    def __init__(
        self,
        log: CommitLog,
        turns: Turns,
        end: int,
        on_rollback: Callable[[Sequence[Block]], None],
        workers: Workers = WriterThread,
        cache: PageCacheLimit | None = None,
        shortages: ShortageLog | None = None,
        gate: Gate | None = None,
    ) -> None:
        self.watermarks = Watermarks(end, end, end)
        self.failed: str | None = None
        """Why no write is taken any more."""
        self._refusal: Callable[[], CurlewError] | None = None
        """Of a log that counts no more."""
        self.pending_bytes = 0
        self._lacking: Shortage | None = None
        """Of what there was too little for the last write."""
        self._shortages = shortages or ShortageLog()
        self._log = log
        self._turns = turns
        self._on_rollback = on_rollback
        self._cache = cache
        self.gate = gate
        """None: what is written is confirmed at once."""
        self._turn_ending = False
        self._flush_wanted = False
        self._attempts: deque[_Attempt | _Flush] = deque()
        self._lock = threading.Lock()
        # The rest is guarded by _lock.
        self._pending: list[Block] = []
        self._handed_over = False  # the worker takes what is pending, until all is settled
        self._flushes: deque[_Flush] = deque()  # for the worker, before what is pending
        self._undoing: _Attempt | None = None  # of the loop, for the worker to take back
        self._looking = False  # the worker is to look whether there is enough again
        self._outstanding = 0  # what the worker took and the loop has not settled
        self._halted = False
        self._worker = workers(self._work)

    def submit(self, block: Block) -> None:
        """Queue a block; its positions follow those of the block before."""
        if not self._turn_ending:  # first, as it may raise: then nothing is taken
            self._turns.call_soon(self._end_turn)
            self._turn_ending = True
        self.pending_bytes += block.size
        with self._lock:
            self._pending.append(block)

    def flush(self, end: int, done: Done) -> None:
        """Bring to the medium what was submitted so far, which is up to `end`; then call `done`."""
        self._flush_wanted = True
        self.submit(Block(end, [], 0, sync=True, done=done))

    @property
    def refusal(self) -> str | None:
        """That the last segment found no room; None since there is room again."""
        return NO_ROOM if self._lacking is Shortage.ROOM else None

    def look_again(self) -> None:
        """Find out whether there is enough again for what was refused last; nobody may send."""
        if self._lacking is not None and self.failed is None:
            with self._lock:
                self._looking = True
            self._worker.wake()

    def refuse_if_failed(self) -> None:
        """Raise `StoreFailed`, or why another log counts, when nothing is written any more."""
        if self.failed is not None:
            raise self._refusal() if self._refusal else _store_failed(self.failed, "not_stored")

    def fence(self, reason: str, refusal: Callable[[], CurlewError]) -> None:
        """Another node may write what counts: take no writes, and refuse them with what `refusal`
        makes. Of what is being written it is not known whether it counts."""
        if self.failed is None:
            self._refusal = refusal
            self.fail(reason)

    def fail(self, reason: str) -> None:
        """Take no further writes; what waits is not stored."""
        self.failed = self.failed or reason
        with self._lock:
            self._halted = True
            waiting = [block for flush in self._flushes for block in flush.waiting]
            waiting += self._pending
            self._flushes.clear()
            self._pending = []
        self._give_up_held(self.failed)
        refusal = self._refusal() if self._refusal else _store_failed(self.failed, "not_stored")
        self._settle(waiting, refusal)

    def stop(self) -> None:
        """Write and sync what is queued, end the worker, settle everything. Blocks."""
        with self._lock:
            self._handed_over = True
        self._worker.stop()
        self._settle_attempts()
        if self._pending or self._flushes:
            self.fail("the node stopped")
        self._give_up_held("the node stopped")

    def _end_turn(self) -> None:
        self._turn_ending = False
        with self._lock:
            if not self._pending or self._halted:
                return
            if self._handed_over or self._must_leave_the_loop(self._pending):
                self._handed_over = True
                self._worker.wake()
                return
            batch, self._pending = self._pending, []
        if self._flush_wanted:
            self._write_and_flush(batch)
        else:
            self._write_here(batch)

    def _write_here(self, batch: list[Block]) -> None:
        """Write on the loop; what fails half way is for the worker to take back."""
        attempt = self._attempt(batch, sync=False)
        if attempt.failure is None or not _must_be_taken_back(attempt):
            self._settle_attempt(attempt)
            return
        with self._lock:
            self._halted = self._handed_over = True
            self._undoing = attempt
        self._worker.wake()

    def _must_leave_the_loop(self, batch: list[Block]) -> bool:
        """Syncing, making a segment and encoding take long."""
        for block in batch:  # in a loop of its own: any() makes a generator for each turn
            if block.encode is not None or (block.sync and block.writes):
                return True
        return not self._log.is_prepared(batch[-1].end)

    def _write_and_flush(self, batch: list[Block]) -> None:
        """Write on the loop, and have synced by the worker what is written then."""
        self._flush_wanted = False
        waiting = [block for block in batch if block.sync]
        batch = [block for block in batch if not block.sync]
        if batch:
            self._write_here(batch)
        if self.failed is not None:
            self._settle(waiting, _store_failed(self.failed, "unknown"))
        elif waiting:
            flush = _Flush(self.watermarks.written, self._log.begin_sync(), waiting)
            with self._lock:
                self._flushes.append(flush)
            self._worker.wake()

    def _work(self) -> bool:
        """Do one flush, or write one batch, if there is one; for the worker."""
        with self._lock:
            work = self._next_work()
            if work is None:
                return False
            self._outstanding += 1
        work()
        return True

    def _next_work(self) -> Callable[[], None] | None:
        """What the worker is to do. The lock is held."""
        if self._undoing is not None:
            undoing, self._undoing = self._undoing, None
            return partial(self._report, undoing)
        if self._halted:
            return None
        if self._flushes:
            return partial(self._sync, self._flushes.popleft())
        if self._handed_over and self._pending:
            batch, self._pending = self._pending, []
            return partial(self._write, batch)
        if self._looking:
            self._looking = False
            return self._look
        return None

    def _look(self) -> None:
        """Make the segments that were missing, with the same way back as `_make_ahead`."""
        base = self._log.base_of(self.watermarks.written)
        try:
            self._log.prepare(base)
            self._log.prepare(base + self._log.segment_bytes)
        except Exception as error:  # noqa: BLE001 - as in _attempt
            if shortage_of(error) is None:
                self._fail_from_worker(error)
        else:
            self._turns.call_soon_threadsafe(self._has_enough)
        with self._lock:
            self._outstanding -= 1

    def _sync(self, flush: _Flush) -> None:
        self._finish(flush)
        self._tell(flush)
        if flush.failure is None:
            self._bound_cache(flush.end)

    def _finish(self, flush: _Flush) -> None:
        try:
            self._log.finish_sync(flush.segments)
        except Exception as error:  # noqa: BLE001 - as in _attempt
            flush.failure = error
            with self._lock:
                self._halted = True

    def _write(self, batch: list[Block]) -> None:
        wants_sync = any(block.sync for block in batch)
        is_told_first = self.gate is not None and wants_sync and not _is_flush(batch)
        attempt: _Attempt | _Flush
        attempt = _encode(batch) or self._attempt(batch, sync=wants_sync and not is_told_first)
        if is_told_first and attempt.failure is None:
            attempt = self._tell_and_sync(attempt)
        if attempt.failure is not None:
            with self._lock:
                self._halted = True
        spare = None if attempt.failure else self._log.missing_next(batch[-1].end)
        if spare is not None:
            with self._lock:
                self._outstanding += 1
        self._report(attempt)
        if spare is not None:
            self._make_ahead(spare)
        if wants_sync and attempt.failure is None:
            self._bound_cache(batch[-1].end)

    def _tell_and_sync(self, attempt: _Attempt) -> _Flush:
        """Have the loop settle what is written, and sync it meanwhile. A sync that fails takes
        nothing back: other replicas may have it by then."""
        batch = attempt.batch
        attempt.batch = [block for block in batch if block.writes]
        waiting = [block for block in batch if not block.writes]
        flush = _Flush(batch[-1].end, self._log.begin_sync(), waiting)
        with self._lock:
            self._outstanding += 1
        self._tell(attempt)
        self._finish(flush)
        return flush

    def _tell(self, attempt: _Attempt | _Flush) -> None:
        self._attempts.append(attempt)
        self._turns.call_soon_threadsafe(self._settle_attempts)

    def _report(self, attempt: _Attempt | _Flush) -> None:
        """Have the loop settle an attempt, after what it left half done was taken back."""
        if isinstance(attempt, _Attempt) and _must_be_taken_back(attempt):
            try:
                start = min(at for block in attempt.batch for at, _ in block.writes)
                self._log.take_back(start)
                attempt.touched = False
            except Exception as error:  # noqa: BLE001 - as in _attempt
                attempt.failure = error
        self._tell(attempt)

    def _bound_cache(self, flushed: int) -> None:
        """For the worker, when those who waited for the sync have been told: it takes a while."""
        if self._cache is not None:
            self._cache.follow(flushed)

    def _make_ahead(self, base: int) -> None:
        """Make the next segment before it is needed. Without room for it: then, with an error."""
        try:
            self._log.prepare(base)
        except Exception as error:  # noqa: BLE001 - as in _attempt
            if shortage_of(error) is None:
                self._fail_from_worker(error)
        with self._lock:
            self._outstanding -= 1

    def _fail_from_worker(self, error: Exception) -> None:
        """Have the loop take note of a fault that belongs to no batch."""
        with self._lock:
            self._halted = True
            self._outstanding += 1
        self._tell(_Attempt([], synced=False, failure=error, touched=False))

    def _attempt(self, batch: list[Block], *, sync: bool) -> _Attempt:
        """Write a batch, and sync it if asked. Either thread, never both at a time.

        The loop writes while the worker does a flush.
        """
        touched = False
        try:
            if len(batch) == 1:
                writes = batch[0].writes
            else:
                writes = [write for block in batch for write in block.writes]
            if writes and not self._log.is_written(writes[-1][0]):
                for base in {self._log.base_of(start) for start, _ in writes}:
                    self._log.prepare(base)
            touched = True
            for start, buffers in writes if len(writes) == 1 else self._joined(writes):
                self._log.write(start, buffers)
            if sync:
                self._log.sync()
        except Exception as error:  # noqa: BLE001 - a writer that dies would let everyone wait
            return _Attempt(batch, synced=False, failure=error, touched=touched)
        return _Attempt(batch, synced=sync, failure=None, touched=touched)

    def _joined(self, writes: Iterable[Write]) -> Iterable[Write]:
        """Writes of which none follows directly on the one before in the same segment."""
        segment_bytes = self._log.segment_bytes
        current: list[Buffer] = []
        start = end = 0
        for at, buffers in writes:
            if current and at == end and at % segment_bytes:
                current += buffers
            else:
                if current:
                    yield start, current
                start = end = at
                current = list(buffers)
            for buffer in buffers:
                end += len(buffer)
        if current:
            yield start, current

    def _settle_attempts(self) -> None:
        while self._attempts:
            attempt = self._attempts.popleft()
            if self._refusal is not None:
                self._note_written(attempt)
                blocks = attempt.waiting if isinstance(attempt, _Flush) else attempt.batch
                self._settle(blocks, _store_failed(str(self.failed), "unknown"))
            elif isinstance(attempt, _Flush):
                self._settle_flush(attempt)
            else:
                self._settle_attempt(attempt)
            with self._lock:
                self._outstanding -= 1
                if not self._outstanding and not self._pending:
                    self._handed_over = False

    def _note_written(self, attempt: _Attempt | _Flush) -> None:
        """Of a log that counts no more: nothing is confirmed, and what is in the file is there."""
        if attempt.failure is None and isinstance(attempt, _Flush):
            self.watermarks.flush(attempt.end)
        elif attempt.failure is None and isinstance(attempt, _Attempt):
            self.watermarks.write(attempt.batch[-1].end, synced=attempt.synced)

    def _settle_attempt(self, attempt: _Attempt) -> None:
        if attempt.failure is None:
            if self._lacking is not None and attempt.batch[-1].end > self.watermarks.written:
                self._has_enough()
            if self.gate is None:
                self.watermarks.advance(attempt.batch[-1].end, synced=attempt.synced)
                self._settle(attempt.batch, None)
            else:
                self._hold(self.gate, attempt)
            return
        if isinstance(attempt.failure, EncodingFailed):
            self._roll_back(attempt.batch, _not_encoded(attempt.failure))
            return
        shortage = shortage_of(attempt.failure)
        if shortage is None or attempt.touched:
            self._fail_after(attempt.failure, attempt.batch)
        else:
            self._lacking = shortage
            self._shortages.begins(LACK, shortage, "messages are refused, reading goes on")
            self._roll_back(attempt.batch, _refused(shortage))

    def _hold(self, gate: Gate, attempt: _Attempt) -> None:
        """Leave what was written to the gate; a flush was about this node alone."""
        batch = attempt.batch
        self.watermarks.write(batch[-1].end, synced=attempt.synced)
        if self.failed is not None:  # what comes before it is not confirmed any more
            self._settle(batch, _store_failed(self.failed, "unknown"))
            return
        held = [block for block in batch if block.writes]
        self.pending_bytes -= sum([block.size for block in held])
        gate.settled(held, self.watermarks)
        self._settle([block for block in batch if not block.writes], None)

    def _give_up_held(self, reason: str) -> None:
        if self.gate is not None:
            self.gate.give_up(_store_failed(reason, "unknown"))

    def _has_enough(self) -> None:
        self._lacking = None
        self._shortages.ends(LACK)

    def _settle_flush(self, flush: _Flush) -> None:
        if flush.failure is None:
            self.watermarks.flush(flush.end)
            if self.gate is not None and self.failed is None:
                self.gate.settled((), self.watermarks)
            self._settle(flush.waiting, None)
        else:
            self._fail_after(flush.failure, flush.waiting)

    def _fail_after(self, failure: Exception, blocks: list[Block]) -> None:
        reason = f"{_text(failure)} while writing the log"
        self.failed = self.failed or reason
        self._give_up_held(reason)
        self._settle(blocks, _store_failed(reason, "unknown"))
        self.fail(reason)

    def _roll_back(self, batch: list[Block], refusal: CurlewError) -> None:
        """Forget what was assigned, and go on from what is written."""
        with self._lock:
            batch = batch + self._pending
            self._pending = []
            self._halted = self.failed is not None
            if self._flushes:
                self._worker.wake()
        try:
            self._on_rollback(batch)
        except Exception as fault:  # noqa: BLE001 - whoever waits has to be told
            _LOG.exception("positions could not go back to what is written")
            reason = f"{_text(fault)} while a refused write was taken back"
            self.fail(reason)
            refusal = _store_failed(reason, "not_stored")
        self._settle(batch, refusal)

    def _settle(self, blocks: list[Block], error: CurlewError | None) -> None:
        """Tell everybody, each by itself: one that raises keeps nobody else from being told."""
        for block in blocks:
            self.pending_bytes -= block.size
            try:
                block.done(error)
            except Exception:  # noqa: BLE001
                _LOG.exception("telling what became of an append failed; the others are told")


def _encode(batch: list[Block]) -> _Attempt | None:
    """Make the writes that blocks have not got yet. None, or an attempt that has failed."""
    for block in batch:
        if block.encode is not None:
            try:
                block.writes, block.encode = block.encode(), None
            except Exception as error:  # noqa: BLE001 - as in _attempt
                _LOG.exception("messages cannot be made into records")
                failure = EncodingFailed(_text(error))
                return _Attempt(batch, synced=False, failure=failure, touched=False)
    return None


def _is_flush(batch: list[Block]) -> bool:
    """Whether nothing of it is to be written."""
    return not any(block.writes or block.encode for block in batch)


def _must_be_taken_back(attempt: _Attempt) -> bool:
    """Whether some of a batch that is not to be there may be in the file."""
    failure = attempt.failure
    return failure is not None and attempt.touched and shortage_of(failure) is not None


def _refused(shortage: Shortage) -> CurlewError:
    hint = HINTS[shortage]
    if shortage is Shortage.ROOM:
        return DiskFull(NO_ROOM, hint=hint, outcome="not_stored", retry_after_s=5)
    return SystemBusy(
        f"the message cannot be written now: {shortage.value}",
        hint=hint,
        outcome="not_stored",
        retry_after_s=1,
    )


def _not_encoded(failure: EncodingFailed) -> CurlewError:
    return SystemBusy(
        f"the messages could not be made into records: {failure}",
        hint="the log of the node says more",
        outcome="not_stored",
        retry_after_s=1,
    )


def _text(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or repr(error)


def _store_failed(reason: str, outcome: Outcome) -> StoreFailed:
    return StoreFailed(f"the store takes no writes: {reason}", hint=RESTART_HINT, outcome=outcome)
