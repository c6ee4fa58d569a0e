"""Browsing: the messages of all queues of a topic, newest or oldest first, chosen by conditions.

No state: a cursor says where to go on. One request looks at so many messages and then answers with
what it has found, perhaps nothing, and a cursor. Looks are made on the event loop, others getting
their turn in between; at the first cold read the rest of the request moves to a reader thread.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from app.broker.context import Context
from app.broker.journal.cold_reads import ColdReads, find_offset_at
from app.broker.ports import Store
from app.broker.read.browse_filter import BrowseConditions, BrowseFilter
from app.broker.read.queue_merge import Item, QueueMerge
from app.broker.topic_lookup import readable_topic
from app.domain.errors import IllegalPage, MessageNotFound
from app.domain.handles.browse_cursors import (
    BrowseCursor,
    decode_browse_cursor,
    encode_browse_cursor,
)
from app.domain.handles.page_sizes import check_page_size
from app.domain.limits import (
    BROWSE_LOOK_UNITS,
    DEFAULT_PAGE_SIZE,
    FILTER_LOOK_BYTES,
    FILTER_LOOK_MESSAGES,
    Limits,
)
from app.domain.message import StoredMessage
from app.store import ColdRead, Gap, QueueBounds
from app.store.read.queue_reads import GAP_CORRUPT

_QUEUES_ON_LOOP: Final = 64
"""Of more queues, the places to begin at are looked up on a reader thread."""
_POSITION_END: Final = 2**63 - 1
_PHYSICAL_OFFSET: Final = slice(28, 36)
"""Of a record."""


@dataclass(frozen=True, slots=True)
class BrowseRequest:
    """What to look for. Without a cursor: from the newest back, or from the oldest on."""

    direction: Literal["forward", "backward"] | None = None
    """None: the cursor's, else backward."""
    conditions: BrowseConditions = field(default_factory=BrowseConditions)
    max_messages: int = DEFAULT_PAGE_SIZE
    cursor: str | None = None


class BrowseGap(NamedTuple):
    """Messages of a queue that damage made unreadable."""

    queue_id: int
    gap: Gap


class BrowseResult(NamedTuple):
    """A page. `next_cursor` is None at the end; `scanned` counts what was looked at."""

    messages: list[StoredMessage]
    scanned: int
    next_cursor: str | None
    gaps: list[BrowseGap]


class Browser:
    """Answers browses. One per broker."""

    def __init__(self, context: Context) -> None:
        self._store = context.store
        self._metadata = context.metadata
        self._limits = context.limits
        self._readers = context.readers
        self._check_open = context.gate.check

    async def message(self, topic: str, message_id: str) -> StoredMessage:
        """One message by its id, or `MessageNotFound`."""
        self._check_open()
        readable_topic(self._metadata, topic)
        message = await ColdReads(self._readers).run(
            lambda wait: self._store.read_message(message_id, topic=topic, wait_for_disk=wait)
        )
        if message is None or message.topic != topic:
            raise MessageNotFound(
                f"topic {topic!r} has no message {message_id!r}",
                hint="it may be past the topic's retention",
            )
        return message

    async def browse(self, topic: str, request: BrowseRequest) -> BrowseResult:
        """One page. Raises `TopicNotFound`, `IllegalPage`, `IllegalFilter`, `InvalidRequest`."""
        self._check_open()
        queues = readable_topic(self._metadata, topic).queues
        cursor = self._cursor_of(request)
        limits = self._limits
        check_page_size(request.max_messages, limits.page_size_max)
        choice = BrowseFilter(request.conditions)
        bounds = [self._store.bounds(topic, queue_id) for queue_id in range(queues)]
        page = _Page(self._store, topic, bounds, choice, cursor, request, limits)
        disk = ColdReads(self._readers)
        if queues > _QUEUES_ON_LOOP or page.goes_by_key:
            await disk.hop(page.look_on)
            return page.result()
        while not page.is_done:
            try:
                page.look(False)
            except ColdRead:
                await disk.hop(page.look_on)
            if not page.is_done:
                await asyncio.sleep(0)
        return page.result()

    def _cursor_of(self, request: BrowseRequest) -> BrowseCursor:
        if request.cursor is None:
            is_forward = request.direction == "forward"
            return BrowseCursor(is_forward, 0 if is_forward else _POSITION_END)
        cursor = decode_browse_cursor(request.cursor, self._store.store_id)
        if request.direction is not None and cursor.is_forward != (request.direction == "forward"):
            raise IllegalPage(
                "the cursor goes the other way",
                hint="leave direction out, or begin again without a cursor",
            )
        return cursor


class _Page:
    """One browse in progress. Used by one thread at a time."""

    def __init__(
        self,
        store: Store,
        topic: str,
        bounds: list[QueueBounds],
        choice: BrowseFilter,
        cursor: BrowseCursor,
        request: BrowseRequest,
        limits: Limits,
    ) -> None:
        self._store = store
        self._topic = topic
        self._bounds = bounds
        self._choice = choice
        self._is_forward, self._position = cursor
        self._begins_with_cursor = request.cursor is not None
        self._max_messages = request.max_messages
        self._bytes_left = limits.pull_bytes_max
        self._looks_left = limits.filter_looks_max
        self._scans_left = limits.pull_scan_units_max
        self._messages: list[StoredMessage] = []
        self._gaps: list[BrowseGap] = []
        self._scanned = 0
        self._merge: QueueMerge | None = None
        self._gathered: list[Item] = []
        """Taken from the merge and not looked at yet."""
        self._is_exhausted = False
        self._is_full = False
        self.goes_by_key = choice.key is not None and not self._is_forward

    @property
    def is_done(self) -> bool:
        """Full, at the end, or looked for long enough."""
        return (
            self._is_full
            or self._is_exhausted
            or self._looks_left <= 0
            or self._scanned >= self._scans_left
        )

    def result(self) -> BrowseResult:
        cursor = None
        if not self._is_exhausted:
            place = BrowseCursor(self._is_forward, self._position)
            cursor = encode_browse_cursor(place, self._store.store_id)
        return BrowseResult(self._messages, self._scanned, cursor, self._gaps)

    def look_on(self, wait_for_disk: bool) -> None:
        """All that is left to do, on a reader thread."""
        while self.goes_by_key and not self.is_done:
            self._look_by_key(wait_for_disk)
        while not self.is_done:
            self.look(wait_for_disk)

    # --- by the key index, newest first

    def _look_by_key(self, wait_for_disk: bool) -> None:
        """One look at the index; where that ends too early, the queues are gone through."""
        choice = self._choice
        assert choice.key is not None
        found = self._store.find_by_key_before(
            (self._topic, choice.key, choice.from_ms, choice.until_ms - 1),
            self._position,
            max_messages=self._wanted_at_a_time(),
            max_bytes=FILTER_LOOK_BYTES,
            wait_for_disk=wait_for_disk,
        )
        self._looks_left -= 1
        for record in reversed(found.records):
            self._scanned += 1
            if not self._take(record):
                return
            self._position = int.from_bytes(record[_PHYSICAL_OFFSET])
            if self._is_full:
                self._is_exhausted = found.is_complete and record is found.records[0]
                return
        self._is_exhausted = found.is_complete
        self.goes_by_key = bool(found.records)

    # --- through the queues

    def look(self, wait_for_disk: bool) -> None:
        """Look at some hundred messages. `ColdRead` loses nothing: call again with the disk."""
        if self._merge is None:
            self._merge = self._begin(wait_for_disk)
        is_at_end = self._gather(self._merge, wait_for_disk)
        records, gaps = self._read_gathered(wait_for_disk)
        gathered, self._gathered = self._gathered, []
        self._looks_left -= 1
        for item in gathered:
            place = item.queue_id, item.offset
            record = records.get(place)
            if record is not None and not self._take(record):
                return
            self._scanned += 1
            self._position = item.position + self._is_forward
            if place in gaps:
                self._note_gap(*place, gaps[place])
            if self._is_full:
                self._is_exhausted = is_at_end and item is gathered[-1]
                return
        self._is_exhausted = is_at_end

    def _begin(self, wait_for_disk: bool) -> QueueMerge:
        ranges = [
            (queue_id, *self._range_of(queue_id, bounds, wait_for_disk))
            for queue_id, bounds in enumerate(self._bounds)
        ]
        return QueueMerge(
            self._store,
            self._topic,
            [each for each in ranges if each[1] < each[2]],
            is_forward=self._is_forward,
            position=self._position,
            units_at_a_time=BROWSE_LOOK_UNITS,
        )

    def _range_of(self, queue_id: int, bounds: QueueBounds, wait_for_disk: bool) -> tuple[int, int]:
        """First offset and end of what is wanted of a queue, by the cursor and by time."""
        low, high = bounds
        store, topic, choice = self._store, self._topic, self._choice
        if self._begins_with_cursor or 0 < self._position < _POSITION_END:
            place = store.offset_behind(
                topic, queue_id, self._position, wait_for_disk=wait_for_disk
            )
            low, high = (max(low, place), high) if self._is_forward else (low, min(high, place))
        for time_ms, is_low in ((choice.from_ms, True), (choice.until_ms, False)):
            if not choice.is_open_end(time_ms) and low < high:
                place = find_offset_at(
                    store,
                    topic,
                    queue_id,
                    QueueBounds(low, high),
                    time_ms,
                    wait_for_disk=wait_for_disk,
                )
                low, high = (place, high) if is_low else (low, place)
        return low, high

    def _gather(self, merge: QueueMerge, wait_for_disk: bool) -> bool:
        """Take from the merge what one look can hold. True: nothing is left behind it."""
        hashes = self._choice.tag_hashes
        wanted = self._wanted_at_a_time()
        chosen = [item for item in self._gathered if hashes is None or item.unit[2] in hashes]
        size = sum(item.unit[1] for item in chosen)
        count = len(chosen)
        while count < wanted and size < FILTER_LOOK_BYTES:
            if len(self._gathered) >= BROWSE_LOOK_UNITS:
                return False
            item = merge.next(wait_for_disk)
            if item is None:
                return True
            self._gathered.append(item)
            if hashes is None or item.unit[2] in hashes:
                count += 1
                size += max(item.unit[1], 0)
        return False

    def _wanted_at_a_time(self) -> int:
        if self._choice.is_by_tag_only:
            return min(self._max_messages - len(self._messages), FILTER_LOOK_MESSAGES)
        return FILTER_LOOK_MESSAGES

    def _read_gathered(
        self, wait_for_disk: bool
    ) -> tuple[dict[tuple[int, int], memoryview], dict[tuple[int, int], str]]:
        """The records of what was gathered, and why others cannot be read, by queue and offset."""
        hashes = self._choice.tag_hashes
        by_queue: dict[int, list[Item]] = {}
        for item in self._gathered:
            if hashes is None or item.unit[2] in hashes:
                by_queue.setdefault(item.queue_id, []).append(item)
        records: dict[tuple[int, int], memoryview] = {}
        gaps: dict[tuple[int, int], str] = {}
        for queue_id, items in by_queue.items():
            offsets = [item.offset for item in items]
            at, end = min(offsets), max(offsets) + 1
            while at < end:
                read = self._store.read(
                    self._topic,
                    queue_id,
                    at,
                    max_messages=len(items),
                    max_bytes=sum(max(item.unit[1], 1) for item in items),
                    tag_hashes=hashes,
                    end_offset=end,
                    wait_for_disk=wait_for_disk,
                )
                places = [(queue_id, offset) for offset in read.queue_offsets]
                records.update(zip(places, read.records, strict=True))
                for first, last, reason in read.gaps:
                    gaps.update(((queue_id, offset), reason) for offset in range(first, last))
                at = max(read.next_offset, at + 1)
        return records, gaps

    def _take(self, record: memoryview) -> bool:
        """Add the record to the page if it is chosen. False: it is for the next page."""
        if not self._choice.takes_record(record):
            return True
        message = self._store.decode(record)
        if not self._choice.takes_message(message):
            return True
        if self._messages and len(record) > self._bytes_left:
            self._is_full = True
            return False
        self._messages.append(message)
        self._bytes_left -= len(record)
        self._is_full = len(self._messages) >= self._max_messages
        return True

    def _note_gap(self, queue_id: int, offset: int, reason: str) -> None:
        if reason == GAP_CORRUPT:
            self._gaps.append(BrowseGap(queue_id, Gap(offset, offset + 1, reason)))
