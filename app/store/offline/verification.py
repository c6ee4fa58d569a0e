"""Reading everything: state files, log, queues, key index, timer log. Changes nothing.

A damaged record is reported as the message that it was: the queue unit that points at it tells
topic, queue and offset; without one, what is left of its own head.
"""

import struct
from dataclasses import dataclass, field
from typing import Final

from app.store import paths
from app.store.formats.files.rocketmq_files import CHECKPOINT_BYTES
from app.store.formats.record.record import decode_fields
from app.store.fs.files import FileSystem
from app.store.fs.strays import is_segment, strangers
from app.store.log.atomic_batch import WholeBatches
from app.store.log.log_scan import Damage, LogScanner, records_of
from app.store.offline.directory import Directory, Kind, Problem, open_directory
from app.store.offline.key_check import KeyCheck
from app.store.offline.queue_check import QueueCheck, QueueName, in_range
from app.store.offline.timer_check import check_timer_log
from app.store.queues.queue_files import known_offsets

MISSING: Final = "is missing"
NOT_READ: Final = "lost+found/ and the metadata database"
"""What is in a node's data directory and is not read."""

_HEAD_BYTES_MAX: Final = 64 * 1024


@dataclass(slots=True)
class Verification:
    """What was read and what is wrong with it. Sizes in bytes."""

    segments: int = 0
    records: int = 0
    record_bytes: int = 0
    queues: int = 0
    log_start: int = 0
    log_end: int = 0
    """Behind the last good record."""
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What is no damage but good to know."""
    bounds: dict[QueueName, tuple[int, int]] = field(default_factory=dict)
    damaged_queues: set[QueueName] = field(default_factory=set)
    store_time_ms: int = 0

    def of_kind(self, kind: Kind) -> list[Problem]:
        return [problem for problem in self.problems if problem.kind is kind]


def verify(files: FileSystem) -> Verification:
    """Read the whole store. Raises `StoreUnusable` when no meta file tells its sizes."""
    directory = open_directory(files)
    try:
        return _verify(directory)
    finally:
        directory.close()


def _verify(directory: Directory) -> Verification:
    log = directory.log
    result = Verification(segments=len(log.bases), log_start=log.start)
    result.problems += directory.problems
    _check_segments(directory, result)
    _check_strangers(directory, result)
    result.problems += check_timer_log(directory.files)
    _check_rocket_checkpoint(directory, result)
    queues, keys = QueueCheck(directory), KeyCheck(directory)
    known = known_offsets(directory.meta, directory.checkpoint, directory.files)
    scanner = LogScanner(log, unchecked_end=directory.meta.unchecked_end, known_offsets=known)
    promised = directory.dispatched_end
    steps = WholeBatches(directory.meta.unchecked_end, scanner.damages)
    for _, record in records_of(steps.whole_or_below(promised, scanner.blocks(log.start))):
        fields = decode_fields(record)
        queues.take(fields)
        keys.take(fields)
        result.records += 1
        result.record_bytes += len(record)
        result.store_time_ms = max(result.store_time_ms, fields.store_time_ms)
    unfinished = steps.unfinished_from
    result.log_end = scanner.end if unfinished is None else unfinished
    damages = sorted(scanner.damages + steps.halves)
    if scanner.end < promised:
        damages.append(Damage(scanner.end, promised, "the last records"))
    queues.finish()
    _check_ends(directory, queues, result)
    keys.finish(log.start, [(damage.start, damage.end) for damage in damages])
    _report_unreadable(directory, damages, queues, result)
    end = max(result.log_end, promised)
    torn = scanner.torn or unfinished is not None
    if torn and _anything_from(directory, end):
        what = "torn tail: bytes of a write that was never acknowledged"
        result.problems.append(Problem(Kind.TAIL, *directory.place(end), what))
    result.problems += [*queues.problems, *keys.problems]
    result.bounds = queues.bounds()
    result.queues = len(result.bounds)
    result.damaged_queues = queues.damaged
    _note(directory, queues, result)
    return result


def _check_segments(directory: Directory, result: Verification) -> None:
    log, files = directory.log, directory.files
    size = directory.meta.segment_bytes
    for name in files.list(paths.COMMIT_LOG):
        path = f"{paths.COMMIT_LOG}/{name}"
        if not is_segment(files, name, size):
            what = "is no segment by its name"
            result.problems.append(Problem(Kind.SEGMENT, path, 0, what))
            continue
        file = files.open(path)
        try:
            found = file.size()
        finally:
            file.close()
        if found != size:
            what = f"has {found} bytes instead of {size}"
            result.problems.append(Problem(Kind.SEGMENT, path, min(found, size), what))
    bases = set(log.bases)
    for base in range(log.start, max(log.end_of_segments, directory.dispatched_end), size):
        if base not in bases:
            result.problems.append(Problem(Kind.SEGMENT, paths.segment(base), 0, MISSING))


def _check_strangers(directory: Directory, result: Verification) -> None:
    for path in strangers(directory.files, directory.meta.segment_bytes):
        if not path.startswith(f"{paths.COMMIT_LOG}/"):
            result.problems.append(Problem(Kind.STRAY, path, 0, "is no part of a store"))


def _check_ends(directory: Directory, queues: QueueCheck, result: Verification) -> None:
    """Segments before the first one and behind the last one that must have been there."""
    log, checkpoint = directory.log, directory.checkpoint
    known_end = max(directory.meta.unchecked_end, directory.dispatched_end - 1, log.start)
    if result.log_end == log.end_of_segments > known_end:
        what = f"{MISSING}, and the one before it is closed"
        result.problems.append(Problem(Kind.SEGMENT, paths.segment(result.log_end), 0, what))
    is_clean = checkpoint is not None and checkpoint.clean
    if directory.dispatched_end < log.start and (is_clean or result.log_end == log.start):
        for base in range(log.base_of(directory.dispatched_end), log.start, log.segment_bytes):
            result.problems.append(Problem(Kind.SEGMENT, paths.segment(base), 0, MISSING))
        return
    if not queues.before_log:
        return
    what = f"the log begins at {log.start}; {queues.before_log} messages of queues are before it"
    if checkpoint is not None and checkpoint.clean:
        first = paths.segment(max(log.start - log.segment_bytes, 0))
        result.problems.append(Problem(Kind.RECORD, first, 0, f"{MISSING}: {what}"))
    else:
        result.notes.append(f"{what}: retention was interrupted, or a segment is missing")


def _check_rocket_checkpoint(directory: Directory, result: Verification) -> None:
    if not directory.files.exists(paths.ROCKET_CHECKPOINT):
        return
    file = directory.files.open(paths.ROCKET_CHECKPOINT)
    try:
        found = file.size()
    finally:
        file.close()
    if found != CHECKPOINT_BYTES:
        what = f"has {found} bytes instead of {CHECKPOINT_BYTES}"
        result.problems.append(Problem(Kind.STATE, paths.ROCKET_CHECKPOINT, 0, what))


def _report_unreadable(
    directory: Directory, damages: list[Damage], queues: QueueCheck, result: Verification
) -> None:
    """One problem for each lost message; for damage that no unit points into, one for itself."""
    told: set[Damage] = set()
    for name, offset, unit in queues.unreadable:
        damage = next((d for d in damages if in_range(unit, [(d.start, d.end)])), None)
        if damage is None:
            file, at = queues.file_of(name, offset)
            what = "the log has no record for this message"
        else:
            told.add(damage)
            file, at = directory.place(unit[0])
            what = f"unreadable record: {damage.reason}"
        problem = Problem(Kind.RECORD, file, at, what, *name, offset, offset + 1)
        result.problems.append(problem)
    for damage in damages:
        if damage not in told:
            result.problems.append(_by_its_own_head(directory, damage))


def _by_its_own_head(directory: Directory, damage: Damage) -> Problem:
    file, at = directory.place(damage.start)
    what = f"{damage.end - damage.start} unreadable bytes: {damage.reason}"
    head = directory.log.read(damage.start, 4)
    size = min(int.from_bytes(head), damage.end - damage.start)
    try:
        fields = decode_fields(directory.log.read(damage.start, size))
    except (ValueError, IndexError, struct.error):
        return Problem(Kind.RECORD, file, at, what)
    place = (fields.topic, fields.queue_id, fields.queue_offset, fields.queue_offset + 1)
    return Problem(Kind.RECORD, file, at, f"{what}; by its own head", *place)


def _anything_from(directory: Directory, position: int) -> bool:
    log = directory.log
    while position < log.end_of_segments:
        base = log.base_of(position)
        data = log.read(position, min(_HEAD_BYTES_MAX, base + log.segment_bytes - position))
        if any(data):
            return True
        position += len(data) or base + log.segment_bytes - position
    return False


def _note(directory: Directory, queues: QueueCheck, result: Verification) -> None:
    checkpoint = directory.checkpoint
    if checkpoint is None:
        result.notes.append("there is no good checkpoint; the next start reads the whole log")
    elif not checkpoint.clean:
        result.notes.append(
            "the store was not stopped in order; the next start reads the log from "
            f"{checkpoint.dispatched_end} on"
        )
    if queues.undispatched:
        result.notes.append(f"{queues.undispatched} messages will be put into their queues then")
