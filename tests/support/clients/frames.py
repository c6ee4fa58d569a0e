"""Batch frames as a producer would make them and a consumer would read them. `struct` only."""

import struct
from collections.abc import Sequence

import google_crc32c

from app.domain.message import Message, StoredMessage
from app.store.formats.frame.batch_frame import HEADER, HEADER_BYTES, MAGIC, VERSION
from app.store.formats.frame.frame_checks import EMPTY_CHECKSUM
from app.store.formats.record.record import decode_message, encode_properties, encode_record


def request_frame(messages: Sequence[Message], topic: str) -> bytes:
    """A frame to be sent: everything that the server fills is zero."""
    records = [_request_record(message, topic) for message in messages]
    sizes = struct.pack(f">{len(records)}I", *map(len, records))
    rest = sizes + b"".join(records)
    header = HEADER.pack(
        MAGIC, VERSION, 0, 0, len(records), google_crc32c.value(rest), 0, len(rest) - len(sizes)
    )
    return header + rest


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
