"""The store's facade: append, read, open, close. Synchronous; knows no event loop but its `Turns`.

The way of a message: `append` assigns its offsets and encodes it; the writer writes (and syncs) it;
when it is confirmed its unit goes into its queue, `done` is called, and `on_arrival` tells of it.
Nothing is visible before it is as durable as was asked.

All methods are for the event loop, except `read` and `read_message`, which may also be called from
reader threads, and `Checkpointing.run`.
"""

import errno
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from typing_extensions import override

from app.domain.clock import Clock
from app.domain.errors import CurlewError, StoreFailed, TooManyRequests
from app.domain.limits import PROPERTIES_ENCODED_BYTES_MAX, Limits
from app.domain.message import Message, StoredMessage, java_hash
from app.domain.positions import FlushMode
from app.store import paths
from app.store.commit_log import AppendCursor, CommitLog
from app.store.config import StoreConfig
from app.store.consume_queue import ConsumeQueue
from app.store.file_cache import FileCache
from app.store.files import FileSystem, Lock, write_atomically
from app.store.formats.batch_frame import RequestFrame, place
from app.store.formats.consume_queue import UNIT
from app.store.formats.message_id import decode_message_id, encode_message_id
from app.store.formats.record import (
    CHECKSUM_BYTES,
    check,
    decode_message,
    encode_properties,
    encode_record,
    record_size,
)
from app.store.formats.state_file import KIND_CHECKPOINT, Checkpoint, StoreMeta, encode_state
from app.store.opening import load_or_make_meta, open_log
from app.store.queue_table import QueueTable
from app.store.reading import ReadResult, read_queue
from app.store.recovery import Recovery
from app.store.writer import Block, Done, Turns, Workers, Write, Writer, WriterThread

assert PROPERTIES_ENCODED_BYTES_MAX > CHECKSUM_BYTES


class QueueBounds(NamedTuple):
    """Readable offsets of a queue, half-open."""

    min_offset: int
    max_offset: int


@dataclass(slots=True)
class Appended:
    """What was assigned to the messages of one append; they follow one another in their queue."""

    first_queue_offset: int
    count: int
    store_time_ms: int
    message_ids: Sequence[str]


class StoreStatus(NamedTuple):
    """A look at the store. Ends are physical offsets, sizes bytes."""

    failed: str | None
    start: int
    written_end: int
    flushed_end: int
    confirmed_end: int
    segments: int
    pending_bytes: int
    queues: int
    recovery: Recovery


class _Checkpoints:
    """Writes checkpoints one at a time, never an older one over a newer one. Any thread."""

    def __init__(self, files: FileSystem, cache: FileCache) -> None:
        self._files = files
        self._cache = cache
        self._lock = threading.Lock()
        self._last_written = 0
        self._failed = False
        self.last_begun = 0

    def write(self, number: int, checkpoint: Checkpoint) -> None:
        with self._lock:
            if number < self._last_written:
                return
            if self._failed:
                raise OSError(errno.EIO, "an earlier sync of a queue failed")
            try:
                for file in self._cache.take_dirty():
                    file.sync()
            except OSError:
                self._failed = True
                raise
            data = encode_state(KIND_CHECKPOINT, checkpoint)
            write_atomically(self._files, paths.CHECKPOINT, data)
            self._last_written = number


class Checkpointing(NamedTuple):
    """A checkpoint under way: begun on the loop, `run` on any thread."""

    checkpoints: _Checkpoints
    number: int
    checkpoint: Checkpoint

    def run(self) -> None:
        """Sync the queues and write the checkpoint, unless a newer one is. Blocks.

        Raises `OSError`. After a sync that failed no other checkpoint is written: it would count
        on units that may not be on the medium.
        """
        self.checkpoints.write(self.number, self.checkpoint)


class _Append:
    """Settles one block: units into the queue, then whoever waits."""

    __slots__ = ("_count", "_done", "_queue", "_store", "_units")

    def __init__(
        self, store: "MessageStore", queue: ConsumeQueue, units: bytes, done: Done
    ) -> None:
        self._store = store
        self._queue = queue
        self._units = units
        self._done = done

    def __call__(self, error: CurlewError | None) -> None:
        if error is None:
            self._queue.append(self._units)
        self._done(error)
        if error is None:
            self._store.on_arrival(self._queue.topic, self._queue.queue_id)


class MessageStore:
    """One data directory, open. Made by `open`."""

    def __init__(
        self,
        files: FileSystem,
        config: StoreConfig,
        meta: StoreMeta,
        log: CommitLog,
        queues: QueueTable,
        recovery: Recovery,
        clock: Clock,
        turns: Turns,
        lock: Lock,
        limits: Limits,
        workers: Workers,
    ) -> None:
        self.store_id = bytes.fromhex(meta.store_id)
        self.on_arrival: Callable[[str, int], object] = lambda _topic, _queue_id: None
        """Called with (topic, queue id) after each confirmed append."""
        self._files = files
        self._config = config
        self._meta = meta
        self._log = log
        self._queues = queues
        self._recovery = recovery
        self._clock = clock
        self._lock = lock
        self._limits = limits
        self._store_time_ms = recovery.store_time_ms
        self._cursor = AppendCursor(recovery.end, meta.segment_bytes)
        self._writer = Writer(log, turns, recovery.end, self._roll_back, workers)
        self._checkpoints = _Checkpoints(files, queues.cache)
        self._closed = False

    @classmethod
    def open(
        cls,
        files: FileSystem,
        config: StoreConfig,
        clock: Clock,
        turns: Turns,
        limits: Limits | None = None,
        workers: Workers = WriterThread,
    ) -> "MessageStore":
        """Lock, recover, sync. Blocks. Raises `StoreLocked`, `StoreUnusable` or `OSError`."""
        lock = files.lock(paths.LOCK)
        try:
            meta = load_or_make_meta(files, config, clock)
            files.make_directory(paths.COMMIT_LOG)
            files.make_directory(paths.CONSUME_QUEUES)
            log = CommitLog(files, meta.segment_bytes)
            queues = QueueTable(files, meta.queue_file_units)
            recovery = open_log(files, meta, log, queues)
            store = cls(
                files,
                config,
                meta,
                log,
                queues,
                recovery,
                clock,
                turns,
                lock,
                limits or Limits(),
                workers,
            )
        except BaseException:
            lock.release()
            raise
        try:
            store.begin_checkpoint().run()
            if files.exists(paths.SYNC_FAILED):
                files.remove(paths.SYNC_FAILED)
        except BaseException as error:
            store.fail(f"opening failed: {error}")
            store.close()
            raise
        return store

    # --- appending

    def append(
        self,
        topic: str,
        queue_id: int,
        messages: Sequence[Message],
        flush: FlushMode,
        done: Done,
    ) -> Appended:
        """Append messages to one queue, in order, as one block.

        `done` is called when all are confirmed (None), or with the error; never before this
        returns. Raises `StoreFailed` or `TooManyRequests` with nothing stored.
        """
        self._admit()
        queue = self._queues.get_or_make(topic, queue_id)
        now = self._stamp()
        topic_bytes = topic.encode()
        properties = [encode_properties(message) for message in messages]
        sizes = [
            record_size(len(message.body), len(topic_bytes), len(encoded))
            for message, encoded in zip(messages, properties, strict=True)
        ]
        placement = self._cursor.place(sizes)
        first = queue.next_offset
        queue.next_offset += len(messages)
        records: list[bytes] = []
        units: list[bytes] = []
        ids: list[str] = []
        queue_offset = first
        for message, encoded, size, physical_offset in zip(
            messages, properties, sizes, placement.physical_offsets, strict=True
        ):
            records.append(
                encode_record(
                    topic=topic_bytes,
                    queue_id=queue_id,
                    queue_offset=queue_offset,
                    physical_offset=physical_offset,
                    body=message.body,
                    properties=encoded,
                    born_time_ms=now if message.born_time_ms is None else message.born_time_ms,
                    store_time_ms=now,
                    store_host=self._config.store_host,
                )
            )
            tag_hash = java_hash(message.tag) if message.tag else 0
            units.append(UNIT.pack(physical_offset, size, tag_hash))
            ids.append(message.message_id or encode_message_id(self.store_id, now, physical_offset))
            queue_offset += 1
        writes = [Write(at, [record]) for at, record in placement.closing]
        writes += [Write(s.start, list(records[s.first : s.end])) for s in placement.stretches]
        self._submit(queue, writes, sum(sizes), b"".join(units), flush, done)
        return Appended(first, len(messages), now, ids)

    def append_frame(
        self, topic: str, queue_id: int, frame: RequestFrame, flush: FlushMode, done: Done
    ) -> Appended:
        """Append the records of a checked request frame; `frame` is ours from here on.

        Ids that the client gave in the records stay; `message_ids` has the derived ones.
        """
        self._admit()
        queue = self._queues.get_or_make(topic, queue_id)
        now = self._stamp()
        sizes = frame.sizes.tolist()
        placement = self._cursor.place(sizes)
        first = queue.next_offset
        queue.next_offset += frame.count
        place(
            frame,
            queue_id=queue_id,
            first_queue_offset=first,
            physical_offsets=placement.physical_offsets,
            store_time_ms=now,
            store_host=self._config.store_host,
        )
        view = memoryview(frame.records)
        positions = [*frame.positions.tolist(), len(view)]
        writes = [Write(at, [record]) for at, record in placement.closing]
        writes += [
            Write(s.start, [view[positions[s.first] : positions[s.end]]])
            for s in placement.stretches
            if s.end > s.first
        ]
        units = frame.units(placement.physical_offsets)
        self._submit(queue, writes, len(view), units, flush, done)
        ids = _DerivedIds(self.store_id, now, placement.physical_offsets)
        return Appended(first, frame.count, now, ids)

    def flush(self, done: Done) -> None:
        """Bring everything appended so far to the medium; `done` as for `append`."""
        if self._writer.failed is not None:
            done(StoreFailed(self._writer.failed))
        else:
            self._writer.submit(Block(self._cursor.end, [], 0, sync=True, done=done))

    def _submit(
        self,
        queue: ConsumeQueue,
        writes: list[Write],
        size: int,
        units: bytes,
        flush: FlushMode,
        done: Done,
    ) -> None:
        writes.sort()
        self._writer.submit(
            Block(
                self._cursor.end,
                writes,
                size,
                flush is FlushMode.SYNC,
                _Append(self, queue, units, done),
            )
        )

    def _admit(self) -> None:
        self._writer.refuse_if_failed()
        if self._writer.pending_bytes > self._limits.pending_append_bytes_max:
            raise TooManyRequests(
                "too many bytes wait to be written",
                hint="send again after a pause",
                outcome="not_stored",
                retry_after_s=1,
            )

    def _stamp(self) -> int:
        """Store time: the wall clock, never running backwards, so that time can be bisected."""
        self._store_time_ms = max(self._store_time_ms, self._clock.now_ms())
        return self._store_time_ms

    def _roll_back(self) -> None:
        self._cursor = AppendCursor(self._writer.watermarks.written, self._meta.segment_bytes)
        for queue in self._queues:
            queue.next_offset = queue.max_offset

    # --- reading

    def bounds(self, topic: str, queue_id: int) -> QueueBounds:
        """Readable offsets; (0, 0) for a queue that never had a message."""
        queue = self._queues.find(topic, queue_id)
        return QueueBounds(queue.min_offset, queue.max_offset) if queue else QueueBounds(0, 0)

    def read(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        max_messages: int,
        max_bytes: int,
        tag_hashes: frozenset[int] | None = None,
        end_offset: int | None = None,
        wait_for_disk: bool = False,
    ) -> ReadResult:
        """Messages from `offset` (within the bounds) on, at least one if there is one.

        Scans at most `pull_scan_units_max` units. Raises `ColdRead` when it would have to wait for
        the disk and may not; call again from a reader thread with `wait_for_disk`.
        """
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return ReadResult([], [], [], offset, 0, [])
        end = queue.max_offset if end_offset is None else min(end_offset, queue.max_offset)
        return read_queue(
            self._log,
            queue,
            offset,
            min(end, offset + self._limits.pull_scan_units_max),
            max_messages=max_messages,
            max_bytes=max_bytes,
            tag_hashes=tag_hashes,
            unchecked_end=self._meta.unchecked_end,
            gap_bytes=self._config.coalesce_gap_bytes,
            wait_for_disk=wait_for_disk,
        )

    def decode(self, record: memoryview) -> StoredMessage:
        """One record of a `ReadResult` as a message."""
        return decode_message(record, self.store_id)

    def read_message(self, message_id: str, *, wait_for_disk: bool = False) -> StoredMessage | None:
        """The message with an id that this store gave, or None. `ColdRead` as for `read`."""
        placed = decode_message_id(message_id)
        if placed is None or placed.store_id != self.store_id:
            return None
        at = placed.physical_offset
        if not self._log.start <= at < self._writer.watermarks.confirmed:
            return None
        size = int.from_bytes(self._log.read(at, 4, wait_for_disk=wait_for_disk))
        if not 0 < size <= self._config.record_bytes_max:
            return None
        record = memoryview(self._log.read(at, size, wait_for_disk=wait_for_disk))
        checksum_required = at >= self._meta.unchecked_end
        if len(record) != size or check(record, at, checksum_required=checksum_required):
            return None
        message = decode_message(record, self.store_id)
        queue = self._queues.find(message.topic, message.queue_id)
        if queue is None or message.queue_offset < queue.min_offset:
            return None
        return message if message.store_time_ms == placed.store_time_ms else None

    # --- upkeep

    def delete_topic(self, topic: str) -> None:
        """Make all messages of a topic unreadable for ever; its offsets go on if it comes again.

        Blocks for one checkpoint, because it must survive a crash.
        """
        for queue in self._queues.of_topic(topic):
            queue.min_offset = queue.max_offset
        self.begin_checkpoint().run()

    def begin_checkpoint(self) -> Checkpointing:
        """Move the units in memory to their files and say how far they and the log are safe."""
        return self._checkpoint(clean=False)

    def _checkpoint(self, *, clean: bool) -> Checkpointing:
        for queue in self._queues:
            queue.flush()
        self._checkpoints.last_begun += 1
        return Checkpointing(
            self._checkpoints,
            self._checkpoints.last_begun,
            Checkpoint(
                dispatched_end=self._writer.watermarks.flushed,
                store_time_ms=self._store_time_ms,
                clean=clean,
                queues=self._queues.states(),
                boot_id=self._files.boot_id(),
            ),
        )

    @property
    def undispatched_bytes(self) -> int:
        """Units in memory; worth a checkpoint when they grow."""
        return sum(queue.tail_bytes for queue in self._queues)

    def fail(self, reason: str) -> None:
        """Take no further writes because of a failure outside the writer. Sticky."""
        self._writer.fail(reason)

    def status(self) -> StoreStatus:
        """A look at the store."""
        marks = self._writer.watermarks
        return StoreStatus(
            self._writer.failed,
            self._log.start,
            marks.written,
            marks.flushed,
            marks.confirmed,
            len(self._log.bases),
            self._writer.pending_bytes,
            sum(1 for _ in self._queues),
            self._recovery,
        )

    def close(self) -> None:
        """Write and sync what is queued; the clean marker is written last. Blocks. Idempotent."""
        if self._closed:
            return
        self._closed = True
        try:
            if self._writer.failed is None:
                self.flush(lambda _error: None)
            self._writer.stop()
            if self._writer.failed is None:
                self._checkpoint(clean=True).run()
        finally:
            self._queues.cache.close()
            self._log.close()
            self._lock.release()


class _DerivedIds(Sequence[str]):
    """Ids of a frame's messages, made when asked for."""

    def __init__(self, store_id: bytes, store_time_ms: int, offsets: list[int]) -> None:
        self._store_id = store_id
        self._store_time_ms = store_time_ms
        self._offsets = offsets

    @override
    def __len__(self) -> int:
        return len(self._offsets)

    @override
    def __getitem__(self, index: int) -> str:  # type: ignore[override]  # no slices
        return encode_message_id(self._store_id, self._store_time_ms, self._offsets[index])
