"""How far a long opening has come, as lines in the node's log. One thread: that which opens."""

import logging
from typing import Final

from app.domain.clock import Clock
from app.domain.limits import MIB

_LOG: Final = logging.getLogger(__name__)

PROGRESS_SECONDS: Final = 5.0
"""Between two lines, and before the first: a shorter opening says nothing."""


class OpeningProgress:
    """Reports at most one line every `PROGRESS_SECONDS`, counted from its making."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last_s = clock.monotonic_s()

    def at(self, what: str, done_bytes: int, total_bytes: int) -> None:
        """Note that of `total_bytes`, the most that there can be, `done_bytes` are done."""
        now_s = self._clock.monotonic_s()
        if now_s - self._last_s < PROGRESS_SECONDS:
            return
        self._last_s = now_s
        percent = 100 * done_bytes // max(total_bytes, 1)
        _LOG.info(
            "%s: %d of at most %d MiB (%d %%); the node listens when it is done",
            what,
            done_bytes // MIB,
            -(-total_bytes // MIB),
            percent,
        )
