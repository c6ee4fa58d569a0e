"""Bounds of a group by bytes and by span: what is not handed out, and when it goes on."""

import asyncio

import pytest

from app.broker.polling.poll_values import PollCommit, PollRequest
from app.domain.consumers.membership import Profile, QueueName, TopicSubscription
from app.domain.errors import DiskFull
from app.domain.settings import CustomizedRetry, GroupSettings
from tests.support.nodes.brokers import GROUP, TOPIC, World, never_gone, offsets, running
from tests.support.nodes.waiting import until

pytestmark = pytest.mark.anyio


def held_bytes(world: World) -> int:
    subscription = world.broker.groups.find(GROUP, TOPIC)
    return 0 if subscription is None else subscription.in_flight.bytes


async def test_a_group_is_given_no_more_while_it_holds_so_many_bytes() -> None:
    async with running() as world:
        await world.group(GroupSettings(max_in_flight_bytes=3_000))
        world.store.fill(TOPIC, 0, [b"x" * 1_000] * 9)
        first = await world.receive(9)
        assert offsets(first) == [0, 1]
        assert 2_000 < held_bytes(world) < 3_000
        assert offsets(await world.receive(9, client_id="w2")) == [2]  # one may go over
        assert await world.receive(9) == []
        await world.ack(*first)
        assert offsets(await world.receive(9)) == [3]


async def test_a_message_that_is_larger_than_the_bound_is_given_alone() -> None:
    async with running() as world:
        await world.group(GroupSettings(max_in_flight_bytes=10))
        world.store.fill(TOPIC, 0, [b"x" * 1_000] * 2)
        received = await world.receive(9)
        assert offsets(received) == [0]
        await world.ack(*received)
        assert offsets(await world.receive(9)) == [1]


async def test_what_is_read_from_the_disk_counts_while_it_is_read() -> None:
    async with running(queues=3) as world:
        await world.group(GroupSettings(max_in_flight_bytes=3_000))
        for queue_id in range(3):
            world.store.fill(TOPIC, queue_id, [b"x" * 1_000] * 9)
            world.store.cold.add((TOPIC, queue_id))
        async with asyncio.TaskGroup() as tasks:
            receives = [
                tasks.create_task(world.receive(9, client_id=f"w{number}")) for number in range(3)
            ]
        received = [delivery for receive in receives for delivery in receive.result()]
        assert len(received) == 2
        assert held_bytes(world) < 3_000
        await world.ack(*received)
        assert held_bytes(world) == 0


async def test_bytes_are_let_go_in_every_way_in_which_a_lease_ends() -> None:
    async with running() as world:
        settings = GroupSettings(max_in_flight_bytes=1 << 20, retry_policy=CustomizedRetry((0,)))
        await world.group(settings)
        world.store.fill(TOPIC, 0, [b"x" * 100] * 6)
        acked, nacked, released, expired, committed = await world.receive(5)
        await world.ack(acked)
        await world.nack(nacked)
        await world.broker.settler.settle(TOPIC, GROUP, releases=[released.receipt_handle])
        before = held_bytes(world)
        await world.commit(committed.message.queue_offset + 1, force=True)
        assert held_bytes(world) == 0 < before
        await world.receive(1)
        await world.lapse(s=31)
        assert held_bytes(world) == 0
        assert expired is not None


async def test_a_receive_that_was_refused_goes_on_after_an_ack() -> None:
    async with running() as world, asyncio.TaskGroup() as tasks:
        await world.group(GroupSettings(max_in_flight_bytes=100))
        world.store.fill(TOPIC, 0, [b"x" * 1_000] * 2)
        first = await world.receive(9)
        waiting = tasks.create_task(world.receive(9, wait_s=60))
        await until(lambda: world.waiting == 1)
        await world.ack(*first)
        assert offsets(await waiting) == [1]


async def test_no_message_is_given_that_lies_too_far_ahead_of_the_committed_offset() -> None:
    async with running() as world, asyncio.TaskGroup() as tasks:
        await world.group(GroupSettings(max_span=3))
        world.store.fill(TOPIC, 0, [b"x"] * 9)
        first = await world.receive(9)
        assert offsets(first) == [0, 1, 2]
        await world.ack(*first[1:])
        assert await world.receive(9) == []
        waiting = tasks.create_task(world.receive(9, wait_s=60))
        await until(lambda: world.waiting == 1)
        await world.ack(first[0])
        assert offsets(await waiting) == [3, 4, 5]


async def test_retries_come_whatever_the_span_says() -> None:
    async with running() as world:
        await world.group(GroupSettings(max_span=1))
        world.store.fill(TOPIC, 0, [b"x"] * 3)
        await world.nack(*await world.receive(9))
        assert sorted(offsets(await world.receive(9))) == [0, 1]


async def test_a_poll_reads_no_further_than_the_span() -> None:
    async with running() as world:
        await world.group(GroupSettings(max_span=3))
        world.store.fill(TOPIC, 0, [b"x"] * 9)
        queue = QueueName(TOPIC, 0)
        profile = Profile((TopicSubscription(TOPIC),))
        poll = world.broker.poller.poll
        [part] = (await poll(GROUP, "w1", PollRequest(profile, 0), gone=never_gone)).parts
        assert (part.status, part.offset) == ("FOUND", 3)
        request = PollRequest(profile, 1, positions={queue: 3})
        [part] = (await poll(GROUP, "w1", request, gone=never_gone)).parts
        assert (part.status, part.offset) == ("FLOW_CONTROL", 3)
        request = PollRequest(profile, 1, positions={queue: 3}, commits=[PollCommit(queue, 2)])
        [part] = (await poll(GROUP, "w1", request, gone=never_gone)).parts
        assert (part.status, part.offset) == ("FOUND", 5)


async def test_a_poll_goes_on_where_retention_has_passed_the_committed_offset() -> None:
    async with running() as world:
        await world.group(GroupSettings(max_span=3))
        world.store.fill(TOPIC, 0, [b"x"] * 9)
        queue = QueueName(TOPIC, 0)
        profile = Profile((TopicSubscription(TOPIC),))
        poll = world.broker.poller.poll
        await poll(GROUP, "w1", PollRequest(profile, 0), gone=never_gone)
        world.store.queues[TOPIC, 0].min_offset = 5
        request = PollRequest(profile, 1, positions={queue: 3})
        [part] = (await poll(GROUP, "w1", request, gone=never_gone)).parts
        assert (part.status, part.offset) == ("OFFSET_EXPIRED", 5)
        request = PollRequest(profile, 1, positions={queue: 5})
        [part] = (await poll(GROUP, "w1", request, gone=never_gone)).parts
        assert (part.status, part.offset) == ("FOUND", 8)


async def test_a_refused_ack_leaves_the_bytes_with_their_holder() -> None:
    async with running() as world:
        await world.group(GroupSettings(max_in_flight_bytes=1 << 20))
        world.store.fill(TOPIC, 0, [b"x" * 100] * 2)
        received = await world.receive(2)
        before = held_bytes(world)
        world.store.failure = DiskFull("no room", outcome="not_stored")
        with pytest.raises(DiskFull):
            await world.ack(*received)
        world.store.failure = None
        assert held_bytes(world) == before > 0
        await world.ack(*received)
        assert held_bytes(world) == 0


async def test_a_retry_is_unpacked_by_who_gives_it() -> None:
    async with running() as world:
        await world.retry_at_once()
        await world.send(b"x")
        await world.nack(*(await world.receive()))
        [delivery] = await world.receive()
        assert isinstance(delivery.content, memoryview)
        assert (delivery.message.topic, delivery.message.queue_offset) == (TOPIC, 0)
