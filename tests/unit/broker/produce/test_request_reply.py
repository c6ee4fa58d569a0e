"""Requests: who gets the reply, when it is too late, what is bounded, what a stop does."""

import asyncio

import pytest

from app.broker.failures.dead_letter_admin import Selection
from app.broker.produce.request_reply import Replied, expectation_of
from app.broker.results import Nack
from app.domain.errors import (
    BodyTooLarge,
    IllegalWait,
    NoReply,
    RequestExpired,
    RequestNotFound,
    ShuttingDown,
    StoreFailed,
    TooManyRequests,
    TopicNotFound,
)
from app.domain.limits import Limits
from app.domain.message import Message, StoredMessage
from tests.support.nodes.brokers import GROUP, TOPIC, World, running
from tests.support.nodes.waiting import until

pytestmark = pytest.mark.anyio


async def requested(world: World, body: bytes, wait_s: float = 60) -> Replied:
    return await world.broker.request_reply.request(TOPIC, Message(body), wait_s, queue_id=0)


async def stored(world: World, offset: int = 0) -> StoredMessage:
    """The request as its consumer gets it."""
    await until(lambda: world.store.bounds(TOPIC, 0).max_offset > offset)
    (delivery,) = await world.receive(1)
    return delivery.message


def correlation_of(message: StoredMessage) -> str:
    expectation = expectation_of(message)
    assert expectation is not None
    return expectation.correlation_id


async def test_a_reply_goes_to_the_request_that_waits() -> None:
    async with running() as world, asyncio.TaskGroup() as tasks:
        first = tasks.create_task(requested(world, b"first"))
        await until(lambda: world.broker.request_reply.waiting_count == 1)
        second = tasks.create_task(requested(world, b"second"))
        messages = [await stored(world), await stored(world, 1)]
        for message in reversed(messages):
            reply = Message(b"re: " + message.body, tag="t", properties={"a": "b"})
            world.broker.request_reply.reply(correlation_of(message), reply)
        assert (await first).reply.message.body == b"re: first"
        replied = await second
        assert replied.reply.message.properties == {"a": "b"}
        assert replied.sent.queue_offset == 1
        assert replied.correlation_id == correlation_of(messages[1])
        assert world.broker.request_reply.waiting_count == 0


async def test_a_request_that_is_tried_again_can_still_be_replied_to() -> None:
    async with running() as world, asyncio.TaskGroup() as tasks:
        task = tasks.create_task(requested(world, b"x"))
        await until(lambda: world.store.bounds(TOPIC, 0).max_offset > 0)
        [delivery] = await world.receive(1)
        expectation = expectation_of(delivery.message)
        for _ in range(2):  # a copy, and a copy of the copy
            await world.nack(delivery)
            [delivery] = await world.receive(1, wait_s=5)
            assert expectation_of(delivery.message) == expectation
        letter = Nack(delivery.receipt_handle)
        await world.broker.settler.settle(TOPIC, GROUP, dead_letters=[letter])
        world.broker.dead_letters.redrive(GROUP, Selection())
        [delivery] = await world.receive(1, wait_s=5)
        assert delivery.attempt == 1
        world.broker.request_reply.reply(correlation_of(delivery.message), Message(b"in time"))
        assert (await task).reply.message.body == b"in time"


async def test_a_request_carries_what_rocketmq_says() -> None:
    async with running() as world, asyncio.TaskGroup() as tasks:
        task = tasks.create_task(requested(world, b"x", wait_s=2.5))
        message = await stored(world)
        assert message.properties == {}
        assert message.system["TTL"] == "2500"
        assert message.system["REPLY_TO_CLIENT"].startswith("curlew-")
        expectation = expectation_of(message)
        assert expectation is not None
        assert expectation.until_ms == world.clock.now_ms() + 2_500
        world.broker.request_reply.reply(expectation.correlation_id, Message(b""))
        await task


async def test_no_reply_in_time_says_that_the_request_is_stored() -> None:
    async with running() as world:
        with pytest.raises(NoReply) as caught:
            await requested(world, b"x", wait_s=0.001)
        assert caught.value.outcome == "stored"
        assert caught.value.fields["queue_offset"] == 0
        message = await stored(world)
        assert caught.value.fields["correlation_id"] == correlation_of(message)
        assert caught.value.fields["message_id"] == message.message_id
        with pytest.raises(RequestExpired):
            world.broker.request_reply.reply(correlation_of(message), Message(b"late"))
        assert world.broker.request_reply.waiting_count == 0


async def test_a_second_reply_is_refused() -> None:
    async with running() as world, asyncio.TaskGroup() as tasks:
        task = tasks.create_task(requested(world, b"x"))
        correlation_id = correlation_of(await stored(world))
        world.broker.request_reply.reply(correlation_id, Message(b"one"))
        with pytest.raises(RequestExpired):
            world.broker.request_reply.reply(correlation_id, Message(b"two"))
        assert (await task).reply.message.body == b"one"
        with pytest.raises(RequestExpired):
            world.broker.request_reply.reply(correlation_id, Message(b"three"))


async def test_a_requester_that_leaves_waits_no_longer() -> None:
    async with running() as world:
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(requested(world, b"x"))
            correlation_id = correlation_of(await stored(world))
            task.cancel()
        assert world.broker.request_reply.waiting_count == 0
        with pytest.raises(RequestExpired):
            world.broker.request_reply.reply(correlation_id, Message(b"y"))


@pytest.mark.parametrize("correlation_id", ["", "x", "00000009-" + "0" * 32, "00000001-abc", "-"])
async def test_a_reply_to_nobody_is_refused(correlation_id: str) -> None:
    async with running() as world:
        with pytest.raises(RequestNotFound):
            world.broker.request_reply.reply(correlation_id, Message(b"y"))


async def test_waiting_requests_are_bounded() -> None:
    async with running(limits=Limits(requests_waiting_max=2)) as world:
        async with asyncio.TaskGroup() as tasks:
            waiting = [tasks.create_task(requested(world, b"x")) for _ in range(2)]
            await until(lambda: world.store.bounds(TOPIC, 0).max_offset == 2)
            with pytest.raises(TooManyRequests) as caught:
                await requested(world, b"x")
            for task in waiting:
                task.cancel()
        assert caught.value.outcome == "not_stored"
        assert world.store.bounds(TOPIC, 0).max_offset == 2


async def outcome_of_stop(world: World) -> str | None:
    with pytest.raises(ShuttingDown) as caught:
        await requested(world, b"x")
    return caught.value.outcome


async def test_a_stop_answers_who_waits() -> None:
    async with running() as world, asyncio.TaskGroup() as tasks:
        task = tasks.create_task(outcome_of_stop(world))
        await until(lambda: world.store.bounds(TOPIC, 0).max_offset == 1)
        await world.broker.stop()
        assert await task == "stored"
        assert await outcome_of_stop(world) == "not_stored"


async def test_what_cannot_be_stored_waits_for_nothing() -> None:
    async with running() as world:
        world.store.refusal = StoreFailed("broken")
        with pytest.raises(StoreFailed):
            await requested(world, b"x")
        world.store.refusal = None
        world.store.failure = StoreFailed("broken")
        with pytest.raises(StoreFailed):
            await requested(world, b"x")
        with pytest.raises(TopicNotFound):
            await world.broker.request_reply.request("none", Message(b"x"), 1)
        assert world.broker.request_reply.waiting_count == 0


async def test_limits_hold_for_requests_and_replies() -> None:
    async with running(limits=Limits(body_bytes_max=10)) as world, asyncio.TaskGroup() as tasks:
        for wait_s in (0, -1, 61):
            with pytest.raises(IllegalWait):
                await requested(world, b"x", wait_s=wait_s)
        task = tasks.create_task(requested(world, b"x"))
        correlation_id = correlation_of(await stored(world))
        with pytest.raises(BodyTooLarge):
            world.broker.request_reply.reply(correlation_id, Message(bytes(11)))
        world.broker.request_reply.reply(correlation_id, Message(bytes(10)))
        await task


@pytest.mark.parametrize("until_ms", ["", "x", "9" * 20, "-1"])
async def test_a_message_that_looks_like_a_request_is_none(until_ms: str) -> None:
    async with running() as world:
        system = {"CORRELATION_ID": "x", "MQ_REPLY_BY": until_ms} if until_ms else {}
        await world.broker.sender.send(TOPIC, Message(b"x", system=system), queue_id=0)
        assert expectation_of(await stored(world)) is None
