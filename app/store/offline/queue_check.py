"""Holding the consume queues to the log: every record has its unit, every unit its record.

Records come in the order of the log, so a queue's units are read once, in stretches. For each
message one byte is kept in memory.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from app.store import paths
from app.store.formats.files.consume_queue import UNIT, UNIT_BYTES
from app.store.formats.files.state_file import Checkpoint
from app.store.formats.record.record import RecordFields, decode_properties
from app.store.fs.file_cache import FileCache
from app.store.fs.files import FileSystem
from app.store.fs.strays import is_file, names_in, queue_directories
from app.store.lifecycle.dispatcher import has_unit, unit_of
from app.store.offline.directory import Directory, Kind, Problem
from app.store.queues.consume_queue import ConsumeQueue, Unit

_STRETCH_UNITS: Final = 1_000
_NO_UNIT: Final = (0, 0, 0)

QueueName = tuple[str, int]


class _CheckedQueue:
    """One queue: its bounds by the checkpoint, else by the log, and what was seen of it."""

    def __init__(self, cache: FileCache, name: QueueName, file_units: int, first: int) -> None:
        self.name = name
        self.first = first
        self.known_end = first
        """The end by the checkpoint."""
        self.seen = bytearray()
        self._units = ConsumeQueue(cache, *name, file_units)
        self._units.begin(0, 1 << 56)
        self._stretch: tuple[int, list[Unit]] = (0, [])

    @property
    def end(self) -> int:
        return max(self.known_end, self.first + len(self.seen))

    def note(self, queue_offset: int) -> bool:
        """Take a message down; False when it was there already."""
        at = queue_offset - self.first
        if at >= len(self.seen):
            self.seen.extend(bytes(at + 1 - len(self.seen)))
        twice, self.seen[at] = self.seen[at], 1
        return not twice

    def place_of(self, queue_offset: int) -> tuple[str, int]:
        return self._units.place_of(queue_offset)

    def unit(self, queue_offset: int) -> Unit:
        start, units = self._stretch
        if not start <= queue_offset < start + len(units):
            start = queue_offset
            units = self._units.units(start, start + _STRETCH_UNITS)
            self._stretch = (start, units)
        return units[queue_offset - start]

    def unseen(self) -> Iterator[int]:
        """Offsets within the bounds that no record of the log bears."""
        seen = self.seen.ljust(self.end - self.first, b"\0")
        at = seen.find(0)
        while at >= 0:
            yield self.first + at
            at = seen.find(0, at + 1)


class QueueCheck:
    """All queues of a store. `take` every good record, then `finish`."""

    def __init__(self, directory: Directory) -> None:
        self.problems: list[Problem] = []
        self.damaged: set[QueueName] = set()
        """Queues whose files must be made again."""
        self.undispatched = 0
        """Good units that are not in a file yet, which is right after a crash."""
        self.before_log = 0
        """Messages within the queues' bounds whose records stood before the log's first one."""
        self.unreadable: list[tuple[QueueName, int, Unit]] = []
        """Messages without a good record, and their units."""
        self._files = directory.files
        self._file_units = directory.meta.queue_file_units
        self._log_start = directory.log.start
        self._dispatched_end = directory.dispatched_end
        self._has_checkpoint = directory.checkpoint is not None
        self._cache = FileCache(directory.files)
        self._queues: dict[QueueName, _CheckedQueue] = {}
        if directory.checkpoint is not None:
            self._take_states(directory.checkpoint)

    def _take_states(self, checkpoint: Checkpoint) -> None:
        for state in checkpoint.queues:
            name = (state.topic, state.queue_id)
            queue = _CheckedQueue(self._cache, name, self._file_units, state.min_offset)
            queue.known_end = state.max_offset
            self._queues[name] = queue

    def take(self, fields: RecordFields) -> None:
        """Compare one good record with its unit."""
        if not has_unit(fields.system_flag):
            return
        name = (fields.topic, fields.queue_id)
        queue = self._queues.get(name)
        if queue is None:
            queue = _CheckedQueue(self._cache, name, self._file_units, fields.queue_offset)
            self._queues[name] = queue
        offset = fields.queue_offset
        if offset < queue.first:
            return  # deleted with its topic, or expired
        if not queue.note(offset):
            what = f"a second record at {fields.physical_offset} has this queue offset"
            self._report(queue, Kind.RECORD, offset, what)
            return
        pairs = decode_properties(fields.properties)
        expected, found = UNIT.unpack(unit_of(fields, pairs)), queue.unit(offset)
        if found == expected:
            return
        if found == _NO_UNIT:
            if self._has_checkpoint and fields.physical_offset >= self._dispatched_end:
                self.undispatched += 1
                return
            what = "zeros" if self._file_is_there(queue, offset) else "the file is missing"
        elif found[:2] != expected[:2]:
            what = f"points at {found[0]} ({found[1]} bytes) instead of {expected[0]}"
        else:
            what = f"tag hash {found[2]} instead of {expected[2]}"
        self._report(queue, Kind.QUEUE, offset, what)

    def finish(self) -> None:
        """Look for messages without a record, for strange files, for files of a wrong size."""
        for queue in self._queues.values():
            for offset in queue.unseen():
                unit = queue.unit(offset)
                if unit[1] > 0 and unit[0] < self._log_start:
                    self.before_log += 1
                else:
                    self.unreadable.append((queue.name, offset, unit))
        for topic, queue_id in queue_directories(self._files):
            self._check_directory(topic, queue_id)
        self._cache.close()

    def bounds(self) -> dict[QueueName, tuple[int, int]]:
        """First offset and end of every queue."""
        return {name: (queue.first, queue.end) for name, queue in self._queues.items()}

    def _check_directory(self, topic: str, queue_id: int) -> None:
        path = paths.queue_directory(topic, queue_id)
        queue = self._queues.get((topic, queue_id))
        names = names_in(self._files, path)
        if names is None:
            self.problems.append(Problem(Kind.STRAY, path, 0, "is no directory"))
            if queue is not None:
                self.damaged.add(queue.name)
            return
        if queue is None:
            if self._has_checkpoint and names:
                what = "is the directory of no queue"
                self.problems.append(Problem(Kind.QUEUE, path, 0, what))
            return
        size = self._file_units * UNIT_BYTES
        for name in names:
            base = paths.parse_file_name(name)
            if base is None or base % size or not is_file(self._files, f"{path}/{name}"):
                what = "is no queue file by its name"
            elif (found := _size(self._files, f"{path}/{name}")) != size:
                what = f"has {found} bytes instead of {size}"
            else:
                continue
            self.damaged.add(queue.name)
            self.problems.append(Problem(Kind.QUEUE, f"{path}/{name}", 0, what, *queue.name))

    def _file_is_there(self, queue: _CheckedQueue, offset: int) -> bool:
        return self._files.exists(self.file_of(queue.name, offset)[0])

    def file_of(self, name: QueueName, queue_offset: int) -> tuple[str, int]:
        """The file that holds a unit, and the byte in it."""
        return self._queues[name].place_of(queue_offset)

    def _report(self, queue: _CheckedQueue, kind: Kind, offset: int, what: str) -> None:
        if kind is Kind.QUEUE:
            self.damaged.add(queue.name)
        file, at = self.file_of(queue.name, offset)
        problem = Problem(kind, file, at, what, *queue.name, offset, offset + 1)
        last = self.problems[-1] if self.problems else None
        if last is not None and _goes_on(last, problem):
            self.problems[-1] = Problem(
                kind, file, last.position, what, *queue.name, last.queue_offset, offset + 1
            )
        else:
            self.problems.append(problem)


def _goes_on(last: Problem, problem: Problem) -> bool:
    same = (last.kind, last.file, last.what) == (problem.kind, problem.file, problem.what)
    return same and last.queue_end == problem.queue_offset


def _size(files: FileSystem, path: str) -> int:
    file = files.open(path)
    try:
        return file.size()
    finally:
        file.close()


def in_range(unit: Unit, ranges: Iterable[tuple[int, int]]) -> bool:
    """Whether a unit points into one of the ranges."""
    return unit[1] > 0 and any(start <= unit[0] < end for start, end in ranges)
