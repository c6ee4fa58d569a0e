"""Who waits at another node hears of news, is leased nothing, and takes nobody's waking away."""

import asyncio

import pytest

from app.broker.consume.news import CLOSED, ENDED
from tests.support.nodes.brokers import GROUP, TOPIC, World, bodies, running
from tests.support.nodes.waiting import until

pytestmark = pytest.mark.anyio


def state(world: World) -> str:
    return world.broker.news.state(TOPIC, GROUP)


async def wait(world: World, known: str) -> str:
    return await world.broker.news.wait(TOPIC, GROUP, known, 60)


async def test_a_message_is_news_and_goes_to_who_waits_here() -> None:
    async with running() as world:
        assert await wait(world, "") == state(world), "no such state: there is nothing to wait for"
        assert await world.receive() == []
        known = state(world)
        news = [asyncio.ensure_future(wait(world, known)) for _ in range(2)]
        await until(lambda: world.waiting == 2)
        here = asyncio.ensure_future(world.receive(wait_s=60))
        await until(lambda: world.waiting == 3)
        await world.send(b"x")
        assert bodies(await here) == [b"x"]
        assert all(each != known for each in await asyncio.gather(*news))
        assert await wait(world, known) == state(world)


async def test_what_happened_since_the_look_is_news_though_nobody_waited() -> None:
    async with running() as world:
        await world.retry_at_once()
        known = state(world)
        await world.send(b"x")
        (delivery,) = await world.receive()
        assert await wait(world, known) != known
        known = state(world)
        await world.lapse(s=31)
        assert await wait(world, known) != known
        (again,) = await world.receive()
        assert again.attempt == delivery.attempt + 1


async def test_a_wait_ends_with_the_group_and_with_the_node() -> None:
    async with running() as world:
        await world.receive()
        news = asyncio.ensure_future(wait(world, state(world)))
        await until(lambda: world.waiting == 1)
        await world.broker.settings_changes.delete_group(GROUP)
        assert await news == ENDED
        await world.receive()
        news = asyncio.ensure_future(wait(world, state(world)))
        await until(lambda: world.waiting == 1)
        world.broker.long_polls.close()
        assert await news == CLOSED
        assert await wait(world, state(world)) == CLOSED
