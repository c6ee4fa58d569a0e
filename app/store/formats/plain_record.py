"""Records that are nothing but their message: read without making a `StoredMessage`. Pure.

Plain is what we write for a message without key, tag, property or id of its own: version 1, IPv4
hosts, body not packed, no property but content type and checksum. The hot path of answers, which
want the fields once and in another form; what is not plain goes through `decode_message`.
"""

import struct
from functools import lru_cache
from typing import Final

from app.domain.message import NAME_VALUE_SEPARATOR, PROPERTY_CONTENT_TYPE, PROPERTY_SEPARATOR
from app.store.formats.message_id import VERSION
from app.store.formats.record import CHECKSUM_BYTES, CHECKSUM_NAME, FIXED_BYTES, MAGIC_V1

PlainRecord = tuple[str, str, int, int, int, int, str | None, bytes]
"""Message id, topic, queue id, queue offset, born and store time in ms, content type, body. A plain
tuple: it is made for every message."""

_FIELDS: Final = struct.Struct(">4xI4xI4xqqIq8xq20xI")
"""Magic, queue id, queue and physical offset, system flag, born and store time, body length."""
assert _FIELDS.size == FIXED_BYTES
_CONTENT_TYPE: Final = (PROPERTY_CONTENT_TYPE + NAME_VALUE_SEPARATOR).encode()
_END: Final = PROPERTY_SEPARATOR.encode()
_ID_VERSION: Final = bytes((VERSION,))
_ID_BITS: Final = 48
"""What an id keeps of store time and physical offset."""


@lru_cache(maxsize=256)
def _only_content_type(properties: bytes) -> str | None:
    """The content type, with which the properties begin; None when there is more, or it is none."""
    if properties.find(_END) != len(properties) - 1:
        return None
    try:
        return str(properties[len(_CONTENT_TYPE) : -1], "utf-8") or None
    except UnicodeDecodeError:
        return None


def read_plain(record: memoryview, store_id: bytes) -> PlainRecord | None:
    """The fields of an intact record; None: not plain, or its lengths do not add up."""
    raw = bytes(record)
    magic, queue_id, queue_offset, position, flag, born_ms, store_ms, size = _FIELDS.unpack_from(
        raw
    )
    body_end = FIXED_BYTES + size
    properties_end = len(raw) - CHECKSUM_BYTES
    if magic != MAGIC_V1 or flag or body_end >= properties_end:
        return None
    topic_end = body_end + 1 + raw[body_end]
    start = topic_end + 2
    if (
        start > properties_end
        or raw[topic_end] << 8 | raw[topic_end + 1] != len(raw) - start
        or not raw.startswith(CHECKSUM_NAME, properties_end)
        or (store_ms | position) >> _ID_BITS
    ):
        return None
    content_type = None
    if start < properties_end:
        if not raw.startswith(_CONTENT_TYPE, start):
            return None
        content_type = _only_content_type(raw[start:properties_end])
        if content_type is None:
            return None
    # Store time and physical offset stand in the record as in the id, but for two bytes of zeros.
    message_id = (_ID_VERSION + store_id + raw[58:64] + raw[30:36]).hex().upper()
    topic = str(raw[body_end + 1 : topic_end], "utf-8")
    body = raw[FIXED_BYTES:body_end]
    return message_id, topic, queue_id, queue_offset, born_ms, store_ms, content_type, body
