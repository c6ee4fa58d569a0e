"""Repeat a request that may succeed later: exponential backoff with jitter, `Retry-After` honoured.

Knows nothing of HTTP: the attempt says with `TryLater` that it is worth another one. Called by
`client`.
"""

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from pyspark_curlew.errors import ServiceUnavailable
from pyspark_curlew.http_options import HttpOptions

Result = TypeVar("Result")

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
    """How often and after which pauses. Pauses lie between half and all of the doubled backoff."""

    retries: int
    backoff_ms: int
    max_backoff_ms: int
    sleep: Callable[[float], None] = time.sleep
    fraction: Callable[[], float] = _random_fraction

    @classmethod
    def of(cls, options: HttpOptions) -> "RetryPolicy":
        return cls(options.retries, options.retry_backoff_ms, options.retry_max_backoff_ms)

    def run(self, what: str, attempt: Callable[[], Result]) -> Result:
        """Return the first result of `attempt`; raise `ServiceUnavailable` after the last try."""
        failures = 0
        while True:
            try:
                return attempt()
            except TryLater as failure:
                if failures == self.retries:
                    raise ServiceUnavailable(
                        f"{what} failed {failures + 1} times; at last: {failure.reason}"
                    ) from None
                self.sleep(self.pause_s(failures, failure.after_s))
                failures += 1

    def pause_s(self, failures: int, after_s: float | None) -> float:
        """Seconds to wait after failure number `failures` (from 0)."""
        if after_s is not None:
            return min(after_s, RETRY_AFTER_MAX_S)
        doubled = min(self.backoff_ms * 2.0 ** min(failures, 64), self.max_backoff_ms)
        return doubled * (0.5 + 0.5 * self.fraction()) / 1000
