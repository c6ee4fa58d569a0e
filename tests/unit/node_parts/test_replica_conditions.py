"""What a node with a replica says of itself while another one leads."""

from dataclasses import replace

from app.broker.health import ConditionCode, NodeState
from app.node_parts.replica_conditions import ReplicaConditions, ReplicaView
from app.replica.replica_status import NOTHING, Role


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
