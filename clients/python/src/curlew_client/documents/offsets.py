"""What the node says about where groups are, and snapshots of it."""

from typing import Literal, NotRequired, TypedDict

from curlew_client.documents.topics import QueueOffset


class TopicQueueOffset(TypedDict):
    """A committed offset."""

    topic: str
    queue_id: int
    offset: int


class AllGroupOffsets(TypedDict):
    """What a group has committed, in all topics."""

    group: str
    offsets: list[TopicQueueOffset]
    partial: NotRequired[list[str]]


class GroupOffsets(TypedDict):
    """What a group has committed in a topic, for the queues where it has committed
    anything."""

    group: str
    topic: str
    offsets: list[QueueOffset]
    partial: NotRequired[list[str]]


ConsumptionEffectCode = Literal["ASSIGNMENTS_END", "LEASES_END", "PARKED_RETURN", "RETRIES_WAIT"]


class ConsumptionEffect(TypedDict):
    """What changing the way of consumption has done."""

    code: ConsumptionEffectCode
    detail: str
    count: int


class CommitAnswer(TypedDict):
    """What a group has committed in a topic after a commit; or what would be, or was
    forgotten."""

    group: str
    topic: str
    offsets: list[QueueOffset]
    dry_run: bool
    effects: list[ConsumptionEffect]
    partial: NotRequired[list[str]]


class RefusedCommit(TypedDict):
    """A row that was not committed, and why. With `RELAY_INTERRUPTED` it may have been."""

    topic: str
    queue_id: int
    offset: int
    code: str
    detail: str


class CommitPartAnswer(TypedDict):
    """What is committed in the shards that answered, and the rows of the others."""

    group: str
    topic: str
    offsets: list[QueueOffset]
    dry_run: bool
    effects: list[ConsumptionEffect]
    partial: list[str]
    refused: list[RefusedCommit]


class CommitEntry(TypedDict):
    """Everything of the queue below `offset` is done."""

    queue_id: int
    offset: int


class OffsetCommit(TypedDict):
    """Offsets to commit. They never go back, unless `force` says so. A member says who it
    is and which generation it has put into effect."""

    offsets: list[CommitEntry]
    force: NotRequired[bool]
    client_id: NotRequired[str | None]
    generation: NotRequired[int | None]


class OffsetChange(TypedDict):
    """One queue before and after. `before` is null where nothing was committed. `clamped`:
    what was asked for is not readable, and `after` is the nearest that is."""

    topic: str
    queue_id: int
    before: int | None
    after: int
    min_offset: int
    max_offset: int
    clamped: bool


class ResetAnswer(TypedDict):
    """The table before and after. With live members `generation` has risen and tells
    them."""

    group: str
    dry_run: bool
    generation: int
    offsets: list[OffsetChange]
    missing_topics: list[str]
    partial: NotRequired[list[str]]


class OffsetReset(TypedDict):
    """Where to set the offsets. `dry_run` answers the table and changes nothing."""

    to: Literal["earliest", "latest", "timestamp", "offset", "shift"]
    timestamp_ms: NotRequired[int | None]
    offset: NotRequired[int | None]
    shift: NotRequired[int | None]
    queues: NotRequired[list[int] | None]


class OffsetsReset(OffsetReset):
    """Where to set the offsets of several topics. `dry_run` answers the table and changes
    nothing."""

    topics: NotRequired[list[str] | None]


class SnapshotSummary(TypedDict):
    """A snapshot without its offsets."""

    name: str
    created_ms: int
    queues: int


class SnapshotList(TypedDict):
    """All snapshots of a group, by name."""

    group: str
    snapshots: list[SnapshotSummary]


class Snapshot(TypedDict):
    """The offsets of a group at one moment, under a name."""

    name: str
    created_ms: int
    offsets: list[TopicQueueOffset]


class SnapshotAnswer(Snapshot):
    """A snapshot that was taken or forgotten, or would be."""

    dry_run: bool
