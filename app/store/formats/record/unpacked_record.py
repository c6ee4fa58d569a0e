"""Records whose bodies are packed, rewritten with plain ones for readers who do not unpack. Pure.

The rest of a record stays as it is: its place in the log, ids, times and properties. Size,
checksums and the system flag are those of the new body. What does not unpack, or becomes more than
`ratio_max` times as large, stays as it is, and its system flag says so.
"""

import struct
from collections.abc import Collection, Sequence
from typing import Final

import numpy as np

from app.domain.message import StoredEncoding
from app.store.formats.record.checksum import crc32
from app.store.formats.record.compression import (
    PACKING_BITS,
    SYSTEM_FLAG_COMPRESSED,
    encoding_of,
    plain_body,
)
from app.store.formats.record.record import (
    CHECKSUM_BYTES,
    CHECKSUM_NAME,
    CRC_MASK,
    FIXED_BYTES,
    SYSTEM_FLAG_BORN_HOST_V6,
    SYSTEM_FLAG_STORE_HOST_V6,
    checksum_property,
)
from app.store.formats.record.record_block import Flags, Ints

SYSTEM_FLAG_LOW: Final = 39
"""Place of the lowest byte of the system flag."""
_U32: Final = struct.Struct(">I")
_V6_BYTES: Final = 12
"""That an address takes more."""


def are_packed(data: memoryview, starts: Ints) -> Flags:
    """Which of the records that begin at `starts` in `data` have a packed body."""
    flags: Flags = (np.frombuffer(data, np.uint8)[starts + SYSTEM_FLAG_LOW] & 1).astype(bool)
    return flags


def is_packed(record: memoryview | bytes) -> bool:
    """Whether the body of an intact record is packed."""
    return bool(record[SYSTEM_FLAG_LOW] & SYSTEM_FLAG_COMPRESSED)


def unpacked_records(
    records: Sequence[memoryview], taken: Collection[StoredEncoding], ratio_max: int
) -> list[memoryview]:
    """`records` with plain bodies, but for those in an encoding that is `taken`."""
    return [
        memoryview(_unpacked(bytes(record), taken, ratio_max)) if is_packed(record) else record
        for record in records
    ]


def _unpacked(record: bytes, taken: Collection[StoredEncoding], ratio_max: int) -> bytes:
    system_flag = int.from_bytes(record[36:40])
    if encoding_of(system_flag) in taken:
        return record
    start = FIXED_BYTES
    start += _V6_BYTES if system_flag & SYSTEM_FLAG_BORN_HOST_V6 else 0
    start += _V6_BYTES if system_flag & SYSTEM_FLAG_STORE_HOST_V6 else 0
    end = start + int.from_bytes(record[start - 4 : start])
    packed = record[start:end]
    body = plain_body(packed, system_flag, ratio_max * len(packed))
    if body is packed:
        return record
    rest = record[end:]
    has_checksum = rest[-CHECKSUM_BYTES:].startswith(CHECKSUM_NAME)
    covered = b"".join(
        (
            _U32.pack(len(record) - len(packed) + len(body)),
            record[4:8],
            _U32.pack(crc32(body) & CRC_MASK),
            record[12:36],
            _U32.pack(system_flag & ~PACKING_BITS),
            record[40 : start - 4],
            _U32.pack(len(body)),
            body,
            rest[:-CHECKSUM_BYTES] if has_checksum else rest,
        )
    )
    return covered + checksum_property(crc32(covered)) if has_checksum else covered
