"""What a topic takes: its permission, the queues that take messages, and its limits."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import nullcontext
from functools import partial

import pytest

from app.broker.dedup.tokens import KeyToken, ProducerToken
from app.broker.polling.poll_values import PollRequest
from app.broker.read.browser import BrowseRequest
from app.broker.results import BatchItem, Send
from app.broker.streams.group_stream import GroupStreamRequest
from app.broker.streams.stream import StreamEnded
from app.broker.streams.topic_stream import TopicStreamRequest
from app.domain.changes.conditions import Terms
from app.domain.consumers.membership import Profile, TopicSubscription
from app.domain.errors import (
    BodyTooLarge,
    CurlewError,
    NoPermission,
    QueueNotFound,
    TooManyRequests,
    TopicFull,
)
from app.domain.limits import TOPIC_BYTES_FRESH_S
from app.domain.message import Message
from app.domain.positions import FlushMode
from app.domain.settings import Permission, TopicSettings
from tests.support.clients.frames import request_frame
from tests.support.nodes.brokers import GROUP, TOPIC, World, never_gone, running

pytestmark = pytest.mark.anyio

Way = Callable[[World], Awaitable[object]]


async def _settle(world: World) -> object:
    sends = [Send(TOPIC, BatchItem(Message(b"x")))]
    [delivery] = await world.receive()
    done = await world.broker.ack_and_produce.ack_and_send(
        TOPIC, GROUP, [delivery.receipt_handle], sends
    )
    if done.refused is not None:
        raise done.refused
    return done


WAYS_TO_SEND: dict[str, Way] = {
    "single": lambda world: world.broker.sender.send(TOPIC, Message(b"x")),
    "batch": lambda world: world.broker.sender.send_batch(TOPIC, [BatchItem(Message(b"x"))]),
    "frame": lambda world: world.broker.sender.send_frame(
        TOPIC, request_frame([Message(b"x")], TOPIC)
    ),
    "single with a key": lambda world: world.broker.deduplicator.send(
        TOPIC, Message(b"x"), KeyToken("k", "f")
    ),
    "numbered frame": lambda world: world.broker.deduplicator.send_frame(
        TOPIC, request_frame([Message(b"x")], TOPIC), ProducerToken("p", 0, 0)
    ),
    "transaction": lambda world: world.broker.transactions.prepare(
        TOPIC, Message(b"x"), producer_group="shop"
    ),
    "request": lambda world: world.broker.request_reply.request(TOPIC, Message(b"x"), wait_s=0.01),
}

WAYS_TO_READ: dict[str, Way] = {
    "pull": lambda world: world.pull(),
    "receive": lambda world: world.receive(),
    "browse": lambda world: world.broker.browser.browse(TOPIC, BrowseRequest()),
    "by id": lambda world: world.broker.browser.message(TOPIC, "x"),
    "stream": lambda world: world.broker.streams.open_topic(TOPIC, TopicStreamRequest()),
    "group stream": lambda world: world.broker.streams.open_group(
        TOPIC, GROUP, GroupStreamRequest(1)
    ),
}


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with running() as world:
        yield world


async def settings(world: World, **more: object) -> None:
    """Settings of the topic, as a client changes them."""
    await world.broker.settings_changes.change_topic(TOPIC, more, Terms())


async def refusal(way: Way, world: World) -> CurlewError:
    with pytest.raises(CurlewError) as caught:
        await way(world)
    return caught.value


@pytest.mark.parametrize("permission", [Permission.READ, Permission.NONE])
@pytest.mark.parametrize("way", WAYS_TO_SEND.values(), ids=WAYS_TO_SEND)
async def test_a_topic_that_takes_nothing_refuses_each_send(
    world: World, way: Way, permission: Permission
) -> None:
    await settings(world, permission=permission)
    error = await refusal(way, world)
    assert isinstance(error, NoPermission), error
    assert (error.outcome, error.fields["permission"]) == ("not_stored", permission.value)
    assert world.store.bounds(TOPIC, 0).max_offset == 0


@pytest.mark.parametrize("permission", [Permission.WRITE, Permission.NONE])
@pytest.mark.parametrize("way", WAYS_TO_READ.values(), ids=WAYS_TO_READ)
async def test_a_topic_that_gives_nothing_refuses_each_reader(
    world: World, way: Way, permission: Permission
) -> None:
    await world.send(b"x")
    await settings(world, permission=permission)
    error = await refusal(way, world)
    assert isinstance(error, NoPermission), error
    assert error.fields["permission"] == permission.value


async def test_the_other_half_goes_on(world: World) -> None:
    await settings(world, permission=Permission.WRITE)
    await world.send(b"x")
    await settings(world, permission=Permission.READ)
    [delivery] = await world.receive()
    assert delivery.message.body == b"x"
    await settings(world, permission=Permission.NONE)
    assert await world.ack(delivery) == [None]


@pytest.mark.parametrize(
    ("settings_now", "perms", "writable", "is_read"),
    [
        ({"write_queues": 1}, ["rw", "r"], [True, False], True),
        ({"write_queues": 1, "permission": Permission.WRITE}, ["w", "none"], [True, False], False),
        ({"write_queues": 1, "permission": Permission.READ}, ["r", "r"], [False, False], True),
        ({"permission": Permission.WRITE}, ["w", "w"], [True, True], False),
        ({"permission": Permission.NONE}, ["none", "none"], [False, False], False),
    ],
)
async def test_what_a_queue_takes_and_gives_is_what_its_permission_says(
    settings_now: dict[str, object], perms: list[str], writable: list[bool], is_read: bool
) -> None:
    """It is derived: what is told of a queue, and what is done, come of the same two settings."""
    async with running(2) as world:
        send = world.broker.sender.send
        for queue_id in range(2):
            await send(TOPIC, Message(b"x"), queue_id=queue_id)
        polled = PollRequest(Profile((TopicSubscription(TOPIC),)), 0)
        poll = partial(world.broker.poller.poll, "pollers", "w1", gone=never_gone)
        await poll(polled)
        await settings(world, **settings_now)
        topic = world.metadata.snapshot.topics[TOPIC]
        assert [topic.permission_of(queue_id).value for queue_id in range(2)] == perms
        for queue_id, is_writable in enumerate(writable):
            assert ("w" in perms[queue_id]) is is_writable
            assert ("r" in perms[queue_id]) is is_read
            with nullcontext() if is_writable else pytest.raises(NoPermission):
                await send(TOPIC, Message(b"y"), queue_id=queue_id)
            with nullcontext() if is_read else pytest.raises(NoPermission):
                assert (await world.pull(0, queue_id=queue_id)).read.records
        with nullcontext() if is_read else pytest.raises(NoPermission):
            received = await world.receive(max_messages=8)
            assert {each.message.queue_id for each in received} == {0, 1}
        told = await poll(polled)
        statuses = {part.queue.queue_id: part.status for part in told.parts}
        assert statuses == dict.fromkeys(range(2), "FOUND" if is_read else "NO_PERMISSION")


async def test_sends_with_acks_are_refused_too(world: World) -> None:
    await world.send(b"x")
    await settings(world, permission=Permission.READ)
    assert isinstance(await refusal(_settle, world), NoPermission)


async def test_who_waits_is_told_when_it_ends(world: World) -> None:
    stream = await world.broker.streams.open_topic(TOPIC, TopicStreamRequest())
    waiting = asyncio.ensure_future(world.pull(0, wait_s=60.0))
    await asyncio.sleep(0)
    await settings(world, permission=Permission.WRITE)
    with pytest.raises(NoPermission):
        await waiting
    with pytest.raises(StreamEnded) as ended:
        await stream.next(0)
    assert isinstance(ended.value.error, NoPermission)


async def test_a_repetition_gets_its_first_result_whatever_the_topic_takes_now(
    world: World,
) -> None:
    await settings(world, queues=2)
    tokens = KeyToken("k", "f"), ProducerToken("p", 0, 0)
    send, frame = world.broker.deduplicator.send, request_frame([Message(b"x" * 50)], TOPIC)
    for token in tokens:
        await send(TOPIC, Message(b"x" * 50), token, queue_id=1)
    key = KeyToken("k2", "f")
    await world.broker.deduplicator.send_frame(TOPIC, frame, key, queue_id=1)
    await settings(world, permission=Permission.READ, write_queues=1, max_body_bytes=10)
    for token in tokens:
        assert (await send(TOPIC, Message(b"x" * 50), token, queue_id=1)).is_repeated
    again = await world.broker.deduplicator.send_frame(TOPIC, frame, key, queue_id=1)
    assert again.is_repeated


# --- queues that take messages


async def test_messages_go_to_the_queues_that_take_them(world: World) -> None:
    await settings(world, queues=8, write_queues=3)
    sender = world.broker.sender
    queues = {(await sender.send(TOPIC, Message(b"x"))).queue_id for _ in range(9)}
    keys = [Message(b"x", sharding_key=f"k{number}") for number in range(40)]
    queues |= {(await sender.send(TOPIC, each)).queue_id for each in keys}
    results = await sender.send_batch(TOPIC, [BatchItem(each) for each in keys], spread=True)
    queues |= {each.queue_id for each in results if not isinstance(each, CurlewError)}
    assert queues == {0, 1, 2}


async def test_a_queue_that_takes_nothing_is_read_and_not_written_to(world: World) -> None:
    await settings(world, queues=4)
    await world.send(b"old", queue_id=3)
    await settings(world, write_queues=2)
    for way in (
        lambda _: world.send(b"new", queue_id=3),
        lambda _: world.broker.sender.send_batch(TOPIC, [BatchItem(Message(b"x"))], queue_id=2),
        lambda _: world.broker.sender.send_frame(
            TOPIC, request_frame([Message(b"x")], TOPIC), queue_id=2
        ),
        lambda _: world.broker.deduplicator.send(
            TOPIC, Message(b"x"), KeyToken("k", "f"), queue_id=2
        ),
        lambda _: world.broker.transactions.prepare(
            TOPIC, Message(b"x"), producer_group="shop", queue_id=2
        ),
    ):
        error = await refusal(way, world)
        assert isinstance(error, NoPermission)
        assert (error.outcome, error.fields["permission"]) == ("not_stored", "r")
    [bad] = await world.broker.sender.send_batch(TOPIC, [BatchItem(Message(b"x"), 3)])
    assert isinstance(bad, NoPermission)
    with pytest.raises(QueueNotFound):
        await world.send(b"new", queue_id=4)
    pulled = await world.pull(0, queue_id=3)
    assert len(pulled.read.records) == 1
    assert [each.message.body for each in await world.receive()] == [b"old"]
    await settings(world, write_queues=4)
    await world.send(b"new", queue_id=3)


async def test_a_plan_goes_over_the_queues_that_take_messages_and_stays(world: World) -> None:
    await settings(world, queues=4, write_queues=3)
    topic = world.metadata.snapshot.topics[TOPIC]
    plan = world.broker.producers.plan
    assert (await plan("q", 1, topic)).queues == 3
    await settings(world, write_queues=1)
    topic = world.metadata.snapshot.topics[TOPIC]
    assert (await plan("q", 1, topic)).queues == 3
    assert (await plan("q", 2, topic)).queues == 1
    planned = ProducerToken("q:0", 1, 0)
    once = await world.broker.deduplicator.send(TOPIC, Message(b"x"), planned, queue_id=2)
    assert once.results[0].queue_id == 2


# --- limits


@pytest.mark.parametrize("way", WAYS_TO_SEND.values(), ids=WAYS_TO_SEND)
async def test_a_body_over_the_topics_own_bound_is_refused(world: World, way: Way) -> None:
    await settings(world, max_body_bytes=1)
    if way is not WAYS_TO_SEND["request"]:
        await way(world)
    large = Message(b"xx")
    sender = world.broker.sender
    with pytest.raises(BodyTooLarge) as caught:
        await sender.send(TOPIC, large)
    assert (caught.value.fields["limit_bytes"], caught.value.outcome) == (1, "not_stored")
    small, bad = await sender.send_batch(TOPIC, [BatchItem(Message(b"x")), BatchItem(large)])
    assert not isinstance(small, CurlewError)
    assert isinstance(bad, BodyTooLarge)
    with pytest.raises(BodyTooLarge):
        await sender.send_frame(TOPIC, request_frame([Message(b"x"), large], TOPIC))
    with pytest.raises(BodyTooLarge):
        await world.broker.deduplicator.send(TOPIC, large, KeyToken("k9", "f"))


async def test_a_rate_is_held_and_gives_again(world: World) -> None:
    await settings(world, max_rate=5)
    for _ in range(5):
        await world.send(b"x")
    with pytest.raises(TooManyRequests) as caught:
        await world.send(b"x")
    error = caught.value
    assert (error.outcome, error.retry_after_s, error.fields["limit"]) == ("not_stored", 1, 5)
    assert error.quota is not None
    assert (error.quota.unit, error.quota.window_s) == ("requests", 1)
    world.clock.advance(s=1)
    await world.broker.sender.send_frame(TOPIC, request_frame([Message(b"x")] * 20, TOPIC))
    world.clock.advance(s=2)
    with pytest.raises(TooManyRequests) as caught:
        await world.broker.sender.send_batch(TOPIC, [BatchItem(Message(b"x"))])
    assert caught.value.outcome == "not_stored"
    world.clock.advance(s=2)
    await world.send(b"x")
    await settings(world, max_rate=None)
    for _ in range(50):
        await world.send(b"x")


async def test_a_successor_of_the_name_has_a_rate_of_its_own(world: World) -> None:
    await settings(world, max_rate=1)
    await world.send(b"x")
    await world.broker.settings_changes.delete_topic(TOPIC)
    await settings(world, max_rate=1, flush=FlushMode.ASYNC)
    await world.send(b"x")
    with pytest.raises(TooManyRequests):
        await world.send(b"x")


async def test_a_topic_takes_so_many_bytes(world: World) -> None:
    await settings(world, queues=2, max_stored_bytes=2_000)

    async def fill() -> None:
        for number in range(100):
            await world.send(b"x" * 300, queue_id=number % 2)

    with pytest.raises(TopicFull) as caught:
        await fill()
    error = caught.value
    assert (error.outcome, error.retryable, error.fields["limit_bytes"]) == (
        "not_stored",
        True,
        2_000,
    )
    held = sum(world.store.bounds(TOPIC, queue).max_offset for queue in range(2))
    assert 5 <= held <= 8
    for queue in range(2):
        world.store.trim(TOPIC, queue, world.store.bounds(TOPIC, queue).max_offset)
    world.clock.advance(s=TOPIC_BYTES_FRESH_S)
    await world.send(b"x")


async def test_what_deleted_topics_took_is_swept_out(world: World) -> None:
    for number in range(1_200):
        name = f"t{number}"
        await world.metadata.put_topic(name, TopicSettings(max_rate=5, flush=FlushMode.ASYNC))
        await world.broker.sender.send(name, Message(b"x"))
        await world.metadata.delete_topic(name)
    assert len(world.broker.sender._admit.__self__._taken) <= 1_030  # type: ignore[attr-defined]
