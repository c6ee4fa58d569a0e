"""What strangers at a port do, in the log: a line for the first, and then one a minute at most.

Whoever connects in a loop would else fill the disk that the log is on. A line says how many came
since the one before; `end` tells of those that no line has told of. Event loop only.
"""

import logging
from collections.abc import Callable
from time import monotonic
from typing import Final

QUIET_SECONDS: Final = 60.0


class RefusalLog:
    """Of one kind of refusals."""

    def __init__(
        self, log: logging.Logger, level: int, what: str, now_s: Callable[[], float] = monotonic
    ) -> None:
        """`what`: the beginning of a line. `now_s` is a clock that does not go back."""
        self._log = log
        self._level = level
        self._what = what
        self._now_s = now_s
        self._quiet_until_s = float("-inf")
        self._untold = 0

    def note(self, address: object, why: object) -> None:
        """One more."""
        now_s = self._now_s()
        if now_s < self._quiet_until_s:
            self._untold += 1
            return
        self._quiet_until_s = now_s + QUIET_SECONDS
        more, self._untold = self._untold, 0
        since = f"; {more} more since the last such line" if more else ""
        self._log.log(self._level, "%s %s: %s%s", self._what, address, why, since)

    def end(self) -> None:
        """No more will come."""
        more, self._untold = self._untold, 0
        if more:
            self._log.log(self._level, "%s others, %d since the last such line", self._what, more)
