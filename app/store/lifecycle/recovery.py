"""Opening after anything but a clean stop: find the end of the log, bring queues and index to it.

`opening` decides from where to read (`ScanPlan.start`): from the end of the checkpoint, or of the
oldest derived file that must be made again.
Every record is checked, and its unit and keys are put where they belong, which is harmless when
they are there already. How bad bytes are judged is in `log_scan`.
"""

import contextlib
import logging
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from app.domain.limits import (
    CHECKED_AT_OPENING_BYTES,
    CUT_TAIL_HELD_BYTES_MAX,
    MIB,
    REBUILT_UNITS_BYTES_MAX,
)
from app.domain.shortages import Shortage, shortage_of
from app.store import paths
from app.store.formats.record.record import CHECKSUM_BYTES, CHECKSUM_NAME
from app.store.fs.files import FileSystem
from app.store.index.key_index import KeyIndex
from app.store.lifecycle.dispatcher import BlockDispatcher
from app.store.lifecycle.opening_progress import OpeningProgress
from app.store.log.atomic_batch import WholeBatches
from app.store.log.commit_log import CommitLog
from app.store.log.log_scan import WINDOW_BYTES, Damage, LogScanner, QueueName, ScannedBlock
from app.store.queues.queue_table import QueueTable

_LOG: Final = logging.getLogger(__name__)

_CHECKSUM: Final = re.compile(re.escape(CHECKSUM_NAME) + rb"\d{10}\x02")

FLUSH_AT_BYTES: Final = 16 * MIB
"""Units that are kept in memory while the log is read."""

BeforeCut = Callable[[str], object]
"""Hears why what is about to be cut may have been acknowledged: the cut wipes out the traces. What
it raises ends the opening, and nothing was cut."""


def no_doubt(_because: str) -> None:
    """Where nobody has to know before the cut."""


@dataclass(slots=True)
class Recovery:
    """What opening found. Sizes in bytes; shown by `status`."""

    end: int
    """Where the log goes on."""
    dispatched_end: int
    """All below is in queues and index; that is the same but for a replica."""
    store_time_ms: int = 0
    scanned_bytes: int = 0
    scanned_records: int = 0
    cut_bytes: int = 0
    was_cut: bool = False
    """Whether there was a tail to cut; `cut_bytes` of it were kept."""
    kept_in: str = ""
    """The file that has the bytes which were cut; empty when there was no room for it."""
    cut_because: str | None = None
    """Why what was cut may have been acknowledged; None: it was not."""
    damages: list[Damage] = field(default_factory=list)
    power_lost: bool = False
    rebuilt_queues: int = 0
    index_rebuilt_from: int | None = None


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """From where the log is read, and what is known about it before."""

    start: int
    indexed_end: int
    """From where keys are missing in the index."""
    synced_end: int
    """Everything below was on the medium and confirmed."""
    unchecked_end: int
    power_lost: bool
    """Unsynced writes may be missing, in any order: the power or a sync failed."""
    known_offsets: Mapping[QueueName, range]
    """Where the first record of a queue may stand."""
    dispatch_end: int | None = None
    """Behind it, the end of a block, nothing is dispatched; None: all is."""
    believes_records: bool = True
    """Whether records say what of this log was on the medium. Those of a replica were made for the
    medium of who led."""


def recover(
    files: FileSystem,
    log: CommitLog,
    queues: QueueTable,
    index: KeyIndex,
    plan: ScanPlan,
    progress: OpeningProgress,
    before_cut: BeforeCut = no_doubt,
) -> Recovery:
    """Read the log as planned, cut a torn tail. The log is synced when it returns.

    Tells `progress` how many bytes are read, of all up to the end of the last segment.
    """
    log.sync_all()
    log.drop_cached(plan.start)
    scanner = LogScanner(
        log,
        unchecked_end=plan.unchecked_end,
        synced_end=plan.synced_end,
        power_lost=plan.power_lost,
        known_offsets=plan.known_offsets,
        believes_records=plan.believes_records,
    )
    dispatcher = BlockDispatcher(queues, index, indexed_end=plan.indexed_end)
    recovery = Recovery(plan.start, plan.start, power_lost=plan.power_lost)
    steps = WholeBatches(plan.unchecked_end, scanner.damages)
    unflushed = 0
    total_bytes = log.end_of_segments - plan.start
    for block in steps.whole_or_below(plan.synced_end, scanner.blocks(plan.start)):
        wanted = _below(block, plan.dispatch_end)
        if wanted.starts:
            dispatcher.dispatch(wanted)
        progress.at("recovering the log", scanner.end - plan.start, total_bytes)
        unflushed += len(wanted.starts) * 20
        if unflushed > FLUSH_AT_BYTES:
            unflushed = 0
            _flush(queues, index)
    unfinished = steps.unfinished_from
    recovery.store_time_ms = dispatcher.store_time_ms
    recovery.scanned_records = dispatcher.records
    recovery.scanned_bytes = scanner.end - plan.start
    recovery.end = scanner.end if unfinished is None else unfinished
    found = sorted(scanner.damages + steps.halves)
    recovery.damages = [each for each in found if each.start < recovery.end]
    if scanner.end < plan.synced_end:
        damage = Damage(scanner.end, plan.synced_end, "the last confirmed records")
        recovery.damages.append(damage)
        recovery.end = plan.synced_end
    end = plan.dispatch_end
    recovery.dispatched_end = recovery.end if end is None else min(end, recovery.end)
    torn = scanner.torn or unfinished is not None
    if torn and scanner.anything_behind(recovery.end):
        recovery.cut_because = _doubt_about_tail(log, scanner.end, plan)
        if recovery.cut_because is not None:
            before_cut(recovery.cut_because)
        recovery.was_cut = True
        recovery.kept_in, recovery.cut_bytes = keep_and_cut(files, log, recovery.end)
        log.sync_all()
    return recovery


def _below(block: ScannedBlock, end: int | None) -> ScannedBlock:
    """The records of a block that begin before `end`."""
    if end is None or block.base + block.starts[-1] < end:
        return block
    count = bisect_left(block.starts, end - block.base)
    return ScannedBlock(block.data, block.starts[:count], block.sizes[:count], block.base)


def damages_of_newest(log: CommitLog, first: int, end: int) -> list[Damage]:
    """What is damaged in the newest `CHECKED_AT_OPENING_BYTES` of `[first, end)`, where each record
    has a checksum. Reads; changes nothing."""
    start = max(first, end - CHECKED_AT_OPENING_BYTES)
    scanner = LogScanner(log, synced_end=end)
    good_end = start
    for block in scanner.blocks(start):
        good_end = block.base + block.starts[-1] + block.sizes[-1]
        if good_end >= end:
            break
    found = [damage for damage in scanner.damages if damage.start != start or start == first]
    if good_end < end and (scanner.end < end or scanner.torn):
        found.append(Damage(max(good_end, scanner.end), end, "the last confirmed records"))
    return [damage for damage in found if damage.start < damage.end]


def _doubt_about_tail(log: CommitLog, good_end: int, plan: ScanPlan) -> str | None:
    """Why the bytes behind the last good record may have been acknowledged; None: they were not.

    Below the synced end nothing is cut. A kill interrupts one write, whose bytes come in order:
    it leaves the beginning of a record, never its end, where the checksum is. (docs/adr/0045)
    """
    if plan.power_lost:
        return "the power or a sync failed; what was acknowledged before its sync may be among them"
    position, before = good_end, b""
    while position < log.end_of_segments:
        data = before + log.read(position, WINDOW_BYTES)
        if _CHECKSUM.search(data):
            return "they have the end of a record that does not match its checksum"
        before = data[-(CHECKSUM_BYTES - 1) :]
        position = min(position + WINDOW_BYTES, log.base_of(position) + log.segment_bytes)
    return None


def _flush(queues: QueueTable, index: KeyIndex) -> None:
    """Move what was dispatched so far out of memory; the first checkpoint syncs it.

    On a full disk it stays there, up to a bound: then the store opens all the same.
    """
    try:
        index.flush()
        for queue in queues:
            queue.flush()
    except OSError as error:
        held_bytes = sum(queue.tail_bytes for queue in queues)
        if shortage_of(error) is None or held_bytes > REBUILT_UNITS_BYTES_MAX:
            raise


def keep_and_cut(files: FileSystem, log: CommitLog, end: int) -> tuple[str, int]:
    """Copy what stands behind `end` to `lost+found/`, then zero it. The copy and its bytes.

    On a full disk the cut itself makes the room: what is there is held in memory meanwhile. The
    copy of what is more than `CUT_TAIL_HELD_BYTES_MAX` is given up, and all of it when it finds no
    room even then; the path is empty then.
    """
    try:
        kept = _keep(files, end, _tail(log, end))
    except OSError as error:
        if shortage_of(error) is not Shortage.ROOM:
            raise
    else:
        log.cut(end)
        return kept
    held: list[tuple[int, bytes]] = []
    for at, data in _tail(log, end):
        if at + len(data) - end > CUT_TAIL_HELD_BYTES_MAX:
            break
        held.append((at, data))
    log.cut(end)
    try:
        return _keep(files, end, held)
    except OSError as error:
        if shortage_of(error) is not Shortage.ROOM:
            raise
        _LOG.warning("no room to keep what was cut off the end of the log at %d", end)
        return "", 0


def _tail(log: CommitLog, end: int) -> Iterator[tuple[int, bytes]]:
    """What stands behind `end`, but for zeros, as (physical offset, bytes)."""
    position = end
    while position < log.end_of_segments:
        data = log.read(position, WINDOW_BYTES).rstrip(b"\0")
        if data:
            yield position, data
        position = min(position + WINDOW_BYTES, log.base_of(position) + log.segment_bytes)


def _keep(files: FileSystem, end: int, tail: Iterable[tuple[int, bytes]]) -> tuple[str, int]:
    """Write a tail to `lost+found/`; its path and size. Leaves nothing there when it fails."""
    files.make_directory(paths.LOST_AND_FOUND)
    number = 1
    while files.exists(paths.cut_tail(end, number)):
        number += 1
    path = paths.cut_tail(end, number)
    copy = files.open(path, create=True)
    kept = 0
    try:
        for position, data in tail:
            copy.pwritev([data], position - end)
            kept = position - end + len(data)
        copy.sync()
    except OSError:
        with contextlib.suppress(OSError):
            files.remove(path)
        raise
    finally:
        copy.close()
    files.sync_directory(paths.LOST_AND_FOUND)
    return path, kept
