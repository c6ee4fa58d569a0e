"""Receiving under a condition: what is leased, what counts as done, how far one request looks."""

import asyncio

import pytest

from app.domain.errors import IllegalFilter
from app.domain.limits import FILTER_LOOK_MESSAGES, Limits
from app.domain.settings import GroupSettings, SubscriptionRule
from tests.support.nodes.brokers import TOPIC, bodies, running
from tests.support.nodes.waiting import until

pytestmark = pytest.mark.anyio


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


async def test_a_condition_over_properties_selects() -> None:
    async with running() as world:
        for number in range(9):
            world.store.fill(TOPIC, 0, [b"%d" % number], properties={"n": str(number)})
        result = await world.receive(filter="sql: n BETWEEN 2 AND 4", max_messages=2)
        assert bodies(result) == [b"2", b"3"]
        await world.ack(*result)
        assert world.committed() == {0: 4}
        result = await world.receive(filter="sql: n BETWEEN 2 AND 4", max_messages=2)
        assert bodies(result) == [b"4"]
        await world.ack(*result)
        assert world.committed() == {0: 9}
        with pytest.raises(IllegalFilter):
            await world.receive(filter="sql: n BETWEEN 4 AND 2")


async def test_a_rare_match_is_found_in_one_receive() -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, numbered(40 * FILTER_LOOK_MESSAGES))
        world.store.fill(TOPIC, 0, [b"found"], properties={"n": "1"})
        assert bodies(await world.receive(filter="sql: n = 1")) == [b"found"]


async def test_a_match_too_far_off_takes_a_second_receive() -> None:
    async with running(limits=Limits(filter_looks_max=8)) as world:
        world.store.fill(TOPIC, 0, numbered(10 * FILTER_LOOK_MESSAGES))
        world.store.fill(TOPIC, 0, [b"found"], properties={"n": "1"})
        assert bodies(await world.receive(filter="sql: n = 1")) == []
        assert world.committed() == {0: 8 * FILTER_LOOK_MESSAGES}
        assert bodies(await world.receive(filter="sql: n = 1")) == [b"found"]


async def test_a_receive_that_waits_goes_on_after_a_cold_read_without_a_match() -> None:
    async with running() as world:
        await world.group(GroupSettings(subscription=SubscriptionRule.FREE))
        await world.receive()
        await world.send(b"other", tag="a")
        world.store.cold.add((TOPIC, 0))
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(world.receive(filter="b", wait_s=60))
            await until(lambda: world.waiting == 1)
            await world.send(b"wanted", tag="b")
        assert [delivery.message.body for delivery in waiting.result()] == [b"wanted"]
