"""Who may hold how many messages, and groups that are paused."""

import asyncio

import pytest

from app.broker.results import Extend, ReceiveRequest
from app.domain.errors import GroupNotFound, InvalidRequest
from app.domain.settings import CustomizedRetry, GroupSettings
from tests.support.nodes.brokers import GROUP, TOPIC, World, never_gone, offsets, running
from tests.support.nodes.waiting import until

pytestmark = pytest.mark.anyio


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


async def is_paused(world: World) -> bool:
    request = ReceiveRequest()
    return (await world.broker.receiver.receive(TOPIC, GROUP, request, gone=never_gone)).is_paused


async def test_a_paused_group_gets_nothing_and_is_told_so() -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, numbered(3))
        [held] = await world.receive(1)
        await world.broker.group_pause.pause(GROUP)
        assert await world.receive() == []
        assert await is_paused(world)
        assert await world.ack(held) == [None]
        await world.kill()
        assert await world.receive() == []
        await world.broker.group_pause.resume(GROUP)
        assert not await is_paused(world)
        assert offsets(await world.receive()) == [2]
        with pytest.raises(GroupNotFound):
            await world.broker.group_pause.pause("nobody")


async def test_parked_receives_wait_on_and_go_on_when_resumed() -> None:
    async with running() as world, asyncio.TaskGroup() as tasks:
        await world.group(GroupSettings())
        await world.broker.group_pause.pause(GROUP)
        receives = [tasks.create_task(world.receive(1, wait_s=60)) for _ in range(2)]
        await until(lambda: world.waiting == 2)
        await world.send(b"0", b"1")
        await until(lambda: world.waiting == 2)
        assert not any(receive.done() for receive in receives)
        await world.broker.group_pause.resume(GROUP)
        assert sorted(offsets(await receives[0]) + offsets(await receives[1])) == [0, 1]


async def test_what_another_node_changes_about_a_group_wakes_parked_receives() -> None:
    async with running() as world, asyncio.TaskGroup() as tasks:
        await world.group(GroupSettings(paused=True))
        world.store.fill(TOPIC, 0, numbered(2))
        receives = [tasks.create_task(world.receive(1, wait_s=60)) for _ in range(2)]
        await until(lambda: world.waiting == 2)
        await world.metadata.put_group("other", GroupSettings())
        await world.broker.expire_leases()
        await world.metadata.put_group(GROUP, GroupSettings())  # as a refresh shows it
        assert world.waiting == 2
        await world.broker.expire_leases()
        assert sorted(offsets(await receives[0]) + offsets(await receives[1])) == [0, 1]


async def test_a_member_holds_no_more_than_its_bound() -> None:
    async with running() as world:
        settings = GroupSettings(max_in_flight_per_member=3, retry_policy=CustomizedRetry((0,)))
        await world.group(settings)
        world.store.fill(TOPIC, 0, numbered(20))
        first = await world.receive(10, client_id="a")
        assert offsets(first) == [0, 1, 2]
        assert await world.receive(10, client_id="a") == []
        assert offsets(await world.receive(2, client_id="b")) == [3, 4]
        await world.ack(first[0])
        await world.broker.settler.settle(
            TOPIC, GROUP, extends=[Extend(first[1].receipt_handle, 90_000)]
        )
        await world.nack(first[2], delay_ms=3_600_000)
        assert offsets(await world.receive(10, client_id="a")) == [5, 6]
        assert len(await world.receive(10)) == 10  # nobody in particular
        await world.lapse(s=31)
        assert len(await world.receive(10, client_id="a")) == 2
        world.broker.receiver.give_back(await world.receive(10, client_id="b"))
        assert len(await world.receive(10, client_id="b")) == 3
        world.store.retain_from(TOPIC, 0, 20)
        assert len(await world.receive(10, client_id="b")) == 0
        with pytest.raises(InvalidRequest):
            await world.receive(client_id="")


async def test_receives_of_one_member_on_cold_queues_share_its_bound() -> None:
    async with running(queues=2) as world:
        await world.group(GroupSettings(max_in_flight_per_member=3))
        for queue_id in range(2):
            world.store.fill(TOPIC, queue_id, numbered(5))
            world.store.cold.add((TOPIC, queue_id))
        both = await asyncio.gather(*[world.receive(10, client_id="a") for _ in range(2)])
        held = [delivery for each in both for delivery in each]
        assert len(held) == 3
        assert await world.receive(1, client_id="b")
        await world.ack(held[0])
        assert len(await world.receive(10, client_id="a")) == 1  # what was reserved was given back


async def test_a_member_that_waits_at_its_bound_is_woken_by_room() -> None:
    async with running() as world, asyncio.TaskGroup() as tasks:
        await world.group(GroupSettings(max_in_flight_per_member=1))
        world.store.fill(TOPIC, 0, numbered(3))
        [held] = await world.receive(1, client_id="a")
        [other] = await world.receive(1, client_id="b")
        waits_b = tasks.create_task(world.receive(1, client_id="b", wait_s=60))
        await until(lambda: world.waiting == 1)
        waits_a = tasks.create_task(world.receive(1, client_id="a", wait_s=60))
        await until(lambda: world.waiting == 2)
        await world.ack(held)
        assert offsets(await waits_a) == [2]
        assert not waits_b.done()
        await world.ack(other)
        await world.send(b"another")
        assert offsets(await waits_b) == [3]


async def test_clients_that_hold_nothing_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.broker.consume.receiver.HOLDERS_MAX", 10)
    async with running() as world:
        await world.group(GroupSettings(max_in_flight_per_member=1))
        world.store.fill(TOPIC, 0, numbered(1))
        await world.receive(client_id="keeper")
        for number in range(50):
            await world.receive(client_id=str(number))
        subscription = world.broker.groups.find(GROUP, TOPIC)
        assert subscription is not None
        holders = subscription.in_flight.holders
        assert len(holders) <= 11
        assert holders["keeper"].count == 1
