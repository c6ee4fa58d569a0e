"""Members and rebalances as JSON of a column, and back."""

import pytest

from app.cluster.metadata.schema.member_columns import (
    detail_to_json,
    profile_from_json,
    profile_to_json,
    rebalance_of,
)
from app.domain.consumers.membership import (
    Profile,
    QueueName,
    Rebalance,
    RebalanceReason,
    Strategy,
    StrategyName,
    TopicSubscription,
)

STRATEGY = Strategy(
    StrategyName.MACHINE_ROOM_NEARBY,
    7,
    ("east", "west"),
    (("orders", ("east@a", "west@b")),),
    StrategyName.CONSISTENT_HASH,
)


@pytest.mark.parametrize(
    "profile",
    [
        Profile((TopicSubscription("orders", ""),)),
        Profile(
            (TopicSubscription("orders", "paid"), TopicSubscription("payments", "")),
            STRATEGY,
            "east",
            (QueueName("orders", 1), QueueName("payments", 0)),
        ),
    ],
)
def test_a_profile_comes_back_as_it_was(profile: Profile) -> None:
    text = profile_to_json(profile)
    assert profile_from_json(text) == profile
    assert profile_to_json(profile_from_json(text)) == text


def test_a_rebalance_comes_back_as_it_was() -> None:
    reason = next(iter(RebalanceReason))
    entry = Rebalance(
        4, 1_000, reason, ("worker-1",), ("worker-1", "worker-2"), StrategyName.AVERAGELY, 8, 3
    )
    found = rebalance_of(4, 1_000, reason.value, detail_to_json(entry))
    assert found == entry
