"""Figures of a store as of its last checkpoint: read-only, also while a node has it open.

Sizes come from the queues' units (20 bytes a message), so the log itself is not read.
"""

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.domain.limits import KIB, MIB
from app.store.formats.files.consume_queue import UNITS
from app.store.formats.files.state_file import QueueState
from app.store.formats.record.record import decode_fields
from app.store.fs.file_cache import FileCache
from app.store.fs.files import FileSystem
from app.store.lifecycle.opening import StoreUnusable
from app.store.log.log_scan import LogScanner
from app.store.offline.directory import Directory, open_directory
from app.store.queues.consume_queue import ConsumeQueue

SIZE_BOUNDS: Final = (256, KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB)
"""Upper bounds, exclusive, of the histogram's classes; one more class has the rest."""

_STRETCH_UNITS: Final = 50_000


@dataclass(frozen=True, slots=True)
class QueueFigures:
    """One queue; offsets half-open, bytes of its records."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    record_bytes: int


@dataclass(slots=True)
class Statistics:
    """Figures of a store. Sizes in bytes, times in epoch milliseconds."""

    store_id: str
    clean: bool
    segment_bytes: int
    segments: int
    log_start: int
    log_end: int
    records: int = 0
    record_bytes: int = 0
    queues: list[QueueFigures] = field(default_factory=list)
    sizes: list[int] = field(default_factory=lambda: [0] * (len(SIZE_BOUNDS) + 1))
    """Records by size; see `SIZE_BOUNDS`."""
    oldest_ms: int | None = None
    newest_ms: int | None = None

    @property
    def topics(self) -> int:
        return len({queue.topic for queue in self.queues})


def measure(files: FileSystem) -> Statistics:
    """Raises `StoreUnusable` when there is no checkpoint to go by."""
    directory = open_directory(files)
    try:
        return _measure(directory)
    finally:
        directory.close()


def _measure(directory: Directory) -> Statistics:
    checkpoint, log = directory.checkpoint, directory.log
    if checkpoint is None:
        raise StoreUnusable(
            "there is no good checkpoint, so no figures; `curlew store repair` or the next start "
            "of the node writes one"
        )
    found = Statistics(
        store_id=directory.meta.store_id,
        clean=checkpoint.clean,
        segment_bytes=log.segment_bytes,
        segments=len(log.bases),
        log_start=log.start,
        log_end=checkpoint.dispatched_end,
    )
    sizes = np.zeros(len(SIZE_BOUNDS) + 1, np.int64)
    cache = FileCache(directory.files)
    for state in sorted(checkpoint.queues, key=lambda state: (state.topic, state.queue_id)):
        found.queues.append(_measure_queue(cache, state, directory, sizes))
    cache.close()
    found.sizes = sizes.tolist()
    found.records = sum(queue.max_offset - queue.min_offset for queue in found.queues)
    found.record_bytes = sum(queue.record_bytes for queue in found.queues)
    if found.log_end > log.start:
        found.newest_ms = checkpoint.store_time_ms or None
        found.oldest_ms = _oldest(directory)
    return found


def _measure_queue(
    cache: FileCache, state: QueueState, directory: Directory, sizes: NDArray[np.int64]
) -> QueueFigures:
    queue = ConsumeQueue(cache, state.topic, state.queue_id, directory.meta.queue_file_units)
    queue.begin(state.min_offset, state.max_offset)
    total = 0
    for first in range(state.min_offset, state.max_offset, _STRETCH_UNITS):
        units = queue.unit_bytes(first, min(first + _STRETCH_UNITS, state.max_offset))
        found = np.frombuffer(units, UNITS)["size"]
        classes = np.searchsorted(SIZE_BOUNDS, found, side="right")
        sizes += np.bincount(classes, minlength=len(sizes))
        total += int(found.sum())
    return QueueFigures(state.topic, state.queue_id, state.min_offset, state.max_offset, total)


def _oldest(directory: Directory) -> int | None:
    scanner = LogScanner(directory.log, unchecked_end=directory.meta.unchecked_end)
    for _, record in scanner.records(directory.log.start):
        return decode_fields(record).store_time_ms
    return None
