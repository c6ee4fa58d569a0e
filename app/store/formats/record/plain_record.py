"""Records that are nothing but their message: read without making a `StoredMessage`. Pure.

Plain is what we write for a message without key, tag, property, flag or id of its own: version 1,
IPv4 hosts, body not packed, no property but content type and checksum. The hot path of answers,
which want the fields once and in another form; what is not plain goes through `decode_message`.
"""

import struct
from collections.abc import Iterable
from typing import Final

from app.domain.message import NAME_VALUE_SEPARATOR, PROPERTY_CONTENT_TYPE, PROPERTY_SEPARATOR
from app.store.formats.record.message_id import VERSION
from app.store.formats.record.record import CHECKSUM_BYTES, CHECKSUM_NAME, FIXED_BYTES, MAGIC_V1

PlainRecord = tuple[str, str, int, int, int, int, str | None, bytes]
"""Message id, topic, queue id, queue offset, born and store time in ms, content type, body. A plain
tuple: it is made for every message."""

_FIELDS: Final = struct.Struct(">4xI4xIIqqIq8xq20xI")
"""Magic, queue id, the producer's flag, queue and physical offset, system flag, born and store
time, body length."""
assert _FIELDS.size == FIXED_BYTES
_CONTENT_TYPE: Final = (PROPERTY_CONTENT_TYPE + NAME_VALUE_SEPARATOR).encode()
_END: Final = PROPERTY_SEPARATOR.encode()
DIGITS_BYTES: Final = CHECKSUM_BYTES - len(CHECKSUM_NAME)
"""Of the checksum, with the end of its property: all that differs from record to record there."""
_ID_VERSION: Final = bytes((VERSION,))
ID_BITS: Final = 48
"""What an id keeps of store time and physical offset."""
_TAILS_MAX: Final = 1_024
"""Pairs of topic and content type that are remembered; when full, remembering starts anew."""
_TAIL_BYTES_MAX: Final = 256
"""Longer ones are read each time."""

_tails: Final[dict[bytes, tuple[str, str | None]]] = {}
"""What stands behind the body, but for the digits → topic and content type, of plain records."""


def read_plain(records: Iterable[bytes | memoryview], store_id: bytes) -> list[PlainRecord | None]:
    """The fields of intact records; None for one that is not plain. Event loop only."""
    rows: list[PlainRecord | None] = []
    unpack, known = _FIELDS.unpack_from, _tails.get
    id_start = _ID_VERSION + store_id
    for record in records:
        raw = bytes(record)
        magic, queue_id, own, queue_offset, position, flag, born_ms, store_ms, size = unpack(raw)
        end = FIXED_BYTES + size
        tail = raw[end:-DIGITS_BYTES]
        names = known(tail) or _read_tail(tail)
        if names is None or magic != MAGIC_V1 or flag or own or (store_ms | position) >> ID_BITS:
            rows.append(None)
            continue
        # Store time and physical offset stand in the record as in the id, but for zeros in front.
        message_id = (id_start + raw[58:64] + raw[30:36]).hex().upper()
        topic, content_type = names
        body = raw[FIXED_BYTES:end]
        rows.append(
            (message_id, topic, queue_id, queue_offset, born_ms, store_ms, content_type, body)
        )
    return rows


def names_in(tail: bytes) -> tuple[str, str | None] | None:
    """Topic and content type of a plain record, by what stands behind its body up to the digits of
    the checksum; None: it is not plain. Event loop only."""
    return _tails.get(tail) or _read_tail(tail)


def _read_tail(tail: bytes) -> tuple[str, str | None] | None:
    """Topic and content type of a plain record, which are remembered; None: it is not plain."""
    size = tail[0] if tail else 0
    start = 1 + size + 2
    properties_end = len(tail) - len(CHECKSUM_NAME)
    if start > properties_end or not tail.endswith(CHECKSUM_NAME):
        return None
    if tail[start - 2] << 8 | tail[start - 1] != properties_end - start + CHECKSUM_BYTES:
        return None
    properties = tail[start:properties_end]
    is_typed = properties.startswith(_CONTENT_TYPE)
    if properties and not (is_typed and properties.find(_END) == len(properties) - 1):
        return None
    try:
        topic = str(tail[1 : 1 + size], "utf-8")
        content_type = str(properties[len(_CONTENT_TYPE) : -1], "utf-8") or None
    except UnicodeDecodeError:
        return None
    if len(tail) <= _TAIL_BYTES_MAX:
        if len(_tails) >= _TAILS_MAX:
            _tails.clear()
        _tails[tail] = topic, content_type
    return topic, content_type
