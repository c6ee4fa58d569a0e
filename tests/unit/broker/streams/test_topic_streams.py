"""Streams without a group: where they start, what they give, how they end."""

import asyncio
import threading
import zlib
from random import Random

import pytest

from app.broker.streams.stream import StreamEnd, StreamEnded
from app.broker.streams.topic_stream import TopicChunk, TopicStream, TopicStreamRequest
from app.domain.errors import (
    IllegalFilter,
    IllegalOffset,
    InvalidRequest,
    OffsetExpired,
    OffsetOutOfRange,
    QueueNotFound,
    ShuttingDown,
    TooManyRequests,
    TopicNotFound,
)
from app.domain.handles.cursors import BEGINNING, encode_cursor
from app.domain.limits import KIB, Limits
from app.domain.message import Message, StoredEncoding
from app.store.formats.record import record
from app.store.formats.record.compression import plain_body
from tests.support.nodes.brokers import TOPIC, World, running
from tests.support.nodes.waiting import until

pytestmark = pytest.mark.anyio


async def opened(world: World, request: TopicStreamRequest | None = None) -> TopicStream:
    return await world.broker.streams.open_topic(
        TOPIC, request or TopicStreamRequest(at="earliest")
    )


def bodies(chunk: TopicChunk) -> list[bytes]:
    return [each.message.body for each in chunk.messages]


async def everything(stream: TopicStream) -> list[bytes]:
    found: list[bytes] = []
    while chunk := bodies(await stream.next(0)):
        found += chunk
    return found


def filled(world: World, *counts: int) -> None:
    for queue_id, count in enumerate(counts):
        world.store.fill(TOPIC, queue_id, [b"%d/%d" % (queue_id, n) for n in range(count)])


async def test_it_gives_all_queues_each_in_its_order() -> None:
    async with running(3) as world:
        filled(world, 5, 0, 3)
        with await opened(world) as stream:
            found = await everything(stream)
            assert [each for each in found if each[:1] == b"0"] == [b"0/%d" % n for n in range(5)]
            assert [each for each in found if each[:1] == b"2"] == [b"2/%d" % n for n in range(3)]
            assert len(found) == 8


async def test_packed_bodies_are_unpacked_in_a_thread_and_no_more_than_a_chunk_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else one chunk of bodies that are small while packed would hold up everybody."""
    async with running(2, limits=Limits(stream_chunk_bytes_max=64 * KIB)) as world:
        plain = [bytes([number]) * 50 * KIB for number in range(12)]
        noise = [Random(number).randbytes(6 * KIB) for number in range(2)]
        for number, body in enumerate([*plain, *noise]):
            packed = Message(zlib.compress(body), encoding=StoredEncoding.DEFLATE)
            await world.broker.sender.send(TOPIC, packed, queue_id=number % 2)
        threads: list[tuple[int, int]] = []

        def seen(body: bytes, system_flag: int) -> bytes:
            threads.append((len(body), threading.get_ident()))
            return plain_body(body, system_flag)

        monkeypatch.setattr(record, "plain_body", seen)
        sizes: list[int] = []
        found: list[bytes] = []
        with await opened(world) as stream:
            while chunk := bodies(await stream.next(0)):
                sizes.append(sum(map(len, chunk)))
                found += chunk
        assert sorted(found) == sorted([*plain, *noise])
        assert max(sizes) <= 2 * 50 * KIB + 64 * KIB
        large = [thread for size, thread in threads if size > 4 * KIB]
        assert len(large) >= 2
        assert threading.get_ident() not in large


async def test_every_cursor_goes_on_after_its_message() -> None:
    async with running(3) as world:
        filled(world, 5, 2, 3)
        with await opened(world) as stream:
            chunk = await stream.next(0)
        assert len(chunk.messages) == 10
        for index, (_, cursor) in enumerate(chunk.messages):
            with await opened(world, TopicStreamRequest(cursor=cursor)) as again:
                rest = await everything(again)
                assert sorted(rest) == sorted(bodies(chunk)[index + 1 :])


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (TopicStreamRequest(), []),
        (TopicStreamRequest(at="latest"), []),
        (TopicStreamRequest(at="earliest"), [b"0/0", b"0/1", b"0/2", b"1/0"]),
        (TopicStreamRequest(at=0), [b"0/0", b"0/1", b"0/2", b"1/0"]),
        (TopicStreamRequest(at=2**60), []),
        (TopicStreamRequest(tail=1), [b"0/2", b"1/0"]),
        (TopicStreamRequest(offset=1), [b"0/1", b"0/2"]),
        (TopicStreamRequest(offset=1, queue_id=0), [b"0/1", b"0/2"]),
        (TopicStreamRequest(at="earliest", queue_id=1), [b"1/0"]),
        (TopicStreamRequest(at="earliest", max_messages=9), [b"0/0", b"0/1", b"0/2", b"1/0"]),
    ],
)
async def test_where_it_starts(request_: TopicStreamRequest, expected: list[bytes]) -> None:
    async with running(2) as world:
        filled(world, 3, 1)
        with await opened(world, request_) as stream:
            assert sorted(await everything(stream)) == expected


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (TopicStreamRequest(cursor="c1.x"), IllegalOffset),
        (TopicStreamRequest(at="earliest", tail=1), IllegalOffset),
        (TopicStreamRequest(offset=4), OffsetOutOfRange),
        (TopicStreamRequest(offset=0), OffsetExpired),
        (TopicStreamRequest(queue_id=2), QueueNotFound),
        (TopicStreamRequest(filter="a |"), IllegalFilter),
        (TopicStreamRequest(max_messages=0), InvalidRequest),
    ],
)
async def test_what_cannot_be_streamed_is_refused_at_once(
    request_: TopicStreamRequest, error: type[Exception]
) -> None:
    async with running(2) as world:
        filled(world, 3, 3)
        world.store.queues[TOPIC, 1].min_offset = 1
        with pytest.raises(error):
            await opened(world, request_)
        with pytest.raises(TopicNotFound):
            await world.broker.streams.open_topic("orderz", TopicStreamRequest())
        assert world.broker.streams.open_count == 0


async def test_an_arrival_in_any_queue_wakes_it() -> None:
    async with running(4) as world:
        with await opened(world) as stream:
            for queue_id in (3, 0):
                waiting = asyncio.ensure_future(stream.next(60))
                await until(lambda: world.waiting == 1)
                await world.send(b"%d" % queue_id, queue_id=queue_id)
                assert bodies(await waiting) == [b"%d" % queue_id]
        assert world.waiting == 0


async def test_queues_that_are_added_are_read_from_their_beginning() -> None:
    async with running(1) as world:
        with await opened(world) as stream:
            waiting = asyncio.ensure_future(stream.next(60))
            await until(lambda: world.waiting == 1)
            await world.topic(2)
            await world.send(b"new", queue_id=1)
            world.broker.long_polls.wake_topic(TOPIC)
            assert bodies(await waiting) == [b"new"]


async def test_a_filter_moves_the_cursor_past_what_it_leaves_out() -> None:
    async with running(1) as world:
        await world.send(b"a", b"b", tag="no")
        with await opened(world, TopicStreamRequest(at="earliest", filter="yes")) as stream:
            chunk = await stream.next(0)
            assert chunk.messages == []
            await world.send(b"c", tag="yes")
            assert bodies(await stream.next(0)) == [b"c"]
        with await opened(world, TopicStreamRequest(cursor=chunk.cursor)) as again:
            assert await everything(again) == [b"c"]


async def test_a_long_search_ends_when_the_time_is_up_and_goes_on_with_the_next_call() -> None:
    """Or neither the head of the answer nor a heartbeat would go out meanwhile."""
    async with running(1, Limits(pull_scan_units_max=100)) as world:
        world.store.scan_max = 50
        world.store.fill(TOPIC, 0, [b"x"] * 1_000, tag="no")
        world.store.fill(TOPIC, 0, [b"found"], tag="yes")
        with await opened(world, TopicStreamRequest(at="earliest", filter="yes")) as stream:
            before = world.store.reads
            first = await stream.next(0)
            assert (first.messages, first.gaps) == ([], [])
            assert world.store.reads - before < 10
            assert bodies(await stream.next(60)) == [b"found"]


async def test_chunks_are_bounded_and_queues_take_turns() -> None:
    limits = Limits(stream_chunk_bytes_max=3_000)
    async with running(2, limits) as world:
        for queue_id in range(2):
            world.store.fill(TOPIC, queue_id, [bytes(1_000)] * 5)
        with await opened(world) as stream:
            first, second = await stream.next(0), await stream.next(0)
        for chunk, queue_id in ((first, 0), (second, 1)):
            assert 1 <= len(chunk.messages) <= 3
            assert chunk.messages[0].message.queue_id == queue_id


async def test_gaps_are_reported() -> None:
    async with running(1) as world:
        filled(world, 4)
        world.store.queues[TOPIC, 0].records[1] = None
        with await opened(world) as stream:
            chunk = await stream.next(0)
            assert bodies(chunk) == [b"0/0", b"0/2", b"0/3"]
            [(queue_id, gap)] = chunk.gaps
            assert (queue_id, gap.from_offset, gap.to_offset) == (0, 1, 2)


async def test_what_expired_meanwhile_is_an_error_or_with_clamp_a_gap() -> None:
    async with running(1) as world:
        filled(world, 4)
        strict = await opened(world)
        mild = await opened(world, TopicStreamRequest(at="earliest", clamp=True))
        world.store.queues[TOPIC, 0].min_offset = 2
        with strict, pytest.raises(OffsetExpired):
            await strict.next(0)
        with mild:
            chunk = await mild.next(0)
            assert bodies(chunk) == [b"0/2", b"0/3"]
            assert [tuple(each.gap) for each in chunk.gaps] == [(0, 2, "EXPIRED")]


async def test_a_cursor_from_beyond_the_end_may_be_clamped() -> None:
    """After a loss of power with asynchronous flush."""
    async with running(1) as world:
        filled(world, 2)
        request = TopicStreamRequest(offset=9, clamp=True)
        with await opened(world, request) as stream:
            await world.send(b"new")
            chunk = await stream.next(0)
            assert (bodies(chunk), chunk.gaps) == ([b"new"], [])


async def test_a_queue_without_a_place_is_read_from_its_first_message() -> None:
    """Whose shard was away, so that the cursor does not say where it begins."""
    async with running(2) as world:
        filled(world, 4, 4)
        for queue_id in range(2):
            world.store.queues[TOPIC, queue_id].min_offset = 2
        cursor = encode_cursor(TOPIC, [3, BEGINNING])
        with await opened(world, TopicStreamRequest(cursor=cursor)) as stream:
            assert await everything(stream) == [b"0/3", b"1/2", b"1/3"]
        with await opened(world, TopicStreamRequest(cursor=cursor)) as stream:
            stream._offsets[1] = BEGINNING  # of another shard then, whose queue comes here
            assert await everything(stream) == [b"0/3", b"1/2", b"1/3"]


async def test_cold_queues_are_read() -> None:
    async with running(2) as world:
        filled(world, 2, 2)
        world.store.cold = {(TOPIC, 0), (TOPIC, 1)}
        with await opened(world) as stream:
            assert len(await everything(stream)) == 4


async def ending(stream: TopicStream) -> StreamEnd:
    while True:
        try:
            await stream.next(60)
        except StreamEnded as ended:
            return ended.reason


async def test_it_ends_when_the_topic_is_deleted() -> None:
    async with running(1) as world:
        with await opened(world) as stream:
            waiting = asyncio.ensure_future(ending(stream))
            await until(lambda: world.waiting == 1)
            await world.broker.settings_changes.delete_topic(TOPIC)
            assert await waiting is StreamEnd.TOPIC_DELETED


@pytest.mark.parametrize("is_waiting", [True, False])
async def test_it_ends_when_the_topic_is_deleted_and_made_again(is_waiting: bool) -> None:
    """The offsets that the stream has counted are not those of the new topic."""
    async with running(1) as world:
        filled(world, 2)
        with await opened(world) as stream:
            assert len((await stream.next(0)).messages) == 2
            waiting = asyncio.ensure_future(ending(stream)) if is_waiting else None
            await until(lambda: world.waiting == (1 if is_waiting else 0))
            await world.broker.settings_changes.delete_topic(TOPIC)
            await world.topic(1)
            await world.send(b"of the new topic", b"too", b"and this")
            ended = await asyncio.wait_for(waiting or ending(stream), 10)
            assert ended is StreamEnd.TOPIC_DELETED


async def test_it_goes_on_when_the_topic_is_changed() -> None:
    """The control of the one above."""
    async with running(1) as world:
        with await opened(world) as stream:
            world.clock.advance(ms=1)
            await world.topic(1)
            await world.send(b"more")
            assert bodies(await stream.next(0)) == [b"more"]


async def test_it_ends_when_the_node_drains() -> None:
    async with running(1) as world:
        hurried = []
        with await opened(world) as stream, await opened(world) as writing:
            writing.on_draining = lambda: hurried.append(1)
            waiting = asyncio.ensure_future(ending(stream))
            await until(lambda: world.waiting == 1)
            assert writing.end_of_a_late_reader() is StreamEnd.SLOW_READER
            await world.broker.stop()
            assert await waiting is StreamEnd.DRAINING
            assert (hurried, writing.end_of_a_late_reader()) == ([1], StreamEnd.DRAINING)
        with pytest.raises(ShuttingDown):
            await opened(world)


async def test_it_ends_when_its_time_is_up() -> None:
    async with running(1, Limits(stream_ms_max=20)) as world:
        with await opened(world) as stream:
            assert await ending(stream) is StreamEnd.TIME_LIMIT


async def test_its_time_may_be_made_shorter_and_not_longer() -> None:
    async with running(1, Limits(stream_ms_max=20)) as world:
        for duration_ms in (1, 60_000):
            with await opened(world, TopicStreamRequest(duration_ms=duration_ms)) as stream:
                assert await ending(stream) is StreamEnd.TIME_LIMIT


async def test_it_ends_after_as_many_messages_as_were_asked_for() -> None:
    async with running(1) as world:
        filled(world, 4)
        with await opened(world, TopicStreamRequest(at="earliest", max_messages=3)) as stream:
            assert len((await stream.next(0)).messages) == 3
            assert await ending(stream) is StreamEnd.MESSAGE_LIMIT


async def test_streams_are_counted_and_bounded() -> None:
    async with running(1, Limits(streams_max=2)) as world:
        streams = world.broker.streams
        with await opened(world) as first, await opened(world):
            with pytest.raises(TooManyRequests):
                await opened(world)
            first.close(StreamEnd.TIME_LIMIT)
            with await opened(world):
                assert streams.open_count == 2
        assert streams.open_count == 0
        assert streams.ends == {StreamEnd.TIME_LIMIT: 1, StreamEnd.CLIENT_GONE: 2}


async def test_one_principal_leaves_room_for_the_others() -> None:
    async with running(1, Limits(streams_max=3, streams_per_principal_max=2)) as world:
        of_ann = TopicStreamRequest(principal="ann")
        first, second = await opened(world, of_ann), await opened(world, of_ann)
        with pytest.raises(TooManyRequests, match="principal 'ann' has 2 streams open") as refused:
            await opened(world, of_ann)
        assert refused.value.quota is not None
        assert refused.value.quota.name == "principal-streams"
        with await opened(world, TopicStreamRequest(principal="bob")):
            first.close(StreamEnd.CLIENT_GONE)
            with await opened(world, of_ann), pytest.raises(TooManyRequests):
                await opened(world, of_ann)
        second.close(StreamEnd.CLIENT_GONE)
