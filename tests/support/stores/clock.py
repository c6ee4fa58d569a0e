"""A clock that stands still until a test moves it."""

from app.domain.positions import TimestampMs

START_MS = 1_700_000_000_000


class FakeClock:
    """Both clocks of `app.domain.clock.Clock`, moved together by `advance`."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self._wall_ms = now_ms
        self._monotonic_ms = 0

    def now_ms(self) -> TimestampMs:
        return TimestampMs(self._wall_ms)

    def monotonic_s(self) -> float:
        return self._monotonic_ms / 1_000

    def advance(self, *, ms: int = 0, s: float = 0.0) -> None:
        """Let time pass."""
        passed_ms = ms + round(s * 1_000)
        assert passed_ms >= 0
        self._wall_ms += passed_ms
        self._monotonic_ms += passed_ms

    def set_wall(self, now_ms: int) -> None:
        """Step the wall clock, as an operator or NTP may; the monotonic clock does not notice."""
        self._wall_ms = now_ms
