"""Which node is asked next: RocketMQ's latency fault table, by the URL of the node. Pure.

Off by default, as there; then nodes take turns, and a retry goes to another node than the one that
failed. On: a node that was slow is left alone for a time that grows with its latency, and one that
failed counts as very slow. When all are left alone, the one whose time is over first is asked.
Long polls do not count; whoever waits by intention reports nothing.
"""

from collections.abc import Sequence
from typing import Final

LATENCIES_MS: Final = (50, 100, 550, 1_000, 2_000, 3_000, 15_000)
AWAY_MS: Final = (0, 0, 30_000, 60_000, 120_000, 180_000, 600_000)
FAILURE_MS: Final = 30_000
"""What a failure counts as."""


class FaultTable:
    """The nodes of one client. Used by many threads: each call works on whole values."""

    def __init__(self, urls: Sequence[str], *, is_on: bool) -> None:
        self._urls = tuple(urls)
        self._learned: tuple[str, ...] = ()
        self._is_on = is_on
        self._until_ms: dict[str, float] = {}
        self._turn = 0

    def pick(self, now_ms: float, failed: str | None = None) -> str:
        """The node to ask; not the one that has just failed, if there is another."""
        urls = self._urls
        if len(urls) == 1:
            if failed != urls[0] or not self._learned:
                return urls[0]
            urls = self._learned
        self._turn += 1
        turn = self._turn
        order = [urls[(turn + step) % len(urls)] for step in range(len(urls))]
        others = [url for url in order if url != failed] or order
        if not self._is_on:
            return others[0]
        for url in others:
            if self._until_ms.get(url, 0) <= now_ms:
                return url
        return min(others, key=lambda url: self._until_ms.get(url, 0))

    def learn(self, url: str) -> None:
        """Another node is known; it is asked when the only one that was given has failed."""
        if url not in self._urls and url not in self._learned:
            self._learned = (*self._learned, url)

    def away_until_ms(self, url: str) -> float:
        """Until when a node is left alone; 0: it is not."""
        return self._until_ms.get(url, 0) if self._is_on else 0

    def report(self, url: str, latency_ms: float, now_ms: float, *, has_failed: bool) -> None:
        """A request took so long, or failed."""
        if self._is_on:
            self._until_ms[url] = now_ms + away_ms(FAILURE_MS if has_failed else latency_ms)


def away_ms(latency_ms: float) -> int:
    """How long a node of this latency is left alone."""
    for bound, away in zip(reversed(LATENCIES_MS), reversed(AWAY_MS), strict=True):
        if latency_ms >= bound:
            return away
    return 0
