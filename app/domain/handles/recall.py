"""Recall handles: the name of one delayed message, as text that a client passes back. Pure.

Before URL-safe Base64 without padding:

    1   version, 2
    4   shard
    8   offset in the timer topic under which the message first waited
    8   due time that it had then, epoch ms
    1   length t of the topic's name
    t   topic
    …   message id
    16  HMAC-SHA256 of all before, truncated to 128 bits (RFC 2104, section 5)

Version 1 had no shard; its handles are read as ones of this shard.

The handle stays the same when the message is moved to another time or place in the log.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from binascii import a2b_base64
from hmac import compare_digest, digest
from struct import Struct
from typing import Final, NamedTuple

from app.domain.errors import InvalidRecallHandle

VERSION: Final = 2
EARLIER_VERSION: Final = 1
SHARD_BYTES: Final = 4
HANDLE_CHARS_MAX: Final = 1_024
_MAC_BYTES: Final = 16
_FIELDS: Final = Struct(">QQB")
_OFFSET_CHARS: Final = 20
"""Characters of a handle that hold its version, shard and offset: whole groups of four."""


class RecallHandle(NamedTuple):
    """What a handle says."""

    topic: str
    offset: int
    due_ms: int
    message_id: str


class RecallSigner:
    """Writes and reads handles of a shard under one key. Immutable."""

    __slots__ = ("_key", "_shard")

    def __init__(self, key: bytes, shard: bytes) -> None:
        assert len(key) >= _MAC_BYTES
        assert len(shard) == SHARD_BYTES
        self._key = key
        self._shard = shard

    def issue(self, handle: RecallHandle) -> str:
        topic = handle.topic.encode()
        payload = bytes((VERSION,)) + self._shard
        payload += _FIELDS.pack(handle.offset, handle.due_ms, len(topic)) + topic
        payload += handle.message_id.encode()
        mac = digest(self._key, payload, "sha256")[:_MAC_BYTES]
        return urlsafe_b64encode(payload + mac).rstrip(b"=").decode("ascii")

    def read(self, text: str) -> RecallHandle:
        """The handle, or `InvalidRecallHandle`."""
        data = _decoded(text)
        payload, mac = data[:-_MAC_BYTES], data[-_MAC_BYTES:]
        expected = digest(self._key, payload, "sha256")[:_MAC_BYTES]
        if len(payload) <= _FIELDS.size or not compare_digest(mac, expected):
            raise invalid_recall_handle()
        if payload[0] not in (VERSION, EARLIER_VERSION):
            raise invalid_recall_handle()
        start = 1 if payload[0] == EARLIER_VERSION else 1 + SHARD_BYTES
        shard = payload[1:start]
        if shard and shard != self._shard:
            raise _of_another_shard(shard)
        offset, due_ms, length = _FIELDS.unpack_from(payload, start)
        names = start + _FIELDS.size
        topic, message_id = payload[names : names + length], payload[names + length :]
        return RecallHandle(topic.decode(), offset, due_ms, message_id.decode())


def shard_of_recall(text: str) -> bytes | None:
    """The shard that a handle says it is of, unchecked; None: it says none, or is no handle."""
    try:
        data = _decoded(text)
    except InvalidRecallHandle:
        return None
    return data[1 : 1 + SHARD_BYTES] if data[:1] == bytes((VERSION,)) else None


def waiting_offset_of(text: str) -> int:
    """Where the message of a handle that was just issued waits: unchecked."""
    data = a2b_base64(text[:_OFFSET_CHARS].replace("-", "+").replace("_", "/"))
    return int.from_bytes(data[1 + SHARD_BYTES : 9 + SHARD_BYTES], "big")


def _decoded(text: str) -> bytes:
    try:
        if len(text) > HANDLE_CHARS_MAX:
            raise invalid_recall_handle()
        data = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (Base64Error, ValueError) as error:
        raise invalid_recall_handle() from error
    # One text for one handle: no spare bits, no characters that decoding passes over.
    if urlsafe_b64encode(data).rstrip(b"=") != text.encode():
        raise invalid_recall_handle()
    return data


def _of_another_shard(shard: bytes) -> InvalidRecallHandle:
    return InvalidRecallHandle(
        f"the recall handle is of shard {shard.hex()}, which is not here",
        hint="ask the cluster to which the message was sent",
    )


def invalid_recall_handle() -> InvalidRecallHandle:
    """What is said of a handle that is none, or is of another topic than the path: the same, as it
    may be another's."""
    return InvalidRecallHandle(
        "the recall handle was not issued by this cluster for what the path names",
        hint="pass the recall_handle of the send's answer as it was given, under the topic that it"
        " was sent to",
    )
