"""Leased streams: credit, settling, endings."""

import asyncio
from dataclasses import replace
from typing import cast

import pytest

from app.broker.results import Extend, ReceiveResult
from app.broker.streams.group_stream import GroupStream, GroupStreamRequest
from app.broker.streams.stream import SharedParts, StreamEnd, StreamEnded
from app.cluster.metadata.snapshot import TopicView
from app.domain.errors import IllegalInvisibleTime, InvalidRequest, TooManyRequests, TopicNotFound
from app.domain.settings import GroupSettings
from tests.support.nodes.brokers import GROUP, TOPIC, World, bodies, put_group, running
from tests.support.nodes.waiting import until

pytestmark = pytest.mark.anyio


async def opened(world: World, credit: int = 2, invisible_ms: int | None = None) -> GroupStream:
    request = GroupStreamRequest(credit, invisible_ms)
    return await world.broker.streams.open_group(TOPIC, GROUP, request)


async def test_no_more_than_the_credit_is_unsettled() -> None:
    async with running() as world:
        await world.send(b"1", b"2", b"3", b"4")
        with await opened(world) as stream:
            first, second = await stream.next(0)
            assert bodies([first, second]) == [b"1", b"2"]
            assert await stream.next(0) == []
            waiting = asyncio.ensure_future(stream.next(60))
            await until(lambda: stream._waiting is not None)
            await world.ack(first)
            assert bodies(await waiting) == [b"3"]
            await world.nack(second)
            assert bodies(await stream.next(0)) == [b"2"]


async def test_a_lease_that_ends_makes_room() -> None:
    async with running() as world:
        await world.send(b"1", b"2")
        with await opened(world, credit=1, invisible_ms=5_000) as stream:
            assert bodies(await stream.next(0)) == [b"1"]
            world.clock.advance(ms=4_999)
            await world.broker.expire_leases()
            assert await stream.next(0) == []
            world.clock.advance(ms=1)
            await world.broker.expire_leases()
            assert bodies(await stream.next(0)) == [b"2"]


async def test_an_extended_message_uses_credit_until_it_is_settled() -> None:
    async with running() as world:
        await world.send(b"1", b"2")
        with await opened(world, credit=1, invisible_ms=5_000) as stream:
            [first] = await stream.next(0)
            extends = [Extend(first.receipt_handle, 60_000)]
            [extended] = await world.broker.settler.settle(TOPIC, GROUP, extends=extends)
            world.clock.advance(ms=5_000)
            await world.broker.expire_leases()
            assert await stream.next(0) == []
            assert extended.new_handle is not None
            await world.broker.settler.settle_one(extended.new_handle, "ack")
            assert bodies(await stream.next(0)) == [b"2"]


async def test_an_arrival_wakes_it() -> None:
    async with running() as world:
        with await opened(world) as stream:
            waiting = asyncio.ensure_future(stream.next(50))
            await until(lambda: world.waiting == 1)
            await world.send(b"1")
            assert bodies(await waiting) == [b"1"]


async def test_a_stream_that_is_cancelled_while_it_waits_leaves_nothing_behind() -> None:
    async with running() as world:
        with await opened(world) as stream:
            waiting = asyncio.ensure_future(stream.next(50))
            await until(lambda: world.waiting == 1)
            waiting.cancel()
            await asyncio.wait([waiting])
        assert (world.waiting, world.broker.streams.open_count) == (0, 0)
        await world.send(b"1")
        assert bodies(await world.receive()) == [b"1"]


async def test_what_was_sent_stays_leased_after_the_end() -> None:
    async with running() as world:
        await world.send(b"1")
        with await opened(world) as stream:
            [delivery] = await stream.next(0)
        assert world.broker.streams.credits.held_count == 0
        assert await world.receive() == []
        assert await world.ack(delivery) == [None]


async def test_streams_and_receives_share_a_group() -> None:
    async with running() as world:
        await world.send(*[b"%d" % number for number in range(6)])
        with await opened(world, 2) as stream, await opened(world, 2) as other:
            got = [*await stream.next(0), *await other.next(0), *await world.receive()]
        assert sorted(bodies(got)) == [b"%d" % number for number in range(6)]


async def ending(stream: GroupStream) -> StreamEnd:
    while True:
        try:
            await stream.next(60)
        except StreamEnded as ended:
            return ended.reason


async def waiting_for_the_end(
    world: World, stream: GroupStream, has_credit: bool
) -> asyncio.Task[StreamEnd]:
    """A reader of a stream with one credit, which is used up or not."""
    if not has_credit:
        await world.send(b"1")
        assert len(await stream.next(0)) == 1
    waiting = asyncio.ensure_future(ending(stream))
    await until(lambda: world.waiting == 1 or stream._waiting is not None)
    return waiting


@pytest.mark.parametrize("has_credit", [True, False])
@pytest.mark.parametrize("reason", ["topic_deleted", "group_deleted", "draining"])
async def test_it_says_why_it_ends(reason: str, has_credit: bool) -> None:
    async with running() as world:
        with await opened(world, credit=1) as stream:
            waiting = await waiting_for_the_end(world, stream, has_credit)
            if reason == "topic_deleted":
                await world.broker.settings_changes.delete_topic(TOPIC)
            elif reason == "group_deleted":
                await world.broker.settings_changes.delete_group(GROUP)
            else:
                await world.broker.stop()
            assert await waiting == reason


@pytest.mark.parametrize("has_credit", [True, False])
@pytest.mark.parametrize("what", ["topic", "group"])
async def test_it_ends_when_what_it_reads_is_deleted_and_made_again(
    what: str, has_credit: bool
) -> None:
    """It must not go on with leases and credit of the one that is gone."""
    async with running() as world:
        with await opened(world, credit=1) as stream:
            waiting = await waiting_for_the_end(world, stream, has_credit)
            world.clock.advance(ms=1)
            if what == "topic":
                await world.broker.settings_changes.delete_topic(TOPIC)
                await world.topic()
            else:
                await world.broker.settings_changes.delete_group(GROUP)
                await world.group(GroupSettings())
            await world.send(b"later")
            assert await asyncio.wait_for(waiting, 10) == f"{what}_deleted"
        assert world.broker.streams.credits.held_count == 0
        assert b"later" in bodies(await world.receive())


async def test_it_goes_on_when_the_group_is_changed() -> None:
    """The control of the one above."""
    async with running() as world:
        with await opened(world) as stream:
            world.clock.advance(ms=1)
            await put_group(world.broker, GROUP, GroupSettings(max_attempts=3))
            await world.send(b"more")
            assert bodies(await stream.next(0)) == [b"more"]


async def test_what_is_not_possible_is_refused() -> None:
    async with running() as world:
        with pytest.raises(InvalidRequest):
            await opened(world, credit=0)
        with pytest.raises(InvalidRequest):
            await opened(world, credit=1_025)
        with pytest.raises(IllegalInvisibleTime):
            await opened(world, invisible_ms=1)
        with pytest.raises(TopicNotFound):
            await world.broker.streams.open_group("orderz", GROUP, GroupStreamRequest(1))
        assert world.broker.streams.open_count == 0


async def test_a_node_that_has_too_much_to_do_ends_a_stream() -> None:
    async def refuse(*_: object, **__: object) -> ReceiveResult:
        raise TooManyRequests("too many wait")

    async with running() as world:
        with await opened(world) as stream:
            stream._shared = cast("SharedParts", Refusing(stream._shared, refuse))
            with pytest.raises(TooManyRequests):
                await stream.next(0)


class Refusing:
    """What streams share, with another `receive`."""

    def __init__(self, shared: SharedParts, receive: object) -> None:
        self._shared = shared
        self.receive = receive

    def __getattr__(self, name: str) -> object:
        return getattr(self._shared, name)


async def test_a_shard_without_a_name_is_none() -> None:
    async with running(queues=3) as world:
        with await opened(world) as stream:
            stream._topic = replace(
                cast("TopicView", stream._topic), shards=("here", "", "there"), here="here"
            )
            assert stream.elsewhere == ["there"]
