"""The batch frame `application/vnd.curlew.batch`: header, sizes, checksum. Version 1, answers only.

    0  magic "CRLW" · 4 version · 5 flags · 6 zero (2) · 8 record count (4) · 12 checksum of all
    that follows the header (4): CRC-32C, or CRC-32 with flag 8 · 16 first queue offset (8) · 24
    bytes of records (8) · 32 sizes (4 each) · tag hashes (8 each, with flag 4) · the records, back
    to back. All big-endian.

Knows nothing of what is inside a record; `records` does. Invariant of `Frame`: the checksum held,
and the sizes add up to the block. The layout is the server's; the constants stand here again
because the connector shares no code with it. Called by `client`.
"""

import struct
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pyspark_curlew.crc32 import crc32
from pyspark_curlew.crc32c import crc32c
from pyspark_curlew.errors import FrameDamaged, ProtocolViolation
from pyspark_curlew.exchange import Buffer

CONTENT_TYPE: Final = "application/vnd.curlew.batch"

_HEADER: Final = struct.Struct(">4sBBHIIqq")
_MAGIC: Final = b"CRLW"
_VERSION: Final = 1
_FLAG_ANSWER: Final = 1
_FLAG_ZSTD: Final = 2
_FLAG_TAG_HASHES: Final = 4
_FLAG_CRC32: Final = 8


class Frame(NamedTuple):
    """A checked frame. `block` holds the records; `starts` and `sizes` are bytes within it."""

    block: NDArray[np.uint8]
    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]

    @property
    def records(self) -> int:
        return len(self.sizes)


def parse_frame(data: Buffer) -> Frame:
    """Check and open a frame; raise `FrameDamaged` (fetch again) or `ProtocolViolation`."""
    if len(data) < _HEADER.size:
        raise FrameDamaged(f"the batch frame ends after {len(data)} bytes, within its header")
    magic, version, flags, _, count, checksum, _, record_bytes = _HEADER.unpack_from(data)
    if magic != _MAGIC or version != _VERSION:
        raise ProtocolViolation(
            f"the answer is not a batch frame of version {_VERSION}"
            f" (it begins with {magic!r}, version {version})"
        )
    if not flags & _FLAG_ANSWER or flags & _FLAG_ZSTD:
        raise ProtocolViolation(f"the batch frame has flags {flags:#x}, which were not asked for")
    payload = np.frombuffer(data, dtype=np.uint8)[_HEADER.size :]
    index_bytes = count * (12 if flags & _FLAG_TAG_HASHES else 4)
    if record_bytes < 0 or len(payload) != index_bytes + record_bytes:
        raise FrameDamaged(
            f"the batch frame has {len(payload)} bytes after its header;"
            f" {index_bytes + record_bytes} were announced"
        )
    found = crc32(payload.data) if flags & _FLAG_CRC32 else crc32c(payload)
    if found != checksum:
        raise FrameDamaged("the checksum of the batch frame does not match")
    return _open(payload, count, index_bytes)


def _open(payload: NDArray[np.uint8], count: int, index_bytes: int) -> Frame:
    sizes = payload[: 4 * count].view(">u4").astype(np.int64)
    block = payload[index_bytes:]
    ends = np.cumsum(sizes)
    if (int(ends[-1]) if count else 0) != len(block):
        raise FrameDamaged("the record sizes of the batch frame do not add up")
    return Frame(block, ends - sizes, sizes)
