"""Copies that keep where they came from: retries and dead letters. Pure.

A copy has the original's body, tag, keys, sharding key, properties, content type and born time.
Where the original stands is in reserved properties, with RocketMQ's names where it has one; a copy
of a copy keeps the first origin.
"""

from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from app.domain.message import Message, StoredMessage
from app.domain.positions import QueueOffset, TimestampMs

ORIGIN_TOPIC: Final = "RETRY_TOPIC"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
ORIGIN_PLACE: Final = "MQ_ORIGIN_PLACE"
"""`queue id:queue offset:store time in ms` of the original."""
REASON: Final = "MQ_REASON"
"""Why the message is tried again or given up."""
DEAD_LETTER_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
DEAD_LETTER_MESSAGE_ID: Final = "DLQ_ORIGIN_MESSAGE_ID"

REASON_CHARS_MAX: Final = 1_024
"""A longer reason is cut; it is for people."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a message was stored first."""

    topic: str
    queue_id: int
    queue_offset: int
    message_id: str
    store_time_ms: int


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
    return Origin(topic, queue_id, queue_offset, message_id, store_time_ms)


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
    return replace(
        plain_copy(message),
        system=_origin_properties(message, reason, None),
        reconsume_times=attempts,
    )


def dead_letter(message: StoredMessage, attempts: int, reason: str) -> Message:
    """What goes to the dead-letter topic after `attempts` deliveries."""
    return replace(
        plain_copy(message),
        system=_origin_properties(message, reason, origin_of(message)),
        reconsume_times=attempts,
    )


def plain_copy(message: StoredMessage) -> Message:
    """The same message to be sent again, with no trace of where it was."""
    return Message(
        message.body,
        tag=message.tag,
        keys=message.keys,
        sharding_key=message.sharding_key,
        properties=message.properties,
        content_type=message.content_type,
        born_time_ms=message.born_time_ms,
    )


def _origin_properties(
    message: StoredMessage, reason: str | None, dead: Origin | None
) -> dict[str, str]:
    origin = origin_of(message)
    properties = {
        ORIGIN_TOPIC: origin.topic,
        ORIGIN_MESSAGE_ID: origin.message_id,
        ORIGIN_PLACE: f"{origin.queue_id}:{origin.queue_offset}:{origin.store_time_ms}",
    }
    reason = _storable(reason or "")
    if reason:
        properties[REASON] = reason
    if dead is not None:
        properties[DEAD_LETTER_TOPIC] = dead.topic
        properties[DEAD_LETTER_MESSAGE_ID] = dead.message_id
    return properties


def _storable(reason: str) -> str:
    """`reason` on one line, without the separators of properties, cut to its bound."""
    plain = "".join([c if c.isprintable() else " " for c in reason[:REASON_CHARS_MAX]])
    return plain.strip()
