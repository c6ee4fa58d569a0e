"""The commit-log record: RocketMQ's layout, with a checksum over the whole record.

Big-endian. B, T and P are the lengths of body, topic and properties.

    off     field                 bytes   off     field                  bytes
    0       total size            4       56      store time ms          8
    4       magic                 4       64      store host + port      8
    8       CRC-32 of the body    4       72      reconsume times        4
    12      queue id              4       76      prepared offset        8
    16      flag                  4       84      body length            4
    20      queue offset          8       88      body                   B
    28      physical offset       8       88+B    topic length           1 (V1), 2 (V2)
    36      system flag           4               topic                  T
    40      born time ms          8               properties length      2
    48      born host + port      8               properties             P

A host has 16 + 4 bytes when its bit in the system flag says IPv6 (we write IPv4 only).
The last property of a record of ours is the checksum as RocketMQ 5 defines it
(`enabledAppendPropCRC`): `__CRC32#` 0x01, ten decimal digits, least significant first, 0x02. Its
value is the CRC-32 of everything before it, cut to 31 bits. It covers the physical offset, so a
stale or misplaced record is noticed. RocketMQ's own records may lack it; then only the body's
CRC-32 and the lengths can be checked.

An end-of-file record fills the rest of a segment: size 4, magic 4, the rest is undefined.
"""

import struct
from enum import Enum
from typing import Any, Final, NamedTuple

from app.domain.message import (
    DERIVED_ID,
    FLAG_MAX,
    NAME_VALUE_SEPARATOR,
    PROPERTY_CHECKSUM,
    PROPERTY_CONTENT_TYPE,
    PROPERTY_KEYS,
    PROPERTY_MESSAGE_ID,
    PROPERTY_SEPARATOR,
    PROPERTY_SHARDING_KEY,
    PROPERTY_TAG,
    PROPERTY_UNIQUE_KEY,
    RESERVED_PROPERTIES,
    Message,
    PackedBody,
    StoredMessage,
)
from app.store.formats.record.checksum import crc32
from app.store.formats.record.compression import encoding_of, plain_body
from app.store.formats.record.message_id import encode_message_id, is_own_id

MAGIC_V1: Final = 0xDAA320A7
MAGIC_V2: Final = 0xDAA320AB
MAGIC_END_OF_FILE: Final = 0xCBD43194

FIXED: Final = struct.Struct(">IIIIIqqIq8sq8siqi")
FIXED_BYTES: Final = 88
assert FIXED.size == FIXED_BYTES

END_OF_FILE: Final = struct.Struct(">II")
END_OF_FILE_BYTES: Final = 8

CHECKSUM_NAME: Final = b"__CRC32#\x01"
CHECKSUM_BYTES: Final = len(CHECKSUM_NAME) + 10 + 1
assert CHECKSUM_BYTES == 20

CRC_MASK: Final = 0x7FFFFFFF
"""RocketMQ keeps CRC-32 values in a signed integer without the sign."""

RECORD_BYTES_MIN: Final = FIXED_BYTES + 3
RECORD_OVERHEAD_BYTES: Final = RECORD_BYTES_MIN + CHECKSUM_BYTES
"""Bytes of a record of ours besides body, topic and the other properties."""

PROPERTIES_BYTES_MAX: Final = 0xFFFF - CHECKSUM_BYTES
"""Longest properties string of a record without the checksum; their length has 16 bits. RocketMQ
reads it as a signed number, so what clients may send is bounded far below (`app.domain.limits`)."""

LOOPBACK_HOST: Final = b"\x7f\x00\x00\x01\x00\x00\x00\x00"

SYSTEM_FLAG_BORN_HOST_V6: Final = 0x10
SYSTEM_FLAG_STORE_HOST_V6: Final = 0x20

_SIZE_MAGIC: Final = struct.Struct(">II")
_U16: Final = struct.Struct(">H")
_PLACE: Final = struct.Struct(">II4xI4xqqi44xI")
"""Size, magic, queue id, queue and physical offset, system flag, length of the body."""
_HOSTS_V6: Final = SYSTEM_FLAG_BORN_HOST_V6 | SYSTEM_FLAG_STORE_HOST_V6
_I32: Final = struct.Struct(">i")


class RecordFields(NamedTuple):
    """Every field of a record. `properties` is the raw string, checksum included."""

    total_size: int
    magic: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    system_flag: int
    born_time_ms: int
    born_host: bytes
    store_time_ms: int
    store_host: bytes
    reconsume_times: int
    prepared_offset: int
    body: bytes
    topic: str
    properties: bytes


class Found(Enum):
    """What stands at a position of the log."""

    RECORD = "record"
    END_OF_FILE = "end of file"
    NOTHING = "nothing"  # zeros: never written
    TORN = "torn"  # the record would go beyond the bytes that are there
    DAMAGED = "damaged"


class Finding(NamedTuple):
    """One step of a walk: `size` is the distance to the next record, 0 when it is unknown."""

    found: Found
    size: int
    reason: str = ""


def encode_properties(message: Message) -> bytes:
    """The properties string of a message without the checksum; every pair ends with 0x02."""
    pairs = ""
    if message.properties:
        pairs = "".join([f"{name}\x01{text}\x02" for name, text in message.properties.items()])
    if message.keys:
        pairs += f"{PROPERTY_KEYS}\x01{' '.join(message.keys)}\x02"
    if message.unique_id is not None:
        pairs += _ids(message.unique_id, message.message_id)
    elif message.message_id is not None:
        pairs += f"{PROPERTY_UNIQUE_KEY}\x01{message.message_id}\x02"
    if message.sharding_key is not None:
        pairs += f"{PROPERTY_SHARDING_KEY}\x01{message.sharding_key}\x02"
    if message.content_type is not None:
        pairs += f"{PROPERTY_CONTENT_TYPE}\x01{message.content_type}\x02"
    if message.system:
        pairs += "".join([f"{name}\x01{text}\x02" for name, text in message.system.items()])
    if message.tag is not None:
        pairs += f"{PROPERTY_TAG}\x01{message.tag}\x02"
    return pairs.encode()


def _ids(unique_id: str, message_id: str | None) -> str:
    """The properties of a producer's id, and of the id that the record has beside it."""
    pairs = f"{PROPERTY_UNIQUE_KEY}\x01{unique_id}\x02"
    if message_id is None and is_own_id(unique_id):
        message_id = DERIVED_ID  # or the producer's would be taken for it
    return pairs if message_id is None else f"{pairs}{PROPERTY_MESSAGE_ID}\x01{message_id}\x02"


def _read_ids(pairs: dict[str, str], store_id: bytes) -> tuple[str | None, str | None]:
    """Take the ids out of the properties: what a record was given in place of the derived one, and
    the producer's own."""
    unique_id = pairs.pop(PROPERTY_UNIQUE_KEY, None)
    message_id = pairs.pop(PROPERTY_MESSAGE_ID, None)
    if message_id is not None:
        return None if message_id == DERIVED_ID else message_id, unique_id
    if unique_id is not None and is_own_id(unique_id, store_id):
        return unique_id, None
    return None, unique_id


def decode_properties(raw: bytes) -> dict[str, str]:
    """RocketMQ's rules: 0x02 ends a pair, the first 0x01 separates, empty halves are dropped."""
    pairs: dict[str, str] = {}
    for piece in raw.decode("utf-8", "replace").split(PROPERTY_SEPARATOR):
        name, separator, value = piece.partition(NAME_VALUE_SEPARATOR)
        if separator and name and value:
            pairs[name] = value
    return pairs


def stored_properties(record: memoryview) -> dict[str, str]:
    """All properties of one intact record, without the rest."""
    if record[7] != MAGIC_V1 & 0xFF or _I32.unpack_from(record, 36)[0] & _HOSTS_V6:
        return decode_properties(decode_fields(record).properties)
    topic_at = FIXED_BYTES + int.from_bytes(record[84:88])
    return decode_properties(bytes(record[topic_at + record[topic_at] + 3 :]))


def reconsume_times(record: memoryview) -> int:
    """How often one intact record says that its message was delivered before. Its body is not
    looked at."""
    at = 72 + (12 if _I32.unpack_from(record, 36)[0] & SYSTEM_FLAG_BORN_HOST_V6 else 0)
    at += 12 if _I32.unpack_from(record, 36)[0] & SYSTEM_FLAG_STORE_HOST_V6 else 0
    return int(_I32.unpack_from(record, at)[0])


def checksum_property(crc: int) -> bytes:
    """The last property of a record whose preceding bytes have the CRC-32 `crc`."""
    return CHECKSUM_NAME + (b"%010d" % (crc & CRC_MASK))[::-1] + b"\x02"


def encode_record(
    *,
    topic: bytes,
    queue_id: int,
    queue_offset: int,
    physical_offset: int,
    body: bytes,
    properties: bytes,
    born_time_ms: int,
    store_time_ms: int,
    store_host: bytes,
    born_host: bytes = LOOPBACK_HOST,
    flag: int = 0,
    system_flag: int = 0,
    reconsume_times: int = 0,
    prepared_offset: int = 0,
) -> bytes:
    """A whole record with its checksum. `properties` comes from `encode_properties`.

    Lengths are the caller's duty: `properties` plus 20 bytes at most 32,767; hosts of 8 bytes.
    """
    part = topic_part(topic)
    properties_length = len(properties) + CHECKSUM_BYTES
    head = FIXED.pack(
        FIXED_BYTES + len(body) + len(part) + 2 + properties_length,
        MAGIC_V1 if len(topic) <= 127 else MAGIC_V2,
        crc32(body) & CRC_MASK,
        queue_id,
        flag,
        queue_offset,
        physical_offset,
        system_flag,
        born_time_ms,
        born_host,
        store_time_ms,
        store_host,
        reconsume_times,
        prepared_offset,
        len(body),
    )
    covered = b"".join((head, body, part, _U16.pack(properties_length), properties))
    return covered + checksum_property(crc32(covered))


def topic_part(topic: bytes) -> bytes:
    """The topic with its length in front, as it stands behind the body."""
    return bytes((len(topic),)) + topic if len(topic) <= 127 else _U16.pack(len(topic)) + topic


def encode_simple_record(
    part: bytes,
    places: tuple[int, int, int],
    body: bytes,
    properties: bytes,
    times: tuple[int, int],
    store_host: bytes,
    synced_end: int,
) -> bytes:
    """`encode_record` for what one send makes, without defaults and keywords: the hot path.

    `part` is a `topic_part` of version 1, `places` are queue id, queue and physical offset, `times`
    born and store time.
    """
    properties_length = len(properties) + CHECKSUM_BYTES
    head = FIXED.pack(
        FIXED_BYTES + 2 + len(body) + len(part) + properties_length,
        MAGIC_V1,
        crc32(body) & CRC_MASK,
        places[0],
        0,
        places[1],
        places[2],
        0,
        times[0],
        LOOPBACK_HOST,
        times[1],
        store_host,
        0,
        synced_end,
        len(body),
    )
    covered = b"".join((head, body, part, properties_length.to_bytes(2), properties))
    return covered + b"__CRC32#\x01%b\x02" % (b"%010d" % (crc32(covered) & CRC_MASK))[::-1]


def encode_end_of_file(size: int) -> bytes:
    """The first bytes of an end-of-file record that fills `size` bytes of a segment."""
    return END_OF_FILE.pack(size, MAGIC_END_OF_FILE)


def inspect(
    data: memoryview, physical_offset: int, *, left: int, checksum_required: bool = True
) -> Finding:
    """Say what stands at the start of `data`, which is `physical_offset` of the log.

    `left` is the number of bytes to the end of the segment, and `data` holds the record as far as
    it lies within. `checksum_required` is off only for what RocketMQ wrote.
    """
    if len(data) < END_OF_FILE_BYTES:
        return Finding(Found.TORN if any(data) else Found.NOTHING, 0)
    size, magic = _SIZE_MAGIC.unpack_from(data, 0)
    if magic in (MAGIC_V1, MAGIC_V2):
        if size < RECORD_BYTES_MIN:
            return Finding(Found.DAMAGED, 0, f"record of {size} bytes")
        if size > len(data):
            return Finding(Found.TORN, 0, f"record of {size} bytes, {left} left")
        reason = check(data[:size], physical_offset, checksum_required=checksum_required)
        return Finding(Found.DAMAGED, size, reason) if reason else Finding(Found.RECORD, size)
    if magic == MAGIC_END_OF_FILE and size == left:
        return Finding(Found.END_OF_FILE, size)
    if magic == 0 and size == 0:
        return Finding(Found.NOTHING, 0)
    return Finding(Found.DAMAGED, 0, f"size {size} and magic {magic:08X}")


def check(record: memoryview, physical_offset: int, *, checksum_required: bool = True) -> str:
    """Why `record` is not the intact record of `physical_offset`; empty when it is."""
    size = len(record)
    if _SIZE_MAGIC.unpack_from(record, 0)[0] != size:
        return "size"
    tail = bytes(record[size - CHECKSUM_BYTES :])
    if tail.startswith(CHECKSUM_NAME) and tail[19] == 2 and tail[9:19].isdigit():
        if int(tail[18:8:-1]) != crc32(record[: size - CHECKSUM_BYTES]) & CRC_MASK:
            return "checksum"
        if int.from_bytes(record[28:36]) != physical_offset:
            return "the record of another position"
        return ""
    return "no checksum" if checksum_required else _check_foreign(record, physical_offset)


def belongs_to(record: memoryview, topic: str, queue_id: int, queue_offset: int) -> bool:
    """Whether an intact record is the one of this queue and queue offset."""
    if int.from_bytes(record[12:16]) != queue_id or int.from_bytes(record[20:28]) != queue_offset:
        return False
    system_flag = _I32.unpack_from(record, 36)[0]
    if system_flag & (SYSTEM_FLAG_BORN_HOST_V6 | SYSTEM_FLAG_STORE_HOST_V6):
        return decode_fields(record).topic == topic
    at = FIXED_BYTES + int.from_bytes(record[84:88])
    at += 2 if int.from_bytes(record[4:8]) == MAGIC_V2 else 1
    name = topic.encode()
    return record[at : at + len(name)] == name and _topic_length(record, at) == len(name)


def is_plain_record_of(
    record: memoryview, part: bytes, queue_id: int, queue_offset: int, physical_offset: int
) -> bool:
    """`check` and `belongs_to` in one for what we write: the hot path of small reads.

    `part` is a `topic_part`. False may also mean a record of another form: ask those two.
    """
    size = len(record)
    if size < RECORD_BYTES_MIN + CHECKSUM_BYTES:
        return False
    total, magic, queue, offset, position, flag, body = _PLACE.unpack_from(record)
    topic = FIXED_BYTES + body
    covered = size - CHECKSUM_BYTES
    return (
        total == size
        and magic == MAGIC_V1
        and queue == queue_id
        and offset == queue_offset
        and position == physical_offset
        and not flag & _HOSTS_V6
        and record[topic : topic + len(part)] == part
        and record[covered:]
        == b"__CRC32#\x01%b\x02" % (b"%010d" % (crc32(record[:covered]) & CRC_MASK))[::-1]
    )


def _topic_length(record: memoryview, topic_start: int) -> int:
    if int.from_bytes(record[4:8]) == MAGIC_V2:
        return int.from_bytes(record[topic_start - 2 : topic_start])
    return record[topic_start - 1]


def _check_foreign(record: memoryview, physical_offset: int) -> str:
    """The checks that a record without our checksum allows."""
    try:
        fields = decode_fields(record)
    except (struct.error, ValueError, IndexError) as error:
        return f"lengths do not add up ({error})"
    if fields.body and crc32(fields.body) & CRC_MASK != fields.body_crc:
        return "body checksum"
    if fields.physical_offset != physical_offset:
        return "the record of another position"
    return ""


def decode_fields(record: memoryview | bytes) -> RecordFields:
    """All fields of one record; V1 or V2, IPv4 or IPv6. Raises `ValueError` on wrong lengths."""
    view = memoryview(record)
    layout = FIXED
    system_flag = _I32.unpack_from(view, 36)[0]
    if system_flag & (SYSTEM_FLAG_BORN_HOST_V6 | SYSTEM_FLAG_STORE_HOST_V6):
        born = 20 if system_flag & SYSTEM_FLAG_BORN_HOST_V6 else 8
        store = 20 if system_flag & SYSTEM_FLAG_STORE_HOST_V6 else 8
        layout = struct.Struct(f">IIIIIqqIq{born}sq{store}siqi")
    values = layout.unpack_from(view, 0)
    body_end = layout.size + values[14]
    if values[1] == MAGIC_V2:
        topic_length, topic_start = _U16.unpack_from(view, body_end)[0], body_end + 2
    else:
        topic_length, topic_start = view[body_end], body_end + 1
    topic_end = topic_start + topic_length
    properties_end = topic_end + 2 + _U16.unpack_from(view, topic_end)[0]
    if properties_end != len(view) or values[0] != len(view):
        raise ValueError(f"fields end at {properties_end} of {len(view)} bytes")
    return RecordFields._make(
        (
            *values[:14],
            bytes(view[layout.size : body_end]),
            str(view[topic_start:topic_end], "utf-8"),
            bytes(view[topic_end + 2 : properties_end]),
        )
    )


def signed_flag(field: int) -> int:
    """The producer's flag of what stands in its field."""
    return field if field <= FLAG_MAX else field - 2**32


def decode_message(record: memoryview | bytes, store_id: bytes) -> StoredMessage:
    """One record as a message. `store_id` (4 bytes) goes into a derived message id."""
    raw = bytes(record)
    values = FIXED.unpack_from(raw)
    if values[1] != MAGIC_V1 or values[7]:
        return _decode_foreign(raw, store_id)
    body_end = FIXED_BYTES + values[14]
    topic_end = body_end + 1 + raw[body_end]
    end = topic_end + 2 + (raw[topic_end] << 8 | raw[topic_end + 1])
    if end != len(raw) or values[0] != end:
        raise ValueError(f"fields end at {end} of {len(raw)} bytes")
    topic = str(raw[body_end + 1 : topic_end], "utf-8")
    return _message(values, topic, raw[FIXED_BYTES:body_end], raw[topic_end + 2 :], store_id)


def _decode_foreign(record: bytes, store_id: bytes) -> StoredMessage:
    """`decode_message` for long topics, IPv6 hosts and packed bodies."""
    fields = decode_fields(record)
    stored = fields.body
    body = plain_body(stored, fields.system_flag)
    encoding = None if body is stored else encoding_of(fields.system_flag)
    packed = None if encoding is None else PackedBody(encoding, stored)
    return _message(fields, fields.topic, body, fields.properties, store_id, packed)


def _message(
    fixed: tuple[Any, ...],
    topic: str,
    body: bytes,
    properties: bytes,
    store_id: bytes,
    packed: PackedBody | None = None,
) -> StoredMessage:
    """A message of the values of `FIXED`, of which only those that it needs are looked at."""
    tag = keys = sharding_key = content_type = message_id = unique_id = None
    own: dict[str, str] = {}
    system: dict[str, str] = {}
    if not (len(properties) == CHECKSUM_BYTES and properties.startswith(CHECKSUM_NAME)):
        pairs = decode_properties(properties)
        pairs.pop(PROPERTY_CHECKSUM, None)
        if PROPERTY_UNIQUE_KEY in pairs:
            message_id, unique_id = _read_ids(pairs, store_id)
        tag = pairs.pop(PROPERTY_TAG, None)
        keys = pairs.pop(PROPERTY_KEYS, None)
        sharding_key = pairs.pop(PROPERTY_SHARDING_KEY, None)
        content_type = pairs.pop(PROPERTY_CONTENT_TYPE, None)
        if RESERVED_PROPERTIES.isdisjoint(pairs):
            own = pairs
        else:
            for name, text in pairs.items():
                (system if name in RESERVED_PROPERTIES else own)[name] = text
    return StoredMessage(
        message_id or encode_message_id(store_id, fixed[10], fixed[6]),
        topic,
        fixed[3],
        fixed[5],
        fixed[6],
        body,
        tag,
        tuple(keys.split(" ")) if keys else (),
        sharding_key,
        own,
        content_type,
        fixed[8],
        fixed[10],
        fixed[12],
        system,
        unique_id,
        signed_flag(fixed[4]),
        packed,
    )
