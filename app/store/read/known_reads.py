"""Reading a little of many queues at once, where all of it is known to be good already.

A poll takes a few messages from each of its queues. What is done for each record is done once for
the records of all queues; what is left for a queue are one read of the log and the checksums of its
blocks. Only what needs nothing else is read here: the records of a queue stand in one piece, and
lie in blocks that `verified_blocks` knows. A queue of which that is not so gives nothing, and is
read by `queue_reads`, which finds out why. Any thread; nothing here waits for the disk.
"""

from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import Final, NamedTuple

import numpy as np

from app.store.formats.files.consume_queue import UNIT_BYTES, UNITS
from app.store.formats.record.checksum import crc32
from app.store.formats.record.record import (
    RECORD_BYTES_MIN,
    is_plain_record_of,
)
from app.store.formats.record.record_block import Ints
from app.store.formats.record.unpacked_record import is_packed
from app.store.fs.files import ColdRead
from app.store.queues.consume_queue import ConsumeQueue
from app.store.read.queue_reads import ReadResult
from app.store.read.record_checks import Source
from app.store.read.record_views import KnownViews, Together
from app.store.read.verified_blocks import BLOCK_RECORDS

_BLOCK_BYTES: Final = BLOCK_RECORDS * UNIT_BYTES


class Stretch(NamedTuple):
    """Messages of one queue that are wanted: half-open, readable, and at least one."""

    queue: ConsumeQueue
    first: int
    end: int


class _Units(NamedTuple):
    """The units of all stretches, one behind the other, which run in parallel."""

    encoded: memoryview
    counts: Sequence[int]
    firsts: Sequence[int]
    """Number of the first unit of each stretch."""
    positions: Ints
    sizes: Ints
    spans: Sequence[tuple[int, int]]
    """Where the records of each stretch begin in the log, and where the last of them ends."""
    totals: Sequence[int]
    """Bytes of all records of each stretch."""
    hashes: "array[int]"
    apart: Sequence[int]
    """Numbers of those that are not in one piece with the next one of their stretch."""


class _Piece(NamedTuple):
    """The records of one stretch, in the buffer of all."""

    number: int
    """Of the stretch."""
    start: int
    end: int


def read_known(source: Source, asked: Sequence[Stretch], max_bytes: int) -> list[ReadResult | None]:
    """What each of the stretches has; None: ask for it by itself. A stretch gives all its messages
    or, when they are more than `max_bytes`, None."""
    found: list[ReadResult | None] = [None] * len(asked)
    if not source.knows_blocks:
        return found
    data: list[bytes] = []
    counts: list[int] = []
    try:
        for queue, first, end in asked:
            part = queue.unit_bytes(first, end, wait_for_disk=False)
            if len(part) != (end - first) * UNIT_BYTES:
                return found
            data.append(part)
            counts.append(end - first)
    except ColdRead:
        return found
    units = _units_of(b"".join(data), counts, source.gap_bytes)
    if units is None:
        return found
    together, pieces = _read(source, units, max_bytes)
    for number, start, stop in _good_of(source, asked, units, together, pieces):
        _, first, end = asked[number]
        low = units.firsts[number]
        high = low + end - first
        records = KnownViews(together, low, high, start, stop, units.totals[number])
        hashes = units.hashes[low:high]
        found[number] = ReadResult(records, range(first, end), hashes, end, end - first, [])
    return found


def _units_of(data: bytes, counts: Sequence[int], gap_bytes: int) -> _Units | None:
    table = np.frombuffer(data, UNITS)
    positions = table["physical_offset"].astype(np.int64)
    sizes = table["size"].astype(np.int64)
    if int(np.minimum.reduce(sizes)) < RECORD_BYTES_MIN:
        return None
    lasts = np.array([*accumulate(counts)], np.int64) - 1
    firsts = [0, *(lasts[:-1] + 1).tolist()]
    ends = positions + sizes
    apart = (positions[1:] - ends[:-1]).view(np.uint64) > gap_bytes  # as are negative distances
    apart[lasts[:-1]] = False  # other stretches follow
    return _Units(
        memoryview(data),
        counts,
        firsts,
        positions,
        sizes,
        list(zip(positions[firsts].tolist(), ends[lasts].tolist(), strict=True)),
        np.add.reduceat(sizes, firsts).tolist(),
        array("q", table["tag_hash"].astype(np.int64).tobytes()),
        apart.nonzero()[0].tolist() if np.count_nonzero(apart) else (),
    )


def _read(source: Source, units: _Units, max_bytes: int) -> tuple[Together, list[_Piece]]:
    """The bytes of the stretches in one buffer, and those that are in it."""
    log, apart = source.log, units.apart
    pieces: list[_Piece] = []
    shifts: list[int] = []
    size = 0
    for number, (start, stop) in enumerate(units.spans):
        shifts.append(size - start)
        is_whole = 0 <= start < stop <= log.base_of(start) + log.segment_bytes
        is_dense = not apart or not _is_apart(units, number)
        if is_whole and is_dense and units.totals[number] <= max_bytes:
            end = size + stop - start
            pieces.append(_Piece(number, size, end))
            size = end
    buffer = np.empty(size, np.uint8).data  # not a bytearray, whose zeros would be written first
    spans = units.spans
    are_read = [
        piece for piece in pieces if log.read_into(buffer[piece[1] : piece[2]], spans[piece[0]][0])
    ]
    starts = units.positions + np.repeat(shifts, units.counts)
    return Together(buffer.toreadonly(), starts, units.sizes), are_read


def _is_apart(units: _Units, number: int) -> bool:
    """Whether the records of a stretch are not in one piece."""
    low = units.firsts[number]
    return any(low <= each < low + units.counts[number] for each in units.apart)


def _good_of(
    source: Source,
    asked: Sequence[Stretch],
    units: _Units,
    together: Together,
    pieces: Sequence[_Piece],
) -> list[_Piece]:
    """Those whose blocks are as they were, and whose records before and behind them are good."""
    wanted: list[tuple[int, int, int]] = []
    begins: list[int] = []
    blocks_of: list[int] = []
    for number, _, _ in pieces:
        queue, first, end = asked[number]
        head = -first % BLOCK_RECORDS
        blocks = max((end - first - head) // BLOCK_RECORDS, 0)
        at = units.firsts[number] + head
        wanted.append((queue.number, (first + head) // BLOCK_RECORDS, blocks))
        begins += range(at, at + blocks * BLOCK_RECORDS, BLOCK_RECORDS)
        blocks_of.append(blocks)
    known = source.known.small.sums_of(wanted)
    found = _sums_of(units, together, begins)
    good: list[_Piece] = []
    block = 0
    for piece, blocks in zip(pieces, blocks_of, strict=True):
        behind = block + blocks
        if blocks and known[block:behind] == found[block:behind]:
            number = piece.number
            is_whole = blocks * BLOCK_RECORDS == units.counts[number]
            if is_whole or _is_rest_good(asked[number], units, together, piece, blocks):
                good.append(piece)
        block = behind
    return good


def _sums_of(units: _Units, together: Together, begins: Sequence[int]) -> list[int]:
    """The sum of each of the blocks that begin with these units, as `verified_blocks` has it."""
    data, encoded = together.data, units.encoded
    firsts = np.array(begins, np.int64)
    lasts = firsts + (BLOCK_RECORDS - 1)
    starts = together.starts[firsts].tolist()
    ends = (together.starts[lasts] + together.sizes[lasts]).tolist()
    return [
        crc32(encoded[at * UNIT_BYTES : at * UNIT_BYTES + _BLOCK_BYTES]) << 32
        | crc32(data[start:end])
        for at, start, end in zip(begins, starts, ends, strict=True)
    ]


def _is_rest_good(
    stretch: Stretch, units: _Units, together: Together, piece: _Piece, blocks: int
) -> bool:
    """Whether the records before the blocks of a stretch and behind them are good."""
    queue, first, end = stretch
    low, head = units.firsts[piece.number], -first % BLOCK_RECORDS
    rest = [*range(head), *range(head + blocks * BLOCK_RECORDS, end - first)]
    topic, data = queue.topic_part, together.data
    for number in rest:
        start = int(together.starts[low + number])
        position, size = int(units.positions[low + number]), int(units.sizes[low + number])
        record = data[start : start + size]
        if not is_plain_record_of(record, topic, queue.queue_id, first + number, position):
            return False
        if is_packed(record):
            return False
    return True
