"""Pulling: where it starts, what it finds, how it waits."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.broker.journal.cold_reads import find_offset_at
from app.broker.read.far_reads import FarReads
from app.broker.results import PullRequest, PullResult, PullStatus
from app.domain.errors import (
    IllegalFilter,
    IllegalOffset,
    IllegalWait,
    InvalidRequest,
    OffsetExpired,
    OffsetOutOfRange,
    QueueNotFound,
    StoreFailed,
    TooManyRequests,
    TopicNotFound,
)
from app.domain.limits import FILTER_LOOK_MESSAGES, Limits
from app.domain.message import Message
from tests.support.nodes.brokers import TOPIC, World, running
from tests.support.nodes.waiting import until
from tests.support.stores.clock import FakeClock
from tests.support.stores.memory_store import MemoryStore

pytestmark = pytest.mark.anyio


def bodies(world: World, result: PullResult) -> list[bytes]:
    return [world.broker.puller.decode(record).body for record in result.read.records]


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


async def test_it_reads_from_an_offset_and_says_how_to_go_on() -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, numbered(10))
        result = await world.pull(3, max_messages=4)
        assert bodies(world, result) == [b"3", b"4", b"5", b"6"]
        assert result.status is PullStatus.FOUND
        assert (result.next_offset, result.min_offset, result.max_offset) == (7, 0, 10)
        assert not result.up_to_date
        rest = await world.pull(7, max_messages=4)
        assert (rest.next_offset, rest.up_to_date, rest.scanned) == (10, True, 3)


async def test_another_replica_is_suggested_to_who_is_far_behind_on_the_disk() -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, numbered(3))
        world.store.cold.add((TOPIC, 0))
        world.store.state.written_end = 10_000
        assert not (await world.pull(0)).suggests_any, "there is none"
        world.broker.puller.far_reads = FarReads(world.store, memory=20_000)
        assert (await world.pull(0)).suggests_any
        assert not (await world.pull(3)).suggests_any, "nothing was read"
        world.store.state.written_end = 7_000
        assert not (await world.pull(0)).suggests_any, "it is in memory, most likely"
        world.store.state.written_end = 10_000
        world.store.cold.clear()
        assert not (await world.pull(0)).suggests_any, "it was in memory"


async def test_the_end_is_an_empty_result() -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, numbered(3))
        result = await world.pull(3)
        assert result.status is PullStatus.NO_NEW_MSG
        assert (result.next_offset, result.up_to_date, result.read.records) == (3, True, [])
        assert result.read.next_offset == 3


async def test_only_what_may_be_left_in_place_has_the_larger_limits() -> None:
    """The store cuts what it has to read of that."""
    limits = Limits(pull_messages_max=3, in_place_messages_max=5)
    async with running(limits=limits) as world:
        world.store.fill(TOPIC, 0, numbered(10))
        assert len((await world.pull(0, max_messages=10)).read.records) == 3
        assert len((await world.pull(0, max_messages=10, in_place=True)).read.records) == 5
        filtered = await world.pull(0, max_messages=10, in_place=True, filter="sql:1 = 1")
        assert len(filtered.read.records) == 3


async def test_an_untouched_queue_is_empty() -> None:
    async with running(queues=2) as world:
        result = await world.pull(0, queue_id=1)
        assert (result.status, result.max_offset) == (PullStatus.NO_NEW_MSG, 0)


async def test_outside_the_bounds_is_an_error_with_the_bounds() -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, numbered(10))
        world.store.retain_from(TOPIC, 0, 4)
        for offset, error in ((3, OffsetExpired), (11, OffsetOutOfRange)):
            with pytest.raises(error) as caught:
                await world.pull(offset)
            assert caught.value.fields == {"min_offset": 4, "max_offset": 10}


async def test_clamping_moves_to_the_nearest_end_and_says_so() -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, numbered(10))
        world.store.retain_from(TOPIC, 0, 4)
        below = await world.pull(1, clamp=True, max_messages=1)
        above = await world.pull(99, clamp=True)
        inside = await world.pull(5, clamp=True)
        assert (below.clamped, bodies(world, below)) == (True, [b"4"])
        assert (above.clamped, above.next_offset) == (True, 10)
        assert not inside.clamped


async def test_tail_starts_before_the_end() -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, numbered(10))
        world.store.retain_from(TOPIC, 0, 4)
        assert bodies(world, await world.pull(None, tail=2)) == [b"8", b"9"]
        assert bodies(world, await world.pull(None, tail=99))[0] == b"4"
        assert bodies(world, await world.pull(None, tail=0)) == []


async def test_a_time_starts_at_the_first_message_stored_then_or_later() -> None:
    async with running() as world:
        start = world.clock.now_ms()
        for number in range(20):
            world.store.fill(TOPIC, 0, [b"%d" % number] * 3)
            world.clock.advance(s=1)
        at = await world.pull(None, timestamp_ms=start + 5_000, max_messages=1)
        after = await world.pull(None, timestamp_ms=start + 5_001, max_messages=1)
        assert (at.read.queue_offsets, bodies(world, at)) == ([15], [b"5"])
        assert after.read.queue_offsets == [18]
        assert (await world.pull(None, timestamp_ms=0)).read.queue_offsets[0] == 0
        future = await world.pull(None, timestamp_ms=start + 10**6)
        assert (future.next_offset, future.status) == (60, PullStatus.NO_NEW_MSG)


@settings(deadline=None)
@given(
    times=st.lists(st.integers(0, 20), min_size=1, max_size=40).map(sorted),
    wanted=st.integers(0, 21),
    first=st.integers(0, 40),
    damaged=st.sets(st.integers(0, 39), max_size=20),
)
def test_the_search_by_time_finds_the_first_whole_message(
    times: list[int], wanted: int, first: int, damaged: set[int]
) -> None:
    """Where records are damaged, reading on from the answer gives the same first message."""

    async def check() -> None:
        clock = FakeClock()
        store = MemoryStore(clock)
        start = clock.now_ms()
        for time in times:
            clock.set_wall(start + time)
            store.fill(TOPIC, 0, [b"x"])
        store.retain_from(TOPIC, 0, min(first, len(times)))
        for offset in damaged & set(range(len(times))):
            store.damage(TOPIC, 0, offset)
        bounds = store.bounds(TOPIC, 0)
        found = find_offset_at(store, TOPIC, 0, bounds, start + wanted, wait_for_disk=False)
        whole = [
            offset for offset in range(*bounds) if times[offset] >= wanted and offset not in damaged
        ]
        read = store.read(TOPIC, 0, found, max_messages=1, max_bytes=1)
        assert read.queue_offsets == whole[:1]

    asyncio.run(check())


async def test_bytes_bound_a_pull_but_one_message_always_comes() -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, [bytes(1_000)] * 10)
        assert len((await world.pull(0, max_bytes=3_500)).read.records) == 3
        assert len((await world.pull(0, max_bytes=1)).read.records) == 1


async def test_limits_bound_a_pull() -> None:
    async with running(limits=Limits(pull_messages_max=3)) as world:
        world.store.fill(TOPIC, 0, numbered(10))
        assert len((await world.pull(0, max_messages=100)).read.records) == 3


async def test_end_offset_ends_it_without_waiting() -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, numbered(10))
        result = await world.pull(2, end_offset=5, wait_s=60, min_messages=8)
        assert bodies(world, result) == [b"2", b"3", b"4"]
        assert (await world.pull(5, end_offset=5, wait_s=60)).read.records == []


async def test_a_filter_finds_by_tag_and_moves_on() -> None:
    async with running() as world:
        for number in range(9):
            world.store.fill(TOPIC, 0, [b"%d" % number], tag="abc"[number % 3])
        result = await world.pull(0, filter="a || c", max_messages=3)
        assert bodies(world, result) == [b"0", b"2", b"3"]
        nothing = await world.pull(0, filter="z")
        assert nothing.status is PullStatus.NO_MATCHED_MSG
        assert (nothing.next_offset, nothing.scanned, nothing.up_to_date) == (9, 9, True)
        with pytest.raises(IllegalFilter):
            await world.pull(0, filter="a ||")


async def test_tags_of_the_same_hash_are_told_apart() -> None:
    """ "Aa" and "BB" have one Java hash."""
    async with running() as world:
        world.store.fill(TOPIC, 0, [b"wrong"], tag="Aa")
        world.store.fill(TOPIC, 0, [b"right"], tag="BB")
        result = await world.pull(0, filter="BB")
        assert bodies(world, result) == [b"right"]
        assert (result.read.queue_offsets, result.next_offset) == ([1], 2)


async def test_a_long_scan_ends_at_its_bound_and_can_be_continued() -> None:
    async with running(limits=Limits(pull_scan_units_max=20)) as world:
        world.store.scan_max = 10
        world.store.fill(TOPIC, 0, numbered(35), tag="a")
        world.store.fill(TOPIC, 0, [b"found"], tag="b")
        result = await world.pull(0, filter="b", wait_s=60)
        assert (result.status, result.next_offset) == (PullStatus.NO_MATCHED_MSG, 20)
        result = await world.pull(20, filter="b")
        assert bodies(world, result) == [b"found"]


async def test_a_condition_over_properties_selects() -> None:
    async with running() as world:
        for number in range(20):
            region = {"region": "eu"} if number % 3 else {}
            world.store.fill(TOPIC, 0, [b"%d" % number], properties={"n": str(number)} | region)
        result = await world.pull(0, filter="sql: region IS NULL AND n > 5", max_messages=2)
        assert bodies(world, result) == [b"6", b"9"]
        assert (result.next_offset, result.scanned) == (12, 12)
        rest = await world.pull(12, filter="sql: region IS NULL AND n > 5", max_messages=20)
        assert bodies(world, rest) == [b"12", b"15", b"18"]
        assert (rest.next_offset, rest.scanned, rest.up_to_date) == (20, 8, True)
        nothing = await world.pull(0, filter="sql: n = 'x'")
        assert (nothing.status, nothing.next_offset) == (PullStatus.NO_MATCHED_MSG, 20)
        with pytest.raises(IllegalFilter, match="position 6"):
            await world.pull(0, filter="sql: (")


async def test_a_condition_sees_the_tag_and_the_keys() -> None:
    async with running() as world:
        tagged = Message(b"tagged", tag="a", keys=("k1", "k2"))
        await world.broker.sender.send(TOPIC, tagged, queue_id=0)
        await world.broker.sender.send(TOPIC, Message(b"other", tag="b", keys=("k3",)), queue_id=0)
        result = await world.pull(0, filter="sql: TAGS = 'a' AND KEYS CONTAINS 'k2'")
        assert bodies(world, result) == [b"tagged"]
        result = await world.pull(0, filter="sql: TAGS <> 'a'")
        assert bodies(world, result) == [b"other"]


async def test_a_small_answer_does_not_make_small_looks() -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, numbered(FILTER_LOOK_MESSAGES))
        result = await world.pull(0, filter="sql: n IS NOT NULL", max_messages=1, max_bytes=1)
        assert (result.scanned, world.store.reads) == (FILTER_LOOK_MESSAGES, 1)


async def test_bytes_bound_what_a_condition_lets_through() -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, [bytes(1000)] * 10, properties={"n": "1"})
        result = await world.pull(0, filter="sql: n = 1", max_bytes=3 * 1200, max_messages=10)
        assert len(result.read.records) == 3
        assert (result.next_offset, result.scanned) == (3, 3)


async def test_a_condition_looks_so_often_and_can_be_continued() -> None:
    async with running(limits=Limits(filter_looks_max=2)) as world:
        world.store.fill(TOPIC, 0, numbered(3 * FILTER_LOOK_MESSAGES))
        world.store.fill(TOPIC, 0, [b"found"], properties={"n": "1"})
        first = await world.pull(0, filter="sql: n = 1", wait_s=60)
        assert (first.status, first.next_offset) == (
            PullStatus.NO_MATCHED_MSG,
            2 * FILTER_LOOK_MESSAGES,
        )
        result = await world.pull(first.next_offset, filter="sql: n = 1")
        assert bodies(world, result) == [b"found"]


async def test_a_cold_look_is_made_once_and_moves_on() -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, numbered(20 * FILTER_LOOK_MESSAGES))
        world.store.cold.add((TOPIC, 0))
        result = await world.pull(0, filter="sql: n = 1", wait_s=60)
        assert world.store.disk_reads == 1
        assert result.next_offset == result.scanned == 16 * FILTER_LOOK_MESSAGES


async def test_damage_is_stepped_over_and_reported() -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, numbered(5))
        world.store.damage(TOPIC, 0, 1)
        result = await world.pull(0)
        assert bodies(world, result) == [b"0", b"2", b"3", b"4"]
        assert [(gap.from_offset, gap.to_offset) for gap in result.read.gaps] == [(1, 2)]


async def test_waiting_ends_at_an_arrival() -> None:
    async with running() as world, asyncio.TaskGroup() as tasks:
        pulls = [tasks.create_task(world.pull(0, wait_s=60)) for _ in range(3)]
        await until(lambda: world.waiting == 3)
        await world.send(b"hello")
        for pull in pulls:
            assert bodies(world, await pull) == [b"hello"]
        assert world.waiting == 0


async def test_other_queues_and_topics_do_not_wake() -> None:
    async with running(queues=2) as world, asyncio.TaskGroup() as tasks:
        await world.topic(1, name="other")
        pull = tasks.create_task(world.pull(0, wait_s=60))
        await until(lambda: world.waiting == 1)
        reads = world.store.reads
        await world.send(b"elsewhere", queue_id=1)
        await asyncio.sleep(0)
        assert (world.store.reads, pull.done()) == (reads, False)
        await world.send(b"here")
        assert bodies(world, await pull) == [b"here"]


async def test_waiting_ends_when_time_is_up() -> None:
    async with running() as world:
        result = await world.pull(0, wait_s=0.001)
        assert (result.status, result.next_offset) == (PullStatus.NO_NEW_MSG, 0)


async def test_a_filtered_wait_moves_past_what_does_not_match() -> None:
    async with running() as world, asyncio.TaskGroup() as tasks:
        pull = tasks.create_task(world.pull(0, filter="b", wait_s=60))
        await until(lambda: world.waiting == 1)
        for number in range(3):
            reads = world.store.reads
            await world.send(b"%d" % number, tag="a")
            await until(lambda reads=reads: world.store.reads == reads + 1)  # type: ignore[misc]
        await until(lambda: world.waiting == 1)
        await world.send(b"match", tag="b")
        result = await pull
        assert bodies(world, result) == [b"match"]
        assert (result.next_offset, result.scanned) == (4, 4)


async def test_a_wait_in_vain_reports_how_far_it_looked() -> None:
    async with running() as world, asyncio.TaskGroup() as tasks:
        pull = tasks.create_task(world.pull(0, filter="b", wait_s=60))
        await until(lambda: world.waiting == 1)
        await world.send(b"no", tag="a")
        await until(lambda: world.store.reads == 1 and world.waiting == 1)
        await world.broker.stop()
        result = await pull
        assert (result.status, result.next_offset) == (PullStatus.NO_MATCHED_MSG, 1)


async def test_min_messages_waits_for_as_many() -> None:
    async with running() as world, asyncio.TaskGroup() as tasks:
        world.store.fill(TOPIC, 0, [b"0"])
        pull = tasks.create_task(world.pull(0, min_messages=3, wait_s=60))
        await until(lambda: world.waiting == 1)
        await world.send(b"1")
        await asyncio.sleep(0)
        assert not pull.done()
        await world.send(b"2")
        result = await pull
        assert bodies(world, result) == [b"0", b"1", b"2"]
        assert result.read.queue_offsets == [0, 1, 2]


async def test_a_wait_ends_when_the_named_range_is_full() -> None:
    async with running() as world, asyncio.TaskGroup() as tasks:
        pull = tasks.create_task(world.pull(0, end_offset=2, min_messages=9, wait_s=60))
        await until(lambda: world.waiting == 1)
        await world.send(b"0", b"1", b"2")
        assert bodies(world, await pull) == [b"0", b"1"]


async def test_min_messages_gives_what_is_there_when_time_is_up() -> None:
    async with running() as world, asyncio.TaskGroup() as tasks:
        world.store.fill(TOPIC, 0, [b"0"])
        pull = tasks.create_task(world.pull(0, min_messages=9, wait_s=60))
        await until(lambda: world.waiting == 1)
        await world.send(b"1")
        await until(lambda: world.waiting == 1)
        await world.broker.stop()
        assert bodies(world, await pull) == [b"0", b"1"]


async def test_a_cold_read_hops_once() -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, numbered(5))
        world.store.cold.add((TOPIC, 0))
        assert len((await world.pull(0)).read.records) == 5
        assert world.store.disk_reads == 1


async def test_a_request_hops_only_once() -> None:
    async with running() as world:
        world.store.scan_max = 2
        world.store.fill(TOPIC, 0, numbered(5), tag="a")
        world.store.cold.add((TOPIC, 0))
        result = await world.pull(0, filter="b", wait_s=60)
        assert (result.status, result.next_offset) == (PullStatus.NO_MATCHED_MSG, 2)
        assert world.store.disk_reads == 1


async def test_a_cold_search_by_time_and_the_read_share_one_hop() -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, numbered(5))
        world.clock.advance(s=1)
        world.store.fill(TOPIC, 0, [b"late"])
        world.store.cold.add((TOPIC, 0))
        result = await world.pull(None, timestamp_ms=world.clock.now_ms())
        assert bodies(world, result) == [b"late"]


async def test_a_deleted_topic_ends_the_wait() -> None:
    async with running() as world:
        pull = asyncio.ensure_future(world.pull(0, wait_s=60))
        await until(lambda: world.waiting == 1)
        await world.broker.settings_changes.delete_topic(TOPIC)
        with pytest.raises(TopicNotFound):
            await pull


async def test_a_cancelled_wait_leaves_nothing_behind() -> None:
    async with running() as world:
        pull = asyncio.ensure_future(world.pull(0, wait_s=60))
        await until(lambda: world.waiting == 1)
        pull.cancel()
        with pytest.raises(asyncio.CancelledError):
            await pull
        assert world.waiting == 0
        assert not world.broker.long_polls._pulls


async def test_the_number_of_waiting_requests_is_bounded() -> None:
    async with running(limits=Limits(waiters_max=2)) as world, asyncio.TaskGroup() as tasks:
        for _ in range(2):
            tasks.create_task(world.pull(0, wait_s=60))
        await until(lambda: world.waiting == 2)
        with pytest.raises(TooManyRequests):
            await world.pull(0, wait_s=60)
        with pytest.raises(TooManyRequests):
            await world.receive(wait_s=60)
        assert (await world.pull(0)).read.records == []
        await world.broker.stop()


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (PullRequest(), IllegalOffset),
        (PullRequest(offset=0, tail=1), IllegalOffset),
        (PullRequest(offset=-1), IllegalOffset),
        (PullRequest(tail=-1), IllegalOffset),
        (PullRequest(timestamp_ms=-1), IllegalOffset),
        (PullRequest(offset=0, end_offset=-1), IllegalOffset),
        (PullRequest(offset=0, max_messages=0), InvalidRequest),
        (PullRequest(offset=0, max_bytes=0), InvalidRequest),
        (PullRequest(offset=0, min_messages=0), InvalidRequest),
        (PullRequest(offset=0, wait_s=-1), IllegalWait),
        (PullRequest(offset=0, wait_s=61), IllegalWait),
        (PullRequest(offset=0, wait_s=float("nan")), IllegalWait),
    ],
)
async def test_requests_that_make_no_sense(
    request_: PullRequest, error: type[InvalidRequest]
) -> None:
    async with running() as world:
        with pytest.raises(error):
            await world.broker.puller.pull(TOPIC, 0, request_)


async def test_unknown_topics_and_queues() -> None:
    async with running() as world:
        with pytest.raises(TopicNotFound):
            await world.broker.puller.pull("order", 0, PullRequest(offset=0))
        for queue_id in (-1, 1):
            with pytest.raises(QueueNotFound):
                await world.pull(0, queue_id=queue_id)


async def test_until_a_time_ends_it_before_the_first_later_message() -> None:
    async with running() as world:
        times = []
        for body in numbered(4):
            world.clock.advance(ms=10)
            times.append(world.clock.now_ms())
            await world.send(body)
        world.clock.advance(ms=1)
        ends = ((0, 0), (times[0], 0), (times[2], 2), (times[2] - 1, 2), (times[3] + 1, 4))
        for until_ms, expected in ends:
            result = await world.pull(0, until_ms=until_ms, wait_s=60, min_messages=9)
            assert bodies(world, result) == numbered(expected)
            assert (result.next_offset, result.is_ended) == (expected, True)
        late = await world.pull(3, until_ms=times[1])
        assert (bodies(world, late), late.next_offset, late.is_ended) == ([], 3, True)


async def test_until_a_time_to_come_waits_for_what_comes_before_it() -> None:
    async with running() as world:
        await world.send(b"0")
        soon = world.clock.now_ms() + 100
        open_end = await world.pull(0, until_ms=soon)
        assert (bodies(world, open_end), open_end.is_ended) == ([b"0"], False)
        async with asyncio.TaskGroup() as tasks:
            pull = tasks.create_task(world.pull(1, until_ms=soon, min_messages=3, wait_s=60))
            await until(lambda: world.waiting == 1)
            world.clock.advance(ms=50)
            await world.send(b"1")
            await until(lambda: world.waiting == 1)
            world.clock.advance(ms=50)
            await world.send(b"2", b"3", b"4")
        result = pull.result()
        assert (bodies(world, result), result.is_ended) == ([b"1"], True)


async def test_until_a_time_that_is_over_waits_for_what_was_stored_before_it() -> None:
    """What is still being synced has its time already."""
    async with running() as world:
        await world.send(b"0")
        async with asyncio.TaskGroup() as tasks:
            world.store.held = []
            late = tasks.create_task(world.send(b"1"))
            await until(lambda: bool(world.store.held))
            world.clock.advance(ms=10)
            until_ms = world.clock.now_ms()
            early = await world.pull(0, until_ms=until_ms)
            world.store.confirm()
            await late
        assert (bodies(world, early), early.is_ended) == ([b"0"], False)
        rest = await world.pull(early.next_offset, until_ms=until_ms)
        assert (bodies(world, rest), rest.is_ended) == ([b"1"], True)


async def test_what_comes_while_a_pull_waits_is_bound_by_its_bytes_too() -> None:
    async with running() as world, asyncio.TaskGroup() as tasks:
        await world.send(b"0")
        pull = tasks.create_task(world.pull(0, min_messages=2, max_bytes=1_000, wait_s=60))
        await until(lambda: world.waiting == 1)
        await world.send(bytes(5_000))
        result = await pull
        assert (bodies(world, result), result.next_offset, result.scanned) == ([b"0"], 1, 1)
        alone = await world.pull(1, max_bytes=1_000)
        assert len(alone.read.records) == 1


async def test_until_a_time_works_on_cold_queues_and_from_a_time() -> None:
    async with running() as world:
        for body in numbered(4):
            world.clock.advance(ms=10)
            await world.send(body)
        end_ms = world.clock.now_ms()
        world.store.cold = {(TOPIC, 0)}
        result = await world.pull(None, timestamp_ms=end_ms - 20, until_ms=end_ms)
        assert bodies(world, result) == [b"1", b"2"]


async def test_two_ends_are_refused() -> None:
    async with running() as world:
        with pytest.raises(IllegalOffset):
            await world.pull(0, until_ms=1, end_offset=1)
        with pytest.raises(IllegalOffset):
            await world.pull(0, until_ms=-1)


async def test_deleting_ends_waiting_though_the_store_cannot_note_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running() as world:
        pull = asyncio.ensure_future(world.pull(wait_s=60))
        await until(lambda: world.broker.waiting_count == 1)

        def fail(*_arguments: object) -> None:
            raise StoreFailed("the disk is broken")

        monkeypatch.setattr(world.store, "delete_topic", fail)
        with pytest.raises(StoreFailed):
            await world.broker.settings_changes.delete_topic(TOPIC)
        with pytest.raises(TopicNotFound):
            await asyncio.wait_for(pull, 10)


async def test_an_arrival_leaves_nothing_behind_of_who_waited() -> None:
    async with running() as world, asyncio.TaskGroup() as tasks:
        pull = tasks.create_task(world.pull(0, wait_s=60))
        await until(lambda: world.waiting == 1)
        await world.send(b"1")
        assert bodies(world, await pull) == [b"1"]
        assert not world.broker.long_polls._pulls
