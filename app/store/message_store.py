"""The store's facade: append, read, open, close. Synchronous; knows no event loop but its `Turns`.

The way of a message: `append` assigns its offsets and encodes it; the writer writes (and syncs) it;
when it is confirmed its unit goes into its queue, `done` is called, and `on_arrival` tells of it.
Nothing is visible before it is as durable as was asked.

All methods are for the event loop, except `read` and `read_message`, which may also be called from
reader threads, and `Checkpointing.run`.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from typing_extensions import override

from app.domain.clock import Clock
from app.domain.errors import CurlewError, StoreFailed
from app.domain.limits import PROPERTIES_ENCODED_BYTES_MAX, Limits
from app.domain.message import Message, StoredMessage
from app.domain.positions import FlushMode
from app.domain.shortages import Shortage
from app.runtime.shortage_log import ShortageLog
from app.store import paths
from app.store.config import StoreConfig
from app.store.formats.frame.batch_frame import RequestFrame
from app.store.formats.record.record import CHECKSUM_BYTES
from app.store.fs.files import ColdRead, DiskUsage, FileSystem, Lock
from app.store.lifecycle.checkpoints import Checkpointing, Checkpoints
from app.store.lifecycle.opening import write_clean_stop
from app.store.lifecycle.retention_holds import RetentionHolds
from app.store.lifecycle.retention_policy import RetentionPolicy
from app.store.lifecycle.retention_run import RetentionReport, RetentionRun
from app.store.lifecycle.store_parts import StoreParts
from app.store.log.page_cache_limit import bound_cache
from app.store.log.sync_times import SyncTimes
from app.store.queues.consume_queue import ConsumeQueue
from app.store.read.lookups import (
    MAX_TIME_MS,
    KeyedRecords,
    Lookups,
    average_bytes,
)
from app.store.read.queue_reads import ReadResult, Wanted
from app.store.readable_queues import ReadableQueues
from app.store.store_status import StoreStatus
from app.store.timers.timer_log import TimerLog
from app.store.topics.floor_journal import FloorJournal
from app.store.topics.topic_floors import TakenFloors, TopicFloors
from app.store.write.appender import Appended, Appender, StepPart
from app.store.write.blocks import Answer, Block, Done
from app.store.write.first_steps import FirstSteps
from app.store.write.gate import Gate
from app.store.write.worker import Turns, Workers, WriterThread
from app.store.write.writer import Writer

_NEARLY_FULL: Final = "disk"
"""Retention's name in the log of shortages."""

MENDING_ROUNDS_MAX = 16
"""Times that one read looks into gaps; each round may bring others to light."""

assert PROPERTIES_ENCODED_BYTES_MAX > CHECKSUM_BYTES


class MessageStore(ReadableQueues):
    """One data directory, open. Made by `open`."""

    def __init__(
        self,
        parts: StoreParts,
        lock: Lock,
        turns: Turns,
        workers: Workers,
        gate: Gate | None = None,
        checkpoints: Checkpoints | None = None,
        taken: TakenFloors | None = None,
    ) -> None:
        super().__init__(parts)
        self.shortages = ShortageLog() if checkpoints is None else checkpoints.shortages
        """What is lacking now; others of the node note theirs there too."""
        self.pins = RetentionHolds()
        """What retention must leave; background services register there."""
        self.has_gate = gate is not None
        """Whether what is written is confirmed later, when the gate says so."""
        self._files, self._config, self._mender = parts.files, parts.config, parts.repair
        self._log = log = parts.log
        queues = parts.queues
        self.index = index = parts.index
        self._recovery, self._lock = parts.recovery, lock
        cache = bound_cache(log, self._config.log_cache_bytes, parts.recovery.end)
        self._writer = Writer(
            log, turns, parts.recovery.end, self._roll_back, workers, cache, self.shortages, gate
        )
        self._checkpoints = checkpoints or Checkpoints(self._files, queues, index, self.shortages)
        self._appender = Appender(
            self.store_id,
            self._config,
            self._writer,
            queues,
            index,
            parts.clock,
            self._limits,
            parts.reader.frame_checksums,
        )
        if self._config.store_time_from_clock:
            now_ms = parts.clock.now_ms()
            parts.recovery.store_time_ms = min(parts.recovery.store_time_ms, now_ms)
        self._appender.start(parts.recovery, parts.meta.segment_bytes)
        self.first_steps = FirstSteps(self._appender)
        self._taken = TakenFloors(TopicFloors(queues), 0) if taken is None else taken
        self.names = self._floors = self._taken.floors
        self.floor_journal = FloorJournal(self._floors, self._appender, queues)
        self._appender.bind = self.floor_journal.bind
        self._closed = False
        self._full: str | None = None
        self._replicas_full: str | None = None
        source = parts.reader.source
        self._lookups = Lookups(
            self.store_id, source, queues, index, self._config, parts.repair.damages
        )
        self._expiring = RetentionRun(
            *(self._files, source, queues, index, self.pins, parts.clock),
            None if gate is None else self.floor_journal,
        )

    @classmethod
    def open(
        cls,
        files: FileSystem,
        config: StoreConfig,
        clock: Clock,
        turns: Turns,
        limits: Limits | None = None,
        workers: Workers = WriterThread,
        gate: Gate | None = None,
    ) -> "MessageStore":
        """Lock, recover, sync. Blocks. Raises `StoreLocked`, `StoreUnusable` or `OSError`.

        With a `gate`, that of a replica, what is written is confirmed when it says so.
        """
        lock = files.lock(paths.LOCK)
        try:
            parts = StoreParts.open(files, config, clock, turns.call_soon, limits or Limits())
            store = cls(parts, lock, turns, workers, gate)
        except BaseException:
            lock.release()
            raise
        store._start(writes_checkpoint=True)
        return store

    @classmethod
    def over(
        cls,
        parts: StoreParts,
        lock: Lock,
        turns: Turns,
        gate: Gate,
        checkpoints: Checkpoints,
        confirmed_end: int,
        workers: Workers = WriterThread,
        taken: TakenFloors | None = None,
    ) -> "MessageStore":
        """Of a replica that begins to lead, over what it has opened, synced and dispatched whole,
        and what it has `taken` of the floors over the same parts. Nobody may read beyond
        `confirmed_end` before the gate says so. Blocks. Raises `OSError`."""
        store = cls(parts, lock, turns, workers, gate, checkpoints, taken)
        store._writer.watermarks.confirmed = confirmed_end
        store.floor_journal.note_risen()  # by what was deleted while this replica followed
        store._start(writes_checkpoint=False)
        return store

    def _start(self, *, writes_checkpoint: bool) -> None:
        """Read the floors, write the first checkpoint if nobody has; close on a failure."""
        try:
            self.floor_journal.start(self, self._taken.next_offset)
            if writes_checkpoint:
                self._checkpoints.open(self.begin_checkpoint)
            self.look_again()
        except BaseException as error:
            self.fail(f"opening failed: {error}")
            self.close()
            raise

    # --- appending

    def append(
        self,
        topic: str,
        queue_id: int,
        messages: Sequence[Message],
        flush: FlushMode,
        done: Done,
        generation: int = 0,
        answer: Answer | None = None,
    ) -> Appended:
        """Append messages to one queue, in order, as one block.

        `done` is called when all are confirmed (None), or with the error; never before this
        returns. Where there is a gate, `answer` hears before that when this node has them.
        Raises `StoreFailed`, `TooManyRequests`, `NotEnoughReplicas`, or `TopicNotFound` when this
        generation of the topic was deleted, with nothing stored.
        """
        return self._appender.append(topic, queue_id, messages, flush, done, generation, answer)

    def append_frame(
        self,
        topic: str,
        queue_id: int,
        frame: RequestFrame,
        flush: FlushMode,
        done: Done,
        entry: StepPart | None = None,
        generation: int = 0,
        answer: Answer | None = None,
    ) -> Appended:
        """Append the records of a checked request frame; `frame` is ours from here on.

        Ids that the client gave in the records stay; `message_ids` has the derived ones. An `entry`
        goes before them: a crash may leave it with the first records only, never them without it.
        """
        return self._appender.append_frame(
            topic, queue_id, frame, flush, done, entry, generation, answer
        )

    def append_step(
        self,
        parts: Sequence[StepPart],
        flush: FlushMode,
        done: Done,
        *,
        is_send: bool = False,
        answer: Answer | None = None,
    ) -> list[Appended]:
        """Append messages to several queues as one step: all become readable together.

        `done` and `answer` as for `append`. Raises also `BodyTooLarge` when the step is larger
        than a segment.
        """
        return self._appender.append_step(parts, flush, done, is_send=is_send, answer=answer)

    def _roll_back(self, refused: Sequence[Block]) -> None:
        self._appender.roll_back(self._writer.watermarks.written, refused)

    def flush(self, done: Done) -> None:
        """Bring everything appended so far to the medium; `done` as for `append`."""
        if self._writer.failed is not None:
            done(StoreFailed(self._writer.failed))
        else:
            self._writer.flush(self._appender.end, done)

    def when_written(self, done: Done) -> None:
        """Call `done` when everything appended so far is written, or refused for want of something;
        nothing is synced for it."""
        if self._writer.failed is not None:
            done(StoreFailed(self._writer.failed))
        else:
            self._writer.submit(Block(self._appender.end, [], 0, sync=False, done=done))

    @property
    def on_arrival(self) -> Callable[[str, int], object]:
        """Called with (topic, queue id) after each confirmed append; may be set."""
        return self._appender.audience.on_arrival

    @on_arrival.setter
    def on_arrival(self, told: Callable[[str, int], object]) -> None:
        self._appender.audience.on_arrival = told

    # --- reading

    @override
    def _read(self, queue: ConsumeQueue, wanted: Wanted, *, wait_for_disk: bool) -> ReadResult:
        result = self._reader.read(queue, wanted, wait_for_disk=wait_for_disk)
        for _ in range(MENDING_ROUNDS_MAX):
            if not result.gaps or not self._mender.is_worth_trying(queue, result.gaps):
                break
            if not wait_for_disk:
                raise ColdRead
            self._mender.mend(queue, result.gaps, self._writer.watermarks.confirmed)
            result = self._reader.read(queue, wanted, wait_for_disk=True)
        return result

    def find_by_key(
        self,
        topic: str,
        key: str,
        begin_ms: int = 0,
        end_ms: int = MAX_TIME_MS,
        max_messages: int = 64,
        *,
        wait_for_disk: bool = False,
    ) -> list[memoryview]:
        """The newest records of a topic that have a key (or an id given by the client).

        In the order of the log; both times are included. Follows `key_probes_max` index entries at
        most. `ColdRead` as for `read`.
        """
        return self.find_by_key_before(
            (topic, key, begin_ms, end_ms),
            None,
            max_messages=max_messages,
            max_bytes=max_messages * self._config.record_bytes_max,
            wait_for_disk=wait_for_disk,
        ).records

    def find_by_key_before(
        self,
        wanted: tuple[str, str, int, int],
        before: int | None,
        *,
        max_messages: int,
        max_bytes: int,
        wait_for_disk: bool = False,
    ) -> KeyedRecords:
        """As `find_by_key` for topic, key, first and last time, but before a physical offset."""
        confirmed = self._writer.watermarks.confirmed
        return self._lookups.by_key(
            wanted,
            confirmed if before is None else min(before, confirmed),
            max_messages=max_messages,
            max_bytes=max_bytes,
            wait_for_disk=wait_for_disk,
        )

    def offset_behind(
        self, topic: str, queue_id: int, physical_offset: int, *, wait_for_disk: bool = False
    ) -> int:
        """The first offset stored at a place of the log or behind it; the end when there is none.

        `ColdRead` as for `read`.
        """
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return 0
        return queue.first_at_or_behind(physical_offset, wait_for_disk=wait_for_disk)

    def read_message(
        self, message_id: str, *, topic: str | None = None, wait_for_disk: bool = False
    ) -> StoredMessage | None:
        """The message with an id that this store gave, or None. `ColdRead` as for `read`.

        With `topic` an id that a client gave is found as well, the newest if there are several.
        """
        confirmed = self._writer.watermarks.confirmed
        if topic is None:
            return self._lookups.placed(message_id, confirmed, wait_for_disk=wait_for_disk)
        return self._lookups.by_id(topic, message_id, confirmed, wait_for_disk=wait_for_disk)

    # --- upkeep

    def average_bytes(self, topic: str, queue_id: int) -> int | None:
        """Size of a record of the queue, from a sample over its length; None when it is empty."""
        queue = self._queues.find(topic, queue_id)
        return None if queue is None else average_bytes(queue)

    def begin_topic(self, topic: str, generation: int) -> None:
        """Let a generation of a topic begin here, before its first message or with it.

        Nothing happens when it has begun. Raises as `append`.
        """
        self.floor_journal.begin(topic, generation)

    def delete_topic(self, topic: str, generation: int = 0, done: Done | None = None) -> bool:
        """Make all messages of a generation of a topic unreadable for ever, at once; its offsets go
        on if the name comes again. Appends that are not confirmed yet are confirmed unreadable.

        `done` is called when a crash cannot bring them back any more. False: it was gone before,
        and `done` is not called. Generation 0: whatever is there, of a name without generations.
        Raises `StoreFailed` or `TooManyRequests` when that cannot be written now; nobody reads the
        messages all the same, and each checkpoint tries again to write it.
        """
        return self.floor_journal.end(topic, generation, done or _ignore)

    def generation(self, topic: str) -> int:
        """The generation whose messages the topic's queues hold; 0: none that is known."""
        return self._floors.generation(topic)

    def is_gone(self, topic: str, generation: int) -> bool:
        """Whether a generation that the metadata does not name was deleted here, or replaced."""
        return self._floors.is_gone(topic, generation)

    def hidden_topics(self, known: Iterable[str]) -> list[str]:
        """Names that hold messages or a generation, were not deleted, and are not `known`."""
        return self._floors.hidden(known)

    def trim(self, topic: str, queue_id: int, min_offset: int) -> None:
        """Make what lies below `min_offset` of a queue unreadable; retention may delete it.

        The next checkpoint has the log say so; a crash before it forgets it. Never moves back or
        beyond the end.
        """
        queue = self._queues.find(topic, queue_id)
        if queue is not None and queue.expire_below(min(min_offset, queue.max_offset)):
            self.floor_journal.note_risen()

    def apply_retention(self, policy: RetentionPolicy) -> RetentionReport:
        """Expire messages and delete files as `policy` says; refuse or take writes again.

        Blocks; on the event loop or on one thread beside it, and soon followed by a checkpoint.
        Raises `OSError`.
        """
        report = self._expiring.apply(policy, end=self._writer.watermarks.confirmed)
        if report.expired_messages:
            self.floor_journal.note_risen()
        if report.refuse_writes:
            reason = f"the disk is {report.disk_used_ratio:.0%} full"
            self.shortages.begins(_NEARLY_FULL, Shortage.ROOM, f"messages are refused: {reason}")
            self._full = reason
        else:
            self.shortages.ends(_NEARLY_FULL)
            self._full = None
        self._appender.refuse_because(self._full or self._replicas_full)
        return report

    def refuse_for_replicas(self, reason: str | None) -> None:
        """Take no messages while replicas that are needed have no room; None: take them again."""
        self._replicas_full = reason
        self._appender.refuse_because(self._full or reason)

    def timer_log(self) -> TimerLog:
        """The timer log beside this store, for one owner."""
        return TimerLog(self._files, damages=self._mender.damages)

    def begin_checkpoint(self) -> Checkpointing:
        """A checkpoint of what is synced now, with all queues collected. `run` it on a thread."""
        checkpointing = self.begin_large_checkpoint()
        checkpointing.collect()
        return checkpointing

    def begin_large_checkpoint(self) -> Checkpointing:
        """The same, to be collected over many turns of the event loop, then to be run."""
        return self._checkpoint(clean=False)

    def _checkpoint(self, *, clean: bool) -> Checkpointing:
        if not clean:
            self.floor_journal.turn()
        return self._checkpoints.begin(
            self._writer.watermarks.settled,
            store_time_ms=self._appender.store_time_ms,
            clean=clean,
        )

    def is_passing(self, error: OSError) -> bool:
        """Take note of why a checkpoint is not written: a shortage, and then it is tried again.

        False: a fault, and the store takes no more writes.
        """
        if self._checkpoints.note(error):
            return True
        self.fail(f"{error.strerror} while writing a checkpoint")
        return False

    def look_again(self) -> None:
        """Find out whether there is room again (or descriptors) where sends were refused last."""
        is_in_use = self._checkpoints.is_in_use_on_disk
        self._appender.hold_because(None if is_in_use else "the disk was full at the start")
        self._writer.look_again()

    def fail(self, reason: str) -> None:
        """Take no further writes because of a failure outside the writer. Sticky."""
        self._writer.fail(reason)

    def fence(self, reason: str, refusal: Callable[[], CurlewError]) -> None:
        """Take no further writes, since another node leads the shard; they are refused with what
        `refusal` makes. Sticky."""
        self._writer.fence(reason, refusal)

    def status(self) -> StoreStatus:
        """A look at the store."""
        marks = self._writer.watermarks
        return StoreStatus(
            self._writer.failed,
            self._appender.refusal or self._writer.refusal,
            self._log.start,
            marks.written,
            marks.flushed,
            marks.confirmed,
            len(self._log.bases),
            self._writer.pending_bytes,
            len(self._queues),
            self._recovery,
            self.shortages.now(),
            self._mender.damages.counts(),
            self._mender.damages.left(),
            self._appender.clock_lead_ms,
            self._expiring.clock.ahead_ms,
            self._appender.held or self._full or self._writer.refusal,
        )

    @property
    def failed(self) -> str | None:
        """Why no write is taken until a restart."""
        return self._writer.failed

    @property
    def written_end(self) -> int:
        """Physical offset of the end of what is written."""
        return self._writer.watermarks.written

    @property
    def sync_times(self) -> SyncTimes:
        """Of the log, since it was opened."""
        return self._log.sync_times

    def disk_usage(self) -> DiskUsage:
        """Of the file system that holds the store. Asks it, on any thread. Raises `OSError`."""
        return self._files.disk_usage()

    def _stop_clean(self) -> None:
        """Write the last checkpoint. Without room for it the next start reads more of the log."""
        try:
            checkpointing = self._checkpoint(clean=True)
            checkpointing.collect()
            checkpointing.run()
            end = self._writer.watermarks.settled
            write_clean_stop(self._files, self._appender.store_time_ms, end)
        except OSError as error:
            if not self._checkpoints.note(error):
                raise

    def close(self) -> None:
        """Write and sync what is queued; the clean marker is written last. Blocks. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self.floor_journal.close()
        try:
            if self._writer.failed is None:
                self.flush(lambda _error: None)
            self._writer.stop()
            if self._writer.failed is None:
                self._stop_clean()
        finally:
            self._queues.cache.close()
            self._log.close()
            self._lock.release()


def _ignore(_error: CurlewError | None) -> None:
    """Nobody waits for it."""
