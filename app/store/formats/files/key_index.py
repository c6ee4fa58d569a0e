"""The key index file: RocketMQ's header, slots and entries. Pure.

    0             header          40   see `IndexHeader`
    40            slots           4 S  number of the newest entry with that slot, 0 when empty
    40 + 4 S      entries         20 E entry n stands at 40 + 4 S + 20 n; entry 0 is never used

    entry   0  key hash            4
            4  physical offset     8
            12 time difference     4   seconds since the header's begin time
            16 previous entry      4   of the same slot, 0 at the end of the chain

Big-endian. A key is indexed as `topic#key`; its hash is the absolute value of Java's string hash
(0 when there is none), its slot the hash modulo S. Different keys may have one hash, so a look-up
compares the real key in the record.
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.domain.message import java_hash

HEADER: Final = struct.Struct(">qqqqii")
HEADER_BYTES: Final = 40
SLOT_BYTES: Final = 4
ENTRY: Final = struct.Struct(">iqii")
ENTRY_BYTES: Final = 20
assert HEADER.size == HEADER_BYTES
assert ENTRY.size == ENTRY_BYTES

ENTRIES: Final = np.dtype(
    [("hash", ">i4"), ("physical_offset", ">i8"), ("seconds", ">i4"), ("previous", ">i4")]
)
assert ENTRIES.itemsize == ENTRY_BYTES

SECONDS_MAX: Final = 0x7FFFFFFF
_U32: Final = 0xFFFFFFFF


class IndexHeader(NamedTuple):
    """What a file's header says. Times in ms, offsets physical."""

    begin_ms: int
    end_ms: int
    begin_offset: int
    end_offset: int
    slots_used: int
    next_entry: int
    """RocketMQ's indexCount: one more than the number of entries."""


def file_bytes(slots: int, entries: int) -> int:
    """Size of an index file; `entries` counts the unused entry 0."""
    return HEADER_BYTES + SLOT_BYTES * slots + ENTRY_BYTES * entries


def slot_at(slot: int) -> int:
    """Byte position of a slot."""
    return HEADER_BYTES + SLOT_BYTES * slot


def entry_at(slots: int, entry: int) -> int:
    """Byte position of an entry."""
    return HEADER_BYTES + SLOT_BYTES * slots + ENTRY_BYTES * entry


def encode_header(header: IndexHeader) -> bytes:
    """The 40 bytes of a header."""
    return HEADER.pack(*header)


def decode_header(data: bytes) -> IndexHeader:
    """The header in the first 40 bytes of `data`."""
    return IndexHeader._make(HEADER.unpack_from(data))


def seconds_since(begin_ms: int, time_ms: int) -> int:
    """The time difference of an entry: whole seconds, clamped to what the field holds."""
    return min(max((time_ms - begin_ms) // 1000, 0), SECONDS_MAX)


def index_key(topic: str, key: str) -> str:
    """What is hashed for a key of a topic."""
    return f"{topic}#{key}"


def key_hashes(texts: Sequence[str]) -> list[int]:
    """The key hash of each text, all computed together."""
    hashes: list[int] = hashed_together(texts).tolist()
    return hashes


def topic_hash(topic: str) -> int:
    """Java's hash of what stands before the keys of a topic, as an unsigned number."""
    return java_hash(index_key(topic, "")) & _U32


def hashed_together(
    keys: Sequence[str], topics: NDArray[np.uint32] | None = None
) -> NDArray[np.int64]:
    """The key hash of each of `keys`, behind its topic, of which `topics` has the `topic_hash`."""
    joined = "".join(keys).encode("utf-16-be", "surrogatepass")
    lengths = np.fromiter(map(len, keys), np.int64, len(keys))
    if 2 * int(lengths.sum()) != len(joined):  # characters of two units
        encoded = [len(text.encode("utf-16-be", "surrogatepass")) // 2 for text in keys]
        lengths = np.array(encoded, np.int64)
    powers = _powers(int(lengths.max(initial=0)))
    units = np.frombuffer(joined, ">u2").astype(np.uint32)
    ends = np.cumsum(lengths)
    units *= powers[np.repeat(ends, lengths) - 1 - np.arange(len(units))]
    sums = np.zeros(len(units) + 1, np.uint32)
    np.cumsum(units, out=sums[1:])
    values = sums[ends] - sums[ends - lengths]
    if topics is not None:
        values += topics * powers[lengths]
    signed = values.view(np.int32).astype(np.int64)
    return np.where(values == 1 << 31, 0, np.abs(signed))


def _powers(highest: int) -> NDArray[np.uint32]:
    """31 to the power of 0, 1, 2 … `highest`, cut to 32 bits as Java does."""
    factors = np.full(highest + 1, 31, np.uint32)
    factors[0] = 1
    return np.cumprod(factors, dtype=np.uint32)


def chained(
    heads: NDArray[np.int32], slots: NDArray[np.int64], numbers: NDArray[np.int32]
) -> NDArray[np.int32]:
    """For new entries, by their slots and numbers, the entry before in the same slot; 0: none.

    `heads` are the slots as they are before.
    """
    previous = heads[slots]
    order = np.argsort(slots, kind="stable")
    follows = np.flatnonzero(slots[order][1:] == slots[order][:-1])
    previous[order[follows + 1]] = numbers[order[follows]]
    return previous


def chain_heads(entries: NDArray[np.void], slots: int) -> NDArray[np.int32]:
    """The slots that belong to the entries 1, 2, 3 … of a file."""
    found = np.zeros(slots, np.int32)
    found[entries["hash"].astype(np.int64) % slots] = np.arange(1, len(entries) + 1)
    return found
