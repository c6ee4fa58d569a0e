"""How groups consume topics, by shard, on both engines: of two kinds at once one is entered."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from sqlalchemy import insert, select

from app.cluster import Claim, ClusterConfig, Metadata
from app.cluster.metadata.schema.tables import shards
from app.domain.consumers.consumption import (
    Consumption,
    ConsumptionElsewhere,
    ConsumptionRow,
    SubscriptionPair,
)
from app.domain.errors import GroupNotFound, TopicNotFound
from tests.support.metadata.databases import Databases, sync_engine
from tests.support.stores.clock import START_MS, FakeClock

pytestmark = pytest.mark.anyio

LEASE, ASSIGNED = Consumption.LEASE, Consumption.ASSIGNED
NAMES = "billing", "orders"


def add_shard(url: str, name: str) -> None:
    """Another one like that which is there: SQLite lets no second node claim one."""
    ids = {"name": name, "shard_id": name.encode() * 4, "grant_id": name.encode() * 4}
    engine = sync_engine(url)
    with engine.begin() as connection:
        row = connection.execute(select(shards)).mappings().one()
        connection.execute(insert(shards).values({**row, **ids}))
    engine.dispose()


@pytest.fixture
async def nodes(databases: Databases) -> AsyncIterator[list[Metadata]]:
    """Two nodes of one database, of the shards a and b, with a topic and a group."""
    url = databases.migrated()
    async with AsyncExitStack() as stack:
        opened = []
        for name in "ab":
            metadata = await Metadata.open(ClusterConfig(url), FakeClock(START_MS))
            stack.push_async_callback(metadata.close)
            metadata.shard = name
            opened.append(metadata)
        await opened[0].claim_shard(Claim(b"aaaa", "a", "node-a", "a:1", "", b"aaaa"))
        add_shard(url, "b")
        await opened[0].ensure_topic("orders")
        await opened[0].ensure_group("billing")
        await opened[1].refresh()
        yield opened


def pair(metadata: Metadata) -> SubscriptionPair:
    group, topic = metadata.snapshot.groups["billing"], metadata.snapshot.topics["orders"]
    return SubscriptionPair(*NAMES, group.generation, topic.generation)


async def enter(
    metadata: Metadata, kind: Consumption, *, force: bool = False
) -> ConsumptionElsewhere | None:
    return await metadata.consumptions.enter(pair(metadata), kind, force=force)


async def held(metadata: Metadata, *, ended_only: bool = False) -> list[ConsumptionRow]:
    return await metadata.consumptions.held(ended_only=ended_only)


async def test_one_shard_keeps_the_other_kind_from_all_others(nodes: list[Metadata]) -> None:
    first, second = nodes
    assert await enter(first, LEASE) is None
    refused = ConsumptionElsewhere("a", LEASE, START_MS)
    assert await enter(second, ASSIGNED) == refused
    assert await second.consumptions.elsewhere(pair(second), ASSIGNED) == refused
    assert await second.consumptions.elsewhere(pair(second), LEASE) is None
    assert await held(second) == []
    assert await enter(second, LEASE) is None
    assert await enter(first, ASSIGNED) == ConsumptionElsewhere("b", LEASE, START_MS)
    await second.consumptions.leave([NAMES])
    assert await enter(first, ASSIGNED) is None
    assert await held(first) == [ConsumptionRow(*NAMES, ASSIGNED, is_ended=False)]


async def test_a_shard_that_was_given_up_keeps_nobody_from_anything(nodes: list[Metadata]) -> None:
    first, second = nodes
    await first.release_shard("b")
    assert await enter(second, LEASE) is None  # it has not heard of it
    assert await first.consumptions.elsewhere(pair(first), ASSIGNED) is None
    assert await enter(first, ASSIGNED) is None


async def test_of_two_kinds_at_once_one_is_entered(nodes: list[Metadata]) -> None:
    asked = zip(nodes * 4, [LEASE, ASSIGNED] * 4, strict=True)
    found = await asyncio.gather(*[enter(each, kind) for each, kind in asked])
    assert found.count(None) == 4
    assert sorted([len(await held(each)) for each in nodes]) == [0, 1]


async def test_by_force_the_rows_of_others_end(nodes: list[Metadata]) -> None:
    first, second = nodes
    await enter(first, LEASE)
    assert await enter(second, ASSIGNED, force=True) is None
    assert await held(first, ended_only=True) == [ConsumptionRow(*NAMES, LEASE, is_ended=True)]
    assert await held(second, ended_only=True) == []
    assert await enter(first, LEASE) == ConsumptionElsewhere("b", ASSIGNED, START_MS)
    assert await enter(first, ASSIGNED) is None
    assert await held(first, ended_only=True) == []


async def test_it_goes_with_the_group_and_the_topic_not_with_offsets(nodes: list[Metadata]) -> None:
    first, second = nodes
    old = pair(first)
    await enter(first, LEASE)
    await enter(second, LEASE)
    await first.delete_offsets(*NAMES)  # the log may refuse that
    assert (len(await held(first)), len(await held(second))) == (1, 1)
    await first.delete_group("billing")
    assert await held(second) == []
    with pytest.raises(GroupNotFound):
        await first.consumptions.enter(old, LEASE, force=True)
    await first.ensure_group("billing", generation=7)
    await enter(first, LEASE)
    await first.delete_topic("orders")
    assert await held(first) == []
    with pytest.raises(TopicNotFound):
        await first.consumptions.enter(old._replace(group_generation=7), LEASE, force=False)
