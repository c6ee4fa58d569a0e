"""Reads batch frames with nothing but the standard library; see docs/reference/batch-frame.md."""

import struct
import zlib

HEADER = struct.Struct(">4sBBHIIqq")
ANSWER, TAG_HASHES, CRC32, TIMES = 1, 4, 8, 32
TOPIC_LENGTHS = {0xDAA320A7: ">B", 0xDAA320AB: ">H"}
CRC_TABLE = list(range(256))
for _ in range(8):
    CRC_TABLE = [entry >> 1 ^ (0x82F63B78 if entry & 1 else 0) for entry in CRC_TABLE]


def read_frame(data: bytes) -> list[dict]:
    """The records of a request or an answer; `ValueError` or `struct.error` when it is damaged."""
    magic, version, flags, _, count, checksum, _, length = HEADER.unpack_from(data)
    if (magic, version) != (b"CRLW", 1) or flags & ~(ANSWER | TAG_HASHES | CRC32 | TIMES):
        raise ValueError(f"this is no frame of version 1, or its flags {flags} are unknown")
    times_at = HEADER.size + count * (12 if flags & TAG_HASHES else 4)
    at = times_at + (8 * count if flags & TIMES else 0)
    checksum_of = zlib.crc32 if flags & CRC32 else crc32c
    if at + length != len(data) or checksum_of(data[HEADER.size :]) != checksum:
        raise ValueError("the frame is cut short, or its checksum does not match")
    records = []
    for size in struct.unpack_from(f">{count}I", data, HEADER.size):
        records.append(read_record(data[at : at + size]))
        at += size
    if at != len(data):
        raise ValueError("the sizes do not add up")
    if flags & TIMES:  # of a request: epoch ms; negative: so many ms from now; 0: now
        for index, (time,) in enumerate(struct.iter_unpack(">q", data[times_at:][: 8 * count])):
            records[index]["delivery_time"] = time
    return records


def read_record(raw: bytes) -> dict:
    """One record of the log; with system flag 1 its producer has packed the body (zlib)."""
    size, magic, _, queue_id, _, offset, physical, flag, born = struct.unpack_from(">5I2qIq", raw)
    store_time_at = 68 if flag & 0x10 else 56  # hosts are IPv4, or IPv6 by these two flags
    (stored,) = struct.unpack_from(">q", raw, store_time_at)
    body, rest = split(raw[store_time_at + (40 if flag & 0x20 else 28) :], ">I")
    topic, rest = split(rest, TOPIC_LENGTHS.get(magic, ">B"))
    text, rest = split(rest, ">H")
    if rest or size != len(raw) or magic not in TOPIC_LENGTHS:
        raise ValueError("a record has an unknown magic, or its lengths do not add up")
    pairs = [pair.partition("\x01") for pair in text.decode().split("\x02")]
    fields = {"topic": topic.decode(), "queue_id": queue_id, "queue_offset": offset, "body": body}
    fields |= {"physical_offset": physical, "system_flag": flag, "born_time_ms": born}
    properties = {name: value for name, _, value in pairs if name and value}
    return {**fields, "store_time_ms": stored, "properties": properties}


def split(raw: bytes, form: str) -> tuple[bytes, bytes]:
    """What follows a length of this form, and what is behind that."""
    start, (length,) = struct.calcsize(form), struct.unpack_from(form, raw)
    if start + length > len(raw):
        raise ValueError("a length leads out of its record")
    return raw[start : start + length], raw[start + length :]


def crc32c(data: bytes) -> int:
    """CRC-32C (Castagnoli); ?checksum=crc32 spares it, and a package in C is much faster."""
    register = 0xFFFFFFFF
    for byte in data:
        register = register >> 8 ^ CRC_TABLE[(register ^ byte) & 0xFF]
    return register ^ 0xFFFFFFFF
