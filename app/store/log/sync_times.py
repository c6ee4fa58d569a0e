"""How long syncs of the log take: the time in which the medium takes what was written.

Noted by the one thread that syncs at a time. Read by any thread, a moment apart at most.
"""

from bisect import bisect_left
from typing import Final

SYNC_BUCKETS_S: Final = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025),
    *(0.05, 0.1, 0.25, 0.5, 1.0, 2.5),
)
"""Upper bounds, inclusive."""


class SyncTimes:
    """Counts syncs since the log was opened, failed ones too; one per log."""

    def __init__(self) -> None:
        self.buckets = [0] * (len(SYNC_BUCKETS_S) + 1)
        """Syncs by their time; the last one is of those above all bounds."""
        self.seconds = 0.0
        """Their sum."""

    def note(self, seconds: float) -> None:
        """A sync took so long."""
        self.buckets[bisect_left(SYNC_BUCKETS_S, seconds)] += 1
        self.seconds += seconds
