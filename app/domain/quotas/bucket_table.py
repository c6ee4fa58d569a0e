"""Buckets by name, in bounded tables, whose debts have an end. Pure.

What a request costs is known when it is over, so a bucket gives more than it holds; nothing is
given until time has paid for that. A debt is bounded, so that everybody may come again within
`DEBT_SECONDS_MAX`.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

from app.domain.quotas.token_bucket import TokenBucket

DEBT_SECONDS_MAX: Final = 5.0
BURST_SECONDS: Final = 1.0
"""How much of its rate a bucket keeps that nobody has used."""
_WAIT_SECONDS_MIN: Final = 0.001

_Key = TypeVar("_Key", bound=Hashable)
_Row = TypeVar("_Row")


class DebtBucket(TokenBucket):
    """One that is spent from whether or not there is as much, down to a bound."""

    __slots__ = ("_lowest",)

    def __init__(self, rate_per_s: float, now_s: float) -> None:
        super().__init__(rate_per_s, rate_per_s * BURST_SECONDS, now_s)
        self._lowest = -rate_per_s * DEBT_SECONDS_MAX

    def wait_s(self, now_s: float) -> float:
        """Seconds until it gives again; 0: it does now."""
        left = self.left(now_s)
        return 0.0 if left > 0 else max(-left / self.rate_per_s, _WAIT_SECONDS_MIN)

    def spend(self, amount: float, now_s: float) -> None:
        """Take so much, whether or not it is there."""
        left = self._left if now_s <= self._at_s else self.left(now_s)
        left -= amount
        lowest = self._lowest
        self._left = left if left > lowest else lowest  # noqa: FURB136  # a call costs more


class BucketTable(Generic[_Key, _Row]):
    """Buckets by name, one or several in a row, of at most so many names: the longest unused one is
    forgotten, with full buckets."""

    def __init__(self, make: Callable[[float], _Row], count_max: int) -> None:
        """`make` makes the row of a name at a time in seconds."""
        self._make = make
        self._count_max = count_max
        self._rows: OrderedDict[_Key, _Row] = OrderedDict()

    def __len__(self) -> int:
        return len(self._rows)

    def known(self, key: _Key) -> _Row | None:
        """The row of that name, when there is one."""
        return self._rows.get(key)

    def row(self, key: _Key, now_s: float) -> _Row:
        """The row of that name, made when there is none."""
        found = self._rows.get(key)
        if found is not None:
            self._rows.move_to_end(key)
            return found
        if len(self._rows) >= self._count_max:
            self._rows.popitem(last=False)
        made = self._rows[key] = self._make(now_s)
        return made
