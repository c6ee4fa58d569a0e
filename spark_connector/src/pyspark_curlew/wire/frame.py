"""The batch frame `application/vnd.curlew.batch`: header, sizes, checksum. Version 1, answers only.

    0  magic "CRLW" · 4 version · 5 flags · 6 zero (2) · 8 record count (4) · 12 CRC-32 of all that
    follows the header (4), with flag 8 · 16 first queue offset (8) · 24 bytes of records (8) · 32
    sizes (4 each) · tag hashes (8 each, with flag 4) · the records, back to back. All big-endian.

Of what is inside a record `records` and `parting` know. Invariant of a frame: the checksum held,
and the sizes add up to all of it. The layout is the server's; the constants stand here again
because the connector shares no code with it. Called by `reply`, while a frame comes, and by
`client`.
"""

import struct
import zlib
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pyspark_curlew.errors import FrameDamaged, ProtocolViolation
from pyspark_curlew.wire.parting import Parted, pieces_of, read_parted
from pyspark_curlew.wire.sources import Buffer, InMemory, Source


def _crc32() -> Callable[[Any, int], int]:
    """CRC-32, as of gzip: from ISA-L, or from zlib, which every Python has and which is slower."""
    try:
        from isal.isal_zlib import crc32
    except ImportError:
        return zlib.crc32
    return crc32


crc32: Final = _crc32()

CONTENT_TYPE: Final = "application/vnd.curlew.batch"

HEADER: Final = struct.Struct(">4sBBHIIqq")
MAGIC: Final = b"CRLW"
VERSION: Final = 1
_FLAG_ANSWER: Final = 1
_FLAG_TAG_HASHES: Final = 4
FLAG_CRC32: Final = 8


class Block(NamedTuple):
    """A checked frame, whole. `data` holds the records; `starts` and `sizes` are bytes in it."""

    data: NDArray[np.uint8]
    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]

    @property
    def records(self) -> int:
        return len(self.sizes)


Frame = Block | Parted


def media_type_of(headers: Mapping[str, str]) -> str:
    """What an answer says that its body is: `CONTENT_TYPE` for a frame."""
    return headers.get("content-type", "").partition(";")[0].strip()


def parse_frame(data: Buffer) -> Frame:
    """`read_frame` from memory."""
    return read_frame(InMemory(data), len(data))


def read_frame(source: Source, size: int) -> Frame:
    """Check and open a frame of `size` bytes, which are all taken from `source`.

    Raises `FrameDamaged` (fetch again) or `ProtocolViolation`, with the rest not taken.
    """
    if size < HEADER.size:
        raise FrameDamaged(f"the batch frame ends after {size} bytes, within its header")
    header = source.take(HEADER.size)
    magic, version, flags, _, count, checksum, _, record_bytes = HEADER.unpack(header)
    if magic != MAGIC or version != VERSION:
        raise ProtocolViolation(
            f"the answer is not a batch frame of version {VERSION}"
            f" (it begins with {magic!r}, version {version})"
        )
    if flags & ~_FLAG_TAG_HASHES != _FLAG_ANSWER | FLAG_CRC32:
        raise ProtocolViolation(f"the batch frame has flags {flags:#x}, which were not asked for")
    index_bytes = count * (12 if flags & _FLAG_TAG_HASHES else 4)
    if record_bytes < 0 or size - HEADER.size != index_bytes + record_bytes:
        raise FrameDamaged(
            f"the batch frame has {size - HEADER.size} bytes after its header;"
            f" {index_bytes + record_bytes} were announced"
        )
    index = np.frombuffer(source.take(index_bytes), dtype=np.uint8)
    sizes = index[: 4 * count].view(">u4").astype(np.int64)
    if int(sizes.sum()) != record_bytes:
        raise FrameDamaged("the record sizes of the batch frame do not add up")
    frame, found = _records(source, sizes, crc32(index, 0))
    if found != checksum:
        raise FrameDamaged("the checksum of the batch frame does not match")
    return frame


def _records(source: Source, sizes: NDArray[np.int64], before: int) -> tuple[Frame, int]:
    """The frame, and the checksum of all of it behind the header."""
    pieces = pieces_of(sizes)
    if pieces is None:
        data = np.frombuffer(source.take(int(sizes.sum())), dtype=np.uint8)
        return Block(data, np.cumsum(sizes) - sizes, sizes), crc32(data, before)
    return read_parted(source, sizes, pieces, crc32, before)
