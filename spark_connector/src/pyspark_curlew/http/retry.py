"""Repeat a request that may succeed later: exponential backoff with jitter, `Retry-After` honoured.

By time, not by count: a node that restarts is away for as long as it is, however fast it refuses.

Knows nothing of HTTP: the attempt says with `TryLater` that it is worth another one. Called by
`client`.
"""

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from pyspark_curlew.errors import ServiceUnavailable

Result = TypeVar("Result")

BACKOFF_MS: Final = 50
"""Before the second attempt; doubled before each further one, up to the next."""
BACKOFF_MS_MAX: Final = 5000

RETRY_AFTER_MAX_S: Final = 60.0
"""A longer `Retry-After` is cut: the query should fail rather than hang."""


class TryLater(Exception):
    """One attempt failed in a way that another may not. `after_s`: the service's own wish."""

    def __init__(self, reason: str, after_s: float | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.after_s = after_s


def _random_fraction() -> float:
    return secrets.randbelow(1_000_000) / 1_000_000


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """For how long after the first failure there are further attempts; 0: none.

    Pauses lie between half and all of the doubled backoff. The last attempt is made when the time
    is over.
    """

    timeout_ms: int
    sleep: Callable[[float], None] = time.sleep
    now: Callable[[], float] = time.monotonic
    fraction: Callable[[], float] = _random_fraction

    def run(self, what: str, attempt: Callable[[], Result]) -> Result:
        """Return the first result of `attempt`; raise `ServiceUnavailable` after the last try."""
        failures = 0
        deadline_s: float | None = None
        while True:
            try:
                return attempt()
            except TryLater as failure:
                if deadline_s is None:
                    deadline_s = self.now() + self.timeout_ms / 1000
                left_s = deadline_s - self.now()
                failures += 1
                if left_s <= 0:
                    raise ServiceUnavailable(
                        f"{what} failed {failures} times within {self.timeout_ms / 1000:g} s"
                        f" (option retryTimeoutMs); at last: {failure.reason}"
                    ) from None
                self.sleep(min(self.pause_s(failures - 1, failure.after_s), left_s))

    def pause_s(self, failures: int, after_s: float | None) -> float:
        """Seconds to wait after failure number `failures` (from 0)."""
        if after_s is not None:
            return min(after_s, RETRY_AFTER_MAX_S)
        doubled = min(BACKOFF_MS * 2.0 ** min(failures, 64), BACKOFF_MS_MAX)
        return doubled * (0.5 + 0.5 * self.fraction()) / 1000
