"""The pure parts of the metadata: stored text of group settings, snapshots."""

from dataclasses import FrozenInstanceError, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.cluster.metadata.schema.group_columns import (
    policy_from_json,
    policy_to_json,
    start_from_text,
    start_to_text,
)
from app.cluster.metadata.snapshot import ClusterSnapshot, GroupView, TopicView
from app.domain.positions import FlushMode, TimestampMs
from app.domain.settings import (
    CustomizedRetry,
    DeliveryOrder,
    ExponentialRetry,
    GroupMode,
    RetryPolicy,
    StartPosition,
    SubscriptionRule,
    TopicType,
    TraceMode,
    WhenExhausted,
)

NOW = TimestampMs(7)
TOPIC = TopicView(
    *("orders", 4, TopicType.FIFO, FlushMode.ASYNC, 60_000, TraceMode.SAMPLED, 0.5, 1, NOW, NOW),
    version=1,
)
GROUP = GroupView(
    *("billing", 16, CustomizedRetry((1,)), DeliveryOrder.FIFO, 30_000, "latest", 9),
    mode=GroupMode.CLUSTERING,
    on_exhausted=WhenExhausted.PARK,
    max_in_flight_per_member=3,
    paused=True,
    max_in_flight_bytes=None,
    max_span=7,
    subscription=SubscriptionRule.FREE,
    generation=1,
    created_ms=NOW,
    updated_ms=NOW,
    version=2,
)

POLICIES = st.builds(
    CustomizedRetry, st.lists(st.integers(0, 2**40), min_size=1).map(tuple)
) | st.builds(ExponentialRetry, st.integers(1, 2**40), st.floats(1, 1e9), st.integers(1, 2**40))


@given(POLICIES)
def test_retry_policies_come_back_from_json(policy: RetryPolicy) -> None:
    assert policy_from_json(policy_to_json(policy)) == policy


def test_stored_policies_have_the_documented_form() -> None:
    assert policy_to_json(CustomizedRetry((10_000, 30_000))) == '{"customized": [10000, 30000]}'
    assert policy_to_json(ExponentialRetry(5_000, 2.0, 7_200_000)) == (
        '{"exponential": {"initial_ms": 5000, "max_ms": 7200000, "multiplier": 2.0}}'
    )


@given(st.sampled_from(["earliest", "latest"]) | st.integers(0, 2**63 - 1))
def test_start_positions_come_back_from_text(start: StartPosition) -> None:
    assert start_from_text(start_to_text(start)) == start


def test_each_change_makes_a_new_snapshot_and_leaves_the_old_one() -> None:
    empty = ClusterSnapshot()
    one = empty.with_topic(TOPIC)
    two = one.with_group(GROUP)
    three = two.without_topic("orders", version=3)
    four = three.without_group("billing", version=4)
    assert [s.version for s in (empty, one, two, three, four)] == [0, 1, 2, 3, 4]
    assert (one.topics, one.groups) == ({"orders": TOPIC}, {})
    assert (two.topics, two.groups) == ({"orders": TOPIC}, {"billing": GROUP})
    assert (three.topics, three.groups) == ({}, {"billing": GROUP})
    assert four == replace(empty, version=4)


def test_a_snapshot_cannot_be_changed() -> None:
    snapshot = ClusterSnapshot.of([TOPIC], [GROUP], 2)
    with pytest.raises(TypeError):
        snapshot.topics["x"] = TOPIC  # type: ignore[index]
    with pytest.raises(FrozenInstanceError):
        snapshot.version = 3  # type: ignore[misc]


def test_views_give_their_settings_back() -> None:
    assert TOPIC.settings.queues == 4
    assert TOPIC.settings.type is TopicType.FIFO
    assert GROUP.settings.retry_policy == CustomizedRetry((1,))
    assert GROUP.settings.start == "latest"
