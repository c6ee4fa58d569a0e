"""What the node says about what went through."""

from typing import NotRequired, TypedDict

Counts = TypedDict(
    "Counts",
    {
        "in": int,
        "in_bytes": int,
        "out": int,
        "out_bytes": int,
        "acks_ok": int,
        "acks_failed": int,
        "retries": int,
        "dead_letters": int,
    },
)


Rates = TypedDict(
    "Rates",
    {
        "in": float,
        "in_bytes": float,
        "out": float,
        "out_bytes": float,
        "acks_ok": float,
        "acks_failed": float,
        "retries": float,
        "dead_letters": float,
    },
)


Series = TypedDict(
    "Series",
    {
        "start_ms": int,
        "step_ms": int,
        "in": list[int],
        "in_bytes": list[int],
        "out": list[int],
        "out_bytes": list[int],
        "acks_ok": list[int],
        "acks_failed": list[int],
        "retries": list[int],
        "dead_letters": list[int],
    },
)


class GroupTopicStatistics(TypedDict):
    """A group in one topic."""

    topic: str
    since_ms: int
    counters: Counts
    rates: dict[str, Rates]


class GroupStatistics(TypedDict):
    """What a group was given and what became of it, in all its topics or in one."""

    since_ms: int | None
    counters: Counts
    rates: dict[str, Rates]
    sums: dict[str, Counts]
    series: Series
    group: str
    topics: list[GroupTopicStatistics]
    partial: NotRequired[list[str]]


class QueueStats(TypedDict):
    """Readable offsets of one queue: from `min_offset` on, below `max_offset`."""

    queue_id: int
    min_offset: int
    max_offset: int
    depth: int


class Latency(TypedDict):
    """How long the store took for sends, in milliseconds, since `since_ms`."""

    p50: float | None
    p99: float | None
    max: float
    buckets: dict[str, int]


class TopicStatistics(TypedDict):
    """How much a topic holds now, and what went through it since the node's start. `out`,
    acks, retries and dead letters are those of all groups, and what was pulled without
    one."""

    topic: str
    depth: int
    queues: list[QueueStats]
    since_ms: int | None
    counters: Counts
    rates: dict[str, Rates]
    sums: dict[str, Counts]
    series: Series
    put_latency_ms: Latency
    failures: dict[str, int]
    partial: NotRequired[list[str]]


class NodeStatistics(TypedDict):
    """What goes through a node, in all topics and groups together, and how much it
    holds."""

    since_ms: int
    topics: int
    groups: int
    lag: int
    dead_letters: int
    stored_bytes: int
    disk_bytes: int | None
    disk_free_bytes: int | None
    counters: Counts
    rates: dict[str, Rates]
    series: Series
