"""Epochs of a producer: how many queues one spreads over, its turns, its end."""

from dataclasses import replace

import pytest
from msgspec.json import encode

from app.broker.dedup.dedup_table import DedupTable
from app.domain.errors import (
    DiskFull,
    ProducerFenced,
    ProducerSealed,
    SequenceOutOfOrder,
    TooManyRequests,
)
from app.domain.limits import Limits
from app.domain.shards.takes import Takes
from tests.support.nodes.brokers import TOPIC, World, running
from tests.unit.broker.dedup.test_deduplicator import DAY_MS, claim, send

pytestmark = pytest.mark.anyio


async def plan(world: World, epoch: int, family: str = "spark:q1", topic: str = TOPIC) -> int:
    found = world.metadata.snapshot.topics[topic]
    return (await world.broker.producers.plan(family, epoch, found)).queues


@pytest.mark.parametrize("snapshot", [False, True])
async def test_an_epoch_spreads_over_as_many_queues_as_when_it_began(snapshot: bool) -> None:
    async with running(queues=2) as world:
        await world.topic(1, "other")
        assert (await plan(world, 7), await plan(world, 7, topic="other")) == (2, 1)
        await world.topic(5)
        assert (await plan(world, 7), await plan(world, 7, "spark:q2")) == (2, 5)
        if snapshot:
            await world.broker.dedup_journal.journal.write_snapshot()
        await world.restart()
        assert (await plan(world, 7), await plan(world, 7, topic="other")) == (2, 1)
        assert await plan(world, 8) == 5
        with pytest.raises(ProducerFenced) as fenced:
            await plan(world, 7)
        assert fenced.value.fields == {"epoch": 8}


@pytest.mark.parametrize("snapshot", [False, True])
async def test_an_epoch_keeps_the_turns_that_it_began_with(snapshot: bool) -> None:
    async with running() as world:
        topic = world.metadata.snapshot.topics[TOPIC]
        wishes = ((5, 5), (8, 5), (None, 5))
        for wanted, expected in wishes:
            found = await world.broker.producers.plan("spark:q1", 7, topic, wanted)
            assert found.messages_per_turn == expected
            if snapshot:
                await world.broker.dedup_journal.journal.write_snapshot()
            await world.restart()
        table = DedupTable(Limits())
        table.apply(b'["n","spark:q1",7,"orders",3,1000]')
        early = table.plan("spark:q1", 7, "orders", 1000)
        assert early is not None
        assert (early.queues, early.messages_per_turn) == (3, None)


@pytest.mark.parametrize("snapshot", [False, True])
async def test_an_epoch_that_begins_while_a_shard_drains_leaves_its_queues_out(
    snapshot: bool,
) -> None:
    async with running(queues=3) as world:
        before = world.metadata.snapshot.topics[TOPIC]
        drains = replace(before, shards=("a", "b", "a"), here="a", drains=(("b", Takes.KEYED),))
        assert (await world.broker.producers.plan("spark:q1", 6, before)).queue_ids is None
        for topic in drains, before:
            found = await world.broker.producers.plan("spark:q1", 7, topic)
            assert (found.queues, list(found.queue_ids or ())) == (2, [0, 2])
            assert (found.write_queues, list(found.key_queue_ids or ())) == (3, [0, 1, 2])
            if snapshot:
                await world.broker.dedup_journal.journal.write_snapshot()
            await world.restart()
        assert (await world.broker.producers.plan("spark:q1", 8, before)).queues == 3
        moved = replace(before, shards=("a", "b", "a"), here="a", drains=(("b", Takes.NONE),))
        found = await world.broker.producers.plan("spark:q1", 9, moved)
        assert (found.write_queues, found.key_queue_ids) == (3, (0, 2))


def test_a_plan_of_an_early_version_does_not_say_where_keys_go() -> None:
    table = DedupTable(Limits())
    early = ["n", "spark:q1", 7, "orders", 2, 1000, 5, [0, 2]]
    table.apply(encode(early))
    plan = table.plan("spark:q1", 7, "orders", 1000)
    assert plan is not None
    assert (plan.queue_ids, plan.write_queues, plan.key_queue_ids) == ([0, 2], None, None)
    assert list(plan.fields) == early[1:]


async def test_an_epoch_that_lacks_messages_is_not_closed() -> None:
    async with running(queues=2) as world:
        await send(world, b"a", claim(0))
        await send(world, b"b", claim(1))
        await send(world, b"c", claim(0, producer="spark:q1:1"))
        await send(world, b"x", claim(0, producer="spark:q2:0"))
        with pytest.raises(SequenceOutOfOrder, match="of 4 messages of epoch 0") as lacking:
            await world.broker.producers.seal("spark:q1", 0, 4)
        assert lacking.value.fields == {"stored": 3}
        assert (await send(world, b"a", claim(0))).is_repeated
        await send(world, b"d", claim(2))
        await world.restart()
        assert await world.broker.producers.seal("spark:q1", 0, 4) == 0
        assert await world.broker.producers.seal("spark:q1", 0, 4) == 0, (
            "what is closed is not counted again"
        )
        with pytest.raises(SequenceOutOfOrder, match="0 are stored"):
            await world.broker.producers.seal("spark:q1", 1, 1)


async def test_a_closed_epoch_plans_nothing_and_its_plans_are_forgotten() -> None:
    async with running(limits=Limits(producers_max=1)) as world:
        await plan(world, 7)
        with pytest.raises(TooManyRequests, match="1 plans of producers"):
            await plan(world, 0, "spark:q2")
        assert await plan(world, 8) == 1
        await world.broker.producers.seal("spark:q1", 7)
        with pytest.raises(TooManyRequests):
            await plan(world, 0, "spark:q2")
        await world.broker.producers.seal("spark:q1", 8)
        with pytest.raises(ProducerSealed):
            await plan(world, 8)
        assert await plan(world, 0, "spark:q2") == 1
        world.clock.advance(ms=8 * DAY_MS)
        assert await plan(world, 0, "spark:q3") == 1


async def test_a_plan_that_was_not_written_is_made_again() -> None:
    async with running() as world:
        world.store.failure = DiskFull("no room", outcome="not_stored")
        with pytest.raises(DiskFull):
            await plan(world, 7)
        world.store.failure = None
        assert await plan(world, 7) == 1
        await world.topic(5)
        await world.restart()
        assert await plan(world, 7) == 1
