"""What an operator is shown of a log, whatever the role of its node. Pure."""

from collections.abc import Callable
from typing import NamedTuple

from app.store.fs.files import DiskUsage
from app.store.log.sync_times import SyncTimes


class LogFigures(NamedTuple):
    """At one moment, but for the disk, which is asked when it is called."""

    segments: int
    """Files of the log."""
    size_bytes: int
    """From its start to what is written."""
    unsynced_bytes: int
    """Written and not yet on the medium."""
    sync_times: SyncTimes
    disk_usage: Callable[[], DiskUsage]
    """Of the file system of the data directory. Any thread. Raises `OSError`."""
