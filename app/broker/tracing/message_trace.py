"""The trace of a message: who sent it, which client got it when, and what became of it.

What happens to messages is noted in memory and written twice a second into a system topic: one
record for each page of 1,024 offsets of a queue to which something has happened, found again by its
key. So a receive of 32 messages costs one note, not 32, sends of one client share notes, and to
read a trace is a look-up in the key index. When a message was stored its record says.

A topic is traced, not traced, or sampled: then a share of its messages is, and every failure.

A trace may lack events: a kill loses those of the last half second, and when they come faster than
they can be written, some are dropped and counted. Event loop only.
"""

import contextlib
from collections import Counter, deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from app.broker.context import Context
from app.broker.journal.append_future import AppendFuture
from app.broker.journal.cold_reads import ColdReads
from app.broker.ports import Topic
from app.broker.results import SendResult
from app.broker.tracing.sends_ahead import ahead_name, is_about, place_ahead
from app.broker.tracing.trace_notes import (
    PAGE_SHIFT,
    SAMPLED_KINDS,
    SHARE_MAX,
    Note,
    Page,
    Producer,
    Send,
    Single,
    TraceKind,
    covers,
    decode_notes,
    encode_notes,
    is_sampled,
    key_of,
    notes_of_sends,
    only_request,
    runs_of,
    sampled,
    seconds_of,
)
from app.domain.errors import CurlewError
from app.domain.handles.recall import waiting_offset_of
from app.domain.limits import MIB
from app.domain.message import Message, StoredMessage
from app.domain.names import HALF_TOPIC, TIMER_TOPIC, TRACE_TOPIC, retry_topic
from app.domain.positions import FlushMode
from app.domain.settings import TraceMode

TRACE_QUEUE: Final = 0
_SENT_KINDS: Final = (TraceKind.SENT, TraceKind.SENT_AGAIN)
_READ_BYTES: Final = 8 * MIB
_LAST_MS: Final = 1 << 62
_ON: Final = TraceMode.ON
_OFF: Final = TraceMode.OFF
"""By their names, because each send asks for them."""


class TraceEvent(NamedTuple):
    """One thing that happened to one message."""

    kind: TraceKind
    at_ms: int
    group: str
    attempt: int | None
    client_id: str | None
    detail: str | None
    """A reason, or where the message went."""
    copy: int | None = None
    """Of a dead letter: its offset among those of the group."""


class Sent(NamedTuple):
    """How a message was sent."""

    producer: Producer
    seconds: float | None
    """How long the broker took."""
    tries: int
    """How often it was sent under its claim, 1 for the first."""
    last_try_ms: int


class MessageHistory(NamedTuple):
    """The events of one message, in order. Not complete: older ones were left out."""

    events: list[TraceEvent]
    is_complete: bool
    sent: Sent | None = None
    """None: not noted."""


class MessageTrace:
    """The traces of all messages. One per broker; `turn` is a service's."""

    def __init__(self, context: Context) -> None:
        self._store = context.store
        self._metadata = context.metadata
        self._clock = context.clock
        self._limits = context.limits
        self._readers = context.readers
        self._notes: dict[Page, list[Note]] = {}
        self._sends: list[Send] = []
        self.singles: list[Single] = []
        """Plain sends that are not made notes of yet. Whoever knows that all of a topic is traced
        may append to it, up to `trace_notes_pending_max`."""
        self._leaving: deque[dict[Page, list[Note]]] = deque()
        """Handed to the store and not confirmed yet, in order."""
        self._last: AppendFuture | None = None
        """Of the last that was handed over."""
        self._count = 0
        self.dropped = 0
        """Notes that were not written since the start."""

    def is_kept(self, topic: str) -> bool:
        """Whether the topic is traced at all; what is noted of another one is passed over."""
        view = self._metadata.snapshot.topics.get(topic)
        return view is not None and view.trace is not TraceMode.OFF

    def sent(self, send: Send) -> None:
        """Note a request that stored messages. Put down only; made notes of when it is written."""
        view = self._metadata.snapshot.topics.get(send[1])
        if view is None or view.trace is TraceMode.OFF:
            return
        if self._count >= self._limits.trace_notes_pending_max:
            self.dropped += send[4]
        elif view.trace is TraceMode.ON:
            self._count += 1
            self._sends.append(send)
        else:
            kind, topic, queue_id, first, count, at_ms, seconds, producer = send
            for offset in sampled(first, first + count, _share(view)):
                self._count += 1
                self._sends.append((kind, topic, queue_id, offset, 1, at_ms, seconds, producer))

    def sent_one(self, result: SendResult, seconds: float, client: tuple[str, int] | None) -> None:
        """Note a plain send of one message: as `sent`, and cheaper."""
        view = self._metadata.snapshot.topics.get(result[1])
        if view is None or view.trace is _OFF or result[3] < 0:
            if result.recall_handle is not None:
                waiting = waiting_offset_of(result.recall_handle), 1
                producer = None, None, client[0] if client else None
                self.sent_delayed(TraceKind.SENT, result[1], waiting, result[4], seconds, producer)
            return
        singles = self.singles
        if len(singles) >= self._limits.trace_notes_pending_max:
            self.dropped += 1
        elif view.trace is _ON or is_sampled(result[3], _share(view)):
            singles.append((result, seconds, client))

    def sent_delayed(
        self,
        kind: TraceKind,
        topic: str,
        waiting: tuple[int, int],
        at_ms: int,
        seconds: float,
        producer: Producer,
    ) -> None:
        """Note a request that stored delayed messages for `topic`; `waiting` is the first offset
        under which they wait, and their number."""
        first, count = waiting
        if not self.is_kept(topic):
            return
        if self._count >= self._limits.trace_notes_pending_max:
            self.dropped += count
            return
        self._count += 1
        name = ahead_name(TIMER_TOPIC, topic)
        self._sends.append((kind, name, 0, first, count, at_ms, seconds, producer))

    def prepared(
        self,
        topic: str,
        message_id: str,
        half_offset: int,
        at_ms: int,
        seconds: float,
        producer: Producer,
    ) -> None:
        """Note a request that stored the half of a transaction for `topic`."""
        if not self.is_kept(topic):
            return
        if self._count >= self._limits.trace_notes_pending_max:
            self.dropped += 1
            return
        self._count += 1
        client_id, group, address = producer
        note = Note(
            *(TraceKind.SENT, at_ms, half_offset, half_offset + 1, group or "", None, client_id),
            *(message_id, None, address),
        )
        page = ahead_name(HALF_TOPIC, topic), 0, half_offset >> PAGE_SHIFT
        self._keep(page, only_request(note, half_offset, seconds))

    def note(
        self,
        kind: TraceKind,
        topic: str,
        place: tuple[str, int],
        offsets: Sequence[int],
        *,
        group: str,
        attempt: int | None = None,
        client_id: str | None = None,
        detail: str | None = None,
        copy: int | None = None,
    ) -> None:
        """Note what happened to messages of one queue; nothing where `topic` is not traced.

        `place` is the queue in which they lie: the topic's, or that of a group's retries. `copy`:
        it was the retry of this offset that was delivered, and what follows is noted there.
        Cheapest for offsets in rising order and without holes.
        """
        view = self._metadata.snapshot.topics.get(topic)
        if view is None or view.trace is TraceMode.OFF or not offsets:
            return
        if view.trace is TraceMode.SAMPLED and kind in SAMPLED_KINDS and place[0] == topic:
            if copy is None:  # a retry follows a failure: that is noted
                share = _share(view)
                offsets = [offset for offset in offsets if is_sampled(offset, share)]
            if not offsets:
                return
        at_ms = self._clock.now_ms()
        for first, end in runs_of(offsets):
            if self._count >= self._limits.trace_notes_pending_max:
                self.dropped += end - first
                continue
            self._count += 1
            note = Note(kind, at_ms, first, end, group, attempt, client_id, detail, copy)
            self._keep((*place, first >> PAGE_SHIFT), note)

    def _keep(self, page: Page, note: Note) -> None:
        try:
            self._notes[page].append(note)
        except KeyError:
            self._notes[page] = [note]

    def _note_sends(self) -> None:
        sends, self._sends = self._sends, []
        singles, self.singles = self.singles, []
        for page, note in notes_of_sends(sends, singles):
            self._keep(page, note)

    async def turn(self) -> None:
        """Write what was noted."""
        self._note_sends()
        if not self._notes:
            return
        notes, self._notes, count, self._count = self._notes, {}, self._count, 0
        messages = [
            Message(encode_notes(noted), keys=(key_of(page),)) for page, noted in notes.items()
        ]
        most = self._limits.batch_messages_max
        parts = [messages[first : first + most] for first in range(0, len(messages), most)]
        self._leaving.append(notes)
        self._last = last = AppendFuture()

        def left(error: CurlewError | None) -> None:
            """What was handed over first is in the log, or lost: traces disturb nothing."""
            self._leaving.popleft()
            last.done(error)

        try:
            for part in parts:
                done = left if part is parts[-1] else _ignore
                self._store.append(TRACE_TOPIC, TRACE_QUEUE, part, FlushMode.ASYNC, done)
        except Exception as error:
            self._leaving.pop()
            self._last = None
            self.dropped += count
            if not isinstance(error, CurlewError):
                raise

    async def write(self) -> None:
        """Write what was noted until now, and wait until it can be read or is lost."""
        await self.turn()
        if self._last is not None:
            with contextlib.suppress(CurlewError):
                await self._last.wait()

    async def trail(
        self, topic: str, queue_id: int, offset: int, *, group: str | None = None
    ) -> MessageHistory:
        """What happened to one message and its retries, as far as it is still kept.

        Reads a bounded number of records for the message and for each of its retries.
        """
        notes, is_complete = await self.notes_of(topic, queue_id, offset)
        sends, sent_as = [note for note in notes if note.kind in _SENT_KINDS], offset
        if not sends:
            sent_as, sends = await self._sends_ahead(topic, queue_id, offset)
        notes = [note for note in notes if note.kind not in _SENT_KINDS]
        for retry in [note for note in notes if note.kind == TraceKind.DELIVERED]:
            if retry.copy is not None:
                place = retry_topic(retry.group, topic), 0, retry.copy
                more, is_whole = await self.notes_of(*place)
                notes += more
                is_complete = is_complete and is_whole
        notes.sort(key=lambda note: note.at_ms)
        events = [_event(note) for note in notes if group in (None, note.group)]
        return MessageHistory(events, is_complete, _sent(sends, sent_as))

    async def sends_ahead(self, message: StoredMessage) -> tuple[int, list[Note]]:
        """The notes of its send when it had no place in its queue yet, and under which offset."""
        waited = place_ahead(message)
        if waited is None:
            return 0, []
        name, offset = waited
        notes, _ = await self.notes_of(name, 0, offset)
        return offset, [note for note in notes if is_about(note, message)]

    async def _sends_ahead(self, topic: str, queue_id: int, offset: int) -> tuple[int, list[Note]]:
        if not (self.is_kept(topic) and self._has(topic, queue_id, offset)):
            return offset, []
        read = await ColdReads(self._readers).run(
            lambda wait: self._store.read(
                *(topic, queue_id, offset),
                max_messages=1,
                max_bytes=1,
                end_offset=offset + 1,
                wait_for_disk=wait,
            )
        )
        if not read.records:
            return offset, []
        return await self.sends_ahead(self._store.decode(read.records[0]))

    def _has(self, topic: str, queue_id: int, offset: int) -> bool:
        bounds = self._store.bounds(topic, queue_id)
        return bounds.min_offset <= offset < bounds.max_offset

    async def notes_of(self, topic: str, queue_id: int, offset: int) -> tuple[list[Note], bool]:
        """The notes about one offset, and whether those are all."""
        page = topic, queue_id, offset >> PAGE_SHIFT
        # What is in memory may get into the log while that is read, or after it was.
        remembered = self._in_memory(page)
        found = await ColdReads(self._readers).run(
            lambda wait: self._store.find_by_key_before(
                (TRACE_TOPIC, key_of(page), 0, _LAST_MS),
                None,
                max_messages=self._limits.trace_records_read_max,
                max_bytes=_READ_BYTES,
                wait_for_disk=wait,
            )
        )
        written = [
            note
            for record in found.records
            for note in decode_notes(self._store.decode(record).body)
        ]
        unwritten = {id(note): note for note in (*remembered, *self._in_memory(page))}
        notes = Counter(written) | Counter(unwritten.values())
        about = [note for note in notes.elements() if covers(note, offset)]
        return about, found.is_complete

    def _in_memory(self, page: Page) -> list[Note]:
        self._note_sends()
        return [note for notes in (*self._leaving, self._notes) for note in notes.get(page, ())]


def _share(view: Topic) -> int:
    """In millionths."""
    return round(view.trace_rate * SHARE_MAX)


def _event(note: Note) -> TraceEvent:
    copy = note.copy if note.kind == TraceKind.DEAD_LETTERED else None
    return TraceEvent(
        *(TraceKind(note.kind), note.at_ms, note.group, note.attempt, note.client_id),
        *(note.detail, copy),
    )


def _sent(sends: list[Note], offset: int) -> Sent | None:
    """Of the notes about one message."""
    first = next((note for note in sends if note.kind == TraceKind.SENT), None)
    if first is None:
        return None
    last_ms = max(note.at_ms for note in sends)
    producer = first.client_id, first.group or None, first.address
    return Sent(producer, seconds_of(first, offset), len(sends), last_ms)


def _ignore(_error: CurlewError | None) -> None:
    """Only the last of several parts is waited for."""
