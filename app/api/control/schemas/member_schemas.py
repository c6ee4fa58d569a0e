"""Shapes of members, queue locks and rebalances as JSON."""

from collections.abc import Collection
from typing import Self

from pydantic import Field

from app.api.control.schemas.names import TopicName
from app.api.control.schemas.schemas import (
    AnswerModel,
    ConsumptionEffectDocument,
    Count,
    DryRunMember,
    MergedModel,
    RequestModel,
)
from app.broker.members.member_values import GroupMembers, Heartbeat, MemberShare
from app.broker.progress.progress_entries import GroupSubscription
from app.domain.consumers.allocation import VIRTUAL_NODES
from app.domain.consumers.consumption import SubscriptionSource
from app.domain.consumers.membership import (
    Assignment,
    Conflict,
    ConflictKind,
    Member,
    Profile,
    QueueName,
    Rebalance,
    RebalanceReason,
    Strategy,
    StrategyName,
    TopicSubscription,
)
from app.domain.consumers.rebalancing import Locking
from app.domain.errors import MemberNotFound
from app.domain.limits import VIRTUAL_NODES_MAX
from app.domain.settings import GroupMode


class SubscriptionBody(RequestModel):
    """A topic that the member reads."""

    topic: TopicName
    filter: str | None = Field(
        default=None,
        description="a tag expression, or `sql:` and a condition; without one the group's",
    )


class QueueBody(RequestModel):
    """A queue of a topic."""

    topic: TopicName
    queue_id: Count

    @property
    def name(self) -> QueueName:
        return QueueName(self.topic, self.queue_id)


class StrategyBody(RequestModel):
    """An allocation strategy with its particulars."""

    name: StrategyName
    virtual_nodes: int = Field(
        default=VIRTUAL_NODES,
        ge=1,
        le=VIRTUAL_NODES_MAX,
        description="consistent_hash: places of a member on the ring",
    )
    rooms: list[str] = Field(
        default=[], description="machine_room: rooms whose queues are consumed"
    )
    brokers: dict[TopicName, list[str]] = Field(
        default={},
        description="per topic the broker name of each queue; `room@broker` for rooms",
    )
    inner: StrategyName = Field(
        default=StrategyName.AVERAGELY,
        description="machine_room_nearby: how the queues of one room are shared",
    )

    def strategy(self) -> Strategy:
        return Strategy(
            self.name,
            self.virtual_nodes,
            tuple(sorted(self.rooms)),
            tuple(sorted((topic, tuple(names)) for topic, names in self.brokers.items())),
            self.inner,
        )


class HeartbeatBody(RequestModel):
    """What a member says of itself, and which generation it has put into effect."""

    subscriptions: list[SubscriptionBody] = Field(min_length=1)
    strategy: StrategyName | StrategyBody | None = Field(
        default=None, description="default: what the oldest member names, else averagely"
    )
    room: str = Field(default="", description="machine_room_nearby: where the member runs")
    queues: list[QueueBody] = Field(
        default=[], description="configuration: the queues that the member wants"
    )
    generation: Count | None = Field(
        default=None,
        description="the last that was put into effect: revoked queues are let go. 0: the process "
        "has just started. Left out: nothing is confirmed",
    )
    assignment_id: str | None = Field(
        default=None, description="of the last answer; `wait` ends when the present one differs"
    )

    def heartbeat(
        self, wait_s: float, *, force: bool = False, replace_subscription: bool = False
    ) -> Heartbeat:
        strategy = self.strategy
        if isinstance(strategy, StrategyName):
            strategy = StrategyBody(name=strategy)
        subscriptions = sorted(
            TopicSubscription(each.topic, (each.filter or "").strip())
            for each in self.subscriptions
        )
        return Heartbeat(
            Profile(
                tuple(subscriptions),
                None if strategy is None else strategy.strategy(),
                self.room,
                tuple(each.name for each in self.queues),
            ),
            self.generation,
            self.assignment_id,
            wait_s,
            force,
            replace_subscription,
        )


class QueueDocument(AnswerModel):
    """A queue of a topic."""

    topic: str
    queue_id: int

    @classmethod
    def of(cls, name: QueueName) -> Self:
        return cls(topic=name.topic, queue_id=name.queue_id)


class AssignedQueueDocument(QueueDocument):
    """A queue that the member may read: from `offset` on when `since_generation` is not the one
    that it remembers, else from where it is."""

    since_generation: int
    offset: int


class HeldQueueDocument(QueueDocument):
    """A queue that a member owns, since a generation."""

    since_generation: int


class PendingQueueDocument(QueueDocument):
    """A queue that comes to the member when `held_by` confirms the generation, or is gone."""

    held_by: str


class ConflictValue(AnswerModel):
    """One of the values that do not agree, and who holds it."""

    value: str
    client_ids: list[str]


class ConflictDocument(AnswerModel):
    """What the members do not agree on, or what keeps queues without a reader."""

    kind: ConflictKind
    topic: str | None
    detail: str
    values: list[ConflictValue]

    @classmethod
    def of(cls, conflict: Conflict) -> Self:
        values = [ConflictValue(value=v, client_ids=list(ids)) for v, ids in conflict.values]
        return cls(kind=conflict.kind, topic=conflict.topic, detail=conflict.detail, values=values)


class MemberAnswer(AnswerModel):
    """A member's share. Put it into effect, then send `generation` and `assignment_id` with the
    next heartbeat, within `lease_ms`."""

    group: str
    client_id: str
    generation: int
    assignment_id: str
    lease_ms: int
    mode: GroupMode
    strategy: StrategyName
    members: list[str]
    assigned: list[AssignedQueueDocument]
    revoked: list[QueueDocument]
    pending: list[PendingQueueDocument]
    conflicts: list[ConflictDocument]
    effects: list[ConsumptionEffectDocument] = Field(
        description="What this heartbeat has ended because the group leased one of the topics"
    )

    @classmethod
    def of(cls, group: str, client_id: str, share: MemberShare, lease_ms: int) -> Self:
        assignment = share.assignment
        return cls(
            group=group,
            client_id=client_id,
            generation=assignment.generation,
            assignment_id=assignment.assignment_id,
            lease_ms=lease_ms,
            mode=share.mode,
            strategy=share.strategy.name,
            members=list(share.client_ids),
            assigned=[
                AssignedQueueDocument(
                    topic=queue.topic,
                    queue_id=queue.queue_id,
                    since_generation=queue.since_generation,
                    offset=share.offsets[QueueName(queue.topic, queue.queue_id)],
                )
                for queue in assignment.assigned
                if QueueName(queue.topic, queue.queue_id) in share.offsets
            ],
            revoked=[QueueDocument.of(name) for name in assignment.revoked],
            pending=_pending(assignment),
            conflicts=[ConflictDocument.of(each) for each in share.conflicts],
            effects=[ConsumptionEffectDocument.of(each) for each in share.effects],
        )


class HeartbeatAnswer(MergedModel, DryRunMember, MemberAnswer):
    """A member's share; with `dry_run`, as it would be, and nobody has joined."""


def _pending(assignment: Assignment) -> list[PendingQueueDocument]:
    return [
        PendingQueueDocument(topic=each.topic, queue_id=each.queue_id, held_by=each.held_by)
        for each in assignment.pending
    ]


class SubscriptionDocument(AnswerModel):
    """A topic that a member reads."""

    topic: str
    filter: str


class MemberDocument(AnswerModel):
    """A member as seen from outside. `generation` is the last that it has confirmed."""

    client_id: str
    generation: int
    joined_ms: int
    seen_ms: int
    subscriptions: list[SubscriptionDocument]
    strategy: StrategyName | None
    room: str
    assigned: list[HeldQueueDocument]
    revoked: list[QueueDocument]
    pending: list[PendingQueueDocument]

    @classmethod
    def of(cls, member: Member, assignment: Assignment) -> Self:
        profile = member.profile
        return cls(
            client_id=member.client_id,
            generation=member.confirmed_generation,
            joined_ms=member.joined_ms,
            seen_ms=member.seen_ms,
            subscriptions=[
                SubscriptionDocument(topic=topic, filter=expression)
                for topic, expression in profile.subscriptions
            ],
            strategy=profile.strategy.name if profile.strategy else None,
            room=profile.room,
            assigned=[
                HeldQueueDocument(
                    topic=each.topic,
                    queue_id=each.queue_id,
                    since_generation=each.since_generation,
                )
                for each in assignment.assigned
            ],
            revoked=[QueueDocument.of(name) for name in assignment.revoked],
            pending=_pending(assignment),
        )

    def kept_to(self, topics: Collection[str]) -> Self:
        """What it says of those topics."""
        self.subscriptions = [each for each in self.subscriptions if each.topic in topics]
        self.assigned = [each for each in self.assigned if each.topic in topics]
        self.revoked = [each for each in self.revoked if each.topic in topics]
        self.pending = [each for each in self.pending if each.topic in topics]
        return self


class LeavingDocument(DryRunMember, MemberDocument):
    """A member that would leave, with the queues that would be free."""

    @classmethod
    def of_member(cls, client_id: str, members: GroupMembers) -> Self:
        """Raises `MemberNotFound` when it has just left."""
        for member, assignment in members.shares:
            if member.client_id == client_id:
                document = MemberDocument.of(member, assignment)
                return cls(**document.model_dump(), dry_run=True)
        raise MemberNotFound(f"member {client_id!r} has just left")


class LockDocument(QueueDocument):
    """A locked queue and who has locked it."""

    client_id: str


class MemberList(AnswerModel):
    """The members of a group, the queues of each, and what is in conflict."""

    group: str
    mode: GroupMode
    generation: int
    strategy: StrategyName
    members: list[MemberDocument]
    locks: list[LockDocument]
    conflicts: list[ConflictDocument]

    @classmethod
    def of(cls, group: str, members: GroupMembers, topics: Collection[str]) -> Self:
        """Of those topics, and of no others."""
        locks = [
            LockDocument(topic=n.topic, queue_id=n.queue_id, client_id=queue.lock.client_id)
            for n, queue in sorted(members.membership.queues.items())
            if queue.lock is not None and n.topic in topics
        ]
        return cls(
            group=group,
            mode=members.mode,
            generation=members.membership.generation,
            strategy=members.strategy.name,
            members=[MemberDocument.of(*share).kept_to(topics) for share in members.shares],
            locks=locks,
            conflicts=[
                ConflictDocument.of(each)
                for each in members.conflicts
                if each.topic is None or each.topic in topics
            ],
        )


class RebalanceDocument(AnswerModel):
    """One rebalance. `client_ids` caused it; `moved` queues changed hands, of `queues`."""

    generation: int
    at_ms: int
    reason: RebalanceReason
    client_ids: list[str]
    members: list[str]
    strategy: StrategyName
    queues: int
    moved: int

    @classmethod
    def of(cls, entry: Rebalance) -> Self:
        return cls(
            generation=entry.generation,
            at_ms=entry.at_ms,
            reason=entry.reason,
            client_ids=list(entry.client_ids),
            members=list(entry.members),
            strategy=entry.strategy,
            queues=entry.queues,
            moved=entry.moved,
        )


class RebalanceList(AnswerModel):
    """The newest rebalances, newest first."""

    group: str
    rebalances: list[RebalanceDocument]


# --- queue locks ----------------------------------------------------------------------------


class LockBody(RequestModel):
    """Queues to lock or to renew, all owned by the member."""

    client_id: str
    generation: Count
    queues: list[QueueBody] = Field(min_length=1)


class UnlockBody(RequestModel):
    """Queues to unlock."""

    client_id: str
    queues: list[QueueBody] = Field(min_length=1)


class RefusedQueueDocument(QueueDocument):
    """`reason` is not_owned, or locked_by and a client id."""

    reason: str


class LockAnswer(DryRunMember):
    """What is locked, for `lease_ms` from the request on, and what is not."""

    lease_ms: int
    locked: list[QueueDocument]
    refused: list[RefusedQueueDocument]

    @classmethod
    def of(cls, locking: Locking, lease_ms: int, *, is_dry_run: bool) -> Self:
        return cls(
            dry_run=is_dry_run,
            lease_ms=lease_ms,
            locked=[QueueDocument.of(name) for name in locking.locked],
            refused=_refused(locking),
        )


class UnlockAnswer(DryRunMember):
    """What is unlocked, and what another member has locked."""

    unlocked: list[QueueDocument]
    refused: list[RefusedQueueDocument]

    @classmethod
    def of(cls, locking: Locking, *, is_dry_run: bool) -> Self:
        return cls(
            dry_run=is_dry_run,
            unlocked=[QueueDocument.of(name) for name in locking.locked],
            refused=_refused(locking),
        )


def _refused(locking: Locking) -> list[RefusedQueueDocument]:
    return [
        RefusedQueueDocument(topic=name.topic, queue_id=name.queue_id, reason=reason)
        for name, reason in locking.refused
    ]


# --- filters of groups ----------------------------------------------------------------------


class SubscriptionSettingBody(RequestModel):
    """The filter with which the group reads the topic."""

    filter: str = Field(
        description="a tag expression (`*` is everything), or `sql:` and a condition",
        examples=["created || paid"],
    )


class GroupSubscriptionDocument(AnswerModel):
    """The filter with which a group reads a topic."""

    topic: str = Field(description="The topic", examples=["orders"])
    filter: str = Field(description="`*` is everything", examples=["created || paid"])
    source: SubscriptionSource = Field(
        description="set: by an operator, another filter is refused; used: by the first consumer, "
        "when nobody consumes any more the next one may name another"
    )
    set_by: str | None = Field(
        description="The client, or the principal that set it; null: not known",
        examples=["worker-1"],
    )
    set_ms: int = Field(description="Since when", examples=[1_800_000_000_000])
    version: int = Field(
        description="As `ETag` gives it; rises with each change and never comes back",
        examples=[1_800_000_000_000],
    )

    @classmethod
    def of(cls, topic: str, subscription: GroupSubscription) -> Self:
        return cls(
            topic=topic,
            filter=subscription.filter,
            source=subscription.source,
            set_by=subscription.set_by,
            set_ms=subscription.set_ms,
            version=subscription.version,
        )


class SubscriptionChangeDocument(DryRunMember, GroupSubscriptionDocument):
    """What was set or deleted, or would be."""


class GroupSubscriptionList(AnswerModel):
    """All filters of a group, by topic."""

    group: str = Field(description="The group", examples=["billing"])
    subscriptions: list[GroupSubscriptionDocument] = Field(description="By name of the topic")
