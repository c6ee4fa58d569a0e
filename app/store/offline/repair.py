"""Making a store whole again from its log. Nothing is deleted: what is replaced goes to
`lost+found/repair-TIME/` first, under the name it had.

What can be made again is: queues, key index, checkpoint, RocketMQ's checkpoint, the second meta
file. A record that cannot be read stays where it is, and its queue offset stays taken: readers are
told of a gap. The repair ends with an ordinary opening and closing of the store, which makes the
key index and leaves a clean stop.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from app.domain.clock import Clock
from app.store import paths
from app.store.config import StoreConfig
from app.store.formats.files.consume_queue import UNIT
from app.store.formats.files.state_file import (
    KIND_CHECKPOINT,
    KIND_META,
    Checkpoint,
    QueueState,
    encode_state,
)
from app.store.formats.record.record import decode_fields, decode_properties
from app.store.fs.file_cache import FileCache
from app.store.fs.files import FileSystem, write_atomically
from app.store.fs.strays import is_segment, names_in
from app.store.lifecycle.dispatcher import has_unit, unit_of
from app.store.lifecycle.recovery import keep_and_cut
from app.store.log.commit_log import CommitLog
from app.store.log.log_scan import LogScanner
from app.store.message_store import MessageStore
from app.store.offline.directory import Directory, Kind, Problem, locked, open_directory
from app.store.offline.queue_check import QueueName
from app.store.offline.verification import Verification, verify
from app.store.queues.consume_queue import ConsumeQueue
from app.store.write.worker import Turns

_FLUSH_UNITS: Final = 50_000
_COPY_BYTES: Final = 1 << 20


@dataclass(slots=True)
class Repair:
    """What was found, and what was done about it (or would be)."""

    before: Verification
    actions: list[str] = field(default_factory=list)
    after: Verification | None = None
    """None when nothing was done."""


def repair(files: FileSystem, clock: Clock, turns: Turns, *, dry_run: bool) -> Repair:
    """Verify, repair what can be, verify again. Raises `StoreLocked` and `StoreUnusable`."""
    with locked(files):
        done = Repair(verify(files))
        repairable = [p for p in done.before.problems if p.kind is not Kind.RECORD]
        if not repairable:
            return done
        work = _Work(files, f"repair-{clock.now_ms()}", done.actions, dry_run=dry_run)
        work.run(done.before, repairable)
    if not dry_run:
        MessageStore.open(files, StoreConfig(), clock, turns).close()
        with locked(files):
            done.after = verify(files)
    return done


class _Work:
    """One repair: says what it does, and does it unless it is a dry run."""

    def __init__(self, files: FileSystem, name: str, actions: list[str], *, dry_run: bool) -> None:
        self._files = files
        self._kept = f"{paths.LOST_AND_FOUND}/{name}"
        self._actions = actions
        self._dry_run = dry_run

    def run(self, found: Verification, problems: list[Problem]) -> None:
        directory = open_directory(self._files)
        try:
            self._strangers(problems)
            self._state_files(directory, problems)
            self._segments(directory, found, problems)
            broken_index = any(problem.kind is Kind.INDEX for problem in problems)
            if broken_index:
                self._set_aside(paths.INDEX, self._files.list(paths.INDEX))
                self._say("make the key index again from the log")
            self._queues(directory, found, problems)
            self._write_checkpoint(directory, found, keep_index=not broken_index)
        finally:
            directory.close()

    def _say(self, what: str) -> None:
        self._actions.append(what)

    def _state_files(self, directory: Directory, problems: list[Problem]) -> None:
        wrong = {problem.file for problem in problems if problem.kind is Kind.STATE}
        for path in sorted(wrong):
            self._copy(path)
        if wrong & {paths.META, paths.META_COPY}:
            self._say(f"write {paths.META} and {paths.META_COPY} again from the good one")
            if not self._dry_run:
                for path in (paths.META, paths.META_COPY):
                    data = encode_state(KIND_META, directory.meta)
                    write_atomically(self._files, path, data)

    def _strangers(self, problems: list[Problem]) -> None:
        for problem in problems:
            if problem.kind is Kind.STRAY:
                parent, _, name = problem.file.rpartition("/")
                self._set_aside(parent, [name])
        if any(problem.kind is Kind.TIMER_LOG for problem in problems):
            self._set_aside(paths.TIMER_LOG, self._files.list(paths.TIMER_LOG))
            self._say("leave it to the node to make the timer log again from its topic")

    def _segments(self, directory: Directory, found: Verification, problems: list[Problem]) -> None:
        wrong = [problem for problem in problems if problem.kind is Kind.SEGMENT]
        names = [problem.file.rpartition("/")[2] for problem in wrong]
        size = directory.log.segment_bytes
        there = self._files.list(paths.COMMIT_LOG)
        strangers = [n for n in names if n in there and not is_segment(self._files, n, size)]
        self._set_aside(paths.COMMIT_LOG, strangers)
        end = max(found.log_end, directory.dispatched_end)
        if found.of_kind(Kind.TAIL):
            self._say(f"copy the torn tail at {end} to {paths.LOST_AND_FOUND}/ and cut it")
            if not self._dry_run:
                keep_and_cut(self._files, directory.log, end)
        for problem, name in zip(wrong, names, strict=True):
            if name not in strangers:
                self._mend_size(directory.log, problem)

    def _mend_size(self, log: CommitLog, problem: Problem) -> None:
        self._copy(problem.file)
        if self._files.exists(problem.file):
            self._say(f"give {problem.file} its full size of {log.segment_bytes} bytes")
        else:
            self._say(f"put an empty segment in the place of {problem.file}; what it held is lost")
        if not self._dry_run:
            file = self._files.open(problem.file, create=True)
            try:
                if file.size() > log.segment_bytes:
                    file.truncate(log.segment_bytes)
                file.allocate(log.segment_bytes)
                file.sync()
            finally:
                file.close()
            self._files.sync_directory(paths.COMMIT_LOG)

    def _queues(self, directory: Directory, found: Verification, problems: list[Problem]) -> None:
        strange = {
            problem.file
            for problem in problems
            if problem.kind is Kind.QUEUE and problem.topic is None
        }
        for path in sorted(strange):
            self._set_aside(path, self._files.list(path))
        for topic, queue_id in sorted(found.damaged_queues):
            path = paths.queue_directory(topic, queue_id)
            self._set_aside(path, names_in(self._files, path) or ())
            self._say(f"make the queue {topic}/{queue_id} again from the log")
        if found.damaged_queues and not self._dry_run:
            _rebuild_queues(directory, found)

    def _write_checkpoint(
        self, directory: Directory, found: Verification, *, keep_index: bool
    ) -> None:
        old = directory.checkpoint
        end = max(found.log_end, directory.dispatched_end)
        kept = keep_index and old is not None
        if old is not None and not old.clean:
            return  # the opening goes on from it, and dispatches what it does not know of
        queues = tuple(QueueState(*name, *bounds) for name, bounds in found.bounds.items())
        checkpoint = Checkpoint(
            dispatched_end=end,
            store_time_ms=max(found.store_time_ms, old.store_time_ms if old else 0),
            clean=True,
            queues=queues,
            indexed_end=old.indexed_end if kept and old else 0,
            index_files=old.index_files if kept and old else (),
            boot_id=self._files.boot_id(),
        )
        self._say(f"write a checkpoint for the log up to {end}")
        if not self._dry_run:
            write_atomically(
                self._files, paths.CHECKPOINT, encode_state(KIND_CHECKPOINT, checkpoint)
            )

    # --- keeping what is replaced

    def _set_aside(self, directory: str, names: Iterable[str]) -> None:
        """Move files of one directory to lost+found."""
        for name in names:
            path = f"{directory}/{name}" if directory else name
            kept = f"{self._kept}/{directory}" if directory else self._kept
            self._say(f"move {path} to {self._kept}/")
            if not self._dry_run:
                self._files.make_directory(kept)
                self._files.replace(path, f"{self._kept}/{path}")
                self._files.sync_directory(kept)
                self._files.sync_directory(directory)

    def _copy(self, path: str) -> None:
        if not self._files.exists(path):
            return
        self._say(f"copy {path} to {self._kept}/")
        if not self._dry_run:
            parent = path.rpartition("/")[0]
            self._files.make_directory(f"{self._kept}/{parent}" if parent else self._kept)
            copy_file(self._files, path, f"{self._kept}/{path}")


def copy_file(files: FileSystem, source: str, target: str) -> None:
    """Copy a file, synced with its name."""
    reader, writer = files.open(source), files.open(target, create=True)
    try:
        for at in range(0, reader.size(), _COPY_BYTES):
            writer.pwritev([reader.pread(_COPY_BYTES, at)], at)
        writer.sync()
    finally:
        reader.close()
        writer.close()
    files.sync_directory(target.rpartition("/")[0])


def _rebuild_queues(directory: Directory, found: Verification) -> None:
    """Write the units of the damaged queues anew. Their old files are out of the way."""
    cache = FileCache(directory.files)
    queues: dict[QueueName, ConsumeQueue] = {}
    for name in found.damaged_queues:
        first, _ = found.bounds[name]
        queues[name] = ConsumeQueue(cache, *name, directory.meta.queue_file_units)
        queues[name].begin(first, first)
    scanner = LogScanner(directory.log, unchecked_end=directory.meta.unchecked_end)
    waiting = 0
    for _, record in scanner.records(directory.log.start):
        fields = decode_fields(record)
        queue = queues.get((fields.topic, fields.queue_id))
        if queue is None or not has_unit(fields.system_flag):
            continue
        if fields.queue_offset < queue.min_offset:
            continue
        unit = unit_of(fields, decode_properties(fields.properties))
        queue.put(fields.queue_offset, unit)
        waiting += 1
        if waiting == _FLUSH_UNITS:
            waiting = 0
            _flush(cache, queues.values())
    for name, queue in queues.items():
        missing = found.bounds[name][1] - queue.max_offset
        if missing > 0:
            queue.append(bytes(UNIT.size * missing))
    _flush(cache, queues.values())
    cache.close()


def _flush(cache: FileCache, queues: Iterable[ConsumeQueue]) -> None:
    for queue in queues:
        queue.flush()
    for file in cache.take_dirty():
        file.sync()
