"""From members and topics to shares: targets by strategy, a member's view, what is in conflict.

Pure. A topic is allocated among the members that subscribe to it. RocketMQ allocates it among all
members of the group, so that queues may go to one that never reads them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from app.domain.consumers.allocation import (
    NO_BROKER,
    Allocate,
    Allocation,
    MessageQueue,
    averagely,
    averagely_by_circle,
    by_configuration,
    consistent_hash,
    machine_room,
    machine_room_nearby,
)
from app.domain.consumers.membership import (
    AssignedQueue,
    Assignment,
    Conflict,
    ConflictKind,
    Member,
    Membership,
    PendingQueue,
    QueueName,
    Strategy,
    StrategyName,
)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the steps need to know of the rest of the cluster."""

    queue_counts: Mapping[str, int]
    """Topic → number of queues, for all topics that exist."""
    is_broadcast: bool = False
    now_ms: int = 0
    """Wall time, for display only: nothing is decided by it."""


def strategy_of(members: Mapping[str, Member]) -> Strategy:
    """The strategy in force: that of the oldest member that names one. So a group can change its
    strategy member by member, and moves once."""
    naming = [
        (member.joined_generation, member.client_id, member.profile.strategy)
        for member in members.values()
        if member.profile.strategy is not None
    ]
    return min(naming, key=lambda entry: entry[:2])[2] if naming else Strategy()


def subscribers(members: Mapping[str, Member], topic: str) -> list[str]:
    """Client ids of those that read the topic, sorted."""
    return sorted(k for k, member in members.items() if topic in member.profile.topics)


def subscribed_topics(members: Mapping[str, Member]) -> list[str]:
    """All topics that somebody reads, sorted."""
    return sorted({topic for member in members.values() for topic in member.profile.topics})


def queues_of(members: Mapping[str, Member], surroundings: Surroundings) -> list[QueueName]:
    """All queues of all subscribed topics, sorted."""
    return [
        QueueName(topic, queue_id)
        for topic in subscribed_topics(members)
        for queue_id in range(surroundings.queue_counts.get(topic, 0))
    ]


def targets_of(
    members: Mapping[str, Member], surroundings: Surroundings
) -> dict[QueueName, str | None]:
    """Every queue of every subscribed topic, with the member that shall own it, if any."""
    targets: dict[QueueName, str | None] = dict.fromkeys(queues_of(members, surroundings))
    if surroundings.is_broadcast:
        return targets
    strategy = strategy_of(members)
    for topic in subscribed_topics(members):
        count = surroundings.queue_counts.get(topic, 0)
        for client_id, share in allocate_topic(members, strategy, topic, count).items():
            for queue in share:
                name = QueueName(topic, queue.queue_id)
                if name in targets and targets[name] is None:
                    targets[name] = client_id
    return targets


def allocate_topic(
    members: Mapping[str, Member], strategy: Strategy, topic: str, count: int
) -> Allocation:
    """One topic's queues among its subscribers."""
    names = dict(strategy.brokers).get(topic, ())
    queues = sorted(
        MessageQueue(topic, names[queue_id] if queue_id < len(names) else NO_BROKER, queue_id)
        for queue_id in range(count)
    )
    client_ids = subscribers(members, topic)
    if strategy.name is StrategyName.CONFIGURATION:
        configured = {
            client_id: [
                MessageQueue(topic, NO_BROKER, name.queue_id)
                for name in members[client_id].profile.queues
                if name.topic == topic
            ]
            for client_id in client_ids
        }
        return by_configuration(configured, client_ids)
    return _computed(strategy, members)(queues, client_ids)


def _computed(strategy: Strategy, members: Mapping[str, Member]) -> Allocate:
    match strategy.name:
        case StrategyName.AVERAGELY_BY_CIRCLE:
            return averagely_by_circle
        case StrategyName.CONSISTENT_HASH:
            return partial(consistent_hash, virtual_nodes=strategy.virtual_nodes)
        case StrategyName.MACHINE_ROOM:
            return partial(machine_room, rooms=strategy.rooms)
        case StrategyName.MACHINE_ROOM_NEARBY:
            return partial(
                machine_room_nearby,
                room_of_client=lambda client_id: members[client_id].profile.room,
                inner=_computed(replace(strategy, name=strategy.inner), members),
            )
        case _:
            return averagely


def assignment_of(membership: Membership, client_id: str, surroundings: Surroundings) -> Assignment:
    """A member's share as the member is told."""
    member = membership.members.get(client_id)
    if member is None:
        return Assignment(membership.generation)
    if surroundings.is_broadcast:
        return Assignment(membership.generation, _all_queues(membership, member))
    assigned, revoked, pending = [], [], []
    for name, state in sorted(membership.queues.items()):
        if state.owner == client_id == state.target:
            assigned.append(AssignedQueue(*name, state.since_generation))
        elif state.owner == client_id:
            revoked.append(name)
        elif state.target == client_id and state.owner is not None:
            pending.append(PendingQueue(*name, state.owner))
    return Assignment(membership.generation, tuple(assigned), tuple(revoked), tuple(pending))


def _all_queues(membership: Membership, member: Member) -> tuple[AssignedQueue, ...]:
    topics = member.profile.topics
    return tuple(
        AssignedQueue(*name, member.joined_generation)
        for name in sorted(membership.queues)
        if name.topic in topics
    )


# --- what does not fit together


def conflicts_of(membership: Membership, surroundings: Surroundings) -> list[Conflict]:
    """Everything that the members, or an operator, should know."""
    members = membership.members
    return [
        *_strategy_conflict(members),
        *_topics_conflict(members),
        *_filter_conflicts(members),
        *_missing_topics(members, surroundings),
        *_doubly_configured(members),
        *(() if surroundings.is_broadcast else _unassigned(membership)),
    ]


def _by_value(values: Mapping[str, str]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """(client → value) as (value, clients), sorted."""
    return tuple(
        (value, tuple(sorted(k for k, v in values.items() if v == value)))
        for value in sorted(set(values.values()))
    )


def _strategy_conflict(members: Mapping[str, Member]) -> list[Conflict]:
    named = {k: member.profile.strategy for k, member in members.items() if member.profile.strategy}
    if len(set(named.values())) < 2:
        return []
    in_force = strategy_of(members)
    values = _by_value({k: _shown(strategy) for k, strategy in named.items()})
    return [
        Conflict(
            ConflictKind.STRATEGY,
            f"members name different strategies; {in_force.name} of the oldest member is used",
            values=values,
        )
    ]


def _shown(strategy: Strategy) -> str:
    """The name, and what was set beside it."""
    default = Strategy(strategy.name)
    details = [
        f"{name}={getattr(strategy, name)!r}"
        for name in ("virtual_nodes", "rooms", "brokers", "inner")
        if getattr(strategy, name) != getattr(default, name)
    ]
    return f"{strategy.name.value} {' '.join(details)}".strip()


def _topics_conflict(members: Mapping[str, Member]) -> list[Conflict]:
    values = _by_value({k: ", ".join(member.profile.topics) for k, member in members.items()})
    if len(values) < 2:
        return []
    return [
        Conflict(
            ConflictKind.TOPICS,
            "members subscribe to different topics; each topic is shared by those that read it",
            values=values,
        )
    ]


def _filter_conflicts(members: Mapping[str, Member]) -> list[Conflict]:
    found = []
    for topic in subscribed_topics(members):
        filters = {
            k: subscription.filter
            for k, member in members.items()
            for subscription in member.profile.subscriptions
            if subscription.topic == topic
        }
        if len(set(filters.values())) > 1:
            found.append(
                Conflict(
                    ConflictKind.FILTER,
                    f"members read topic {topic!r} with different filters: what is delivered "
                    "depends on who owns the queue, and the rest is skipped",
                    topic,
                    _by_value(filters),
                )
            )
    return found


def _missing_topics(members: Mapping[str, Member], surroundings: Surroundings) -> list[Conflict]:
    return [
        Conflict(
            ConflictKind.TOPIC_MISSING,
            f"topic {topic!r} does not exist (any more)",
            topic,
            ((topic, tuple(subscribers(members, topic))),),
        )
        for topic in subscribed_topics(members)
        if topic not in surroundings.queue_counts
    ]


def _doubly_configured(members: Mapping[str, Member]) -> list[Conflict]:
    if strategy_of(members).name is not StrategyName.CONFIGURATION:
        return []
    wanted: dict[QueueName, list[str]] = {}
    for client_id in sorted(members):
        for name in members[client_id].profile.queues:
            wanted.setdefault(name, []).append(client_id)
    doubly = {name: clients for name, clients in sorted(wanted.items()) if len(clients) > 1}
    if not doubly:
        return []
    return [
        Conflict(
            ConflictKind.QUEUES,
            "several members configure the same queue; the first by client id gets it",
            values=tuple((f"{n.topic}/{n.queue_id}", tuple(c)) for n, c in doubly.items()),
        )
    ]


def _unassigned(membership: Membership) -> list[Conflict]:
    names = [
        f"{name.topic}/{name.queue_id}"
        for name, state in sorted(membership.queues.items())
        if state.target is None and state.owner is None and state.lock is None
    ]
    if not names or not membership.members:
        return []
    return [
        Conflict(
            ConflictKind.UNASSIGNED,
            f"{len(names)} queues are allocated to nobody by the strategy",
            values=tuple((name, ()) for name in names),
        )
    ]
