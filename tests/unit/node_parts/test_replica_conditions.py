"""What a node with a replica says of itself while another one leads."""

from dataclasses import replace

import pytest

from app.broker.health import ConditionCode, NodeState
from app.node_parts.replica_conditions import ReplicaConditions, ReplicaView
from app.replica.replica_status import NOTHING, MemberStatus, ReplicaStatus, Role


def following(state: NodeState) -> ReplicaConditions:
    status = replace(NOTHING, role=Role.FOLLOWER, leader="b")
    return ReplicaConditions(
        state, lambda: ReplicaView("orders", status, 3, 2, 3, None), lambda _kind: False
    )


def test_a_follower_whose_clock_is_off_takes_no_requests() -> None:
    state = NodeState()
    conditions = following(state)
    assert not conditions.obstacles()
    state.clock.saw(10_000, 10_000, 0)
    (obstacle,) = conditions.obstacles()
    assert obstacle.code is ConditionCode.CLOCK_APART
    assert obstacle.detail == "the clock is 10.0 s ahead of the database's"
    assert [each.code for each in conditions.troubles()] == [ConditionCode.CLOCK_APART]
    state.clock.saw(10, 10, 0)
    assert not conditions.obstacles()


def test_a_leader_whose_clock_is_off_does() -> None:
    """It stays only where nobody else can lead: with it all would be unready."""
    state = NodeState()
    state.clock.saw(10_000, 10_000, 0)
    assert not state.obstacles()
    assert [each.code for each in state.troubles()] == [ConditionCode.CLOCK_APART]


@pytest.mark.parametrize("role", [Role.TAKING_OVER, Role.LEADER])
def test_a_node_whose_broker_is_not_there_takes_no_requests(role: Role) -> None:
    status = replace(NOTHING, role=role, leader="a")
    view = ReplicaView("orders", status, 3, 2, 3, None)
    (obstacle,) = ReplicaConditions(NodeState(), lambda: view, lambda _kind: False).obstacles()
    assert obstacle.code is ConditionCode.NO_LEADER
    assert obstacle.detail == "this node leads the shard 'orders' no more, or not yet"


def of_leader(status: ReplicaStatus, target_count: int) -> list[str]:
    """What it says of its followers."""
    view = ReplicaView("orders", status, target_count, 2, target_count, None)
    conditions = ReplicaConditions(NodeState(), lambda: view, lambda _kind: False)
    found = conditions.of_replica()
    assert {each.code for each in found} <= {ConditionCode.REPLICAS_BEHIND}
    return [each.detail for each in found]


def member(node: str, why_not: str | None, *, is_connected: bool) -> MemberStatus:
    return MemberStatus(node, why_not is None, why_not, 7, 7, 0, 0, is_connected)


def test_a_leader_without_the_last_follower_in_sync_says_that_sends_are_refused() -> None:
    """The set stays as it was: without that follower it would be too small."""
    status = replace(NOTHING, role=Role.LEADER, leader="a", in_sync=("a", "b"), lacking_count=1)
    away = replace(status, members=(member("b", None, is_connected=False),))
    assert of_leader(away, 2) == [
        "2 of 2 replicas of the shard 'orders' are in sync; in sync and not connected: b;"
        " sends are refused, as 1 more would have to answer"
    ]
    out = member("c", "it is not connected", is_connected=False)
    assert of_leader(replace(away, members=(*away.members, out)), 3) == [
        "2 of 3 replicas of the shard 'orders' are in sync; not: c (it is not connected); in sync"
        " and not connected: b; sends are refused, as 1 more would have to answer"
    ]


def test_a_leader_with_all_in_sync_says_nothing() -> None:
    status = replace(NOTHING, role=Role.LEADER, leader="a", in_sync=("a", "b"))
    assert of_leader(replace(status, members=(member("b", None, is_connected=True),)), 2) == []
