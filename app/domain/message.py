"""Messages: as a producer hands them over, and as the log gives them back.

Properties are RocketMQ's: text to text, with reserved names for the parts that have a field of
their own. In memory the reserved ones live in their fields; on disk they are properties.
"""

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple

from msgspec import Struct

from app.domain.errors import (
    BodyTooLarge,
    IllegalKey,
    IllegalMessageId,
    IllegalProperty,
    IllegalTag,
    PropertiesTooLarge,
)
from app.domain.limits import (
    CONTENT_TYPE_BYTES_MAX,
    KEY_BYTES_MAX,
    MESSAGE_ID_BYTES_MAX,
    MESSAGE_PROPERTIES_BYTES_MAX,
    SHARDING_KEY_BYTES_MAX,
    Limits,
)
from app.domain.positions import PhysicalOffset, QueueOffset, TimestampMs

PROPERTY_TAG: Final = "TAGS"
PROPERTY_KEYS: Final = "KEYS"
PROPERTY_UNIQUE_KEY: Final = "UNIQ_KEY"
"""The producer's id of a message; or the id of ours that a record was given elsewhere."""
PROPERTY_MESSAGE_ID: Final = "MQ_ID"
"""The id of ours of a record with a producer's id: `DERIVED_ID`, or what it was given elsewhere."""
DERIVED_ID: Final = "-"
PROPERTY_SHARDING_KEY: Final = "__SHARDINGKEY"
PROPERTY_CONTENT_TYPE: Final = "MQ_CONTENT_TYPE"
PROPERTY_CHECKSUM: Final = "__CRC32#"
PROPERTY_STEP: Final = "MQ_STEP"
"""Records of a step that follow this one in the log; the last one of a step has 0."""
PROPERTY_REAL_TOPIC: Final = "REAL_TOPIC"
PROPERTY_REAL_QUEUE: Final = "REAL_QID"
"""Where a message goes that waits in a system topic."""
PROPERTY_DUE: Final = "TIMER_OUT_MS"
"""When it goes there, epoch ms."""
PROPERTY_TIMER: Final = "MQ_TIMER"
"""Identity of a delayed message: the first place in the timer topic; also on what was delivered."""
PROPERTY_HALF: Final = "TRAN_PREPARED_QUEUE_OFFSET"
"""Of a committed message: where its half stood, as RocketMQ has it."""
PROPERTY_GENERATION: Final = "MQ_GENERATION"
"""Generation of the topic for which it waits."""
PROPERTY_SNAPSHOT: Final = "MQ_SNAPSHOT"
"""Chunks of a journal's snapshot that follow this one; the last one has 0."""

PROPERTY_CORRELATION_ID: Final = "CORRELATION_ID"
PROPERTY_REPLY_TO: Final = "REPLY_TO_CLIENT"
PROPERTY_TTL: Final = "TTL"
"""Of a request: which it is, who waits for the reply, and for how many ms. RocketMQ's."""
PROPERTY_REPLY_BY: Final = "MQ_REPLY_BY"
"""Until when somebody waits, epoch ms; TTL counts from a time that a retry does not know."""
REQUEST_PROPERTIES: Final = (
    PROPERTY_CORRELATION_ID,
    PROPERTY_REPLY_TO,
    PROPERTY_TTL,
    PROPERTY_REPLY_BY,
)
"""All of a request's, which its copies for a group keep: whoever gets one may reply."""

RESERVED_PROPERTIES: Final = frozenset(
    """KEYS TAGS WAIT DELAY RETRY_TOPIC REAL_TOPIC REAL_QID TRAN_MSG PGROUP MIN_OFFSET MAX_OFFSET
    BUYER_ID ORIGIN_MESSAGE_ID TRANSFER_FLAG CORRECTION_FLAG MQ2_FLAG RECONSUME_TIME MSG_REGION
    TRACE_ON UNIQ_KEY EXTEND_UNIQ_INFO MAX_RECONSUME_TIMES CONSUME_START_TIME INNER_NUM INNER_BASE
    DUP_INFO CHECK_IMMUNITY_TIME_IN_SECONDS TRAN_PREPARED_QUEUE_OFFSET __transactionId__
    TRANSACTION_CHECK_TIMES INSTANCE_ID CORRELATION_ID REPLY_TO_CLIENT TTL ARRIVE_TIME
    PUSH_REPLY_TIME CLUSTER MSG_TYPE POP_CK POP_CK_OFFSET 1ST_POP_TIME __SHARDINGKEY
    FORWARD_QUEUE_ID REDIRECT INNER_MULTI_DISPATCH INNER_MULTI_QUEUE_OFFSET TRACE_CONTEXT
    TIMER_DELAY_SEC TIMER_DELIVER_MS TIMER_DELAY_MS TIMER_IN_MS TIMER_OUT_MS TIMER_ENQUEUE_MS
    TIMER_DEQUEUE_MS TIMER_ROLL_TIMES TIMER_DEL_UNIQKEY TIMER_DELAY_LEVEL DLQ_ORIGIN_TOPIC
    DLQ_ORIGIN_MESSAGE_ID __CRC32# MQ_REPLY_BY MQ_CONTENT_TYPE MQ_STEP MQ_TIMER MQ_GENERATION
    MQ_SNAPSHOT MQ_ID
    MQ_ORIGIN_PLACE MQ_REASON MQ_CHECKS""".split()  # noqa: SIM905
)
"""RocketMQ's MessageConst and our own; a client may not use them as property names."""

FIELD_PROPERTIES: Final = frozenset(
    {
        PROPERTY_TAG,
        PROPERTY_KEYS,
        PROPERTY_UNIQUE_KEY,
        PROPERTY_SHARDING_KEY,
        PROPERTY_CONTENT_TYPE,
    }
)
"""Reserved names of what has a field of its own; in a batch frame they stand for it."""

EVERY_TAG: Final = "*"
"""What a filter says that takes all; no filter could ask for a tag of this name."""

FLAG_MIN: Final = -(2**31)
FLAG_MAX: Final = 2**31 - 1

NAME_VALUE_SEPARATOR: Final = "\x01"
PROPERTY_SEPARATOR: Final = "\x02"


class StoredEncoding(StrEnum):
    """How a body is packed in the log, by its name in HTTP."""

    DEFLATE = "deflate"
    """zlib's format, RFC 1950."""
    ZSTD = "zstd"
    LZ4 = "lz4"
    """A frame; in imported stores only."""


class PackedBody(NamedTuple):
    """A body as it is stored, and how it is packed."""

    encoding: StoredEncoding
    data: bytes


class Message(Struct, frozen=True):
    """A message as a producer hands it over. Immutable; `check` has been called before a store.

    A msgspec struct, since it is made for every message: a frozen dataclass takes 15 times as long.
    """

    body: bytes
    tag: str | None = None
    keys: tuple[str, ...] = ()
    sharding_key: str | None = None
    properties: Mapping[str, str] = {}
    content_type: str | None = None
    message_id: str | None = None
    """Given by the broker to what it stores again; None: the store derives it from the place."""
    born_time_ms: TimestampMs | None = None
    """Client's clock; None: the store time."""
    system: Mapping[str, str] = {}
    """Reserved properties without a field of their own; set by the broker, never by a client."""
    reconsume_times: int = 0
    """How often a group has failed to consume the message; 0 unless it is a retry."""
    unique_id: str | None = None
    """Given by the producer (RocketMQ's UNIQ_KEY)."""
    flag: int = 0
    """The producer's own, signed, 32 bits; nobody looks at it."""
    encoding: StoredEncoding | None = None
    """How `body` is packed, and stays in the log; None: not at all."""


class StoredMessage(Struct, frozen=True):
    """A message as the log gives it back. `properties` holds the client's own ones only,
    `system` the reserved ones that have no field."""

    message_id: str
    topic: str
    queue_id: int
    queue_offset: QueueOffset
    physical_offset: PhysicalOffset
    body: bytes
    tag: str | None
    keys: tuple[str, ...]
    sharding_key: str | None
    properties: Mapping[str, str]
    content_type: str | None
    born_time_ms: TimestampMs
    store_time_ms: TimestampMs
    reconsume_times: int
    system: Mapping[str, str] = {}
    unique_id: str | None = None
    flag: int = 0
    packed: PackedBody | None = None
    """The body as it is stored, when that is not `body`."""


def check_message(message: Message, limits: Limits) -> None:
    """Raise the fitting `InvalidRequest` when `message` breaks a rule or a limit."""
    if len(message.body) > limits.body_bytes_max:
        raise BodyTooLarge(
            f"the body has {len(message.body)} bytes; at most {limits.body_bytes_max} are taken",
            hint="send the payload to an object store and its address as the message",
            fields={"limit_bytes": limits.body_bytes_max},
        )
    size = 0
    if message.tag is not None:
        size = _check_tag(message.tag, limits)
    if message.keys:
        size += _check_keys(message.keys, limits)
    if message.sharding_key is not None:
        size += _check_text("sharding_key", message.sharding_key, SHARDING_KEY_BYTES_MAX)
    if message.content_type is not None:
        size += _check_content_type(message.content_type)
    if message.message_id is not None:
        size += _check_text("message_id", message.message_id, MESSAGE_ID_BYTES_MAX)
    if message.unique_id is not None:
        size += _check_unique_id(message.unique_id)
    if message.properties:
        size += _check_properties(message.properties, limits)
    if size > MESSAGE_PROPERTIES_BYTES_MAX:
        raise PropertiesTooLarge(
            f"properties, tag, keys, sharding key and content type have {size} bytes together;"
            f" at most {MESSAGE_PROPERTIES_BYTES_MAX} are taken",
            hint="put what is large into the body",
            fields={"limit_bytes": MESSAGE_PROPERTIES_BYTES_MAX},
        )


def check_field(name: str, value: str, limits: Limits) -> None:
    """Raise what `check_message` raises when `value` cannot be what the property `name`, one of
    `FIELD_PROPERTIES`, says of a message."""
    if name == PROPERTY_TAG:
        _check_tag(value, limits)
    elif name == PROPERTY_KEYS:
        _check_keys(tuple(value.split(" ")), limits)
    elif name == PROPERTY_UNIQUE_KEY:
        _check_unique_id(value)
    elif name == PROPERTY_SHARDING_KEY:
        _check_text("sharding_key", value, SHARDING_KEY_BYTES_MAX)
    else:
        _check_text("content_type", value, CONTENT_TYPE_BYTES_MAX)


_VISIBLE: Final = re.compile(r"[!-~]+")
_NAME_BYTES_MAX: Final = len(PROPERTY_CONTENT_TYPE) + 2
"""Of the reserved names of what has a field of its own, with both separators: the longest."""


def _check_text(name: str, value: str, limit_bytes: int) -> int:
    """The bytes that the text takes among the properties, or a little more."""
    if not _is_storable(value):
        raise IllegalProperty(f"{name} is empty or has a control character", pointer=f"/{name}")
    size = len(value) if value.isascii() else _utf8_bytes(name, value)
    if size > limit_bytes:
        raise IllegalProperty(
            f"{name} has {size} bytes; at most {limit_bytes} are taken",
            hint="put what is large into the body",
            pointer=f"/{name}",
            fields={"limit_bytes": limit_bytes},
        )
    return size + _NAME_BYTES_MAX


@lru_cache(maxsize=256)
def _check_content_type(value: str) -> int:
    """As `_check_text`; there are few, and each message of JSON has one."""
    return _check_text("content_type", value, CONTENT_TYPE_BYTES_MAX)


def _check_unique_id(unique_id: str) -> int:
    if len(unique_id) > MESSAGE_ID_BYTES_MAX or not _VISIBLE.fullmatch(unique_id):
        raise IllegalMessageId(
            f"the unique_id has {len(unique_id)} characters; 1 to {MESSAGE_ID_BYTES_MAX} visible"
            " ASCII characters are taken",
            hint="leave it out, or make it a property",
            pointer="/unique_id",
            fields={"limit_bytes": MESSAGE_ID_BYTES_MAX},
        )
    return len(unique_id) + 2 * _NAME_BYTES_MAX


def _utf8_bytes(name: str, value: str) -> int:
    try:
        return len(value.encode())
    except UnicodeEncodeError as error:
        raise IllegalProperty(f"{name} is not Unicode text: {error}", pointer=f"/{name}") from error


def _is_storable(text: str) -> bool:
    return bool(text) and NAME_VALUE_SEPARATOR not in text and PROPERTY_SEPARATOR not in text


def _check_tag(tag: str, limits: Limits) -> int:
    if not _is_storable(tag) or tag != tag.strip() or "|" in tag or not tag.isprintable():
        raise IllegalTag(
            f"tag {tag[: limits.tag_bytes_max]!r} is not allowed",
            hint="use printable characters without '|' and without spaces at the ends",
            pointer="/tag",
        )
    if tag == EVERY_TAG:
        raise IllegalTag(
            f"tag {tag!r} is not allowed: in a filter it stands for every tag",
            hint="use another tag, or none",
            pointer="/tag",
        )
    size = len(tag) if tag.isascii() else _utf8_bytes("tag", tag)
    if size > limits.tag_bytes_max:
        raise IllegalTag(
            f"the tag has {size} bytes; at most {limits.tag_bytes_max} are taken",
            pointer="/tag",
            fields={"limit_bytes": limits.tag_bytes_max},
        )
    return size + _NAME_BYTES_MAX


def _check_keys(keys: tuple[str, ...], limits: Limits) -> int:
    if len(keys) > limits.keys_count_max:
        raise IllegalKey(
            f"{len(keys)} keys; at most {limits.keys_count_max} are taken",
            pointer="/keys",
            fields={"limit": limits.keys_count_max},
        )
    total = _NAME_BYTES_MAX
    for index, key in enumerate(keys):
        if not _is_storable(key) or key.split() != [key]:
            raise IllegalKey(
                f"key {key[:KEY_BYTES_MAX]!r} is not allowed",
                hint="keys are stored separated by spaces; a key is not empty and has none",
                pointer=f"/keys/{index}",
            )
        size = len(key) if key.isascii() else _utf8_bytes(f"keys/{index}", key)
        if size > KEY_BYTES_MAX:
            raise IllegalKey(
                f"a key has {size} bytes; at most {KEY_BYTES_MAX} are taken",
                pointer=f"/keys/{index}",
                fields={"limit_bytes": KEY_BYTES_MAX},
            )
        total += size + 1
    return total


def _check_properties(properties: Mapping[str, str], limits: Limits) -> int:
    if len(properties) > limits.properties_count_max:
        raise PropertiesTooLarge(
            f"{len(properties)} properties; at most {limits.properties_count_max} are taken",
            pointer="/properties",
            fields={"limit": limits.properties_count_max},
        )
    total = 0
    for name, value in properties.items():
        check_property(name, value)
        total += len(name.encode()) + len(value.encode()) + 2
    if total > limits.properties_bytes_max:
        raise PropertiesTooLarge(
            f"the properties have {total} bytes; at most {limits.properties_bytes_max} are taken",
            pointer="/properties",
            fields={"limit_bytes": limits.properties_bytes_max},
        )
    return total


def check_property(name: str, value: str) -> None:
    """Raise `IllegalProperty` for a property of the client's own that cannot be one."""
    if name not in RESERVED_PROPERTIES and _is_storable(name) and _is_storable(value):
        return
    if name in RESERVED_PROPERTIES:
        detail = f"property name {name!r} is reserved"
        hint = "tag, keys, sharding_key, content_type, unique_id have fields of their own"
    else:
        detail = f"property {name!r} cannot be stored"
        hint = "names and values are not empty and have no U+0001 or U+0002"
    raise IllegalProperty(detail, hint=hint, pointer=f"/properties/{name}")


def java_hash(text: str) -> int:
    """Java's `String.hashCode` over UTF-16 code units, as a signed 32-bit integer.

    RocketMQ hashes tags, keys and sharding keys with it; the same in server, clients and Spark.
    """
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for index in range(0, len(units), 2):
        value = (31 * value + ((units[index] << 8) | units[index + 1])) & 0xFFFFFFFF
    return value - 0x1_0000_0000 if value >= 0x8000_0000 else value


def queue_for_sharding_key(sharding_key: str, queues: int) -> int:
    """The queue of a sharding key: RocketMQ's SelectMessageQueueByHash, `abs(hash % queues)`."""
    return abs(java_hash(sharding_key)) % queues


def queue_among(sharding_key: str, queues: Sequence[int]) -> int:
    """The queue of a sharding key whose own queue takes keys no more: of those that do, the one
    with the highest score for the key (rendezvous hashing). When one of them takes none any more,
    its keys alone move; the same in server and clients."""
    number = java_hash(sharding_key) & 0xFFFFFFFF
    return max(queues, key=lambda queue_id: (_mixed(number ^ _mixed(queue_id + 1)), queue_id))


def _mixed(number: int) -> int:
    """The last step of MurmurHash3, 32 bits."""
    number ^= number >> 16
    number = number * 0x85EBCA6B & 0xFFFFFFFF
    number ^= number >> 13
    number = number * 0xC2B2AE35 & 0xFFFFFFFF
    return number ^ number >> 16
