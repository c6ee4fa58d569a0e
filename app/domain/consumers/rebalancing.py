"""The steps of a group's membership: join, confirm, leave, fall silent, lock. Pure.

Each step takes a `Membership` and gives the next one. What a step must not break, and a state
machine in the tests tries to: a queue never has two owners; an owner loses a queue only by its own
confirmation, by leaving, by restarting or by its silence; targets change only together with the
generation, which rises by one; at rest every queue is owned by its target.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from app.domain.consumers.member_shares import (
    Surroundings,
    queues_of,
    strategy_of,
    subscribers,
    targets_of,
)
from app.domain.consumers.membership import (
    Member,
    Membership,
    Profile,
    QueueLock,
    QueueName,
    QueueState,
    Rebalance,
    RebalanceReason,
)
from app.domain.errors import QueueNotOwned, StaleGeneration

_REJOIN = "drop all queues and send a heartbeat with generation 0 to join again"


@dataclass(frozen=True, slots=True)
class Locking:
    """What came of asking for locks."""

    membership: Membership
    locked: tuple[QueueName, ...]
    refused: tuple[tuple[QueueName, str], ...]
    """With the reason."""


def heartbeat(
    membership: Membership,
    client_id: str,
    profile: Profile,
    generation: int | None,
    surroundings: Surroundings,
) -> Membership:
    """Take a member's sign of life.

    `generation` is the newest that the member has put into effect: naming the present one releases
    its revoked queues. 0 says that the process has just started and holds nothing. None confirms
    nothing. Raises `StaleGeneration` for a process that has been replaced or was taken for dead.
    """
    present = membership.members.get(client_id)
    check_heartbeat(membership, client_id, generation)
    if present is not None and generation == membership.generation:
        membership = _released(membership, client_id, only_revoked=True)
    elif present is not None and generation == 0:
        membership = _released(membership, client_id, only_revoked=False)
    reason = _reason(membership, present, profile, generation)
    is_new = reason in {RebalanceReason.JOINED, RebalanceReason.RESTARTED}
    beat = membership.counter + 1
    if present is None or is_new:
        member = Member(
            client_id,
            profile,
            surroundings.now_ms,
            surroundings.now_ms,
            joined_generation=membership.generation + 1,
            confirmed_generation=0,
            beat=beat,
        )
    else:
        member = replace(
            present,
            profile=replace(profile, principal=present.profile.principal),
            seen_ms=surroundings.now_ms,
            confirmed_generation=max(present.confirmed_generation, generation or 0),
            beat=beat,
        )
    members = MappingProxyType({**membership.members, client_id: member})
    membership = replace(membership, members=members, counter=beat)
    if reason is not None:
        return _rebalanced(membership, surroundings, reason, (client_id,))
    return follow(membership, surroundings)


def changes_nothing(
    membership: Membership, client_id: str, profile: Profile, generation: int | None
) -> bool:
    """Whether `heartbeat` would be a sign of life and nothing else."""
    member = membership.members.get(client_id)
    if member is None or generation == 0 or member.profile != profile:
        return False
    if generation is None:
        return True
    if generation == membership.generation:
        return member.confirmed_generation == generation
    return member.joined_generation <= generation < membership.generation


def check_heartbeat(membership: Membership, client_id: str, generation: int | None) -> None:
    """Raise `StaleGeneration` when `heartbeat` would."""
    if not generation:
        return
    present = membership.members.get(client_id)
    if present is None:
        raise StaleGeneration(
            f"client {client_id!r} is no member of group {membership.group!r} (any more); "
            "what it held was given to others",
            hint=_REJOIN,
        )
    if generation < present.joined_generation:
        raise StaleGeneration(
            f"another process has joined as client {client_id!r} since generation {generation}",
            hint="give every process a client id of its own; " + _REJOIN,
        )
    if generation > membership.generation:
        raise StaleGeneration(
            f"group {membership.group!r} has not had generation {generation} yet", hint=_REJOIN
        )


def _reason(
    membership: Membership, present: Member | None, profile: Profile, generation: int | None
) -> RebalanceReason | None:
    if present is None:
        return RebalanceReason.JOINED
    if generation == 0:
        return RebalanceReason.RESTARTED
    before = present.profile
    if before.subscriptions != profile.subscriptions:
        return RebalanceReason.SUBSCRIPTION
    if before != profile:
        return RebalanceReason.STRATEGY
    return None


def renew(membership: Membership, client_id: str, now_ms: int) -> Membership:
    """Keep a member alive whose long poll is still waiting. Raises `StaleGeneration`."""
    present = membership.members.get(client_id)
    if present is None:
        raise StaleGeneration(
            f"client {client_id!r} is no member of group {membership.group!r} any more",
            hint=_REJOIN,
        )
    beat = membership.counter + 1
    member = replace(present, seen_ms=now_ms, beat=beat)
    members = MappingProxyType({**membership.members, client_id: member})
    return replace(membership, members=members, counter=beat)


def leave(membership: Membership, client_id: str, surroundings: Surroundings) -> Membership:
    """Take a member out; its queues are free at once. Nothing happens when it is none."""
    if client_id not in membership.members:
        return membership
    membership = _released(membership, client_id, only_revoked=False)
    return _without(membership, [client_id], surroundings, RebalanceReason.LEFT)


def expire(
    membership: Membership, silent: Mapping[str, int], surroundings: Surroundings
) -> Membership:
    """Take out members that are silent: those whose beat is still the one in `silent`.

    Their queue locks stay until the locks' own leases end.
    """
    gone = [
        client_id
        for client_id, beat in silent.items()
        if client_id in membership.members and membership.members[client_id].beat == beat
    ]
    if not gone:
        return membership
    return _without(membership, gone, surroundings, RebalanceReason.SILENT)


def _without(
    membership: Membership,
    client_ids: Sequence[str],
    surroundings: Surroundings,
    reason: RebalanceReason,
) -> Membership:
    members = {k: v for k, v in membership.members.items() if k not in client_ids}
    membership = replace(membership, members=MappingProxyType(members))
    return _rebalanced(membership, surroundings, reason, tuple(sorted(client_ids)))


def follow(membership: Membership, surroundings: Surroundings) -> Membership:
    """Allocate anew if the subscribed topics have other queues than before."""
    if not membership.members:
        return membership
    wanted = set(queues_of(membership.members, surroundings))
    gone = membership.queues.keys() - wanted
    is_lost = any(membership.queues[name].target is not None for name in gone)
    is_new = bool(wanted - membership.queues.keys()) or _has_come_back(
        membership, wanted, surroundings
    )
    if is_new or is_lost or (gone and surroundings.is_broadcast):
        return _rebalanced(membership, surroundings, RebalanceReason.QUEUES, ())
    return _without_leftovers(membership, gone)


def _has_come_back(
    membership: Membership, wanted: Collection[QueueName], surroundings: Surroundings
) -> bool:
    """Whether a queue is there again that went away, before it was let go and forgotten.

    A strategy may also leave a queue to nobody; then nothing would change.
    """
    queues = membership.queues
    waiting = [name for name in wanted if name in queues and queues[name].target is None]
    if not waiting:
        return False
    targets = targets_of(membership.members, surroundings)
    return any(targets.get(name) is not None for name in waiting)


def _without_leftovers(membership: Membership, gone: Collection[QueueName]) -> Membership:
    """Drop queues that nobody wants and that their last owner has let go."""
    queues = {
        name: state
        for name, state in membership.queues.items()
        if name not in gone or state.owner is not None or state.lock is not None
    }
    if len(queues) == len(membership.queues):
        return membership
    return replace(membership, queues=MappingProxyType(queues))


def reset(
    membership: Membership, names: Collection[QueueName], surroundings: Surroundings
) -> Membership:
    """Tell members by a new generation that the positions of these queues were set."""
    if not membership.members:
        return membership
    return _rebalanced(membership, surroundings, RebalanceReason.RESET, (), restarted=names)


def end_assignments(membership: Membership, topic: str, surroundings: Surroundings) -> Membership:
    """Take the topic from all members, with its queues and their locks: the group leases it now.

    A member that reads nothing else is taken out; the others keep what they have of other topics.
    """
    readers = subscribers(membership.members, topic)
    queues = {name: state for name, state in membership.queues.items() if name.topic != topic}
    if not readers and len(queues) == len(membership.queues):
        return membership
    members = {
        client_id: replace(member, profile=member.profile.without(topic))
        for client_id, member in membership.members.items()
        if member.profile.topics != (topic,)
    }
    membership = replace(
        membership, members=MappingProxyType(members), queues=MappingProxyType(queues)
    )
    return _rebalanced(membership, surroundings, RebalanceReason.LEASED, tuple(readers))


def _released(membership: Membership, client_id: str, *, only_revoked: bool) -> Membership:
    """Queues of the client become ownerless, with their locks; targets take theirs at once."""
    queues = dict(membership.queues)
    is_changed = False
    for name, state in membership.queues.items():
        if state.owner == client_id and not (only_revoked and state.target == client_id):
            lock = None if state.lock and state.lock.client_id == client_id else state.lock
            queues[name] = _taken(
                replace(state, owner=None, lock=lock), membership.generation, membership.members
            )
            is_changed = True
    if not is_changed:
        return membership
    counter = membership.counter + 1
    return replace(membership, queues=MappingProxyType(queues), counter=counter, changed=counter)


def _taken(state: QueueState, generation: int, members: Mapping[str, Member]) -> QueueState:
    """An ownerless queue goes to its target."""
    if state.owner is not None or state.target is None or state.target not in members:
        return state
    return replace(state, owner=state.target, since_generation=generation)


def _rebalanced(
    membership: Membership,
    surroundings: Surroundings,
    reason: RebalanceReason,
    client_ids: tuple[str, ...],
    *,
    restarted: Collection[QueueName] = (),
) -> Membership:
    """The next generation."""
    generation = membership.generation + 1
    members = membership.members
    targets = targets_of(members, surroundings)
    queues: dict[QueueName, QueueState] = {}
    moved = 0
    for name in sorted({*targets, *membership.queues}):
        before = membership.queues.get(name, QueueState())
        target = targets.get(name)
        moved += target != before.target
        owner = before.owner if before.owner in members else None
        since = generation if name in restarted else before.since_generation
        state = _taken(
            replace(before, owner=owner, target=target, since_generation=since),
            generation,
            members,
        )
        if name in targets or state.owner is not None or state.lock is not None:
            queues[name] = state
    entry = Rebalance(
        generation,
        surroundings.now_ms,
        reason,
        client_ids,
        tuple(sorted(members)),
        strategy_of(members).name,
        len(targets),
        moved,
    )
    counter = membership.counter + 1
    return replace(
        membership,
        generation=generation,
        counter=counter,
        changed=counter,
        queues=MappingProxyType(queues),
        new_history=(*membership.new_history, entry),
    )


# --- what only the owner may do


def check_owner(
    membership: Membership, client_id: str, generation: int, names: Iterable[QueueName]
) -> None:
    """Raise unless the client is a member, at the present generation, and owns all the queues."""
    _check_member(membership, client_id, generation)
    for name in names:
        owner = membership.queues.get(name, QueueState()).owner
        if owner != client_id:
            raise _not_owned(name, client_id, owner)


def check_unowned(membership: Membership, names: Iterable[QueueName]) -> None:
    """Raise when a member owns one of the queues: nobody else may commit there."""
    for name in names:
        owner = membership.queues.get(name, QueueState()).owner
        if owner is not None:
            raise QueueNotOwned(
                f"queue {name.queue_id} of topic {name.topic!r} is owned by member {owner!r}",
                hint="commit with client_id and generation, or reset the offsets",
                fields={"topic": name.topic, "queue_id": name.queue_id, "owner": owner},
            )


def _check_member(membership: Membership, client_id: str, generation: int) -> None:
    member = membership.members.get(client_id)
    if member is None:
        raise StaleGeneration(
            f"client {client_id!r} is no member of group {membership.group!r} (any more)",
            hint=_REJOIN,
        )
    if generation != membership.generation or generation < member.joined_generation:
        raise StaleGeneration(
            f"generation {generation} of client {client_id!r} is not the present one",
            hint="send a heartbeat, put its answer into effect, and use its generation",
        )


def _not_owned(name: QueueName, client_id: str, owner: str | None) -> QueueNotOwned:
    return QueueNotOwned(
        f"queue {name.queue_id} of topic {name.topic!r} is not owned by {client_id!r}",
        hint="read and commit only what the answer to the heartbeat lists",
        fields={"topic": name.topic, "queue_id": name.queue_id, "owner": owner},
    )


def lock_queues(
    membership: Membership,
    client_id: str,
    generation: int,
    names: Sequence[QueueName],
    ended: Collection[tuple[QueueName, QueueLock]],
) -> Locking:
    """Lock or renew, each queue by itself. `ended` names locks whose leases are over."""
    _check_member(membership, client_id, generation)
    queues = dict(membership.queues)
    locked, refused = [], []
    counter = membership.counter + 1
    for name in names:
        state = queues.get(name, QueueState())
        lock = state.lock
        if state.owner != client_id:
            refused.append((name, "not_owned"))
        elif lock and lock.client_id != client_id and (name, lock) not in ended:
            refused.append((name, f"locked_by {lock.client_id}"))
        else:
            queues[name] = replace(state, lock=QueueLock(client_id, counter))
            locked.append(name)
    if locked:
        membership = replace(membership, queues=MappingProxyType(queues), counter=counter)
    return Locking(membership, tuple(locked), tuple(refused))


def unlock_queues(membership: Membership, client_id: str, names: Sequence[QueueName]) -> Locking:
    """Give locks back. What nobody has locked counts as unlocked."""
    queues = dict(membership.queues)
    unlocked, refused = [], []
    for name in names:
        state = queues.get(name, QueueState())
        if state.lock is None:
            unlocked.append(name)
        elif state.lock.client_id == client_id:
            queues[name] = replace(state, lock=None)
            unlocked.append(name)
        else:
            refused.append((name, f"locked_by {state.lock.client_id}"))
    if queues != dict(membership.queues):
        membership = replace(membership, queues=MappingProxyType(queues))
    return Locking(membership, tuple(unlocked), tuple(refused))


def drop_locks(
    membership: Membership, ended: Collection[tuple[QueueName, QueueLock]]
) -> Membership:
    """Forget locks whose leases are over, and queues that were kept for them alone."""
    queues: dict[QueueName, QueueState] = {}
    for name, state in membership.queues.items():
        kept = state
        if state.lock is not None and (name, state.lock) in ended:
            kept = replace(state, lock=None)
        if kept == state or kept.owner is not None or kept.target is not None:
            queues[name] = kept
    if queues == dict(membership.queues):
        return membership
    return replace(membership, queues=MappingProxyType(queues))
