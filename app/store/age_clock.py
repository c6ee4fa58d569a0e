"""The time by which messages grow old: the wall clock; a jump ahead counts a day later.

What retention has deleted is gone, so a clock that is wrong for an hour must not make everything
old at once. After a jump of more than `CLOCK_JUMP_MS_MAX` this time goes on from before it, by the
monotonic clock, until the wall clock is back or has been believed after `CLOCK_JUMP_HELD_S`. A
clock that is set back counts at once: it keeps messages longer. A start believes the clock.

Asked by one thread at a time, that of the pass of retention; `ahead_ms` by any.
"""

import logging
from typing import Final

from app.domain.clock import Clock
from app.domain.limits import CLOCK_JUMP_HELD_S, CLOCK_JUMP_MS_MAX

_LOG: Final = logging.getLogger(__name__)


class AgeClock:
    """One per store."""

    def __init__(self, clock: Clock) -> None:
        self.ahead_ms = 0
        """By how much the wall clock is not believed."""
        self._clock = clock
        self._wall_ms: int = clock.now_ms()
        self._monotonic_s = clock.monotonic_s()
        self._jumped_s: float | None = None

    def now_ms(self) -> int:
        """Epoch milliseconds."""
        wall_ms, monotonic_s = self._clock.now_ms(), self._clock.monotonic_s()
        expected_ms = self._wall_ms + round((monotonic_s - self._monotonic_s) * 1_000)
        ahead_ms = wall_ms - expected_ms
        if ahead_ms > CLOCK_JUMP_MS_MAX and self._holds(monotonic_s, ahead_ms):
            self.ahead_ms = ahead_ms
            return expected_ms
        self.ahead_ms, self._jumped_s = 0, None
        self._wall_ms, self._monotonic_s = wall_ms, monotonic_s
        return wall_ms

    def _holds(self, monotonic_s: float, ahead_ms: int) -> bool:
        if self._jumped_s is None:
            self._jumped_s = monotonic_s
            _LOG.warning(
                "the clock has jumped ahead by %d s; messages grow old as if it had not, until it "
                "is set back or %d h have passed",
                ahead_ms // 1_000,
                CLOCK_JUMP_HELD_S // 3_600,
            )
        if monotonic_s - self._jumped_s < CLOCK_JUMP_HELD_S:
            return True
        _LOG.warning("the clock, which has jumped ahead by %d s, is believed", ahead_ms // 1_000)
        return False
