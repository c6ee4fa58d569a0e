"""Reading a queue: units, tag prefilter, coalesced reads of the log, every record checked."""

from collections.abc import Iterator
from typing import NamedTuple

from app.store.commit_log import CommitLog
from app.store.consume_queue import ConsumeQueue, Unit
from app.store.formats.record import RECORD_BYTES_MIN, belongs_to, check

GAP_CORRUPT = "CORRUPT"


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


class _Wanted(NamedTuple):
    queue_offset: int
    unit: Unit


def read_queue(
    log: CommitLog,
    queue: ConsumeQueue,
    offset: int,
    end: int,
    *,
    max_messages: int,
    max_bytes: int,
    tag_hashes: frozenset[int] | None,
    unchecked_end: int,
    gap_bytes: int,
    wait_for_disk: bool,
) -> ReadResult:
    """Read `[offset, end)` until a bound is met; at least one message if there is one."""
    step = end - offset if tag_hashes is not None else min(end - offset, max_messages)
    units = queue.units(offset, offset + max(step, 0), wait_for_disk=wait_for_disk)
    wanted: list[_Wanted] = []
    total = 0
    next_offset = offset
    for unit in units:
        matches = tag_hashes is None or unit[2] in tag_hashes
        if matches and wanted and (len(wanted) >= max_messages or total + unit[1] > max_bytes):
            break
        if matches:
            wanted.append(_Wanted(next_offset, unit))
            total += unit[1]
        next_offset += 1
    records: list[memoryview] = []
    offsets: list[int] = []
    hashes: list[int] = []
    bad: list[int] = []
    for item, record in _read_records(log, wanted, gap_bytes, wait_for_disk=wait_for_disk):
        physical_offset, _, tag_hash = item.unit
        required = physical_offset >= unchecked_end
        if _is_intact(record, queue, item, checksum_required=required):
            records.append(record)
            offsets.append(item.queue_offset)
            hashes.append(tag_hash)
        else:
            bad.append(item.queue_offset)
    return ReadResult(records, offsets, hashes, next_offset, next_offset - offset, _gaps(bad))


def _is_intact(
    record: memoryview, queue: ConsumeQueue, item: _Wanted, *, checksum_required: bool
) -> bool:
    if len(record) != item.unit[1] or len(record) < RECORD_BYTES_MIN:
        return False
    if check(record, item.unit[0], checksum_required=checksum_required):
        return False
    return belongs_to(record, queue.topic, queue.queue_id, item.queue_offset)


def _read_records(
    log: CommitLog, wanted: list[_Wanted], gap_bytes: int, *, wait_for_disk: bool
) -> Iterator[tuple[_Wanted, memoryview]]:
    """Each wanted record; neighbours in the log are read in one piece."""
    for run in _runs(log, wanted, gap_bytes):
        start = run[0].unit[0]
        last = run[-1].unit
        size = min(last[0] + last[1], log.base_of(start) + log.segment_bytes) - start
        data = memoryview(log.read(start, size, wait_for_disk=wait_for_disk) if size > 0 else b"")
        for item in run:
            at = item.unit[0] - start
            yield item, data[at : at + item.unit[1]]


def _runs(log: CommitLog, wanted: list[_Wanted], gap_bytes: int) -> Iterator[list[_Wanted]]:
    run: list[_Wanted] = []
    end = segment_end = 0
    for item in wanted:
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


def _gaps(bad: list[int]) -> list[Gap]:
    gaps: list[Gap] = []
    for offset in bad:
        if gaps and gaps[-1].to_offset == offset:
            gaps[-1] = Gap(gaps[-1].from_offset, offset + 1, GAP_CORRUPT)
        else:
            gaps.append(Gap(offset, offset + 1, GAP_CORRUPT))
    return gaps
