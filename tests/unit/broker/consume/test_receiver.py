"""Receiving: leases, redelivery, fairness, waiting, replay."""

import asyncio

import pytest

from app.broker.results import ReceiveRequest
from app.domain.errors import (
    IllegalFilter,
    IllegalGroup,
    IllegalInvisibleTime,
    IllegalWait,
    InvalidRequest,
    MetadataUnavailable,
    ReceiptHandleExpired,
    TopicNotFound,
)
from app.domain.limits import Limits
from app.domain.names import retry_topic
from app.domain.settings import CustomizedRetry, GroupSettings, SubscriptionRule
from tests.support.nodes.brokers import GROUP, TOPIC, World, bodies, never_gone, offsets, running
from tests.support.nodes.waiting import until

pytestmark = pytest.mark.anyio


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


async def backlog(world: World) -> int:
    request = ReceiveRequest(max_messages=1)
    return (await world.broker.receiver.receive(TOPIC, GROUP, request, gone=never_gone)).backlog


async def test_messages_are_leased_once() -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, numbered(5))
        first = await world.receive(3)
        second = await world.receive(3)
        assert offsets(first) == [0, 1, 2]
        assert offsets(second) == [3, 4]
        assert await world.receive(3) == []
        assert len({delivery.receipt_handle for delivery in first + second}) == 5
        assert {delivery.attempt for delivery in first} == {1}
        assert {delivery.max_attempts for delivery in first} == {16}
        assert first[0].invisible_until_ms == world.clock.now_ms() + 30_000


async def test_groups_do_not_share() -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, numbered(3))
        assert offsets(await world.receive(group="a")) == offsets(await world.receive(group="b"))


async def test_a_group_is_made_by_its_first_use() -> None:
    async with running() as world:
        await world.receive()
        assert GROUP in world.metadata.snapshot.groups
        with pytest.raises(IllegalGroup):
            await world.receive(group="not a name")
        with pytest.raises(TopicNotFound):
            await world.receive(topic="order")
        world.metadata.is_down = True
        with pytest.raises(MetadataUnavailable):
            await world.receive(group="new")


async def test_all_queues_get_their_turn() -> None:
    async with running(queues=3) as world:
        for queue_id in range(3):
            world.store.fill(TOPIC, queue_id, numbered(100))
        firsts = [(await world.receive(10))[0].message.queue_id for _ in range(6)]
        assert firsts == [0, 1, 2, 0, 1, 2]


async def test_one_receive_takes_from_several_queues() -> None:
    async with running(queues=4) as world:
        for queue_id in range(4):
            world.store.fill(TOPIC, queue_id, numbered(2))
        received = await world.receive(7)
        assert [delivery.message.queue_id for delivery in received] == [0, 0, 1, 1, 2, 2, 3]


async def test_bytes_bound_a_receive_but_one_message_always_comes() -> None:
    async with running(queues=2) as world:
        for queue_id in range(2):
            world.store.fill(TOPIC, queue_id, [bytes(1_000)] * 5)
        assert len(await world.receive(10, max_bytes=1)) == 1
        assert len(await world.receive(10, max_bytes=3_500)) == 3
        assert len(await world.receive(10, max_bytes=8_000)) == 6


async def test_bytes_bound_redeliveries_and_leave_the_rest_ready() -> None:
    async with running() as world:
        await world.retry_at_once()
        world.store.fill(TOPIC, 0, [bytes(1_000)] * 5)
        await world.receive(5)
        await world.lapse(s=31)
        assert offsets(await world.receive(10, max_bytes=3_000)) == [0, 1]
        assert offsets(await world.receive(10, max_bytes=99_000)) == [2, 3, 4]


async def test_limits_bound_a_receive() -> None:
    async with running(limits=Limits(receive_messages_max=3)) as world:
        world.store.fill(TOPIC, 0, numbered(5))
        assert len(await world.receive(5)) == 3


async def test_an_expired_lease_is_delivered_again_first_and_in_order() -> None:
    async with running() as world:
        await world.retry_at_once()
        world.store.fill(TOPIC, 0, numbered(6))
        first = await world.receive(3, invisible_ms=10_000)
        await world.ack(first[1])
        await world.lapse(ms=9_999)
        assert offsets(await world.receive(1)) == [3]
        await world.lapse(ms=1)
        again = await world.receive(10)
        assert offsets(again) == [0, 2, 4, 5]
        assert [delivery.attempt for delivery in again] == [2, 2, 1, 1]


async def test_leases_run_on_the_monotonic_clock() -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, numbered(1))
        [delivery] = await world.receive()
        world.clock.set_wall(world.clock.now_ms() + 10**9)
        assert await world.receive() == []
        assert await world.ack(delivery) == [None]


async def test_an_invisible_time_has_bounds() -> None:
    async with running() as world:
        for invisible_ms in (999, 12 * 3_600_000 + 1):
            with pytest.raises(IllegalInvisibleTime):
                await world.receive(invisible_ms=invisible_ms)


async def test_the_group_s_settings_hold() -> None:
    async with running() as world:
        await world.group(GroupSettings(invisible_ms=5_000, max_attempts=3))
        world.store.fill(TOPIC, 0, numbered(1))
        [delivery] = await world.receive()
        assert delivery.max_attempts == 3
        assert delivery.invisible_until_ms == world.clock.now_ms() + 5_000


async def test_no_more_than_max_in_flight_over_all_topics() -> None:
    async with running(queues=2) as world:
        await world.topic(1, name="other")
        await world.group(GroupSettings(max_in_flight=5))
        for queue_id in range(2):
            world.store.fill(TOPIC, queue_id, numbered(10))
        world.store.fill("other", 0, numbered(10))
        received = await world.receive(4)
        assert len(received) == 4
        assert len(await world.receive(4, topic="other")) == 1
        assert await world.receive(4) == []
        assert await world.receive(4, topic="other") == []
        await world.ack(*received[:2])
        assert len(await world.receive(4)) == 2


async def test_messages_that_wait_for_their_retry_are_not_in_flight() -> None:
    async with running() as world:
        await world.group(GroupSettings(max_in_flight=2))
        world.store.fill(TOPIC, 0, numbered(4))
        received = await world.receive(2)
        await world.nack(*received, delay_ms=5_000)
        others = await world.receive(2)
        assert offsets(others) == [2, 3]
        await world.lapse(s=5)
        assert await world.receive(2) == []
        await world.ack(*others)
        assert offsets(await world.receive(2)) == [0, 1]


async def test_a_receive_waits_for_room_in_the_group() -> None:
    async with running() as world, asyncio.TaskGroup() as tasks:
        await world.group(GroupSettings(max_in_flight=1))
        world.store.fill(TOPIC, 0, numbered(2))
        [delivery] = await world.receive()
        waiting = tasks.create_task(world.receive(wait_s=60))
        await until(lambda: world.waiting == 1)
        await world.ack(delivery)
        assert offsets(await waiting) == [1]


async def test_leases_that_end_on_another_topic_make_room() -> None:
    async with running() as world, asyncio.TaskGroup() as tasks:
        await world.topic(1, name="other")
        await world.group(GroupSettings(max_in_flight=1))
        world.store.fill(TOPIC, 0, numbered(1))
        world.store.fill("other", 0, numbered(1))
        await world.receive(invisible_ms=5_000)
        waiting = tasks.create_task(world.receive(topic="other", wait_s=60))
        await until(lambda: world.waiting == 1)
        await world.broker.expire_leases()
        assert world.waiting == 1
        await world.lapse(s=5)
        await world.broker.expire_leases()
        assert len(await waiting) == 1


async def test_room_that_another_topic_found_is_for_all() -> None:
    """A receive on one topic notices ended leases of another; who waits there must hear of it."""
    async with running() as world, asyncio.TaskGroup() as tasks:
        await world.topic(1, name="other")
        await world.group(GroupSettings(max_in_flight=2, retry_policy=CustomizedRetry((0,))))
        world.store.fill(TOPIC, 0, numbered(2))
        await world.receive(2, invisible_ms=5_000)
        waiting = tasks.create_task(world.receive(2, wait_s=60))
        await until(lambda: world.waiting == 1)
        await world.lapse(s=5)
        assert await world.receive(1, topic="other") == []
        assert offsets(await waiting) == [0, 1]


async def test_a_filter_leaves_out_what_does_not_match_for_the_whole_group() -> None:
    async with running() as world:
        await world.group(GroupSettings(subscription=SubscriptionRule.FREE))
        for number in range(9):
            world.store.fill(TOPIC, 0, [b"%d" % number], tag="abc"[number % 3])
        received = await world.receive(2, filter="b || c")
        assert bodies(received) == [b"1", b"2"]
        assert world.committed() == {0: 1}
        await world.ack(*received)
        assert world.committed() == {0: 3}
        rest = await world.receive(filter="b")
        assert bodies(rest) == [b"4", b"7"]
        await world.ack(*rest)
        assert world.committed() == {0: 9}
        with pytest.raises(IllegalFilter):
            await world.receive(filter="||")


async def test_tags_of_the_same_hash_are_told_apart() -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, [b"wrong"], tag="Aa")
        world.store.fill(TOPIC, 0, [b"right"], tag="BB")
        assert bodies(await world.receive(filter="BB")) == [b"right"]


async def test_a_redelivery_ignores_the_filter() -> None:
    async with running() as world:
        await world.retry_at_once()
        world.store.fill(TOPIC, 0, [b"a"], tag="a")
        await world.receive(filter="a")
        await world.lapse(s=31)
        assert bodies(await world.receive(filter="z")) == [b"a"]


async def test_a_long_filtered_scan_goes_on_while_waiting() -> None:
    async with running(limits=Limits(pull_scan_units_max=10)) as world:
        world.store.scan_max = 10
        world.store.fill(TOPIC, 0, numbered(35), tag="a")
        world.store.fill(TOPIC, 0, [b"found"], tag="b")
        assert bodies(await world.receive(filter="b")) == []
        assert bodies(await world.receive(filter="b", wait_s=60)) == [b"found"]
        assert world.committed() == {0: 35}


async def test_a_filtered_scan_takes_several_reads() -> None:
    async with running() as world:
        world.store.scan_max = 10
        world.store.fill(TOPIC, 0, numbered(35), tag="a")
        world.store.fill(TOPIC, 0, [b"found"], tag="b")
        assert bodies(await world.receive(filter="b")) == [b"found"]


async def test_damage_is_stepped_over() -> None:
    async with running() as world:
        await world.retry_at_once()
        world.store.fill(TOPIC, 0, numbered(5))
        world.store.damage(TOPIC, 0, 1)
        first = await world.receive()
        assert offsets(first) == [0, 2, 3, 4]
        world.store.damage(TOPIC, 0, 2)
        await world.lapse(s=31)
        again = await world.receive()
        assert offsets(again) == [0, 3, 4]
        world.store.fill(TOPIC, 0, numbered(2))
        await world.receive(gone=lambda: True)
        world.store.damage(TOPIC, 0, 5)
        again += await world.receive()
        assert offsets(again) == [0, 3, 4, 6]
        await world.ack(*again)
        assert world.committed() == {0: 7}


async def test_retention_moves_a_group_ahead() -> None:
    async with running() as world:
        await world.retry_at_once()
        world.store.fill(TOPIC, 0, numbered(10))
        held = await world.receive(4)
        world.store.retain_from(TOPIC, 0, 6)
        assert offsets(await world.receive()) == [6, 7, 8, 9]
        assert world.committed() == {0: 6}
        await world.lapse(s=31)
        assert offsets(await world.receive()) == [6, 7, 8, 9]
        assert await world.ack(held[0]) == [ReceiptHandleExpired]


async def test_backlog_is_what_is_ready_and_not_leased() -> None:
    async with running(queues=2) as world:
        await world.retry_at_once()
        world.store.fill(TOPIC, 0, numbered(5))
        world.store.fill(TOPIC, 1, numbered(5))
        assert await backlog(world) == 9
        await world.lapse(s=31)
        assert await backlog(world) == 9


# --- waiting


async def test_a_receive_waits_for_an_arrival() -> None:
    async with running(queues=2) as world, asyncio.TaskGroup() as tasks:
        receive = tasks.create_task(world.receive(wait_s=60))
        await until(lambda: world.waiting == 1)
        await world.send(b"hello", queue_id=1)
        assert bodies(await receive) == [b"hello"]


async def test_one_arrival_wakes_one_receive_of_each_group() -> None:
    async with running() as world, asyncio.TaskGroup() as tasks:
        group_a = [tasks.create_task(world.receive(group="a", wait_s=60)) for _ in range(3)]
        group_b = [tasks.create_task(world.receive(group="b", wait_s=60)) for _ in range(3)]
        await until(lambda: world.waiting == 6)
        reads = world.store.reads
        await world.send(b"one")
        await until(lambda: world.waiting == 4)
        assert world.store.reads == reads + 2
        await until(lambda: group_a[0].done() and group_b[0].done())
        assert [task.done() for task in group_a] == [True, False, False]
        assert [task.done() for task in group_b] == [True, False, False]
        await world.broker.stop()


async def test_many_messages_wake_many_receives_in_a_chain() -> None:
    async with running() as world, asyncio.TaskGroup() as tasks:
        receives = [tasks.create_task(world.receive(2, wait_s=60)) for _ in range(5)]
        await until(lambda: world.waiting == 5)
        world.store.fill(TOPIC, 0, numbered(9))
        await world.send(b"last")
        received = [await receive for receive in receives]
        assert sorted(offset for part in received for offset in offsets(part)) == list(range(10))


async def test_waiting_ends_when_time_is_up() -> None:
    async with running() as world:
        assert await world.receive(wait_s=0.001) == []
        for wait_s in (-1, 61):
            with pytest.raises(IllegalWait):
                await world.receive(wait_s=wait_s)
        with pytest.raises(InvalidRequest):
            await world.receive(0)


async def test_an_expired_lease_wakes_who_waits() -> None:
    async with running() as world, asyncio.TaskGroup() as tasks:
        await world.retry_at_once()
        world.store.fill(TOPIC, 0, numbered(1))
        await world.receive(invisible_ms=5_000)
        waiting = tasks.create_task(world.receive(wait_s=60))
        await until(lambda: world.waiting == 1)
        await world.lapse(ms=4_999)
        await world.broker.expire_leases()
        await asyncio.sleep(0)
        assert world.waiting == 1
        await world.lapse(ms=1)
        await world.broker.expire_leases()
        [again] = await waiting
        assert again.attempt == 2


async def test_a_cancelled_waiter_passes_its_wake_on() -> None:
    async with running() as world:
        first = asyncio.ensure_future(world.receive(wait_s=60))
        await until(lambda: world.waiting == 1)
        second = asyncio.ensure_future(world.receive(wait_s=60))
        await until(lambda: world.waiting == 2)
        world.store.fill(TOPIC, 0, numbered(1))
        world.store.on_arrival(TOPIC, 0)
        first.cancel()
        assert offsets(await second) == [0]
        with pytest.raises(asyncio.CancelledError):
            await first
        assert not world.broker.long_polls.lines()


async def test_a_client_that_is_gone_passes_its_wake_on() -> None:
    async with running() as world, asyncio.TaskGroup() as tasks:
        is_gone: list[bool] = []
        gone = tasks.create_task(world.receive(wait_s=60, gone=lambda: bool(is_gone)))
        await until(lambda: world.waiting == 1)
        there = tasks.create_task(world.receive(wait_s=60))
        await until(lambda: world.waiting == 2)
        is_gone.append(True)
        await world.send(b"one")
        assert bodies(await there) == [b"one"]
        assert await gone == []


async def test_what_a_gone_client_leased_is_given_back_and_does_not_count() -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, numbered(2))
        assert await world.receive(gone=lambda: True) == []
        again = await world.receive()
        assert offsets(again) == [0, 1]
        assert [delivery.attempt for delivery in again] == [1, 1]


async def test_give_back_returns_unsent_messages_at_once() -> None:
    async with running() as world, asyncio.TaskGroup() as tasks:
        world.store.fill(TOPIC, 0, numbered(2))
        unsent = await world.receive()
        waiting = tasks.create_task(world.receive(wait_s=60))
        await until(lambda: world.waiting == 1)
        world.broker.receiver.give_back(unsent)
        again = await waiting
        assert offsets(again) == [0, 1]
        assert [delivery.attempt for delivery in again] == [1, 1]
        assert await world.ack(*unsent) == [ReceiptHandleExpired] * 2
        assert await world.ack(*again) == [None, None]
        assert await world.ack(*unsent) == [ReceiptHandleExpired] * 2


async def test_giving_back_what_is_settled_or_deleted_changes_nothing() -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, numbered(2))
        received = await world.receive()
        await world.ack(received[0])
        world.broker.receiver.give_back(received[:1])
        assert await world.receive() == []
        await world.broker.settings_changes.delete_topic(TOPIC)
        world.broker.receiver.give_back(received)


# --- repeated requests


async def test_the_same_attempt_id_gets_the_same_messages() -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, numbered(5))
        first = await world.receive(3, attempt_id="c1-1")
        world.clock.advance(s=10)
        assert await world.receive(3, attempt_id="c1-1") == first
        assert offsets(await world.receive(3, attempt_id="c1-2")) == [3, 4]
        assert await world.ack(*first) == [None] * 3


async def test_a_replay_leaves_out_what_was_settled() -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, numbered(3))
        first = await world.receive(attempt_id="x")
        await world.ack(first[1])
        assert await world.receive(attempt_id="x") == [first[0], first[2]]


async def test_a_replay_ends_with_the_leases_or_the_window() -> None:
    async with running() as world:
        await world.retry_at_once()
        world.store.fill(TOPIC, 0, numbered(3))
        first = await world.receive(1, attempt_id="x", invisible_ms=5_000)
        await world.lapse(s=5)
        again = await world.receive(1, attempt_id="x", invisible_ms=120_000)
        assert (offsets(again), again[0].attempt) == (offsets(first), 2)
        await world.lapse(s=60)
        assert offsets(await world.receive(1, attempt_id="x")) == [1]


async def test_an_attempt_that_was_given_back_is_not_replayed() -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, numbered(2))
        unsent = await world.receive(1, attempt_id="x")
        world.broker.receiver.give_back(unsent)
        other = await world.receive(1)
        assert offsets(await world.receive(1, attempt_id="x")) == [1]
        assert offsets(other) == [0]


async def test_an_empty_attempt_is_not_remembered() -> None:
    async with running() as world:
        assert await world.receive(attempt_id="x") == []
        await world.send(b"now")
        assert bodies(await world.receive(attempt_id="x")) == [b"now"]


async def test_remembered_attempts_do_not_pile_up() -> None:
    async with running() as world:
        for number in range(400):
            world.store.fill(TOPIC, 0, numbered(10))
            await world.ack(*await world.receive(attempt_id=str(number)))
        subscription = world.broker.groups.find(GROUP, TOPIC)
        assert subscription is not None
        assert len(subscription.replays) <= 103


# --- the disk


async def test_a_cold_queue_is_read_with_one_hop_when_nothing_else_is_there() -> None:
    async with running(queues=2) as world:
        world.store.fill(TOPIC, 0, numbered(3))
        world.store.cold.add((TOPIC, 0))
        assert offsets(await world.receive()) == [0, 1, 2]
        assert world.store.disk_reads == 1


async def test_a_cold_queue_is_passed_by_while_others_have_messages() -> None:
    async with running(queues=2) as world:
        world.store.fill(TOPIC, 0, numbered(3))
        world.store.fill(TOPIC, 1, numbered(3))
        world.store.cold.add((TOPIC, 0))
        assert {delivery.message.queue_id for delivery in await world.receive()} == {1}
        assert world.store.disk_reads == 0
        assert {delivery.message.queue_id for delivery in await world.receive()} == {0}


async def test_a_cold_redelivery_keeps_its_attempt() -> None:
    async with running() as world:
        await world.retry_at_once()
        world.store.fill(TOPIC, 0, numbered(2))
        await world.receive()
        await world.lapse(s=31)
        world.store.cold.add((retry_topic(GROUP, TOPIC), 0))
        again = await world.receive()
        assert [delivery.attempt for delivery in again] == [2, 2]


async def test_two_receives_on_a_cold_queue_get_different_messages() -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, numbered(10))
        world.store.cold.add((TOPIC, 0))
        async with asyncio.TaskGroup() as tasks:
            receives = [tasks.create_task(world.receive(3, wait_s=60)) for _ in range(3)]
        received = [offset for receive in receives for offset in offsets(receive.result())]
        assert sorted(received) == list(range(9))


async def test_nothing_is_leased_after_a_cold_read_during_which_a_commit_took_over() -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, numbered(6))
        await world.receive(2, gone=lambda: True)
        world.store.cold.add((TOPIC, 0))
        with world.store.slow_disk():
            returned = asyncio.ensure_future(world.receive(2))
            await until(lambda: world.store.disk_reads == 1)
            await world.commit(1, take_over=True)
        assert await returned == []
        with world.store.slow_disk():
            new = asyncio.ensure_future(world.receive(4, force=True))
            await until(lambda: world.store.disk_reads == 2)
            await world.commit(4, take_over=True)
        assert await new == []
        assert world.committed() == {0: 4}


async def test_a_reset_or_delete_during_a_cold_read_gives_nothing() -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, numbered(6))
        world.store.cold.add((TOPIC, 0))
        with world.store.slow_disk():
            receive = asyncio.ensure_future(world.receive(2))
            await until(lambda: world.store.disk_reads == 1)
            await world.commit(3, force=True)
        assert await receive == []
        with world.store.slow_disk():
            receive = asyncio.ensure_future(world.receive(2))
            await until(lambda: world.store.disk_reads == 2)
            await world.broker.settings_changes.delete_topic(TOPIC)
        assert await receive == []


async def test_a_cancelled_cold_read_loses_nothing() -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, numbered(2))
        await world.receive(1, gone=lambda: True)
        world.store.cold.add((TOPIC, 0))
        receive = asyncio.ensure_future(world.receive(2))
        await until(lambda: world.store.disk_reads == 1)
        receive.cancel()
        with pytest.raises(asyncio.CancelledError):
            await receive
        world.store.cold.clear()
        assert offsets(await world.receive(2)) == [0, 1]
        subscription = world.broker.groups.find(GROUP, TOPIC)
        assert subscription is not None
        assert subscription.in_flight.count == 2


async def test_a_cold_replay_hops_once() -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, numbered(2))
        first = await world.receive(attempt_id="x")
        world.store.cold.add((TOPIC, 0))
        assert await world.receive(attempt_id="x") == first
