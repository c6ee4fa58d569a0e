"""Shapes of members, queue locks, rebalances, resets and snapshots of offsets as JSON."""

from typing import Literal, Self

from pydantic import Field, model_validator

from app.api.schemas import INT64_MAX, AnswerModel, Count, RequestModel
from app.broker.group_positions import Committer, OffsetChange, ResetRequest, ResetResult
from app.broker.members import GroupMembers, Heartbeat, MemberShare
from app.domain.allocation import VIRTUAL_NODES
from app.domain.membership import (
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
from app.domain.positions import CommittedOffset, OffsetSnapshot
from app.domain.rebalancing import Locking
from app.domain.settings import GroupMode

VIRTUAL_NODES_MAX = 1_000


class SubscriptionBody(RequestModel):
    """A topic that the member reads."""

    topic: str
    filter: str = Field(default="*", description="a tag expression, or `sql:` and a condition")


class QueueBody(RequestModel):
    """A queue of a topic."""

    topic: str
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
    brokers: dict[str, list[str]] = Field(
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

    def heartbeat(self, wait_s: float) -> Heartbeat:
        strategy = self.strategy
        if isinstance(strategy, StrategyName):
            strategy = StrategyBody(name=strategy)
        subscriptions = sorted(
            TopicSubscription(each.topic, each.filter.strip() or "*") for each in self.subscriptions
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
    """A queue that somebody owns, since a generation."""

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
        )


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
    def of(cls, group: str, members: GroupMembers) -> Self:
        locks = [
            LockDocument(topic=n.topic, queue_id=n.queue_id, client_id=queue.lock.client_id)
            for n, queue in sorted(members.membership.queues.items())
            if queue.lock is not None
        ]
        return cls(
            group=group,
            mode=members.mode,
            generation=members.membership.generation,
            strategy=members.strategy.name,
            members=[MemberDocument.of(*share) for share in members.shares],
            locks=locks,
            conflicts=[ConflictDocument.of(each) for each in members.conflicts],
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


class LockAnswer(AnswerModel):
    """What is locked, for `lease_ms` from the request on, and what is not."""

    lease_ms: int
    locked: list[QueueDocument]
    refused: list[RefusedQueueDocument]

    @classmethod
    def of(cls, locking: Locking, lease_ms: int) -> Self:
        return cls(
            lease_ms=lease_ms,
            locked=[QueueDocument.of(name) for name in locking.locked],
            refused=_refused(locking),
        )


class UnlockAnswer(AnswerModel):
    """What is unlocked, and what somebody else has locked."""

    unlocked: list[QueueDocument]
    refused: list[RefusedQueueDocument]

    @classmethod
    def of(cls, locking: Locking) -> Self:
        return cls(
            unlocked=[QueueDocument.of(name) for name in locking.locked],
            refused=_refused(locking),
        )


def _refused(locking: Locking) -> list[RefusedQueueDocument]:
    return [
        RefusedQueueDocument(topic=name.topic, queue_id=name.queue_id, reason=reason)
        for name, reason in locking.refused
    ]


# --- offsets --------------------------------------------------------------------------------


class CommitEntry(RequestModel):
    """Everything of the queue below `offset` is done."""

    queue_id: Count
    offset: Count


class CommitBody(RequestModel):
    """Offsets to commit. They never go back, unless `force` says so. A member says who it is and
    which generation it has put into effect."""

    offsets: list[CommitEntry] = Field(min_length=1)
    force: bool = False
    client_id: str | None = None
    generation: Count | None = None

    @model_validator(mode="after")
    def _check_member(self) -> Self:
        if (self.client_id is None) != (self.generation is None):
            raise ValueError("client_id and generation go together")
        if self.force and self.client_id is not None:
            raise ValueError("a member commits forward only; leave out force, or reset the offsets")
        return self

    @property
    def committer(self) -> Committer | None:
        if self.client_id is None or self.generation is None:
            return None
        return Committer(self.client_id, self.generation)


class ResetBody(RequestModel):
    """Where to set the offsets. `dry_run` answers the table and changes nothing."""

    to: Literal["earliest", "latest", "timestamp", "offset", "shift"]
    timestamp_ms: Count | None = Field(default=None, description="for timestamp")
    offset: Count | None = Field(default=None, description="for offset")
    shift: int | None = Field(
        default=None,
        ge=-INT64_MAX,
        le=INT64_MAX,
        description="for shift: how many messages forward, or back when negative",
    )
    queues: list[Count] | None = Field(
        default=None, min_length=1, description="default: all queues"
    )
    dry_run: bool = False

    @model_validator(mode="after")
    def _check_value(self) -> Self:
        given = {
            "timestamp": self.timestamp_ms,
            "offset": self.offset,
            "shift": self.shift,
        }
        names = {"timestamp": "timestamp_ms", "offset": "offset", "shift": "shift"}
        for target, value in given.items():
            if target == self.to and value is None:
                raise ValueError(f'"to": "{target}" needs {names[target]}')
            if target != self.to and value is not None:
                raise ValueError(f'{names[target]} goes with "to": "{target}"')
        return self

    def request(self) -> ResetRequest:
        value = self.timestamp_ms or self.offset or self.shift or 0
        queues = None if self.queues is None else frozenset(self.queues)
        return ResetRequest(self.to, value, queues, self.dry_run)


class RestoreBody(RequestModel):
    """`dry_run` answers the table and changes nothing."""

    dry_run: bool = False


class OffsetChangeDocument(AnswerModel):
    """One queue before and after. `before` is null where nothing was committed. `clamped`: what was
    asked for is not readable, and `after` is the nearest that is."""

    topic: str
    queue_id: int
    before: int | None
    after: int
    min_offset: int
    max_offset: int
    clamped: bool

    @classmethod
    def of(cls, change: OffsetChange) -> Self:
        return cls(
            topic=change.topic,
            queue_id=change.queue_id,
            before=change.before,
            after=change.after,
            min_offset=change.min_offset,
            max_offset=change.max_offset,
            clamped=change.is_clamped,
        )


class ResetAnswer(AnswerModel):
    """The table before and after. With live members `generation` has risen and tells them."""

    group: str
    dry_run: bool
    generation: int
    offsets: list[OffsetChangeDocument]
    missing_topics: list[str]

    @classmethod
    def of(cls, group: str, dry_run: bool, result: ResetResult) -> Self:
        return cls(
            group=group,
            dry_run=dry_run,
            generation=result.generation,
            offsets=[OffsetChangeDocument.of(change) for change in result.changes],
            missing_topics=list(result.missing_topics),
        )


class TopicQueueOffset(QueueDocument):
    """A committed offset."""

    offset: int

    @classmethod
    def at(cls, row: CommittedOffset) -> Self:
        return cls(topic=row.topic, queue_id=row.queue_id, offset=row.offset)


class SnapshotDocument(AnswerModel):
    """The offsets of a group at one moment, under a name."""

    name: str
    created_ms: int
    offsets: list[TopicQueueOffset]

    @classmethod
    def of(cls, snapshot: OffsetSnapshot) -> Self:
        return cls(
            name=snapshot.name,
            created_ms=snapshot.created_ms,
            offsets=[TopicQueueOffset.at(row) for row in snapshot.offsets],
        )


class SnapshotSummary(AnswerModel):
    """A snapshot without its offsets."""

    name: str
    created_ms: int
    queues: int


class SnapshotList(AnswerModel):
    """All snapshots of a group, by name."""

    group: str
    snapshots: list[SnapshotSummary]

    @classmethod
    def of(cls, group: str, snapshots: list[OffsetSnapshot]) -> Self:
        return cls(
            group=group,
            snapshots=[
                SnapshotSummary(
                    name=each.name, created_ms=each.created_ms, queues=len(each.offsets)
                )
                for each in snapshots
            ],
        )


class AllGroupOffsets(AnswerModel):
    """What a group has committed, in all topics."""

    group: str
    offsets: list[TopicQueueOffset]
