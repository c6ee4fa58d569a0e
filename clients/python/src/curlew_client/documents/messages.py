"""What the node says about messages that are stored, and their traces."""

from typing import Any, Literal, NotRequired, TypedDict

TraceResult = Literal[
    "sent",
    "sent_again",
    "delivered",
    "extended",
    "acked",
    "nacked",
    "released",
    "expired",
    "dead_lettered",
    "skipped",
    "parked",
    "redriven",
]
"""What a search of traces may ask for."""


class MessageView(TypedDict):
    """A stored message. One of `body` (JSON), `text` (UTF-8) and `body_base64` is present.
    A request has a `correlation_id`, to which a reply is taken until `reply_until_ms`.
    `unique_id` and `flag` are the producer's own; a flag of 0 is left out."""

    message_id: str
    topic: str
    queue_id: int
    queue_offset: int
    born_time_ms: int
    store_time_ms: int
    keys: list[str]
    properties: dict[str, str]
    tag: NotRequired[str]
    sharding_key: NotRequired[str]
    content_type: NotRequired[str]
    body: NotRequired[Any]
    text: NotRequired[str]
    body_base64: NotRequired[str]
    correlation_id: NotRequired[str]
    reply_until_ms: NotRequired[int]
    unique_id: NotRequired[str]
    flag: NotRequired[int]


BrowseGapView = TypedDict(
    "BrowseGapView",
    {"queue_id": int, "from": int, "to": int, "reason": str},
)


class BrowseAnswer(TypedDict):
    """A page of a topic's messages, over all queues in the order in which they were stored.
    `scanned` counts the messages that were looked at. With `next_cursor` there may be more,
    also when the page is empty; without it this was the end."""

    messages: list[MessageView]
    scanned: int
    next_cursor: NotRequired[str]
    gaps: NotRequired[list[BrowseGapView]]
    partial: NotRequired[list[str]]


class TraceProducer(TypedDict):
    """How the message came. What its request did not say is null."""

    client_id: str | None
    producer_group: str | None
    address: str | None
    duration_ms: float | None
    tries: int
    last_try_ms: int


class TraceDelivery(TypedDict):
    """One delivery of the message to a group."""

    group: str
    attempt: int | None
    client_id: str | None
    delivered_ms: int | None
    ended_ms: int | None
    duration_ms: int | None
    result: str | None
    reason: str | None
    extended: int
    dead_letter_offset: int | None


class TraceEvent(TypedDict):
    """One thing that happened to the message after it was stored."""

    kind: str
    at_ms: int
    group: str
    attempt: int | None
    client_id: str | None
    detail: str | None


class Trace(TypedDict):
    """A message's trace, the oldest event first. Retries belong to the message that
    failed."""

    message_id: str
    topic: str
    queue_id: int
    queue_offset: int
    tag: str | None
    keys: list[str]
    born_time_ms: int
    store_time_ms: int
    body_bytes: int
    is_traced: bool
    is_complete: bool
    producer: TraceProducer | None
    deliveries: list[TraceDelivery]
    events: list[TraceEvent]


class FoundEvent(TypedDict):
    """An event of one message, or of neighbours in a queue to which the same happened at
    once."""

    kind: str
    at_ms: int
    topic: str
    queue_id: int
    queue_offset: int
    count: int
    message_id: str | None
    group: str | None
    attempt: int | None
    client_id: str | None
    address: str | None
    detail: str | None
    duration_ms: float | None


class TraceList(TypedDict):
    """A page of events, the oldest first. A page may be empty and go on: the work for one
    is bounded."""

    events: list[FoundEvent]
    scanned: int
    next_page_token: str | None
    partial: NotRequired[list[str]]
