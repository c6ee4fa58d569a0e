"""Parked and released messages of groups in order that the log takes and then rolls back: memory
forgets them with the log, so that a kill makes no other history of them."""

import asyncio

import pytest

from app.broker.failures.blocked_keys import Release
from app.broker.results import Delivery
from app.domain.errors import DiskFull, MessageNotFound
from app.domain.settings import CustomizedRetry, WhenExhausted
from tests.support.nodes.brokers import GROUP, TOPIC, World, running
from tests.support.nodes.waiting import until
from tests.support.stores.memory_store import Held
from tests.unit.broker.failures.test_refused_moves import killed, refused
from tests.unit.broker.leasing.test_ordering import ordered, send, texts

pytestmark = pytest.mark.anyio

ENDS = ("now", "killed", "snapshot")


def full() -> DiskFull:
    return DiskFull("full", outcome="not_stored")


async def begun(world: World) -> list[Delivery]:
    """The last delivery of "a1", which stands at offset 0 and "a2" behind it."""
    at_once = CustomizedRetry((0,))
    await ordered(world, on_exhausted=WhenExhausted.PARK, max_attempts=2, retry_policy=at_once)
    await send(world, "a1", "a2")
    await world.nack(*await world.receive())
    return await world.receive()


async def parked(world: World) -> None:
    await world.nack(*await begun(world))
    assert parked_now(world) == [0]


def parked_now(world: World) -> list[int]:
    return [each.message.offset for each in world.broker.blocked_keys.parked(GROUP)]


async def release(world: World) -> object:
    return await world.broker.blocked_keys.release(GROUP, TOPIC, 0, 0, Release.RETRY)


def in_flight(world: World) -> int:
    subscription = world.broker.groups.find(GROUP, TOPIC)
    assert subscription is not None
    return subscription.in_flight.count


async def end_as(world: World, end: str) -> None:
    if end != "now":
        await killed(world, snapshot=end == "snapshot")


@pytest.mark.parametrize("end", ENDS)
async def test_what_the_log_refused_to_park_is_parked_by_the_next_turn(end: str) -> None:
    async with running() as world:
        deliveries = await begun(world)
        await refused(world, world.nack(*deliveries))
        assert parked_now(world) == []
        assert in_flight(world) == 1, "it is failing still"
        await end_as(world, end)
        assert parked_now(world) == []
        assert await world.receive() == []
        await world.lapse()
        assert parked_now(world) == [0]
        assert in_flight(world) == 0
        await release(world)
        assert texts(await world.receive()) == ["a1"]


async def test_a_refused_parking_that_nobody_waits_for_is_undone_as_well() -> None:
    async with running() as world:
        deliveries = await begun(world)
        held: list[Held] = []
        world.store.held = held
        nacking = asyncio.ensure_future(world.nack(*deliveries))
        await until(lambda: bool(held))
        nacking.cancel()
        world.store.held = None
        held[0][4](full())
        assert parked_now(world) == []
        await world.lapse()
        assert parked_now(world) == [0]


async def test_a_refused_parking_beside_a_refused_reset_comes_back_with_neither() -> None:
    async with running() as world:
        deliveries = await begun(world)
        await refused(world, world.nack(*deliveries), world.commit(0, force=True, take_over=True))
        assert parked_now(world) == []
        await world.lapse()
        assert texts(await world.receive(force=True)) == []
        await world.lapse()
        assert parked_now(world) == [0]


@pytest.mark.parametrize("seen", [False, True], ids=["after a restart", "seen"])
@pytest.mark.parametrize("end", ENDS)
async def test_what_the_log_refused_to_release_is_parked(end: str, seen: bool) -> None:
    async with running() as world:
        await parked(world)
        if not seen:
            await world.kill()
        await refused(world, release(world))
        assert parked_now(world) == [0]
        assert await world.receive() == []
        await end_as(world, end)
        assert parked_now(world) == [0]
        assert await world.receive() == []
        await release(world)
        assert parked_now(world) == []
        [again] = await world.receive()
        assert (texts([again]), again.attempt) == (["a1"], 1)
        await world.ack(again)
        assert texts(await world.receive()) == ["a2"]


@pytest.mark.parametrize("seen", [False, True], ids=["after a restart", "seen"])
@pytest.mark.parametrize("error", [None, full()], ids=["taken", "refused"])
async def test_nobody_gets_it_before_the_log_has_its_release(
    error: DiskFull | None, seen: bool
) -> None:
    async with running() as world:
        await parked(world)
        if not seen:
            await world.kill()
        held: list[Held] = []
        world.store.held = held
        releasing = asyncio.ensure_future(release(world))
        await until(lambda: bool(held))
        world.store.held = None
        assert await world.receive() == []
        with pytest.raises(MessageNotFound):
            await release(world)  # another was quicker
        world.store.held = held
        if error is None:
            world.store.confirm()
            await releasing
        else:
            held.pop()[4](error)
            with pytest.raises(DiskFull):
                await releasing
        world.store.held = None
        assert parked_now(world) == ([] if error is None else [0])
        assert texts(await world.receive()) == (["a1"] if error is None else [])


@pytest.mark.parametrize("error", [None, full()], ids=["taken", "refused"])
@pytest.mark.parametrize("meanwhile", ["commit", "reset", "delete", "refused ack"])
async def test_what_happens_while_one_is_released_holds(
    meanwhile: str, error: DiskFull | None
) -> None:
    async with running() as world:
        await parked(world)
        await send(world, "b1")
        [b1] = await world.receive()
        held: list[Held] = []
        world.store.held = held
        releasing = asyncio.ensure_future(release(world))
        await until(lambda: bool(held))
        world.store.held = None
        if meanwhile == "delete":
            await world.broker.settings_changes.delete_group(GROUP)
            await ordered(world)
        elif meanwhile == "refused ack":  # the queue begins again where it is committed
            await refused(world, world.ack(b1))
        else:
            is_reset = meanwhile == "reset"
            await world.commit(0 if is_reset else 1, force=is_reset, take_over=not is_reset)
        world.store.held = held
        if error is None:
            world.store.confirm()
        else:
            held.pop()[4](error)
        world.store.held = None
        await asyncio.gather(releasing, return_exceptions=True)
        is_parked = meanwhile == "refused ack" and error is not None
        assert parked_now(world) == ([0] if is_parked else [])
        wanted = ["b1"] if is_parked else ["a2" if meanwhile == "commit" else "a1", "b1"]
        assert texts(await world.receive(force=True)) == wanted


@pytest.mark.parametrize("when", ["before", "while its key is read"])
async def test_nothing_is_made_of_what_a_deleted_topic_still_holds(
    when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running() as world:
        deliveries = await begun(world)
        await refused(world, world.nack(*deliveries))
        subscription = world.broker.groups.find(GROUP, TOPIC)
        assert subscription is not None
        assert in_flight(world) == 1, "it is failing still"
        steps = []

        async def key_of(_item: object) -> str:
            steps.append(subscription.close())  # which has let go of nothing yet
            return "a"

        if when == "before":
            await key_of(None)
        else:
            monkeypatch.setattr(world.broker.failed_deliveries, "_key_of", key_of)
        await world.broker.failed_deliveries.watch(subscription)
        assert len(steps) == 1
        assert parked_now(world) == []
        assert in_flight(world) == 1, "the deletion lets it go"
