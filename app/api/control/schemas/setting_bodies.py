"""Bodies that name settings of topics and groups: of `PUT`, which makes or merges, and `PATCH`.

What is left out stays as it is, and has its default in a new thing; null is the default. So no
field has a default of its own, nor shows one in the document: generated clients would send it.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Self

from pydantic import ConfigDict, Field, PlainValidator, WithJsonSchema, model_validator

from app.api.bodies.body_errors import shown
from app.api.control.schemas.schemas import Count, Duration, RequestModel
from app.domain.changes.merging import DEFAULT, Named, Reset, RetryPart
from app.domain.durations import parse_duration_ms
from app.domain.limits import (
    DEFAULT_INVISIBLE_MS,
    DEFAULT_MAX_ATTEMPTS,
    DEFAULT_MAX_IN_FLIGHT,
    DEFAULT_QUEUES,
    DEFAULT_RETENTION_MS,
)
from app.domain.positions import FlushMode, ReplicationMode
from app.domain.settings import (
    DEFAULT_MULTIPLIER,
    DEFAULT_TRACE_RATE,
    CustomizedRetry,
    DeliveryOrder,
    ExponentialRetry,
    GroupMode,
    Permission,
    RetryPolicy,
    SubscriptionRule,
    TopicType,
    TraceMode,
    WhenExhausted,
)


def _without_defaults(schema: dict[str, Any]) -> None:
    for each in schema["properties"].values():
        each.pop("default", None)


class SettingsBody(RequestModel):
    """Parent of bodies that name settings."""

    model_config = ConfigDict(json_schema_extra=_without_defaults)

    def given(self) -> dict[str, object]:
        """The settings that are named, `DEFAULT` for null."""
        values = {name: getattr(self, name) for name in self.model_fields_set}
        return {name: DEFAULT if value is None else value for name, value in values.items()}


def _refuse_both(body: SettingsBody, name: str) -> None:
    if {name, f"{name}_ms"} <= body.model_fields_set:
        raise ValueError(f"{name} and {name}_ms are both given")


def _in_ms(given: dict[str, object], name: str) -> None:
    """A duration that is given as text, under the name of the setting."""
    if name in given:
        text = given.pop(name)
        given[f"{name}_ms"] = parse_duration_ms(text) if isinstance(text, str) else text


class TopicBody(SettingsBody):
    """Settings of a topic. What is left out stays as it is; in a new topic it has its default, and
    so has what is null."""

    queues: int | None = Field(
        default=None, description=f"new: {DEFAULT_QUEUES}. They can become more, never fewer"
    )
    type: TopicType | None = Field(default=None, description="new: normal, which takes everything")
    flush: FlushMode | None = Field(default=None, description="new: the node's setting")
    retention: Duration | None = None
    retention_ms: Count | None = Field(default=None, description=f"new: {DEFAULT_RETENTION_MS}")
    trace: TraceMode | bool | None = Field(
        default=None,
        description="keep for a while what becomes of messages: of all (on, true), of none (off, "
        "false), or of a share of them and of all that fail (sampled); new: on",
    )
    trace_rate: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description=f"the share that is traced where trace is sampled; new: {DEFAULT_TRACE_RATE}",
    )

    permission: Permission | None = Field(
        default=None,
        description="what clients may do: rw, r (read only), w (write only) or none, RocketMQ's "
        "perm 6, 4, 2 and 0; new: rw",
    )
    write_queues: int | None = Field(
        default=None,
        description="how many of the queues, the first ones, take messages; the others are read "
        "until they are empty. null, and new: all",
    )
    max_body_bytes: int | None = Field(
        default=None, description="of one message; null, and new: `body_bytes_max` of the node"
    )
    max_rate: int | None = Field(
        default=None,
        description="messages a second that a node takes, as many at once; then 429. null, and "
        "new: as many as it can",
    )
    max_stored_bytes: int | None = Field(
        default=None,
        description="of the stored records, about; from there on 507 `TOPIC_FULL` until retention "
        "has made room. null, and new: no bound",
    )
    replication: ReplicationMode | None = Field(
        default=None,
        description="when a send is answered in a shard with replicas: when those in sync have the "
        "message (sync), or when the leader has it (async), which a failover may lose. null, and "
        "new: sync. No effect in a shard with one replica",
    )

    @model_validator(mode="after")
    def _check_retention(self) -> Self:
        _refuse_both(self, "retention")
        return self

    def named(self) -> Named:
        """What is named, by the names of the settings."""
        given = self.given()
        _in_ms(given, "retention")
        if isinstance(given.get("trace"), bool):
            given["trace"] = TraceMode.ON if given["trace"] else TraceMode.OFF
        return given


def _check_start(value: object) -> object:
    if value is None or value in ("earliest", "latest"):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ValueError(
        f"start is {shown(value)}; it must be earliest, latest, or a time in epoch milliseconds "
        "as a number"
    )


Start = Annotated[
    object,
    PlainValidator(_check_start),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "enum": ["earliest", "latest"]},
                {"type": "integer", "minimum": 0},
                {"type": "null"},
            ]
        }
    ),
]


class ExponentialBody(RequestModel):
    """`initial`, then `multiplier` times the delay before, never over `max`."""

    initial: Duration
    multiplier: float = DEFAULT_MULTIPLIER
    max: Duration

    def policy(self) -> RetryPolicy:
        return ExponentialRetry(
            parse_duration_ms(self.initial), self.multiplier, parse_duration_ms(self.max)
        )


class RetryBody(SettingsBody):
    """A policy: either of both. `customized`: a delay for each attempt, attempts beyond the list
    use its last."""

    customized: list[Duration] | None = Field(default=None, min_length=1)
    exponential: ExponentialBody | None = None

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        if (self.customized is None) == (self.exponential is None):
            raise ValueError("retry_policy is one of customized and exponential")
        return self

    def policy(self) -> RetryPolicy:
        if self.exponential is not None:
            return self.exponential.policy()
        return CustomizedRetry(tuple(parse_duration_ms(text) for text in self.customized or ()))


class ExponentialPatch(SettingsBody):
    """Some of it; the rest stays when the policy is exponential already."""

    initial: Duration | None = None
    multiplier: float | None = None
    max: Duration | None = None

    def part(self) -> Mapping[str, int | float | Reset]:
        values: dict[str, int | float | Reset] = {}
        for name in self.model_fields_set:
            value = getattr(self, name)
            if value is None:
                value = DEFAULT
            elif name != "multiplier":
                value = parse_duration_ms(value)
            values[name if name == "multiplier" else f"{name}_ms"] = value
        return values


class RetryPatch(SettingsBody):
    """A part of a policy. One kind that is named ends the other."""

    customized: list[Duration] | None = Field(default=None, min_length=1)
    exponential: ExponentialPatch | None = None

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        if self.customized is not None and self.exponential is not None:
            raise ValueError("retry_policy is one of customized and exponential")
        return self

    def part(self) -> RetryPart:
        named = self.model_fields_set
        customized: tuple[int, ...] | Reset | None = None
        if self.customized is not None:
            customized = tuple(parse_duration_ms(text) for text in self.customized)
        elif "customized" in named:
            customized = DEFAULT
        exponential: Mapping[str, int | float | Reset] | Reset | None = None
        if self.exponential is not None:
            exponential = self.exponential.part()
        elif "exponential" in named:
            exponential = DEFAULT
        return RetryPart(customized, exponential)


class _GroupFields(SettingsBody):
    """What `PUT` and `PATCH` of a group have in common."""

    max_attempts: int | None = Field(default=None, description=f"new: {DEFAULT_MAX_ATTEMPTS}")
    order: DeliveryOrder | None = Field(default=None, description="new: concurrent")
    invisible: Duration | None = None
    invisible_ms: Count | None = Field(default=None, description=f"new: {DEFAULT_INVISIBLE_MS}")
    start: Start = Field(
        default=None,
        description="where the group begins in a topic; a number is epoch milliseconds; "
        "new: earliest",
    )
    max_in_flight: int | None = Field(default=None, description=f"new: {DEFAULT_MAX_IN_FLIGHT}")
    mode: GroupMode | None = Field(
        default=None,
        description="clustering: members share the queues; broadcast: each reads all of them and "
        "keeps its own offsets; new: clustering",
    )
    on_exhausted: WhenExhausted | None = Field(
        default=None,
        description="with order=fifo: what follows the last delivery. park blocks the key until "
        "it is released; new: dead_letter",
    )
    max_in_flight_per_member: int | None = Field(
        default=None,
        description="messages that one client_id holds at most; null, and new: as many as the "
        "group may",
    )
    max_in_flight_bytes: int | None = Field(
        default=None,
        description="bytes of records that the group holds before it is given no more; null, and "
        "new: any number",
        examples=[104857600],
    )
    max_span: int | None = Field(
        default=None,
        description="how far the messages of a queue that are handed out may lie ahead of the "
        "committed offset; null, and new: any number",
        examples=[2000],
    )
    subscription: SubscriptionRule | None = Field(
        default=None,
        description="one: the group reads a topic with one filter, and another is refused; free: "
        "each request has its own; new: one",
    )

    @model_validator(mode="after")
    def _check_invisible(self) -> Self:
        _refuse_both(self, "invisible")
        return self

    def named(self) -> Named:
        """What is named, by the names of the settings."""
        given = self.given()
        _in_ms(given, "invisible")
        policy = given.get("retry_policy")
        if isinstance(policy, RetryBody):
            given["retry_policy"] = policy.policy()
        elif isinstance(policy, RetryPatch):
            given["retry_policy"] = policy.part()
        return given


_RETRY: Final = "new: customized, with RocketMQ's delays from 10 seconds to 2 hours"


class GroupBody(_GroupFields):
    """Settings of a consumer group. What is left out stays as it is; in a new group it has its
    default, and so has what is null."""

    retry_policy: RetryBody | None = Field(default=None, description=_RETRY)


class GroupPatch(_GroupFields):
    """Settings of a consumer group to change, as a JSON merge patch (RFC 7396)."""

    retry_policy: RetryPatch | None = Field(default=None, description=_RETRY)


class TopicPatch(TopicBody):
    """Settings of a topic to change, as a JSON merge patch (RFC 7396); null is the default."""
