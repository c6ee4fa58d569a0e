"""The first use of a topic by a group, on both engines: one of several, for as long as both are."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from app.cluster import ClusterConfig, Metadata
from app.domain.consumers.consumption import FirstUse, SubscriptionPair
from app.domain.errors import GroupNotFound, TopicNotFound
from tests.support.metadata.databases import Databases
from tests.support.stores.clock import START_MS, FakeClock

pytestmark = pytest.mark.anyio


@pytest.fixture
async def nodes(databases: Databases) -> AsyncIterator[list[Metadata]]:
    """Two nodes of one database, with a topic and a group; the second's clock is behind."""
    url = databases.migrated()
    async with AsyncExitStack() as stack:
        opened = []
        for behind_ms in (0, 5):
            config = ClusterConfig(url)
            metadata = await Metadata.open(config, FakeClock(START_MS - behind_ms))
            stack.push_async_callback(metadata.close)
            opened.append(metadata)
        await opened[0].ensure_topic("orders")
        await opened[0].ensure_group("billing")
        await opened[1].refresh()
        yield opened


def pair(metadata: Metadata) -> SubscriptionPair:
    group, topic = metadata.snapshot.groups["billing"], metadata.snapshot.topics["orders"]
    return SubscriptionPair(group.name, topic.name, group.generation, topic.generation)


async def test_the_first_of_several_counts_for_all(nodes: list[Metadata]) -> None:
    first, second = nodes
    asked = pair(first)
    assert await second.first_uses.find(asked) is None
    assert await first.first_uses.note(asked) == FirstUse(START_MS, is_this=True)
    assert await second.first_uses.note(asked) == FirstUse(START_MS, is_this=False)
    assert await second.first_uses.find(asked) == START_MS


async def test_of_several_at_once_one_is_the_first(nodes: list[Metadata]) -> None:
    asked = pair(nodes[0])
    notes = [each.first_uses.note(asked) for each in nodes for _ in range(4)]
    found = await asyncio.gather(*notes)
    assert [each.is_this for each in found].count(True) == 1
    assert len({each.at_ms for each in found}) == 1


async def test_one_that_came_since_the_deletion_began_stays(nodes: list[Metadata]) -> None:
    first, second = nodes
    asked = pair(first)
    await first.first_uses.note(asked)
    await first.delete_offsets("billing", "orders", START_MS)
    assert await second.first_uses.note(asked) == FirstUse(START_MS - 5, is_this=True)
    await second.delete_offsets("billing", "orders", START_MS)
    await second.delete_offsets("billing", "orders")
    assert await first.first_uses.find(asked) == START_MS - 5


async def test_it_goes_with_the_offsets_the_group_and_the_topic(nodes: list[Metadata]) -> None:
    first, second = nodes
    old = pair(first)
    await first.first_uses.note(old)
    await second.delete_offsets("billing", "orders", START_MS)
    assert (await first.first_uses.note(old)).is_this
    await first.delete_group("billing")
    with pytest.raises(GroupNotFound):
        await first.first_uses.note(old)
    await first.ensure_group("billing", generation=7)
    assert (await first.first_uses.note(pair(first))).is_this
    await first.delete_topic("orders")
    with pytest.raises(TopicNotFound):
        await first.first_uses.note(old._replace(group_generation=7))
    await first.ensure_topic("orders", generation=9)
    assert (await first.first_uses.note(pair(first))).is_this
