"""A message handed back untouched is visible at once in its place; no attempt is counted."""

import asyncio

import pytest

from app.broker.results import Delivery, Extend, Nack
from app.broker.tracing.trace_notes import TraceKind
from app.domain.errors import (
    CurlewError,
    DiskFull,
    InvalidReceiptHandle,
    ReceiptHandleExpired,
    StoreFailed,
    TooManyRequests,
)
from app.domain.message import Message
from app.domain.settings import CustomizedRetry, DeliveryOrder, GroupSettings
from tests.support.nodes.brokers import GROUP, TOPIC, World, bodies, offsets, running
from tests.support.nodes.waiting import until

pytestmark = pytest.mark.anyio


async def release(world: World, *deliveries: Delivery) -> list[type[CurlewError] | None]:
    handles = [each.receipt_handle for each in deliveries]
    results = await world.broker.settler.settle(TOPIC, GROUP, releases=handles)
    assert [result.action for result in results] == ["release"] * len(handles)
    return [type(result.error) if result.error else None for result in results]


def attempts(deliveries: list[Delivery]) -> list[int]:
    return [each.attempt for each in deliveries]


async def test_it_comes_again_at_once_in_its_place_as_if_for_the_first_time() -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, [b"%d" % number for number in range(6)])
        first = await world.receive(4)
        assert await release(world, first[2], first[1]) == [None, None]
        again = await world.receive()
        assert offsets(again) == [1, 2, 4, 5]
        assert attempts(again) == [1] * 4
        assert await world.ack(*first) == [None, *[ReceiptHandleExpired] * 2, None]
        assert await world.ack(*again) == [None] * 4


async def test_a_receive_that_waits_is_answered() -> None:
    async with running() as world, asyncio.TaskGroup() as tasks:
        world.store.fill(TOPIC, 0, [b"a"])
        first = await world.receive()
        waiting = tasks.create_task(world.receive(wait_s=60))
        await until(lambda: world.waiting == 1)
        assert await release(world, *first) == [None]
        assert attempts(await waiting) == [1]


@pytest.mark.parametrize("released", [True, False])
async def test_a_kill_finds_it_untouched(released: bool) -> None:
    """The control: what was not handed back has used an attempt up."""
    async with running() as world:
        world.store.fill(TOPIC, 0, [b"a", b"b", b"c"])
        first = await world.receive()
        if released:
            await release(world, first[0], first[2])
        await world.kill()
        again = await world.receive()
        assert offsets(again) == [0, 1, 2]
        assert attempts(again) == ([1, 2, 1] if released else [2, 2, 2])


async def test_a_release_waits_for_the_log() -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, [b"a"])
        first = await world.receive()
        world.store.held = []
        released = asyncio.ensure_future(release(world, *first))
        await until(lambda: bool(world.store.held))
        await asyncio.sleep(0)
        assert not released.done()
        world.store.confirm()
        assert await released == [None]


async def test_attempts_of_before_stay_as_they_were() -> None:
    async with running() as world:
        await world.group(GroupSettings(retry_policy=CustomizedRetry((0,)), max_attempts=2))
        world.store.fill(TOPIC, 0, [b"a"])
        await world.nack(*await world.receive())
        for _ in range(3):
            last = await world.receive()
            assert attempts(last) == [2]
            await release(world, *last)
        await world.kill()
        last = await world.receive()
        assert (attempts(last), bodies(last)) == ([2], [b"a"])
        await world.nack(*last)
        assert await world.receive() == []
        assert (await world.broker.dead_letters.summary(GROUP)).messages == 1


async def test_a_group_in_order_goes_on_in_order() -> None:
    async with running() as world:
        await world.group(GroupSettings(order=DeliveryOrder.FIFO, max_attempts=2))
        for body, key in ((b"a1", "a"), (b"a2", "a"), (b"b1", "b")):
            await world.broker.sender.send(TOPIC, Message(body, sharding_key=key), queue_id=0)
        for kill in (False, True, False):
            first = await world.receive()
            assert (bodies(first), attempts(first)) == ([b"a1", b"b1"], [1, 1])
            await release(world, *first)
            if kill:
                await world.kill()
        a1, b1 = await world.receive()
        await release(world, b1)
        await world.ack(a1)
        assert sorted(bodies(await world.receive())) == [b"a2", b"b1"]


async def test_only_the_newest_live_handle_of_its_group_releases_and_once() -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, [b"a", b"b", b"c"])
        a, b, c = await world.receive(3)
        [extended] = await world.broker.settler.settle(
            TOPIC, GROUP, extends=[Extend(b.receipt_handle, 60_000)]
        )
        assert await release(world, a, a, b) == [None, *[ReceiptHandleExpired] * 2]
        world.clock.advance(s=30)
        assert await release(world, c) == [ReceiptHandleExpired]
        assert extended.new_handle is not None
        result = await world.broker.settler.settle_one(extended.new_handle, "release")
        assert (result.action, result.error) == ("release", None)
        with pytest.raises(ReceiptHandleExpired):
            await world.broker.settler.settle_one(extended.new_handle, "release")
        assert attempts(await world.receive(2)) == [1, 1]
        [foreign] = await world.receive(1, group="other")
        assert await release(world, foreign) == [InvalidReceiptHandle]


async def test_a_full_disk_keeps_nothing_from_being_handed_back() -> None:
    """Refused at once or when it is written: the next entry with room has the right number."""
    for how in ("failure", "refusal"):
        async with running() as world:
            world.store.fill(TOPIC, 0, [b"a"])
            first = await world.receive()
            setattr(world.store, how, DiskFull("no room", outcome="not_stored"))
            assert await release(world, *first) == [None]
            setattr(world.store, how, None)
            assert attempts(await world.receive()) == [1]
            await world.kill()
            assert attempts(await world.receive()) == [2]


async def test_a_broken_store_is_told_of() -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, [b"a"])
        first = await world.receive()
        world.store.refusal = StoreFailed("broken")
        with pytest.raises(StoreFailed):
            await release(world, *first)


async def test_the_trail_says_so() -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, [b"a"])
        await release(world, *await world.receive())
        await world.broker.message_trace.turn()
        trail = await world.broker.message_trace.trail(TOPIC, 0, 0, group=GROUP)
        kinds = [event.kind for event in trail.events]
        assert kinds == [TraceKind.DELIVERED, TraceKind.RELEASED]


async def test_a_release_that_is_refused_keeps_no_nack_of_its_request_from_being_dealt_with() -> (
    None
):
    async with running() as world:
        await world.retry_at_once()
        world.store.fill(TOPIC, 0, [b"a", b"b"])
        first, second = await world.receive()
        world.store.refusal = TooManyRequests("too many bytes wait")
        nacks, releases = [Nack(first.receipt_handle, 0)], [second.receipt_handle]
        with pytest.raises(TooManyRequests):
            await world.broker.settler.settle(TOPIC, GROUP, nacks=nacks, releases=releases)
        world.store.refusal = None
        await world.lapse()
        again = await world.receive()
        assert sorted(zip(bodies(again), attempts(again), strict=True)) == [(b"a", 2), (b"b", 1)]


@pytest.mark.parametrize("error", [TooManyRequests, DiskFull])
async def test_a_delivery_that_the_log_refused_takes_none_of_before_back(
    error: type[CurlewError],
) -> None:
    """A receive that is refused is handed back by the node; one on a full disk, by its client."""
    async with running() as world:
        retry = CustomizedRetry((0,))
        await world.group(GroupSettings(order=DeliveryOrder.FIFO, retry_policy=retry))
        world.store.fill(TOPIC, 0, [b"a"])
        await world.nack(*await world.receive())
        world.store.refusal = error("no")
        if error is DiskFull:
            received = await world.receive()
            world.store.refusal = None
            assert await release(world, *received) == [None]
        else:
            with pytest.raises(error):
                await world.receive()
            world.store.refusal = None
        assert attempts(await world.receive()) == [2]
        await world.kill()
        assert attempts(await world.receive()) == [3]
