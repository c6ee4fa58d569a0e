"""Retries and dead letters: exactly so many deliveries, then exactly one dead letter (G17)."""

import asyncio

import pytest

from app.broker.failures.dead_letter_admin import Selection
from app.broker.offsets.offset_admin import ResetRequest
from app.broker.results import Delivery, Nack
from app.domain.errors import DiskFull, ReceiptHandleExpired, StoreFailed
from app.domain.message import Message
from app.domain.names import dead_letter_topic, retry_topic
from app.domain.settings import CustomizedRetry, DeliveryOrder, GroupSettings, SubscriptionRule
from tests.support.nodes.brokers import GROUP, TOPIC, World, bodies, offsets, running
from tests.support.nodes.waiting import until

pytestmark = pytest.mark.anyio

RETRY = retry_topic(GROUP, TOPIC)
DEAD = dead_letter_topic(GROUP)


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


async def dead_letters(world: World) -> list[tuple[bytes, str | None, int]]:
    page = await world.broker.dead_letters.browse(GROUP, Selection())
    return [(each.message.body, each.reason, each.attempts) for each in page.letters]


async def give_up(world: World, *deliveries: Delivery, reason: str | None = None) -> None:
    letters = [Nack(delivery.receipt_handle, None, reason) for delivery in deliveries]
    results = await world.broker.settler.settle(TOPIC, GROUP, dead_letters=letters)
    assert [result.error for result in results] == [None] * len(deliveries)


async def test_a_nacked_message_comes_again_through_the_retry_topic_as_it_was() -> None:
    async with running(queues=2) as world:
        await world.group(GroupSettings(subscription=SubscriptionRule.FREE))
        message = Message(
            b"body",
            tag="t",
            keys=("k1", "k2"),
            sharding_key="s",
            properties={"p": "1"},
            content_type="text/plain",
        )
        sent = await world.broker.sender.send(TOPIC, message, queue_id=1)
        world.clock.advance(s=1)
        [first] = await world.receive()
        await world.nack(first, delay_ms=0)
        assert world.store.bounds(RETRY, 0) == (0, 1)
        [again] = await world.receive(filter="other")
        assert again.attempt == 2
        shown = again.message
        assert (shown.topic, shown.queue_id, shown.queue_offset) == (TOPIC, 1, sent.queue_offset)
        assert (shown.message_id, shown.store_time_ms) == (sent.message_id, sent.store_time_ms)
        assert (shown.body, shown.tag, shown.keys) == (b"body", "t", ("k1", "k2"))
        assert (shown.sharding_key, shown.properties) == ("s", {"p": "1"})
        assert (shown.content_type, shown.born_time_ms) == (
            "text/plain",
            first.message.born_time_ms,
        )
        assert world.committed() == {0: 0, 1: 1}
        assert await world.ack(first) == [ReceiptHandleExpired]
        assert await world.ack(again, again) == [None, None]
        await world.kill()
        assert await world.receive() == []


async def test_the_policy_s_delay_passes_before_a_retry() -> None:
    async with running() as world:
        policy = CustomizedRetry((5_000, 20_000))
        await world.group(GroupSettings(retry_policy=policy, invisible_ms=30_000))
        world.store.fill(TOPIC, 0, numbered(1))
        await world.receive()
        await world.lapse(s=30)
        await world.lapse(ms=4_999)
        assert await world.receive() == []
        await world.lapse(ms=1)
        [second] = await world.receive()
        assert second.attempt == 2
        await world.broker.settler.settle(TOPIC, GROUP, nacks=[Nack(second.receipt_handle)])
        await world.lapse(ms=19_999)
        assert await world.receive() == []
        await world.kill()
        await world.lapse(ms=1)
        [third] = await world.receive()
        assert third.attempt == 3


async def test_exactly_max_attempts_deliveries_then_one_dead_letter() -> None:
    async with running() as world:
        await world.group(GroupSettings(max_attempts=3, retry_policy=CustomizedRetry((0,))))
        world.store.fill(TOPIC, 0, [b"poison"])
        for attempt in range(1, 4):
            [delivery] = await world.receive()
            assert delivery.attempt == attempt
            await world.lapse(s=30)
        await world.lapse(s=1)
        assert await world.receive() == []
        reason = "not acknowledged in 3 deliveries; the last one: the lease ran out"
        assert await dead_letters(world) == [(b"poison", reason, 3)]
        assert world.store.bounds(DEAD, 0).max_offset == 1
        page = await world.broker.dead_letters.browse(GROUP, Selection())
        origin = page.letters[0].origin
        assert (origin.topic, origin.queue_id, origin.queue_offset) == (TOPIC, 0, 0)
        await world.kill()
        await world.lapse(s=100)
        assert await world.receive() == []
        assert len(await dead_letters(world)) == 1


@pytest.mark.parametrize("kills", [1, 2, 3])
async def test_never_more_than_max_attempts_across_kills(kills: int) -> None:
    """Each delivery ends with a kill, a nack or its lease; their number is the same."""
    async with running() as world:
        await world.group(GroupSettings(max_attempts=3, retry_policy=CustomizedRetry((0,))))
        world.store.fill(TOPIC, 0, [b"poison"])
        for attempt in range(1, 4):
            [delivery] = await world.receive()
            assert delivery.attempt == attempt
            if attempt <= kills:
                await world.kill()
            else:
                await world.nack(delivery, delay_ms=0)
        assert await world.receive() == []
        await world.lapse()
        assert await world.receive() == []
        [(body, reason, attempts)] = await dead_letters(world)
        assert (body, attempts) == (b"poison", 3)
        assert reason is not None
        assert reason.startswith("not acknowledged in 3 deliveries")


async def test_a_dead_letter_at_once_has_its_reason() -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, numbered(3))
        received = await world.receive()
        await give_up(world, received[1], reason="no such customer")
        await give_up(world, received[0])
        assert await dead_letters(world) == [
            (b"1", "no such customer", 1),
            (b"0", "given up by its consumer", 1),
        ]
        assert world.committed() == {0: 2}
        assert await world.ack(*received[:2]) == [ReceiptHandleExpired] * 2
        handle = received[2].receipt_handle
        await world.broker.settler.settle_one(handle, "dead_letter", reason="third")
        assert len(await dead_letters(world)) == 3


async def test_a_redriven_letter_begins_anew() -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, numbered(1))
        await give_up(world, *await world.receive())
        operation = world.broker.dead_letters.redrive(GROUP, Selection())
        await until(lambda: operation.done == 1)
        [again] = await world.receive()
        assert (again.attempt, again.message.queue_offset) == (1, 0)
        await world.nack(again, delay_ms=0)
        assert [d.attempt for d in await world.receive()] == [2]


async def test_a_reason_is_kept_with_the_retry() -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, numbered(1))
        [delivery] = await world.receive()
        nack = Nack(delivery.receipt_handle, 0, "database\x02down")
        await world.broker.settler.settle(TOPIC, GROUP, nacks=[nack])
        [again] = await world.receive()
        assert again.message.system["MQ_REASON"] == "database down"


async def test_a_crash_leaves_the_copy_and_the_ack_or_neither() -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, numbered(2))
        received = await world.receive()
        world.store.held = []
        nack = asyncio.ensure_future(world.nack(*received, delay_ms=0))
        await until(lambda: bool(world.store.held))
        assert not nack.done()
        world.store.held = None  # the step is lost
        nack.cancel()
        await asyncio.gather(nack, return_exceptions=True)
        for queue in world.store.queues.values():
            del queue.records[queue.confirmed :], queue.tag_hashes[queue.confirmed :]
        await world.kill()
        again = await world.receive()
        assert (offsets(again), {d.attempt for d in again}) == ([0, 1], {2})
        await world.nack(*again, delay_ms=0)
        await world.kill()
        third = await world.receive()
        assert (offsets(third), {d.attempt for d in third}) == ([0, 1], {3})


async def test_what_cannot_be_written_fails_and_is_tried_again() -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, numbered(2))
        received = await world.receive()
        world.store.refusal = StoreFailed("broken")
        with pytest.raises(StoreFailed):
            await world.nack(*received, delay_ms=0)
        assert await world.ack(*received) == [ReceiptHandleExpired] * 2
        await world.lapse()
        world.store.refusal, world.store.failure = None, DiskFull("no room")
        await world.lapse()
        assert world.store.bounds(RETRY, 0).max_offset == 0
        world.store.failure = None
        await world.lapse()
        await world.lapse()
        again = await world.receive()
        assert sorted(bodies(again)) == [b"0", b"1"]
        assert world.store.bounds(RETRY, 0).max_offset == 2


async def test_a_client_that_goes_before_its_nack_fails_loses_nothing() -> None:
    async with running() as world:
        await world.retry_at_once()
        world.store.fill(TOPIC, 0, numbered(1))
        received = await world.receive()
        world.store.failure = DiskFull("no room for another segment", outcome="not_stored")
        nacking = asyncio.ensure_future(world.nack(*received))
        await asyncio.sleep(0)
        nacking.cancel()
        await asyncio.wait([nacking])
        world.store.failure = None
        await world.lapse()
        assert bodies(await world.receive()) == [b"0"]


async def test_many_leases_that_run_out_are_dealt_with_in_bounded_steps() -> None:
    async with running(queues=2) as world:
        await world.retry_at_once()
        for queue_id in range(2):
            world.store.fill(TOPIC, queue_id, numbered(700))
        assert len(await world.receive(1_000) + await world.receive(1_000)) == 1_400
        await world.lapse(s=31)
        again = await world.receive(1_024) + await world.receive(1_024)
        assert len({(d.message.queue_id, d.message.queue_offset) for d in again}) == 1_400
        assert {d.attempt for d in again} == {2}
        await world.ack(*again)
        assert world.committed() == {0: 700, 1: 700}


async def test_a_retry_wakes_who_waits() -> None:
    async with running() as world, asyncio.TaskGroup() as tasks:
        world.store.fill(TOPIC, 0, numbered(1))
        [delivery] = await world.receive()
        waiting = tasks.create_task(world.receive(wait_s=60))
        await until(lambda: world.waiting == 1)
        await world.nack(delivery, delay_ms=1_000)
        await world.lapse(s=1)
        [again] = await waiting
        assert again.attempt == 2


async def test_retries_and_new_messages_both_get_their_turn() -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, numbered(100))
        await world.nack(*await world.receive(50), delay_ms=0)
        attempts = [(await world.receive(1))[0].attempt for _ in range(20)]
        assert attempts.count(1) == attempts.count(2) == 10


async def test_retries_of_one_topic_or_group_are_not_those_of_another() -> None:
    async with running() as world:
        await world.topic(1, name="other")
        world.store.fill(TOPIC, 0, numbered(1))
        await world.nack(*await world.receive(), delay_ms=0)
        assert await world.receive(topic="other") == []
        assert [d.attempt for d in await world.receive(group="b")] == [1]
        assert [d.attempt for d in await world.receive()] == [2]


async def test_a_message_that_is_gone_is_done() -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, numbered(3))
        received = await world.receive()
        world.store.damage(TOPIC, 0, 1)
        world.store.retain_from(TOPIC, 0, 1)
        await world.nack(*received, delay_ms=0)
        assert offsets(await world.receive()) == [2]
        assert world.committed() == {0: 3}


async def test_a_take_over_or_reset_during_the_move_wins() -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, numbered(3))
        received = await world.receive()
        world.store.cold.add((TOPIC, 0))
        with world.store.slow_disk():
            nack = asyncio.ensure_future(world.nack(*received, delay_ms=0))
            await until(lambda: world.store.disk_reads == 1)
            await world.commit(2, take_over=True)
        await nack
        assert world.store.bounds(RETRY, 0).max_offset == 0
        again = await world.receive(force=True)
        assert (offsets(again), again[0].attempt) == ([2], 2)
        nack = asyncio.ensure_future(world.nack(*again, delay_ms=0))
        await nack
        await world.commit(0, force=True)
        received = [*await world.receive(), *await world.receive()]
        assert sorted(offsets(received)) == [0, 1, 2, 2]


async def test_a_replay_gets_retries_too_and_their_handles_work_by_url() -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, numbered(2))
        await world.nack(*await world.receive(), delay_ms=0)
        first = await world.receive(attempt_id="x")
        assert await world.receive(attempt_id="x") == first
        assert [d.message.topic for d in first] == [TOPIC, TOPIC]
        one, two = [delivery.receipt_handle for delivery in first]
        extended = await world.broker.settler.settle_one(one, "extend", invisible_ms=60_000)
        assert extended.new_handle is not None
        await world.broker.settler.settle_one(extended.new_handle, "ack")
        await world.broker.settler.settle_one(two, "nack", delay_ms=0)
        world.broker.receiver.give_back(await world.receive())
        assert [d.attempt for d in await world.receive()] == [3]


async def test_deleting_a_group_takes_its_retries_along() -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, numbered(2))
        received = await world.receive()
        await world.nack(received[0], delay_ms=0)
        await give_up(world, received[1])
        await world.broker.settings_changes.delete_group(GROUP)
        await world.group(GroupSettings(start="latest"))
        assert await world.receive() == []
        assert await dead_letters(world) == []
        world.store.fill(TOPIC, 0, numbered(1))
        await world.nack(*await world.receive(), delay_ms=0)
        assert [d.attempt for d in await world.receive()] == [2]
        await world.broker.settings_changes.delete_topic(TOPIC)
        await world.topic()
        assert await world.receive() == []


async def test_a_group_that_left_a_topic_does_not_begin_with_its_old_retries() -> None:
    async with running() as world:
        await world.group(GroupSettings(start="latest"))
        assert await world.receive() == []
        await world.send(b"acked", b"waits")
        await world.nack(*await world.receive())
        again = await world.receive(1)
        assert (bodies(again), await world.ack(*again)) == ([b"acked"], [None])
        await world.broker.offset_admin.delete(GROUP, TOPIC, None)
        assert await world.receive() == []


@pytest.mark.parametrize("how", ["another order", "a reset"])
async def test_a_dead_letter_whose_lease_ends_before_it_is_written_is_no_success(how: str) -> None:
    async with running() as world:
        await world.group(GroupSettings(retry_policy=CustomizedRetry((0,))))
        world.store.fill(TOPIC, 0, numbered(4))
        taken = await world.receive()
        world.store.held = []
        letters = [Nack(taken[number].receipt_handle) for number in (0, 2)]  # a step for each
        async with asyncio.TaskGroup() as tasks:
            settling = tasks.create_task(
                world.broker.settler.settle(TOPIC, GROUP, dead_letters=letters, nacks=[])
            )
            await until(lambda: bool(world.store.held))
            if how == "a reset":
                request = ResetRequest("earliest")
                tasks.create_task(world.broker.offset_admin.reset(GROUP, [TOPIC], request))
            else:
                settings = GroupSettings(
                    order=DeliveryOrder.FIFO, retry_policy=CustomizedRetry((0,))
                )
                await world.group(settings)
                tasks.create_task(world.receive(1))
            for _ in range(20):
                await asyncio.sleep(0)
            world.store.confirm()
        errors = [type(result.error) for result in settling.result()]
        assert errors == [type(None), ReceiptHandleExpired]
        assert len(await dead_letters(world)) == 1
        await world.lapse(s=60)
        came: list[bytes] = []
        while again := await world.receive():
            came += bodies(again)
            await world.ack(*again)
        assert sorted(came)[-3:] == [b"1", b"2", b"3"]
