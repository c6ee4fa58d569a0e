"""Receipt handles: the proof of one delivery, as text that a client passes back. Pure.

Layout, before URL-safe Base64 without padding:

    1   version, 1
    1   length t of the topic's name      1   length g of the group's name
    t   topic                             g   group
    4   queue id                          8   queue offset
    8   lease id                          2   attempt (saturated)
    1   flags; bit 0: first lease of this offset
    8   end of the lease, milliseconds of the issuing node's monotonic clock
    16  HMAC-SHA256 of all before, truncated to 128 bits (RFC 2104, section 5)

67 characters and 4 for every 3 characters of the names; at most 120 while both names together have
up to 39 characters. Any node with the cluster's key can check a handle without a look-up.
Changing one bit, or cutting anything off, makes it `InvalidReceiptHandle`.
"""

import hashlib
from base64 import urlsafe_b64encode
from binascii import Error as Base64Error
from binascii import a2b_base64
from hmac import compare_digest
from struct import Struct
from typing import Final, NamedTuple

from app.domain.errors import InvalidReceiptHandle

VERSION: Final = 1
MAC_BYTES: Final = 16
ATTEMPT_MAX: Final = 0xFFFF
HANDLE_CHARS_MAX: Final = 512

_FIELDS: Final = Struct(">IqQHBQ")
_FIRST: Final = 1
_TAIL_BYTES: Final = _FIELDS.size + MAC_BYTES
_NAMES_START: Final = 3
_BLOCK_BYTES: Final = 64  # of SHA-256
_URL_SAFE: Final = str.maketrans("-_", "+/", "+/=\n")


class ReceiptHandle(NamedTuple):
    """What a handle says. `topic` and `group` are those it was issued for."""

    topic: str
    group: str
    queue_id: int
    queue_offset: int
    lease_id: int
    attempt: int
    is_first: bool
    expires_monotonic_ms: int


def receipt_prefix(topic: str, group: str) -> bytes:
    """The part that all handles of one group on one topic share; made once, kept by the caller."""
    names = topic.encode(), group.encode()
    return bytes((VERSION, len(names[0]), len(names[1]))) + names[0] + names[1]


class ReceiptSigner:
    """Writes and reads handles under one key. Immutable; usable from any thread."""

    __slots__ = ("_inner", "_outer")

    def __init__(self, key: bytes) -> None:
        assert 16 <= len(key) <= _BLOCK_BYTES
        # HMAC with both key blocks hashed ahead: half the cost of hmac.digest for short texts.
        block = key.ljust(_BLOCK_BYTES, b"\0")
        self._inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in block))
        self._outer = hashlib.sha256(bytes(byte ^ 0x5C for byte in block))

    def _mac(self, payload: bytes) -> bytes:
        inner = self._inner.copy()
        inner.update(payload)
        outer = self._outer.copy()
        outer.update(inner.digest())
        return outer.digest()[:MAC_BYTES]

    def issue(
        self,
        prefix: bytes,
        queue_id: int,
        queue_offset: int,
        lease_id: int,
        attempt: int,
        is_first: bool,
        expires_monotonic_ms: int,
    ) -> str:
        """Return a handle's text; `prefix` is from `receipt_prefix`."""
        payload = prefix + _FIELDS.pack(
            queue_id,
            queue_offset,
            lease_id,
            min(ATTEMPT_MAX, attempt),
            is_first,
            expires_monotonic_ms,
        )
        return urlsafe_b64encode(payload + self._mac(payload)).rstrip(b"=").decode()

    def read(self, handle: str) -> ReceiptHandle:
        """Return what `handle` says, or raise `InvalidReceiptHandle`."""
        raw = _decode_base64(handle)
        payload = raw[:-MAC_BYTES]
        if not compare_digest(self._mac(payload), raw[-MAC_BYTES:]) or raw[0] != VERSION:
            raise _invalid()
        topic_end = _NAMES_START + raw[1]
        fields = _FIELDS.unpack_from(raw, len(payload) - _FIELDS.size)
        return ReceiptHandle(
            raw[_NAMES_START:topic_end].decode(),
            raw[topic_end : topic_end + raw[2]].decode(),
            fields[0],
            fields[1],
            fields[2],
            fields[3],
            fields[4] & _FIRST != 0,
            fields[5],
        )


def _decode_base64(handle: str) -> bytes:
    if len(handle) > HANDLE_CHARS_MAX:
        raise _invalid()
    try:
        raw = a2b_base64(handle.translate(_URL_SAFE) + "=" * (-len(handle) % 4), strict_mode=True)
    except (Base64Error, ValueError):
        raise _invalid() from None
    if len(raw) < _NAMES_START + _TAIL_BYTES:
        raise _invalid()
    # Base64 ignores the last spare bits: only the canonical text is accepted.
    if urlsafe_b64encode(raw).rstrip(b"=") != handle.encode():
        raise _invalid()
    return raw


def _invalid() -> InvalidReceiptHandle:
    return InvalidReceiptHandle(
        "the receipt handle was not issued by this cluster, or was changed on the way",
        hint="pass the handle exactly as it came with the message",
    )
