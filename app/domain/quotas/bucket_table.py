"""Buckets by name, in bounded tables, whose debts have an end. Pure.

What a request costs is known when it is over, so a bucket gives more than it holds; nothing is
given until time has paid for that. A debt is bounded, so that everybody may come again within
`DEBT_SECONDS_MAX`.
"""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

from app.domain.quotas.token_bucket import TokenBucket

DEBT_SECONDS_MAX: Final = 5.0
BURST_SECONDS: Final = 1.0
"""How much of its rate a bucket keeps that nobody has used."""
_WAIT_SECONDS_MIN: Final = 0.001

_Key = TypeVar("_Key", bound=Hashable)


class DebtBucket(TokenBucket):
    """One that is spent from whether or not there is as much, down to a bound."""

    __slots__ = ()

    def __init__(self, rate_per_s: float, now_s: float) -> None:
        super().__init__(rate_per_s, rate_per_s * BURST_SECONDS, now_s)

    def wait_s(self, now_s: float) -> float:
        """Seconds until it gives again; 0: it does now."""
        left = self.left(now_s)
        return 0.0 if left > 0 else max(-left / self.rate_per_s, _WAIT_SECONDS_MIN)

    def spend(self, amount: float, now_s: float) -> None:
        """Take so much, whether or not it is there."""
        self._left = max(self.left(now_s) - amount, -self.rate_per_s * DEBT_SECONDS_MAX)


class BucketTable(Generic[_Key]):
    """Buckets of one rate by name, at most so many: the longest unused is forgotten, full."""

    def __init__(self, rate: float, count_max: int) -> None:
        self.rate = rate
        self._count_max = count_max
        self._buckets: OrderedDict[_Key, DebtBucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def known(self, key: _Key) -> DebtBucket | None:
        """The bucket of that name, when there is one."""
        return self._buckets.get(key)

    def bucket(self, key: _Key, now_s: float) -> DebtBucket:
        """The bucket of that name, made when there is none."""
        found = self._buckets.get(key)
        if found is not None:
            self._buckets.move_to_end(key)
            return found
        if len(self._buckets) >= self._count_max:
            self._buckets.popitem(last=False)
        made = self._buckets[key] = DebtBucket(self.rate, now_s)
        return made
