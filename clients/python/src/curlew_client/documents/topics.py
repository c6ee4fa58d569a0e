"""What the node says about topics."""

from typing import Any, Literal, NotRequired, TypedDict

from curlew_client.documents.shared import Effect


class QueueOffset(TypedDict):
    """An offset in one queue."""

    queue_id: int
    offset: int


TopicType = Literal["normal", "fifo", "delay", "transaction"]


FlushMode = Literal["sync", "async"]


ReplicationMode = Literal["sync", "async"]


TraceMode = Literal["off", "sampled", "on"]


Permission = Literal["rw", "r", "w", "none"]


class Topic(TypedDict):
    """A topic. `version` is also its ETag."""

    name: str
    queues: int
    type: TopicType
    flush: FlushMode
    retention: str
    retention_ms: int
    trace: TraceMode
    trace_rate: float
    namespace: str
    permission: Permission
    write_queues: int | None
    max_body_bytes: int | None
    max_rate: int | None
    max_stored_bytes: int | None
    replication: ReplicationMode | None
    created_ms: int
    updated_ms: int
    version: int


class TopicList(TypedDict):
    """One page of topics, by name; `next_page_token` is null on the last page."""

    topics: list[Topic]
    next_page_token: str | None


class TopicChange(Topic):
    """A topic after a change; with `dry_run`, as it would be."""

    dry_run: bool
    changed: dict[str, list[Any]]
    effects: list[Effect]


class TopicSettings(TypedDict, total=False):
    """Settings of a topic. What is left out stays as it is; in a new topic it has its
    default, and so has what is null."""

    queues: int | None
    type: TopicType | None
    flush: FlushMode | None
    retention: str | None
    retention_ms: int | None
    trace: TraceMode | bool | None
    trace_rate: float | None
    permission: Permission | None
    write_queues: int | None
    max_body_bytes: int | None
    max_rate: int | None
    max_stored_bytes: int | None
    replication: ReplicationMode | None


class TopicOffsets(TypedDict):
    """Where reading would start in every queue of the topic."""

    topic: str
    at: str
    offsets: list[QueueOffset]
    partial: NotRequired[list[str]]


class OffsetsOfTopics(TypedDict):
    """Where reading would start in every queue of the topics that exist."""

    topics: list[TopicOffsets]
    missing: list[str]
    partial: NotRequired[list[str]]
