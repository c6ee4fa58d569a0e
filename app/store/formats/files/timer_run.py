"""A run of the timer log: entries in the order of their due times, in one file. Pure.

    0                entries, 16 bytes each: due time in ms 8, twice the queue offset plus 0 or 1, 8
    16 n             one row for each block of 4,096 entries: its first entry 16, CRC-32C 4, zeros 4
    16 n + 24 b      magic "CRLT" 4, version 4, n 8, CRC-32C of the rows 4, zeros 4

Big-endian. An entry whose second number is even says that the record at this offset of the timer
topic waits for its due time; with the odd number behind it, it does so no more. So an entry sorts
directly before the one that takes it back, and runs of any age are merged by sorting.
"""

import struct
from typing import Final, NamedTuple

import google_crc32c
import msgspec
import numpy as np
import numpy.typing as npt

from app.store.formats.files.state_file import decode_document, encode_document

Rows = npt.NDArray[np.int64]
"""Shape (n, 2): due time in ms, code. Sorted by both."""

BLOCK_ENTRIES: Final = 4096
ENTRY_BYTES: Final = 16
BLOCK_BYTES: Final = BLOCK_ENTRIES * ENTRY_BYTES
TRAILER: Final = struct.Struct(">4sIQII")
MAGIC: Final = b"CRLT"
VERSION: Final = 1
KIND_MANIFEST: Final = b"CRLW"

_STORED: Final = np.dtype(">i8")
_BLOCK_ROWS: Final = np.dtype([("due", ">i8"), ("code", ">i8"), ("crc", ">u4"), ("zero", ">u4")])


class RunDamaged(ValueError):
    """The bytes are not those of an intact run."""


class RunIndex(NamedTuple):
    """What is kept in memory of a run: the first entry and the checksum of each block."""

    entries: int
    due: npt.NDArray[np.int64]
    code: npt.NDArray[np.int64]
    crc: npt.NDArray[np.int64]


class TimerManifest(msgspec.Struct, frozen=True):
    """Which runs make up the timer log, and how far they go."""

    watermark: int
    """The runs say everything that the records below this offset of the timer topic say."""
    runs: tuple[int, ...]
    """Numbers of the files, oldest first."""
    blocks: tuple[tuple[int, int], ...]
    """Block of offsets, and how many records of it wait."""
    next_run: int
    topics: dict[str, int]
    """For each topic, how many records wait to go there."""
    made_from: int = 0
    """Of records below this offset the runs know nothing: they had ended before."""


def encode_manifest(manifest: TimerManifest) -> bytes:
    """The bytes of a manifest file."""
    return encode_document(KIND_MANIFEST, manifest)


def decode_manifest(data: bytes) -> TimerManifest:
    """The manifest in `data`, or `StateFileError`."""
    return decode_document(KIND_MANIFEST, data, TimerManifest)


def encode_block(rows: Rows) -> bytes:
    """Up to `BLOCK_ENTRIES` entries."""
    return rows.astype(_STORED).tobytes()


def decode_block(data: bytes, crc: int) -> Rows:
    """The entries of one block, or `RunDamaged`."""
    if len(data) % ENTRY_BYTES or not data or google_crc32c.value(data) != crc:
        raise RunDamaged("a block does not match its checksum")
    return np.frombuffer(data, _STORED).reshape(-1, 2).astype(np.int64)


class RunTail:
    """Collects, while the blocks of a run are written, what stands behind them."""

    def __init__(self) -> None:
        self.count = 0
        self._firsts: list[tuple[int, int, int, int]] = []

    def add(self, rows: Rows, block: bytes) -> None:
        due, code = rows[0].tolist()
        self._firsts.append((due, code, google_crc32c.value(block), 0))
        self.count += len(rows)

    def encode(self) -> bytes:
        rows = np.array(self._firsts, _BLOCK_ROWS).tobytes()
        return rows + TRAILER.pack(MAGIC, VERSION, self.count, google_crc32c.value(rows), 0)


def decode_trailer(data: bytes, file_bytes: int) -> tuple[int, int]:
    """From a file's last bytes and its size: number of entries, CRC of the block rows."""
    if len(data) != TRAILER.size:
        raise RunDamaged("the file is too short")
    magic, version, count, crc, _ = TRAILER.unpack(data)
    blocks = -(-count // BLOCK_ENTRIES)
    size = count * ENTRY_BYTES + blocks * _BLOCK_ROWS.itemsize + TRAILER.size
    if magic != MAGIC or version != VERSION or size != file_bytes:
        raise RunDamaged("the file is not an intact run")
    return count, crc


def decode_index(data: bytes, count: int, crc: int) -> RunIndex:
    """The rows of the blocks, which stand before the trailer."""
    if google_crc32c.value(data) != crc:
        raise RunDamaged("the rows of the blocks do not match their checksum")
    rows = np.frombuffer(data, _BLOCK_ROWS)
    due, code, crcs = (rows[name].astype(np.int64) for name in ("due", "code", "crc"))
    return RunIndex(count, due, code, crcs)
