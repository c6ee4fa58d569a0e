"""A message store in memory, with the signatures of the real one, that does as a test tells it.

Records are encoded as on disk. Appends are confirmed at the end of the turn, as by the real store,
or when the test says so (`held`); reads are cold where the test says so (`cold`).
"""

import asyncio
import errno
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from app.domain.clock import Clock
from app.domain.errors import CurlewError, DiskFull, ShardUnavailable, TopicNotFound
from app.domain.message import Message, StoredMessage, java_hash
from app.domain.names import EPOCHS_TOPIC, is_system_topic
from app.domain.positions import FlushMode
from app.runtime.shortage_log import Lack
from app.store import (
    Answer,
    Appended,
    ColdRead,
    DiskUsage,
    Done,
    FirstSteps,
    Gap,
    KeyedRecords,
    QueueBounds,
    ReadResult,
    RetentionHolds,
    StepPart,
    SyncTimes,
    TimerLog,
    Unit,
)
from app.store.formats.frame.batch_frame import RequestFrame
from app.store.formats.record.compression import system_flag_of
from app.store.formats.record.message_id import decode_message_id, encode_message_id
from app.store.formats.record.record import decode_message, encode_properties, encode_record
from tests.support.stores.simulated_files import SimulatedFiles

STORE_ID = b"\x01\x02\x03\x04"
HOST = b"\x7f\x00\x00\x01\x00\x00\x22\x06"


@dataclass
class MemoryQueue:
    """One queue: the record of each offset, None where it is damaged."""

    min_offset: int = 0
    confirmed: int = 0
    records: list[bytes | None] = field(default_factory=list)
    tag_hashes: list[int] = field(default_factory=list)


Held = tuple[MemoryQueue, str, int, int, Done]
"""A confirmation that a test holds back."""


@dataclass
class MemoryStatus:
    """What the broker asks of a store's status."""

    failed: str | None = None
    refusal: str | None = None
    start: int = 0
    written_end: int = 0
    flushed_end: int = 0
    segments: int = 1
    pending_bytes: int = 0
    lacks: tuple[Lack, ...] = ()
    clock_lead_ms: int = 0
    clock_jump_ms: int = 0
    damages: dict[str, int] = field(default_factory=dict)

    @property
    def damages_left(self) -> dict[str, int]:
        """Nothing is put right here."""
        return self.damages


class MemoryStore:
    """Lives on the event loop of one test."""

    def __init__(self, clock: Clock) -> None:
        self.on_arrival: Callable[[str, int], object] = lambda _topic, _queue_id: None
        self.store_id = b"\x00\x00\x00\x01"
        self.has_gate = False
        self.clock = clock
        self.files = SimulatedFiles()
        self.pins = RetentionHolds()
        self.queues: dict[tuple[str, int], MemoryQueue] = {}
        self.held: list[Held] | None = None
        """A list here takes the confirmations, until `confirm`."""
        self.refusal: CurlewError | None = None
        """Appends raise this."""
        self.is_nearly_full = False
        """Takes the broker's own steps only."""
        self.disk: DiskUsage | None = DiskUsage(2_000, 500)
        """None: the disk does not answer."""
        self.sync_times = SyncTimes()
        self.failure: CurlewError | None = None
        """Appends are accepted and then fail with this."""
        self.cold: set[tuple[str, int]] = set()
        self.damaged: set[tuple[str, int]] = set()
        """Queues whose next message another replica alone may have, which does not answer."""
        self.disk_reads = 0
        self._disk_answers = threading.Event()
        self._disk_answers.set()
        self.reads = 0
        self.flushes: list[FlushMode] = []
        self.scan_max = 50_000
        self.keyed_max = 1_000
        """What one search by key finds at most."""
        self.state = MemoryStatus()
        self.generations: dict[str, tuple[int, bool]] = {}
        """Topic → its newest generation, and whether that was ended."""
        self.ended: set[tuple[str, int]] = set()
        self.before_next: Callable[[], None] | None = None
        self.first_steps = FirstSteps(self)
        self._bytes_end = 0
        self._by_position: dict[int, tuple[str, int, int]] = {}

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing but what each start writes."""
        return not self.queues.keys() - {(EPOCHS_TOPIC, 0)}

    # --- what the broker calls

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
        if self.refusal is not None:
            raise self.refusal
        if self.is_nearly_full:
            raise DiskFull("nearly full")
        if self.before_next is not None:
            self.before_next()
        if generation and self.generations.get(topic) != (generation, False):
            self.begin_topic(topic, generation)
        self.flushes.append(flush)
        queue = self.queues.setdefault((topic, queue_id), MemoryQueue())
        first = len(queue.records)
        now = self.clock.now_ms()
        ids: list[str] = []
        if self.failure is not None:
            asyncio.get_running_loop().call_soon(done, self.failure)
            return Appended(first, len(messages), now, [""] * len(messages))
        for offset, message in enumerate(messages, first):
            at = self._bytes_end
            record = encode_record(
                topic=topic.encode(),
                queue_id=queue_id,
                queue_offset=offset,
                physical_offset=at,
                body=message.body,
                properties=encode_properties(message),
                born_time_ms=message.born_time_ms or now,
                store_time_ms=now,
                store_host=HOST,
                flag=message.flag & 0xFFFFFFFF,
                reconsume_times=message.reconsume_times,
                system_flag=system_flag_of(message.encoding),
            )
            self._bytes_end += len(record)
            self._by_position[at] = (topic, queue_id, offset)
            queue.records.append(record)
            queue.tag_hashes.append(java_hash(message.tag) if message.tag else 0)
            ids.append(message.message_id or encode_message_id(STORE_ID, now, at))
        confirmation = (queue, topic, queue_id, len(queue.records), done)
        if self.held is not None:
            self.held.append(confirmation)
        else:
            asyncio.get_running_loop().call_soon(self._confirm, *confirmation)
        return Appended(first, len(messages), now, ids)

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
        messages = [Message(b"framed")] * frame.count
        if entry is None:
            return self.append(topic, queue_id, messages, flush, done, generation)
        part = StepPart(topic, queue_id, messages, generation)
        return self.append_step((entry, part), flush, done)[1]

    def next_offset(self, topic: str, queue_id: int) -> int:
        queue = self.queues.get((topic, queue_id))
        return len(queue.records) if queue else 0

    def append_step(
        self,
        parts: Sequence[StepPart],
        flush: FlushMode,
        done: Done,
        *,
        is_send: bool = False,
        answer: Answer | None = None,
    ) -> list[Appended]:
        is_own = not is_send and any(is_system_topic(part.topic) for part in parts)
        errors: list[CurlewError | None] = []

        def part_done(error: CurlewError | None) -> None:
            errors.append(error)
            if len(errors) == len(parts):
                done(next((error for error in errors if error is not None), None))

        is_full, self.is_nearly_full = self.is_nearly_full, self.is_nearly_full and not is_own
        try:
            for part in parts:
                if part.generation:
                    self.begin_topic(part.topic, part.generation)
            return [
                self.append(part.topic, part.queue_id, part.messages, flush, part_done)
                for part in parts
            ]
        finally:
            self.is_nearly_full = is_full

    def trim(self, topic: str, queue_id: int, min_offset: int) -> None:
        queue = self.queues.get((topic, queue_id))
        if queue is not None:
            queue.min_offset = max(queue.min_offset, min(min_offset, queue.confirmed))

    def flush(self, done: Done) -> None:
        asyncio.get_running_loop().call_soon(done, self.failure)

    def timer_log(self) -> TimerLog:
        return TimerLog(self.files)

    def bounds(self, topic: str, queue_id: int) -> QueueBounds:
        queue = self.queues.get((topic, queue_id))
        if queue is None:
            return QueueBounds(0, 0)
        return QueueBounds(queue.min_offset, max(queue.min_offset, queue.confirmed))

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
        in_place: bool = False,
        wait_for_disk: bool = False,
    ) -> ReadResult:
        if (topic, queue_id) in self.cold and not wait_for_disk:
            raise ColdRead
        if (topic, queue_id) in self.damaged:
            raise ShardUnavailable("the record is damaged here, and may be whole elsewhere")
        self.reads += 1
        if wait_for_disk:
            self._wait_for_disk()
        queue = self.queues.get((topic, queue_id), MemoryQueue())
        assert offset <= max(queue.confirmed, queue.min_offset)
        end = min(queue.confirmed, offset + self.scan_max)
        end = end if end_offset is None else min(end, end_offset)
        records: list[memoryview] = []
        offsets: list[int] = []
        hashes: list[int] = []
        result = ReadResult(records, offsets, hashes, offset, 0, [])
        size = 0
        at = offset
        while at < end and len(records) < max_messages:
            record = queue.records[at]
            if record is None or at < queue.min_offset:
                result.gaps.append(Gap(at, at + 1, "CORRUPT"))
            elif tag_hashes is None or queue.tag_hashes[at] in tag_hashes:
                if records and size + len(record) > max_bytes:
                    break
                size += len(record)
                records.append(memoryview(record))
                offsets.append(at)
                hashes.append(queue.tag_hashes[at])
            at += 1
        return result._replace(next_offset=at, scanned=at - offset)

    def read_known(
        self, asked: Sequence[tuple[str, int, int, int]], max_bytes: int, all_bytes_max: int
    ) -> Sequence[ReadResult | None]:
        found: list[ReadResult | None] = []
        for topic, queue_id, first, end in asked:
            if (topic, queue_id) in self.cold | self.damaged:
                found.append(None)
                continue
            read = self.read(topic, queue_id, first, max_messages=end - first, max_bytes=max_bytes)
            size = sum(map(len, read.records))
            is_whole = len(read.records) == end - first and size <= min(max_bytes, all_bytes_max)
            all_bytes_max -= size * is_whole
            found.append(read if is_whole else None)
        return found

    def find_by_key(
        self,
        topic: str,
        key: str,
        begin_ms: int = 0,
        end_ms: int = 1 << 62,
        max_messages: int = 64,
        *,
        wait_for_disk: bool = False,
    ) -> list[memoryview]:
        found: list[StoredMessage] = []
        for (name, _), queue in self.queues.items():
            if name == topic:
                readable = queue.records[queue.min_offset : queue.confirmed]
                found += [self.decode(memoryview(record)) for record in readable if record]
        found = [m for m in found if key in (*m.keys, m.message_id, m.unique_id)]
        found = [m for m in found if begin_ms <= m.store_time_ms <= end_ms]
        found.sort(key=lambda message: message.physical_offset)
        records = [self.queues[(m.topic, m.queue_id)].records[m.queue_offset] for m in found]
        return [memoryview(record) for record in records[-max_messages:] if record]

    def decode(self, record: memoryview) -> StoredMessage:
        return decode_message(record, STORE_ID)

    def read_message(
        self, message_id: str, *, topic: str | None = None, wait_for_disk: bool = False
    ) -> StoredMessage | None:
        placed = decode_message_id(message_id)
        place = placed and self._by_position.get(placed.physical_offset)
        if not place or topic not in (None, place[0]):
            given = self._given_id(topic, message_id)
            if given or not place:
                return given
        topic, queue_id, offset = place
        if (topic, queue_id) in self.cold and not wait_for_disk:
            raise ColdRead
        if wait_for_disk:
            self._wait_for_disk()
        record = self.queues[(topic, queue_id)].records[offset]
        return None if record is None else self.decode(memoryview(record))

    @contextmanager
    def slow_disk(self) -> Iterator[None]:
        """Cold reads that begin in the block end behind it."""
        self._disk_answers.clear()
        try:
            yield
        finally:
            self._disk_answers.set()

    def _wait_for_disk(self) -> None:
        self.disk_reads += 1
        assert self._disk_answers.wait(60)

    def find_by_key_before(
        self,
        wanted: tuple[str, str, int, int],
        before: int | None,
        *,
        max_messages: int,
        max_bytes: int,
        wait_for_disk: bool = False,
    ) -> KeyedRecords:
        topic, key, begin_ms, end_ms = wanted
        found: list[memoryview] = []
        for (name, _), queue in self.queues.items():
            for record in queue.records[queue.min_offset : queue.confirmed]:
                message = self.decode(memoryview(record)) if record and name == topic else None
                if (
                    message is not None
                    and record is not None
                    and key in (*message.keys, message.message_id, message.unique_id)
                    and begin_ms <= message.store_time_ms <= end_ms
                    and (before is None or message.physical_offset < before)
                ):
                    found.append(memoryview(record))
        found.sort(key=lambda each: int.from_bytes(each[28:36]))
        kept = found[-min(max_messages, self.keyed_max) :] if self.keyed_max else []
        return KeyedRecords(kept, len(kept) == len(found))

    def units(
        self, topic: str, queue_id: int, offset: int, end: int, *, wait_for_disk: bool = False
    ) -> list[Unit]:
        if (topic, queue_id) in self.cold and not wait_for_disk:
            raise ColdRead
        queue = self.queues.get((topic, queue_id), MemoryQueue())
        rows = zip(queue.records, queue.tag_hashes, strict=True)
        units = [
            (int.from_bytes(record[28:36]), len(record), tag_hash) if record else (0, 0, tag_hash)
            for record, tag_hash in rows
        ]
        return units[offset : min(end, queue.confirmed)]

    def offset_behind(
        self, topic: str, queue_id: int, physical_offset: int, *, wait_for_disk: bool = False
    ) -> int:
        queue = self.queues.get((topic, queue_id), MemoryQueue())
        units = self.units(topic, queue_id, 0, queue.confirmed, wait_for_disk=wait_for_disk)
        return bisect_left([at for at, _, _ in units], physical_offset)

    def average_bytes(self, topic: str, queue_id: int) -> int | None:
        queue = self.queues.get((topic, queue_id), MemoryQueue())
        sizes = [
            len(record) for record in queue.records[queue.min_offset : queue.confirmed] if record
        ]
        return -(-sum(sizes) // len(sizes)) if sizes else None

    def _given_id(self, topic: str | None, message_id: str) -> StoredMessage | None:
        for (name, _), queue in self.queues.items():
            for record in queue.records[queue.min_offset :] if name == topic else ():
                message = None if record is None else self.decode(memoryview(record))
                if message and message_id in (message.message_id, message.unique_id):
                    return message
        return None

    def delete_topic(self, topic: str, generation: int = 0, done: Done | None = None) -> bool:
        lives, is_ended = self.generations.get(topic, (0, False))
        if generation:
            self.ended.add((topic, generation))
            if lives and (is_ended or lives != generation):
                return False
        self.generations[topic] = (generation, True)
        for (name, _), queue in self.queues.items():
            if name == topic:
                queue.min_offset = len(queue.records)
        if done is not None:
            asyncio.get_running_loop().call_soon(done, self.failure)
        return True

    def begin_topic(self, topic: str, generation: int) -> None:
        lives, is_ended = self.generations.get(topic, (0, False))
        if (lives, is_ended) == (generation, False):
            return
        if not generation:
            if is_ended:
                self.generations[topic] = (0, False)
            return
        if (topic, generation) in self.ended or lives == generation or (lives and not is_ended):
            raise TopicNotFound(f"topic {topic!r} was deleted", outcome="not_stored")
        self.generations[topic] = (generation, False)

    def generation(self, topic: str) -> int:
        lives, is_ended = self.generations.get(topic, (0, False))
        return 0 if is_ended else lives

    def is_gone(self, topic: str, generation: int) -> bool:
        lives, is_ended = self.generations.get(topic, (0, False))
        if not generation or not lives:
            return is_ended and lives > 0
        return (topic, generation) in self.ended or is_ended or lives != generation

    @property
    def names(self) -> "MemoryStore":
        return self

    @property
    def deleted_names(self) -> int:
        return sum(is_ended for _, is_ended in self.generations.values())

    @property
    def deleted_queues(self) -> int:
        return sum(self.generations.get(topic, (0, False))[1] for topic, _ in self.queues)

    @property
    def queue_total(self) -> int:
        return len(self.queues)

    def queue_count(self, topic: str) -> int | None:
        count = sum(name == topic for name, _ in self.queues)
        return count if count or topic in self.generations else None

    def hidden_topics(self, known: Iterable[str]) -> list[str]:
        names = {name for name, (_, is_ended) in self.generations.items() if not is_ended}
        return sorted(names.difference(known))

    def status(self) -> MemoryStatus:
        return self.state

    @property
    def failed(self) -> str | None:
        return self.state.failed

    @property
    def written_end(self) -> int:
        return self.state.written_end

    def disk_usage(self) -> DiskUsage:
        if self.disk is None:
            raise OSError(errno.EIO, "the disk does not answer")
        return self.disk

    # --- what a test does to it

    def confirm(self) -> None:
        """Confirm what was held, and hold nothing any more."""
        held, self.held = self.held or [], None
        for confirmation in held:
            self._confirm(*confirmation)

    def fill(
        self,
        topic: str,
        queue_id: int,
        bodies: Sequence[bytes],
        *,
        tag: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Store messages and have them readable at once, without telling anybody."""
        arrival, self.on_arrival = self.on_arrival, lambda _topic, _queue_id: None
        kept, self.held = self.held, []
        messages = [Message(body, tag=tag, properties=properties or {}) for body in bodies]
        self.append(topic, queue_id, messages, FlushMode.ASYNC, lambda _error: None)
        self.confirm()
        self.held, self.on_arrival = kept, arrival

    def damage(self, topic: str, queue_id: int, offset: int) -> None:
        self.queues[(topic, queue_id)].records[offset] = None

    def retain_from(self, topic: str, queue_id: int, min_offset: int) -> None:
        self.queues[(topic, queue_id)].min_offset = min_offset

    def offset_at(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """The plain answer to a search by time, for comparison."""
        records = self.queues[(topic, queue_id)].records
        times = [self.decode(memoryview(r)).store_time_ms if r else -1 for r in records]
        return bisect_left(times, timestamp_ms)

    def _confirm(self, queue: MemoryQueue, topic: str, queue_id: int, end: int, done: Done) -> None:
        queue.confirmed = max(queue.confirmed, end)
        done(None)
        self.on_arrival(topic, queue_id)
