"""A request that is refused leaves no trace in a group: it makes none, and begins nowhere in it."""

from collections.abc import Awaitable, Callable

import pytest

from app.broker.members.member_values import Heartbeat
from app.broker.offsets.offset_commits import Committer
from app.broker.results import Extend, Nack, QueuePosition, ReceiveRequest, Send
from app.broker.streams.group_stream import GroupStreamRequest
from app.domain.consumers.membership import Profile, TopicSubscription
from app.domain.errors import (
    CurlewError,
    IllegalFilter,
    IllegalInvisibleTime,
    IllegalMember,
    IllegalWait,
    InvalidReceiptHandle,
    InvalidRequest,
    OffsetOutOfRange,
    ReceiptHandleExpired,
    ShuttingDown,
    StaleGeneration,
    TooManyRequests,
    TopicNotFound,
)
from app.domain.limits import Limits
from app.domain.settings import GroupSettings
from tests.support.nodes.brokers import GROUP, TOPIC, World, never_gone, running

pytestmark = pytest.mark.anyio

FROM_NOW_ON = GroupSettings(start="latest")

Settle = Callable[[World, str], Awaitable[CurlewError | None]]


async def settle(world: World, **handles: object) -> CurlewError | None:
    [result] = await world.broker.settler.settle(TOPIC, GROUP, **handles)  # type: ignore[arg-type]
    return result.error


async def settle_one(world: World, handle: str) -> CurlewError | None:
    try:
        await world.broker.settler.settle_one(handle, "ack")
    except CurlewError as error:
        return error
    return None


async def ack_and_send(world: World, handle: str) -> CurlewError | None:
    sends = [Send(TOPIC, InvalidRequest("never looked at"))]
    done = await world.broker.ack_and_produce.ack_and_send(TOPIC, GROUP, [handle], sends)
    return done.acks[0].error


SETTLES: dict[str, Settle] = {
    "ack": lambda world, handle: settle(world, acks=[handle]),
    "nack": lambda world, handle: settle(world, nacks=[Nack(handle)]),
    "extend": lambda world, handle: settle(world, extends=[Extend(handle, 30_000)]),
    "dead letter": lambda world, handle: settle(world, dead_letters=[Nack(handle)]),
    "one": settle_one,
    "ack and send": ack_and_send,
}


async def check_that_it_begins_now(world: World) -> None:
    """The group's first receive decides where it begins, whatever was refused before."""
    await world.send(b"before the first receive")
    assert await world.receive() == []
    await world.send(b"after it")
    assert [delivery.message.body for delivery in await world.receive()] == [b"after it"]


async def foreign(world: World) -> str:
    """A live handle of another group."""
    await world.send(b"for another group")
    [delivery] = await world.receive(1, group="another")
    return delivery.receipt_handle


async def lost(world: World) -> str:
    """A handle of the group, whose progress was deleted since."""
    await world.group(GroupSettings())
    await world.send(b"leased before")
    [delivery] = await world.receive(1)
    await world.broker.settings_changes.delete_group(GROUP)
    return delivery.receipt_handle


@pytest.mark.parametrize("action", SETTLES)
async def test_a_refused_settle_does_not_subscribe_the_group(action: str) -> None:
    async with running() as world:
        handles = {
            "AAAA": InvalidReceiptHandle,
            await lost(world): ReceiptHandleExpired,
        }
        if action != "one":
            handles[await foreign(world)] = InvalidReceiptHandle
        await world.group(FROM_NOW_ON)
        for handle, expected in handles.items():
            assert type(await SETTLES[action](world, handle)) is expected
            assert world.committed() == {}
        await check_that_it_begins_now(world)


@pytest.mark.parametrize("action", SETTLES)
async def test_a_handle_of_before_a_restart_has_expired_and_begins_nothing(action: str) -> None:
    async with running() as world:
        await world.group(GroupSettings())
        await world.send(b"a", b"b")
        first, second = await world.receive(2)
        assert await world.ack(first) == [None]
        await world.restart()
        for delivery in (first, second):
            error = await SETTLES[action](world, delivery.receipt_handle)
            assert type(error) is ReceiptHandleExpired
        assert [delivery.message.body for delivery in await world.receive()] == [b"b"]


BAD_RECEIVES: dict[str, tuple[ReceiveRequest, type[CurlewError]]] = {
    "filter": (ReceiveRequest(filter="sql:(("), IllegalFilter),
    "wait": (ReceiveRequest(wait_s=1e6), IllegalWait),
    "invisible": (ReceiveRequest(invisible_ms=1), IllegalInvisibleTime),
    "client id": (ReceiveRequest(client_id=""), InvalidRequest),
    "max_messages": (ReceiveRequest(max_messages=0), InvalidRequest),
    "min_messages": (ReceiveRequest(min_messages=2, filter="a"), InvalidRequest),
}


@pytest.mark.parametrize("fault", BAD_RECEIVES)
async def test_a_refused_receive_makes_no_group_and_subscribes_none(fault: str) -> None:
    request, expected = BAD_RECEIVES[fault]
    async with running() as world:
        with pytest.raises(expected):
            await world.broker.receiver.receive(TOPIC, "unknown", request, gone=never_gone)
        assert "unknown" not in world.metadata.snapshot.groups
        await world.group(FROM_NOW_ON)
        with pytest.raises(expected):
            await world.broker.receiver.receive(TOPIC, GROUP, request, gone=never_gone)
        assert world.committed() == {}
        await check_that_it_begins_now(world)


async def test_a_stream_that_has_no_room_makes_no_group() -> None:
    async with running(limits=Limits(streams_max=1)) as world:
        request = GroupStreamRequest(credit=1)
        stream = await world.broker.streams.open_group(TOPIC, GROUP, request)
        with stream, pytest.raises(TooManyRequests):
            await world.broker.streams.open_group(TOPIC, "unknown", request)
        assert "unknown" not in world.metadata.snapshot.groups


async def test_a_receive_after_the_stop_makes_no_group() -> None:
    async with running() as world:
        await world.broker.stop()
        with pytest.raises(ShuttingDown):
            await world.receive(group="unknown")
        assert "unknown" not in world.metadata.snapshot.groups


BAD_JOINS: dict[str, tuple[Heartbeat, type[CurlewError]]] = {
    "topic": (Heartbeat(Profile((TopicSubscription("nowhere"),))), TopicNotFound),
    "generation": (Heartbeat(Profile((TopicSubscription(TOPIC),)), 7), StaleGeneration),
    "subscriptions": (Heartbeat(Profile(())), IllegalMember),
    "filter": (Heartbeat(Profile((TopicSubscription(TOPIC, "sql:(("),))), IllegalFilter),
}


@pytest.mark.parametrize("fault", BAD_JOINS)
async def test_a_refused_heartbeat_makes_no_group(fault: str) -> None:
    beat, expected = BAD_JOINS[fault]
    async with running() as world:
        with pytest.raises(expected):
            await world.broker.members.heartbeat("unknown", "worker", beat, never_gone)
        assert "unknown" not in world.metadata.snapshot.groups


async def test_a_refused_commit_makes_no_group() -> None:
    async with running() as world:
        with pytest.raises(OffsetOutOfRange):
            await world.broker.offset_commits.commit("unknown", TOPIC, [QueuePosition(0, 9)])
        with pytest.raises(StaleGeneration):
            await world.broker.offset_commits.commit(
                "unknown", TOPIC, [QueuePosition(0, 0)], committer=Committer("worker", 3)
            )
        assert "unknown" not in world.metadata.snapshot.groups
