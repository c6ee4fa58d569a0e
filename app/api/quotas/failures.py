"""Who fails to show a credential, by address: bounded, and slowed down without a lock-out.

A wrong key costs next to nothing, and whoever sends many takes the time of everybody else. Beyond
`FAILURES_PER_SECOND` of an address the connection that has sent one is not read for a while, and
what is new from there begins a little later. A connection that shows a right key is not slowed,
also from the same address: nobody can lock an administrator out. Event loop only.
"""

from collections.abc import Callable
from typing import Final

from app.domain.limits import FAILING_ADDRESSES_MAX
from app.domain.quotas.bucket_table import BucketTable

FAILURES_PER_SECOND: Final = 10
BEGINNING_SECONDS_MAX: Final = 1.0
"""How much later a new connection, or its handshake, begins."""


class Failures:
    """Wrong credentials, or handshakes that came to nothing, of one server."""

    def __init__(self, now_s: Callable[[], float], per_second: int = FAILURES_PER_SECOND) -> None:
        """`now_s` is a clock that does not go back."""
        self._now_s = now_s
        self._buckets = BucketTable[str](per_second, FAILING_ADDRESSES_MAX)

    def __len__(self) -> int:
        return len(self._buckets)

    def delay_s(self, address: str) -> float:
        """How many seconds later what is new from the address is to begin."""
        bucket = self._buckets.known(address)
        if bucket is None:
            return 0.0
        return min(bucket.wait_s(self._now_s()), BEGINNING_SECONDS_MAX)

    def note(self, address: str) -> float:
        """Count one more; how many seconds its connection is not to be read."""
        now_s = self._now_s()
        bucket = self._buckets.bucket(address, now_s)
        bucket.spend(1, now_s)
        return bucket.wait_s(now_s)
