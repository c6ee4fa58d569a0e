"""Acks and sends as one step: all of it, or nothing, whatever is wrong and whenever it crashes."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from app.broker.results import AckedAndSent, BatchItem, Delivery, Send, SendResult
from app.domain.delays import Due
from app.domain.errors import (
    BatchTooLarge,
    BodyTooLarge,
    CurlewError,
    DiskFull,
    GroupNotFound,
    InvalidReceiptHandle,
    InvalidRequest,
    QueueNotFound,
    ReceiptHandleExpired,
    TopicNotFound,
    TopicTypeConflict,
)
from app.domain.limits import Limits
from app.domain.message import Message
from app.domain.names import PROGRESS_TOPIC
from app.domain.positions import FlushMode
from app.domain.settings import DeliveryOrder, GroupSettings, TopicSettings, TopicType
from tests.support.nodes.brokers import GROUP, IDLE, TOPIC, World, bodies, offsets, running
from tests.support.nodes.waiting import until

pytestmark = pytest.mark.anyio

DONE = "done"


def send(body: bytes, topic: str = DONE, **more: object) -> Send:
    return Send(topic, BatchItem(Message(body), **more))  # type: ignore[arg-type]


async def step(
    world: World, received: Sequence[Delivery | str], sends: Sequence[Send]
) -> AckedAndSent:
    handles = [each if isinstance(each, str) else each.receipt_handle for each in received]
    return await world.broker.ack_and_produce.ack_and_send(TOPIC, GROUP, handles, sends)


async def stored(world: World, topic: str = DONE, queues: int = 2) -> list[bytes]:
    found: list[bytes] = []
    for queue_id in range(queues):
        end = world.store.bounds(topic, queue_id).max_offset
        read = world.store.read(topic, queue_id, 0, max_messages=end + 1, max_bytes=1 << 20)
        found += [world.store.decode(record).body for record in read.records]
    return found


async def inputs(world: World, count: int) -> list[Delivery]:
    await world.topic(2, DONE)
    world.store.fill(TOPIC, 0, [b"%d" % number for number in range(count)])
    return await world.receive(count)


def errors(done: AckedAndSent) -> list[type[CurlewError] | None]:
    every = [*(result.error for result in done.acks), *done.sends]
    return [type(each) if isinstance(each, CurlewError) else None for each in every]


def results(done: AckedAndSent) -> list[SendResult]:
    return [each for each in done.sends if isinstance(each, SendResult)]


async def test_acks_and_messages_to_several_topics_are_one_step() -> None:
    async with running() as world:
        await world.topic(2, "other")
        received = await inputs(world, 3)
        appends = len(world.store.flushes)
        sends = [send(b"a", queue_id=1), send(b"b", "other", queue_id=0), send(b"c", queue_id=1)]
        done = await step(world, received[:2], sends)
        assert done.refused is None
        assert errors(done) == [None] * 5
        sent = results(done)
        found = [(each.topic, each.queue_id, each.queue_offset) for each in sent]
        assert found == [(DONE, 1, 0), ("other", 0, 0), (DONE, 1, 1)]
        assert (await stored(world), await stored(world, "other")) == ([b"a", b"c"], [b"b"])
        assert len(world.store.flushes) - appends == 3, "the entry and two parts"
        assert (await world.broker.browser.message("other", sent[1].message_id)).body == b"b"
        await world.kill()
        assert offsets(await world.receive()) == [2]


async def test_with_one_bad_handle_nothing_is_done() -> None:
    async with running(config=replace(IDLE, auto_create_topics=True)) as world:
        received = await inputs(world, 2)
        await world.ack(received[1])
        done = await step(world, received, [send(b"x", "new")])
        assert isinstance(done.refused, ReceiptHandleExpired)
        assert done.refused.outcome == "not_stored"
        assert errors(done) == [InvalidRequest, ReceiptHandleExpired, InvalidRequest]
        other = done.acks[0].error
        assert other is not None
        assert "/acks/1" in other.detail
        done = await step(world, [received[0], "nonsense"], [send(b"x", "new")])
        assert errors(done)[1] is InvalidReceiptHandle
        assert "new" not in world.metadata.snapshot.topics, "nothing means nothing"
        assert (await step(world, received[:1], [send(b"x")])).refused is None


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (send(bytes(5_000)), BodyTooLarge),
        (send(b"x", queue_id=9), QueueNotFound),
        (send(b"x", "none"), TopicNotFound),
        (send(b"x", "keyed"), TopicTypeConflict),
        (Send(DONE, InvalidRequest("bad")), InvalidRequest),
    ],
)
async def test_with_one_bad_message_nothing_is_done(bad: Send, error: type[CurlewError]) -> None:
    async with running(limits=Limits(body_bytes_max=1_000)) as world:
        await world.metadata.put_topic("keyed", TopicSettings(queues=1, type=TopicType.FIFO))
        received = await inputs(world, 1)
        done = await step(world, received, [send(b"good"), bad])
        assert isinstance(done.refused, error)
        assert errors(done) == [InvalidRequest, InvalidRequest, error]
        assert await stored(world) == []
        assert world.committed() == {0: 0}
        assert (await step(world, received, [send(b"good")])).refused is None


async def test_a_repeated_request_sends_nothing_again() -> None:
    """The answer was lost and the lease lasts still: an ack could be repeated, this cannot."""
    async with running() as world:
        received = await inputs(world, 1)
        await step(world, received, [send(b"x")])
        assert await world.ack(*received) == [None]
        again = await step(world, received, [send(b"x")])
        assert isinstance(again.refused, ReceiptHandleExpired)
        assert again.refused.hint is not None
        assert "its sends are stored" in again.refused.hint
        assert await stored(world) == [b"x"]


async def test_a_lost_lease_sends_nothing() -> None:
    async with running() as world:
        await world.retry_at_once()
        received = await inputs(world, 1)
        await world.lapse(s=31)
        assert (await step(world, received, [send(b"late")])).refused is not None
        [again] = await world.receive()
        assert (await step(world, [again], [send(b"now")])).refused is None
        assert await stored(world) == [b"now"]


async def test_a_kill_before_the_step_is_stored_leaves_the_input() -> None:
    async with running() as world:
        received = await inputs(world, 1)
        world.store.refusal = DiskFull("full")
        with pytest.raises(DiskFull) as failed:
            await step(world, received, [send(b"x")])
        assert failed.value.outcome == "not_stored"
        world.store.refusal = None
        assert await stored(world) == []
        assert (await step(world, received, [send(b"x")])).refused is None


async def test_the_answer_waits_for_the_strictest_topic() -> None:
    async with running() as world:
        received = await inputs(world, 1)
        await world.metadata.put_topic("safe", TopicSettings(queues=1, flush=FlushMode.SYNC))
        world.store.held = []
        ask = asyncio.ensure_future(step(world, received, [send(b"x"), send(b"y", "safe")]))
        await until(lambda: bool(world.store.held))
        await asyncio.sleep(0)
        assert not ask.done()
        assert set(world.store.flushes[-3:]) == {FlushMode.SYNC}
        world.store.confirm()
        assert (await ask).refused is None


async def test_a_delayed_message_comes_when_it_is_due() -> None:
    async with running() as world:
        received = await inputs(world, 1)
        sends = [send(b"later", due=Due(5_000, is_delay=True)), send(b"now", queue_id=0)]
        later, now = results(await step(world, received, sends))
        assert (later.queue_offset, later.deliver_time_ms) == (-1, world.clock.now_ms() + 5_000)
        assert later.recall_handle is not None
        assert (now.queue_offset, now.recall_handle) == (0, None)
        assert await stored(world) == [b"now"]
        await world.lapse(s=5)
        assert sorted(await stored(world)) == [b"later", b"now"]


async def test_an_ordered_group_goes_on() -> None:
    async with running() as world:
        await world.group(GroupSettings(order=DeliveryOrder.FIFO))
        await world.topic(1, DONE)
        for body in (b"1", b"2"):
            await world.broker.sender.send(TOPIC, Message(body, sharding_key="k"))
        [first] = await world.receive()
        assert await world.receive() == []
        assert (await step(world, [first], [send(b"x")])).refused is None
        assert bodies(await world.receive()) == [b"2"]


@pytest.mark.parametrize("order", list(DeliveryOrder))
async def test_a_step_that_the_disk_refuses_later_leaves_the_input(order: DeliveryOrder) -> None:
    """The writer took it, and found no room for the next segment."""
    async with running() as world:
        await world.group(GroupSettings(order=order))
        await world.topic(1, DONE)
        for body in (b"1", b"2"):
            await world.broker.sender.send(TOPIC, Message(body, sharding_key="k"))
        received = await world.receive(1)
        world.store.failure = DiskFull("no room for another segment", outcome="not_stored")
        with pytest.raises(DiskFull) as raised:
            await step(world, received, [send(b"x")])
        assert raised.value.outcome == "not_stored"
        world.store.failure = None
        assert world.committed() == {0: 0}
        if order is DeliveryOrder.FIFO:
            received = await world.receive(2)
            assert bodies(received) == [b"1"], "its turn again, and nobody else's"
        assert (await step(world, received, [send(b"x")])).refused is None
        assert await stored(world) == [b"x"]
        assert bodies(await world.receive()) == [b"2"]
        await world.kill()
        assert bodies(await world.receive()) == [b"2"]


async def test_an_input_whose_step_was_refused_comes_again_when_its_lease_ends() -> None:
    async with running() as world:
        await world.retry_at_once()
        received = await inputs(world, 1)
        world.store.failure = DiskFull("no room for another segment", outcome="not_stored")
        with pytest.raises(DiskFull):
            await step(world, received, [send(b"x")])
        world.store.failure = None
        assert await world.receive() == []
        await world.lapse(s=31)
        [again] = await world.receive()
        assert (again.message.body, again.attempt) == (received[0].message.body, 2)
        assert (await step(world, [again], [send(b"x")])).refused is None


async def test_what_is_no_step() -> None:
    async with running(limits=Limits(batch_messages_max=2)) as world:
        received = await inputs(world, 1)
        with pytest.raises(InvalidRequest, match="no handle"):
            await step(world, [], [send(b"x")])
        with pytest.raises(BatchTooLarge):
            await step(world, received, [send(b"x")] * 3)
        with pytest.raises(GroupNotFound):
            await world.broker.ack_and_produce.ack_and_send(TOPIC, "nobody", ["h"], [send(b"x")])


async def test_the_control_without_the_entry_the_input_comes_twice() -> None:
    """As if the acks were not part of the step: after the kill there are two results of one."""
    async with running() as world:
        received = await inputs(world, 1)
        await step(world, received, [send(b"x")])
        queue = world.store.queues[PROGRESS_TOPIC, 0]
        queue.min_offset = queue.confirmed
        await world.kill()
        again = await world.receive()
        assert (await step(world, again, [send(b"x")])).refused is None
        assert await stored(world) == [b"x", b"x"]
