"""The only way to read time. Tests pass a fake; `runtime.system_clock` is the real one."""

from collections.abc import Callable
from typing import Final, Protocol

from typing_extensions import override

from app.domain.positions import TimestampMs


class Clock(Protocol):
    """Two clocks: wall time for stamps and due times, monotonic time for leases and timeouts."""

    def now_ms(self) -> TimestampMs:
        """Wall time in epoch milliseconds. May be stepped by an operator."""
        ...

    def monotonic_s(self) -> float:
        """Seconds since an arbitrary start; never goes backwards."""
        ...


class StepTimes:
    """How long the steps of something took that happens once: from its making on, `end` behind each
    step. `str` of it is for a line of the log, in milliseconds."""

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        self._monotonic_s: Final = monotonic_s
        self._steps: list[tuple[str, float]] = []
        self._began_s = self._last_s = monotonic_s()

    def end(self, step: str) -> None:
        """A step has ended here."""
        now_s = self._monotonic_s()
        self._steps.append((step, now_s - self._last_s))
        self._last_s = now_s

    @property
    def total_s(self) -> float:
        """Until the end of the last step."""
        return self._last_s - self._began_s

    @override
    def __str__(self) -> str:
        each = ", ".join(f"{name} {1_000 * took_s:.0f}" for name, took_s in self._steps)
        return f"{1_000 * self.total_s:.0f} ms: {each}"
