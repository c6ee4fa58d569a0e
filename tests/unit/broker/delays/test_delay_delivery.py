"""Delayed messages: never early, once, as they were sent, whatever the clock does."""

import asyncio
import errno
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import pytest

from app.broker.delays.delay_delivery import retry_identity
from app.broker.delays.timer_records import counted
from app.broker.journal.append_future import AppendFuture
from app.domain.delays import Due
from app.domain.errors import (
    AlreadyDelivered,
    CurlewError,
    DiskFull,
    MessageNotFound,
    ShardUnavailable,
    TimersNotReady,
)
from app.domain.message import Message
from app.domain.names import TIMER_TOPIC, retry_topic
from app.domain.positions import FlushMode
from app.domain.settings import GroupSettings, TopicSettings
from app.store import Timer
from app.store.read.queue_reads import ReadResult
from tests.support.nodes.brokers import TOPIC, World, running
from tests.support.nodes.waiting import until
from tests.support.stores.clock import START_MS

pytestmark = pytest.mark.anyio
HOUR = 3_600_000


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with running(queues=2) as world:
        yield world


async def delay(world: World, message: Message, due_ms: int, topic: str = TOPIC) -> None:
    confirmation = AppendFuture()
    snapshot = world.metadata.snapshot
    generation = snapshot.topics[TOPIC].generation
    if topic == TOPIC:
        part = world.broker.delays.part(message, topic, 0, due_ms, generation)
    else:
        identity = retry_identity((snapshot.groups["billing"].generation, generation))
        part = world.broker.delays.part(message, topic, 0, due_ms, identity)
    world.store.append_step((part,), FlushMode.SYNC, confirmation.done)
    await confirmation.wait()


async def delivered(world: World, topic: str = TOPIC) -> list[bytes]:
    await world.broker.delays.turn()
    bounds = world.store.bounds(topic, 0)
    if bounds.max_offset == 0:
        return []
    read = world.store.read(topic, 0, 0, max_messages=100_000, max_bytes=1 << 30)
    return [world.store.decode(record).body for record in read.records]


async def test_delivers_at_its_time_and_not_a_millisecond_before(world: World) -> None:
    await delay(world, Message(b"later"), START_MS + 1_000)
    world.clock.advance(ms=999)
    assert await delivered(world) == []
    world.clock.advance(ms=1)
    assert await delivered(world) == [b"later"]
    assert await delivered(world) == [b"later"]
    assert world.broker.delays.timers.count == 0


async def test_keeps_everything_of_the_message(world: World) -> None:
    message = Message(
        b"x",
        tag="created",
        keys=("a", "b"),
        sharding_key="s",
        properties={"colour": "red"},
        content_type="text/plain",
        born_time_ms=START_MS - 5,  # type: ignore[arg-type]
        system={"ORIGIN_MESSAGE_ID": "17"},
        reconsume_times=3,
    )
    await delay(world, message, START_MS)
    await delivered(world)
    read = world.store.read(TOPIC, 0, 0, max_messages=1, max_bytes=1)
    found = world.store.decode(read.records[0])
    assert (found.tag, found.keys, found.sharding_key) == ("created", ("a", "b"), "s")
    assert (found.properties, found.content_type) == ({"colour": "red"}, "text/plain")
    assert (found.born_time_ms, found.reconsume_times) == (START_MS - 5, 3)
    assert found.system == {"ORIGIN_MESSAGE_ID": "17", "MQ_TIMER": f"{START_MS}-0"}
    waited = world.store.read(TIMER_TOPIC, 0, 0, max_messages=1, max_bytes=1)
    assert found.message_id == world.store.decode(waited.records[0]).message_id


async def test_goes_to_retry_topics_that_no_metadata_knows(world: World) -> None:
    await world.group(GroupSettings())
    topic = retry_topic("billing", TOPIC)
    await delay(world, Message(b"again"), START_MS, topic)
    assert world.broker.delays.retry_count("billing", TOPIC) == 0
    await world.broker.delays.catch_up()
    assert world.broker.delays.retry_count("billing", TOPIC) == 1
    assert await delivered(world, topic) == [b"again"]
    assert world.broker.delays.retry_count("billing", TOPIC) == 0


async def test_a_retry_of_a_deleted_group_is_dropped(world: World) -> None:
    await world.group(GroupSettings())
    topic = retry_topic("billing", TOPIC)
    await delay(world, Message(b"again"), START_MS, topic)
    await world.broker.settings_changes.delete_group("billing")
    assert await delivered(world, topic) == []
    assert world.broker.delays.timers.count == 0


async def test_is_delivered_once_when_the_node_starts_again(world: World) -> None:
    await delay(world, Message(b"one"), START_MS + 10)
    await delay(world, Message(b"two"), START_MS + 20)
    world.clock.advance(ms=10)
    assert await delivered(world) == [b"one"]
    await world.restart()
    assert await delivered(world) == [b"one"]
    world.clock.advance(ms=10)
    assert await delivered(world) == [b"one", b"two"]


async def test_is_delivered_once_when_the_timer_log_is_gone(world: World) -> None:
    await delay(world, Message(b"one"), START_MS + 10)
    await delay(world, Message(b"two"), START_MS + 20)
    world.clock.advance(ms=10)
    assert await delivered(world) == [b"one"]
    await world.broker.stop()
    for name in world.store.files.list("timerlog"):
        world.store.files.remove(f"timerlog/{name}")
    world.broker = world.new_broker()
    await world.broker.start()
    assert await delivered(world) == [b"one"]
    world.clock.advance(ms=10)
    assert await delivered(world) == [b"one", b"two"]


async def test_waits_when_the_disk_is_full_and_goes_on(world: World) -> None:
    await delay(world, Message(b"one"), START_MS)
    world.store.refusal = DiskFull("full")
    assert await delivered(world) == []
    assert world.broker.delays.problem == "delayed messages cannot be delivered: full"
    world.store.refusal, world.store.failure = None, DiskFull("full after all")
    assert await delivered(world) == []
    world.store.failure = None
    assert await delivered(world) == [b"one"]
    assert world.broker.delays.problem is None


async def test_is_dropped_with_its_topic(world: World) -> None:
    await delay(world, Message(b"gone"), START_MS + 10)
    await world.broker.settings_changes.delete_topic(TOPIC)
    await world.topic(2)
    world.clock.advance(ms=10)
    assert await delivered(world) == []
    assert world.broker.delays.timers.count == 0


async def test_a_step_of_the_clock_forward_delivers_what_is_due_by_it(world: World) -> None:
    await delay(world, Message(b"half an hour"), START_MS + HOUR // 2)
    await delay(world, Message(b"two hours"), START_MS + 2 * HOUR)
    world.clock.set_wall(START_MS + HOUR)
    assert await delivered(world) == [b"half an hour"]


async def test_a_step_of_the_clock_back_delivers_nothing_early(world: World) -> None:
    await delay(world, Message(b"soon"), START_MS + 10)
    world.clock.set_wall(START_MS - HOUR)
    await delay(world, Message(b"by the new time"), START_MS - HOUR + 10)
    world.clock.advance(ms=10)
    assert await delivered(world) == [b"by the new time"]
    world.clock.advance(ms=HOUR)
    assert await delivered(world) == [b"by the new time", b"soon"]


async def test_many_due_at_once_go_in_bounded_steps_in_order(world: World) -> None:
    bodies = [b"%d" % number for number in range(1_200)]
    for body in bodies:
        await delay(world, Message(body), START_MS + 5)
    steps = len(world.store.flushes)
    world.clock.advance(ms=5)
    assert await delivered(world) == bodies
    assert len(world.store.flushes) - steps == 2 * 3


async def send_later(world: World, body: bytes, ms: int) -> str:
    sent = await world.broker.sender.send(
        TOPIC, Message(body), queue_id=0, due=Due(ms, is_delay=True)
    )
    assert sent.recall_handle is not None
    return sent.recall_handle


async def test_a_cancel_that_meets_a_delivery_in_progress_comes_too_late(world: World) -> None:
    handle = await send_later(world, b"won", 10)
    world.clock.advance(ms=10)
    world.store.held = []
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(world.broker.delays.turn())
        await until(lambda: bool(world.store.held))
        cancel = tasks.create_task(outcome(world.broker.delayed_messages.cancel(TOPIC, handle)))
        for _ in range(20):
            await asyncio.sleep(0)
        world.store.confirm()
    assert cancel.result() is AlreadyDelivered
    assert await delivered(world) == [b"won"]


async def test_a_delivery_that_meets_a_cancel_in_progress_leaves_it_alone(world: World) -> None:
    handle = await send_later(world, b"cancelled", 10)
    world.store.held = []
    async with asyncio.TaskGroup() as tasks:
        cancel = tasks.create_task(outcome(world.broker.delayed_messages.cancel(TOPIC, handle)))
        await until(lambda: bool(world.store.held))
        world.clock.advance(ms=10)
        await world.broker.delays.turn()
        world.store.confirm()
    assert cancel.result() is None
    assert await delivered(world) == []
    assert await outcome(world.broker.delayed_messages.cancel(TOPIC, handle)) is MessageNotFound


async def test_a_topic_that_is_made_again_shows_none_of_what_waited_for_the_one_before(
    world: World,
) -> None:
    handle = await send_later(world, b"before", HOUR)
    await world.broker.settings_changes.delete_topic(TOPIC)
    await world.metadata.put_topic(TOPIC, TopicSettings(queues=2))
    mine = await send_later(world, b"mine", HOUR)
    scheduled = world.broker.delayed_messages
    page = await scheduled.page(TOPIC, 10, None)
    assert [each.message.body for each in page.messages] == [b"mine"]
    due = Due(1, is_delay=True)
    for act in (
        scheduled.get(TOPIC, handle),
        scheduled.move(TOPIC, handle, due),
        scheduled.preview_move(TOPIC, handle, due),
        scheduled.deliver(TOPIC, handle),
        scheduled.cancel(TOPIC, handle),
    ):
        assert await outcome(act) is MessageNotFound
    await scheduled.cancel(TOPIC, mine)


@pytest.mark.parametrize("flush", list(FlushMode))
async def test_a_cancel_is_as_durable_as_the_topic(world: World, flush: FlushMode) -> None:
    await world.metadata.put_topic(TOPIC, TopicSettings(queues=2, flush=flush))
    handle = await send_later(world, b"cancelled", 10)
    await world.broker.delayed_messages.cancel(TOPIC, handle)
    assert world.store.flushes[-1] is flush


async def test_delivering_a_damaged_message_now_is_no_success(world: World) -> None:
    handle = await send_later(world, b"lost", 10)
    await world.broker.delays.catch_up()
    world.store.damage(TIMER_TOPIC, 0, 0)
    scheduled = world.broker.delayed_messages
    for act in (scheduled.get(TOPIC, handle), scheduled.deliver(TOPIC, handle)):
        assert await outcome(act) is MessageNotFound


async def test_a_cancel_that_fails_lets_the_message_go(world: World) -> None:
    handle = await send_later(world, b"kept", 10)
    world.store.failure = DiskFull("full")
    assert await outcome(world.broker.delayed_messages.cancel(TOPIC, handle)) is DiskFull
    world.store.failure = None
    world.clock.advance(ms=10)
    assert await delivered(world) == [b"kept"]


async def outcome(work: Awaitable[object]) -> type[CurlewError] | None:
    try:
        await work
    except CurlewError as error:
        return type(error)
    return None


async def test_while_the_timer_log_is_damaged_all_questions_are_answered_later(
    world: World,
) -> None:
    handle = await send_later(world, b"far", HOUR)
    await world.broker.delays.catch_up()
    await world.broker.delays.compaction.flush()
    files = world.store.files
    for name in set(files.list("timerlog")) - {"manifest"}:
        run = files.open(f"timerlog/{name}")
        run.pwritev([bytes([run.pread(1, 0)[0] ^ 1])], 0)
    scheduled = world.broker.delayed_messages
    assert await outcome(scheduled.get(TOPIC, handle)) is TimersNotReady
    assert await outcome(scheduled.cancel(TOPIC, handle)) is TimersNotReady
    assert await outcome(scheduled.page(TOPIC, 10, None)) is TimersNotReady
    await world.broker.delays.turn()  # makes it again
    assert (await scheduled.get(TOPIC, handle)).recall_handle == handle


async def test_who_waits_for_a_record_hears_of_its_end_through_a_rebuild(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await delay(world, Message(b"soon"), START_MS + 10)
    timers = world.broker.delays.timers
    await timers.catch_up()
    timer = Timer(START_MS + 10, 0)
    looking, go_on = asyncio.Event(), asyncio.Event()

    async def look(_timer: Timer) -> bool:
        looking.set()
        await go_on.wait()
        return True  # as of before the end

    monkeypatch.setattr(timers, "is_waiting", look)
    async with asyncio.TaskGroup() as tasks:
        claim = tasks.create_task(timers.claim_waiting(timer))
        await looking.wait()
        await timers.rebuild()
        world.clock.advance(ms=10)
        assert await delivered(world) == [b"soon"]
        await world.broker.delays.catch_up()
        go_on.set()
    assert claim.result() is False


async def test_a_timer_log_that_is_made_again_during_a_claim_loses_nothing(world: World) -> None:
    for body in (b"claimed", b"bystander"):
        await delay(world, Message(body), START_MS + 10)
    timers = world.broker.delays.timers
    await timers.catch_up()
    claimed = Timer(START_MS + 10, 0)
    assert await timers.claim_waiting(claimed)
    await timers.rebuild()
    world.clock.advance(ms=10)
    assert await delivered(world) == [b"bystander"]
    timers.release([claimed])
    assert await delivered(world) == [b"bystander", b"claimed"]
    assert timers.count == 0


@pytest.mark.parametrize("error", [OSError(errno.EIO, "i/o error"), DiskFull("full")])
async def test_what_is_delivered_and_cannot_be_read_back_stalls_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    await delay(world, Message(b"first"), START_MS + 10)
    delays = world.broker.delays
    await delays.turn()
    append_step, catch_up = world.store.append_step, delays.timers.catch_up

    async def fail() -> None:
        raise error

    def append(*args: Any) -> None:
        append_step(*args)
        monkeypatch.setattr(delays.timers, "catch_up", fail)

    monkeypatch.setattr(world.store, "append_step", append)
    world.clock.advance(ms=10)
    assert await asyncio.wait_for(delivered(world), 10) == [b"first"]
    assert delays.problem is None
    monkeypatch.setattr(world.store, "append_step", append_step)
    monkeypatch.setattr(delays.timers, "catch_up", catch_up)
    assert await delivered(world) == [b"first"]
    assert delays.timers.count == 0
    await delay(world, Message(b"second"), START_MS + 10)
    assert await delivered(world) == [b"first", b"second"]


async def test_a_topic_that_the_store_has_ended_keeps_no_other_waiting(world: World) -> None:
    """Its deletion is under way: the metadata name it still."""
    await world.topic(1, "other")
    for topic in (TOPIC, "other"):
        sent = await world.broker.sender.send(
            topic, Message(b"late"), queue_id=0, due=Due(10, is_delay=True)
        )
        assert sent.recall_handle is not None
    delays = world.broker.delays
    await delays.turn()
    world.store.delete_topic(TOPIC, world.metadata.snapshot.topics[TOPIC].generation)
    world.clock.advance(ms=10)
    assert await delivered(world, "other") == [b"late"]
    assert delays.problem is None
    assert delays.faults.count == 1


async def test_one_that_may_be_whole_at_a_silent_replica_keeps_no_other_waiting(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for body in (b"silent", b"whole"):
        await delay(world, Message(body), START_MS + 10)
    delays, read = world.broker.delays, world.store.read
    await delays.turn()

    def read_or_refuse(topic: str, queue_id: int, offset: int, **bounds: Any) -> ReadResult:
        if (topic, offset) == (TIMER_TOPIC, 0):
            raise ShardUnavailable("the record is damaged here, and may be whole elsewhere")
        return read(topic, queue_id, offset, **bounds)

    monkeypatch.setattr(world.store, "read", read_or_refuse)
    world.clock.advance(ms=10)
    assert await delivered(world) == [b"whole"]
    assert (delays.problem, delays.faults.count, delays.timers.count) == (None, 1, 1)
    monkeypatch.setattr(world.store, "read", read)
    world.clock.advance(ms=60_000)
    assert await delivered(world) == [b"whole", b"silent"]
    assert delays.faults.count == 0


async def test_a_retry_that_an_earlier_version_has_counted_by_its_topic_is_counted_once(
    world: World,
) -> None:
    """Its manifest, or its record of what is done, names the topic alone."""
    await world.group(GroupSettings())
    delays, topic = world.broker.delays, retry_topic("billing", TOPIC)
    snapshot = world.metadata.snapshot
    generations = snapshot.groups["billing"].generation, snapshot.topics[TOPIC].generation
    names = (topic, counted(topic, retry_identity(generations)))
    for before, after in (names, names[::-1]):
        delays.timers.log.add(Timer(1, 0), before)
        delays.timers.log.add(Timer(1, 1), before)
        delays.timers.log.remove(Timer(1, 0), after)
        assert delays.retry_count("billing", TOPIC) == 1
        delays.timers.log.remove(Timer(1, 1), after)
        assert delays.retry_count("billing", TOPIC) == 0
