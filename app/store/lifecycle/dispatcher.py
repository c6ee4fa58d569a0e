"""From records of the log to queue units and index entries, many at a time.

Used where the log is read: at opening and when something derived is made again. (A send has its
units and keys at hand.) Both derived stores drop what they have already, so dispatching a record
twice is harmless.
"""

from collections.abc import Callable
from typing import Final

import numpy as np

from app.domain.message import (
    DERIVED_ID,
    PROPERTY_KEYS,
    PROPERTY_MESSAGE_ID,
    PROPERTY_TAG,
    PROPERTY_UNIQUE_KEY,
    java_hash,
)
from app.domain.names import FLOORS_TOPIC
from app.store.formats.files.consume_queue import UNIT, UNIT_BYTES, UNITS
from app.store.formats.record.record import (
    CHECKSUM_BYTES,
    CHECKSUM_NAME,
    MAGIC_V1,
    SYSTEM_FLAG_BORN_HOST_V6,
    SYSTEM_FLAG_STORE_HOST_V6,
    RecordFields,
    decode_fields,
    decode_properties,
)
from app.store.formats.record.record_block import HEAD_BYTES, even_size, heads, windows
from app.store.index.key_index import KeyIndex
from app.store.log.log_scan import ScannedBlock
from app.store.queues.queue_table import QueueTable

TRANSACTION_KIND: Final = 0xC
TRANSACTION_PREPARED: Final = 0x4
TRANSACTION_ROLLBACK: Final = 0xC

_CHECKSUM: Final = np.frombuffer(CHECKSUM_NAME, np.uint8)
_TAG: Final = PROPERTY_TAG.encode() + b"\x01"
_KEYS: Final = PROPERTY_KEYS.encode() + b"\x01"
_UNIQUE: Final = PROPERTY_UNIQUE_KEY.encode() + b"\x01"
_FLOORS: Final = FLOORS_TOPIC.encode()


def has_unit(system_flag: int) -> bool:
    """Prepared and rolled-back transaction records are in no queue."""
    return system_flag & TRANSACTION_KIND not in (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK)


def record_keys(pairs: dict[str, str]) -> list[str]:
    """The keys under which a record is indexed, in RocketMQ's order."""
    keys = [key for key in pairs.get(PROPERTY_KEYS, "").split(" ") if key]
    unique = pairs.get(PROPERTY_UNIQUE_KEY)
    if not unique:
        return keys
    own = pairs.get(PROPERTY_MESSAGE_ID, DERIVED_ID)
    return [unique, *keys] if own == DERIVED_ID else [unique, own, *keys]


class BlockDispatcher:
    """Puts blocks of records into queues and index; remembers what it saw of them."""

    def __init__(self, queues: QueueTable, index: KeyIndex, *, indexed_end: int) -> None:
        self.store_time_ms = 0
        self.records = 0
        self._queues = queues
        self._index = index
        self._indexed_end = indexed_end
        self._topics: dict[bytes, str] = {}
        self.before_floors: Callable[[], object] = _nothing
        """Called before entries of the floors of topics, and all that stands behind them in the
        log, become readable."""

    def dispatch(self, block: ScannedBlock) -> None:
        """Put a block of good records where they belong."""
        starts, sizes = block.places()
        size = even_size(starts, sizes)
        found = heads(block.data, starts, size)
        unusual = SYSTEM_FLAG_BORN_HOST_V6 | SYSTEM_FLAG_STORE_HOST_V6 | TRANSACTION_KIND
        self.records += len(block.starts)
        if (found["system_flag"] & unusual).any() or (found["magic"] != MAGIC_V1).any():
            self._one_by_one(block)
            return
        self.store_time_ms = max(self.store_time_ms, int(found["store_time_ms"].max()))
        units = np.empty(len(block.starts), UNITS)
        units["physical_offset"] = found["physical_offset"]
        units["size"] = sizes
        offsets = found["queue_offset"].astype(np.int64)
        alike = None if size is None else _alike(block, size, found)
        if alike is not None:
            topic, queue_id, units["tag_hash"] = alike
            if topic == _FLOORS:
                self.before_floors()
            self.put_units(topic.decode(), queue_id, offsets.tolist(), units.tobytes())
            return
        members: dict[tuple[bytes, int], list[int]] = {}
        units["tag_hash"] = self._walk(block, found, members)
        if (_FLOORS, 0) in members:
            self.before_floors()
        for (topic, queue_id), chosen in members.items():
            name = self._topics.get(topic) or self._topics.setdefault(topic, topic.decode())
            self.put_units(name, queue_id, offsets[chosen].tolist(), units[chosen].tobytes())

    def _walk(
        self,
        block: ScannedBlock,
        found: np.ndarray[tuple[int], np.dtype[np.void]],
        members: dict[tuple[bytes, int], list[int]],
    ) -> list[int]:
        """The tag hash of each record; sorts their numbers into `members` and notes their keys.

        What stands behind the body and before the checksum is the same for many records: topic and
        properties are looked into once for each such piece and queue.
        """
        data = bytes(block.data)
        hashes: list[int] = []
        known: dict[tuple[bytes, int], tuple[list[int], int]] = {}
        starts, sizes = block.places()
        ends = starts + sizes
        pieces_at = starts + HEAD_BYTES + found["body_length"]
        names = windows(np.frombuffer(data, np.uint8), len(_CHECKSUM))[ends - CHECKSUM_BYTES]
        has_sum = (names == _CHECKSUM).all(axis=1)
        ends -= np.where(has_sum, CHECKSUM_BYTES, 0)
        remembered = bool(has_sum.all())
        rows = zip(pieces_at.tolist(), ends.tolist(), found["queue_id"].tolist(), strict=True)
        for number, (at, end, queue_id) in enumerate(rows):
            piece = (data[at:end], queue_id)
            entry = known.get(piece)
            if entry is None:
                topic_end = at + 1 + data[at]
                topic = data[at + 1 : topic_end]
                properties = data[topic_end + 2 : end]
                tag_hash, has_keys = self._look_into(properties, block, number, topic, found)
                entry = members.setdefault((topic, queue_id), []), tag_hash
                if remembered and not has_keys:
                    known[piece] = entry
            entry[0].append(number)
            hashes.append(entry[1])
        return hashes

    def _look_into(
        self,
        properties: bytes,
        block: ScannedBlock,
        number: int,
        topic: bytes,
        found: np.ndarray[tuple[int], np.dtype[np.void]],
    ) -> tuple[int, bool]:
        """The tag hash of one record and whether it has keys, which are noted."""
        if _KEYS not in properties and _UNIQUE not in properties and _TAG not in properties:
            return 0, False
        pairs = decode_properties(properties)
        tag = pairs.get(PROPERTY_TAG)
        keys = record_keys(pairs)
        if keys:
            position = block.base + block.starts[number]
            self.put_keys(position, int(found["store_time_ms"][number]), topic.decode(), keys)
        return java_hash(tag) if tag else 0, bool(keys)

    def put_units(self, topic: str, queue_id: int, offsets: list[int], units: bytes) -> None:
        """Put units into a queue; `offsets` rise."""
        first = offsets[0]
        queue = self._queues.get_or_make(topic, queue_id, first_offset=first)
        if first == queue.max_offset and offsets[-1] - first == len(offsets) - 1:
            queue.append(units)
            queue.next_offset = queue.max_offset
            return
        for number, offset in enumerate(offsets):
            queue.put(offset, units[number * UNIT_BYTES : (number + 1) * UNIT_BYTES])

    def put_keys(self, position: int, store_time_ms: int, topic: str, keys: list[str]) -> None:
        """Put the keys of the record at `position` into the index."""
        if position >= self._indexed_end:
            self._index.add(position, store_time_ms, topic, keys)

    def _one_by_one(self, block: ScannedBlock) -> None:
        view = memoryview(block.data)
        for at, size in zip(block.starts, block.sizes, strict=True):
            fields = decode_fields(view[at : at + size])
            pairs = decode_properties(fields.properties)
            self.store_time_ms = max(self.store_time_ms, fields.store_time_ms)
            if fields.topic == FLOORS_TOPIC:
                self.before_floors()
            if has_unit(fields.system_flag):
                offset = fields.queue_offset
                queue = self._queues.get_or_make(fields.topic, fields.queue_id, first_offset=offset)
                queue.put(offset, unit_of(fields, pairs))
            keys = record_keys(pairs)
            rolled_back = fields.system_flag & TRANSACTION_KIND == TRANSACTION_ROLLBACK
            if keys and not rolled_back:
                self.put_keys(fields.physical_offset, fields.store_time_ms, fields.topic, keys)


def _alike(
    block: ScannedBlock, size: int, found: np.ndarray[tuple[int], np.dtype[np.void]]
) -> tuple[bytes, int, int] | None:
    """Topic, queue and tag hash of records of one size that have all of it in common, and no keys:
    what a frame is. None: they have not."""
    data, count, first = block.data, len(block.starts), block.starts[0]
    body_length, queue_id = int(found["body_length"][0]), int(found["queue_id"][0])
    at, end = HEAD_BYTES + body_length, size - CHECKSUM_BYTES
    is_one = (found["body_length"] == body_length).all() and (found["queue_id"] == queue_id).all()
    if not is_one or not HEAD_BYTES <= at < end:
        return None
    width = end - at + len(_CHECKSUM)
    piece = bytes(data[first + at : first + at + width])
    rows = np.ndarray((count, width), np.uint8, data, first + at, (size, 1))
    if not piece.endswith(CHECKSUM_NAME) or rows.tobytes() != piece * count:
        return None
    topic_end = 1 + piece[0]
    properties = piece[topic_end + 2 : -len(_CHECKSUM)]
    if _KEYS in properties or _UNIQUE in properties:
        return None
    tag = decode_properties(properties).get(PROPERTY_TAG) if _TAG in properties else None
    return piece[1:topic_end], queue_id, java_hash(tag) if tag else 0


def unit_of(fields: RecordFields, pairs: dict[str, str]) -> bytes:
    """The consume-queue unit of a record."""
    tag = pairs.get(PROPERTY_TAG)
    return UNIT.pack(fields.physical_offset, fields.total_size, java_hash(tag) if tag else 0)


def _nothing() -> None:
    """Nobody reads yet."""
