"""Finding single records: by physical offset, by key, by store time. Bounded; any thread."""

from collections.abc import Callable
from typing import NamedTuple

from app.domain.message import (
    PROPERTY_KEYS,
    PROPERTY_MESSAGE_ID,
    PROPERTY_UNIQUE_KEY,
    StoredMessage,
)
from app.store.config import StoreConfig
from app.store.damage import DamageKind, Damages
from app.store.formats.record.message_id import decode_message_id
from app.store.formats.record.record import (
    MAGIC_V1,
    MAGIC_V2,
    RECORD_BYTES_MIN,
    check,
    decode_fields,
    decode_message,
    decode_properties,
)
from app.store.fs.files import ColdRead
from app.store.index.key_index import KeyIndex
from app.store.queues.consume_queue import ConsumeQueue, OldestRead
from app.store.queues.queue_table import QueueTable
from app.store.read.record_checks import Source, is_intact

MAX_TIME_MS = 1 << 62
"""Later than any store time."""

NAMESAKES_PER_PAGE = 16
NAMESAKE_PAGES_MAX = 16
"""Newer messages with an id among their keys that a look-up by that id passes over."""

STORE_TIME_AT = 56
_HEAD_BYTES = 36
"""Of a record, up to and with its physical offset."""
OLDEST_KEPT_MS = 3_600_000
"""How long what was read of the oldest message of a queue counts."""

_DAMAGED_STEPS_MAX = 64
_DAMAGED_PLACES_MAX = 10_000
_SAMPLED_UNITS = 32
_SAMPLED_PLACES = 4


def read_record(source: Source, at: int, end: int, *, wait_for_disk: bool) -> memoryview | None:
    """The intact record at the physical offset `at`, below `end`, or None.

    Places come from clients, too: nothing large is read before the head says that it is one.
    """
    size = _size_at(source, at, end, wait_for_disk=wait_for_disk)
    if size == 0:
        return None
    record = memoryview(source.log.read(at, size, wait_for_disk=wait_for_disk))
    required = at >= source.unchecked_end
    if len(record) != size or check(record, at, checksum_required=required):
        return None
    return record


def _size_at(source: Source, at: int, end: int, *, wait_for_disk: bool) -> int:
    """Of the record whose head stands at the physical offset; 0: there is none."""
    log = source.log
    if not log.start <= at < end:
        return 0
    head = log.read(at, _HEAD_BYTES, wait_for_disk=wait_for_disk)
    size, magic, place = (int.from_bytes(head[a:b]) for a, b in ((0, 4), (4, 8), (28, 36)))
    room = log.base_of(at) + log.segment_bytes - at
    is_head = magic in (MAGIC_V1, MAGIC_V2) and place == at
    return size if is_head and RECORD_BYTES_MIN <= size <= room else 0


class KeyedRecords(NamedTuple):
    """Records with a key, in the order of the log."""

    records: list[memoryview]
    is_complete: bool
    """Whether no older ones were left out, be it for a bound or for the length of the search."""


class Lookups:
    """Finds what one store has by id and by key. Only what begins before `end` is there."""

    def __init__(
        self,
        store_id: bytes,
        source: Source,
        queues: QueueTable,
        index: KeyIndex,
        config: StoreConfig,
        damages: Damages,
    ) -> None:
        self._store_id = store_id
        self._source = source
        self._queues = queues
        self._index = index
        self._probes_max = config.key_probes_max
        self._record_bytes_max = config.record_bytes_max
        self._damages = damages
        self._damaged: set[int] = set()
        """Physical offsets where a look-up by key found no good record."""

    def by_key(
        self,
        wanted: tuple[str, str, int, int],
        end: int,
        *,
        max_messages: int,
        max_bytes: int,
        wait_for_disk: bool,
    ) -> KeyedRecords:
        """The newest records of a topic with a key, at least one if there is.

        `wanted` is topic, key and the first and last store time in ms. Follows `key_probes_max`
        index entries at most.
        """
        found: dict[int, memoryview] = {}
        candidates = self._index.candidates(*wanted, wait_for_disk=wait_for_disk)
        for probe, at in enumerate(candidates):
            if probe >= self._probes_max or len(found) >= max_messages or max_bytes <= 0:
                return KeyedRecords([found[at] for at in sorted(found)], False)
            if at is None or at in found:
                continue
            record = read_record(self._source, at, end, wait_for_disk=wait_for_disk)
            if record is None:
                self._note_damage(at, end, wait_for_disk=wait_for_disk)
            elif self._has_key(record, *wanted):
                found[at] = record
                max_bytes -= len(record)
        return KeyedRecords([found[at] for at in sorted(found)], True)

    def _note_damage(self, at: int, end: int, *, wait_for_disk: bool) -> None:
        """The index says that a record begins there, and so does its head. Each place is counted
        once, as far as they are remembered."""
        if at in self._damaged or not _size_at(self._source, at, end, wait_for_disk=wait_for_disk):
            return
        if len(self._damaged) >= _DAMAGED_PLACES_MAX:
            self._damaged.clear()
        self._damaged.add(at)
        what = f"the record at {at} of the log, which has a key, cannot be read"
        self._damages.note(DamageKind.MESSAGE, what)

    def _has_key(
        self, record: memoryview, topic: str, key: str, begin_ms: int, end_ms: int
    ) -> bool:
        """The index knows hashes only; the record itself decides."""
        fields = decode_fields(record)
        if fields.topic != topic or not begin_ms <= fields.store_time_ms <= end_ms:
            return False
        if not self._is_kept(topic, fields.queue_id, fields.queue_offset):
            return False
        pairs = decode_properties(fields.properties)
        keys = pairs.get(PROPERTY_KEYS, "").split(" ")
        return key in (pairs.get(PROPERTY_UNIQUE_KEY), pairs.get(PROPERTY_MESSAGE_ID), *keys)

    def by_id(
        self, topic: str, message_id: str, end: int, *, wait_for_disk: bool
    ) -> StoredMessage | None:
        """The message of a topic with an id, given by this store or by a producer; the newest, if
        there are several. What stands at the place that the id names, when no other is found."""
        placed = self.placed(message_id, end, wait_for_disk=wait_for_disk)
        # The place that an id names may be that of the same message while it still waited.
        if placed is not None and (placed.message_id, placed.topic) == (message_id, topic):
            return placed
        for _ in range(NAMESAKE_PAGES_MAX):  # other messages may have the id among their keys
            found = self.by_key(
                (topic, message_id, 0, MAX_TIME_MS),
                end,
                max_messages=NAMESAKES_PER_PAGE,
                max_bytes=self._record_bytes_max,
                wait_for_disk=wait_for_disk,
            )
            messages = [decode_message(record, self._store_id) for record in found.records]
            for message in reversed(messages):
                if message_id in (message.message_id, message.unique_id):
                    return message
            if found.is_complete or not messages:
                break
            end = messages[0].physical_offset
        return placed

    def placed(self, message_id: str, end: int, *, wait_for_disk: bool) -> StoredMessage | None:
        """The message at the place that an id of this store names.

        What looks like a record may stand in the body of one, with whatever its sender wrote into
        it: a message is only what its queue has at that place.
        """
        place = decode_message_id(message_id)
        if place is None or place.store_id != self._store_id:
            return None
        at = place.physical_offset
        record = read_record(self._source, at, end, wait_for_disk=wait_for_disk)
        if record is None:
            return None
        message = decode_message(record, self._store_id)
        if message.store_time_ms != place.store_time_ms:
            return None
        queue, offset = self._queues.find(message.topic, message.queue_id), message.queue_offset
        if queue is None or not queue.min_offset <= offset < queue.max_offset:
            return None
        (unit,) = queue.units(offset, offset + 1, wait_for_disk=wait_for_disk)
        return message if unit[0] == at else None

    def _is_kept(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        queue = self._queues.find(topic, queue_id)
        return queue is not None and queue_offset >= queue.min_offset


def average_bytes(queue: ConsumeQueue) -> int | None:
    """The average size of the queue's records, from units spread over it; None when it is empty.

    Reads 32 units at four places at most and leaves out what is not in memory, so it costs a few
    microseconds; when only cold places were met, the newest one is read from disk.
    """
    first, end = queue.min_offset, queue.max_offset
    if first >= end:
        return None
    step = max(1, (end - first - _SAMPLED_UNITS) // (_SAMPLED_PLACES - 1))
    starts = range(max(first, end - _SAMPLED_UNITS), first - 1, -step)[:_SAMPLED_PLACES]
    sizes: list[int] = []
    for start in starts:
        try:
            units = queue.units(start, min(end, start + _SAMPLED_UNITS), wait_for_disk=False)
        except ColdRead:
            continue
        sizes += [size for _, size, _ in units if size > 0]
    if not sizes:
        units = queue.units(starts[0], end)
        sizes = [size for _, size, _ in units if size > 0]
    return -(-sum(sizes) // len(sizes)) if sizes else None


def offset_for_time(
    source: Source, queue: ConsumeQueue, time_ms: int, *, wait_for_disk: bool
) -> int:
    """The first queue offset stored at `time_ms` or later, the end when there is none. Bisects."""
    return _first(
        source, queue, queue.min_offset, lambda at_ms: at_ms >= time_ms, wait_for_disk=wait_for_disk
    )


def first_kept(source: Source, queue: ConsumeQueue, oldest_ms: int, newest_ms: int) -> int:
    """The first queue offset stored at `oldest_ms` or later. Blocks.

    Messages with a time beyond `newest_ms` were stored before the clock was set back: they are as
    old as the ones behind them, where there are any that are too old.

    What was read of the oldest message is kept in the queue for `OLDEST_KEPT_MS`: a queue whose
    messages are young is read once in that time, however often this is asked.
    """
    known = queue.oldest
    if (
        known is not None
        and known.offset == queue.min_offset
        and oldest_ms <= known.store_time_ms <= newest_ms
        and 0 <= newest_ms - known.newest_ms < OLDEST_KEPT_MS
    ):
        return known.offset
    kept = offset_for_time(source, queue, oldest_ms, wait_for_disk=True)
    while kept < queue.max_offset:
        found = _store_time(source, queue, kept, wait_for_disk=True)
        if found is None:
            break
        if found <= newest_ms:
            queue.oldest = OldestRead(kept, found, newest_ms)
            break
        behind = _first(source, queue, kept, lambda at_ms: at_ms <= newest_ms, wait_for_disk=True)
        after = _first(source, queue, behind, lambda at_ms: at_ms >= oldest_ms, wait_for_disk=True)
        if after == behind:
            break
        kept = after
    return kept


def _first(
    source: Source,
    queue: ConsumeQueue,
    low: int,
    is_wanted: Callable[[int], bool],
    *,
    wait_for_disk: bool,
) -> int:
    """The first offset from `low` on whose store time is wanted, when all behind it are, too."""
    high = queue.max_offset
    while low < high:
        middle = (low + high) // 2
        probe, found = middle, None
        while found is None and probe < min(high, middle + _DAMAGED_STEPS_MAX):
            found = _store_time(source, queue, probe, wait_for_disk=wait_for_disk)
            probe += 1
        if found is not None and is_wanted(found):
            high = middle
        else:
            low = probe
    return low


def _store_time(
    source: Source, queue: ConsumeQueue, offset: int, *, wait_for_disk: bool
) -> int | None:
    (unit,) = queue.units(offset, offset + 1, wait_for_disk=wait_for_disk)
    if unit[1] <= 0:
        return None
    record = memoryview(source.log.read(unit[0], unit[1], wait_for_disk=wait_for_disk))
    if not is_intact(source, queue, record, unit, offset):
        return None
    return int.from_bytes(record[STORE_TIME_AT : STORE_TIME_AT + 8])
