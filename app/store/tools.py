"""What an operator does to a store that no node has open: look, check, mend, bring one in.

Every function takes the lock of the store. `verify` reads everything and changes nothing; `repair`
moves nothing and deletes nothing without a copy in `lost+found/`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from typing_extensions import override

from app.domain.clock import Clock
from app.store import paths
from app.store.commit_log import CommitLog
from app.store.config import StoreConfig
from app.store.consume_queue import ConsumeQueue
from app.store.dispatching import BlockDispatcher
from app.store.files import FileSystem, read_whole, write_atomically
from app.store.formats.consume_queue import UNIT, UNIT_BYTES
from app.store.formats.record import decode_fields, decode_properties
from app.store.formats.state_file import (
    KIND_META,
    Checkpoint,
    StoreMeta,
    encode_state,
)
from app.store.key_index import KeyIndex
from app.store.log_scan import LogScanner
from app.store.message_store import MAX_TIME_MS, MessageStore
from app.store.opening import StoreUnusable, load_checkpoint, load_or_make_meta
from app.store.queue_table import QueueTable

COPY_BYTES = 8 * 1024 * 1024
_PROBLEMS_MAX = 1000


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong in a file. `offset` is a byte of it; `message` says what."""

    file: str
    offset: int
    message: str


@dataclass(slots=True)
class StoreReport:
    """What there is in a store, and what is wrong with it."""

    store_id: str = ""
    segment_bytes: int = 0
    segments: int = 0
    start: int = 0
    end: int = 0
    clean: bool = False
    records: int = 0
    keys: int = 0
    topics: dict[str, dict[int, tuple[int, int]]] = field(default_factory=dict)
    """By topic and queue id: first and end offset."""
    problems: list[Problem] = field(default_factory=list)
    problem_count: int = 0

    def add(self, file: str, offset: int, message: str) -> None:
        """Note a problem; a bounded number is kept, all are counted."""
        self.problem_count += 1
        if len(self.problems) < _PROBLEMS_MAX:
            self.problems.append(Problem(file, offset, message))


class _NoTurns:
    """Nothing is appended, so there are no turns."""

    def call_soon(self, callback: object, /) -> None:
        del callback

    def call_soon_threadsafe(self, callback: object, /) -> None:
        del callback


class _Opened:
    """The parts of a store, loaded but not recovered."""

    def __init__(self, files: FileSystem, clock: Clock) -> None:
        if not files.exists(paths.META) and not files.exists(paths.META_COPY):
            raise StoreUnusable("this is no store of Curlew: it has no meta file")
        self.lock = files.lock(paths.LOCK)
        self.meta = load_or_make_meta(files, StoreConfig(), clock)
        self.log = CommitLog(files, self.meta.segment_bytes)
        self.queues = QueueTable(files, self.meta.queue_file_units)
        self.index = KeyIndex(self.queues.cache, self.meta.index_slots, self.meta.index_entries)
        self.checkpoint: Checkpoint | None = load_checkpoint(files)

    def close(self) -> None:
        self.queues.cache.close()
        self.log.close()
        self.lock.release()

    def report(self) -> StoreReport:
        report = StoreReport(
            store_id=self.meta.store_id,
            segment_bytes=self.meta.segment_bytes,
            segments=len(self.log.bases),
            start=self.log.start,
        )
        if self.checkpoint is not None:
            report.end, report.clean = self.checkpoint.dispatched_end, self.checkpoint.clean
            for state in self.checkpoint.queues:
                bounds = (state.min_offset, state.max_offset)
                report.topics.setdefault(state.topic, {})[state.queue_id] = bounds
        return report


def stats(files: FileSystem, clock: Clock) -> StoreReport:
    """What the checkpoint and the names of files say; nothing else is read."""
    opened = _Opened(files, clock)
    try:
        return opened.report()
    finally:
        opened.close()


def dump(files: FileSystem, clock: Clock, start: int, count: int) -> Iterator[dict[str, object]]:
    """`count` records from the physical offset `start` on, in the order of the log, as fields."""
    opened = _Opened(files, clock)
    try:
        scanner = LogScanner(opened.log, unchecked_end=opened.meta.unchecked_end)
        for number, (position, record) in enumerate(scanner.records(max(start, opened.log.start))):
            if number >= count:
                return
            fields = decode_fields(record)
            yield {
                "physical_offset": position,
                "size": len(record),
                "topic": fields.topic,
                "queue_id": fields.queue_id,
                "queue_offset": fields.queue_offset,
                "store_time_ms": fields.store_time_ms,
                "born_time_ms": fields.born_time_ms,
                "system_flag": fields.system_flag,
                "synced_end": fields.prepared_offset,
                "properties": decode_properties(fields.properties),
                "body": fields.body.decode("utf-8", "backslashreplace"),
            }
    finally:
        opened.close()


class _CheckedQueue(ConsumeQueue):
    """Compares what is dispatched into it with the files."""

    __slots__ = ("report",)
    report: StoreReport

    def check(self, queue_offset: int, units: bytes) -> None:
        """Compare the units from `queue_offset` on."""
        count = len(units) // UNIT_BYTES
        stored = self.unit_bytes(queue_offset, queue_offset + count)
        if stored == units:
            return
        for number in range(count):
            part = slice(number * UNIT_BYTES, (number + 1) * UNIT_BYTES)
            if stored[part] != units[part]:
                offset = queue_offset + number
                path, at = self.place_of(offset)
                found, wanted = UNIT.unpack(stored[part]), UNIT.unpack(units[part])
                self.report.add(path, at, f"unit of offset {offset} is {found}, not {wanted}")


class _CheckedQueues(QueueTable):
    """Queues that check instead of taking."""

    def __init__(self, opened: _Opened, files: FileSystem, report: StoreReport) -> None:
        super().__init__(files, opened.meta.queue_file_units)
        self.cache = opened.queues.cache
        self._units = opened.meta.queue_file_units
        self._report = report
        self._checked: dict[tuple[str, int], _CheckedQueue] = {}
        states = opened.checkpoint.queues if opened.checkpoint else ()
        self._minima = {(s.topic, s.queue_id): s.min_offset for s in states}

    def take(self, topic: str, queue_id: int, offsets: list[int], units: bytes) -> None:
        """Check the units of a queue."""
        queue = self._checked.get((topic, queue_id))
        if queue is None:
            queue = _CheckedQueue(self.cache, topic, queue_id, self._units)
            queue.report = self._report
            queue.begin(0, 1 << 40)
            self._checked[topic, queue_id] = queue
        minimum = self._minima.get((topic, queue_id), 0)
        for number, offset in enumerate(offsets):
            if offset >= minimum:
                queue.check(offset, units[number * UNIT_BYTES : (number + 1) * UNIT_BYTES])
        first, end = self._report.topics.setdefault(topic, {}).get(queue_id, (offsets[0], 0))
        bounds = (min(first, offsets[0]), max(end, offsets[-1] + 1))
        self._report.topics[topic][queue_id] = bounds


class _CheckingDispatcher(BlockDispatcher):
    """Dispatches into the checking queues."""

    def __init__(self, opened: _Opened, files: FileSystem, report: StoreReport) -> None:
        indexed_end = 0
        super().__init__(opened.queues, opened.index, indexed_end=indexed_end)
        self._checked = _CheckedQueues(opened, files, report)
        self._report = report

    @override
    def put_units(self, topic: str, queue_id: int, offsets: list[int], units: bytes) -> None:
        self._checked.take(topic, queue_id, offsets, units)

    @override
    def put_keys(self, position: int, store_time_ms: int, topic: str, keys: list[str]) -> None:
        self._report.keys += len(keys)
        for key in keys:
            found = self._index.candidates(topic, key, 0, MAX_TIME_MS, wait_for_disk=True)
            if position not in found:
                where = f"key {key!r} of the record at {position} is not in the index"
                self._report.add(paths.INDEX, 0, where)


def verify(files: FileSystem, clock: Clock) -> StoreReport:
    """Read all records, and compare queues and index with them. Changes nothing."""
    opened = _Opened(files, clock)
    try:
        report = opened.report()
        _verify_sizes(files, opened, report)
        if opened.checkpoint is None:
            report.add(paths.CHECKPOINT, 0, "missing or damaged; the next opening reads the log")
        else:
            end = opened.index.look(opened.checkpoint.index_files)
            if end is not None:
                report.add(paths.INDEX, 0, f"damaged or missing from the record at {end} on")
        scanner = LogScanner(opened.log, unchecked_end=opened.meta.unchecked_end)
        dispatcher = _CheckingDispatcher(opened, files, report)
        for block in scanner.blocks(opened.log.start):
            dispatcher.dispatch(block)
        report.records = dispatcher.records
        for damage in scanner.damages:
            base = opened.log.base_of(damage.start)
            length = damage.end - damage.start
            text = f"{length} bytes hold no good record: {damage.reason}"
            report.add(paths.segment(base), damage.start - base, text)
        if scanner.end < report.end or scanner.torn:
            base = opened.log.base_of(scanner.end)
            text = f"the log ends at {scanner.end}, the checkpoint says {report.end}"
            report.add(paths.segment(base), scanner.end - base, text)
        report.end = max(report.end, scanner.end)
        return report
    finally:
        opened.close()


def _verify_sizes(files: FileSystem, opened: _Opened, report: StoreReport) -> None:
    for base in opened.log.short_segments():
        report.add(paths.segment(base), 0, "the file is shorter than a segment")
    states = opened.checkpoint.queues if opened.checkpoint else ()
    wanted = opened.meta.queue_file_units * UNIT_BYTES
    for state in states:
        directory = paths.queue_directory(state.topic, state.queue_id)
        for name in files.list(directory):
            file = files.open(f"{directory}/{name}")
            size = file.size()
            file.close()
            if size != wanted:
                report.add(f"{directory}/{name}", 0, f"{size} bytes, not {wanted}")


def repair(files: FileSystem, clock: Clock) -> tuple[StoreReport, list[str], StoreReport]:
    """Make damaged queues and index again: what was wrong, the copies made, what is wrong still.

    Damage of the log cannot be undone: its records stay away, and everything else stays. What is
    taken out of the way is copied to `lost+found/` first.
    """
    before = verify(files, clock)
    copies: list[str] = []
    if before.problem_count:
        folder = f"{paths.LOST_AND_FOUND}/repair-{clock.now_ms()}"
        for path in _derived_files(files, before):
            copies.append(_copy(files, path, files, f"{folder}/{path}"))
            files.remove(path)
    store = MessageStore.open(files, StoreConfig(), clock, _NoTurns())
    store.close()
    return before, copies, verify(files, clock)


def _derived_files(files: FileSystem, report: StoreReport) -> list[str]:
    """The damaged files that can be made again."""
    damaged: set[str] = set()
    for problem in report.problems:
        if problem.file.startswith(f"{paths.CONSUME_QUEUES}/") and files.exists(problem.file):
            damaged.add(problem.file)
        elif problem.file == paths.INDEX:
            damaged.update(f"{paths.INDEX}/{name}" for name in files.list(paths.INDEX))
    return sorted(damaged)


def _copy(source: FileSystem, path: str, target: FileSystem, copy: str) -> str:
    """Copy one file; holes stay holes. Returns the name of the copy."""
    target.make_directory(copy.rpartition("/")[0])
    reader, writer = source.open(path), target.open(copy, create=True)
    try:
        size, at = reader.size(), 0
        writer.truncate(size)
        while at < size:
            found = reader.next_data(at)
            if found is None:
                break
            data = reader.pread(COPY_BYTES, found)
            writer.pwritev([data], found)
            at = found + len(data)
        writer.sync()
    finally:
        reader.close()
        writer.close()
    target.sync_directory(copy.rpartition("/")[0])
    return copy


def import_log(source: FileSystem, target: FileSystem, clock: Clock) -> StoreReport:
    """Copy the log of a RocketMQ store (4.9 or 5) and make queues and index from it.

    The target must be new. Raises `StoreUnusable`.
    """
    bases = [
        name for name in source.list(paths.COMMIT_LOG) if paths.parse_file_name(name) is not None
    ]
    if not bases:
        raise StoreUnusable("the source has no commit log; name the directory above commitlog/")
    if target.list(paths.COMMIT_LOG) or target.exists(paths.META):
        raise StoreUnusable("the target has a store already; name a new directory")
    first = source.open(f"{paths.COMMIT_LOG}/{bases[0]}")
    segment_bytes = first.size()
    first.close()
    if len(bases) > 1:
        segment_bytes = int(bases[1]) - int(bases[0])
    if segment_bytes <= 0 or any(int(base) % segment_bytes for base in bases):
        raise StoreUnusable(f"the source's segments are not {segment_bytes} bytes apart")
    for base in bases:
        _copy(source, f"{paths.COMMIT_LOG}/{base}", target, f"{paths.COMMIT_LOG}/{base}")
    log = CommitLog(target, segment_bytes)
    log.extend_short_segments()
    scanner = LogScanner(log, unchecked_end=log.end_of_segments)
    for _ in scanner.blocks(log.start):
        pass
    log.close()
    defaults = StoreConfig()
    meta = StoreMeta(
        store_id=f"{clock.now_ms() & 0xFFFFFFFF:08x}",
        segment_bytes=segment_bytes,
        queue_file_units=defaults.queue_file_units,
        created_ms=clock.now_ms(),
        index_slots=defaults.index_slots,
        index_entries=defaults.index_entries,
        unchecked_end=scanner.end,
    )
    write_atomically(target, paths.META, encode_state(KIND_META, meta))
    store = MessageStore.open(target, defaults, clock, _NoTurns())
    store.close()
    report = stats(target, clock)
    for damage in scanner.damages:
        at = damage.start % segment_bytes
        report.add(paths.segment(damage.start - at), at, damage.reason)
    return report


def read_source_text(source: FileSystem, path: str) -> str | None:
    """A text file of the source, or its `.bak`, as RocketMQ falls back."""
    for name in (path, f"{path}.bak"):
        data = read_whole(source, name)
        if data:
            return data.decode("utf-8", "replace")
    return None
