"""Reading a queue: units, tag prefilter, coalesced reads of the log; every byte is checked.

A few messages are read one by one; from `VECTOR_RECORDS_MIN` on all at once. What cannot be read is
a gap; whether a wrong unit is to blame is for `unit_repair` to find out, and what is good for
`record_checks`.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from app.domain.errors import ShardUnavailable
from app.store.formats.files.consume_queue import UNIT, UNIT_BYTES, UNITS
from app.store.formats.record.record import RECORD_BYTES_MIN
from app.store.formats.record.record_block import Ints
from app.store.queues.consume_queue import ConsumeQueue, Unit
from app.store.read.record_checks import (
    VECTOR_RECORDS_MIN,
    FewRun,
    ManyRead,
    ManyRun,
    Source,
    bad_of_few,
    bad_of_many,
)
from app.store.read.record_views import Piece, RecordViews, views_of

GAP_CORRUPT: Final = "CORRUPT"
GAP_EXPIRED: Final = "EXPIRED"


class Gap(NamedTuple):
    """Queue offsets `[from_offset, to_offset)` that cannot be read, and why."""

    from_offset: int
    to_offset: int
    reason: str


class ReadResult(NamedTuple):
    """What a read found. The sequences run in parallel; offsets rise, not always by one."""

    records: Sequence[memoryview]
    """Whole records in the log's layout, checked."""
    queue_offsets: Sequence[int]
    tag_hashes: Sequence[int]
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

    def within(self, max_messages: int, max_bytes: int) -> "Wanted":
        """The same, and no more than this."""
        return self._replace(
            max_messages=min(self.max_messages, max_messages),
            max_bytes=min(self.max_bytes, max_bytes),
        )


def read_queue(
    source: Source, queue: ConsumeQueue, wanted: Wanted, *, wait_for_disk: bool
) -> ReadResult:
    """Read until a bound is met; at least one message if there is one."""
    offset, end, max_messages, _, tag_hashes = wanted
    step = end - offset if tag_hashes is not None else min(end - offset, max_messages)
    data = queue.unit_bytes(offset, offset + max(step, 0), wait_for_disk=wait_for_disk)
    is_large = step >= VECTOR_RECORDS_MIN and source.fast_paths.array_reads
    read = _read_many if is_large else _read_few
    result = read(source, queue, wanted, data, wait_for_disk=wait_for_disk)
    if result.gaps and source.repair.is_mended(
        _places_of_corrupt(data, wanted.offset, result.gaps), wait_for_disk=wait_for_disk
    ):
        return read(source, queue, wanted, data, wait_for_disk=wait_for_disk)
    return result


def before_unasked(
    source: Source, queue: ConsumeQueue, first: int, result: ReadResult, *, wait_for_disk: bool
) -> ReadResult:
    """What was read from offset `first` on before a record that is damaged here, and that another
    replica may have. Raises `ShardUnavailable` where that is the first one."""
    if source.repair.others is None:
        return result
    for gap in result.gaps:
        if gap.reason != GAP_CORRUPT:
            continue
        units = queue.units(gap.from_offset, gap.to_offset, wait_for_disk=wait_for_disk)
        for offset, (at, size, _) in enumerate(units, gap.from_offset):
            try:
                if size > 0:
                    source.repair.refuse_unasked(at)
            except ShardUnavailable:
                if offset == first:
                    raise
                return _ending(result, offset, offset - first)
    return result


def _ending(result: ReadResult, end: int, scanned: int) -> ReadResult:
    """What of it is before an offset."""
    count = bisect_left(result.queue_offsets, end)
    return ReadResult(
        [result.records[index] for index in range(count)],
        result.queue_offsets[:count],
        result.tag_hashes[:count],
        end,
        scanned,
        [
            gap._replace(to_offset=min(gap.to_offset, end))
            for gap in result.gaps
            if gap.from_offset < end
        ],
    )


def _places_of_corrupt(data: bytes, first: int, gaps: Iterable[Gap]) -> Iterator[int]:
    """Where the records of gaps begin, as the units from offset `first` on say that were read."""
    for gap in gaps:
        if gap.reason == GAP_CORRUPT:
            for offset in range(gap.from_offset, gap.to_offset):
                at, size, _ = UNIT.unpack_from(data, (offset - first) * UNIT_BYTES)
                if size > 0:
                    yield at


def _read_few(
    source: Source, queue: ConsumeQueue, wanted: Wanted, data: bytes, *, wait_for_disk: bool
) -> ReadResult:
    offsets, units, next_offset = _chosen(list(UNIT.iter_unpack(data)), wanted)
    is_exact = wanted.tag_hashes is None
    encoded = memoryview(data) if is_exact and source.knows_blocks else None
    records: list[memoryview] = []
    bad: list[int] = []
    for low, high in _runs(source, units):
        piece = _read_piece(source, units[low][0], sum(units[high - 1][:2]), wait_for_disk)
        start = units[low][0]
        chosen = units[low:high]
        found = [piece[at - start : at - start + size] for at, size, _ in chosen]
        exact = encoded[low * UNIT_BYTES :] if encoded is not None else None
        run = FewRun(offsets[low:high], chosen, found, piece, exact)
        bad += [low + index for index in bad_of_few(source, queue, run)]
        records += found
    hashes = [unit[2] for unit in units]
    scanned = next_offset - wanted.offset
    if not bad:
        return ReadResult(records, offsets, hashes, next_offset, scanned, [])
    gaps = _gaps(source, [(offsets[index], *units[index][:2]) for index in bad])
    for index in reversed(bad):
        del records[index], offsets[index], hashes[index]
    return ReadResult(records, offsets, hashes, next_offset, scanned, gaps)


def _chosen(units: list[Unit], wanted: Wanted) -> tuple[list[int], list[Unit], int]:
    """Queue offsets and units of what is wanted and within the bounds, and where to go on."""
    first, hashes, end = wanted.offset, wanted.tag_hashes, wanted.offset + len(units)
    if hashes is None and sum([size for _, size, _ in units]) <= wanted.max_bytes:
        return list(range(first, end)), units, end
    offsets: list[int] = []
    chosen: list[Unit] = []
    total = 0
    for offset, unit in enumerate(units, first):
        if hashes is None or unit[2] in hashes:
            total += unit[1]
            if chosen and (total > wanted.max_bytes or len(chosen) >= wanted.max_messages):
                return offsets, chosen, offset
            chosen.append(unit)
            offsets.append(offset)
    return offsets, chosen, end


def _runs(source: Source, units: list[Unit]) -> list[tuple[int, int]]:
    """Half-open ranges of units whose records are read in one piece."""
    log, gap_bytes = source.log, source.gap_bytes
    runs: list[tuple[int, int]] = []
    low = end = segment_end = 0
    for index, (at, size, _) in enumerate(units):
        if at != end or at >= segment_end:
            if index and not (end <= at <= end + gap_bytes and at < segment_end):
                runs.append((low, index))
                low = index
            if low == index:
                segment_end = log.base_of(at) + log.segment_bytes
        end = at + size
    if units:
        runs.append((low, len(units)))
    return runs


def _read_piece(source: Source, start: int, end: int, wait_for_disk: bool) -> memoryview:
    """`[start, end)` of the log, as far as it lies in the segment of `start`."""
    log = source.log
    size = min(end, log.base_of(start) + log.segment_bytes) - start
    if size <= 0:
        return memoryview(b"")
    return log.read_view(start, size, wait_for_disk=wait_for_disk)


class Columns(NamedTuple):
    """Units of wanted messages; the arrays run in parallel."""

    offsets: Ints | range
    """A range when nothing is left out."""
    positions: Ints
    sizes: Ints
    hashes: Ints


def _read_many(
    source: Source,
    queue: ConsumeQueue,
    wanted: Wanted,
    data: bytes | bytearray,
    *,
    wait_for_disk: bool,
) -> ReadResult:
    columns, next_offset = chosen_columns(data, wanted)
    offsets, positions, sizes, hashes = columns
    starts = np.empty_like(positions)
    runs: list[ManyRun] = []
    for low, high in array_runs(source, positions, sizes):
        first, end = int(positions[low]), int(positions[high - 1] + sizes[high - 1])
        np.subtract(positions[low:high], first, out=starts[low:high])
        piece, is_whole = memoryview(b""), False
        if first >= 0 and int(sizes[low]) >= RECORD_BYTES_MIN:
            piece = _read_piece(source, first, end, wait_for_disk)
            is_whole = len(piece) == end - first
        runs.append(ManyRun(low, high, piece, is_whole))
    is_exact = wanted.tag_hashes is None
    encoded = memoryview(data) if is_exact and source.knows_blocks else None
    bad = bad_of_many(source, queue, ManyRead(offsets, positions, starts, sizes, runs, encoded))
    gaps: list[Gap] = []
    if bad:
        lost = (np.asarray(offsets)[bad], positions[bad], sizes[bad])
        gaps = _gaps(source, list(zip(*(column.tolist() for column in lost), strict=True)))
        offsets, hashes = np.delete(np.asarray(offsets), bad), np.delete(hashes, bad)
    pieces = _pieces(runs, starts, sizes, bad)
    return ReadResult(
        RecordViews(pieces) if source.fast_paths.record_views else views_of(pieces),
        offsets if isinstance(offsets, range) else offsets.tolist(),
        array("q", hashes.tobytes()),
        next_offset,
        next_offset - wanted.offset,
        gaps,
    )


def chosen_columns(data: bytes | bytearray, wanted: Wanted) -> tuple[Columns, int]:
    """What is wanted and within the bounds, and where to go on."""
    units = np.frombuffer(data, UNITS)
    offsets: Ints | range = range(wanted.offset, wanted.offset + len(units))
    next_offset = wanted.offset + len(units)
    if wanted.tag_hashes is not None:
        hashes = np.array(sorted(wanted.tag_hashes), np.int64)
        chosen = np.flatnonzero(np.isin(units["tag_hash"].astype(np.int64), hashes))
        units, offsets = units[chosen], wanted.offset + chosen
    taken = min(len(units), wanted.max_messages)
    sizes = units["size"][:taken].astype(np.int64)
    taken = min(taken, max(int(np.searchsorted(sizes.cumsum(), wanted.max_bytes, "right")), 1))
    if taken < len(units):
        next_offset = int(offsets[taken])
    units = units[:taken]
    positions, tags = (units[name].astype(np.int64) for name in ("physical_offset", "tag_hash"))
    return Columns(offsets[:taken], positions, sizes[:taken], tags), next_offset


def array_runs(source: Source, positions: Ints, sizes: Ints) -> list[tuple[int, int]]:
    """Half-open ranges of records that are read in one piece."""
    if not len(positions):
        return []
    distances = positions[1:] - positions[:-1] - sizes[:-1]
    apart = distances.view(np.uint64) > source.gap_bytes  # as are negative ones
    if int(sizes.min()) < RECORD_BYTES_MIN:
        short = sizes < RECORD_BYTES_MIN
        apart |= short[1:] | short[:-1]
    cuts = [0, *(np.flatnonzero(apart) + 1).tolist(), len(positions)]
    runs: list[tuple[int, int]] = []
    for low, high in pairwise(cuts):
        runs += _within_segments(source, positions, low, high)
    return runs


def _within_segments(source: Source, positions: Ints, low: int, high: int) -> list[tuple[int, int]]:
    """The range `[low, high)` of rising positions, cut where a segment ends."""
    base_of = source.log.base_of
    if base_of(int(positions[low])) == base_of(int(positions[high - 1])):
        return [(low, high)]
    bases = positions[low:high] // source.log.segment_bytes
    cuts = [low, *(np.flatnonzero(bases[1:] != bases[:-1]) + low + 1).tolist(), high]
    return list(pairwise(cuts))


def _pieces(runs: list[ManyRun], starts: Ints, sizes: Ints, bad: list[int]) -> list[Piece]:
    """What was read, without the `bad` records."""
    pieces: list[Piece] = []
    for low, high, data, _ in runs:
        piece = Piece(data, starts[low:high], sizes[low:high])
        spoilt = bad[bisect_left(bad, low) : bisect_left(bad, high)] if bad else []
        pieces.append(piece.without([index - low for index in spoilt]) if spoilt else piece)
    return pieces


def _gaps(source: Source, bad: Iterable[tuple[int, int, int]]) -> list[Gap]:
    """Gaps for records that are not good: queue offset, physical offset, size."""
    gaps: list[Gap] = []
    for offset, at, size in bad:
        reason = GAP_EXPIRED if size > 0 and at < source.log.start else GAP_CORRUPT
        if gaps and gaps[-1].to_offset == offset and gaps[-1].reason == reason:
            gaps[-1] = Gap(gaps[-1].from_offset, offset + 1, reason)
        else:
            gaps.append(Gap(offset, offset + 1, reason))
    return gaps
