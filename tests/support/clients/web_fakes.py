"""Neighbours of the pages for tests: topics with made-up depths, no store and no database."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class FakeTopic:
    """A topic as the metadata describes it."""

    name: str
    type: str = "normal"
    flush: str = "sync"
    retention_ms: int = 72 * 3_600_000


@dataclass(slots=True)
class FakeNode:
    """Stands for broker and metadata, and is its own snapshot. Names are not checked here."""

    topics: dict[str, FakeTopic] = field(default_factory=dict)
    ranges: dict[str, Sequence[tuple[int, int, int]]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    @property
    def snapshot(self) -> "FakeNode":
        return self

    def add(
        self, topic: FakeTopic | str, bounds: Mapping[int, tuple[int, int]] | int = 4
    ) -> "FakeNode":
        """Add a topic with these bounds of its queues, or with so many empty queues."""
        added = FakeTopic(topic) if isinstance(topic, str) else topic
        ranges = dict.fromkeys(range(bounds), (0, 0)) if isinstance(bounds, int) else bounds
        self.topics[added.name] = added
        self.ranges[added.name] = [(queue, low, high) for queue, (low, high) in ranges.items()]
        return self

    def bounds(self, topic: str) -> Sequence[tuple[int, int, int]]:
        self.asked.append(topic)
        return self.ranges[topic]


HOSTILE_NAME = "<img src=x onerror=\"document.title='broken'\">'&{{7*7}}"
"""No client may make such a topic; the pages must not rely on that."""


def busy_node() -> FakeNode:
    """Topics of several kinds, one of them with a name that attacks the page."""
    node = FakeNode()
    node.add("orders", {0: (12_000, 90_122), 1: (11_840, 88_007), 2: (12_310, 91_554), 3: (0, 402)})
    node.add(
        FakeTopic("audit", "fifo", "sync", 90 * 24 * 3_600_000),
        {0: (9_007_199_253_536_662, 9_007_199_254_740_993)},
    )
    node.add(FakeTopic("clicks-eu", flush="async"), {q: (0, 1_000 + q * 37) for q in range(32)})
    node.add(FakeTopic("payments", "transaction"), {0: (5, 6), 1: (0, 0)})
    node.add(FakeTopic("reminders", "delay", retention_ms=90_000), 2)
    node.add(FakeTopic("telemetry-of-all-vehicles-in-the-northern-fleet", flush="async"), 1_024)
    node.add(HOSTILE_NAME, {0: (0, 3)})
    return node
