"""Whether what was read is what the queue says: record by record, or block by block where known.

A run is a piece of the log that was read at once, with the records of one queue in it. Blocks
that `verified_blocks` knows are held to their sums; every other record is checked by itself, and
what is good of those is known from then on. Any thread.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np

from app.store.config import FastPaths
from app.store.formats.files.consume_queue import UNIT_BYTES
from app.store.formats.record.checksum import crc32
from app.store.formats.record.compression import SYSTEM_FLAG_COMPRESSED
from app.store.formats.record.record import (
    RECORD_BYTES_MIN,
    belongs_to,
    check,
    is_plain_record_of,
)
from app.store.formats.record.record_block import Ints, Owner, intact
from app.store.formats.record.unpacked_record import SYSTEM_FLAG_LOW, are_packed
from app.store.log.commit_log import CommitLog
from app.store.queues.consume_queue import ConsumeQueue, Unit
from app.store.read.read_repair import ReadRepair
from app.store.read.verified_blocks import (
    BLOCK_RECORDS,
    UNKNOWN,
    UNREADABLE,
    Known,
    VerifiedBlocks,
    block_sums,
    whole_blocks,
)

VECTOR_RECORDS_MIN: Final = 48
"""Records from which numpy is worth its start-up."""


class Source(NamedTuple):
    """Where records come from, and how they are read."""

    log: CommitLog
    unchecked_end: int
    """Records below may lack our checksum."""
    gap_bytes: int
    """Wanted records closer than this are read in one piece."""
    known: Known
    knows_blocks: bool
    """Whether `known` is used."""
    fast_paths: FastPaths
    repair: ReadRepair


class FewRun(NamedTuple):
    """A run of few records; the lists run in parallel."""

    queue_offsets: list[int]
    units: list[Unit]
    records: list[memoryview]
    data: memoryview
    """The whole piece."""
    encoded: memoryview | None
    """The units as they stand in the queue; None when offsets are left out, or blocks not known."""


class ManyRun(NamedTuple):
    """Records `low` to `high` (exclusive) of a `ManyRead`, which were read in one piece."""

    low: int
    high: int
    data: memoryview
    is_whole: bool
    """All records lie within `data`, none shorter than possible."""


class ManyRead(NamedTuple):
    """Many records of one queue; the arrays run in parallel."""

    queue_offsets: Ints | range
    positions: Ints
    starts: Ints
    """Places in the `data` of the record's run."""
    sizes: Ints
    runs: Sequence[ManyRun]
    """In order, and together all records."""
    encoded: memoryview | None
    """As in `FewRun`."""


def bad_of_few(source: Source, queue: ConsumeQueue, run: FewRun) -> list[int]:
    """Which of the records, by their number in the run, are not good."""
    offsets, units, records, data, encoded = run
    blocks = range(0)
    doubtful: Iterable[int] = range(len(units))
    found: list[int] = []
    wanted: list[int] = []
    if encoded is not None and len(units) >= BLOCK_RECORDS:
        blocks = whole_blocks(offsets[0], len(units))
        start = units[0][0]
        lasts = [units[at + BLOCK_RECORDS - 1] for at in blocks]
        found = block_sums(
            encoded,
            data,
            blocks,
            [units[at][0] - start for at in blocks],
            [last[0] + last[1] - start for last in lasts],
        )
        number = (offsets[0] + blocks.start) // BLOCK_RECORDS
        wanted = source.known.small.sums(queue.number, number, len(blocks))
        doubtful = _doubtful(len(units), blocks, found, wanted)
    part = queue.topic_part
    bad: list[int] = []
    queue_id = queue.queue_id
    rows = list(zip(offsets, units, records, strict=True))
    for index in doubtful:
        offset, unit, record = rows[index]
        # `_is_good`, written out: each message of a small read comes here.
        if is_plain_record_of(record, part, queue_id, offset, unit[0]) and unit[1] == len(record):
            continue
        if not is_intact(source, queue, record, unit, offset):
            bad.append(index)
    if found != wanted:
        packed = [
            number
            for number, record in enumerate(records)
            if number not in bad
            and record[SYSTEM_FLAG_LOW] & SYSTEM_FLAG_COMPRESSED  # `is_packed`, written out
        ]
        _learn(source.known.small, queue, offsets[0], blocks, found, bad + packed)
    return bad


class _Look(NamedTuple):
    """Blocks of a read that are held to the sums that are known of them."""

    known: VerifiedBlocks
    blocks: range
    found: list[int]
    """Empty when nothing is known."""
    wanted: list[int]


def bad_of_many(source: Source, queue: ConsumeQueue, read: ManyRead) -> list[int]:
    """Which of many records, by their number, are not good; in order."""
    left = [(0, len(read.sizes))]
    looks: list[_Look] = []
    if read.encoded is not None and len(read.sizes) >= BLOCK_RECORDS:
        for known in source.known:
            new = [_look_at(known, queue, read, read.encoded, each) for each in left]
            left = [
                rest for look, each in zip(new, left, strict=True) for rest in _rest(look, each)
            ]
            looks += new
    bad = _bad_of(source, queue, read, [n for low, high in left for n in range(low, high)])
    for known, blocks, found, wanted in looks:
        if found != wanted and read.encoded is not None:
            sums = found or _sums_of(read, read.encoded, blocks)
            left_out = bad + _packed_of(read)
            _learn(known, queue, int(read.queue_offsets[0]), blocks, sums, left_out)
    return bad


def _packed_of(read: ManyRead) -> list[int]:
    """Which of many records have packed bodies; none of those that are not whole."""
    numbers: list[int] = []
    for low, high, data, is_whole in read.runs:
        if is_whole:
            packed = are_packed(data, read.starts[low:high])
            numbers += (np.flatnonzero(packed) + low).tolist()
    return numbers


def _look_at(
    known: VerifiedBlocks,
    queue: ConsumeQueue,
    read: ManyRead,
    encoded: memoryview,
    records: tuple[int, int],
) -> _Look:
    """Hold the whole blocks among some records (first, and behind the last) to their sums."""
    low, high = records
    first = int(read.queue_offsets[0])
    within = whole_blocks(first + low, high - low, known.records)
    blocks = range(low + within.start, low + within.stop, known.records)
    wanted = known.sums(queue.number, (first + blocks.start) // known.records, len(blocks))
    is_any_known = max(wanted, default=UNKNOWN) != UNKNOWN
    return _Look(known, blocks, _sums_of(read, encoded, blocks) if is_any_known else [], wanted)


def _rest(look: _Look, records: tuple[int, int]) -> list[tuple[int, int]]:
    """What is left of some records without the blocks that are as they were."""
    _, blocks, found, wanted = look
    at, high = records
    if found == wanted and blocks:
        good = [(blocks.start, blocks[-1] + blocks.step)]
    else:
        rows = zip(blocks, found, wanted, strict=False)  # none are found where none is known
        good = [(block, block + blocks.step) for block, now, before in rows if now == before]
    rest: list[tuple[int, int]] = []
    for begin, end in good:
        if at < begin:
            rest.append((at, begin))
        at = end
    if at < high:
        rest.append((at, high))
    return rest


def _bad_of(source: Source, queue: ConsumeQueue, read: ManyRead, doubtful: list[int]) -> list[int]:
    """Which of the `doubtful` records are not good, each checked by itself."""
    part = queue.topic_part
    bad: list[int] = []
    for run in read.runs if doubtful else ():
        mine = doubtful[bisect_left(doubtful, run.low) : bisect_left(doubtful, run.high)]
        if run.is_whole and len(mine) >= VECTOR_RECORDS_MIN:
            mine = _suspects(queue, part, read, run, np.array(mine, np.int64))
        if mine:
            bad += _bad_one_by_one(source, queue, part, read, run, mine)
    return bad


def _sums_of(read: ManyRead, encoded: memoryview, blocks: range) -> list[int]:
    """The sum of each of `blocks`, of which some may lie in several runs."""
    step = blocks.step
    last = slice(blocks.start + step - 1, blocks.stop + step - 1, step)
    starts = read.starts[blocks.start : blocks.stop : step].tolist()
    ends = (read.starts[last] + read.sizes[last]).tolist()
    found: list[int] = []
    for _, high, data, is_whole in read.runs:
        begin = len(found)
        whole = max(high - blocks.start, 0) // step
        mine = slice(begin, max(min(whole, len(blocks)), begin))
        if is_whole:
            found += block_sums(encoded, data, blocks[mine], starts[mine], ends[mine])
        else:
            found += [UNREADABLE] * (mine.stop - begin)
        if mine.stop < len(blocks) and blocks[mine.stop] < high:
            found.append(_sum_of_parts(read, encoded, blocks[mine.stop], step))
    return found


def _sum_of_parts(read: ManyRead, encoded: memoryview, block: int, records: int) -> int:
    """The sum of the block from record `block` on, which lies in several runs."""
    end = block + records
    total = 0
    for low, high, data, is_whole in read.runs:
        if high > block and low < end:
            if not is_whole:
                return UNREADABLE
            last = min(high, end) - 1
            start = int(read.starts[max(low, block)])
            total = crc32(data[start : int(read.starts[last] + read.sizes[last])], total)
    return crc32(encoded[block * UNIT_BYTES : end * UNIT_BYTES]) << 32 | total


def _suspects(
    queue: ConsumeQueue, part: bytes, read: ManyRead, run: ManyRun, doubtful: Ints
) -> list[int]:
    """Those of the `doubtful` of a run that are not the plain, intact records of their places."""
    owner = Owner(queue.queue_id, part, np.asarray(read.queue_offsets)[doubtful])
    starts, sizes = read.starts[doubtful].tolist(), read.sizes[doubtful].tolist()
    good = intact(run.data, starts, sizes, read.positions[doubtful], owner)
    suspects: list[int] = doubtful[~good].tolist()
    return suspects


def _bad_one_by_one(
    source: Source,
    queue: ConsumeQueue,
    part: bytes,
    read: ManyRead,
    run: ManyRun,
    doubtful: list[int],
) -> list[int]:
    """Which of the `doubtful` records of a run are not good."""
    data, chosen = run.data, np.array(doubtful)
    columns = (read.starts, read.sizes, read.positions)
    rows = zip(doubtful, *(column[chosen].tolist() for column in columns), strict=True)
    bad: list[int] = []
    for index, start, size, position in rows:
        record, offset = data[start : start + size], int(read.queue_offsets[index])
        if not _is_good(source, queue, part, record, (position, size, 0), offset):
            bad.append(index)
    return bad


def _doubtful(count: int, blocks: range, found: Sequence[int], wanted: Sequence[int]) -> list[int]:
    """Which of `count` records are in no block that is as it was, in order."""
    behind = blocks.start + BLOCK_RECORDS * len(blocks)
    if found == wanted:
        return [*range(min(blocks.start, count)), *range(behind, count)]
    doubtful = list(range(blocks.start))
    for at, now, before in zip(blocks, found, wanted, strict=True):
        if now != before:
            doubtful += range(at, at + BLOCK_RECORDS)
    doubtful += range(behind, count)
    return doubtful


def _learn(
    known: VerifiedBlocks,
    queue: ConsumeQueue,
    first_offset: int,
    blocks: range,
    found: list[int],
    bad: list[int],
) -> None:
    """Remember the blocks that were found, but for those with a bad record or a packed body: who
    is sent records from the files gets them as they are."""
    spoilt = {(index - blocks.start) // blocks.step for index in bad}
    sums = [UNKNOWN if n in spoilt else each for n, each in enumerate(found)]
    known.note(queue.number, (first_offset + blocks.start) // blocks.step, sums)


def _is_good(
    source: Source,
    queue: ConsumeQueue,
    part: bytes,
    record: memoryview,
    unit: Unit,
    queue_offset: int,
) -> bool:
    is_plain = is_plain_record_of(record, part, queue.queue_id, queue_offset, unit[0])
    if is_plain and unit[1] == len(record):
        return True
    return is_intact(source, queue, record, unit, queue_offset)


def is_intact(
    source: Source, queue: ConsumeQueue, record: memoryview, unit: Unit, queue_offset: int
) -> bool:
    """Whether `record` is what the unit of `queue_offset` should point at."""
    if len(record) != unit[1] or len(record) < RECORD_BYTES_MIN:
        return False
    if check(record, unit[0], checksum_required=unit[0] >= source.unchecked_end):
        return False
    return belongs_to(record, queue.topic, queue.queue_id, queue_offset)
