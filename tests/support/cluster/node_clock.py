"""The wall clock of a forked node, which a test sets while the node runs."""

import os
from pathlib import Path
from typing import Final

from app.domain.positions import TimestampMs
from app.runtime.system_clock import SystemClock

CLOCK: Final = "CURLEW_TESTS_CLOCK"
"""In the environment of a forked node: the file of a `NodeClock`, which it goes by."""
_BYTES: Final = 8


class NodeClock:
    """Kept in a file, right at first."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.write_bytes(bytes(_BYTES))

    @property
    def environment(self) -> dict[str, str]:
        """Of the node."""
        return {CLOCK: str(self._path)}

    def set_ahead(self, ms: int) -> None:
        """So far of the machine's; negative: behind."""
        with self._path.open("r+b", buffering=0) as file:
            file.write(ms.to_bytes(_BYTES, "big", signed=True))


def go_by(path: str) -> None:
    """Have this process go by the clock in a file."""
    descriptor = os.open(path, os.O_RDONLY)
    of_machine = SystemClock.now_ms

    def now_ms(self: SystemClock) -> TimestampMs:
        ahead = int.from_bytes(os.pread(descriptor, _BYTES, 0), "big", signed=True)
        return TimestampMs(of_machine(self) + ahead)

    SystemClock.now_ms = now_ms  # type: ignore[method-assign]
