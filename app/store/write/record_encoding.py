"""From messages with places to their records, units and keys. Any thread: messages never change.

Where they go is decided before, and nothing here can refuse a message: what can be refused was
looked at when its properties were encoded and its size was taken (`part_of`).
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from app.domain.errors import PropertiesTooLarge
from app.domain.message import PROPERTY_STEP, Message, java_hash
from app.store.formats.files.consume_queue import UNIT
from app.store.formats.record.compression import system_flag_of
from app.store.formats.record.record import (
    PROPERTIES_BYTES_MAX,
    RECORD_OVERHEAD_BYTES,
    encode_record,
    encode_simple_record,
)
from app.store.queues.consume_queue import ConsumeQueue

SIMPLE_TOPIC_CHARS_MAX: Final = 127
SIMPLE_OVERHEAD_BYTES: Final = RECORD_OVERHEAD_BYTES - 1
"""Of a record beside body, topic part and properties: the length of the topic is in its part."""
_REMEMBERED_MAX: Final = 4096
_MARKED: Final = b"%%b%b\x01%%d\x02" % PROPERTY_STEP.encode()


class Part(msgspec.Struct, eq=False):
    """Messages of one queue with their encoded properties and the sizes of their records.

    The queue may be a new one, which is in no table yet; `first` is the queue offset of the first.
    """

    queue: ConsumeQueue
    first: int
    messages: Sequence[Message]
    properties: Sequence[bytes]
    sizes: list[int]


class RecordEncoder:
    """Encodes for one store."""

    def __init__(self, store_host: bytes) -> None:
        self._store_host = store_host
        self._tag_hashes: dict[str, int] = {}

    def encode(
        self,
        part: Part,
        positions: Sequence[int],
        now_ms: int,
        synced_end: int,
        records: list[bytes],
    ) -> tuple[bytes, list[tuple[int, list[str]]]]:
        """The units and keys of messages that go to these places; adds their records."""
        queue, host = part.queue, self._store_host
        topic, queue_id = queue.topic_part, queue.queue_id
        is_short = len(topic) <= SIMPLE_TOPIC_CHARS_MAX + 1
        units: list[bytes] = []
        hashes = self._tag_hashes
        keyed: list[tuple[int, list[str]]] = []
        rows = zip(part.messages, part.properties, part.sizes, positions, strict=True)
        for queue_offset, (message, encoded, size, at) in enumerate(rows, part.first):
            born = now_ms if message.born_time_ms is None else message.born_time_ms
            if is_short and not (message.reconsume_times or message.flag or message.encoding):
                place, times = (queue_id, queue_offset, at), (born, now_ms)
                record = encode_simple_record(
                    topic, place, message.body, encoded, times, host, synced_end
                )
            else:
                record = encode_record(
                    topic=queue.topic.encode(),
                    queue_id=queue_id,
                    queue_offset=queue_offset,
                    physical_offset=at,
                    body=message.body,
                    properties=encoded,
                    born_time_ms=born,
                    store_time_ms=now_ms,
                    store_host=host,
                    flag=message.flag & 0xFFFFFFFF,
                    system_flag=system_flag_of(message.encoding),
                    reconsume_times=message.reconsume_times,
                    prepared_offset=synced_end,
                )
            assert len(record) == size
            records.append(record)
            tag = message.tag
            tag_hash = (hashes.get(tag) or self.tag_hash(tag)) if tag else 0
            units.append(UNIT.pack(at, size, tag_hash))
            if message.keys or message.message_id or message.unique_id:
                keyed.append((at, keys_of(message)))
        return b"".join(units), keyed

    def tag_hash(self, tag: str) -> int:
        """Java's hash; those of the last tags are remembered."""
        found = self._tag_hashes.get(tag)
        if found is None:
            if len(self._tag_hashes) >= _REMEMBERED_MAX:
                self._tag_hashes.clear()
            found = self._tag_hashes[tag] = java_hash(tag)
        return found


def part_of(
    queue: ConsumeQueue, first: int, messages: Sequence[Message], properties: Sequence[bytes]
) -> Part:
    """Messages with their encoded properties as a part from queue offset `first` on."""
    overhead = SIMPLE_OVERHEAD_BYTES + len(queue.topic_part)
    longest = max(map(len, properties), default=0)
    if longest > PROPERTIES_BYTES_MAX:
        raise properties_too_large(longest)
    sizes = [
        overhead + len(message.body) + len(encoded)
        for message, encoded in zip(messages, properties, strict=True)
    ]
    return Part(queue, first, messages, properties, sizes)


def with_marks(properties: Sequence[bytes], behind: int) -> list[bytes]:
    """The properties of a part with the marks of a step in which so many records follow it: each
    says how many follow the record that it is in."""
    marks = range(behind + len(properties) - 1, behind - 1, -1)
    return [_MARKED % each for each in zip(properties, marks, strict=True)]


def properties_too_large(size: int) -> PropertiesTooLarge:
    """The refusal of a message with so many bytes of properties."""
    return PropertiesTooLarge(
        f"the message has {size} bytes of properties, everything included;"
        f" a record holds {PROPERTIES_BYTES_MAX}",
        fields={"limit_bytes": PROPERTIES_BYTES_MAX},
        outcome="not_stored",
    )


def keys_of(message: Message) -> list[str]:
    """The keys under which a message is indexed, in RocketMQ's order."""
    ids = [each for each in (message.unique_id, message.message_id) if each]
    return [*ids, *message.keys] if ids else list(message.keys)
