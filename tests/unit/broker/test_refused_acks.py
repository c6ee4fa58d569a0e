"""Acks that the log has not taken: undone in memory, and SQL never hears of them."""

import asyncio

import pytest

from app.broker.results import Nack
from app.domain.errors import CurlewError, DiskFull
from app.domain.names import retry_topic
from app.domain.settings import DeliveryOrder, GroupSettings
from tests.support.brokers import GROUP, TOPIC, World, bodies, running
from tests.support.memory_store import Held
from tests.support.waiting import until

pytestmark = pytest.mark.anyio


def full() -> CurlewError:
    return DiskFull("no room", outcome="not_stored")


@pytest.mark.parametrize("is_ordered", [False, True])
async def test_acks_that_a_full_disk_refuses_can_be_repeated(is_ordered: bool) -> None:
    async with running() as world:
        if is_ordered:
            await world.group(GroupSettings(order=DeliveryOrder.FIFO))
        await world.send(b"a", b"b", b"c")
        deliveries = await world.receive()
        for _ in range(1 if is_ordered else 3):
            world.store.failure = full()
            with pytest.raises(DiskFull):
                await world.ack(*deliveries)
            world.store.failure = None
        if is_ordered:  # others may have had their turn: the handles are void
            deliveries = await world.receive()
        assert await world.ack(*deliveries) == [None] * len(deliveries)


async def test_who_does_not_repeat_a_refused_ack_gets_the_message_again() -> None:
    async with running() as world:
        await world.retry_at_once()
        await world.send(b"a", b"b")
        first, second = await world.receive()
        world.store.failure = full()
        with pytest.raises(DiskFull):
            await world.ack(first)
        world.store.failure = None
        assert await world.ack(second) == [None]
        await world.lapse(s=31)
        assert bodies(await world.receive()) == [b"a"]


@pytest.mark.parametrize("outcome", ["taken", "refused"])
async def test_sql_hears_of_no_ack_before_the_log_has_it(outcome: str) -> None:
    async with running() as world:
        await world.send(b"a", b"b", b"c")
        deliveries = await world.receive()
        assert await world.ack(deliveries[0]) == [None]
        held: list[Held] = []
        world.store.held = held
        async with asyncio.TaskGroup() as tasks:
            acking = tasks.create_task(
                world.broker.settle(
                    TOPIC, GROUP, acks=[each.receipt_handle for each in deliveries[1:]]
                )
            )
            await until(lambda: bool(held))
            await world.broker._book.write()
            assert committed_in_sql(world) == 1
            acking.cancel()
        world.store.held = None
        _, _, _, _, done = held[0]
        done(None if outcome == "taken" else full())
        await world.broker._book.write()
        assert committed_in_sql(world) == (3 if outcome == "taken" else 1)


async def test_sql_hears_of_no_retry_before_the_log_has_it() -> None:
    async with running() as world:
        await world.retry_at_once()
        await world.send(b"a", b"b")
        first, second = await world.receive()
        world.store.failure = full()
        with pytest.raises(DiskFull):
            await world.broker.settle(TOPIC, GROUP, nacks=[Nack(first.receipt_handle, 0)])
        world.store.failure = None
        assert await world.ack(second) == [None]
        await world.broker._book.write()
        assert committed_in_sql(world) in (None, 0), "the first is neither acked nor copied"
        await world.lapse(s=1)
        await world.broker._book.write()
        assert committed_in_sql(world) == 2
        assert world.store.bounds(retry_topic(GROUP, TOPIC), 0).max_offset == 1


def committed_in_sql(world: World) -> int | None:
    return world.metadata.offsets.get((GROUP, TOPIC, 0))
