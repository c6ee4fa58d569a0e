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
    firsts: list[int]
    """Number of the first unit of each stretch."""
    positions: Ints
    sizes: Ints
    spans: list[tuple[int, int]]
    """Where the records of each stretch begin in the log, and where the last of them ends."""
    totals: list[int]
    """Bytes of all records of each stretch."""
    hashes: "array[int]"
    apart: Sequence[int]
    """Numbers of those that are not in one piece with the next one of their stretch."""


def read_known(source: Source, asked: Sequence[Stretch], max_bytes: int) -> list[ReadResult | None]:
    """What each of the stretches has; None: ask for it by itself. A stretch gives all its messages
    or, when they are more than `max_bytes`, None."""
    nothing: list[ReadResult | None] = [None] * len(asked)
    if not source.knows_blocks:
        return nothing
    try:
        data = [queue.unit_bytes(first, end, wait_for_disk=False) for queue, first, end in asked]
    except ColdRead:
        return nothing
    counts = [end - first for _, first, end in asked]
    if [len(part) for part in data] != [count * UNIT_BYTES for count in counts]:
        return nothing
    units = _units_of(b"".join(data), counts, source.gap_bytes)
    if units is None:
        return nothing
    together, is_read = _read(source, units, max_bytes)
    found = nothing
    for number in is_read:
        stretch, low = asked[number], units.firsts[number]
        if _is_good(source, stretch, units, low, together):
            _, first, end = stretch
            high = low + end - first
            records = KnownViews(together, low, high, units.sizes[low:high], units.totals[number])
            hashes = units.hashes[low:high]
            found[number] = ReadResult(records, range(first, end), hashes, end, end - first, [])
    return found


def _units_of(data: bytes, counts: Sequence[int], gap_bytes: int) -> _Units | None:
    table = np.frombuffer(data, UNITS)
    positions = table["physical_offset"].astype(np.int64)
    sizes = table["size"].astype(np.int64)
    if int(np.minimum.reduce(sizes)) < RECORD_BYTES_MIN:
        return None
    firsts = [0, *accumulate(counts[:-1])]
    ends = positions + sizes
    distances = positions[1:] - ends[:-1]
    apart = distances.view(np.uint64) > gap_bytes  # as are negative ones
    numbers: list[int] = []
    if np.count_nonzero(apart) > 0:
        borders = {first - 1 for first in firsts}  # other stretches follow
        numbers = [number for number in apart.nonzero()[0].tolist() if number not in borders]
    lasts = [first + count - 1 for first, count in zip(firsts, counts, strict=True)]
    return _Units(
        memoryview(data),
        counts,
        firsts,
        positions,
        sizes,
        list(zip(positions[firsts].tolist(), ends[lasts].tolist(), strict=True)),
        np.add.reduceat(sizes, firsts).tolist(),
        array("q", table["tag_hash"].astype(np.int64).tobytes()),
        numbers,
    )


def _read(source: Source, units: _Units, max_bytes: int) -> tuple[Together, list[int]]:
    """The bytes of the stretches in one buffer, and the numbers of those that are in it."""
    log = source.log
    places: list[tuple[int, int, int]] = []
    size = 0
    for number, (start, stop) in enumerate(units.spans):
        is_whole = 0 <= start < stop <= log.base_of(start) + log.segment_bytes
        if is_whole and units.totals[number] <= max_bytes and not _is_apart(units, number):
            places.append((number, size, stop - start))
            size += stop - start
    buffer = np.empty(size, np.uint8).data  # not a bytearray, whose zeros would be written first
    shifts = [0] * len(units.spans)
    is_read: list[int] = []
    for number, at, length in places:
        start = units.spans[number][0]
        shifts[number] = at - start
        if log.read_into(buffer[at : at + length], start):
            is_read.append(number)
    starts = units.positions + np.repeat(shifts, units.counts)
    ends = starts + units.sizes
    return Together(buffer.toreadonly(), starts.tolist(), ends.tolist()), is_read


def _is_apart(units: _Units, number: int) -> bool:
    """Whether the records of a stretch are not in one piece."""
    low = units.firsts[number]
    high = low + units.counts[number]
    return any(low <= each < high - 1 for each in units.apart)


def _is_good(source: Source, stretch: Stretch, units: _Units, low: int, together: Together) -> bool:
    """Whether the blocks are as they were, and the records before and behind them are good."""
    queue, first, end = stretch
    data, starts, ends, encoded = together.data, together.starts, together.ends, units.encoded
    count, head = end - first, -first % BLOCK_RECORDS
    blocks = (count - head) // BLOCK_RECORDS
    if blocks <= 0:
        return False
    known = source.known.small.sums(queue.number, (first + head) // BLOCK_RECORDS, blocks)
    at = low + head
    for sum_before in known:
        unit, after = at * UNIT_BYTES, at + BLOCK_RECORDS
        part = data[starts[at] : ends[after - 1]]
        if sum_before != crc32(encoded[unit : unit + _BLOCK_BYTES]) << 32 | crc32(part):
            return False
        at = after
    if count == blocks * BLOCK_RECORDS:
        return True
    rest = [*range(low, low + head), *range(at, low + count)]
    topic, shift = queue.topic_part, starts[low] - int(units.positions[low])
    for number in rest:
        record = data[starts[number] : ends[number]]
        offset, position = first + number - low, starts[number] - shift
        if not is_plain_record_of(record, topic, queue.queue_id, offset, position):
            return False
        if is_packed(record):
            return False
    return True
