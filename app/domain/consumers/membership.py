"""The members of a consumer group in pull mode, and who owns which queue: values. Pure.

A `Membership` is the whole truth about one group at one moment. It is never changed; the steps in
`app.domain.consumers.rebalancing` make the next one, `app.cluster` keeps it in SQL, `app.broker`
runs it.

Words: the *owner* of a queue may read it and commit; its *target* is who the allocation gives it
to. When they differ the queue is *revoked* for the owner and *pending* for the target, until the
owner confirms the generation or is gone. A queue has one owner or none, never two.
"""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from app.domain.consumers.allocation import VIRTUAL_NODES


class StrategyName(StrEnum):
    """RocketMQ's AVG, AVG_BY_CIRCLE, CONSISTENT_HASH, CONFIG, MACHINE_ROOM(_NEARBY)."""

    AVERAGELY = "averagely"
    AVERAGELY_BY_CIRCLE = "averagely_by_circle"
    CONSISTENT_HASH = "consistent_hash"
    CONFIGURATION = "configuration"
    MACHINE_ROOM = "machine_room"
    MACHINE_ROOM_NEARBY = "machine_room_nearby"


class RebalanceReason(StrEnum):
    """Why queues were allocated anew."""

    JOINED = "member_joined"
    RESTARTED = "member_restarted"
    LEFT = "member_left"
    SILENT = "member_silent"
    SUBSCRIPTION = "subscription_changed"
    STRATEGY = "strategy_changed"
    QUEUES = "queues_changed"
    RESET = "offsets_reset"
    LEASED = "leased_instead"


class QueueName(NamedTuple):
    """A queue of a topic; sorts by topic, then number."""

    topic: str
    queue_id: int


@dataclass(frozen=True, slots=True)
class Strategy:
    """How queues are allocated. Fields that the strategy does not use keep their defaults."""

    name: StrategyName = StrategyName.AVERAGELY
    virtual_nodes: int = VIRTUAL_NODES
    """consistent_hash: places of a client on the ring."""
    rooms: tuple[str, ...] = ()
    """machine_room: rooms whose queues are consumed."""
    brokers: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Per topic, the broker name of each queue (`room@broker`); sorted by topic."""
    inner: StrategyName = StrategyName.AVERAGELY
    """machine_room_nearby: how queues are shared within a room."""


class TopicSubscription(NamedTuple):
    """A topic and the filter expression with which it is read."""

    topic: str
    filter: str = "*"


@dataclass(frozen=True, slots=True)
class Profile:
    """What a member says of itself in every heartbeat."""

    subscriptions: tuple[TopicSubscription, ...]
    """Sorted; one for each topic."""
    strategy: Strategy | None = None
    """None: whatever the others use."""
    room: str = ""
    """machine_room_nearby: where the member runs."""
    queues: tuple[QueueName, ...] = ()
    """configuration: the queues that the member wants."""
    principal: str | None = field(default=None, compare=False)
    """Whose the client id is, which is whoever joined with it; None: nobody's in particular."""

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(subscription.topic for subscription in self.subscriptions)

    def without(self, topic: str) -> "Profile":
        """The same, but for one topic."""
        return replace(
            self,
            subscriptions=tuple(each for each in self.subscriptions if each.topic != topic),
            queues=tuple(each for each in self.queues if each.topic != topic),
        )


@dataclass(frozen=True, slots=True)
class Member:
    """A live member. `beat` is new with every heartbeat: whoever sees the same one for the whole
    lease knows that the member is silent, without comparing clocks."""

    client_id: str
    profile: Profile
    joined_ms: int
    seen_ms: int
    joined_generation: int
    """Handles of an earlier process of the same client id carry a lower one."""
    confirmed_generation: int
    beat: int


class QueueLock(NamedTuple):
    """A lock for ordered consumption. `renewal` is new each time, like a member's `beat`."""

    client_id: str
    renewal: int


@dataclass(frozen=True, slots=True)
class QueueState:
    """Who owns a queue, who shall, and since which generation the owner's position counts."""

    owner: str | None = None
    target: str | None = None
    since_generation: int = 0
    lock: QueueLock | None = None


@dataclass(frozen=True, slots=True)
class Rebalance:
    """One entry of the history."""

    generation: int
    at_ms: int
    reason: RebalanceReason
    client_ids: tuple[str, ...]
    """Those that caused it; empty when no member did."""
    members: tuple[str, ...]
    strategy: StrategyName
    queues: int
    moved: int
    """Queues whose target changed."""


@dataclass(frozen=True, slots=True)
class Membership:
    """A group's members and queues. `counter` numbers beats and lock renewals; `changed` is its
    value when last the generation, an owner or a target changed. Neither they nor the generation
    ever go back, not even when the group is deleted and made again."""

    group: str
    generation: int = 0
    counter: int = 0
    changed: int = 0
    members: Mapping[str, Member] = field(default_factory=lambda: MappingProxyType({}))
    queues: Mapping[QueueName, QueueState] = field(default_factory=lambda: MappingProxyType({}))
    new_history: tuple[Rebalance, ...] = ()
    """Rebalances that were made since this was loaded."""


class GroupPulse(NamedTuple):
    """Enough of a group to see whether anything happened: see `Membership`."""

    group: str
    counter: int
    changed: int


class AssignedQueue(NamedTuple):
    """A queue that a member may read. When `since_generation` is not the one that the member
    remembers, it begins at the committed offset."""

    topic: str
    queue_id: int
    since_generation: int


class PendingQueue(NamedTuple):
    """A queue that comes to a member as soon as `held_by` confirms the generation or is gone."""

    topic: str
    queue_id: int
    held_by: str


@dataclass(frozen=True, slots=True)
class Assignment:
    """A member's share."""

    generation: int
    assigned: tuple[AssignedQueue, ...] = ()
    revoked: tuple[QueueName, ...] = ()
    """To be let go: stop, commit, then send a heartbeat with the generation."""
    pending: tuple[PendingQueue, ...] = ()
    assignment_id: str = field(init=False, repr=False, compare=False)
    """Equal for equal shares; a long poll that sends it back is answered when it changes."""

    def __post_init__(self) -> None:
        share = repr((self.assigned, self.revoked, self.pending)).encode()
        named = f"{self.generation}-{zlib.crc32(share):08x}"
        object.__setattr__(self, "assignment_id", named)


class ConflictKind(StrEnum):
    """What the members of a group do not agree on, or what keeps queues without a reader."""

    FILTER = "filter"
    TOPICS = "topics"
    STRATEGY = "strategy"
    QUEUES = "queues"
    UNASSIGNED = "unassigned"
    TOPIC_MISSING = "topic_missing"


@dataclass(frozen=True, slots=True)
class Conflict:
    """One disagreement: which values, and who holds each."""

    kind: ConflictKind
    detail: str
    topic: str | None = None
    values: tuple[tuple[str, tuple[str, ...]], ...] = ()
