"""What makes a node with a replica not ready, and what else to look at on it."""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from typing_extensions import override

from app.api.ports import Following
from app.broker.health import Condition, ConditionCode, NodeState, condition, failing
from app.domain.access.actions import Kind
from app.replica.replica_status import ReplicaStatus, Role

_LEADING: Final = frozenset({Role.TAKING_OVER, Role.LEADER})
"""Of a node that does not serve as the leader: its broker is being opened, or is gone already."""


class ReplicaView(NamedTuple):
    """Of the replica, at one moment."""

    shard: str
    status: ReplicaStatus | None
    """None: none is at work."""
    member_count: int
    needed_count: int
    """So many have to have joined before one of them leads."""
    target_count: int
    problem: str | None
    """Why no replica is at work, or should be none."""
    is_removed: bool = False
    """Whether an operator has taken the node out."""


class ReplicaConditions(Following):
    """Of one node."""

    def __init__(
        self,
        state: NodeState,
        look: Callable[[], ReplicaView],
        is_made_by_use: Callable[[Kind], bool],
    ) -> None:
        self._state = state
        self._look = look
        self._is_made_by_use = is_made_by_use

    @override
    def obstacles(self) -> Sequence[Condition]:
        """Requests are carried to who leads; nobody may. One whose clock is off is to be passed
        over; the leader is not, as it stays only where nobody else can lead."""
        found = [*self._state.obstacles(), *self._state.clock.conditions()]
        view = self._look()
        if view.is_removed:
            detail = f"the node was taken out of the replicas of the shard {view.shard!r}"
            found.append(condition(ConditionCode.REPLICA_REMOVED, detail))
        elif view.member_count < view.needed_count:
            detail = (
                f"{view.member_count} replicas of the shard {view.shard!r} have joined,"
                f" {view.needed_count} are needed"
            )
            found.append(condition(ConditionCode.NO_LEADER, detail))
        elif view.status is not None and view.status.role in _LEADING:
            detail = f"this node leads the shard {view.shard!r} no more, or not yet"
            found.append(condition(ConditionCode.NO_LEADER, detail))
        elif view.status is None or view.status.leader is None:
            found.append(
                condition(
                    ConditionCode.NO_LEADER, f"no leader of the shard {view.shard!r} is known"
                )
            )
        return found

    @override
    def troubles(self) -> Sequence[Condition]:
        return [*self._state.troubles(), *failing(self._state.services)]

    @override
    def is_made_by_use(self, kind: Kind) -> bool:
        return self._is_made_by_use(kind)

    def of_replica(self) -> Sequence[Condition]:
        """Whether this node leads or not."""
        view = self._look()
        found: list[Condition] = []
        status = view.status
        if view.problem is not None:
            found.append(condition(ConditionCode.REPLICA_FAILED, view.problem))
        if status is None:
            return found
        if status.role is Role.FAILED:
            found.append(condition(ConditionCode.REPLICA_FAILED, f"it has failed: {status.failed}"))
        found += [
            condition(ConditionCode.REPLICA_ALARM, f"{each.code}: {each.detail}")
            for each in status.alarms
        ]
        if status.role is Role.LEADER and _is_behind(status, view.target_count):
            found.append(condition(ConditionCode.REPLICAS_BEHIND, _behind(status, view)))
        return found


def _is_behind(status: ReplicaStatus, target_count: int) -> bool:
    """Whether there is something to tell: fewer are in sync than wanted, or sends are refused. The
    second comes without the first where a set that must not shrink keeps one that is away."""
    return len(status.in_sync) < target_count or status.lacking_count > 0


def _behind(status: ReplicaStatus, view: ReplicaView) -> str:
    said = [f"{each.node} ({each.why_not})" for each in status.members if each.why_not]
    known = 1 + len(status.members)
    if view.target_count > view.member_count:
        said.append(f"{view.target_count - view.member_count} have not joined")
    if view.member_count > known:
        said.append(f"{view.member_count - known} that the leader is yet to hear of")
    text = f"{len(status.in_sync)} of {view.target_count} replicas of the shard"
    text += f" {view.shard!r} are in sync"
    if said:
        text += f"; not: {', '.join(said)}"
    if status.lacking_count:
        away = [each.node for each in status.members if each.is_in_sync and not each.is_connected]
        if away:
            text += f"; in sync and not connected: {', '.join(away)}"
        text += f"; sends are refused, as {status.lacking_count} more would have to answer"
    return text
