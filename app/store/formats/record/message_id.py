"""Message ids of ours: the place of a message, so that looking one up needs no index.

34 upper-case hexadecimal digits, as long as RocketMQ 5's:

    01   store id (4 bytes)   store time, ms (6 bytes)   physical offset (6 bytes)

The store id keeps the ids of two stores apart; the time tells an id apart from that of an earlier
record at the same place, which a crash may have cut.
"""

from typing import Final, NamedTuple

from app.domain.schedules import SCHEDULED_ID_PREFIX

VERSION: Final = 1
STORE_ID_BYTES: Final = 4
_BYTES: Final = 1 + STORE_ID_BYTES + 6 + 6


class MessagePlace(NamedTuple):
    """What an id says."""

    store_id: bytes
    store_time_ms: int
    physical_offset: int


def encode_message_id(store_id: bytes, store_time_ms: int, physical_offset: int) -> str:
    """The id of the record at `physical_offset`. `store_id` has 4 bytes."""
    return f"01{store_id.hex()}{store_time_ms:012x}{physical_offset:012x}".upper()


def is_own_id(text: str, store_id: bytes | None = None) -> bool:
    """Whether it looks like an id that a node gives: of a place in a log (of that store), or of a
    due time of a schedule."""
    place = decode_message_id(text)
    if place is None:
        return text.startswith(SCHEDULED_ID_PREFIX)
    return store_id is None or place.store_id == store_id


def decode_message_id(text: str) -> MessagePlace | None:
    """The place in `text`, or None when it is not an id of ours."""
    if len(text) != 2 * _BYTES or not text.isascii():
        return None
    try:
        raw = bytes.fromhex(text)
    except ValueError:
        return None
    if len(raw) != _BYTES or raw[0] != VERSION:
        return None
    return MessagePlace(raw[1:5], int.from_bytes(raw[5:11]), int.from_bytes(raw[11:17]))
