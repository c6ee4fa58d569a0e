"""A token bucket: so many a second, and some at once. Pure; seconds of any clock that only goes up.

Whoever counts against a rate uses it: the limits of topics, and the quotas of principals and
namespaces. Taking is a few additions, so it may stand on the way of each message. Not
synchronised: for one thread, in Curlew the event loop.
"""

from typing import Final

_ROUNDING: Final = 1e-6
"""Of a token, by which what came in over some seconds may be short."""


class TokenBucket:
    """`rate_per_s` tokens come in each second, and at most `burst` are kept.

    What is taken in one go may be more than there is, as long as there is a whole token: the
    bucket is then in debt, and gives nothing until that is paid. So a request that is larger than
    the burst is taken, and the rate holds all the same.
    """

    __slots__ = ("_at_s", "_least", "_left", "burst", "rate_per_s")

    def __init__(self, rate_per_s: float, burst: float, now_s: float) -> None:
        """A full one. Both are more than 0."""
        self.rate_per_s = rate_per_s
        self.burst = burst
        self._left = burst
        self._least = min(1.0, burst)
        self._at_s = now_s

    def left(self, now_s: float) -> float:
        """Tokens that are there; in debt less than 0."""
        left = self._left
        if now_s > self._at_s:
            left += (now_s - self._at_s) * self.rate_per_s
            self._left = left = left if left < self.burst else self.burst  # noqa: FURB136  # a call costs more
            self._at_s = now_s
        return left

    def take(self, count: float, now_s: float) -> float:
        """Take so many: 0. Or take none: the seconds until there is a token again."""
        left = self.left(now_s)
        if left >= self._least - _ROUNDING:
            self._left = left - count
            return 0.0
        return (self._least - left) / self.rate_per_s

    def give_back(self, count: float) -> None:
        """What was taken and not used."""
        self._left = min(self.burst, self._left + count)
