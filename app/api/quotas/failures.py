"""Who fails to show a credential, by address: bounded, and slowed down without a lock-out.

A wrong key costs next to nothing, and cannot be guessed; but whoever sends many takes the time of
everybody else. Beyond `FAILURES_PER_SECOND` of an address the answer to a wrong key is held back
for a moment, and then its connection is not read for a while. A right key is never slowed, also
from the same address, on old connections and new ones: nobody can lock an administrator out. Of
handshakes that come to nothing nobody can know who begins the next one: beyond
`HANDSHAKES_FAILED_PER_SECOND` those of the address begin a little later. Event loop only.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from app.domain.limits import FAILING_ADDRESSES_MAX
from app.domain.quotas.bucket_table import BucketTable, DebtBucket

FAILURES_PER_SECOND: Final = 1_000
"""Two percent of a processor."""
HANDSHAKES_FAILED_PER_SECOND: Final = 10
BEGINNING_SECONDS_MAX: Final = 1.0
"""How much later a handshake begins, or a wrong key is answered."""


class Failures:
    """Wrong credentials, or handshakes that came to nothing, of one server."""

    def __init__(self, now_s: Callable[[], float], per_second: int = FAILURES_PER_SECOND) -> None:
        """`now_s` is a clock that does not go back."""
        self._now_s = now_s
        self._buckets = BucketTable[str, DebtBucket](
            partial(DebtBucket, per_second), FAILING_ADDRESSES_MAX
        )

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
        bucket = self._buckets.row(address, now_s)
        bucket.spend(1, now_s)
        return bucket.wait_s(now_s)
