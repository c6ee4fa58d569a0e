"""The batch frame `application/vnd.curlew.batch`: many records in one piece, both directions.

    0   magic "CRLW"          4      16  first queue offset    8   answers; 0 in requests
    4   version 1             1      24  bytes of records      8
    5   flags                 1      32  record sizes          4 n
    6   reserved 0            2      ..  tag hashes            8 n, with flag 4
    8   record count n        4      ..  delivery times        8 n, with flag 32
    12  CRC-32C of what follows the header  4
                                     ..  records in the log's layout, back to back

Big-endian. Flags: 1 answer, 2 whole body zstd (not read by this version), 4 tag hashes follow,
8 the checksum is CRC-32 instead (in answers for who asked for it), 32 delivery times follow
(requests only; 16 is not used).

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

from app.domain.errors import BatchTooLarge, MalformedFrame
from app.domain.limits import Limits
from app.store.formats.files.consume_queue import UNITS
from app.store.formats.frame.crc_batch import Sums, add_columns, add_parts
from app.store.formats.frame.request_records import (
    Properties,
    check_heads,
    check_rest,
    gather_properties,
    look_into,
    same_or_each,
)
from app.store.formats.record.checksum import crc32, crc32_combine
from app.store.formats.record.record import CHECKSUM_BYTES, CHECKSUM_NAME, CRC_MASK
from app.store.formats.record.record_block import HEAD, HEAD_BYTES, Ints, RecordTable

HEADER: Final = struct.Struct(">4sBBHIIqq")
HEADER_BYTES: Final = 32
assert HEADER.size == HEADER_BYTES

MAGIC: Final = b"CRLW"
VERSION: Final = 1
FLAG_ANSWER: Final = 1
FLAG_TAG_HASHES: Final = 4
FLAG_CRC32: Final = 8
FLAG_DELIVERY_TIMES: Final = 32
_OF_ANSWERS: Final = FLAG_ANSWER | FLAG_TAG_HASHES
_OF_REQUESTS: Final = FLAG_TAG_HASHES | FLAG_CRC32 | FLAG_DELIVERY_TIMES

_DIFFERING: Final = slice(8, 56)
"""Where the heads of records may differ that are alike and placed: from the body's checksum to the
born host. What is in front and behind is the same for all; a multiple of eight bytes."""
assert HEAD.fields is not None
assert _DIFFERING.start == HEAD.fields["body_crc"][1]
assert _DIFFERING.stop == HEAD.fields["store_time_ms"][1]

_THREE_DIGITS: Final = np.frombuffer(
    b"".join([(b"%03d" % number)[::-1] + b"0" for number in range(1000)]), np.uint32
)
"""The digits of each number below 1,000, the least significant first; a fourth byte fills up."""


@dataclass(slots=True)
class RequestFrame:
    """A request frame that has been checked. We may write into `records`; arrays have n items."""

    records: memoryview
    sizes: Ints
    positions: Ints
    """Start of each record in `records`."""
    body_lengths: Ints
    tag_hashes: Ints
    keyed: list[tuple[int, list[str]]]
    """Keys for the index, as (number of the record, its keys), in rising order."""
    are_alike: bool
    """All have one size, and bodies of one length with the same bytes behind them."""
    delivery_times: Ints | None = None
    """When each record is delivered: epoch ms, negative for so many ms from now, 0 for now; None:
    all now."""

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
            [(number - skip, keys) for number, keys in self.keyed if number >= skip],
            self.are_alike,
            None if self.delivery_times is None else self.delivery_times[skip:],
        )

    def units(self, physical_offsets: Ints | Sequence[int]) -> bytes:
        """The consume-queue units of all records at the positions they were given."""
        units = np.empty(self.count, UNITS)
        units["physical_offset"] = physical_offsets
        units["size"] = self.sizes
        units["tag_hash"] = self.tag_hashes
        return units.tobytes()


@dataclass(slots=True)
class OpenedFrame:
    """A request frame whose records are whole and where they should be. What they have for
    properties has not been looked into, which takes longest where these differ."""

    records: memoryview
    sizes: Ints
    positions: Ints
    body_lengths: Ints
    tag_hashes: Ints | None
    properties: Properties
    are_alike: bool
    delivery_times: Ints | None

    def checked(self, limits: Limits) -> RequestFrame:
        """The frame, once its properties are good, too."""
        tag_hashes, keyed = look_into(self.properties, self.tag_hashes, limits)
        return RequestFrame(
            *(self.records, self.sizes, self.positions, self.body_lengths),
            *(tag_hashes, keyed, self.are_alike, self.delivery_times),
        )


def parse_request(
    body: bytes | bytearray | memoryview, *, topic: str, limits: Limits
) -> RequestFrame:
    """Check a request frame whole. Every record must name `topic`.

    What can be written to is ours from here on: the records are not copied out of it.
    """
    return open_request(body, topic=topic, limits=limits).checked(limits)


def open_request(
    body: bytes | bytearray | memoryview, *, topic: str, limits: Limits
) -> OpenedFrame:
    """The first part of `parse_request`."""
    count, flags, records_bytes = _check_header(body, limits)
    sizes_end = HEADER_BYTES + 4 * count
    hashes_end = sizes_end + (8 * count if flags & FLAG_TAG_HASHES else 0)
    lead = hashes_end + (8 * count if flags & FLAG_DELIVERY_TIMES else 0)
    if lead + records_bytes != len(body):
        raise MalformedFrame(
            f"the frame has {len(body)} bytes; its header promises {lead + records_bytes}",
            fields={"index": 0},
        )
    sizes = np.frombuffer(body, ">u4", count, HEADER_BYTES).astype(np.int64)
    if int(sizes.sum()) != records_bytes:
        raise MalformedFrame("the record sizes do not add up", fields={"index": 0})
    records = memoryview(body)[lead:]
    if records.readonly:
        records = memoryview(bytearray(records))
    table = RecordTable(records, np.cumsum(sizes) - sizes, sizes)
    name = topic.encode()
    heads = table.all_or_one(0, HEAD_BYTES)
    body_lengths = np.broadcast_to(check_heads(heads, name, limits), (count,))
    length = same_or_each(body_lengths)
    rest = table.all_or_one(HEAD_BYTES + length) if isinstance(length, int) else table
    check_rest(rest, name, body_lengths[: len(rest.sizes)], limits)
    tag_hashes = None
    if flags & FLAG_TAG_HASHES:
        tag_hashes = np.frombuffer(body, ">i8", count, sizes_end).astype(np.int64)
    properties = gather_properties(rest, len(topic), body_lengths[: len(rest.sizes)], count)
    times = None
    if flags & FLAG_DELIVERY_TIMES:
        times = np.frombuffer(body, ">i8", count, hashes_end).astype(np.int64)
        times = times if times.any() else None
    are_alike = len(rest.sizes) == 1
    return OpenedFrame(
        records, sizes, table.positions, body_lengths, tag_hashes, properties, are_alike, times
    )


def place(
    frame: RequestFrame,
    *,
    queue_id: int,
    first_queue_offset: int,
    physical_offsets: Ints | Sequence[int],
    store_time_ms: int,
    store_host: bytes,
    synced_end: int = 0,
    crc_batch: bool = True,
) -> None:
    """Fill the fields that the server assigns, the checksums last.

    `crc_batch`: those of records that are alike may be derived from that of the first.
    """
    view = frame.records
    table = RecordTable(view, frame.positions, frame.sizes)
    rows = table.column(0, HEAD_BYTES)
    heads = rows.view(HEAD)[:, 0]
    body_sums = _body_checksums(table, frame.body_lengths)
    heads["body_crc"] = body_sums & np.uint32(CRC_MASK)
    heads["queue_id"] = queue_id
    heads["queue_offset"] = np.arange(first_queue_offset, first_queue_offset + frame.count)
    heads["physical_offset"] = physical_offsets
    heads["born_time_ms"][heads["born_time_ms"] == 0] = store_time_ms
    heads["store_time_ms"] = store_time_ms
    heads["store_host"] = np.frombuffer(store_host, "V8")
    heads["prepared_offset"] = synced_end
    table.put(0, rows)
    tails = frame.positions + frame.sizes - CHECKSUM_BYTES
    if crc_batch and frame.are_alike:
        sums = _even_checksums(table, int(frame.body_lengths[0]), body_sums)
    else:
        sums = _checksums(view, frame.positions, tails)
    digits = _digits(sums & np.uint32(CRC_MASK))
    digits_at = same_or_each(frame.sizes) - CHECKSUM_BYTES + len(CHECKSUM_NAME)
    column = table.column(digits_at, 10)
    column[:] = digits
    table.put(digits_at, column)


def _digits(sums: Sums) -> NDArray[np.uint8]:
    """Ten decimal digits of each sum, the least significant first."""
    count = len(sums)
    digits = np.empty((count, 12), np.uint8)
    rest = sums
    for at in (0, 3, 6):  # each writes four bytes, of which the next one has the last
        higher = rest // np.uint32(1000)
        four = np.ndarray((count,), np.uint32, digits, at, (12,))
        four[:] = _THREE_DIGITS.take(rest - higher * np.uint32(1000))
        rest = higher
    digits[:, 9] = rest + ord("0")
    return digits[:, :10]


def _body_checksums(table: RecordTable, body_lengths: Ints) -> Sums:
    """The CRC-32 of each body."""
    length = same_or_each(body_lengths)
    if isinstance(length, int) and length:
        pieces = table.pieces(HEAD_BYTES, length)
        if pieces is not None:
            return np.fromiter(map(crc32, pieces), np.uint32, len(pieces))
    starts = table.positions + HEAD_BYTES
    return _checksums(table.data.data, starts, starts + body_lengths)


def _checksums(view: memoryview, starts: Ints, ends: Ints) -> Sums:
    """The CRC-32 of each range."""
    ranges = zip(starts.tolist(), ends.tolist(), strict=True)
    sums = (crc32(view[start:end]) for start, end in ranges)
    return np.fromiter(sums, np.uint32, len(starts))


def _even_checksums(table: RecordTable, body_length: int, body_sums: Sums) -> Sums:
    """The CRC-32 of each record up to its checksum, for records that are alike."""
    covered = int(table.sizes[0]) - CHECKSUM_BYTES
    sums = np.full(len(table.sizes), crc32(table.data.data[:covered]), np.uint32)
    add_columns(sums, table.column(0, HEAD_BYTES)[:, _DIFFERING], covered - _DIFFERING.stop)
    add_parts(sums, body_sums, covered - HEAD_BYTES - body_length)
    return sums


def encode_answer(
    sizes: Ints,
    tag_hashes: Sequence[int],
    records: Sequence[bytes | memoryview],
    first_queue_offset: int,
    *,
    with_crc32: bool = False,
) -> bytes:
    """An answer frame around stored records up to these, which follow it: they are not copied.

    `records` may come in any number of buffers, cut anywhere.
    """
    columns = _columns(sizes, tag_hashes)
    if with_crc32:
        checksum = crc32(columns)
        for part in records:
            checksum = crc32(part, checksum)
    else:
        checksum = _crc32c(columns, records)
    flags = FLAG_CRC32 if with_crc32 else 0
    return _answer(columns, flags, checksum, first_queue_offset, sizes)


def encode_answer_columns(
    columns: bytes,
    records: Sequence[bytes | memoryview],
    count: int,
    records_bytes: int,
    first_queue_offset: int,
) -> bytes:
    """What `encode_answer` gives for `count` records of so many bytes together, with the sizes and
    hashes of their tags as they stand in a frame."""
    checksum = _crc32c(columns, records)
    return _headed(columns, 0, checksum, count, first_queue_offset, records_bytes)


def encode_answer_unseen(
    sizes: Ints, tag_hashes: Sequence[int], records_crc32: int, first_queue_offset: int
) -> bytes:
    """The same around records that have this CRC-32 together and are not looked at."""
    columns = _columns(sizes, tag_hashes)
    checksum = crc32_combine(crc32(columns), records_crc32, int(sizes.sum()))
    return _answer(columns, FLAG_CRC32, checksum, first_queue_offset, sizes)


def _crc32c(columns: bytes, records: Sequence[bytes | memoryview]) -> int:
    checksum: int = google_crc32c.value(columns)
    for part in records:
        # The checksum takes arrays and bytes, and no views.
        checksum = google_crc32c.extend(checksum, np.frombuffer(part, np.uint8))
    return checksum


def _columns(sizes: Ints, tag_hashes: Sequence[int]) -> bytes:
    return sizes.astype(">u4").tobytes() + np.asarray(tag_hashes, ">i8").tobytes()


def _answer(columns: bytes, flags: int, checksum: int, first: int, sizes: Ints) -> bytes:
    return _headed(columns, flags, checksum, len(sizes), first, int(sizes.sum()))


def _headed(columns: bytes, flags: int, checksum: int, count: int, first: int, total: int) -> bytes:
    flags |= _OF_ANSWERS
    return HEADER.pack(MAGIC, VERSION, flags, 0, count, checksum, first, total) + columns


def _check_header(body: bytes | bytearray | memoryview, limits: Limits) -> tuple[int, int, int]:
    """`(count, flags, bytes of records)` of an acceptable request header."""
    if len(body) < HEADER_BYTES:
        raise MalformedFrame(f"a frame has at least {HEADER_BYTES} bytes, this one {len(body)}")
    header = HEADER.unpack_from(body)
    magic, version, flags, reserved, count, checksum, first, records_bytes = header
    if magic != MAGIC or version != VERSION or reserved:
        raise MalformedFrame(
            "this is no batch frame of version 1", hint="the first five bytes are 'CRLW' and 1"
        )
    if flags & ~_OF_REQUESTS or first:
        raise MalformedFrame(
            f"flags {flags} or first queue offset {first} are not for requests",
            hint="flags 4 (tag hashes), 8 (CRC-32) and 32 (delivery times) are taken, and the first"
            " queue offset 0",
        )
    if not 0 < count <= limits.batch_messages_max:
        raise BatchTooLarge(f"{count} records; a batch has 1 to {limits.batch_messages_max}")
    if records_bytes < 0 or len(body) < HEADER_BYTES + 4 * count:
        raise MalformedFrame("the frame is cut short", fields={"index": 0})
    covered = np.frombuffer(body, np.uint8, -1, HEADER_BYTES)
    if (crc32(covered) if flags & FLAG_CRC32 else google_crc32c.extend(0, covered)) != checksum:
        raise MalformedFrame(
            "the checksum does not match",
            hint="CRC-32C of all after the header; with flag 8 CRC-32, as of gzip",
        )
    return count, flags, records_bytes
