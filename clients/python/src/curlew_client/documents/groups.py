"""What the node says about consumer groups, their members, filters and lag."""

from typing import Any, Literal, NotRequired, TypedDict

from curlew_client.documents.dead_letters import DeadLetterSummary
from curlew_client.documents.shared import Effect


class CustomizedRetry(TypedDict):
    """A delay for each attempt; attempts beyond the list use its last."""

    customized: list[str]


class Exponential(TypedDict):
    """`initial`, then `multiplier` times the delay before, never over `max`."""

    initial: str
    multiplier: float
    max: str


class ExponentialRetry(TypedDict):
    """Delays that grow by a factor."""

    exponential: Exponential


DeliveryOrder = Literal["concurrent", "fifo"]


GroupMode = Literal["broadcast", "clustering"]


WhenExhausted = Literal["dead_letter", "skip", "park"]


SubscriptionRule = Literal["one", "free"]


Consumption = Literal["lease", "assigned"]


class TopicConsumption(TypedDict):
    """How a group consumes one topic."""

    topic: str
    consumption: Consumption | None
    since_ms: int | None


class Group(TypedDict):
    """A consumer group. `version` is also its ETag."""

    name: str
    max_attempts: int
    retry_policy: CustomizedRetry | ExponentialRetry
    order: DeliveryOrder
    invisible: str
    invisible_ms: int
    start: Literal["earliest", "latest"] | int
    max_in_flight: int
    mode: GroupMode
    on_exhausted: WhenExhausted
    max_in_flight_per_member: int | None
    paused: bool
    max_in_flight_bytes: int | None
    max_span: int | None
    subscription: SubscriptionRule
    namespace: str
    created_ms: int
    updated_ms: int
    version: int
    subscriptions: list[TopicConsumption]


class GroupLagSummary(TypedDict):
    """What is not done for a group, in all the topics that the caller may know of."""

    group: str
    ready: int | None
    in_flight: int
    retrying: int
    delayed: int
    dead: int
    oldest_ms: int | None


class GroupList(TypedDict):
    """One page of groups, by name; `next_page_token` is null on the last page."""

    groups: list[Group]
    lag: list[GroupLagSummary] | None
    dead_letters: list[DeadLetterSummary] | None
    next_page_token: str | None


class GroupChange(Group):
    """A consumer group after a change; with `dry_run`, as it would be."""

    dry_run: bool
    changed: dict[str, list[Any]]
    effects: list[Effect]


class ExponentialBody(TypedDict):
    """`initial`, then `multiplier` times the delay before, never over `max`."""

    initial: str
    multiplier: NotRequired[float]
    max: str


class RetryBody(TypedDict, total=False):
    """A policy: either of both. `customized`: a delay for each attempt, attempts beyond the
    list use its last."""

    customized: list[str] | None
    exponential: ExponentialBody | None


class GroupSettings(TypedDict, total=False):
    """Settings of a consumer group. What is left out stays as it is; in a new group it has
    its default, and so has what is null."""

    max_attempts: int | None
    order: DeliveryOrder | None
    invisible: str | None
    invisible_ms: int | None
    start: Literal["earliest", "latest"] | int | None
    max_in_flight: int | None
    mode: GroupMode | None
    on_exhausted: WhenExhausted | None
    max_in_flight_per_member: int | None
    max_in_flight_bytes: int | None
    max_span: int | None
    subscription: SubscriptionRule | None
    retry_policy: RetryBody | None


class QueueLag(TypedDict):
    """One queue. What is not known is null, and `reason` says why. `expired` counts
    messages that were not done when they went past the topic's retention."""

    queue_id: int
    min_offset: int
    max_offset: int
    committed_offset: int | None
    ready: int | None
    in_flight: int
    delayed: int
    expired: int
    oldest_ms: int | None
    reason: str | None


class TopicLag(TypedDict):
    """One topic. `retrying` counts failed messages that can be received again."""

    topic: str
    ready: int | None
    in_flight: int
    retrying: int
    retrying_in_flight: int
    delayed: int
    oldest_ms: int | None
    queues: list[QueueLag]


class GroupLag(TypedDict):
    """What is not done for a group. `ready` may hold messages that a filter will leave out:
    it is not known before they are looked at. `delayed` counts failed messages that wait
    for their next attempt, or are parked."""

    group: str
    ready: int | None
    in_flight: int
    retrying: int
    delayed: int
    dead: int
    oldest_ms: int | None
    topics: list[TopicLag]
    subscriptions: list[TopicConsumption]
    partial: NotRequired[list[str]]


StrategyName = Literal[
    "averagely",
    "averagely_by_circle",
    "configuration",
    "consistent_hash",
    "machine_room",
    "machine_room_nearby",
]


class Subscription(TypedDict):
    """A topic that a member reads."""

    topic: str
    filter: str


class HeldQueue(TypedDict):
    """A queue that a member owns, since a generation."""

    topic: str
    queue_id: int
    since_generation: int


class Queue(TypedDict):
    """A queue of a topic."""

    topic: str
    queue_id: int


class PendingQueue(TypedDict):
    """A queue that comes to the member when `held_by` confirms the generation, or is
    gone."""

    topic: str
    queue_id: int
    held_by: str


class Member(TypedDict):
    """A member as seen from outside. `generation` is the last that it has confirmed."""

    client_id: str
    generation: int
    joined_ms: int
    seen_ms: int
    subscriptions: list[Subscription]
    strategy: StrategyName | None
    room: str
    assigned: list[HeldQueue]
    revoked: list[Queue]
    pending: list[PendingQueue]


class Lock(TypedDict):
    """A locked queue and who has locked it."""

    topic: str
    queue_id: int
    client_id: str


ConflictKind = Literal["filter", "queues", "strategy", "topic_missing", "topics", "unassigned"]


class ConflictValue(TypedDict):
    """One of the values that do not agree, and who holds it."""

    value: str
    client_ids: list[str]


class Conflict(TypedDict):
    """What the members do not agree on, or what keeps queues without a reader."""

    kind: ConflictKind
    topic: str | None
    detail: str
    values: list[ConflictValue]


class MemberList(TypedDict):
    """The members of a group, the queues of each, and what is in conflict."""

    group: str
    mode: GroupMode
    generation: int
    strategy: StrategyName
    members: list[Member]
    locks: list[Lock]
    conflicts: list[Conflict]


class Leaving(Member):
    """A member that would leave, with the queues that would be free."""

    dry_run: bool


class Parked(TypedDict):
    """A key that is blocked, and the message that blocks it. `queue_id` 4294967295 stands
    for the group's retries of the topic; `sharding_key` is null for messages without
    one."""

    topic: str
    queue_id: int
    queue_offset: int
    sharding_key: str | None
    attempts: int
    reason: str
    since_ms: int


class ParkedList(TypedDict):
    """All parked keys of a group."""

    parked: list[Parked]
    partial: NotRequired[list[str]]


class Released(Parked):
    """What was released, or would be."""

    dry_run: bool


Release = Literal["retry", "skip", "dead_letter"]


class ParkedRelease(TypedDict):
    """Which message, and what becomes of it; with retry its attempts are counted anew."""

    topic: str
    queue_id: int
    queue_offset: int
    action: Release


RebalanceReason = Literal[
    "member_joined",
    "member_restarted",
    "member_left",
    "member_silent",
    "subscription_changed",
    "strategy_changed",
    "queues_changed",
    "offsets_reset",
    "leased_instead",
]


class Rebalance(TypedDict):
    """One rebalance. `client_ids` caused it; `moved` queues changed hands, of `queues`."""

    generation: int
    at_ms: int
    reason: RebalanceReason
    client_ids: list[str]
    members: list[str]
    strategy: StrategyName
    queues: int
    moved: int


class RebalanceList(TypedDict):
    """The newest rebalances, newest first."""

    group: str
    rebalances: list[Rebalance]


SubscriptionSource = Literal["set", "used"]


class GroupSubscription(TypedDict):
    """The filter with which a group reads a topic. `version` rises with each change."""

    topic: str
    filter: str
    source: SubscriptionSource
    set_by: str | None
    set_ms: int
    version: int


class GroupSubscriptionList(TypedDict):
    """All filters of a group, by topic."""

    group: str
    subscriptions: list[GroupSubscription]


class SubscriptionChange(TypedDict):
    """What was set or deleted, or would be."""

    topic: str
    filter: str
    source: SubscriptionSource
    set_by: str | None
    set_ms: int
    version: int
    dry_run: bool


class SubscriptionSettings(TypedDict):
    """The filter with which the group reads the topic."""

    filter: str


DeliveryState = Literal[
    "ready",
    "in_flight",
    "retrying",
    "delayed",
    "acked",
    "dead",
    "done",
    "not_begun",
    "expired",
    "clients_know",
]


class Delivery(TypedDict):
    """Where a message stands in a group, in a word and in a sentence, and what to do.
    `ahead` counts ready messages of its queue that come first."""

    message_id: str
    topic: str
    group: str
    standing: DeliveryState
    reason: str
    hint: str | None
    ahead: int | None
    attempt: int | None
    until_ms: int | None
    subscriptions: list[TopicConsumption]
