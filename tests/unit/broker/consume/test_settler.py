"""Settling by handle: what a handle can still do, and when it cannot any more."""

import pytest

from app.broker.results import Extend, Nack
from app.domain.errors import (
    CurlewError,
    GroupNotFound,
    IllegalInvisibleTime,
    InvalidReceiptHandle,
    ReceiptHandleExpired,
    TopicNotFound,
)
from tests.support.nodes.brokers import GROUP, TOPIC, World, offsets, running

pytestmark = pytest.mark.anyio

EXPIRED = [ReceiptHandleExpired]


async def one(world: World, **more: object) -> str:
    """The handle of one leased message."""
    world.store.fill(TOPIC, 0, [b"x"])
    [delivery] = await world.receive(1, **more)  # type: ignore[arg-type]
    return delivery.receipt_handle


async def error_of(world: World, **handles: object) -> type[CurlewError] | None:
    [result] = await world.broker.settler.settle(TOPIC, GROUP, **handles)  # type: ignore[arg-type]
    return type(result.error) if result.error else None


async def test_an_ack_is_for_good() -> None:
    async with running() as world:
        await world.retry_at_once()
        world.store.fill(TOPIC, 0, [b"a", b"b", b"c"])
        received = await world.receive()
        assert await world.ack(received[2], received[0]) == [None, None]
        assert world.committed() == {0: 1}
        await world.lapse(s=31)
        assert offsets(await world.receive()) == [1]


async def test_acking_twice_is_fine() -> None:
    async with running() as world:
        handle = await one(world)
        for _ in range(3):
            assert await error_of(world, acks=[handle]) is None


async def test_acking_twice_with_an_extended_or_redelivered_handle_is_fine() -> None:
    async with running() as world:
        await world.retry_at_once()
        handle = await one(world)
        [extended] = await world.broker.settler.settle(
            TOPIC, GROUP, extends=[Extend(handle, 60_000)]
        )
        assert extended.new_handle is not None
        assert await error_of(world, acks=[extended.new_handle]) is None
        assert await error_of(world, acks=[extended.new_handle]) is None
        assert await error_of(world, acks=[handle]) is ReceiptHandleExpired
        await one(world)
        await world.lapse(s=31)
        [again] = await world.receive()
        assert await world.ack(again, again) == [None, None]


async def test_an_expired_handle_never_succeeds() -> None:
    async with running() as world:
        await world.retry_at_once()
        handle = await one(world)
        await world.lapse(s=30)
        assert await error_of(world, acks=[handle]) is ReceiptHandleExpired
        assert await error_of(world, nacks=[Nack(handle)]) is ReceiptHandleExpired
        assert await error_of(world, extends=[Extend(handle, 5_000)]) is ReceiptHandleExpired
        [again] = await world.receive()
        assert await error_of(world, acks=[handle]) is ReceiptHandleExpired
        assert await world.ack(again) == [None]
        assert await error_of(world, acks=[handle]) is ReceiptHandleExpired


async def test_a_repeated_ack_after_the_lease_s_time_is_expired() -> None:
    async with running() as world:
        handle = await one(world)
        assert await error_of(world, acks=[handle]) is None
        world.clock.advance(s=30)
        assert await error_of(world, acks=[handle]) is ReceiptHandleExpired


async def test_a_nack_returns_the_message_now_or_later() -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, [b"a", b"b"])
        now, later = await world.receive()
        results = await world.broker.settler.settle(
            TOPIC,
            GROUP,
            nacks=[Nack(now.receipt_handle, 0), Nack(later.receipt_handle, 5_000, "database down")],
        )
        assert [result.error for result in results] == [None, None]
        again = await world.receive()
        assert (offsets(again), again[0].attempt) == ([0], 2)
        await world.lapse(ms=4_999)
        assert await world.receive() == []
        await world.lapse(ms=1)
        again = await world.receive()
        assert (offsets(again), again[0].attempt) == ([1], 2)
        assert await world.ack(now, later) == EXPIRED * 2


async def test_a_delay_has_bounds() -> None:
    async with running() as world:
        handle = await one(world)
        for delay_ms in (-1, 40 * 86_400_000 + 1):
            assert await error_of(world, nacks=[Nack(handle, delay_ms)]) is IllegalInvisibleTime
        assert await error_of(world, acks=[handle]) is None


async def test_extending_gives_a_new_handle_and_voids_the_old_one() -> None:
    async with running() as world:
        handle = await one(world)
        world.clock.advance(s=20)
        [result] = await world.broker.settler.settle(TOPIC, GROUP, extends=[Extend(handle, 60_000)])
        assert result.error is None
        assert result.invisible_until_ms == world.clock.now_ms() + 60_000
        assert result.new_handle not in (None, handle)
        assert await error_of(world, acks=[handle]) is ReceiptHandleExpired
        world.clock.advance(s=59)
        assert await world.receive() == []
        assert await error_of(world, acks=[result.new_handle]) is None


async def test_extending_can_shorten() -> None:
    async with running() as world:
        await world.retry_at_once()
        handle = await one(world)
        assert await error_of(world, extends=[Extend(handle, 1_000)]) is None
        await world.lapse(s=1)
        assert len(await world.receive()) == 1


async def test_extending_has_bounds() -> None:
    async with running() as world:
        handle = await one(world)
        for invisible_ms in (999, 12 * 3_600_000 + 1):
            extends = [Extend(handle, invisible_ms)]
            assert await error_of(world, extends=extends) is IllegalInvisibleTime
        assert await error_of(world, acks=[handle]) is None


async def test_results_come_in_order_and_a_bad_handle_fails_alone() -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, [b"a", b"b", b"c"])
        a, b, c = [delivery.receipt_handle for delivery in await world.receive()]
        results = await world.broker.settler.settle(
            TOPIC, GROUP, acks=["forged", a], nacks=[Nack(b)], extends=[Extend(c, 9_000)]
        )
        assert [(result.receipt_handle, result.action) for result in results] == [
            ("forged", "ack"),
            (a, "ack"),
            (b, "nack"),
            (c, "extend"),
        ]
        errors = [type(result.error) for result in results if result.error]
        assert errors == [InvalidReceiptHandle]


async def test_a_handle_of_another_topic_or_group_is_refused() -> None:
    async with running() as world:
        await world.topic(1, name="other")
        handle = await one(world)
        await world.receive(group="b")
        await world.receive(topic="other")
        for topic, group in (("other", GROUP), (TOPIC, "b")):
            [result] = await world.broker.settler.settle(topic, group, acks=[handle])
            assert isinstance(result.error, InvalidReceiptHandle)
        assert await error_of(world, acks=[handle]) is None


async def test_settle_one_finds_topic_and_group_in_the_handle() -> None:
    async with running() as world:
        handle = await one(world)
        extended = await world.broker.settler.settle_one(handle, "extend", invisible_ms=9_000)
        assert extended.new_handle is not None
        with pytest.raises(ReceiptHandleExpired):
            await world.broker.settler.settle_one(handle, "ack")
        await world.broker.settler.settle_one(extended.new_handle, "nack", delay_ms=0)
        [again] = await world.receive()
        assert (await world.broker.settler.settle_one(again.receipt_handle, "ack")).error is None
        with pytest.raises(InvalidReceiptHandle):
            await world.broker.settler.settle_one("forged", "ack")
        with pytest.raises(IllegalInvisibleTime):
            await world.broker.settler.settle_one(again.receipt_handle, "extend")


async def test_handles_of_before_a_restart_are_expired() -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, [b"a", b"b"])
        acked, held = await world.receive()
        await world.ack(acked)
        world.clock.advance(s=1)
        await world.restart()
        assert await world.ack(held, acked) == EXPIRED * 2
        [again] = await world.receive()
        assert (again.message.queue_offset, again.attempt) == (1, 2)
        assert await world.ack(again) == [None]
        assert await world.ack(held) == EXPIRED


async def test_topics_and_groups_that_are_not_there() -> None:
    async with running() as world:
        handle = await one(world)
        with pytest.raises(GroupNotFound):
            await world.broker.settler.settle(TOPIC, "nobody", acks=[handle])
        with pytest.raises(TopicNotFound):
            await world.broker.settler.settle("order", GROUP, acks=[handle])
        await world.broker.settings_changes.delete_group(GROUP)
        with pytest.raises(GroupNotFound):
            await world.broker.settler.settle_one(handle, "ack")
        await world.broker.settings_changes.delete_topic(TOPIC)
        with pytest.raises(TopicNotFound):
            await world.broker.settler.settle_one(handle, "ack")
