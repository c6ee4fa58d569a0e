"""How much a principal may hold: over all groups, in every way in which it gets messages."""

import asyncio
from collections.abc import Coroutine
from dataclasses import replace

import pytest

from app.broker.polling.poll_values import HandBack
from app.broker.streams.group_stream import GroupStreamRequest
from app.domain.changes.conditions import Terms
from app.domain.errors import TooManyRequests
from app.domain.settings import CustomizedRetry, GroupSettings
from tests.support.nodes.brokers import GROUP, IDLE, TOPIC, World, offsets, running
from tests.support.nodes.waiting import until
from tests.unit.broker.polling.polling_member import Member, queue

pytestmark = pytest.mark.anyio

BOUND = replace(IDLE, leases_per_principal_max=5)


def held(world: World, principal: str = "red") -> int:
    found = world.broker.receiver._of_principals.of(principal)
    assert found is not None
    return found.count


async def test_a_principal_holds_so_many_over_all_groups_and_another_is_not_kept() -> None:
    async with running(config=BOUND) as world:
        world.store.fill(TOPIC, 0, [b"x"] * 9)
        first = await world.receive(3, principal="red")
        assert len(await world.receive(9, group="other", principal="red")) == 2
        with pytest.raises(TooManyRequests) as caught:
            await world.receive(9, principal="red")
        assert caught.value.fields["limit"] == 5
        assert len(await world.receive(9, principal="blue")) == 5
        await world.ack(*first)
        assert held(world) == 2
        assert len(await world.receive(9, principal="red", client_id="w1")) == 1
        assert held(world) == 3


async def test_one_client_id_of_two_principals_counts_for_each() -> None:
    async with running(config=BOUND) as world:
        world.store.fill(TOPIC, 0, [b"x"] * 9)
        await world.receive(3, principal="red", client_id="w1")
        blue = await world.receive(2, principal="blue", client_id="w1")
        await world.ack(*blue)
        assert (held(world), held(world, "blue")) == (3, 0)


async def test_what_ends_a_lease_gives_its_principal_room() -> None:
    async with running(config=BOUND) as world:
        await world.group(GroupSettings(retry_policy=CustomizedRetry((0,))))
        world.store.fill(TOPIC, 0, [b"x"] * 5)
        acked, nacked, released, *_ = await world.receive(5, principal="red")
        await world.ack(acked)
        await world.nack(nacked)
        await world.broker.settler.settle(TOPIC, GROUP, releases=[released.receipt_handle])
        assert held(world) == 2
        await world.lapse(s=31)
        assert held(world) == 0
        await world.receive(2, principal="red")
        assert held(world) == 2
        await world.commit(5, force=True)
        await world.lapse(s=31)
        assert held(world) == 0
        await world.send(b"x")
        await world.receive(1, principal="red")
        assert held(world) > 0
        await world.broker.lifecycle.delete_group(GROUP, Terms())
        assert held(world) == 0


async def test_a_receive_that_is_refused_lets_another_have_its_turn() -> None:
    async with running(config=BOUND) as world, asyncio.TaskGroup() as tasks:
        red = tasks.create_task(refused(world.receive(1, wait_s=30, principal="red")))
        await until(lambda: world.waiting == 1)
        blue = tasks.create_task(world.receive(1, wait_s=30, principal="blue"))
        await until(lambda: world.waiting == 2)
        await world.topic(1, "other")
        world.store.fill("other", 0, [b"x"] * 5)
        assert len(await world.receive(5, topic="other", principal="red")) == 5
        await world.send(b"new")
        await red
        assert offsets(await blue) == [0]


async def refused(receiving: Coroutine[object, object, object]) -> None:
    with pytest.raises(TooManyRequests):
        await receiving


async def test_a_stream_waits_until_something_is_settled() -> None:
    async with running(config=BOUND) as world:
        world.store.fill(TOPIC, 0, [b"x"] * 9)
        request = GroupStreamRequest(credit=9, principal="red")
        with await world.broker.streams.open_group(TOPIC, GROUP, request) as stream:
            given = await stream.next(0)
            assert offsets(given) == [0, 1, 2, 3, 4]
            assert await stream.next(0) == []
            waiting = asyncio.ensure_future(stream.next(60))
            await until(lambda: stream._waiting is not None)
            await world.ack(given[0])
            assert offsets(await waiting) == [5]


async def test_a_poll_gives_no_retries_that_its_principal_has_no_room_for() -> None:
    async with running(config=BOUND) as world:
        world.store.fill(TOPIC, 0, [b"x"] * 2)
        member = Member(world)
        await member.poll()
        await world.topic(1, "other")
        world.store.fill("other", 0, [b"x"] * 5)
        held = await world.receive(5, topic="other", group="others", principal="red")
        back = [HandBack(queue(0), 0, delay_ms=0)]
        assert (await member.poll(hand_backs=back, principal="red")).retries == []
        assert (await member.poll(principal="red")).retries == []
        await world.broker.settler.settle_one(held[0].receipt_handle, "ack")
        found = await member.poll(principal="red")
        assert len(found.retries) == 1


async def test_what_is_being_read_for_a_principal_refuses_it_nothing() -> None:
    """Another receive of it waits, and gets what the first one leaves."""
    async with running(config=BOUND) as world:
        world.store.fill(TOPIC, 0, [b"x"] * 3)
        world.store.cold.add((TOPIC, 0))
        async with asyncio.TaskGroup() as tasks:
            receives = [
                tasks.create_task(world.receive(9, wait_s=60, group=group, principal="red"))
                for group in (GROUP, "other")
            ]
        assert sorted(len(each.result()) for each in receives) == [2, 3]
        assert held(world) == 5
