"""The records of a checked request frame as messages: for those that are delivered later. Pure.

They are stored anew, in the timer topic, so nothing of the frame's own bytes is kept. Everything
else about a frame is done on all records at once; this is done record by record.
"""

from app.domain.message import (
    PROPERTY_CHECKSUM,
    PROPERTY_CONTENT_TYPE,
    PROPERTY_KEYS,
    PROPERTY_SHARDING_KEY,
    PROPERTY_TAG,
    PROPERTY_UNIQUE_KEY,
    Message,
)
from app.store.formats.frame.batch_frame import RequestFrame
from app.store.formats.record.record import FIXED, FIXED_BYTES, decode_properties, signed_flag


def messages_of(frame: RequestFrame) -> list[Message]:
    """In the order of the frame; their bodies are copies. Any thread."""
    records = frame.records
    rows = zip(frame.positions.tolist(), frame.sizes.tolist(), strict=True)
    return [_message_of(bytes(records[start : start + size])) for start, size in rows]


def _message_of(raw: bytes) -> Message:
    values = FIXED.unpack_from(raw)
    body_end = FIXED_BYTES + values[14]
    pairs = decode_properties(raw[body_end + 1 + raw[body_end] + 2 :])
    del pairs[PROPERTY_CHECKSUM]
    keys = pairs.pop(PROPERTY_KEYS, None)
    return Message(
        raw[FIXED_BYTES:body_end],
        tag=pairs.pop(PROPERTY_TAG, None),
        keys=tuple(filter(None, keys.split(" "))) if keys else (),
        sharding_key=pairs.pop(PROPERTY_SHARDING_KEY, None),
        content_type=pairs.pop(PROPERTY_CONTENT_TYPE, None),
        unique_id=pairs.pop(PROPERTY_UNIQUE_KEY, None),
        flag=signed_flag(values[4]),
        properties=pairs,
        born_time_ms=values[8] or None,
    )
