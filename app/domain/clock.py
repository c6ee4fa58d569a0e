"""The only way to read time. Tests pass a fake; `runtime.system_clock` is the real one."""

from typing import Protocol

from app.domain.positions import TimestampMs


class Clock(Protocol):
    """Two clocks: wall time for stamps and due times, monotonic time for leases and timeouts."""

    def now_ms(self) -> TimestampMs:
        """Wall time in epoch milliseconds. May be stepped by an operator."""
        ...

    def monotonic_s(self) -> float:
        """Seconds since an arbitrary start; never goes backwards."""
        ...
