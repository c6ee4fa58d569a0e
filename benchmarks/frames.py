"""Request frames of the batch format, made by `struct` alone, as any client could."""

import struct

import google_crc32c


def request_record(topic: str, body: bytes) -> bytes:
    """One record as a producer sends it."""
    properties = b"__CRC32#\x010000000000\x02"
    name = topic.encode()
    tail = bytes([len(name)]) + name + struct.pack(">H", len(properties)) + properties
    head = struct.pack(">II", 88 + len(body) + len(tail), 0xDAA320A7) + bytes(76)
    return head + struct.pack(">I", len(body)) + body + tail


def request_frame(records: list[bytes]) -> bytes:
    """A frame of records without tags."""
    count = len(records)
    rest = struct.pack(f">{count}I", *map(len, records)) + bytes(8 * count) + b"".join(records)
    size = sum(map(len, records))
    head = struct.pack(">4sBBHII", b"CRLW", 1, 4, 0, count, google_crc32c.value(rest))
    return head + struct.pack(">qq", 0, size) + rest
