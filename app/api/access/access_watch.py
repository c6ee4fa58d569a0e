"""Tells a request that goes on for long when its caller may not have it any more.

Within the turn of the event loop in which the node learns of a change of keys or policies, and at
the moment when a key expires: so that nothing is handed out in between. Event loop only.
"""

import asyncio
from collections.abc import Callable
from typing import Self

from app.domain.access.standing import Standing
from app.domain.errors import CurlewError


class AccessWatch:
    """Calls `ended` once, with the reason, between `begin` and `stop`."""

    __slots__ = ("_ended", "_standing", "_timer", "_waiting", "error")

    def __init__(self, standing: Standing, ended: Callable[[CurlewError], object]) -> None:
        self._standing = standing
        self._ended = ended
        self._waiting: set[Callable[[], object]] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.error: CurlewError | None = None
        """Why it may not go on."""

    def begin(self) -> Self:
        """Watch from now on. Costs a timer only when what the caller showed expires."""
        self._waiting = self._standing.caller.waiting
        if self._waiting is not None:
            self._waiting.add(self.look)
        left_s = self._standing.caller.left_s
        if left_s is not None:
            self._timer = asyncio.get_running_loop().call_later(left_s, self._at_expiry)
        return self

    def stop(self) -> None:
        """Watch no more."""
        if self._waiting is not None:
            self._waiting.discard(self.look)
        if self._timer is not None:
            self._timer.cancel()

    def look(self) -> CurlewError | None:
        """Ask now."""
        if self.error is None:
            self.error = self._standing.refusal()
            if self.error is not None:
                self._ended(self.error)
        return self.error

    def _at_expiry(self) -> None:
        if self.look() is None:  # the clock of the loop is a little ahead of the wall's
            self._timer = asyncio.get_running_loop().call_later(0.01, self._at_expiry)
