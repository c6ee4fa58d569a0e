"""Whether what was read is what the queue says: record by record, or block by block where known.

A run is a piece of the log that was read at once, with the records of one queue in it. Blocks of it
that `known_blocks` knows are held to their sums; every other record is checked by itself, and what
is good of those is known from then on. Any thread.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np

from app.store.commit_log import CommitLog
from app.store.consume_queue import ConsumeQueue, Unit
from app.store.formats.record import (
    RECORD_BYTES_MIN,
    belongs_to,
    check,
    is_plain_record_of,
    topic_part,
)
from app.store.formats.record_block import Ints, Owner, intact
from app.store.known_blocks import (
    BLOCK_RECORDS,
    UNKNOWN,
    KnownBlocks,
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
    known: KnownBlocks


class FewRun(NamedTuple):
    """A run of few records; the lists run in parallel."""

    queue_offsets: list[int]
    units: list[Unit]
    records: list[memoryview]
    data: memoryview
    """The whole piece."""
    encoded: memoryview | None
    """The units as they stand in the queue; None when offsets are left out."""


class ManyRun(NamedTuple):
    """A run of many records; `starts` are places in `data`."""

    queue_offsets: Ints
    positions: Ints
    starts: Ints
    sizes: Ints
    data: memoryview
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
        wanted = _known(source, queue, offsets[0], blocks)
        doubtful = _doubtful(len(units), blocks, found, wanted)
    part = topic_part(queue.topic.encode())
    bad: list[int] = []
    for index in doubtful:
        offset, unit, record = offsets[index], units[index], records[index]
        if not _is_good(source, queue, part, record, unit, offset):
            bad.append(index)
    if found != wanted:
        _learn(source, queue, offsets[0], blocks, found, bad)
    return bad


def bad_of_many(source: Source, queue: ConsumeQueue, run: ManyRun) -> list[int]:
    """The same for a run of which all records lie within `data`, none shorter than possible."""
    count, first = len(run.sizes), int(run.queue_offsets[0])
    blocks = whole_blocks(first, count) if run.encoded is not None else range(0)
    found: list[int] = []
    wanted: list[int] = []
    if blocks and run.encoded is not None:
        ends = run.starts + run.sizes
        found = block_sums(
            run.encoded,
            run.data,
            blocks,
            run.starts[blocks.start : blocks.stop : BLOCK_RECORDS].tolist(),
            ends[blocks.start + BLOCK_RECORDS - 1 :: BLOCK_RECORDS].tolist(),
        )
        wanted = _known(source, queue, first, blocks)
    doubtful = _doubtful(count, blocks, found, wanted)
    if len(doubtful) >= VECTOR_RECORDS_MIN:
        doubtful = _suspects(queue, run, np.array(doubtful, np.int64))
    bad = bad_one_by_one(source, queue, run, doubtful)
    if found != wanted:
        _learn(source, queue, first, blocks, found, bad)
    return bad


def _suspects(queue: ConsumeQueue, run: ManyRun, doubtful: Ints) -> list[int]:
    """Those of the `doubtful` that are not the plain, intact records of their places."""
    part = topic_part(queue.topic.encode())
    owner = Owner(queue.queue_id, part, run.queue_offsets[doubtful])
    starts, sizes = run.starts[doubtful].tolist(), run.sizes[doubtful].tolist()
    good = intact(run.data, starts, sizes, run.positions[doubtful], owner)
    suspects: list[int] = doubtful[~good].tolist()
    return suspects


def bad_one_by_one(
    source: Source, queue: ConsumeQueue, run: ManyRun, doubtful: Sequence[int]
) -> list[int]:
    """Which of the `doubtful` records, by their number in the run, are not good."""
    if not doubtful:
        return []
    part = topic_part(queue.topic.encode())
    columns = (run.starts, run.sizes, run.positions, run.queue_offsets)
    chosen = [column[doubtful].tolist() for column in columns]
    bad: list[int] = []
    for index, start, size, position, offset in zip(doubtful, *chosen, strict=True):
        record = run.data[start : start + size]
        if not _is_good(source, queue, part, record, (position, size, 0), offset):
            bad.append(index)
    return bad


def _known(source: Source, queue: ConsumeQueue, first_offset: int, blocks: range) -> list[int]:
    number = (first_offset + blocks.start) // BLOCK_RECORDS
    return source.known.sums(queue.number, number, len(blocks))


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
    source: Source,
    queue: ConsumeQueue,
    first_offset: int,
    blocks: range,
    found: list[int],
    bad: list[int],
) -> None:
    """Remember the blocks that were found, but for those with a bad record."""
    spoilt = {(index - blocks.start) // BLOCK_RECORDS for index in bad}
    if spoilt:
        found = [UNKNOWN if n in spoilt else each for n, each in enumerate(found)]
    number = (first_offset + blocks.start) // BLOCK_RECORDS
    source.known.note(queue.number, number, found)


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
