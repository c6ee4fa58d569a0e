"""What a follower has checked and written a moment ago, kept until it is confirmed and dispatched,
so that it is not read from the log and walked once more. Bounded: what does not fit is read. One
thread at a time.
"""

from collections import deque
from typing import Final

from app.domain.limits import MIB
from app.store.log.log_scan import ScannedBlock

FRESH_BYTES_MAX: Final = 16 * MIB
"""In memory for each replica."""


class FreshBlocks:
    """Ranges of whole blocks, in the order of the log."""

    def __init__(self, bytes_max: int = FRESH_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._ranges: deque[tuple[int, ScannedBlock]] = deque()
        """The end of each, and its records."""
        self._bytes = 0

    def put(self, end: int, records: ScannedBlock) -> None:
        """A range was written that ends here."""
        if self._bytes + len(records.data) <= self._bytes_max:
            self._ranges.append((end, records))
            self._bytes += len(records.data)

    def take(self, start: int, end: int) -> tuple[int, ScannedBlock] | None:
        """The range that begins at `start`, with its end; None: none is here that does not go
        beyond `end`. What lies before `start` is let go of."""
        ranges = self._ranges
        while ranges and ranges[0][1].base < start:
            self._drop_first()
        if not ranges or ranges[0][1].base != start or ranges[0][0] > end:
            return None
        return self._drop_first()

    def clear(self) -> None:
        """The log was written by another hand, or cut."""
        self._ranges.clear()
        self._bytes = 0

    def _drop_first(self) -> tuple[int, ScannedBlock]:
        found = self._ranges.popleft()
        self._bytes -= len(found[1].data)
        return found
