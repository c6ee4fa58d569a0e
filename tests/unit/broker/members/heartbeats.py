"""Heartbeats of members of the test group, on a clock that moves when told to."""

from collections.abc import Mapping

from app.broker.members.member_values import Heartbeat, MemberShare
from app.domain.consumers.membership import Profile, TopicSubscription
from tests.support.nodes.brokers import GROUP, TOPIC, World, never_gone

ORDERS = Profile((TopicSubscription(TOPIC),))


async def beat(
    world: World,
    client_id: str,
    generation: int | None = None,
    *,
    profile: Profile = ORDERS,
    assignment_id: str | None = None,
    wait_s: float = 0.0,
) -> MemberShare:
    heartbeat = Heartbeat(profile, generation, assignment_id, wait_s)
    return await world.broker.members.heartbeat(GROUP, client_id, heartbeat, never_gone)


def queues(share: MemberShare) -> list[int]:
    return [queue.queue_id for queue in share.assignment.assigned]


async def pass_time(world: World, seconds: int, beating: Mapping[str, int] | None = None) -> None:
    """Second by second, with a turn each; `beating` send a heartbeat every ten seconds."""
    for second in range(seconds):
        world.clock.advance(s=1)
        if second % 10 == 0:
            for client_id, generation in (beating or {}).items():
                await beat(world, client_id, generation)
        await world.broker.members.turn()


async def members_of(world: World) -> list[str]:
    return [m.client_id for m, _ in (await world.broker.members.describe(GROUP)).shares]
