"""`curlew` on a disk whose syncs take so many milliseconds longer as `SYNC_MS` says.

Run as a module. Syncs of several processes, or of several threads of one, do not wait for each
other: each node has a disk of its own.
"""

import os
import sys
import time
from collections.abc import Callable
from typing import Final

from app.cli import main

SYNC_MS: Final = "BENCHMARKS_SYNC_MS"


def _slowed(sync: Callable[[int], None], wait_s: float) -> Callable[[int], None]:
    def slow(descriptor: int) -> None:
        time.sleep(wait_s)  # as a system call, it lets other threads work
        sync(descriptor)

    return slow


if __name__ == "__main__":
    wait_s = float(os.environ[SYNC_MS]) / 1_000
    os.fsync, os.fdatasync = _slowed(os.fsync, wait_s), _slowed(os.fdatasync, wait_s)  # type: ignore[assignment]
    sys.exit(main())
