"""Cursors: where a reader of all queues of a topic stands, as one opaque text. Pure.

A cursor holds one offset per queue and nothing of the reader, so any node can go on from it. It is
not a secret and not signed: it says no more than an offset does. A checksum over the topic's name
and the offsets notices damage and cursors of other topics.

Bytes, then base64url without padding behind `c1.`:

    checksum   4   CRC-32 of name and everything behind the checksum, big-endian
    width      1   bytes per offset, 1 to 8
    offsets    width each, big-endian, from queue 0 on

Of queues behind the last that it holds, and of those at `BEGINNING`, it says nothing: a reader of
it goes on at their first message, whichever that is by then.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Sequence
from typing import Final
from zlib import crc32

from app.domain.errors import IllegalOffset

_PREFIX: Final = "c1."
_CHECKSUM_BYTES: Final = 4
_WIDTH_MAX: Final = 8
BEGINNING: Final = (1 << 8 * _WIDTH_MAX) - 1
"""In place of an offset, of a queue of which nothing was read, and nobody could say where it
begins: its shard was away."""


def encode_cursor(topic: str, offsets: Sequence[int]) -> str:
    """The cursor that stands at `offsets`, one per queue from queue 0 on."""
    width = (max(offsets, default=0).bit_length() + 7) // 8 or 1
    packed = b"".join([bytes((width,)), *[offset.to_bytes(width, "big") for offset in offsets]])
    checksum = crc32(packed, crc32(topic.encode()))
    text = urlsafe_b64encode(checksum.to_bytes(_CHECKSUM_BYTES, "big") + packed)
    return _PREFIX + text.decode("ascii").rstrip("=")


def decode_cursor(topic: str, cursor: str) -> list[int]:
    """The offsets in `cursor`; `IllegalOffset` when it is none, or one of another topic."""
    text = cursor.removeprefix(_PREFIX)
    try:
        data = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (Base64Error, ValueError) as error:
        raise _illegal() from error
    packed = data[_CHECKSUM_BYTES:]
    if text == cursor or not packed or not 1 <= packed[0] <= _WIDTH_MAX:
        raise _illegal()
    width = packed[0]
    checksum = crc32(packed, crc32(topic.encode())).to_bytes(_CHECKSUM_BYTES, "big")
    if data[:_CHECKSUM_BYTES] != checksum or (len(packed) - 1) % width:
        raise _illegal()
    return [int.from_bytes(packed[at : at + width], "big") for at in range(1, len(packed), width)]


def _illegal() -> IllegalOffset:
    return IllegalOffset(
        "the cursor is damaged, or of another topic",
        hint="pass a cursor as it was given, or say at=earliest or at=latest",
    )
