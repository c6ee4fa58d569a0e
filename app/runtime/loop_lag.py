"""How late the event loop runs what is due: the sign of a turn that took long.

Measured where a service wakes up anyway (`Service.on_wake`), so it costs no timer of its own. A
turn shorter than the service's interval may go unseen; of a longer one all but that is seen. What
other processes take of the processor counts too. Event loop only.
"""

from bisect import bisect_left
from typing import Final

LAG_BUCKETS_S: Final = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""Upper bounds, inclusive."""


class LoopLag:
    """Counts late wake-ups; one per event loop."""

    def __init__(self) -> None:
        self.buckets = [0] * (len(LAG_BUCKETS_S) + 1)
        """Wake-ups by their lateness; the last one is of those above all bounds."""
        self.seconds = 0.0
        """Their sum."""
        self._longest_s = 0.0

    def note(self, late_s: float) -> None:
        """A wake-up came so many seconds after its time."""
        late_s = max(late_s, 0.0)
        self.buckets[bisect_left(LAG_BUCKETS_S, late_s)] += 1
        self.seconds += late_s
        self._longest_s = max(self._longest_s, late_s)

    def take_longest(self) -> float:
        """The greatest lateness since this was asked last, in seconds."""
        longest_s, self._longest_s = self._longest_s, 0.0
        return longest_s
