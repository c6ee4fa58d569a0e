"""Shapes of the control plane as JSON: pydantic models, unknown fields refused in requests.

Not here: the data plane (`wire`), the rules of settings (`domain.settings`, checked by whoever
stores them). A request model gives a settings value, an answer model is made from a view.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from app.api.durations import DURATION_PATTERN, format_duration, parse_duration_ms
from app.broker.health import ConditionCode
from app.broker.ports import Group, Topic
from app.broker.results import QueuePosition, QueueRange
from app.domain.limits import (
    DEFAULT_INVISIBLE_MS,
    DEFAULT_MAX_ATTEMPTS,
    DEFAULT_MAX_IN_FLIGHT,
    DEFAULT_QUEUES,
    DEFAULT_RETENTION_MS,
)
from app.domain.positions import FlushMode
from app.domain.settings import (
    DEFAULT_RETRY,
    CustomizedRetry,
    DeliveryOrder,
    ExponentialRetry,
    GroupMode,
    GroupSettings,
    RetryPolicy,
    TopicSettings,
    TopicType,
    WhenExhausted,
)

INT64_MAX = 2**63 - 1


def _check_duration(text: str) -> str:
    parse_duration_ms(text)
    return text


Duration = Annotated[
    str,
    AfterValidator(_check_duration),
    Field(
        json_schema_extra={"pattern": DURATION_PATTERN},
        description="a number and a unit: 250ms, 30s, 5m, 2h, 3d",
    ),
]
Count = Annotated[int, Field(ge=0, le=INT64_MAX)]


class RequestModel(BaseModel):
    """Parent of request bodies: a misspelt field is an error, and `"3"` is not a number."""

    model_config = ConfigDict(extra="forbid", strict=True)


class AnswerModel(BaseModel):
    """Parent of answers: made by us, read by clients that ignore what they do not know."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=True)


def _one_ms(name: str, text: str | None, ms: int | None, default_ms: int) -> int:
    if text is None:
        return default_ms if ms is None else ms
    if ms is not None:
        raise ValueError(f"{name} and {name}_ms are both given")
    return parse_duration_ms(text)


# --- topics ---------------------------------------------------------------------------------


class TopicBody(RequestModel):
    """Settings of a topic; what is left out has its default."""

    queues: int = DEFAULT_QUEUES
    type: TopicType = TopicType.NORMAL
    flush: FlushMode | None = Field(default=None, description="default: the node's setting")
    retention: Duration | None = None
    retention_ms: Count | None = None
    trace: bool = Field(default=True, description="keep for a while what becomes of each message")

    @model_validator(mode="after")
    def _check_retention(self) -> Self:
        _one_ms("retention", self.retention, self.retention_ms, 0)
        return self

    def settings(self, default_flush: FlushMode) -> TopicSettings:
        flush = default_flush if self.flush is None else self.flush
        retention_ms = _one_ms("retention", self.retention, self.retention_ms, DEFAULT_RETENTION_MS)
        return TopicSettings(self.queues, self.type, flush, retention_ms, self.trace)


class TopicDocument(AnswerModel):
    """A topic. `version` is also its ETag."""

    name: str
    queues: int
    type: TopicType
    flush: FlushMode
    retention: str
    retention_ms: int
    trace: bool
    created_ms: int
    updated_ms: int
    version: int

    @classmethod
    def of(cls, topic: Topic) -> Self:
        return cls(
            name=topic.name,
            queues=topic.queues,
            type=topic.type,
            flush=topic.flush,
            retention=format_duration(topic.retention_ms),
            retention_ms=topic.retention_ms,
            trace=topic.trace,
            created_ms=topic.created_ms,
            updated_ms=topic.updated_ms,
            version=topic.version,
        )


class TopicList(AnswerModel):
    """One page of topics, by name; `next_page_token` is null on the last page."""

    topics: list[TopicDocument]
    next_page_token: str | None


class QueueStats(AnswerModel):
    """Readable offsets of one queue: from `min_offset` on, below `max_offset`."""

    queue_id: int
    min_offset: int
    max_offset: int
    depth: int


class TopicStats(AnswerModel):
    """How much a topic holds now."""

    topic: str
    depth: int
    queues: list[QueueStats]

    @classmethod
    def of(cls, topic: str, ranges: Sequence[QueueRange]) -> Self:
        queues = [
            QueueStats(
                queue_id=each.queue_id,
                min_offset=each.min_offset,
                max_offset=each.max_offset,
                depth=each.max_offset - each.min_offset,
            )
            for each in ranges
        ]
        return cls(topic=topic, depth=sum(queue.depth for queue in queues), queues=queues)


class QueueOffsetDocument(AnswerModel):
    """An offset in one queue."""

    queue_id: int
    offset: int


class TopicOffsets(AnswerModel):
    """Where reading would start in every queue of the topic."""

    topic: str
    at: str
    offsets: list[QueueOffsetDocument]

    @classmethod
    def of(cls, topic: str, at: str, positions: Sequence[QueuePosition]) -> Self:
        offsets = [QueueOffsetDocument(queue_id=p.queue_id, offset=p.offset) for p in positions]
        return cls(topic=topic, at=at, offsets=offsets)


# --- groups ---------------------------------------------------------------------------------


class CustomizedRetryBody(RequestModel):
    """A delay for each attempt; attempts beyond the list use its last."""

    customized: list[Duration] = Field(min_length=1)


class ExponentialBody(RequestModel):
    """`initial`, then `multiplier` times the delay before, never over `max`."""

    initial: Duration
    multiplier: float = Field(default=2.0, strict=False)
    max: Duration


class ExponentialRetryBody(RequestModel):
    """Delays that grow by a factor."""

    exponential: ExponentialBody


RetryBody = CustomizedRetryBody | ExponentialRetryBody


def _policy_of(body: RetryBody | None) -> RetryPolicy:
    if body is None:
        return DEFAULT_RETRY
    if isinstance(body, CustomizedRetryBody):
        return CustomizedRetry(tuple(parse_duration_ms(text) for text in body.customized))
    policy = body.exponential
    return ExponentialRetry(
        parse_duration_ms(policy.initial), policy.multiplier, parse_duration_ms(policy.max)
    )


def _policy_document(policy: RetryPolicy) -> RetryBody:
    if isinstance(policy, CustomizedRetry):
        return CustomizedRetryBody(customized=[format_duration(ms) for ms in policy.delays_ms])
    return ExponentialRetryBody(
        exponential=ExponentialBody(
            initial=format_duration(policy.initial_ms),
            multiplier=policy.multiplier,
            max=format_duration(policy.max_ms),
        )
    )


class GroupBody(RequestModel):
    """Settings of a consumer group; what is left out has its default."""

    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    retry_policy: RetryBody | None = None
    order: DeliveryOrder = DeliveryOrder.CONCURRENT
    invisible: Duration | None = None
    invisible_ms: Count | None = None
    start: Literal["earliest", "latest"] | int = Field(
        default="earliest", description="where a new group begins; a number is epoch milliseconds"
    )
    max_in_flight: int = DEFAULT_MAX_IN_FLIGHT
    mode: GroupMode = Field(
        default=GroupMode.CLUSTERING,
        description="clustering: members share the queues; broadcast: each reads all of them and "
        "keeps its own offsets",
    )

    on_exhausted: WhenExhausted = Field(
        default=WhenExhausted.DEAD_LETTER,
        description="with order=fifo: what follows the last delivery. park blocks the key until "
        "it is released",
    )
    max_in_flight_per_member: int | None = Field(
        default=None, description="messages that one client_id holds at most"
    )

    @model_validator(mode="after")
    def _check_invisible(self) -> Self:
        _one_ms("invisible", self.invisible, self.invisible_ms, 0)
        return self

    def settings(self) -> GroupSettings:
        return GroupSettings(
            max_attempts=self.max_attempts,
            retry_policy=_policy_of(self.retry_policy),
            order=self.order,
            invisible_ms=_one_ms(
                "invisible", self.invisible, self.invisible_ms, DEFAULT_INVISIBLE_MS
            ),
            start=self.start,
            max_in_flight=self.max_in_flight,
            mode=self.mode,
            on_exhausted=self.on_exhausted,
            max_in_flight_per_member=self.max_in_flight_per_member,
        )


class GroupDocument(AnswerModel):
    """A consumer group. `version` is also its ETag."""

    name: str
    max_attempts: int
    retry_policy: RetryBody
    order: DeliveryOrder
    invisible: str
    invisible_ms: int
    start: Literal["earliest", "latest"] | int
    max_in_flight: int
    mode: GroupMode
    on_exhausted: WhenExhausted
    max_in_flight_per_member: int | None
    paused: bool
    created_ms: int
    updated_ms: int
    version: int

    @classmethod
    def of(cls, group: Group) -> Self:
        return cls(
            name=group.name,
            max_attempts=group.max_attempts,
            retry_policy=_policy_document(group.retry_policy),
            order=group.order,
            invisible=format_duration(group.invisible_ms),
            invisible_ms=group.invisible_ms,
            start=group.start,
            max_in_flight=group.max_in_flight,
            mode=group.mode,
            on_exhausted=group.on_exhausted,
            max_in_flight_per_member=group.max_in_flight_per_member,
            paused=group.paused,
            created_ms=group.created_ms,
            updated_ms=group.updated_ms,
            version=group.version,
        )


class GroupList(AnswerModel):
    """One page of groups, by name; `next_page_token` is null on the last page."""

    groups: list[GroupDocument]
    next_page_token: str | None


class GroupOffsets(AnswerModel):
    """What a group has committed in a topic, for the queues where it has committed anything."""

    group: str
    topic: str
    offsets: list[QueueOffsetDocument]

    @classmethod
    def of(cls, group: str, topic: str, positions: Sequence[QueuePosition]) -> Self:
        offsets = [QueueOffsetDocument(queue_id=p.queue_id, offset=p.offset) for p in positions]
        return cls(group=group, topic=topic, offsets=offsets)


# --- nodes, health, limits ------------------------------------------------------------------


class NodeDocument(AnswerModel):
    """A node as it registered itself; `seen_ms` is its last sign of life."""

    node_id: str
    address: str
    store_id: str
    started_ms: int
    seen_ms: int


class NodeList(AnswerModel):
    """All nodes that ever registered."""

    nodes: list[NodeDocument]


class Health(AnswerModel):
    """The process answers."""

    status: Literal["ok"]


class ConditionDocument(AnswerModel):
    """One thing that is the matter, and what to do about it."""

    code: ConditionCode
    detail: str
    hint: str


class Readiness(AnswerModel):
    """Whether the node takes requests, and why not."""

    status: Literal["ready", "not_ready"]
    reasons: list[ConditionDocument]
    """Why it is not ready; empty when it is."""
    degraded: list[ConditionDocument]
    """What works in part only, or mends itself; requests are served."""


class ErrorCodeDocument(AnswerModel):
    """A code that problem documents may carry."""

    code: str
    status: int
    title: str
    retryable: bool
    description: str


class ErrorCodeList(AnswerModel):
    """All codes, by name."""

    error_codes: list[ErrorCodeDocument]


Json = dict[str, Any]
