"""Receives that wait for several messages: nothing is leased meanwhile, none spins."""

import asyncio

import pytest

from app.broker.leasing.subscriptions import Subscription
from app.broker.results import BatchItem
from app.domain.errors import InvalidRequest
from app.domain.message import Message
from tests.support.nodes.brokers import GROUP, TOPIC, World, bodies, offsets, running
from tests.support.nodes.waiting import until

pytestmark = pytest.mark.anyio


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


async def test_a_receive_waits_for_so_many_and_leases_nothing_meanwhile() -> None:
    async with running(queues=2) as world, asyncio.TaskGroup() as tasks:
        receive = tasks.create_task(world.receive(wait_s=60, min_messages=3))
        await until(lambda: world.waiting == 1)
        await world.send(b"a", b"b")
        await turns()
        assert world.waiting == 1
        assert len(await world.receive(1)) == 1, "nothing is held for the one that waits"
        await world.send(b"c", queue_id=1)
        await turns()
        assert world.waiting == 1
        world.clock.advance(s=20)
        await world.send(b"d")
        received = await receive
        assert sorted(bodies(received)) == [b"b", b"c", b"d"]
        assert {d.invisible_until_ms for d in received} == {world.clock.now_ms() + 30_000}


async def test_at_the_end_of_its_wait_it_takes_what_there_is() -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, numbered(2))
        assert offsets(await world.receive(wait_s=0.05, min_messages=3)) == [0, 1]
        assert await world.receive(wait_s=0.05, min_messages=3) == []
        world.store.fill(TOPIC, 0, numbered(2))
        assert offsets(await world.receive(wait_s=60, min_messages=2)) == [2, 3]
        world.store.fill(TOPIC, 0, numbered(2))
        assert offsets(await world.receive(2, wait_s=60, min_messages=9)) == [4, 5]
        world.store.fill(TOPIC, 0, numbered(1))
        assert offsets(await world.receive(min_messages=2)) == [6], "it does not wait"


async def test_patient_receives_do_not_wake_each_other_for_ever() -> None:
    async with running() as world, asyncio.TaskGroup() as tasks:
        patient = [
            tasks.create_task(world.receive(wait_s=60, min_messages=needed)) for needed in (4, 3, 3)
        ]
        await until(lambda: world.waiting == 3)
        parked = list(subscription(world).line.patient)
        await world.send(b"1", b"2")
        await turns()
        assert list(subscription(world).line.patient) == parked, "nobody was woken for too little"
        await world.send(b"3")
        await until(lambda: world.waiting == 2)
        assert await patient[1]
        assert not patient[0].done()
        assert not patient[2].done()
        await world.broker.sender.send_batch(TOPIC, [BatchItem(Message(b"x"), 0)] * 3)
        assert len(await patient[2]) == 3
        impatient = tasks.create_task(world.receive(wait_s=60))
        await until(lambda: world.waiting == 2)
        await world.send(b"one")
        assert bodies(await impatient) == [b"one"]
        assert world.waiting == 1
        await world.broker.settings_changes.delete_topic(TOPIC)
        assert await patient[0] == []


async def test_what_runs_out_of_its_lease_counts() -> None:
    async with running() as world, asyncio.TaskGroup() as tasks:
        await world.retry_at_once()
        world.store.fill(TOPIC, 0, numbered(2))
        await world.receive(2, invisible_ms=5_000)
        receive = tasks.create_task(world.receive(wait_s=60, min_messages=2))
        await until(lambda: world.waiting == 1)
        await world.lapse(s=5)
        assert sorted(offsets(await receive)) == [0, 1]


async def test_how_many_match_a_filter_is_not_known_beforehand() -> None:
    async with running() as world:
        with pytest.raises(InvalidRequest, match="filter"):
            await world.receive(min_messages=2, filter="a")
        with pytest.raises(InvalidRequest):
            await world.receive(min_messages=0)


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def subscription(world: World) -> Subscription:
    found = world.broker.groups.find(GROUP, TOPIC)
    assert found is not None
    return found
