"""Messages that were read by offset, and the answers that have them: JSON, then frames. Pure.

A message keeps the bytes of its properties, and takes them apart when somebody asks.
"""

import json
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from curlew_client.consuming.decisions import Decision
from curlew_client.consuming.messages import Received
from curlew_client.errors import ConnectionFailed
from curlew_client.wire.bodies import unpacked
from curlew_client.wire.frames import CONTENT_TYPE as FRAME
from curlew_client.wire.http1 import Answer
from curlew_client.wire.problems import error_of

Settle = Callable[[Decision], Any]

_FRAME: Final = struct.Struct(">4sBBHIIqq")
_TAG_HASHES: Final = 4
_CRC32: Final = 8
_RECORD: Final = struct.Struct(">III8xq8xI44xI")
"""Size, magic, checksum of the body, queue offset, system flag, length of the body: of a record
whose hosts are IPv4."""
_TIMES: Final = struct.Struct(">28xqIq")
"""Physical offset, system flag, born time."""
_BODY_AT: Final = 88
_SHORT: Final = 0xDAA320A7
_TOPIC_BYTES: Final = {_SHORT: 1, 0xDAA320AB: 2}
_IPV6_BORN: Final = 0x10
_IPV6_STORED: Final = 0x20
_WIDE: Final = _IPV6_BORN | _IPV6_STORED
_PACKED: Final = 1

WAITING: Final = 0
LEAVING: Final = 1
DONE: Final = 2

_FIELDS: Final = {
    "TAGS": "tag",
    "__SHARDINGKEY": "sharding_key",
    "MQ_CONTENT_TYPE": "content_type",
    "CORRELATION_ID": "correlation_id",
}
_SYSTEM: Final = frozenset(
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
    MQ_SNAPSHOT MQ_ID MQ_ORIGIN_PLACE MQ_REASON""".split()  # noqa: SIM905
)
"""Names of properties that are the service's own."""


class QueueName(NamedTuple):
    """A queue of a topic."""

    topic: str
    queue_id: int


class Damaged(ConnectionFailed):
    """The bytes of an answer are not what the node sent."""

    def __init__(self, what: str) -> None:
        super().__init__(f"an answer came damaged: {what}", "unknown")


class Source(NamedTuple):
    """What the messages of a frame have in common."""

    queue: QueueName
    store_id: bytes
    settle: Settle


class Polled(Received[Any]):
    """A message that was read by offset: settled by what is committed, not by a receipt handle."""

    __slots__ = (
        *("_head", "_properties", "_source", "has_begun", "offset", "owner", "state", "tries"),
        "until_s",
    )

    receipt_handle = ""

    def __init__(
        self, body: bytes, source: Source, offset: int, head: bytes, properties: bytes
    ) -> None:
        """`head` and `properties`: the bytes of its record before the body, and those."""
        self.body = body
        self.offset = offset
        self.is_settled = False
        self._source = source
        self._head = head
        self._properties = properties
        self.owner: Any = None
        """The `OwnedQueue` that has it; None: nobody is told what becomes of it."""
        self.state = WAITING
        self.has_begun = False
        """Whether a handler has it."""
        self.tries = 1
        self.until_s = 0.0
        """When it has been held for too long, seconds of the monotonic clock."""

    def _settle(self, decision: Decision) -> Any:
        return self._source.settle(decision)

    def __getattr__(self, name: str) -> Any:
        if name != "_shown":
            raise AttributeError(f"a message has no {name!r}")
        self._shown = shown = self._read()
        return shown

    def _read(self) -> dict[str, Any]:
        queue, store_id, _ = self._source
        physical, flag, born_ms = _TIMES.unpack_from(self._head)
        (store_ms,) = struct.unpack_from(">q", self._head, _stored_at(flag))
        shown: dict[str, Any] = {"born_time_ms": born_ms, "store_time_ms": store_ms}
        shown["topic"], shown["queue_id"] = queue
        shown["queue_offset"] = self.offset
        found = {}
        for pair in self._properties.decode().split("\x02"):
            name, _, value = pair.partition("\x01")
            if name:
                found[name] = value
        for name, member in _FIELDS.items():
            if name in found:
                shown[member] = found[name]
        if "MQ_REPLY_BY" not in found:
            shown.pop("correlation_id", None)
        shown["keys"] = found.get("KEYS", "").split()
        shown["properties"] = {k: v for k, v in found.items() if k not in _SYSTEM}
        derived = f"01{store_id.decode()}{store_ms:012X}{physical:012X}".upper()
        shown["message_id"], unique_id = ids_of(found, store_id.decode(), derived)
        if unique_id is not None:
            shown["unique_id"] = unique_id
        return shown

    @property
    def topic(self) -> str:
        return self._source.queue.topic

    @property
    def queue_id(self) -> int:
        return self._source.queue.queue_id

    @property
    def queue(self) -> QueueName:
        """Where it is."""
        return self._source.queue

    @property
    def queue_offset(self) -> int:
        return self.offset

    @property
    def attempt(self) -> int:
        return self.tries

    @property
    def max_attempts(self) -> None:
        """Not known of what was read by offset."""
        return


def ids_of(found: dict[str, str], store_id: str, derived: str) -> tuple[str, str | None]:
    """The message id, and the producer's own, of a record with these properties."""
    own, unique = found.get("MQ_ID"), found.get("UNIQ_KEY")
    if own is not None:
        return (derived if own == "-" else own), unique
    if unique is not None and unique.upper().startswith(f"01{store_id}".upper()):
        return unique, None
    if unique is not None and unique.startswith("schedule:"):
        return unique, None
    return derived, unique


PollAnswer = tuple[dict[str, Any], list[tuple[QueueName, list[Polled]]]]
"""The document of an answer to a poll, and the messages of each queue."""


def read_poll(answer: Answer, url: str, settle: Settle) -> PollAnswer:
    """Read an answer to a poll.

    Raises what the node said against it, `NotCurlew`, or `Damaged`.
    """
    headers = answer.headers
    kind = headers.get("content-type", "")
    store_id = headers.get("mq-store-id", "").encode()
    try:
        if not kind.startswith("multipart/mixed"):
            raise error_of(answer, url)
        parts = list(_parts(answer.body, kind.partition("boundary=")[2].strip('"').encode()))
        shown = json.loads(bytes(parts[0][1]))
        found = []
        for names, frame in parts[1:]:
            if names["content-type"] == FRAME:
                queue = QueueName(names["mq-topic"], int(names["mq-queue-id"]))
                store = names.get("mq-store-id", "").encode() or store_id  # of a cluster's shard
                found.append((queue, read_frame(frame, queue, store, settle)))
    except (KeyError, IndexError, struct.error, ValueError) as error:
        raise Damaged(f"{type(error).__name__}: {error}") from error
    else:
        return shown, found


def _parts(body: bytes, boundary: bytes) -> Iterator[tuple[dict[str, str], memoryview]]:
    mark = b"--" + boundary
    view, at = memoryview(body), 0
    while not body.startswith(mark + b"--", at):
        if not body.startswith(mark + b"\r\n", at):
            raise ValueError("a part does not begin with the boundary")
        end = body.index(b"\r\n\r\n", at)
        lines = body[at + len(mark) + 2 : end].decode().split("\r\n")
        pairs = (line.partition(":") for line in lines)
        names = {name.lower(): value.strip() for name, _, value in pairs}
        start, size = end + 4, int(names["content-length"])
        if start + size > len(body):
            raise ValueError("a part is cut short")
        yield names, view[start : start + size]
        at = start + size + 2


def read_frame(data: memoryview, queue: QueueName, store_id: bytes, settle: Settle) -> list[Polled]:
    """The messages of a frame, each checked by the checksum of its body."""
    magic, version, flags, _, count, checksum, _, length = _FRAME.unpack_from(data)
    if (magic, version) != (b"CRLW", 1):
        raise ValueError("this is no frame of version 1")
    at = _FRAME.size + count * (12 if flags & _TAG_HASHES else 4)
    if at + length != len(data):
        raise ValueError("a frame is cut short")
    if flags & _CRC32 and zlib.crc32(data[_FRAME.size :]) != checksum:
        raise ValueError("the checksum of a frame does not match")
    found: list[Polled] = []
    raw = bytes(data)
    source = Source(queue, store_id, settle)
    unpack, crc32, append, topics = _RECORD.unpack_from, zlib.crc32, found.append, _TOPIC_BYTES
    for size in struct.unpack_from(f">{count}I", data, _FRAME.size):
        said, magic, check, offset, flag, length = unpack(raw, at)
        body_at = at + _BODY_AT
        if flag & _WIDE:
            body_at, length = _wide(raw, at, flag)
        body_end = body_at + length
        if magic == _SHORT:
            topic_end = body_end + 1 + raw[body_end]
        else:
            wide = topics[magic]
            topic_end = body_end + wide + int.from_bytes(raw[body_end : body_end + wide], "big")
        end = at + size
        if said != size or topic_end + 2 + (raw[topic_end] << 8 | raw[topic_end + 1]) != end:
            raise ValueError("the lengths of a record do not add up")
        body = raw[body_at:body_end]
        if (crc32(body) ^ check) & 0x7FFFFFFF:
            raise ValueError("the checksum of a body does not match")
        if flag & _PACKED:
            body = unpacked(body, flag >> 8 & 7)
        append(Polled(body, source, offset, raw[at:body_at], raw[topic_end + 2 : end]))
        at = end
    return found


def _wide(raw: bytes, at: int, flag: int) -> tuple[int, int]:
    """Where the body begins and its length, of a record with a host that is IPv6."""
    length_at = at + _stored_at(flag) + (40 if flag & _IPV6_STORED else 28)
    (length,) = struct.unpack_from(">I", raw, length_at)
    return length_at + 4, length


def _stored_at(flag: int) -> int:
    """Where a record has its store time."""
    return 68 if flag & _IPV6_BORN else 56
