"""Retries and dead letters: copies of messages that keep where they came from. Pure.

When a message is tried again is `leasing.retry_policy`'s; writing the copy, `failed_deliveries`'.

A copy has the original's body, tag, keys, sharding key, properties, content type and born time.
Where the original stands is in reserved properties, with RocketMQ's names where it has one; a copy
of a copy keeps the first origin. A copy of a request can be replied to as the request can.
"""

import logging
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from app.domain.limits import (
    COPY_PROPERTIES_BYTES_MAX,
    MESSAGE_ID_BYTES_MAX,
    REASON_BYTES_MAX,
)
from app.domain.message import (
    PROPERTY_GENERATION,
    PROPERTY_REPLY_BY,
    REQUEST_PROPERTIES,
    Message,
    StoredMessage,
)
from app.domain.positions import QueueOffset, TimestampMs
from app.store.formats.record.record import encode_properties

ORIGIN_TOPIC: Final = "RETRY_TOPIC"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
ORIGIN_PLACE: Final = "MQ_ORIGIN_PLACE"
"""`queue id:queue offset:store time in ms` of the original."""
ORIGIN_GENERATION: Final = PROPERTY_GENERATION
"""Of the original's topic, in a dead letter."""
REASON: Final = "MQ_REASON"
"""Why the message is tried again or given up."""
DEAD_LETTER_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
DEAD_LETTER_MESSAGE_ID: Final = "DLQ_ORIGIN_MESSAGE_ID"

_LOG: Final = logging.getLogger(__name__)
_UTF8_BYTES_MAX: Final = 4
_NAME_CHARS_MAX: Final = 20
"""Of the reserved names of a message's fields, with both separators."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a message was stored first."""

    topic: str
    queue_id: int
    queue_offset: int
    message_id: str
    store_time_ms: int
    generation: int = 0
    """Of the topic; 0: not known."""


def origin_of(message: StoredMessage) -> Origin:
    """Where `message`, or what it is a copy of, was stored first."""
    system = message.system
    topic, message_id = system.get(ORIGIN_TOPIC), system.get(ORIGIN_MESSAGE_ID)
    place = system.get(ORIGIN_PLACE)
    if topic is None or message_id is None or place is None:
        return Origin(
            message.topic,
            message.queue_id,
            message.queue_offset,
            message.message_id,
            message.store_time_ms,
        )
    queue_id, queue_offset, store_time_ms = map(int, place.split(":"))
    generation = int(system.get(ORIGIN_GENERATION, 0))
    return Origin(topic, queue_id, queue_offset, message_id, store_time_ms, generation)


def reason_of(message: StoredMessage) -> str | None:
    """Why the message is a retry or a dead letter, as the consumer or the broker said it."""
    return message.system.get(REASON)


def as_original(message: StoredMessage) -> StoredMessage:
    """A copy as its consumer should see it: in the original's place, under the original's id."""
    origin = origin_of(message)
    return replace(
        message,
        message_id=origin.message_id,
        topic=origin.topic,
        queue_id=origin.queue_id,
        queue_offset=QueueOffset(origin.queue_offset),
        store_time_ms=TimestampMs(origin.store_time_ms),
    )


def retry_copy(message: StoredMessage, attempts: int, reason: str | None) -> Message:
    """What goes to the retry topic after `attempts` deliveries that failed."""
    copy = replace(
        plain_copy(message),
        system=_origin_properties(message, reason, None),
        reconsume_times=attempts,
    )
    return fitted(copy)


def dead_letter(message: StoredMessage, attempts: int, reason: str, generation: int = 0) -> Message:
    """What goes to the dead-letter topic after `attempts` deliveries; `generation` is that of the
    topic that it was received from."""
    system = _origin_properties(message, reason, origin_of(message))
    if generation:
        system[ORIGIN_GENERATION] = str(generation)
    copy = replace(
        plain_copy(message),
        system=system,
        reconsume_times=attempts,
    )
    return fitted(copy)


def plain_copy(message: StoredMessage) -> Message:
    """The same message to be sent again, with no trace of where it was."""
    packed = message.packed
    return Message(
        message.body if packed is None else packed.data,
        tag=message.tag,
        keys=message.keys,
        sharding_key=message.sharding_key,
        properties=message.properties,
        content_type=message.content_type,
        born_time_ms=message.born_time_ms,
        unique_id=message.unique_id,
        flag=message.flag,
        encoding=None if packed is None else packed.encoding,
    )


def _origin_properties(
    message: StoredMessage, reason: str | None, dead: Origin | None
) -> dict[str, str]:
    origin = origin_of(message)
    message_id = _cut(origin.message_id, MESSAGE_ID_BYTES_MAX)  # of RocketMQ: any length
    properties = {
        ORIGIN_TOPIC: origin.topic,
        ORIGIN_MESSAGE_ID: message_id,
        ORIGIN_PLACE: f"{origin.queue_id}:{origin.queue_offset}:{origin.store_time_ms}",
    }
    if PROPERTY_REPLY_BY in message.system:  # no other program's: those are of any length
        properties |= {
            name: message.system[name] for name in REQUEST_PROPERTIES if name in message.system
        }
    reason = _storable(reason or "")
    if reason:
        properties[REASON] = reason
    if dead is not None:
        properties[DEAD_LETTER_TOPIC] = dead.topic
        properties[DEAD_LETTER_MESSAGE_ID] = message_id
    return properties


def _storable(reason: str) -> str:
    """`reason` on one line, without the separators of properties, cut to its bound."""
    plain = "".join([c if c.isprintable() else " " for c in reason[:REASON_BYTES_MAX]])
    return _cut(plain, REASON_BYTES_MAX).strip()


def _cut(text: str, bytes_max: int) -> str:
    """The beginning of a text that has at most so many bytes."""
    return text.encode(errors="replace")[:bytes_max].decode(errors="ignore")


def fitted(message: Message) -> Message:
    """A message as a record can hold it; itself, unless it was stored before its texts were bounded
    or came from another program.

    First the reason goes, which is for people. Then, the largest first, whole properties, keys,
    sharding key or content type go, as few as possible. Never the body; and the original stays in
    its place until retention takes it. What went is logged.
    """
    if _chars_of(message) * _UTF8_BYTES_MAX <= COPY_PROPERTIES_BYTES_MAX:
        return message
    over = len(encode_properties(message)) - COPY_PROPERTIES_BYTES_MAX
    if over <= 0:
        return message
    system = dict(message.system)
    reason = system.pop(REASON, None)
    over -= 0 if reason is None else len(REASON) + len(reason.encode()) + 2
    texts = [
        *((len(name.encode()) + len(text.encode()), name) for name, text in _own_texts(message)),
        *((len(text.encode()), name) for name, text in _texts_of_fields(message)),
    ]
    gone: set[str] = set()
    for size, name in sorted(texts, reverse=True):
        if over <= 0:
            break
        gone.add(name)
        over -= size
    if gone:
        _LOG.warning(
            "%s of a message of %d bytes went: its copy would have too many bytes of properties",
            *(", ".join(sorted(gone)), len(message.body)),
        )
    return replace(
        message,
        system=system,
        properties={
            name: text
            for name, text in message.properties.items()
            if f"property {name!r}" not in gone
        },
        keys=() if "keys" in gone else message.keys,
        sharding_key=None if "sharding key" in gone else message.sharding_key,
        content_type=None if "content type" in gone else message.content_type,
        tag=None if "tag" in gone else message.tag,
    )


def _own_texts(message: Message) -> list[tuple[str, str]]:
    return [(f"property {name!r}", text) for name, text in message.properties.items()]


def _texts_of_fields(message: Message) -> list[tuple[str, str]]:
    fields = {
        "keys": " ".join(message.keys),
        "sharding key": message.sharding_key,
        "content type": message.content_type,
        "tag": message.tag,
    }
    return [(name, text) for name, text in fields.items() if text]


def _chars_of(message: Message) -> int:
    """Characters of all properties with what stands around them, or a few more."""
    texts = [message.tag, message.sharding_key, message.content_type, message.message_id]
    texts.append(message.unique_id)
    chars = sum([len(text) + _NAME_CHARS_MAX for text in texts if text])
    for pairs in (message.properties, message.system):
        for name, text in pairs.items():
            chars += len(name) + len(text) + 2
    return chars + sum([len(key) + 1 for key in message.keys]) + _NAME_CHARS_MAX
