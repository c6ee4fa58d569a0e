"""The real clock. Made once, by the composition root; everybody else takes a `Clock`."""

import time

from app.domain.positions import TimestampMs

_NS_PER_MS = 1_000_000


class SystemClock:
    """Reads the operating system's clocks. Usable from any thread."""

    __slots__ = ()

    def now_ms(self) -> TimestampMs:
        return TimestampMs(time.time_ns() // _NS_PER_MS)

    def monotonic_s(self) -> float:
        return time.monotonic()
