"""Records and batch frames built one by one: the tests' own reading of the layout.

Shares nothing with the connector, so that both would have to be wrong in the same way to agree.
"""

import struct
import zlib
from dataclasses import dataclass

MAGIC_V1 = 0xDAA320A7
MAGIC_V2 = 0xDAA320AB


@dataclass(frozen=True)
class Record:
    """One message; `properties` are the raw bytes between the lengths and the record's end."""

    queue_offset: int
    body: bytes = b""
    properties: bytes = b""
    topic: bytes = b"orders"
    queue: int = 0
    physical_offset: int = 0
    born_ms: int = 1_700_000_000_000
    store_ms: int = 1_700_000_000_005
    wide_topic: bool = False
    born_v6: bool = False
    store_v6: bool = False
    compressed: bool = False

    def encode(self) -> bytes:
        flags = (
            (0x1 if self.compressed else 0)
            | (0x10 if self.born_v6 else 0)
            | (0x20 if self.store_v6 else 0)
        )
        tail = struct.pack(">i", len(self.body)) + self.body
        tail += struct.pack(">H" if self.wide_topic else ">B", len(self.topic)) + self.topic
        tail += struct.pack(">h", len(self.properties)) + self.properties
        middle = struct.pack(
            ">IIIIqqI",
            MAGIC_V2 if self.wide_topic else MAGIC_V1,
            0,
            self.queue,
            0,
            self.queue_offset,
            self.physical_offset,
            flags,
        )
        middle += struct.pack(">q", self.born_ms) + _host(self.born_v6)
        middle += struct.pack(">q", self.store_ms) + _host(self.store_v6)
        middle += struct.pack(">iq", 0, 0)
        return struct.pack(">I", 4 + len(middle) + len(tail)) + middle + tail


def _host(wide: bool) -> bytes:
    return (b"\xfe" * 16 if wide else b"\x7f\x00\x00\x01") + struct.pack(">i", 8710)


def properties(*pairs: tuple[str, str], closed: bool = True) -> bytes:
    text = "\x02".join(f"{name}\x01{value}" for name, value in pairs)
    return (text + ("\x02" if closed and pairs else "")).encode()


def frame(
    records: list[bytes], *, first_offset: int = 0, flags: int = 9, tag_hashes: bool = False
) -> bytes:
    """A frame whose checksum is right; with flag 8 it is CRC-32."""
    payload = b"".join(struct.pack(">I", len(record)) for record in records)
    if tag_hashes:
        flags |= 4
        payload += b"".join(struct.pack(">q", -1) for _ in records)
    block = b"".join(records)
    payload += block
    header = struct.pack(
        ">4sBBHIIqq",
        b"CRLW",
        1,
        flags,
        0,
        len(records),
        zlib.crc32(payload),
        first_offset,
        len(block),
    )
    return header + payload
