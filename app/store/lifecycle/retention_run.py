"""Carrying out retention: minima move first, then files go.

What to delete is in `retention_policy`.

A reader in the middle keeps the file that it has open; one that comes later is told that the
offsets have expired. Runs on the event loop or on one thread beside it.
"""

from dataclasses import dataclass, field
from typing import Protocol

from app.domain.clock import Clock
from app.domain.limits import STORE_TIME_LEAD_MS_MAX
from app.domain.names import is_system_topic
from app.store.age_clock import AgeClock
from app.store.fs.files import FileSystem
from app.store.index.key_index import KeyIndex
from app.store.lifecycle.retention_holds import Held, RetentionHolds
from app.store.lifecycle.retention_policy import (
    FOREVER_MS,
    LogState,
    RetentionPolicy,
    Verdict,
    decide,
)
from app.store.log.commit_log import CommitLog
from app.store.queues.queue_table import QueueTable
from app.store.read.lookups import first_kept
from app.store.read.record_checks import Source


@dataclass(slots=True)
class RetentionReport:
    """What a pass did. Paths are relative to the store."""

    deleted_segments: list[str] = field(default_factory=list)
    deleted_queue_files: list[str] = field(default_factory=list)
    deleted_index_files: list[str] = field(default_factory=list)
    expired_messages: int = 0
    disk_used_ratio: float = 0.0
    warn: bool = False
    refuse_writes: bool = False
    held_back_segments: int = 0
    """Segments that would go and that a background service needs."""
    held_by: str | None = None
    """Which one; None when nothing is held back."""


class RisenFloors(Protocol):
    """Where the log says where queues begin. Any thread."""

    told: int

    def note_risen(self) -> int:
        """Queues begin later than the log says; a number that `told` reaches when it says so."""
        ...


class RetentionRun:
    """Retention of one store."""

    def __init__(
        self,
        files: FileSystem,
        source: Source,
        queues: QueueTable,
        index: KeyIndex,
        pins: RetentionHolds,
        clock: Clock,
        floors: RisenFloors | None = None,
    ) -> None:
        """With `floors`, of a store that other replicas follow, no segment is deleted before the
        log says where queues begin without it: who begins with what is left has nothing else to
        tell. But for a disk that has no room to say it."""
        self.clock = AgeClock(clock)
        self._floors = floors
        self._announced = 0, 0
        """Up to where segments may be deleted once the floors of this number are told."""
        self._files = files
        self._source = source
        self._queues = queues
        self._index = index
        self._pins = pins

    def apply(self, policy: RetentionPolicy, *, end: int) -> RetentionReport:
        """One pass; `end` is that of the confirmed log. Blocks. Raises `OSError`."""
        log = self._source.log
        report = RetentionReport()
        self._expire_by_age(policy, self.clock.now_ms(), report)
        held = self._held(policy)
        verdict = self._decide(policy, end, None if held is None else held.physical_offset)
        report.warn, report.refuse_writes = verdict.warn, verdict.refuse_writes
        report.held_back_segments = verdict.held_back
        report.held_by = held.name if held and verdict.held_back else None
        if verdict.delete:
            self._delete_segments(log, verdict.delete, report)
        for queue in list(self._queues):
            report.deleted_queue_files += queue.drop_below_minimum()
        report.deleted_index_files = self._index.drop_below(log.start)
        report.disk_used_ratio = used = self._files.disk_usage().used_ratio
        if len(report.deleted_segments) < verdict.delete:  # the room is not there yet
            report.warn |= used >= policy.warn_ratio
            report.refuse_writes |= used >= policy.refuse_ratio
        return report

    def _decide(self, policy: RetentionPolicy, end: int, pinned: int | None) -> Verdict:
        log = self._source.log
        disk = self._files.disk_usage()
        state = LogState(
            tuple(log.bases),
            log.segment_bytes,
            end,
            self._first_needed(end),
            disk.total,
            disk.free,
            pinned,
        )
        return decide(policy, state)

    def _held(self, policy: RetentionPolicy) -> Held | None:
        """The lowest pin; the broker's own topics, which it trims itself, count as pinned."""
        found = [held] if (held := self._pins.held()) is not None else []
        for queue in list(self._queues):
            kept = is_system_topic(queue.topic) and policy.topic_ms(queue.topic) >= FOREVER_MS
            if kept and queue.min_offset < queue.max_offset:
                position = queue.first_position()
                start = self._source.log.start if position is None else position
                found.append(Held(f"records of {queue.topic}", start))
        return min(found, key=lambda held: held.physical_offset, default=None)

    def _expire_by_age(self, policy: RetentionPolicy, now_ms: int, report: RetentionReport) -> None:
        newest_ms = now_ms + self.clock.ahead_ms + STORE_TIME_LEAD_MS_MAX
        for queue in list(self._queues):
            if queue.min_offset >= queue.max_offset or policy.topic_ms(queue.topic) >= now_ms:
                continue
            oldest_ms = now_ms - policy.topic_ms(queue.topic)
            first = first_kept(self._source, queue, oldest_ms, newest_ms)
            pinned = self._pins.of_topic(queue.topic)
            if pinned is not None and first > queue.min_offset:
                first = min(first, queue.first_at_or_behind(pinned))
            report.expired_messages += queue.expire_below(first)

    def _first_needed(self, end: int) -> int:
        needed = end
        for queue in list(self._queues):
            if queue.min_offset < queue.max_offset:
                position = queue.first_position()
                needed = min(needed, self._source.log.start if position is None else position)
        return needed

    def _delete_segments(self, log: CommitLog, count: int, report: RetentionReport) -> None:
        start = log.bases[count]
        for queue in list(self._queues):
            if queue.min_offset < queue.max_offset:
                report.expired_messages += queue.expire_below(queue.first_at_or_behind(start))
        if self._floors is not None:
            count = self._told_count(log, count, self._floors)
        for _ in range(count):
            report.deleted_segments.append(log.drop_first())
            log.sync_names()  # in this order, or one might be missing between others

    def _told_count(self, log: CommitLog, count: int, floors: RisenFloors) -> int:
        """How many of the first segments may go now; the others a later pass deletes."""
        end, number = self._announced
        if floors.told < number:
            end = 0
        else:
            self._announced = log.bases[count], floors.note_risen()
        if self._files.disk_usage().free < log.segment_bytes:
            return count
        return sum(base < end for base in log.bases[:count])
