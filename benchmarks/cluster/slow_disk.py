"""`curlew` on a disk whose syncs take so many milliseconds longer as `SYNC_MS` says: a number, or
the path of a file with one, which is read at each sync.

Run as a module. Syncs of several processes, or of several threads of one, do not wait for each
other: each node has a disk of its own.
"""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from app.cli import main

SYNC_MS: Final = "BENCHMARKS_SYNC_MS"


def _slowed(sync: Callable[[int], None], longer_ms: Callable[[], float]) -> Callable[[int], None]:
    def slow(descriptor: int) -> None:
        time.sleep(longer_ms() / 1_000)  # as a system call, it lets other threads work
        sync(descriptor)

    return slow


def _how_long(said: str) -> Callable[[], float]:
    """In milliseconds."""
    if said.startswith("/"):
        return lambda: float(Path(said).read_text())
    fixed = float(said)
    return lambda: fixed


if __name__ == "__main__":
    longer_ms = _how_long(os.environ[SYNC_MS])
    os.fsync = _slowed(os.fsync, longer_ms)  # type: ignore[assignment]
    os.fdatasync = _slowed(os.fdatasync, longer_ms)  # type: ignore[assignment]
    sys.exit(main())
