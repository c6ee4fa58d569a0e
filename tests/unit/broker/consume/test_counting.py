"""Counting what is left, for an answer of several shards: it makes no group and begins nothing."""

import pytest

from app.broker.results import ReceiveRequest, Takes
from app.domain.errors import SubscriptionConflict
from app.domain.settings import GroupSettings
from tests.support.nodes.brokers import GROUP, TOPIC, World, never_gone, put_group, running

pytestmark = pytest.mark.anyio


async def left(world: World, wanted: str | None = None) -> int:
    """What is counted by who reads with this filter."""
    count = ReceiveRequest(takes=Takes.COUNT, filter=wanted)
    found = await world.broker.receiver.receive(TOPIC, GROUP, count, gone=never_gone)
    assert (found.deliveries, found.effects) == ([], ())
    return found.backlog


async def test_to_count_begins_nothing() -> None:
    async with running(queues=2) as world:
        for queue_id in range(2):
            world.store.fill(TOPIC, queue_id, [b"x"] * 3)
        assert await left(world) == 0  # there is no such group
        assert GROUP not in world.metadata.snapshot.groups
        await put_group(world.broker, GROUP, GroupSettings())
        assert await left(world) == 6
        assert world.broker.consumer_journal.consumption(GROUP, TOPIC) is None
        assert world.broker.groups.find(GROUP, TOPIC) is None
        await world.receive(2)
        assert await left(world) == 4


async def test_to_count_notes_the_filter_of_who_counts() -> None:
    async with running() as world:
        await put_group(world.broker, GROUP, GroupSettings())
        await left(world, "red")
        with pytest.raises(SubscriptionConflict):
            await world.receive(filter="blue")
