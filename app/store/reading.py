"""Reading a queue: units, tag prefilter, coalesced reads of the log, every record checked.

A few messages are read one by one; from `MANY` on everything but the checksums is done for all at
once. What cannot be read is a gap; whether a wrong unit is to blame is for `mending` to find out.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from app.store.commit_log import CommitLog
from app.store.consume_queue import ConsumeQueue, Unit
from app.store.formats.consume_queue import UNIT, UNITS
from app.store.formats.record import (
    RECORD_BYTES_MIN,
    belongs_to,
    check,
    is_plain_record_of,
    topic_part,
)
from app.store.formats.record_block import Ints, Owner, intact

GAP_CORRUPT: Final = "CORRUPT"
GAP_EXPIRED: Final = "EXPIRED"
MANY: Final = 48
"""Units from which numpy is worth its start-up."""


class Gap(NamedTuple):
    """Queue offsets `[from_offset, to_offset)` that cannot be read, and why."""

    from_offset: int
    to_offset: int
    reason: str


class ReadResult(NamedTuple):
    """What a read found. The lists run in parallel; offsets rise, not always by one."""

    records: list[memoryview]
    """Whole records in the log's layout, checked."""
    queue_offsets: list[int]
    tag_hashes: list[int]
    next_offset: int
    """Where to go on."""
    scanned: int
    """Units looked at."""
    gaps: list[Gap]


class Wanted(NamedTuple):
    """What to read: half-open queue offsets and bounds."""

    offset: int
    end: int
    max_messages: int
    max_bytes: int
    tag_hashes: frozenset[int] | None = None


class Source(NamedTuple):
    """Where records come from, and how they are read."""

    log: CommitLog
    unchecked_end: int
    """Records below may lack our checksum."""
    gap_bytes: int
    """Wanted records closer than this are read in one piece."""


class _Item(NamedTuple):
    queue_offset: int
    unit: Unit


def read_queue(
    source: Source, queue: ConsumeQueue, wanted: Wanted, *, wait_for_disk: bool
) -> ReadResult:
    """Read until a bound is met; at least one message if there is one."""
    offset, end, max_messages, _, tag_hashes = wanted
    step = end - offset if tag_hashes is not None else min(end - offset, max_messages)
    data = queue.unit_bytes(offset, offset + max(step, 0), wait_for_disk=wait_for_disk)
    if step < MANY:
        units = list(UNIT.iter_unpack(data))
        return _read_few(source, queue, wanted, units, wait_for_disk=wait_for_disk)
    return _read_many(source, queue, wanted, data, wait_for_disk=wait_for_disk)


def _read_few(
    source: Source, queue: ConsumeQueue, wanted: Wanted, units: list[Unit], *, wait_for_disk: bool
) -> ReadResult:
    chosen: list[_Item] = []
    total = 0
    next_offset = wanted.offset
    for unit in units:
        if wanted.tag_hashes is None or unit[2] in wanted.tag_hashes:
            full = len(chosen) >= wanted.max_messages or total + unit[1] > wanted.max_bytes
            if chosen and full:
                break
            chosen.append(_Item(next_offset, unit))
            total += unit[1]
        next_offset += 1
    records: list[memoryview] = []
    offsets: list[int] = []
    hashes: list[int] = []
    bad: list[tuple[int, str]] = []
    part, queue_id = topic_part(queue.topic.encode()), queue.queue_id
    for item, record in _read_records(source, chosen, wait_for_disk=wait_for_disk):
        offset, unit = item
        is_plain = is_plain_record_of(record, part, queue_id, offset, unit[0])
        if (is_plain and unit[1] == len(record)) or is_intact(source, queue, record, unit, offset):
            records.append(record)
            offsets.append(offset)
            hashes.append(unit[2])
        else:
            bad.append((offset, _reason(source, unit[0], unit[1])))
    return ReadResult(
        records, offsets, hashes, next_offset, next_offset - wanted.offset, _gaps(bad)
    )


def is_intact(
    source: Source, queue: ConsumeQueue, record: memoryview, unit: Unit, queue_offset: int
) -> bool:
    """Whether `record` is what the unit of `queue_offset` should point at."""
    if len(record) != unit[1] or len(record) < RECORD_BYTES_MIN:
        return False
    if check(record, unit[0], checksum_required=unit[0] >= source.unchecked_end):
        return False
    return belongs_to(record, queue.topic, queue.queue_id, queue_offset)


def _reason(source: Source, physical_offset: int, size: int) -> str:
    return GAP_EXPIRED if size > 0 and physical_offset < source.log.start else GAP_CORRUPT


def _read_records(
    source: Source, chosen: list[_Item], *, wait_for_disk: bool
) -> Iterator[tuple[_Item, memoryview]]:
    """Each wanted record; neighbours in the log are read in one piece."""
    log = source.log
    for run in _runs(log, chosen, source.gap_bytes):
        start = run[0].unit[0]
        last = run[-1].unit
        size = min(last[0] + last[1], log.base_of(start) + log.segment_bytes) - start
        data = memoryview(log.read(start, size, wait_for_disk=wait_for_disk) if size > 0 else b"")
        for item in run:
            at = item.unit[0] - start
            yield item, data[at : at + item.unit[1]]


def _runs(log: CommitLog, chosen: list[_Item], gap_bytes: int) -> Iterator[list[_Item]]:
    run: list[_Item] = []
    end = segment_end = 0
    for item in chosen:
        physical_offset, size, _ = item.unit
        if run and not end <= physical_offset <= min(end + gap_bytes, segment_end - 1):
            yield run
            run = []
        if not run:
            segment_end = log.base_of(physical_offset) + log.segment_bytes
        run.append(item)
        end = physical_offset + size
    if run:
        yield run


def _read_many(
    source: Source, queue: ConsumeQueue, wanted: Wanted, data: bytes, *, wait_for_disk: bool
) -> ReadResult:
    units = np.frombuffer(data, UNITS)
    chosen = np.arange(len(units))
    if wanted.tag_hashes is not None:
        hashes = np.array(sorted(wanted.tag_hashes), np.int64)
        chosen = np.flatnonzero(np.isin(units["tag_hash"].astype(np.int64), hashes))
    taken = min(len(chosen), wanted.max_messages)
    totals = np.cumsum(units["size"][chosen[:taken]].astype(np.int64))
    taken = min(taken, max(int(np.searchsorted(totals, wanted.max_bytes, "right")), 1))
    scanned = int(chosen[taken]) if taken < len(chosen) else len(units)
    chosen = chosen[:taken]
    result = ReadResult([], [], [], wanted.offset + scanned, scanned, [])
    positions = units["physical_offset"][chosen].astype(np.int64)
    sizes = units["size"][chosen].astype(np.int64)
    offsets = chosen + wanted.offset
    hashes = units["tag_hash"][chosen].astype(np.int64)
    bad: list[tuple[int, str]] = []
    for first, last in _array_runs(source, positions, sizes):
        _read_run(
            source,
            queue,
            (positions[first:last], sizes[first:last], offsets[first:last], hashes[first:last]),
            result,
            bad,
            wait_for_disk=wait_for_disk,
        )
    result.gaps.extend(_gaps(bad))
    return result


def _array_runs(source: Source, positions: Ints, sizes: Ints) -> list[tuple[int, int]]:
    """Half-open ranges of records that are read in one piece."""
    if not len(positions):
        return []
    distances = positions[1:] - (positions + sizes)[:-1]
    bases = positions // source.log.segment_bytes
    apart = (distances < 0) | (distances > source.gap_bytes) | (bases[1:] != bases[:-1])
    apart |= (sizes[1:] < RECORD_BYTES_MIN) | (sizes[:-1] < RECORD_BYTES_MIN)
    cuts = [0, *(np.flatnonzero(apart) + 1).tolist(), len(positions)]
    return list(pairwise(cuts))


def _read_run(
    source: Source,
    queue: ConsumeQueue,
    run: tuple[Ints, Ints, Ints, Ints],
    result: ReadResult,
    bad: list[tuple[int, str]],
    *,
    wait_for_disk: bool,
) -> None:
    """Read and check one run; the good records go into `result`, the others into `bad`."""
    positions, sizes, offsets, hashes = run
    start = int(positions[0])
    log = source.log
    end = min(int(positions[-1] + sizes[-1]), log.base_of(start) + log.segment_bytes)
    length = end - start
    data = b""
    if int(sizes[0]) >= RECORD_BYTES_MIN and start >= 0:
        data = log.read(start, length, wait_for_disk=wait_for_disk)
    view = memoryview(data)
    starts: list[int] = (positions - start).tolist()
    lengths: list[int] = sizes.tolist()
    whole = len(data) == length == int(positions[-1] + sizes[-1]) - start
    if whole and int(sizes.min()) >= RECORD_BYTES_MIN:
        owner = Owner(queue.queue_id, topic_part(queue.topic.encode()), offsets)
        good = intact(view, starts, lengths, positions, owner)
        if good.all():
            result.records.extend(
                [view[at : at + size] for at, size in zip(starts, lengths, strict=True)]
            )
            result.queue_offsets.extend(offsets.tolist())
            result.tag_hashes.extend(hashes.tolist())
            return
    rows = zip(starts, lengths, offsets.tolist(), hashes.tolist(), strict=True)
    for at, size, offset, tag_hash in rows:
        record = view[at : at + size]
        if is_intact(source, queue, record, (start + at, size, tag_hash), offset):
            result.records.append(record)
            result.queue_offsets.append(offset)
            result.tag_hashes.append(tag_hash)
        else:
            bad.append((offset, _reason(source, start + at, size)))


def _gaps(bad: list[tuple[int, str]]) -> list[Gap]:
    gaps: list[Gap] = []
    for offset, reason in bad:
        if gaps and gaps[-1].to_offset == offset and gaps[-1].reason == reason:
            gaps[-1] = Gap(gaps[-1].from_offset, offset + 1, reason)
        else:
            gaps.append(Gap(offset, offset + 1, reason))
    return gaps
