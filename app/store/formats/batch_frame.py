"""The batch frame `application/vnd.curlew.batch`: many records in one piece, both directions.

    0   magic "CRLW"          4      16  first queue offset    8   answers; 0 in requests
    4   version 1             1      24  bytes of records      8
    5   flags                 1      32  record sizes          4 n
    6   reserved 0            2      ..  tag hashes            8 n, with flag 4
    8   record count n        4      ..  records in the log's layout, back to back
    12  CRC-32C of what follows the header  4

Big-endian. Flags: 1 answer, 2 whole body zstd (not read by this version), 4 tag hashes follow.

In a request the producer leaves queue id, queue offset, physical offset, store time and store host
zero and ends the properties with `__CRC32#` 0x01, ten zeros, 0x02; `place` fills them, so that no
size changes. A frame is taken only when every size, magic, length and property string checks out;
otherwise `MalformedFrame` names the first bad record and nothing is stored.

The work is done on all records at once with numpy, but for the checksums.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from app.domain.errors import BatchTooLarge, BodyTooLarge, MalformedFrame
from app.domain.limits import Limits
from app.domain.message import RESERVED_PROPERTIES, java_hash
from app.store.formats.checksum import crc32
from app.store.formats.consume_queue import UNITS
from app.store.formats.record import (
    CHECKSUM_BYTES,
    CHECKSUM_NAME,
    CRC_MASK,
    FIXED_BYTES,
    MAGIC_V1,
    RECORD_OVERHEAD_BYTES,
)
from app.store.formats.record_block import HEAD, HEAD_BYTES, windows

HEADER: Final = struct.Struct(">4sBBHIIqq")
HEADER_BYTES: Final = 32
assert HEADER.size == HEADER_BYTES

MAGIC: Final = b"CRLW"
VERSION: Final = 1
FLAG_ANSWER: Final = 1
FLAG_ZSTD: Final = 2
FLAG_TAG_HASHES: Final = 4

EMPTY_CHECKSUM: Final = CHECKSUM_NAME + b"0000000000\x02"
_TAKEN_FROM_CLIENTS: Final = frozenset(
    {"KEYS", "TAGS", "UNIQ_KEY", "__SHARDINGKEY", "MQ_CONTENT_TYPE"}
)
_REFUSED_NAMES: Final = {
    length: np.array(
        [
            np.frombuffer(name.encode(), np.uint8)
            for name in sorted(RESERVED_PROPERTIES - _TAKEN_FROM_CLIENTS)
            if len(name) == length and name != "__CRC32#"
        ]
    )
    for length in {len(name) for name in RESERVED_PROPERTIES - _TAKEN_FROM_CLIENTS - {"__CRC32#"}}
}
_EMPTY: Final = np.frombuffer(EMPTY_CHECKSUM, np.uint8)
_ZERO_FIELDS: Final = (
    (12, 4, "queue id"),
    (20, 8, "queue offset"),
    (28, 8, "physical offset"),
    (36, 4, "system flag"),
    (56, 8, "store time"),
    (64, 8, "store host"),
    (72, 4, "reconsume times"),
    (76, 8, "prepared offset"),
)
_ZERO_RANGES: Final = ((12, 16), (20, 40), (56, 84))
"""The same in one piece each."""
_THREE_DIGITS: Final = np.array([list(b"%03d" % number)[::-1] for number in range(1000)], np.uint8)
"""The digits of each number below 1,000, the least significant first."""


Ints = NDArray[np.int64]


@dataclass(slots=True)
class RequestFrame:
    """A request frame that has been checked. We may write into `records`; arrays have n items."""

    records: bytearray
    sizes: Ints
    positions: Ints
    """Start of each record in `records`."""
    body_lengths: Ints
    tag_hashes: Ints
    keyed: list[tuple[int, str]]
    """Keys for the index, as (number of the record, key), in rising order."""

    @property
    def count(self) -> int:
        """Number of records, at least 1."""
        return len(self.sizes)

    def without(self, skip: int) -> "RequestFrame":
        """The frame without its first `skip` records; less than all."""
        at = int(self.positions[skip])
        return RequestFrame(
            self.records[at:],
            self.sizes[skip:],
            self.positions[skip:] - at,
            self.body_lengths[skip:],
            self.tag_hashes[skip:],
            [(number - skip, key) for number, key in self.keyed if number >= skip],
        )

    def units(self, physical_offsets: Sequence[int]) -> bytes:
        """The consume-queue units of all records at the positions they were given."""
        units = np.empty(self.count, UNITS)
        units["physical_offset"] = physical_offsets
        units["size"] = self.sizes
        units["tag_hash"] = self.tag_hashes
        return units.tobytes()


def parse_request(body: bytes, *, topic: str, limits: Limits) -> RequestFrame:
    """Check a request frame whole. Every record must name `topic`."""
    count, flags, records_bytes = _check_header(body, limits)
    sizes_end = HEADER_BYTES + 4 * count
    hashes_end = sizes_end + (8 * count if flags & FLAG_TAG_HASHES else 0)
    if hashes_end + records_bytes != len(body):
        raise MalformedFrame(
            f"the frame has {len(body)} bytes; its header promises {hashes_end + records_bytes}",
            fields={"index": 0},
        )
    sizes = np.frombuffer(body, ">u4", count, HEADER_BYTES).astype(np.int64)
    if int(sizes.sum()) != records_bytes:
        raise MalformedFrame("the record sizes do not add up", fields={"index": 0})
    records = bytearray(memoryview(body)[hashes_end:])
    positions = np.cumsum(sizes) - sizes
    data = np.frombuffer(records, np.uint8)
    body_lengths = _check_fields(data, positions, sizes, topic.encode(), limits)
    properties, ends = _gather_properties(data, records, positions, sizes, len(topic), body_lengths)
    starts, separators = _check_pairs(properties, ends)
    if flags & FLAG_TAG_HASHES:
        tag_hashes = np.frombuffer(body, ">i8", count, sizes_end).astype(np.int64)
    else:
        tag_hashes = _tag_hashes(properties, starts, separators, ends)
    keyed = _keys(properties, starts, separators, ends)
    return RequestFrame(records, sizes, positions, body_lengths, tag_hashes, keyed)


def place(
    frame: RequestFrame,
    *,
    queue_id: int,
    first_queue_offset: int,
    physical_offsets: Sequence[int],
    store_time_ms: int,
    store_host: bytes,
    synced_end: int = 0,
) -> None:
    """Fill the fields that the server assigns, the checksums last."""
    view = memoryview(frame.records)
    array = np.frombuffer(frame.records, np.uint8)
    rows = windows(array, HEAD_BYTES)
    heads = rows[frame.positions].view(HEAD).ravel()
    bodies = frame.positions + HEAD_BYTES
    ends = bodies + frame.body_lengths
    heads["body_crc"] = _checksums(view, bodies, ends)
    heads["queue_id"] = queue_id
    heads["queue_offset"] = first_queue_offset + np.arange(frame.count)
    heads["physical_offset"] = physical_offsets
    heads["system_flag"] = 0
    heads["born_time_ms"][heads["born_time_ms"] == 0] = store_time_ms
    heads["store_time_ms"] = store_time_ms
    heads["store_host"] = np.frombuffer(store_host, "V8")
    heads["prepared_offset"] = synced_end
    rows[frame.positions] = heads.view(np.uint8).reshape(-1, HEAD_BYTES)
    tails = frame.positions + frame.sizes - CHECKSUM_BYTES
    sums = _checksums(view, frame.positions, tails)
    windows(array, 10)[tails + len(CHECKSUM_NAME)] = _digits(sums)


def _digits(sums: Ints) -> NDArray[np.uint8]:
    """Ten decimal digits of each sum, the least significant first."""
    digits = np.empty((len(sums), 10), np.uint8)
    rest = sums
    for at in (0, 3, 6):
        rest, low = np.divmod(rest, 1000)
        digits[:, at : at + 3] = _THREE_DIGITS[low]
    digits[:, 9] = rest + ord("0")
    return digits


def _checksums(view: memoryview, starts: Ints, ends: Ints) -> Ints:
    """The CRC-32 of each range, without its highest bit."""
    ranges = zip(starts.tolist(), ends.tolist(), strict=True)
    return np.array([crc32(view[start:end]) for start, end in ranges], np.int64) & CRC_MASK


def encode_answer(
    sizes: Ints, tag_hashes: Sequence[int], records: bytes | memoryview, first_queue_offset: int
) -> bytes:
    """An answer frame around stored records up to these, which follow it: they are not copied."""
    columns = sizes.astype(">u4").tobytes() + np.asarray(tag_hashes, ">i8").tobytes()
    # The checksum takes arrays and bytes, and no views.
    data = np.frombuffer(records, np.uint8)
    header = HEADER.pack(
        MAGIC,
        VERSION,
        FLAG_ANSWER | FLAG_TAG_HASHES,
        0,
        len(sizes),
        google_crc32c.extend(google_crc32c.value(columns), data),
        first_queue_offset,
        len(records),
    )
    return header + columns


def _check_header(body: bytes, limits: Limits) -> tuple[int, int, int]:
    """`(count, flags, bytes of records)` of an acceptable request header."""
    if len(body) < HEADER_BYTES:
        raise MalformedFrame(f"a frame has at least {HEADER_BYTES} bytes, this one {len(body)}")
    header = HEADER.unpack_from(body)
    magic, version, flags, reserved, count, checksum, first, records_bytes = header
    if magic != MAGIC or version != VERSION or reserved:
        raise MalformedFrame(
            "this is no batch frame of version 1", hint="the first five bytes are 'CRLW' and 1"
        )
    if flags & ~FLAG_TAG_HASHES or first:
        raise MalformedFrame(
            f"flags {flags} or first queue offset {first} are not for requests",
            hint="of the flags only 4 (tag hashes) is taken, and the first queue offset is 0",
        )
    if not 0 < count <= limits.batch_messages_max:
        raise BatchTooLarge(f"{count} records; a batch has 1 to {limits.batch_messages_max}")
    if records_bytes < 0 or len(body) < HEADER_BYTES + 4 * count:
        raise MalformedFrame("the frame is cut short", fields={"index": 0})
    if google_crc32c.value(body[HEADER_BYTES:]) != checksum:
        raise MalformedFrame("the checksum does not match", hint="CRC-32C of all after the header")
    return count, flags, records_bytes


def _bad(wrong: NDArray[np.bool_], detail: str) -> None:
    """Raise `MalformedFrame` for the first record that is marked in `wrong`."""
    if wrong.any():
        index = int(wrong.argmax())
        raise MalformedFrame(f"record {index}: {detail}", fields={"index": index})


def _field(data: NDArray[np.uint8], positions: Ints, offset: int, size: int) -> Ints:
    """Big-endian unsigned integers of `size` bytes at `offset` behind each position."""
    value = np.zeros(len(positions), np.int64)
    for byte in range(size):
        value = (value << 8) | data[positions + (offset + byte)]
    return value


def _check_fields(
    data: NDArray[np.uint8], positions: Ints, sizes: Ints, topic: bytes, limits: Limits
) -> Ints:
    """Check the fixed fields, the topic and the lengths of every record; the body lengths."""
    overhead = RECORD_OVERHEAD_BYTES + len(topic)
    _bad(sizes < overhead, f"a record for this topic has at least {overhead} bytes")
    rows = windows(data, HEAD_BYTES)[positions]
    heads = rows.view(HEAD).ravel()
    _bad(heads["total_size"] != sizes, "its first field is not its size")
    _bad(heads["magic"] != MAGIC_V1, "wrong magic")
    for start, end in _ZERO_RANGES:
        if rows[:, start:end].any():
            for offset, size, name in _ZERO_FIELDS:
                _bad(_field(data, positions, offset, size) != 0, f"{name} is not 0")
    body_lengths: Ints = heads["body_length"].astype(np.int64) & 0xFFFFFFFF
    _bad(body_lengths > sizes - overhead, "the body is longer than the record")
    if int(body_lengths.max()) > limits.body_bytes_max:
        raise BodyTooLarge(
            f"record {int(body_lengths.argmax())} has a body over {limits.body_bytes_max} bytes",
            fields={"limit_bytes": limits.body_bytes_max},
        )
    topic_starts = positions + FIXED_BYTES + body_lengths
    part = np.frombuffer(bytes((len(topic),)) + topic, np.uint8)
    named = (windows(data, len(part))[topic_starts] == part).all(axis=1)
    _bad(~named, "it names another topic")
    lengths = _field(data, topic_starts, 1 + len(topic), 2)
    _bad(lengths != sizes - FIXED_BYTES - 3 - len(topic) - body_lengths, "the lengths differ")
    _bad(lengths - CHECKSUM_BYTES > limits.properties_bytes_max, "the properties are too large")
    tails = positions + sizes - CHECKSUM_BYTES
    ended = (windows(data, CHECKSUM_BYTES)[tails] == _EMPTY).all(axis=1)
    _bad(~ended, "it does not end with the empty checksum property")
    return body_lengths


def _gather_properties(
    data: NDArray[np.uint8],
    records: bytearray,
    positions: Ints,
    sizes: Ints,
    topic_length: int,
    body_lengths: Ints,
) -> tuple[bytes, Ints]:
    """All properties strings without their checksums in one piece, and where each record's ends."""
    starts = positions + FIXED_BYTES + body_lengths + 3 + topic_length
    ends = positions + sizes - CHECKSUM_BYTES
    _bad((starts < ends) & (data[ends - 1] != 2), "the last property does not end with 0x02")
    view = memoryview(records)
    properties = b"".join(
        [view[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
    )
    try:
        properties.decode()
    except UnicodeDecodeError as error:
        index = int(np.searchsorted(np.cumsum(ends - starts), error.start, "right"))
        raise MalformedFrame(
            f"record {index}: the properties are not UTF-8", fields={"index": index}
        ) from error
    return properties, np.cumsum(ends - starts)


def _check_pairs(properties: bytes, ends: Ints) -> tuple[Ints, Ints]:
    """Where every pair and its separator stand; each has a name, a value and no reserved name."""
    data = np.frombuffer(properties, np.uint8)
    pair_ends = np.flatnonzero(data == 2)
    separators = np.flatnonzero(data == 1)
    starts = np.concatenate((np.zeros(1, np.int64), pair_ends[:-1] + 1))[: len(pair_ends)]
    chosen = np.searchsorted(separators, starts)
    padded = np.append(separators, len(data))
    first = padded[chosen]
    wrong = (first >= pair_ends - 1) | (first == starts)
    lengths = first - starts
    for length in _REFUSED_NAMES.keys() & set(lengths.tolist()):
        at = np.flatnonzero(lengths == length)
        names = windows(data, length)[starts[at]]
        refused = _REFUSED_NAMES[length][None]
        wrong[at] |= (names[:, None, :] == refused).all(axis=2).any(axis=1)
    if wrong.any():
        index = int(np.searchsorted(ends, starts[int(wrong.argmax())], "right"))
        raise MalformedFrame(
            f"record {index}: a property is empty or has a reserved name", fields={"index": index}
        )
    return starts, first


def _tag_hashes(properties: bytes, starts: Ints, separators: Ints, ends: Ints) -> Ints:
    """Java's hash of the TAGS property of each record, 0 without one."""
    hashes = np.zeros(len(ends), np.int64)
    known: dict[bytes, int] = {}
    for pair in np.flatnonzero(separators - starts == 4).tolist():
        start = int(starts[pair])
        if properties[start : start + 4] != b"TAGS":
            continue
        tag = properties[start + 5 : properties.index(2, start)]
        if tag not in known:
            known[tag] = java_hash(tag.decode())
        hashes[int(np.searchsorted(ends, start, "right"))] = known[tag]
    return hashes


def _keys(properties: bytes, starts: Ints, separators: Ints, ends: Ints) -> list[tuple[int, str]]:
    """UNIQ_KEY and the words of KEYS of each record that has them."""
    if b"KEYS\x01" not in properties and b"UNIQ_KEY\x01" not in properties:
        return []
    found: list[tuple[int, str]] = []
    lengths = separators - starts
    for pair in np.flatnonzero((lengths == 4) | (lengths == 8)).tolist():
        start, separator = int(starts[pair]), int(separators[pair])
        name = properties[start:separator]
        if name in (b"KEYS", b"UNIQ_KEY"):
            text = properties[separator + 1 : properties.index(2, separator)].decode()
            record = int(np.searchsorted(ends, start, "right"))
            words = text.split(" ") if name == b"KEYS" else [text]
            found += [(record, word) for word in words if word]
    return found
