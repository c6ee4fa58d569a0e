"""Metrics of a node's log and of the disk that it is on, whether the node leads or follows.

Asks the file system once a call, which is once a scrape. Event loop only.
"""

from collections.abc import Iterator
from itertools import accumulate

from app.api.telemetry.metric_family import Family, one
from app.broker.ports import Store
from app.store import SYNC_BUCKETS_S, LogFigures, SyncTimes


def figures_of(store: Store) -> LogFigures:
    """Of the store of a node that leads."""
    status = store.status()
    return LogFigures(
        status.segments,
        status.written_end - status.start,
        status.written_end - status.flushed_end,
        store.sync_times,
        store.disk_usage,
    )


def log_families(log: LogFigures | None) -> Iterator[Family]:
    """All of them; none without a log, none of the disk while its file system does not say."""
    if log is None:
        return
    try:
        disk = log.disk_usage()
    except OSError:
        disk = None
    if disk is not None:
        yield one(
            "curlew_disk_bytes",
            "gauge",
            "Bytes of the file system of the data directory, without what is root's alone.",
            disk.total,
        )
        yield one("curlew_disk_free_bytes", "gauge", "Bytes of it that are free.", disk.free)
    yield one("curlew_log_segments", "gauge", "Files of the log.", log.segments)
    yield one("curlew_log_bytes", "gauge", "Bytes in the log.", log.size_bytes)
    yield one(
        "curlew_log_unsynced_bytes",
        "gauge",
        "Bytes of the log that are written and not yet on the medium.",
        log.unsynced_bytes,
    )
    yield Family(
        "curlew_log_sync_seconds",
        "histogram",
        "How long it took to bring the log to the medium (fdatasync).",
        list(_times(log.sync_times)),
    )


def _times(times: SyncTimes) -> Iterator[tuple[str, float]]:
    counts = list(accumulate(times.buckets))
    for bound, count in zip((*SYNC_BUCKETS_S, "+Inf"), counts, strict=True):
        yield f'_bucket{{le="{bound}"}}', count
    yield "_sum", round(times.seconds, 6)
    yield "_count", counts[-1]
