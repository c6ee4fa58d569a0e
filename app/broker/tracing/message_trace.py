"""The trace of a message: which client got it when, and what became of it, for each group.

What happens to messages is noted in memory and written twice a second into a system topic: one
record for each page of 1,024 offsets of a queue to which something has happened, found again by its
key. So a receive of 32 messages costs one note, not 32, and reading a trace is a look-up in the key
index. When a message was stored is not noted: its own record says so.

A trace may lack events: a kill loses those of the last half second, and when they come faster than
they can be written, some are dropped and counted. Event loop only.
"""

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

import msgspec

from app.broker.context import Context
from app.broker.journal.cold_reads import ColdReads
from app.domain.errors import CurlewError
from app.domain.limits import MIB
from app.domain.message import Message
from app.domain.names import TRACE_TOPIC, retry_topic
from app.domain.positions import FlushMode

_PAGE_SHIFT: Final = 10
_QUEUE: Final = 0
_READ_BYTES: Final = 8 * MIB
_LAST_MS: Final = 1 << 62


class TraceKind(IntEnum):
    """What happened. The numbers are stored."""

    DELIVERED = 1
    ACKED = 2
    NACKED = 3
    EXPIRED = 4
    EXTENDED = 5
    DEAD_LETTERED = 6
    REDRIVEN = 7
    SKIPPED = 8
    RELEASED = 9


class TraceEvent(NamedTuple):
    """One thing that happened to one message."""

    kind: TraceKind
    at_ms: int
    group: str
    attempt: int | None
    client_id: str | None
    detail: str | None
    """A reason, or where the message went."""


class MessageHistory(NamedTuple):
    """The events of one message, in order. Not complete: older ones were left out."""

    events: list[TraceEvent]
    is_complete: bool


class _Note(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """An event of the offsets `[first, end)` of one queue."""

    kind: int
    at_ms: int
    first: int
    end: int
    group: str
    attempt: int | None
    client_id: str | None
    detail: str | None
    copy: int | None


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(list[_Note]).decode

_Page = tuple[str, int, int]
"""Topic, queue id, number of the page."""


class MessageTrace:
    """The trails of all messages. One per broker; `turn` is a service's."""

    def __init__(self, context: Context) -> None:
        self._store = context.store
        self._metadata = context.metadata
        self._clock = context.clock
        self._limits = context.limits
        self._readers = context.readers
        self._notes: dict[_Page, list[_Note]] = {}
        self._leaving: deque[dict[_Page, list[_Note]]] = deque()
        """Handed to the context.store and not confirmed yet, in order."""
        self._count = 0
        self.dropped = 0
        """Notes that were not written since the start."""

    def is_kept(self, topic: str) -> bool:
        """Whether the topic is traced; what is noted of another one is passed over."""
        view = self._metadata.snapshot.topics.get(topic)
        return view is not None and view.trace

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
        if not offsets or not self.is_kept(topic):
            return
        at_ms = self._clock.now_ms()
        for first, end in _runs(offsets):
            if self._count >= self._limits.trace_notes_pending_max:
                self.dropped += end - first
                continue
            self._count += 1
            note = _Note(kind, at_ms, first, end, group, attempt, client_id, detail, copy)
            page = *place, first >> _PAGE_SHIFT
            try:
                self._notes[page].append(note)
            except KeyError:
                self._notes[page] = [note]

    async def turn(self) -> None:
        """Write what was noted."""
        if not self._notes:
            return
        notes, self._notes, count, self._count = self._notes, {}, self._count, 0
        messages = [Message(_encode(noted), keys=(_key(*page),)) for page, noted in notes.items()]
        most = self._limits.batch_messages_max
        parts = [messages[first : first + most] for first in range(0, len(messages), most)]
        self._leaving.append(notes)
        try:
            for part in parts:
                done = self._left if part is parts[-1] else _ignore
                self._store.append(TRACE_TOPIC, _QUEUE, part, FlushMode.ASYNC, done)
        except Exception as error:
            self._leaving.pop()
            self.dropped += count
            if not isinstance(error, CurlewError):
                raise

    def _left(self, _error: CurlewError | None) -> None:
        """What was handed over first is in the log, or lost: traces disturb nothing."""
        self._leaving.popleft()

    async def trail(
        self, topic: str, queue_id: int, offset: int, *, group: str | None = None
    ) -> MessageHistory:
        """What happened to one message and its retries, as far as it is still kept.

        Reads a bounded number of records for the message and for each of its retries.
        """
        notes, is_complete = await self._notes_of(topic, queue_id, offset)
        retries = [note for note in notes if note.copy is not None]
        for retry in retries[: self._limits.attempts_max]:
            assert retry.copy is not None
            more, is_whole = await self._notes_of(retry_topic(retry.group, topic), 0, retry.copy)
            notes += more
            is_complete = is_complete and is_whole
        notes.sort(key=lambda note: note.at_ms)
        events = [_event(note) for note in notes if group in (None, note.group)]
        return MessageHistory(events, is_complete)

    async def _notes_of(self, topic: str, queue_id: int, offset: int) -> tuple[list[_Note], bool]:
        page = topic, queue_id, offset >> _PAGE_SHIFT
        # What is in memory may get into the log while that is read, or after it was.
        remembered = self._in_memory(page)
        found = await ColdReads(self._readers).run(
            lambda wait: self._store.find_by_key_before(
                (TRACE_TOPIC, _key(*page), 0, _LAST_MS),
                None,
                max_messages=self._limits.trace_records_read_max,
                max_bytes=_READ_BYTES,
                wait_for_disk=wait,
            )
        )
        written = [
            note for record in found.records for note in _decode(self._store.decode(record).body)
        ]
        unwritten = {id(note): note for note in (*remembered, *self._in_memory(page))}
        notes = Counter(written) | Counter(unwritten.values())
        about = [note for note in notes.elements() if note.first <= offset < note.end]
        return about, found.is_complete

    def _in_memory(self, page: _Page) -> list[_Note]:
        return [note for notes in (*self._leaving, self._notes) for note in notes.get(page, ())]


def _key(topic: str, queue_id: int, page: int) -> str:
    return f"{topic}/{queue_id}/{page}"


def _event(note: _Note) -> TraceEvent:
    return TraceEvent(
        TraceKind(note.kind), note.at_ms, note.group, note.attempt, note.client_id, note.detail
    )


def _runs(offsets: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Half-open runs of rising offsets; none crosses a page."""
    first, last = offsets[0], offsets[-1]
    is_whole = last - first == len(offsets) - 1 and first >> _PAGE_SHIFT == last >> _PAGE_SHIFT
    if is_whole and offsets == list(range(first, last + 1)):
        yield first, last + 1
        return
    first = end = -1
    for offset in offsets:
        if offset == end and offset >> _PAGE_SHIFT == first >> _PAGE_SHIFT:
            end += 1
            continue
        if first >= 0:
            yield first, end
        first, end = offset, offset + 1
    yield first, end


def _ignore(_error: CurlewError | None) -> None:
    """Only the last of several parts is waited for."""
