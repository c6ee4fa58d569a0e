"""Subscriptions: one is made at the first use, and goes with its group."""

import asyncio

import pytest

from app.domain.settings import GroupSettings
from tests.support.nodes.brokers import GROUP, TOPIC, offsets, put_group, running
from tests.support.nodes.waiting import until

pytestmark = pytest.mark.anyio


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


async def test_two_first_receives_at_once_make_one_subscription() -> None:
    async with running() as world:
        await world.group(GroupSettings(start=1))
        world.store.fill(TOPIC, 0, numbered(4))
        world.store.cold.add((TOPIC, 0))
        async with asyncio.TaskGroup() as tasks:
            first = tasks.create_task(world.receive(2, wait_s=60))
            second = tasks.create_task(world.receive(2, wait_s=60))
        assert sorted(offsets(first.result()) + offsets(second.result())) == [0, 1, 2, 3]


async def test_deleting_a_group_frees_its_room_and_ends_its_waits() -> None:
    async with running() as world, asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(world.receive(wait_s=60))
        await until(lambda: world.waiting == 1)
        await world.broker.settings_changes.delete_group(GROUP)
        assert await waiting == []
        await put_group(world.broker, GROUP, GroupSettings(max_in_flight=1))
        world.store.fill(TOPIC, 0, numbered(1))
        assert len(await world.receive()) == 1
