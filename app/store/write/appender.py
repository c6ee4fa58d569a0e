"""Admitting sends, not while the disk is full; their offsets and bytes, before the writer has them.

A message gets its store time, queue offset and place in one go, without anything in between that
could interleave; the writer confirms blocks in the same order. What becomes visible then is for
`visibility`.

Places and offsets are looked up first, then everything is encoded, and only when the writer has
taken the block do the end of the log and the queues' next offsets move. So an append that raises,
wherever it does, leaves the store as it was.

Event loop only.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

import msgspec
import numpy as np

from app.domain.clock import Clock
from app.domain.errors import BodyTooLarge, DiskFull, TooManyRequests
from app.domain.limits import STORE_TIME_LEAD_MS_MAX, Limits
from app.domain.message import Message
from app.domain.names import is_system_topic
from app.domain.positions import FlushMode
from app.domain.quotas.quota import Quota
from app.store.config import StoreConfig
from app.store.derived_ids import DerivedIds
from app.store.formats.files.consume_queue import UNIT
from app.store.formats.frame.batch_frame import RequestFrame, place
from app.store.formats.record.message_id import encode_message_id
from app.store.formats.record.record import (
    END_OF_FILE_BYTES,
    PROPERTIES_BYTES_MAX,
    encode_properties,
    encode_simple_record,
)
from app.store.index.key_index import Keyed, KeyIndex
from app.store.lifecycle.recovery import Recovery
from app.store.log.commit_log import AppendCursor, Placement
from app.store.queues.consume_queue import ConsumeQueue
from app.store.queues.queue_table import QueueTable
from app.store.read.frame_checksums import FrameChecksums
from app.store.write.block_writes import start_of, writes_of, writes_of_frame
from app.store.write.blocks import Answer, Block, Done, Write
from app.store.write.record_encoding import (
    SIMPLE_OVERHEAD_BYTES,
    SIMPLE_TOPIC_CHARS_MAX,
    Part,
    RecordEncoder,
    keys_of,
    part_of,
    properties_too_large,
    with_marks,
)
from app.store.write.visibility import (
    Audience,
    FramePublication,
    Publication,
    StepPublication,
    publications_of,
)
from app.store.write.writer import Writer

_LOG: Final = logging.getLogger(__name__)

_NO_KEYS: tuple[()] = ()
ENCODED_HERE_MAX: Final = 512
"""Records of a step that are encoded on the event loop; those of a larger one by the worker."""


class Appended(msgspec.Struct):
    """What was assigned to the messages of one append; they follow one another in their queue."""

    first_queue_offset: int
    count: int
    store_time_ms: int
    message_ids: Sequence[str]


class StepPart(NamedTuple):
    """Messages of a step that go to one queue, in order."""

    topic: str
    queue_id: int
    messages: Sequence[Message]
    generation: int = 0
    """Of the topic; see `topic_floors`. 0: a name without generations."""
    properties: Sequence[bytes] = ()
    """Those of the messages, if they are encoded already (`encode_properties`)."""
    is_marked: bool = False
    """Whether `properties` hold the marks of the step already (`with_step_marks`)."""


def with_step_marks(parts: Sequence[StepPart]) -> list[StepPart]:
    """The last parts of a step with the properties and the mark of each record, for those that are
    many; another part comes before them. Any thread."""
    left = sum(len(part.messages) for part in parts)
    found: list[StepPart] = []
    for part in parts:
        left -= len(part.messages)
        known = part.properties or [encode_properties(message) for message in part.messages]
        found.append(part._replace(properties=with_marks(known, left), is_marked=True))
    return found


_Placed = tuple[Part, Sequence[int], Publication]
"""A part whose records go to these places, and what shows them."""


class Appender:
    """The assigning side of one store."""

    def __init__(
        self,
        store_id: bytes,
        config: StoreConfig,
        writer: Writer,
        queues: QueueTable,
        index: KeyIndex,
        clock: Clock,
        limits: Limits,
        sums: FrameChecksums | None,
    ) -> None:
        self.store_time_ms = 0
        self.bind: Callable[[ConsumeQueue, int], None] = lambda _queue, _generation: None
        """Called before a message of a generation that the queue does not hold; may raise."""
        self.before_next: Callable[[], None] | None = None
        """Called before the next append is taken; may append itself, and raise."""
        self.audience = Audience(index, partial(queues.fail, writer.fail))
        self.refusal: str | None = None
        """Why no message of others is taken for now."""
        self._full: str | None = None
        self.held: str | None = None
        """Why not even the broker's own are."""
        self._store_id = store_id
        self._id_prefix = encode_message_id(store_id, 0, 0)[:10]
        self._id_start = ""
        """Of the ids that are given now: all but the place."""
        self._store_host = config.store_host
        self._encoder = RecordEncoder(config.store_host)
        self._writer = writer
        self._gate = writer.gate
        self._queues = queues
        self._sums = sums
        self._crc_batch = config.fast_paths.crc_batch
        self._single_topic_chars_max = (
            SIMPLE_TOPIC_CHARS_MAX if config.fast_paths.single_append else -1
        )
        """Of topics whose lone messages are encoded by themselves."""
        self._clock = clock
        self._pending_bytes_max = limits.pending_append_bytes_max
        self._cursor = AppendCursor(0, config.segment_bytes)
        self._segment_bytes = config.segment_bytes
        self._has_told_of_lead = False

    def start(self, recovery: Recovery, segment_bytes: int) -> None:
        """Go on where the log ends."""
        self.store_time_ms = recovery.store_time_ms
        self._id_start = f"{self._id_prefix}{recovery.store_time_ms:012X}"
        self._segment_bytes = segment_bytes
        self._cursor = AppendCursor(recovery.end, segment_bytes)

    def refuse_because(self, reason: str | None) -> None:
        """Take no message while the disk is too full; None: take them again."""
        self._full = reason
        self.refusal = self.held or reason

    def hold_because(self, reason: str | None) -> None:
        """Take nothing at all, not even the broker's own; None: take it again."""
        self.held = reason
        self.refusal = reason or self._full

    @property
    def end(self) -> int:
        """Physical offset behind everything assigned so far."""
        return self._cursor.end

    def roll_back(self, end: int, refused: Sequence[Block]) -> None:
        """Forget what was assigned behind `end`: these blocks, in their order. They were not
        written; what was written and is not readable yet keeps its offsets."""
        self._cursor = AppendCursor(end, self._segment_bytes)
        if self._sums is not None:
            self._sums.forget()
        for block in reversed(refused):
            for part in reversed(publications_of(block.done)):
                part.queue.roll_back(part.first)

    @property
    def segment_bytes(self) -> int:
        """Of the log; no step is larger."""
        return self._segment_bytes

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
        """Append messages to one queue, in order, as one block."""
        self._admit(answer)
        queue = self._queues.find_or_new(topic, queue_id)
        if queue.generation != generation:
            self.bind(queue, generation)
        now = self._stamp()
        if len(messages) == 1 and len(topic) <= self._single_topic_chars_max:
            message = messages[0]
            if not (message.reconsume_times or message.flag or message.encoding):
                appended = self._append_one(queue, message, now, flush, done, answer)
                if appended is not None:
                    return appended
        return self._append_many(queue, messages, now, flush, done, answer)

    def _append_one(
        self,
        queue: ConsumeQueue,
        message: Message,
        now: int,
        flush: FlushMode,
        done: Done,
        answer: Answer | None,
    ) -> Appended | None:
        """One message that fits into the segment in use; None when it does not."""
        part = queue.topic_part
        properties = encode_properties(message)
        if len(properties) > PROPERTIES_BYTES_MAX:
            raise properties_too_large(len(properties))
        body = message.body
        size = SIMPLE_OVERHEAD_BYTES + len(body) + len(part) + len(properties)
        cursor = self._cursor
        at = cursor.end
        if size + END_OF_FILE_BYTES > self._segment_bytes - at % self._segment_bytes:
            return None
        offset = queue.next_offset
        born = message.born_time_ms
        record = encode_simple_record(
            part,
            (queue.queue_id, offset, at),
            body,
            properties,
            (now if born is None else born, now),
            self._store_host,
            self._writer.watermarks.flushed,
        )
        assert len(record) == size
        unit = UNIT.pack(at, size, self._encoder.tag_hash(message.tag) if message.tag else 0)
        message_id = message.message_id
        keyed: Keyed = _NO_KEYS
        if message.keys or message_id or message.unique_id:
            keyed = ((at, keys_of(message)),)
        publication = Publication(self.audience, queue, offset, unit, keyed, now, done)
        appended = Appended(offset, 1, now, (message_id or f"{self._id_start}{at:012X}",))
        sync = flush is FlushMode.SYNC
        block = Block(at + size, [(at, [record])], size, sync, publication, None, answer)
        self._writer.submit(block)
        cursor.end = at + size
        queue.next_offset = offset + 1
        if not queue.number:
            self._queues.enter(queue)
        return appended

    def _append_many(
        self,
        queue: ConsumeQueue,
        messages: Sequence[Message],
        now: int,
        flush: FlushMode,
        done: Done,
        answer: Answer | None,
    ) -> Appended:
        properties = [encode_properties(message) for message in messages]
        part = part_of(queue, queue.next_offset, messages, properties)
        self._refuse_too_large(max(part.sizes, default=0))
        placement = self._cursor.place(part.sizes)
        positions = placement.physical_offsets
        publication, appended = self._publication(part, positions, now, done)
        records = self._fill([(part, positions, publication)], now, self._writer.watermarks.flushed)
        self._submit(placement, writes_of(placement, records), flush, publication, answer)
        self._move(queue, part.first + len(messages))
        return appended

    def append_step(
        self,
        parts: Sequence[StepPart],
        flush: FlushMode,
        done: Done,
        *,
        is_send: bool = False,
        answer: Answer | None = None,
    ) -> list[Appended]:
        """Append the parts as one block that a crash leaves whole or not at all.

        A step of the broker's own state is taken on a nearly full disk too: consuming goes on.
        Not so one with which a client sends (`is_send`).
        Every record but a lone one says how many of the step follow it; all lie in one segment.
        """
        is_own = False
        if self.refusal is not None and not is_send:
            is_own = any(is_system_topic(part.topic) for part in parts)
        self._admit(answer, is_own=is_own)
        if len(parts) == 1 and len(parts[0].messages) == 1:
            # One entry of the broker's own state: as any single message.
            topic, queue_id, (message,), generation, *_ = parts[0]
            is_simple = not (message.reconsume_times or message.flag)
            if is_simple and len(topic) <= self._single_topic_chars_max:
                queue = self._queues.find_or_new(topic, queue_id)
                if generation and queue.generation != generation:
                    self.bind(queue, generation)
                now = self._stamp()
                appended = self._append_one(queue, message, now, flush, done, answer)
                if appended is not None:
                    return [appended]
        encoded = self._parts_of_step(parts)
        sizes = [size for part in encoded for size in part.sizes]
        self._refuse_too_large(sum(sizes))
        now = self._stamp()
        placement = self._cursor.place_together(sizes)
        return self._submit_step(encoded, placement, now, flush, done, answer)

    def _parts_of_step(self, parts: Sequence[StepPart]) -> list[Part]:
        """The parts with their offsets, in queues that are bound to their generations; a queue may
        have several parts, and be a new one."""
        left = sum([len(part.messages) for part in parts])
        is_marked = left > 1
        encoded: list[Part] = []
        last: dict[tuple[str, int], Part] = {}
        for topic, queue_id, messages, generation, known, has_marks in parts:
            name = topic, queue_id
            before = last.get(name)
            queue = self._queues.find_or_new(topic, queue_id) if before is None else before.queue
            if generation and queue.generation != generation:
                self.bind(queue, generation)
            first = queue.next_offset if before is None else before.first + len(before.messages)
            properties = known or [encode_properties(message) for message in messages]
            left -= len(messages)
            if is_marked and not has_marks:
                properties = with_marks(properties, left)
            part = last[name] = part_of(queue, first, messages, properties)
            encoded.append(part)
        return encoded

    def _submit_step(
        self,
        parts: list[Part],
        placement: Placement,
        now: int,
        flush: FlushMode,
        done: Done,
        answer: Answer | None,
    ) -> list[Appended]:
        placed: list[_Placed] = []
        results: list[Appended] = []
        first = 0
        for part in parts:
            end = first + len(part.sizes)
            positions = placement.physical_offsets[first:end]
            publication, appended = self._publication(part, positions, now, done)
            placed.append((part, positions, publication))
            results.append(appended)
            first = end
        step = StepPublication([publication for _, _, publication in placed], done)
        fill = partial(self._fill, placed, now, self._writer.watermarks.flushed)
        if first <= ENCODED_HERE_MAX:
            self._submit(placement, writes_of(placement, fill()), flush, step, answer)
        else:
            size = sum(map(_bytes_of, parts))
            self._submit_late(placement, fill, size, flush, step, answer)
        for each in parts:
            self._move(each.queue, each.first + len(each.messages))
        return results

    def _publication(
        self, part: Part, positions: Sequence[int], now: int, done: Done
    ) -> tuple[Publication, Appended]:
        """What shows messages that go to these places, which `_fill` completes; and their ids."""
        publication = Publication(self.audience, part.queue, part.first, b"", (), now, done)
        start = f"{self._id_prefix}{now:012X}"
        rows = zip(part.messages, positions, strict=True)
        ids = [message.message_id or f"{start}{at:012X}" for message, at in rows]
        return publication, Appended(part.first, len(ids), now, ids)

    def _fill(self, placed: Sequence[_Placed], now: int, synced_end: int) -> list[bytes]:
        """The records of these parts; their publications are complete then. Any thread."""
        records: list[bytes] = []
        for part, positions, publication in placed:
            encoded = self._encoder.encode(part, positions, now, synced_end, records)
            publication.units, publication.keyed = encoded
        return records

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

        An `entry` goes before them in the same block. A crash may leave the entry and only the
        first records of the frame, never a record without the entry.
        """
        self._admit(answer)
        self._refuse_too_large(int(frame.sizes.max()))
        queue = self._queues.find_or_new(topic, queue_id)
        if queue.generation != generation:
            self.bind(queue, generation)
        before = None if entry is None else self._parts_of_step([entry])[0]
        sizes = [] if before is None else before.sizes
        now = self._stamp()
        every = np.concatenate((np.array(sizes, np.int64), frame.sizes)) if sizes else frame.sizes
        places, placement = self._cursor.place_all(every)
        positions = places[len(sizes) :]
        first = queue.next_offset
        place(
            frame,
            queue_id=queue_id,
            first_queue_offset=first,
            physical_offsets=positions,
            store_time_ms=now,
            store_host=self._store_host,
            synced_end=self._writer.watermarks.flushed,
            crc_batch=self._crc_batch,
        )
        keyed = [(int(positions[number]), keys) for number, keys in frame.keyed]
        units = frame.units(positions)
        sums = self._sums if len(placement.stretches) == 1 else None
        start = int(positions[0])
        noted = [] if sums is None else sums.of(queue.number, frame, units, first, start)
        frame_publication = FramePublication(
            self.audience, queue, first, units, keyed, now, done, noted
        )
        publication: Done = frame_publication
        records: list[bytes] = []
        if before is not None:
            at = places[: len(sizes)].tolist()
            entry_publication, _ = self._publication(before, at, now, done)
            placed = [(before, at, entry_publication)]
            records = self._fill(placed, now, self._writer.watermarks.flushed)
            publication = StepPublication([entry_publication, frame_publication], done)
        ids = DerivedIds(self._store_id, now, positions)
        appended = Appended(first, frame.count, now, ids)
        writes = writes_of_frame(placement, records, frame)
        self._submit(placement, writes, flush, publication, answer)
        if before is not None:
            self._move(before.queue, before.first + len(before.messages))
        self._move(queue, first + frame.count)
        if sums is not None:
            sums.keep(queue.number)
        return appended

    def _submit(
        self,
        placement: Placement,
        writes: list[Write],
        flush: FlushMode,
        publication: Done,
        answer: Answer | None,
    ) -> None:
        """Hand a block over and move the end of the log behind it; the caller moves the queues."""
        writes.sort(key=start_of)
        size = end = 0
        for start, buffers in writes:
            written = sum(map(len, buffers))
            size, end = size + written, start + written
        assert end == placement.end
        sync = flush is FlushMode.SYNC
        self._writer.submit(Block(placement.end, writes, size, sync, publication, None, answer))
        self._cursor.end = placement.end

    def _submit_late(
        self,
        placement: Placement,
        fill: Callable[[], list[bytes]],
        size: int,
        flush: FlushMode,
        publication: Done,
        answer: Answer | None,
    ) -> None:
        """The same for a block of so many bytes of records that the worker encodes."""

        def encode() -> list[Write]:
            writes = writes_of(placement, fill())
            writes.sort(key=start_of)
            return writes

        size += sum([len(record) for _, record in placement.closing])
        sync = flush is FlushMode.SYNC
        self._writer.submit(Block(placement.end, [], size, sync, publication, encode, answer))
        self._cursor.end = placement.end

    def _move(self, queue: ConsumeQueue, next_offset: int) -> None:
        """The offsets below are taken: the block that has them is submitted."""
        queue.next_offset = next_offset
        if not queue.number:
            self._queues.enter(queue)

    def _admit(self, answer: Answer | None, *, is_own: bool = False) -> None:
        if self._writer.failed is not None:
            self._writer.refuse_if_failed()
        if self.refusal is not None and (not is_own or self.held is not None):
            raise DiskFull(
                f"no messages are taken: {self.refusal}",
                hint="free some space or shorten the retention; sending then works again",
                outcome="not_stored",
                retry_after_s=5,
            )
        if self._gate is not None:
            self._gate.admit(is_early=answer is not None and answer.is_early)
        if self._writer.pending_bytes > self._pending_bytes_max:
            raise TooManyRequests(
                "too many bytes wait to be written",
                hint="send again after a pause",
                quota=Quota("appends", self._pending_bytes_max, "content-bytes", 0),
                outcome="not_stored",
                retry_after_s=1,
            )
        if self.before_next is not None:
            self.before_next()

    def _refuse_too_large(self, size: int) -> None:
        if size + END_OF_FILE_BYTES > self._segment_bytes:
            raise BodyTooLarge(
                f"a record of {size} bytes does not fit into this store's segments of "
                f"{self._segment_bytes} bytes",
                outcome="not_stored",
            )

    @property
    def clock_lead_ms(self) -> int:
        """How far the newest store time is ahead of the clock; 0: within its usual errors."""
        lead_ms = self.store_time_ms - self._clock.now_ms()
        return lead_ms if lead_ms > STORE_TIME_LEAD_MS_MAX else 0

    def _stamp(self) -> int:
        """Store time: the wall clock, never running backwards, so that time can be bisected."""
        now = self._clock.now_ms()
        if now > self.store_time_ms:
            self.store_time_ms = now
            self._id_start = f"{self._id_prefix}{now:012X}"
        elif self.store_time_ms - now > STORE_TIME_LEAD_MS_MAX and not self._has_told_of_lead:
            self._has_told_of_lead = True
            _LOG.warning(
                "the clock is %d s behind the newest message; store times stand still until it has "
                "passed it",
                (self.store_time_ms - now) // 1000,
            )
        return self.store_time_ms


def _bytes_of(part: Part) -> int:
    return sum(part.sizes)
