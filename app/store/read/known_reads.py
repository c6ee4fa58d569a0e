"""Reading a little of many queues at once, where all of it is known to be good already.

A poll takes a few messages from each of its queues. What is done for each record is done once for
the records of all queues; what is left for a queue are one read of the log and the checksums of its
blocks. Only what needs nothing else is read here: the records of a queue stand in one piece, a
block of them at least, and lie in blocks that `verified_blocks` knows. A queue of which that is not
so gives nothing, and is read by `queue_reads`, which finds out why. Any thread; nothing here waits
for the disk.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.store.formats.files.consume_queue import UNIT, UNIT_BYTES, UNITS
from app.store.formats.record.checksum import crc32
from app.store.formats.record.record import is_plain_record_of
from app.store.formats.record.unpacked_record import is_packed
from app.store.fs.files import ColdRead
from app.store.queues.consume_queue import ConsumeQueue
from app.store.read.queue_reads import ReadResult
from app.store.read.record_checks import Source
from app.store.read.record_views import KnownViews, LogPiece, Together
from app.store.read.verified_blocks import BLOCK_RECORDS

_BLOCK_BYTES: Final = BLOCK_RECORDS * UNIT_BYTES


Stretch = tuple[ConsumeQueue, int, int]
"""Messages of one queue that are wanted: half-open, readable, and at least one."""


def read_known(
    source: Source, asked: Sequence[Stretch], max_bytes: int, all_bytes_max: int
) -> list[ReadResult | None]:
    """What each of the stretches has; None: ask for it by itself. A stretch gives all its messages
    or, when they are more than `max_bytes`, None. No more than `all_bytes_max` are read of all
    together, with what is between their records."""
    nothing: list[ReadResult | None] = [None] * len(asked)
    have_block = [-(-first // BLOCK_RECORDS) < end // BLOCK_RECORDS for _, first, end in asked]
    if not source.knows_blocks or not any(have_block):
        return nothing
    parts: list[bytes] = []
    lows = [0]
    try:
        for queue, first, end in asked:
            parts.append(queue.unit_bytes(first, end, wait_for_disk=False))
            lows.append(lows[-1] + end - first)
    except ColdRead:
        return nothing
    units = b"".join(parts)
    if len(units) != lows[-1] * UNIT_BYTES:
        return nothing
    pieces = _pieces_of(source, units, lows, have_block, (max_bytes, all_bytes_max))
    # Not a bytearray, whose zeros would be written first.
    buffer = np.empty(pieces[-1][2], np.uint8).data
    are_read = source.log.read_pieces(buffer, pieces)
    together = Together(buffer.toreadonly(), units, lows, pieces)
    hashes = together.hashes
    found: list[ReadResult | None] = []
    are_good = _are_good(source, asked, together, are_read)
    for (_, first, end), low, piece, is_good in zip(asked, lows, pieces, are_good, strict=False):
        if not is_good:
            found.append(None)
            continue
        count = end - first
        high = low + count
        records = KnownViews(together, low, high, piece)
        found.append(ReadResult(records, range(first, end), hashes[low:high], end, count, []))
    return found


def _pieces_of(
    source: Source,
    units: bytes,
    lows: Sequence[int],
    have_block: Sequence[bool],
    bounds: tuple[int, int],
) -> list[LogPiece]:
    """Where each of the stretches is, as their units say, which nobody has looked at. `bounds`: the
    bytes of the records of one, and those that are read of all."""
    max_bytes, all_bytes_max = bounds
    table = np.frombuffer(units, UNITS)
    totals = np.add.reduceat(table["size"].astype(np.int64), lows[:-1]).tolist()
    segment_bytes, gap_bytes, unpack = source.log.segment_bytes, source.gap_bytes, UNIT.unpack_from
    pieces: list[LogPiece] = []
    place = 0
    for low, high, total, has_block in zip(lows, lows[1:], totals, have_block, strict=False):
        start, _, _ = unpack(units, low * UNIT_BYTES)
        last, size, _ = unpack(units, high * UNIT_BYTES - UNIT_BYTES)
        length = last + size - start
        is_whole = start >= 0 and 0 < length <= segment_bytes - start % segment_bytes
        is_small = total <= max_bytes and total <= length <= all_bytes_max - place
        if not (has_block and is_whole and is_small) or (
            length - total > gap_bytes and _has_gap(table[low:high], gap_bytes)
        ):
            length = 0
        pieces.append((start, place, place + length, total))
        place += length
    return pieces


def _has_gap(units: NDArray[np.void], gap_bytes: int) -> bool:
    """Whether somewhere there is more than so much between two records, or less than nothing."""
    positions = units["physical_offset"].astype(np.int64)
    distances = positions[1:] - positions[:-1] - units["size"][:-1]
    return bool((distances.view(np.uint64) > gap_bytes).any())


def _are_good(
    source: Source, asked: Sequence[Stretch], together: Together, are_read: Sequence[bool]
) -> list[bool]:
    """Whether the blocks of each stretch are as they were, and its records before and behind them
    are good. Units that are not good have another sum, wherever they say that records stand."""
    units, data, unpack = together.units, together.data, UNIT.unpack_from
    sums_of = source.known.small.sums
    found: list[bool] = []
    rows = zip(asked, together.lows, together.pieces, are_read, strict=False)
    for stretch, low, piece, is_read in rows:
        queue, first, end = stretch
        head = -first % BLOCK_RECORDS
        blocks = (end - first - head) // BLOCK_RECORDS
        is_good = is_read and blocks > 0
        if not is_good:
            found.append(False)
            continue
        position, place, _, _ = piece
        shift = place - position
        at = (low + head) * UNIT_BYTES
        for known in sums_of(queue.number, (first + head) // BLOCK_RECORDS, blocks):
            behind = at + _BLOCK_BYTES
            start = unpack(units, at)[0] + shift
            last, size, _ = unpack(units, behind - UNIT_BYTES)
            records = data[start : last + size + shift]
            if crc32(units[at:behind]) << 32 | crc32(records) != known:
                is_good = False
                break
            at = behind
        if is_good and blocks * BLOCK_RECORDS != end - first:
            is_good = _is_rest_good(stretch, together, low, piece, blocks)
        found.append(is_good)
    return found


def _is_rest_good(
    stretch: Stretch, together: Together, low: int, piece: LogPiece, blocks: int
) -> bool:
    """Whether the records before the blocks of a stretch and behind them are good."""
    queue, first, end = stretch
    begin, place, stop, _ = piece
    head, shift = -first % BLOCK_RECORDS, place - begin
    topic, data = queue.topic_part, together.data
    for number in (*range(head), *range(head + blocks * BLOCK_RECORDS, end - first)):
        position, size, _ = UNIT.unpack_from(together.units, (low + number) * UNIT_BYTES)
        start = position + shift
        if not place <= start < start + size <= stop:
            return False
        record = data[start : start + size]
        if not is_plain_record_of(record, topic, queue.queue_id, first + number, position):
            return False
        if is_packed(record):
            return False
    return True
