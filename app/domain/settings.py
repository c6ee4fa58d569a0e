"""What an operator may set on a topic or a consumer group: values, defaults and their rules.

Pure. The settings are what a client asks for; what the cluster made of them (with versions and
times) are the views in `app.cluster`. Every rule is checked here, once, by whoever stores them.
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal

from app.domain.errors import IllegalSetting
from app.domain.limits import (
    DEFAULT_INVISIBLE_MS,
    DEFAULT_MAX_ATTEMPTS,
    DEFAULT_MAX_IN_FLIGHT,
    DEFAULT_QUEUES,
    DEFAULT_RETENTION_MS,
    TOPIC_RATE_MAX,
    Limits,
)
from app.domain.positions import FlushMode, ReplicationMode

COUNT_MAX: Final = (1 << 53) - 1
"""What JSON's numbers hold exactly."""

_SECOND: Final = 1_000
_MINUTE: Final = 60 * _SECOND
_HOUR: Final = 60 * _MINUTE


class TopicType(StrEnum):
    """What may be sent to a topic: a declaration that is checked on send."""

    NORMAL = "normal"
    FIFO = "fifo"
    DELAY = "delay"
    TRANSACTION = "transaction"


class Permission(StrEnum):
    """What clients may do with a topic or a queue: RocketMQ's perm 6, 4, 2 and 0."""

    READ_WRITE = "rw"
    READ = "r"
    WRITE = "w"
    NONE = "none"


class DeliveryOrder(StrEnum):
    """Whether a group gets the messages of one sharding key one after the other."""

    CONCURRENT = "concurrent"
    FIFO = "fifo"


class GroupMode(StrEnum):
    """RocketMQ's message models: members share the queues, or each reads all of them."""

    CLUSTERING = "clustering"
    BROADCAST = "broadcast"


class WhenExhausted(StrEnum):
    """What a group in order does with a message that was delivered as often as it may be."""

    DEAD_LETTER = "dead_letter"
    SKIP = "skip"
    """It is done; nothing is kept of it but the message itself."""
    PARK = "park"
    """It stays, and blocks its key, until somebody releases it."""


StartPosition = Literal["earliest", "latest"] | int
"""Where a new group begins in a queue; an integer is a time in epoch milliseconds."""


@dataclass(frozen=True, slots=True)
class CustomizedRetry:
    """A delay for each attempt; attempts beyond the list use its last delay."""

    delays_ms: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ExponentialRetry:
    """`initial_ms`, then `multiplier` times the delay before, never over `max_ms`."""

    initial_ms: int
    multiplier: float
    max_ms: int


RetryPolicy = CustomizedRetry | ExponentialRetry

DEFAULT_MULTIPLIER: Final = 2.0

DEFAULT_RETRY: Final = CustomizedRetry(
    (
        *(10 * _SECOND, 30 * _SECOND),
        *(minutes * _MINUTE for minutes in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30)),
        *(_HOUR, 2 * _HOUR),
    )
)
"""RocketMQ's delay levels from the third on, which is where its retries begin."""


class TraceMode(StrEnum):
    """Of which messages of a topic it is kept for a while what becomes of them."""

    OFF = "off"
    SAMPLED = "sampled"
    """Of a share of them, and of all that fail."""
    ON = "on"


DEFAULT_TRACE_RATE: Final = 0.01


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """What a client may set on a topic."""

    queues: int = DEFAULT_QUEUES
    type: TopicType = TopicType.NORMAL
    flush: FlushMode = FlushMode.SYNC
    retention_ms: int = DEFAULT_RETENTION_MS
    trace: TraceMode = TraceMode.ON
    trace_rate: float = DEFAULT_TRACE_RATE
    """The share of messages that are traced where `trace` is sampled."""
    permission: Permission = Permission.READ_WRITE
    write_queues: int | None = None
    """Queues that take messages, the first ones; None: all. The others are read until empty."""
    max_body_bytes: int | None = None
    """Of one message; None: as the node allows."""
    max_rate: int | None = None
    """Messages a second that a node takes; None: as many as it can."""
    max_stored_bytes: int | None = None
    """Bytes of stored records from which on nothing more is taken; None: no such bound."""
    replication: ReplicationMode | None = None
    """None: sync where the shard has or wants more than one replica. With one it says nothing."""


class SubscriptionRule(StrEnum):
    """Whether the clients of a group read a topic with one filter."""

    ONE = "one"
    """Another filter is refused while somebody consumes."""
    FREE = "free"
    """Each request has its own; what it leaves out is done for the group all the same."""


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """What a client may set on a consumer group."""

    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    retry_policy: RetryPolicy = DEFAULT_RETRY
    order: DeliveryOrder = DeliveryOrder.CONCURRENT
    invisible_ms: int = DEFAULT_INVISIBLE_MS
    start: StartPosition = "earliest"
    max_in_flight: int = DEFAULT_MAX_IN_FLIGHT
    mode: GroupMode = GroupMode.CLUSTERING
    on_exhausted: WhenExhausted = WhenExhausted.DEAD_LETTER
    max_in_flight_per_member: int | None = None
    """Messages that one client holds at most; None: as many as the group may."""
    paused: bool = False
    """Nothing is handed out; settling goes on."""
    max_in_flight_bytes: int | None = None
    """Bytes of records that the group holds before it is given no more; None: any number."""
    max_span: int | None = None
    """Messages of a queue between the committed offset and the next one that is given out; None:
    any number."""
    subscription: SubscriptionRule = SubscriptionRule.ONE


def default_topic_settings(limits: Limits, flush: FlushMode = FlushMode.SYNC) -> TopicSettings:
    """What is left open in a new topic: all of it when it is made by its first send."""
    return TopicSettings(
        queues=min(DEFAULT_QUEUES, limits.queues_per_topic_max),
        flush=flush,
        retention_ms=_within(
            DEFAULT_RETENTION_MS, limits.retention_ms_min, limits.retention_ms_max
        ),
    )


def default_group_settings(limits: Limits) -> GroupSettings:
    """What is left open in a new group: all of it when it is made by its first use."""
    delays_ms = DEFAULT_RETRY.delays_ms[: limits.retry_delays_max]
    return GroupSettings(
        max_attempts=min(DEFAULT_MAX_ATTEMPTS, limits.attempts_max),
        retry_policy=CustomizedRetry(tuple(min(each, limits.delay_ms_max) for each in delays_ms)),
        invisible_ms=_within(
            DEFAULT_INVISIBLE_MS, limits.invisible_ms_min, limits.invisible_ms_max
        ),
        max_in_flight=min(DEFAULT_MAX_IN_FLIGHT, limits.group_in_flight_max),
    )


def check_topic_settings(settings: TopicSettings, limits: Limits) -> None:
    """Raise `IllegalSetting` when a setting of the topic is outside its range."""
    _check_range("queues", settings.queues, 1, limits.queues_per_topic_max)
    _check_range(
        "retention_ms", settings.retention_ms, limits.retention_ms_min, limits.retention_ms_max
    )
    _check_choice("type", settings.type, TopicType)
    _check_choice("flush", settings.flush, FlushMode)
    _check_choice("trace", settings.trace, TraceMode)
    if not 0 < settings.trace_rate <= 1:
        raise IllegalSetting(
            f"trace_rate is {settings.trace_rate}; it must be over 0 and at most 1",
            hint="0.01 is one message of a hundred; trace=off is none",
            pointer="/trace_rate",
        )
    _check_choice("permission", settings.permission, Permission)
    _check_bound("write_queues", settings.write_queues, limits.queues_per_topic_max)
    _check_bound("max_body_bytes", settings.max_body_bytes, limits.body_bytes_max)
    _check_bound("max_rate", settings.max_rate, TOPIC_RATE_MAX)
    _check_bound("max_stored_bytes", settings.max_stored_bytes, 2**63 - 1)
    if settings.replication is not None:
        _check_choice("replication", settings.replication, ReplicationMode)


def check_write_queues(settings: TopicSettings) -> None:
    """Raise `IllegalSetting` for more queues to write to than there are."""
    if settings.write_queues is not None and settings.write_queues > settings.queues:
        raise IllegalSetting(
            f"write_queues is {settings.write_queues}, and the topic has {settings.queues} queues",
            hint="name at most as many, or null for all; or raise queues",
            fields={"min": 1, "max": settings.queues},
            pointer="/write_queues",
        )


def check_group_settings(settings: GroupSettings, limits: Limits) -> None:
    """Raise `IllegalSetting` when a setting of the group is outside its range."""
    _check_range("max_attempts", settings.max_attempts, 1, limits.attempts_max)
    _check_range(
        "invisible_ms", settings.invisible_ms, limits.invisible_ms_min, limits.invisible_ms_max
    )
    _check_range("max_in_flight", settings.max_in_flight, 1, limits.group_in_flight_max)
    _check_choice("order", settings.order, DeliveryOrder)
    _check_choice("mode", settings.mode, GroupMode)
    _check_choice("on_exhausted", settings.on_exhausted, WhenExhausted)
    if settings.max_in_flight_per_member is not None:
        _check_range(
            "max_in_flight_per_member",
            settings.max_in_flight_per_member,
            1,
            limits.group_in_flight_max,
        )
    if settings.max_in_flight_bytes is not None:
        _check_range("max_in_flight_bytes", settings.max_in_flight_bytes, 1, COUNT_MAX)
    if settings.max_span is not None:
        _check_range("max_span", settings.max_span, 1, COUNT_MAX)
    _check_choice("subscription", settings.subscription, SubscriptionRule)
    _check_start(settings.start)
    if isinstance(settings.retry_policy, CustomizedRetry):
        _check_customized(settings.retry_policy, limits)
    else:
        _check_exponential(settings.retry_policy, limits)


def _within(value: int, low: int, high: int) -> int:
    return max(low, min(value, high))


def _check_range(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise IllegalSetting(
            f"{name} is {value}; it must be from {low} to {high}",
            fields={"min": low, "max": high},
            pointer="/" + name,
        )


def _check_bound(name: str, value: int | None, high: int) -> None:
    if value is not None:
        _check_range(name, value, 1, high)


def _check_choice(name: str, value: str, choices: type[StrEnum]) -> None:
    if value not in frozenset(choices):
        raise IllegalSetting(
            f"{name} is {value!r}; it must be one of {', '.join(choices)}", pointer="/" + name
        )


def _check_start(start: StartPosition) -> None:
    if isinstance(start, int):
        _check_range("start", start, 0, 2**63 - 1)
    elif start not in {"earliest", "latest"}:
        raise IllegalSetting(
            f"start is {start!r}; it must be earliest, latest, or a time in epoch milliseconds",
            pointer="/start",
        )


def _check_customized(policy: CustomizedRetry, limits: Limits) -> None:
    if not 1 <= len(policy.delays_ms) <= limits.retry_delays_max:
        raise IllegalSetting(
            f"the retry policy has {len(policy.delays_ms)} delays; "
            f"it must have from 1 to {limits.retry_delays_max}",
            pointer="/retry_policy/customized",
        )
    for index, delay_ms in enumerate(policy.delays_ms):
        _check_range(f"retry_policy/customized/{index}", delay_ms, 0, limits.delay_ms_max)


def _check_exponential(policy: ExponentialRetry, limits: Limits) -> None:
    at = "retry_policy/exponential"
    _check_range(f"{at}/initial_ms", policy.initial_ms, 1, limits.delay_ms_max)
    _check_range(f"{at}/max_ms", policy.max_ms, policy.initial_ms, limits.delay_ms_max)
    if not math.isfinite(policy.multiplier) or policy.multiplier < 1:
        raise IllegalSetting(
            f"the retry multiplier is {policy.multiplier}; it must be a number from 1 on",
            pointer=f"/{at}/multiplier",
        )
