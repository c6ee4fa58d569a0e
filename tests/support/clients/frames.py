"""Batch frames as a producer would make them and a consumer would read them. `struct` only."""

import struct
from collections.abc import Sequence

import google_crc32c

from app.domain.message import Message, StoredMessage
from app.store.formats.frame.batch_frame import (
    FLAG_DELIVERY_TIMES,
    HEADER,
    HEADER_BYTES,
    MAGIC,
    VERSION,
)
from app.store.formats.frame.request_records import EMPTY_CHECKSUM
from app.store.formats.record.record import decode_message, encode_properties, encode_record


def request_frame(
    messages: Sequence[Message], topic: str, times: Sequence[int] | None = None
) -> bytes:
    """A frame to be sent: everything that the server fills is zero."""
    count = len(messages)
    records = [_request_record(message, topic) for message in messages]
    block = b"".join(records)
    rest = struct.pack(f">{count}I", *map(len, records))
    if times is not None:
        rest += struct.pack(f">{count}q", *times)
    rest += block
    flags = 0 if times is None else FLAG_DELIVERY_TIMES
    checksum = google_crc32c.value(rest)
    return HEADER.pack(MAGIC, VERSION, flags, 0, count, checksum, 0, len(block)) + rest


def _request_record(message: Message, topic: str) -> bytes:
    record = encode_record(
        topic=topic.encode(),
        queue_id=0,
        queue_offset=0,
        physical_offset=0,
        body=message.body,
        properties=encode_properties(message),
        born_time_ms=message.born_time_ms or 1,
        store_time_ms=0,
        store_host=bytes(8),
    )
    return record[: -len(EMPTY_CHECKSUM)] + EMPTY_CHECKSUM


def read_frame(frame: bytes) -> list[StoredMessage]:
    """The messages of an answer frame."""
    _, _, flags, _, count, _, _, total = HEADER.unpack_from(frame)
    at = HEADER_BYTES + 4 * count + (8 * count if flags & 4 else 0)
    assert len(frame) == at + total
    messages = []
    for size in struct.unpack_from(f">{count}I", frame, HEADER_BYTES):
        messages.append(decode_message(frame[at : at + size], bytes(4)))
        at += size
    return messages
