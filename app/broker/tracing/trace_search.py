"""Searching the traces: which events of a time there were, by topic, group, client, key and result.

The trace topic is gone through from the first record of the time on, a bounded number of notes in
each request; a cursor says where to go on. With a key, the messages that have it are looked up and
their traces read instead. Notes that are not written yet are written first. Event loop only.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from app.broker.context import Context
from app.broker.journal.cold_reads import ColdReads, find_offset_at
from app.broker.retries_and_dead_letters import as_original
from app.broker.topic_lookup import find_topic
from app.broker.tracing.message_trace import TRACE_QUEUE, MessageTrace
from app.broker.tracing.sends_ahead import NO_OFFSET, as_of, split_ahead
from app.broker.tracing.trace_notes import (
    Note,
    Page,
    TraceKind,
    about_one,
    count_of,
    decode_notes,
    longest_seconds,
    page_of,
)
from app.domain.errors import IllegalPage, InvalidRequest
from app.domain.handles.page_sizes import check_page_size
from app.domain.limits import MIB
from app.domain.message import PROPERTY_REAL_QUEUE, StoredMessage
from app.domain.names import DEAD_LETTER_PREFIX, RETRY_PREFIX, TRACE_TOPIC, retry_topic
from app.store import KeyedRecords, ReadResult

WRITTEN_WITHIN_MS: Final = 10_000
"""Notes are written so long after their time at most; later ones may be missed at a time's end."""

_LOOK_RECORDS: Final = 200
_LOOK_BYTES: Final = MIB
"""Of one turn of the event loop."""

_KEYED_MESSAGES: Final = 32
"""Messages with a key whose traces are read, the newest."""

_TEXT: Final = "t1."


@dataclass(frozen=True, slots=True)
class TraceQuery:
    """What to look for; None: anything. Times in epoch milliseconds, the last excluded."""

    since_ms: int
    until_ms: int
    topic: str | None = None
    group: str | None = None
    """Of consumers, or of a producer."""
    client_id: str | None = None
    kind: TraceKind | None = None
    is_ours: Callable[[str], bool] | None = None
    """Whether a topic, or the group of a retry, may be seen."""
    sees_topic: Callable[[str], bool] | None = None
    """Whether what happened to messages of a topic may be seen."""
    sees: Callable[[Note], bool] | None = None
    """Whether a note may be seen."""

    def shows(self, note: Note) -> bool:
        """Whether it may be seen."""
        return self.sees is None or self.sees(note)

    def takes(self, note: Note) -> bool:
        """Whether all but the topic is as wanted."""
        return (
            self.since_ms <= note.at_ms < self.until_ms
            and self.group in (None, note.group)
            and self.client_id in (None, note.client_id)
            and self.kind in (None, note.kind)
        )

    def takes_page(self, page: Page) -> bool:
        """Whether its notes may be about messages of the topic."""
        ahead, topic = split_ahead(page[0]), self.topic
        name = page[0] if ahead is None else ahead[1]
        group = name.removeprefix(RETRY_PREFIX).partition("+")[0]
        if topic is not None:
            return name in {topic, retry_topic(group, topic)}
        if self.is_ours is not None and not self.is_ours(group):
            return False
        return self.sees_topic is None or self._sees(name, group)

    def _sees(self, name: str, group: str) -> bool:
        """A retry's name has its group, then its topic, of which a long one is cut."""
        assert self.sees_topic is not None
        if name != group:
            name = name.removeprefix(RETRY_PREFIX).removeprefix(f"{group}+").partition("+")[0]
        return self.sees_topic(name)


@dataclass(frozen=True, slots=True)
class FoundEvent:
    """An event of one message, or of `count` neighbours in a queue."""

    kind: TraceKind
    at_ms: int
    topic: str
    queue_id: int
    queue_offset: int
    """`NO_OFFSET`: it was delayed, or the half of a transaction, and had none yet."""
    count: int
    message_id: str | None
    """Of the first; None: it is not kept any more."""
    group: str | None
    attempt: int | None
    client_id: str | None
    address: str | None
    detail: str | None
    duration_ms: float | None
    """Of a send: how long the broker took, at most."""


class FoundEvents(NamedTuple):
    """A page, the oldest first."""

    events: list[FoundEvent]
    scanned: int
    """Notes of the wanted topics that were looked at: those that may not be seen are not counted,
    as the caller may not know of them."""
    next_cursor: str | None


class TraceSearch:
    """One per broker."""

    def __init__(self, context: Context, message_trace: MessageTrace) -> None:
        self._store = context.store
        self._metadata = context.metadata
        self._limits = context.limits
        self._readers = context.readers
        self._trace = message_trace
        self._check_open = context.gate.check

    async def search(
        self, query: TraceQuery, *, page_size: int, cursor: str | None = None
    ) -> FoundEvents:
        """One page of the scan. Raises `TopicNotFound`, `IllegalPage`, `InvalidRequest`."""
        self._check(query, page_size)
        await self._trace.write()
        at, index = await self._start(query, cursor)
        found: list[tuple[Page, Note]] = []
        scanned, left = 0, self._limits.trace_notes_searched_max
        end = self._store.bounds(TRACE_TOPIC, TRACE_QUEUE).max_offset
        while at < end:
            read = await self._read(at)
            for offset, record in zip(read.queue_offsets, read.records, strict=True):
                message = self._store.decode(record)
                if message.store_time_ms >= query.until_ms + WRITTEN_WITHIN_MS:
                    return FoundEvents(await self._shown(found), scanned, None)
                page = page_of(message.keys[0])
                is_wanted, notes = query.takes_page(page), decode_notes(message.body)
                for place in range(index if offset == at else 0, len(notes)):
                    if len(found) >= page_size or not left:
                        return FoundEvents(
                            await self._shown(found), scanned, f"{_TEXT}{offset}.{place}"
                        )
                    left -= 1
                    if is_wanted and query.shows(notes[place]):
                        scanned += 1
                        if query.takes(notes[place]):
                            found.append((page, notes[place]))
            at, index = max(read.next_offset, at + 1), 0
            await asyncio.sleep(0)
        return FoundEvents(await self._shown(found), scanned, None)

    async def with_key(self, query: TraceQuery, key: str, *, page_size: int) -> FoundEvents:
        """The events of the newest messages of the topic that have a key, those of their retries
        included; of more than a page, the newest."""
        self._check(query, page_size)
        if query.topic is None:
            raise InvalidRequest(
                "a search by key needs the topic, too", fields={"parameter": "topic"}
            )
        topic = query.topic
        records = await ColdReads(self._readers).run(partial(self._keyed, topic, key))
        notes: list[tuple[Page, Note]] = []
        scanned = 0
        for record in records.records:
            message = self._store.decode(record)
            for page, each in await self._notes_about(message):
                if query.shows(each):
                    scanned += 1
                    if query.takes(each):
                        notes.append((page, each))
        notes.sort(key=_in_order)
        return FoundEvents(await self._shown(notes[-page_size:]), scanned, None)

    def _keyed(self, topic: str, key: str, wait_for_disk: bool) -> KeyedRecords:
        return self._store.find_by_key_before(
            (topic, key, 0, 1 << 62),
            None,
            max_messages=_KEYED_MESSAGES,
            max_bytes=8 * MIB,
            wait_for_disk=wait_for_disk,
        )

    async def _notes_about(self, message: StoredMessage) -> list[tuple[Page, Note]]:
        """Each cut to this message."""
        place = message.topic, message.queue_id, message.queue_offset
        found: list[tuple[Page, Note]] = []
        for each in (await self._trace.notes_of(*place))[0]:
            found.append(_cut(place, each))
            if each.kind == TraceKind.DELIVERED and each.copy is not None:
                retry = retry_topic(each.group, message.topic), 0, each.copy
                more, _ = await self._trace.notes_of(*retry)
                found += [_cut(retry, note) for note in more]
        waited_at, sends = await self._trace.sends_ahead(message)
        found += [_cut(place, as_of(each, waited_at, place[2])) for each in sends]
        return found

    def _check(self, query: TraceQuery, page_size: int) -> None:
        self._check_open()
        check_page_size(page_size, self._limits.trace_results_max)
        if query.since_ms >= query.until_ms:
            raise InvalidRequest(
                "since_ms is not before until_ms", fields={"parameter": "since_ms"}
            )
        if query.topic is not None:
            find_topic(self._metadata, query.topic)

    async def _start(self, query: TraceQuery, cursor: str | None) -> tuple[int, int]:
        """Offset of a record and index of a note."""
        bounds = self._store.bounds(TRACE_TOPIC, TRACE_QUEUE)
        if cursor is not None:
            offset, index = _place_in(cursor)
            return (offset, index) if offset >= bounds.min_offset else (bounds.min_offset, 0)
        at = await ColdReads(self._readers).run(
            lambda wait: find_offset_at(
                *(self._store, TRACE_TOPIC, TRACE_QUEUE, bounds, query.since_ms),
                wait_for_disk=wait,
            )
        )
        return at, 0

    async def _read(self, at: int) -> ReadResult:
        return await ColdReads(self._readers).run(
            lambda wait: self._store.read(
                *(TRACE_TOPIC, TRACE_QUEUE, at),
                max_messages=_LOOK_RECORDS,
                max_bytes=_LOOK_BYTES,
                wait_for_disk=wait,
            )
        )

    async def _shown(self, found: Sequence[tuple[Page, Note]]) -> list[FoundEvent]:
        """In order, with the messages that they are about: of retries under their originals."""
        found = sorted(found, key=_in_order)
        places = {(page[0], page[1], note.first) for page, note in found}
        messages: dict[tuple[str, int, int], StoredMessage] = {}
        if places:
            read = partial(self._messages_at, places)
            messages = await asyncio.get_running_loop().run_in_executor(self._readers, read)
        return [
            _event(page, note, messages.get((page[0], page[1], note.first))) for page, note in found
        ]

    def _messages_at(
        self, places: set[tuple[str, int, int]]
    ) -> dict[tuple[str, int, int], StoredMessage]:
        """On a reader thread."""
        return dict(self._each_message_at(places))

    def _each_message_at(
        self, places: set[tuple[str, int, int]]
    ) -> Iterator[tuple[tuple[str, int, int], StoredMessage]]:
        for place in sorted(places):
            name, queue_id, offset = place
            ahead = split_ahead(name)
            topic = name if ahead is None else ahead[0]
            bounds = self._store.bounds(topic, queue_id)
            if not bounds.min_offset <= offset < bounds.max_offset:
                continue
            read = self._store.read(
                *(topic, queue_id, offset),
                max_messages=1,
                max_bytes=1,
                end_offset=offset + 1,
                wait_for_disk=True,
            )
            if read.records:
                message = self._store.decode(read.records[0])
                is_copy = topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))
                yield place, as_original(message) if is_copy else message


def _in_order(found: tuple[Page, Note]) -> tuple[int, bool]:
    """A message is sent before anything else happens to it, be it in the same millisecond."""
    return found[1].at_ms, found[1].kind != TraceKind.SENT


def _cut(place: tuple[str, int, int], note: Note) -> tuple[Page, Note]:
    """The note about this place alone."""
    topic, queue_id, offset = place
    return (topic, queue_id, 0), about_one(note, offset)


def _event(page: Page, note: Note, message: StoredMessage | None) -> FoundEvent:
    topic, queue_id, offset = page[0], page[1], note.first
    message_id, detail = None if message is None else message.message_id, note.detail
    ahead = split_ahead(topic)
    if ahead is not None:
        topic, offset = ahead[1], NO_OFFSET
        message_id, detail = note.detail or message_id, None
        if message is not None:
            queue_id = int(message.system.get(PROPERTY_REAL_QUEUE, 0))
    elif message is not None:
        topic, queue_id, offset = message.topic, message.queue_id, message.queue_offset
    seconds = longest_seconds(note)
    return FoundEvent(
        *(TraceKind(note.kind), note.at_ms, topic, queue_id, offset, count_of(note)),
        message_id=message_id,
        group=note.group or None,
        attempt=note.attempt,
        client_id=note.client_id,
        address=note.address,
        detail=detail,
        duration_ms=None if seconds is None else round(seconds * 1_000, 3),
    )


def _place_in(cursor: str) -> tuple[int, int]:
    offset, _, index = cursor.removeprefix(_TEXT).partition(".")
    is_ours = cursor.startswith(_TEXT) and offset.isascii() and index.isascii()
    if not (is_ours and offset.isdigit() and index.isdigit() and len(cursor) <= 40):
        raise IllegalPage(
            "page_token was not given by a search", hint="begin again without page_token"
        )
    return int(offset), int(index)
