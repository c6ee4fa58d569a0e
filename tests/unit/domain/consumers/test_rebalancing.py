"""Steps of a membership that the state machine finds seldom."""

import pytest

from app.domain.consumers import rebalancing
from app.domain.consumers.member_shares import Surroundings
from app.domain.consumers.membership import Membership, Profile, QueueName, TopicSubscription

PROFILE = Profile((TopicSubscription("bills", "*"),), None)
WITH_QUEUES = Surroundings({"bills": 2})
WITHOUT = Surroundings({})


@pytest.mark.parametrize("seen_while_gone", [False, True])
def test_a_topic_that_is_made_again_at_once_is_given_out_again(seen_while_gone: bool) -> None:
    """Its queues were kept for an owner that had not let go; they are not left with nobody."""
    membership = rebalancing.heartbeat(Membership("g"), "a", PROFILE, 0, WITH_QUEUES)
    generation = membership.generation
    if seen_while_gone:
        membership = rebalancing.heartbeat(membership, "a", PROFILE, generation, WITHOUT)
    else:
        membership = rebalancing.reset(membership, (), WITHOUT)
    for _ in range(2):
        generation = membership.generation
        membership = rebalancing.heartbeat(membership, "a", PROFILE, generation, WITH_QUEUES)
    owners = {name: state.owner for name, state in membership.queues.items()}
    assert owners == {QueueName("bills", 0): "a", QueueName("bills", 1): "a"}
    again = rebalancing.heartbeat(membership, "a", PROFILE, membership.generation, WITH_QUEUES)
    assert again.generation == membership.generation, "at rest nothing is given out anew"
