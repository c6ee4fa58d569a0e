"""What the pages show, as plain values. Pure: no HTTP, no templates, no clock.

A page is bounded: it reads the queues of the topics that it shows and of no others.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Final

from app.domain.positions import TimestampMs
from app.web.ports import Snapshot, Topic, TopicEnds

TOPICS_PER_PAGE: Final = 50
QUEUES_SHOWN_MAX: Final = 64
"""Of each topic. A topic may have 1,024 queues; the JSON behind the page lists them all."""

BAR_HEIGHT: Final = 14


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A queue and its half-open range of readable offsets."""

    queue_id: int
    min_offset: int
    max_offset: int

    @property
    def depth(self) -> int:
        return self.max_offset - self.min_offset


@dataclass(frozen=True, slots=True)
class TopicRow:
    """A topic, its depth over all queues, and its first queues."""

    name: str
    type: str
    flush: str
    retention: str
    queue_count: int
    depth: int
    queues: Sequence[QueueRow]

    @property
    def bars(self) -> list[int]:
        """A height for each queue shown, the deepest being full; anything above zero is seen."""
        deepest = max((queue.depth for queue in self.queues), default=0)
        return [-(-BAR_HEIGHT * queue.depth // deepest) if deepest else 0 for queue in self.queues]


@dataclass(frozen=True, slots=True)
class TopicsPage:
    """One page of topics in the order of their names, and where the next one begins."""

    rows: Sequence[TopicRow]
    prefix: str
    after: str
    matching: int
    total: int
    next_after: str | None


def topics_page(snapshot: Snapshot, topic_ends: TopicEnds, prefix: str, after: str) -> TopicsPage:
    """The topics that begin with `prefix` and come behind `after`."""
    matching = sorted(name for name in snapshot.topics if name.startswith(prefix))
    behind = [name for name in matching if name > after]
    shown = behind[:TOPICS_PER_PAGE]
    return TopicsPage(
        rows=[_topic_row(snapshot.topics[name], topic_ends) for name in shown],
        prefix=prefix,
        after=after,
        matching=len(matching),
        total=len(snapshot.topics),
        next_after=shown[-1] if len(behind) > len(shown) else None,
    )


def _topic_row(topic: Topic, topic_ends: TopicEnds) -> TopicRow:
    queues = [QueueRow(*bounds) for bounds in topic_ends.bounds(topic.name)]
    return TopicRow(
        name=topic.name,
        type=str(topic.type),
        flush=str(topic.flush),
        retention=duration_text(topic.retention_ms),
        queue_count=len(queues),
        depth=sum(queue.depth for queue in queues),
        queues=list(islice(queues, QUEUES_SHOWN_MAX)),
    )


def duration_text(duration_ms: int) -> str:
    """The duration in the largest unit that leaves no rest: `3 d`, `90 min`, `1500 ms`."""
    for unit_ms, unit in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s")):
        if duration_ms and duration_ms % unit_ms == 0:
            return f"{duration_ms // unit_ms} {unit}"
    return f"{duration_ms} ms"


def number_text(number: int) -> str:
    """Exact, with thin groups of three: 64-bit offsets are never rounded."""
    return f"{number:,}"


def moment_text(moment_ms: TimestampMs) -> str:
    """A wall time in UTC, to the second."""
    return datetime.fromtimestamp(moment_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
