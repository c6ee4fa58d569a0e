"""What is handed out when a node ends stays with its consumer over the start.

Control: a start that leases nothing gives the messages to others at once, and these tests see it.
"""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from app.broker.results import Extend, SettleAction
from app.domain.errors import ReceiptHandleExpired
from app.domain.limits import HELD_DELIVERY_MS_MAX
from app.domain.message import Message
from app.domain.settings import CustomizedRetry, DeliveryOrder, GroupSettings, WhenExhausted
from tests.support.nodes.brokers import GROUP, TOPIC, World, bodies, offsets, running

pytestmark = pytest.mark.anyio

INVISIBLE_S = GroupSettings().invisible_ms / 1_000
AT_ONCE = GroupSettings(retry_policy=CustomizedRetry((0,)))


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with running(queues=2) as world:
        world.is_away_long = False
        await world.group(AT_ONCE)
        for queue_id in range(2):
            world.store.fill(TOPIC, queue_id, [b"%d-%d" % (queue_id, each) for each in range(3)])
        yield world


async def settle(world: World, action: SettleAction, handle: str) -> type | None:
    try:
        await world.broker.settler.settle_one(handle, action)
    except ReceiptHandleExpired as error:
        return type(error)
    return None


async def test_who_has_a_message_settles_it_after_the_start_and_nobody_else_gets_it(
    world: World,
) -> None:
    received = await world.receive(4)
    assert await world.ack(received[0]) == [None]
    await world.kill()
    others = await world.receive()
    assert {each.attempt for each in others} == {1}
    assert not set(bodies(others)) & set(bodies(received))
    assert await world.ack(*received[1:]) == [None] * 3
    assert await world.ack(*received[1:]) == [None] * 3  # repeated, as its answer was lost
    assert await world.ack(received[0]) == [ReceiptHandleExpired]  # of a message that is done
    await world.ack(*others)
    await world.kill()
    assert await world.receive() == []
    assert world.committed() == {0: 3, 1: 3}


async def test_afterwards_it_is_delivered_as_the_next_attempt_and_the_handle_is_void(
    world: World,
) -> None:
    received = await world.receive()
    world.clock.advance(s=INVISIBLE_S / 2)
    await world.kill()
    await world.lapse(s=INVISIBLE_S / 2 - 1)
    assert await world.receive() == []
    await world.lapse(s=1)
    again = await world.receive()
    assert sorted(bodies(again)) == sorted(bodies(received))
    assert {each.attempt for each in again} == {2}
    assert await world.ack(*received) == [ReceiptHandleExpired] * 6
    assert await world.ack(*again) == [None] * 6


async def test_over_a_stop_in_order_as_well_and_over_several_starts(world: World) -> None:
    received = await world.receive()
    await world.restart()
    await world.kill()
    await world.restart()
    assert await world.receive() == []
    assert await world.ack(*received) == [None] * 6


@pytest.mark.parametrize("has_retries", [False, True])
async def test_a_snapshot_keeps_them(world: World, has_retries: bool) -> None:
    received = await world.receive()
    if has_retries:
        await world.nack(*received)
        await world.lapse()
        received = await world.receive()
        assert {each.attempt for each in received} == {2}
    await world.broker.consumer_journal._journal.write_snapshot()
    await world.kill()
    assert await world.receive() == []
    assert await world.ack(*received[1:]) == [None] * 5
    await world.lapse(s=INVISIBLE_S)
    (again,) = await world.receive()
    assert (again.attempt, again.message.body) == (2 + has_retries, received[0].message.body)


@pytest.mark.parametrize("action", ["nack", "dead_letter", "release", "extend"])
async def test_every_way_of_settling_works(world: World, action: SettleAction) -> None:
    (first, *_) = await world.receive()
    await world.kill()
    if action == "extend":
        results = await world.broker.settler.settle(
            TOPIC, GROUP, extends=[Extend(first.receipt_handle, 60_000)]
        )
        assert results[0].error is None
    else:
        assert await settle(world, action, first.receipt_handle) is None
    assert await settle(world, "ack", first.receipt_handle) is ReceiptHandleExpired
    await world.lapse()
    again = await world.receive()
    found = [(each.message.body, each.attempt) for each in again]
    assert found == {
        "nack": [(first.message.body, 2)],
        "release": [(first.message.body, 1)],
    }.get(action, [])


async def test_an_extended_lease_lasts_as_it_was_extended(world: World) -> None:
    (first, *others) = await world.receive()
    world.clock.advance(s=INVISIBLE_S - 1)
    results = await world.broker.settler.settle(
        TOPIC, GROUP, extends=[Extend(first.receipt_handle, int(INVISIBLE_S * 1_000))]
    )
    await world.kill()
    await world.lapse(s=INVISIBLE_S - 1)
    again = await world.receive()
    assert sorted(bodies(again)) == sorted(bodies(others))
    assert await settle(world, "ack", first.receipt_handle) is ReceiptHandleExpired
    assert results[0].new_handle is not None
    assert await settle(world, "ack", results[0].new_handle) is None


@pytest.mark.parametrize("group_s", [10, 3_600])
async def test_it_is_held_no_longer_than_the_groups_time_and_five_minutes(
    world: World, group_s: int
) -> None:
    await world.group(replace(AT_ONCE, invisible_ms=group_s * 1_000))
    received = await world.receive(invisible_ms=2 * 3_600_000)
    await world.kill()
    held_s = min(group_s, HELD_DELIVERY_MS_MAX / 1_000)
    await world.lapse(s=held_s - 1)
    assert await world.receive() == []
    await world.lapse(s=1)
    assert len(await world.receive()) == len(received)


async def test_what_was_handed_back_or_never_arrived_is_not_held(world: World) -> None:
    (first, second, *_) = await world.receive()
    assert await settle(world, "release", first.receipt_handle) is None
    world.broker.receiver.give_back([second])
    await world.kill()
    again = await world.receive()
    assert sorted(bodies(again)) == sorted(bodies([first, second]))
    assert {each.attempt for each in again} == {1}
    assert await world.ack(first, second) == [ReceiptHandleExpired] * 2


async def test_a_position_that_was_set_anew_holds_nothing(world: World) -> None:
    received = await world.receive()
    await world.commit(0, force=True)
    await world.kill()
    assert offsets(await world.receive()) == [0, 1, 2]
    expired = [ReceiptHandleExpired if each.message.queue_id == 0 else None for each in received]
    assert await world.ack(*received) == expired


async def test_what_a_reader_by_offset_took_over_is_not_held(world: World) -> None:
    received = await world.receive()
    await world.commit(1, take_over=True)
    await world.kill()
    assert world.broker.groups.find(GROUP, TOPIC) is None
    assert await world.ack(*received) == [ReceiptHandleExpired] * 6


async def test_messages_between_held_ones_are_delivered_and_a_filter_leaves_held_ones(
    world: World,
) -> None:
    received = await world.receive()
    await world.ack(received[0], received[-1])
    assert await settle(world, "release", received[1].receipt_handle) is None
    held = received[2:-1]
    await world.kill()
    subscription = world.broker.groups.find(GROUP, TOPIC)
    assert subscription is not None
    assert subscription.in_flight.count == 3
    lag = await world.broker.lag.group_lag(GROUP)
    assert [(each.ready, each.in_flight) for each in lag.topics] == [(1, 3)]
    assert await world.receive(filter="other", replace_subscription=True) == []
    assert await world.ack(*held[:2]) == [None, None]
    await world.lapse(s=INVISIBLE_S)
    (again,) = await world.receive()
    assert (again.message.body, again.attempt) == (held[2].message.body, 2)


async def test_a_bound_of_messages_in_flight_counts_them(world: World) -> None:
    await world.group(replace(AT_ONCE, max_in_flight=4))
    received = await world.receive(4)
    await world.kill()
    assert await world.receive() == []
    await world.ack(*received[:2])
    assert len(await world.receive()) == 2


async def test_of_a_deleted_group_nothing_is_held(world: World) -> None:
    received = await world.receive()
    await world.broker.settings_changes.delete_group(GROUP)
    await world.group(AT_ONCE)
    await world.kill()
    assert await world.ack(*received) == [ReceiptHandleExpired] * 6
    assert len(await world.receive()) == 6


class TestInOrder:
    @pytest.fixture
    async def world(self) -> AsyncIterator[World]:
        async with running() as world:
            world.is_away_long = False
            await world.group(replace(AT_ONCE, order=DeliveryOrder.FIFO))
            for key in ("a", "a", "b", "a", "b"):
                message = Message(key.encode(), sharding_key=key)
                await world.broker.sender.send(TOPIC, message, queue_id=0)
            yield world

    async def test_its_key_waits_and_others_go_on(self, world: World) -> None:
        a, b = await world.receive()
        assert (a.message.queue_offset, b.message.queue_offset) == (0, 2)
        await world.kill()
        assert await world.ack(b) == [None]
        (next_b,) = await world.receive()
        assert next_b.message.queue_offset == 4
        assert await world.ack(a) == [None]
        (next_a,) = await world.receive()
        assert next_a.message.queue_offset == 1

    async def test_afterwards_it_goes_first(self, world: World) -> None:
        for looks in (True, False):
            received = await world.receive()
            await world.kill()
            if looks:
                assert await world.receive() == []
            await world.lapse(s=INVISIBLE_S)
            again = await world.receive()
            assert offsets(again) == offsets(received) == [0, 2]
            assert [each.attempt for each in again] == [received[0].attempt + 1] * 2
            await world.kill()
            await world.lapse(s=INVISIBLE_S)

    async def test_what_was_given_back_comes_at_once(self, world: World) -> None:
        a, b = await world.receive()
        await world.nack(a, delay_ms=60_000)
        await world.kill()
        (again,) = await world.receive()
        assert (again.message.queue_offset, again.attempt) == (0, 2)
        assert await world.ack(a, b) == [ReceiptHandleExpired, None]

    @pytest.mark.parametrize("end", list(WhenExhausted))
    async def test_the_last_attempt_ends_before_anybody_looks(
        self, world: World, end: WhenExhausted
    ) -> None:
        settings = GroupSettings(order=DeliveryOrder.FIFO, max_attempts=1, on_exhausted=end)
        await world.group(settings)
        await world.receive(1)
        await world.kill()
        await world.lapse(s=INVISIBLE_S)
        blocked = [2] if end is WhenExhausted.PARK else [1, 2]
        assert offsets(await world.receive()) == blocked
        if end is WhenExhausted.PARK:
            (state,) = [
                state
                for _, queue_id, state in world.broker.consumer_journal.of_group(GROUP)
                if queue_id == 0
            ]
            assert [(each.offset, each.key) for each in state.parked.values()] == [(0, "a")]


async def test_what_is_held_counts_against_the_bytes_of_the_group() -> None:
    async with running() as world:
        world.is_away_long = False
        await world.group(GroupSettings(max_in_flight_bytes=3_000))
        world.store.fill(TOPIC, 0, [b"x" * 1_000] * 9)
        received = [*(await world.receive(9)), *(await world.receive(9))]
        assert offsets(received) == [0, 1, 2]
        await world.kill()
        assert await world.receive(9) == []
        assert await world.ack(*received) == [None] * 3
        assert offsets(await world.receive(9)) == [3, 4]
