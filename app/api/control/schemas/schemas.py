"""Shapes of the control plane as JSON: pydantic models, unknown fields refused in requests.

Not here: the data plane (`wire`), the rules of settings (`domain.settings`, checked where
they are stored). A request model gives a settings value, an answer model is made from a view.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from app.broker.health import ConditionCode
from app.broker.ports import Group, Topic
from app.broker.results import Committed, QueuePosition, QueueRange
from app.cluster import NodeView
from app.domain.consumers.consumption import (
    Consumption,
    ConsumptionEffect,
    ConsumptionEffectCode,
    ConsumptionState,
)
from app.domain.durations import DURATION_PATTERN, format_duration, parse_duration_ms
from app.domain.names import namespace_of
from app.domain.positions import FlushMode, ReplicationMode
from app.domain.settings import (
    CustomizedRetry,
    DeliveryOrder,
    GroupMode,
    Permission,
    RetryPolicy,
    SubscriptionRule,
    TopicType,
    TraceMode,
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
    """Parent of answers: made by us, also from the attributes of an object (`model_validate`), and
    read by clients that ignore what they do not know."""

    model_config = ConfigDict(
        json_schema_serialization_defaults_required=True, from_attributes=True
    )


def _with_partial(schema: dict[str, Any]) -> None:
    schema["properties"]["partial"] = {
        "type": "array",
        "items": {"type": "string"},
        "title": "Partial",
        "description": "Shards that did not answer, of which nothing is here; left out: none",
        "examples": [["c"]],
    }


class MergedModel(AnswerModel):
    """Parent of answers of all shards. `partial` is put in where one is missing, by who merges."""

    model_config = ConfigDict(json_schema_extra=_with_partial)


class Partly(AnswerModel):
    """What was done, but not in the shards that are named: they did not answer, or refused."""

    partial: list[str] = Field(description="shards where it was not done", examples=[["c"]])


class DryRunBody(RequestModel):
    """Parent of bodies that can ask for a dry run, as the query can."""

    dry_run: bool = False

    @property
    def asks_for_dry_run(self) -> bool | None:
        """None: the body does not say."""
        return self.dry_run if "dry_run" in self.model_fields_set else None


class DryRunMember(AnswerModel):
    """What answers to operations that can be tried have beside the document."""

    dry_run: bool


class ConsumptionDocument(AnswerModel):
    """How a group consumes one topic."""

    topic: str
    consumption: Consumption | None = Field(
        description="lease: by receives, group streams and settling; assigned: by members and by "
        "commits of offsets. Null: no client has for a while, and the next one decides"
    )
    since_ms: int | None = Field(description="Since when, in epoch milliseconds")

    @classmethod
    def of(cls, state: ConsumptionState) -> Self:
        return cls(**state._asdict())


class ConsumptionEffectDocument(AnswerModel):
    """What changing the way of consumption has done."""

    code: ConsumptionEffectCode = Field(
        description="LEASES_END: messages that were out lost their leases. RETRIES_WAIT: failed "
        "messages wait for a member's poll or a receive. PARKED_RETURN: parked messages are read "
        "again in their place. ASSIGNMENTS_END: members lost their queues of the topic"
    )
    detail: str = Field(description="The same for people")
    count: int = Field(description="How many messages or members")

    @classmethod
    def of(cls, effect: ConsumptionEffect) -> Self:
        return cls(code=effect.code, detail=effect.detail, count=effect.count)


# --- topics ---------------------------------------------------------------------------------


class TopicDocument(AnswerModel):
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
    permission: Permission = Field(description="What clients may do: rw, r, w or none")
    write_queues: int | None = Field(
        description="So many queues, the first ones, take messages; null: all"
    )
    max_body_bytes: int | None = Field(description="Of one message; null: as the node allows")
    max_rate: int | None = Field(description="Messages a second that a node takes; null: any")
    max_stored_bytes: int | None = Field(
        description="Bytes of stored records from which on nothing is taken; null: no bound"
    )
    replication: ReplicationMode | None = Field(
        description="Whether a send is answered when the replicas in sync have it (sync), or when "
        "the leader has (async); null: sync in a shard with replicas"
    )
    created_ms: int
    updated_ms: int
    version: int

    @classmethod
    def of(cls, topic: Topic) -> Self:
        return cls(
            name=topic.name,
            namespace=namespace_of(topic.name),
            queues=topic.queues,
            type=topic.type,
            flush=topic.flush,
            retention=format_duration(topic.retention_ms),
            retention_ms=topic.retention_ms,
            trace=topic.trace,
            trace_rate=topic.trace_rate,
            permission=topic.permission,
            write_queues=topic.settings.write_queues,
            max_body_bytes=topic.max_body_bytes,
            max_rate=topic.max_rate,
            max_stored_bytes=topic.max_stored_bytes,
            replication=topic.replication,
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


class TopicStats(MergedModel):
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


class TopicOffsets(MergedModel):
    """Where reading would start in every queue of the topic."""

    topic: str
    at: str
    offsets: list[QueueOffsetDocument]

    @classmethod
    def of(cls, topic: str, at: str, positions: Sequence[QueuePosition]) -> Self:
        offsets = [QueueOffsetDocument(queue_id=p.queue_id, offset=p.offset) for p in positions]
        return cls(topic=topic, at=at, offsets=offsets)


# --- groups ---------------------------------------------------------------------------------


class CustomizedRetryDocument(AnswerModel):
    """A delay for each attempt; attempts beyond the list use its last."""

    customized: list[str]


class ExponentialDocument(AnswerModel):
    """`initial`, then `multiplier` times the delay before, never over `max`."""

    initial: str
    multiplier: float
    max: str


class ExponentialRetryDocument(AnswerModel):
    """Delays that grow by a factor."""

    exponential: ExponentialDocument


RetryDocument = CustomizedRetryDocument | ExponentialRetryDocument


def _policy_document(policy: RetryPolicy) -> RetryDocument:
    if isinstance(policy, CustomizedRetry):
        return CustomizedRetryDocument(customized=[format_duration(ms) for ms in policy.delays_ms])
    return ExponentialRetryDocument(
        exponential=ExponentialDocument(
            initial=format_duration(policy.initial_ms),
            multiplier=policy.multiplier,
            max=format_duration(policy.max_ms),
        )
    )


class GroupDocument(AnswerModel):
    """A consumer group. `version` is also its ETag."""

    name: str
    max_attempts: int
    retry_policy: RetryDocument
    order: DeliveryOrder
    invisible: str
    invisible_ms: int
    start: Literal["earliest", "latest"] | int
    max_in_flight: int
    mode: GroupMode
    on_exhausted: WhenExhausted
    max_in_flight_per_member: int | None
    paused: bool
    max_in_flight_bytes: int | None = Field(
        description="Bytes of records that it holds before it is given no more", examples=[None]
    )
    max_span: int | None = Field(
        description="Messages of a queue from the committed offset on that may be handed out",
        examples=[2000],
    )
    subscription: SubscriptionRule = Field(
        description="one: its clients read a topic with one filter; free: each with its own"
    )
    namespace: str
    created_ms: int
    updated_ms: int
    version: int
    subscriptions: list[ConsumptionDocument] = Field(
        description="The topics that the group consumes or has begun, by name; none in a broadcast "
        "group"
    )

    @classmethod
    def of(cls, group: Group, subscriptions: Sequence[ConsumptionState]) -> Self:
        return cls(
            name=group.name,
            namespace=namespace_of(group.name),
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
            max_in_flight_bytes=group.max_in_flight_bytes,
            max_span=group.max_span,
            subscription=group.subscription,
            created_ms=group.created_ms,
            updated_ms=group.updated_ms,
            version=group.version,
            subscriptions=[ConsumptionDocument.of(each) for each in subscriptions],
        )


class GroupOffsets(MergedModel):
    """What a group has committed in a topic, for the queues where it has committed anything."""

    group: str
    topic: str
    offsets: list[QueueOffsetDocument]

    @classmethod
    def of(cls, group: str, topic: str, positions: Sequence[QueuePosition]) -> Self:
        offsets = [QueueOffsetDocument(queue_id=p.queue_id, offset=p.offset) for p in positions]
        return cls(group=group, topic=topic, offsets=offsets)


class CommitAnswer(DryRunMember, GroupOffsets):
    """What a group has committed in a topic after a commit; or what would be, or was forgotten."""

    effects: list[ConsumptionEffectDocument] = Field(
        description="What the commit has ended because the group leased the topic"
    )

    @classmethod
    def of_commit(cls, group: str, topic: str, committed: Committed, *, is_dry_run: bool) -> Self:
        offsets = GroupOffsets.of(group, topic, committed.offsets).offsets
        effects = [ConsumptionEffectDocument.of(each) for each in committed.effects]
        return cls(group=group, topic=topic, offsets=offsets, effects=effects, dry_run=is_dry_run)


# --- nodes, health, limits ------------------------------------------------------------------


class NodeDocument(AnswerModel):
    """A node as it registered itself; `seen_ms` is its last sign of life."""

    node_id: str
    address: str
    store_id: str
    started_ms: int
    seen_ms: int
    shard: str = Field(description="The shard that its store is")
    advertise_url: str = Field(description="Where clients reach it")
    zone: str = Field(description="Where it stands, as its setting says")
    version: str = Field(description="Of its program")

    @classmethod
    def of(cls, node: NodeView) -> Self:
        return cls(
            node_id=node.node_id,
            address=node.address,
            store_id=node.store_id.hex(),
            started_ms=node.started_ms,
            seen_ms=node.seen_ms,
            shard=node.shard,
            advertise_url=node.advertise_url,
            zone=node.zone,
            version=node.version,
        )


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
