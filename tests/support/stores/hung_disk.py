"""`curlew` on a disk whose syncs never return while a file is there: its name is in `HANGS_WHILE`.

Run as a module. A stop gives such a disk up sooner than it does elsewhere.
"""

import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from app.cli import main
from app.commands import node_commands

HANGS_WHILE: Final = "TESTS_DISK_HANGS_WHILE"
HUNG_SECONDS: Final = 2.0


def hung_by(hangs: Path) -> Path:
    """The file that is there once a sync hangs."""
    return hangs.with_suffix(".met")


def _hanging(sync: Callable[[int], None]) -> Callable[[int], None]:
    hangs = Path(os.environ[HANGS_WHILE])

    def hang(descriptor: int) -> None:
        if hangs.exists():
            hung_by(hangs).touch()
            threading.Event().wait()
        sync(descriptor)

    return hang


if __name__ == "__main__":
    os.fsync, os.fdatasync = _hanging(os.fsync), _hanging(os.fdatasync)  # type: ignore[assignment]
    node_commands.HUNG_SECONDS = HUNG_SECONDS  # type: ignore[misc]
    sys.exit(main())
