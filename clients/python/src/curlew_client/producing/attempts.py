"""Whether a call is tried again, when, and what became of the message in the end. Pure.

All attempts of a call share one time budget. Only what is `retryable` is tried again. A message
with a number may be repeated whatever happened; one without may only when it is certain that it was
not stored. What is stored and not safe (`FLUSH_DISK_TIMEOUT`, `REPLICATION_TIMEOUT`) is repeated
only when `retry_on_not_safe` is set.
"""

from typing import Final

from curlew_client.errors import (
    AlreadyStored,
    ConnectionFailed,
    CurlewError,
    FlushDiskTimeout,
    Outcome,
    ReplicationTimeout,
    SequenceOutOfOrder,
    ServiceError,
    TimedOut,
)

FIRST_PAUSE_S: Final = 0.02
PAUSE_S_MAX: Final = 1.0
LANE_CHANGES_MAX: Final = 1
"""A node that forgot a lane is told the message in another one; twice is not a forgotten lane."""

_NOT_SAFE: Final = FlushDiskTimeout, ReplicationTimeout


class Attempts:
    """The attempts of one call."""

    __slots__ = (
        *("_deadline_s", "_lane_changes", "_left", "_may_repeat", "_retry_on_not_safe", "count"),
        *("is_open",),
    )

    def __init__(
        self, deadline_s: float, retries: int, *, may_repeat: bool, retry_on_not_safe: bool = False
    ) -> None:
        self._deadline_s = deadline_s
        self._left = retries
        self._may_repeat = may_repeat
        self._retry_on_not_safe = retry_on_not_safe
        self._lane_changes = LANE_CHANGES_MAX
        self.count = 0
        """Attempts that failed."""
        self.is_open = False
        """Whether any of them may have stored the message."""

    def pause_s(self, error: CurlewError, now_s: float, luck: float) -> float | None:
        """Seconds until the next attempt; None: `error` is the end, with its `outcome` as of all
        attempts together. `luck` is from 0 to 1."""
        self.count += 1
        if error.outcome != "not_stored" and not isinstance(error, AlreadyStored):
            self.is_open = True
        if self.is_open and error.outcome == "not_stored":
            error.outcome = "unknown"
        if self._left <= 0 or not self._is_repeatable(error):
            return None
        grown_s = FIRST_PAUSE_S * 2.0 ** min(self.count - 1, 10)
        pause_s = min(grown_s, PAUSE_S_MAX) * (0.5 + luck)
        if isinstance(error, ServiceError) and error.retry_after_s is not None:
            pause_s = max(pause_s, error.retry_after_s)
        if now_s + pause_s >= self._deadline_s:
            return None
        self._left -= 1
        return pause_s

    def may_change_lane(self, error: CurlewError) -> bool:
        """Whether the node has forgotten the lane, which the message may leave: none of its
        attempts can have been stored."""
        is_forgotten = isinstance(error, SequenceOutOfOrder) and not self.is_open
        if not is_forgotten or self._lane_changes <= 0:
            return False
        self._lane_changes -= 1
        return True

    def _is_repeatable(self, error: CurlewError) -> bool:
        if isinstance(error, _NOT_SAFE) and not self._retry_on_not_safe:
            return False
        if isinstance(error, TimedOut) or not error.retryable:
            return False
        return self._may_repeat or not self.is_open


def lost(error: Exception, url: str, *, has_written: bool) -> ConnectionFailed:
    """What the failure of a connection means."""
    outcome: Outcome = "unknown" if has_written else "not_stored"
    what = "broke before the answer was there" if has_written else "cannot be made"
    return ConnectionFailed(f"the connection to {url} {what}: {error}", outcome)
