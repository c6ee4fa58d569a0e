"""Open deliveries at a start by which the group, or what is known of it, has changed.

Control: a start that holds all the same gives messages out of turn, or begins the group, and these
tests see it.
"""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from app.domain.errors import ReceiptHandleExpired
from app.domain.message import Message
from app.domain.settings import CustomizedRetry, DeliveryOrder, GroupSettings, WhenExhausted
from tests.support.nodes.brokers import GROUP, TOPIC, World, offsets, running

pytestmark = pytest.mark.anyio

AT_ONCE = GroupSettings(retry_policy=CustomizedRetry((0,)))
IN_ORDER = replace(AT_ONCE, order=DeliveryOrder.FIFO)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with running() as world:
        world.is_away_long = False
        await world.group(AT_ONCE)
        yield world


@pytest.mark.parametrize("has_snapshot", [False, True])
async def test_a_group_that_was_set_to_deliver_in_order_does(
    world: World, has_snapshot: bool
) -> None:
    for key in ("a", "a", "b"):
        message = Message(key.encode(), sharding_key=key)
        await world.broker.sender.send(TOPIC, message, queue_id=0)
    received = await world.receive()
    if has_snapshot:
        await world.broker.consumer_journal._journal.write_snapshot()
    await world.group(IN_ORDER)
    await world.kill()
    first_a, b = await world.receive()
    assert (first_a.message.queue_offset, b.message.queue_offset) == (0, 2)
    assert await world.ack(*received) == [ReceiptHandleExpired] * 3
    assert await world.ack(first_a, b) == [None] * 2
    (second_a,) = await world.receive()
    assert second_a.message.queue_offset == 1
    assert await world.ack(second_a) == [None]
    assert await world.receive() == []
    # back again: the other way round
    await world.broker.sender.send(TOPIC, Message(b"c", sharding_key="c"), queue_id=0)
    (c,) = await world.receive()
    await world.group(AT_ONCE)
    await world.kill()
    (again,) = await world.receive()
    assert (again.message.queue_offset, again.attempt) == (3, 2)
    assert await world.ack(c, again) == [ReceiptHandleExpired, None]


async def test_a_group_that_was_made_again_begins_with_its_first_receive(world: World) -> None:
    await world.send(b"0", b"1")
    await world.receive()
    await world.metadata.delete_group(GROUP)  # killed before the log has heard of it
    await world.group(AT_ONCE)
    await world.kill()
    assert world.broker.groups.find(GROUP, TOPIC) is None
    assert world.committed() == {}
    assert offsets(await world.receive()) == [0, 1]


async def test_held_messages_are_passed_without_being_read(world: World) -> None:
    world.store.fill(TOPIC, 0, [b"%d" % each for each in range(2_000)])
    received = await world.receive(1_000)
    results = await world.broker.settler.settle(TOPIC, GROUP, releases=[received[0].receipt_handle])
    assert results[0].error is None
    await world.kill()
    reads: list[int] = []
    read = world.store.read

    def counted(topic: str, queue_id: int, offset: int, **more: object) -> object:
        reads.append(offset)
        return read(topic, queue_id, offset, **more)  # type: ignore[arg-type]

    world.store.read = counted  # type: ignore[method-assign, assignment]
    assert offsets(await world.receive(1)) == [0]
    assert offsets(await world.receive(1)) == [1_000]
    assert len(reads) < 10


async def sent_in_order(world: World) -> None:
    for tag in ("x", "y", "x"):
        message = Message(tag.encode(), tag=tag, sharding_key="k")
        await world.broker.sender.send(TOPIC, message, queue_id=0)


async def test_a_key_waits_for_a_message_that_another_filter_leaves_out(world: World) -> None:
    await world.group(IN_ORDER)
    await sent_in_order(world)
    (first,) = await world.receive()
    await world.kill()
    assert await world.receive(filter="y", replace_subscription=True) == []
    assert await world.ack(first) == [None]
    assert offsets(await world.receive()) == [1]


async def test_a_parked_message_blocks_its_key_whatever_the_filter(world: World) -> None:
    park = WhenExhausted.PARK
    await world.group(replace(IN_ORDER, max_attempts=1, on_exhausted=park))
    await sent_in_order(world)
    (first,) = await world.receive()
    await world.nack(first)
    await world.kill()
    assert await world.receive(filter="y", replace_subscription=True) == []
    assert world.committed() == {0: 0}
