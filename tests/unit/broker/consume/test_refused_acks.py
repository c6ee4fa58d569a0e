"""Acks that the log has not taken: undone in memory, and SQL never hears of them."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from app.broker.results import BatchItem, Delivery, Nack, Send
from app.domain.errors import CurlewError, DiskFull
from app.domain.message import Message
from app.domain.names import dead_letter_topic, retry_topic
from app.domain.settings import DeliveryOrder, GroupSettings, SubscriptionRule, WhenExhausted
from tests.support.nodes.brokers import GROUP, TOPIC, World, bodies, running
from tests.support.nodes.waiting import until
from tests.support.stores.memory_store import Held

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
                world.broker.settler.settle(
                    TOPIC, GROUP, acks=[each.receipt_handle for each in deliveries[1:]]
                )
            )
            await until(lambda: bool(held))
            await world.broker.offset_cache.write()
            assert committed_in_sql(world) == 1
            acking.cancel()
        world.store.held = None
        _, _, _, _, done = held[0]
        done(None if outcome == "taken" else full())
        await world.broker.offset_cache.write()
        assert committed_in_sql(world) == (3 if outcome == "taken" else 1)


async def test_sql_hears_of_no_retry_before_the_log_has_it() -> None:
    async with running() as world:
        await world.retry_at_once()
        await world.send(b"a", b"b")
        first, second = await world.receive()
        world.store.failure = full()
        with pytest.raises(DiskFull):
            await world.broker.settler.settle(TOPIC, GROUP, nacks=[Nack(first.receipt_handle, 0)])
        world.store.failure = None
        assert await world.ack(second) == [None]
        await world.broker.offset_cache.write()
        assert committed_in_sql(world) in (None, 0), "the first is neither acked nor copied"
        await world.lapse(s=1)
        await world.broker.offset_cache.write()
        assert committed_in_sql(world) == 2
        assert world.store.bounds(retry_topic(GROUP, TOPIC), 0).max_offset == 1


def committed_in_sql(world: World) -> int | None:
    return world.metadata.offsets.get((GROUP, TOPIC, 0))


async def in_order(world: World, *keyed: str, **more: Any) -> list[Delivery]:
    """A group in order receives one message of each key, which is its first letter."""
    await world.group(GroupSettings(order=DeliveryOrder.FIFO, **more))
    for body in keyed:
        await world.broker.sender.send(
            TOPIC, Message(body.encode(), sharding_key=body[0]), queue_id=0
        )
    return await world.receive()


async def refused(world: World, *steps: Coroutine[Any, Any, object]) -> None:
    """Steps that the log takes together and then rolls back together."""
    world.store.failure = full()
    outcomes = await asyncio.gather(*steps, return_exceptions=True)
    world.store.failure = None
    assert [type(each) for each in outcomes] == [DiskFull] * len(steps)


@pytest.mark.parametrize("how", ["acks", "ack and dead letter", "acks and sends"])
@pytest.mark.parametrize("is_killed", [False, True])
async def test_steps_of_one_ordered_queue_that_are_refused_together_lose_nothing(
    how: str, is_killed: bool
) -> None:
    async with running() as world:
        a, b = await in_order(world, "a1", "b1", max_attempts=1 if "letter" in how else 5)
        if how == "acks":
            await refused(world, world.ack(a), world.ack(b))
        elif how == "acks and sends":
            await refused(world, *(acked_with_send(world, each) for each in (a, b)))
        else:
            await refused(world, world.ack(a), world.nack(b))
        if is_killed:
            await world.broker.consumer_journal._journal.write_snapshot()
            await world.kill()
        seen = {*bodies(await world.receive())}
        await world.lapse(s=60)
        await world.lapse(s=60)
        letters = world.store.queues.get((dead_letter_topic(GROUP), 0))
        for record in [] if letters is None else letters.records:
            assert record is not None
            seen.add(world.store.decode(memoryview(record)).body)
        assert seen == {b"a1", b"b1"}


async def acked_with_send(world: World, delivery: Delivery) -> None:
    send = Send(TOPIC, BatchItem(Message(b"made of it", sharding_key="z")))
    await world.broker.ack_and_produce.ack_and_send(TOPIC, GROUP, [delivery.receipt_handle], [send])


async def test_a_key_in_order_waits_for_a_dead_letter_that_was_refused() -> None:
    async with running() as world:
        [first] = await in_order(world, "a1", "a2", max_attempts=1)
        await refused(world, world.nack(first))
        assert bodies(await world.receive()) == [], "a1 is neither acked nor a dead letter"
        await world.lapse(s=60)
        assert world.store.bounds(dead_letter_topic(GROUP), 0).max_offset == 1
        assert bodies(await world.receive()) == [b"a2"]


async def test_a_park_or_a_skip_that_was_refused_is_carried_out_later() -> None:
    async with running() as world:
        [first] = await in_order(world, "a1", "a2", max_attempts=1, on_exhausted=WhenExhausted.SKIP)
        await refused(world, world.nack(first))
        await world.group(
            GroupSettings(order=DeliveryOrder.FIFO, max_attempts=1, on_exhausted=WhenExhausted.PARK)
        )
        assert await world.receive() == []
        await world.lapse(s=60)
        assert await world.receive() == []
        assert [parked.message.offset for parked in world.broker.blocked_keys.parked(GROUP)] == [0]


@pytest.mark.parametrize("how", ["ack", "retry"])
async def test_a_refused_ack_forgets_no_delivery(how: str) -> None:
    async with running() as world:
        await world.retry_at_once()
        await world.send(b"a")
        [delivery] = await world.receive()
        await refused(world, world.ack(delivery) if how == "ack" else world.nack(delivery))
        await world.broker.consumer_journal._journal.write_snapshot()
        await world.kill()
        [delivery] = await world.receive()
        assert delivery.attempt == 2


async def test_a_refused_ack_of_a_retry_counts_no_delivery_twice() -> None:
    async with running() as world:
        await world.retry_at_once()
        await world.send(b"a")
        await world.nack(*(await world.receive()))
        [delivery] = await world.receive()
        assert delivery.attempt == 2
        await refused(world, world.ack(delivery))
        await world.broker.consumer_journal._journal.write_snapshot()
        await world.kill()
        [delivery] = await world.receive()
        assert delivery.attempt == 3


async def test_a_filter_that_leaves_messages_out_tells_sql_of_no_ack_under_way() -> None:
    async with running() as world:
        for tag in ("a", "b", "b"):
            await world.send(b"x", tag=tag)
        [delivery] = await world.receive(1, filter="a")
        held: list[Held] = []
        world.store.held = held
        async with asyncio.TaskGroup() as tasks:
            acking = tasks.create_task(world.ack(delivery))
            await until(lambda: bool(held))
            assert await world.receive(filter="a") == []
            assert world.broker.offset_cache.committed(GROUP, TOPIC).get(0, 0) == 0
            world.store.confirm()
            await acking
        assert world.broker.offset_cache.committed(GROUP, TOPIC) == {0: 3}


async def test_what_a_filter_leaves_out_leaves_nothing_behind() -> None:
    async with running() as world:
        await world.group(GroupSettings(subscription=SubscriptionRule.FREE))
        for tag in ("a", "b", "b"):
            await world.send(b"x", tag=tag)
        await world.receive(filter="b")
        world.is_away_long = True
        await world.kill()
        await world.receive(filter="a")
        subscription = world.broker.groups.find(GROUP, TOPIC)
        assert subscription is not None
        assert set(subscription.queues[0].state.deliveries) == {0}
