"""Opening: find the end of the log and bring the queues up to it.

After a clean stop the checkpoint says it all and nothing is read. Otherwise the log is read from
the checkpoint on (from its start, when there is no good one), every record is checked, and its unit
is put into its queue again, which is harmless when it is there already.

Two kinds of bad bytes are told apart. Behind the last good record there is only a torn tail: a
write that nobody was told to be safe. It is cut, and a copy kept in `lost+found/`. Bad bytes with
good records behind them are damage: they are stepped over, the records behind them are kept (a
record is found again by its magic, its own physical offset and its checksum), and the damage is
reported. RocketMQ would cut everything behind the first bad byte.

After a power loss (the boot id of the checkpoint is not this one) or a failed sync there is a third
kind: what was not flushed may have survived in any order. See `recover`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from app.domain.limits import MIB
from app.domain.message import PROPERTY_TAG, java_hash
from app.store import paths
from app.store.commit_log import CommitLog
from app.store.files import FileSystem
from app.store.formats.consume_queue import UNIT
from app.store.formats.record import (
    END_OF_FILE_BYTES,
    MAGIC_V1,
    Finding,
    Found,
    RecordFields,
    decode_fields,
    decode_properties,
    inspect,
)
from app.store.queue_table import QueueTable

WINDOW_BYTES: Final = 8 * MIB
_MAGIC_BYTES: Final = MAGIC_V1.to_bytes(4)
_MAGIC_AT: Final = 4


class Damage(NamedTuple):
    """Bytes `[start, end)` of the log that hold no good record."""

    start: int
    end: int
    reason: str


@dataclass(slots=True)
class Recovery:
    """What opening found. Sizes in bytes; shown by `status`."""

    end: int
    """Where the log goes on."""
    store_time_ms: int = 0
    scanned_bytes: int = 0
    scanned_records: int = 0
    cut_bytes: int = 0
    damages: list[Damage] = field(default_factory=list)


class LogScanner:
    """Walks a commit log from a position to its end."""

    def __init__(
        self, log: CommitLog, *, unchecked_end: int = 0, flushed_end: int | None = None
    ) -> None:
        self.end = 0
        """Behind the last good record or closed segment; valid after `records` is exhausted."""
        self.torn = False
        """Whether anything but zeros follows `end`."""
        self.damages: list[Damage] = []
        self._log = log
        self._unchecked_end = unchecked_end
        self._flushed_end = flushed_end
        self._window = memoryview(b"")
        self._window_start = 0

    def records(self, start: int) -> Iterator[tuple[int, memoryview]]:
        """Every good record from `start` on, as (physical offset, bytes)."""
        self.end = position = start
        bad: tuple[int, str] | None = None
        while position < self._log.end_of_segments:
            finding = self._inspect(position)
            if finding.found in (Found.RECORD, Found.END_OF_FILE):
                if bad:
                    self.damages.append(Damage(bad[0], position, bad[1]))
                    bad = None
                if finding.found is Found.RECORD:
                    yield position, self._load(position, finding.size)
                position += finding.size
                self.end = position
                continue
            bad = bad or (position, finding.reason or finding.found.value)
            if self._flushed_end is not None and position >= self._flushed_end:
                break
            position = self._next_good(position + 1)
        self.torn = bad is not None and self._anything_behind(bad[0])

    def _next_good(self, position: int) -> int:
        """The next position with a good record, or the end of the segments."""
        while position < self._log.end_of_segments:
            base = self._log.base_of(position)
            segment_end = base + self._log.segment_bytes
            while position < segment_end:
                wanted = min(WINDOW_BYTES, segment_end - position)
                data = bytes(self._load(position, wanted))
                at = data.find(_MAGIC_BYTES)
                while at >= 0:
                    candidate = position + at - _MAGIC_AT
                    if candidate >= base and self._inspect(candidate).found is Found.RECORD:
                        return candidate
                    at = data.find(_MAGIC_BYTES, at + 1)
                if len(data) < wanted or position + wanted == segment_end:
                    position = segment_end
                else:
                    position += wanted - len(_MAGIC_BYTES) + 1
        return position

    def _anything_behind(self, position: int) -> bool:
        while position < self._log.end_of_segments:
            data = self._log.read(position, WINDOW_BYTES)
            if not data:
                position = self._log.base_of(position) + self._log.segment_bytes
                continue
            if data.count(0) != len(data):
                return True
            position += len(data)
        return False

    def _inspect(self, position: int) -> Finding:
        left = self._log.base_of(position) + self._log.segment_bytes - position
        head = self._load(position, min(left, END_OF_FILE_BYTES))
        size = int.from_bytes(head[:4])
        record = self._load(position, min(left, max(size, END_OF_FILE_BYTES)))
        return inspect(
            record, position, left=left, checksum_required=position >= self._unchecked_end
        )

    def _load(self, position: int, size: int) -> memoryview:
        """At least `size` bytes at `position`, fewer at the end of a file."""
        start = position - self._window_start
        if start < 0 or start + size > len(self._window):
            wanted = max(size, WINDOW_BYTES)
            self._window = memoryview(self._log.read(position, wanted))
            self._window_start, start = position, 0
        return self._window[start : start + size]


def dispatch_unit(fields: RecordFields) -> bytes:
    """The consume-queue unit of a record."""
    tag = decode_properties(fields.properties).get(PROPERTY_TAG)
    return UNIT.pack(fields.physical_offset, fields.total_size, java_hash(tag) if tag else 0)


def recover(
    files: FileSystem,
    log: CommitLog,
    queues: QueueTable,
    start: int,
    *,
    unchecked_end: int,
    flushed_end: int | None,
) -> Recovery:
    """Scan from `start`, fill the queues, cut a torn tail. The log is synced when it returns.

    `flushed_end` is given after a power loss or a failed sync. Behind it writes were lost or kept
    in any order: there the first bad byte ends the log, so that no queue gets a hole.
    """
    log.sync_all()
    log.drop_cached(start)
    scanner = LogScanner(log, unchecked_end=unchecked_end, flushed_end=flushed_end)
    recovery = Recovery(start)
    for position, record in scanner.records(start):
        fields = decode_fields(record)
        queue = queues.get_or_make(fields.topic, fields.queue_id, first_offset=fields.queue_offset)
        queue.put(fields.queue_offset, dispatch_unit(fields))
        recovery.store_time_ms = max(recovery.store_time_ms, fields.store_time_ms)
        recovery.scanned_records += 1
        recovery.scanned_bytes = position + len(record) - start
    recovery.end = scanner.end
    recovery.damages = scanner.damages
    if scanner.torn:
        recovery.cut_bytes = keep_and_cut(files, log, scanner.end)
        log.sync_all()
    return recovery


def keep_and_cut(files: FileSystem, log: CommitLog, end: int) -> int:
    """Copy what stands behind `end` to `lost+found/`, then zero it. Returns the bytes kept."""
    files.make_directory(paths.LOST_AND_FOUND)
    copy = files.open(paths.cut_tail(end), create=True)
    kept, position = 0, end
    try:
        while position < log.end_of_segments:
            data = log.read(position, WINDOW_BYTES).rstrip(b"\0")
            if data:
                copy.pwritev([data], position - end)
                kept = position - end + len(data)
            position = min(position + WINDOW_BYTES, log.base_of(position) + log.segment_bytes)
        copy.sync()
    finally:
        copy.close()
    files.sync_directory(paths.LOST_AND_FOUND)
    log.cut(end)
    return kept
