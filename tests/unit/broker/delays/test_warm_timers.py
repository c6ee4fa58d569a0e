"""The timer log that a follower keeps up: what waits, what it writes down, who goes on with it."""

import errno
from collections.abc import Callable
from concurrent.futures import Future

import pytest

from app.broker.delays import warm_timers
from app.broker.delays.timer_records import QUEUE
from app.broker.delays.warm_timers import WarmTimers
from app.domain.delays import Due
from app.domain.message import Message
from app.domain.names import TIMER_TOPIC
from app.store import TimerLog
from tests.support.nodes.brokers import TOPIC, World
from tests.support.stores.simulated_files import Fault

pytestmark = pytest.mark.anyio
FLUSH_ENTRIES = 4


class Thread:
    """Does what it is given when it is told to."""

    def __init__(self) -> None:
        self.work: list[tuple[Callable[[], None], Future[None]]] = []

    def submit(self, call: Callable[[], None]) -> Future[None]:
        future: Future[None] = Future()
        self.work.append((call, future))
        return future

    def run(self) -> None:
        while self.work:
            call, future = self.work.pop(0)
            try:
                call()
            except Exception as error:  # noqa: BLE001 - it is the future's
                future.set_exception(error)
            else:
                future.set_result(None)


async def send(world: World, *delays_s: int) -> None:
    for delay_s in delays_s:
        due = Due(1_000 * delay_s, is_delay=True)
        await world.broker.sender.send(TOPIC, Message(b"later"), due=due)


@pytest.fixture
async def world() -> World:
    made = World()
    await made.broker.start()
    await made.topic()
    return made


def warm(world: World, thread: Thread) -> WarmTimers:
    log = TimerLog(world.store.files, FLUSH_ENTRIES)
    return WarmTimers(world.store, log, world.clock, thread.submit)


def advance(timers: WarmTimers) -> None:
    while timers.advance():
        pass


async def about_to_be_written(world: World, thread: Thread) -> WarmTimers:
    """As many changes as a flush needs, which waits for the thread."""
    timers = warm(world, thread)
    await send(world, *range(10, 10 + FLUSH_ENTRIES))
    advance(timers)
    timers.tick(0, 0)
    timers.tick(0, 0)
    return timers


async def test_it_knows_what_waits_and_what_was_delivered(world: World) -> None:
    timers = warm(world, Thread())
    await send(world, 10, 60, 30)
    await world.lapse(s=40)
    advance(timers)
    assert (timers.log.count, timers.log.count_for(TOPIC)) == (1, 1)
    assert timers.log.position == world.store.bounds(TIMER_TOPIC, QUEUE).max_offset


async def test_a_broker_goes_on_with_it(world: World) -> None:
    timers = warm(world, Thread())
    await send(world, 10, 60)
    advance(timers)
    await send(world, 30)
    log = timers.hand_over(lambda call: call())
    assert log.load(*world.store.bounds(TIMER_TOPIC, QUEUE))
    assert (log.position, log.count) == (2, 2)  # one is left to be read


async def test_it_is_written_down_when_the_log_is_on_the_medium(world: World) -> None:
    thread = Thread()
    timers = warm(world, thread)
    await send(world, *range(10, 10 + FLUSH_ENTRIES))
    advance(timers)
    timers.tick(dispatched_end=500, flushed_end=100)
    timers.tick(dispatched_end=500, flushed_end=499)
    assert not thread.work
    timers.tick(dispatched_end=700, flushed_end=500)
    thread.run()
    timers.tick(dispatched_end=700, flushed_end=700)
    again = warm(world, thread)
    assert (again.log.position, again.log.count) == (FLUSH_ENTRIES, FLUSH_ENTRIES)


async def test_little_is_written_down_after_a_while(world: World) -> None:
    thread = Thread()
    timers = warm(world, thread)
    await send(world, 600)
    advance(timers)
    timers.tick(0, 0)
    world.clock.advance(s=61)
    timers.tick(0, 0)
    timers.tick(0, 0)
    thread.run()
    timers.end()
    assert warm(world, thread).log.position == 1


async def test_a_flush_that_runs_ends_with_the_broker_that_goes_on(world: World) -> None:
    thread = Thread()
    timers = await about_to_be_written(world, thread)
    log = timers.hand_over(lambda call: call())
    assert log.begin_flush() is None
    thread.run()
    assert (log.watermark, log.changes) == (FLUSH_ENTRIES, 0)
    assert log.begin_flush() is not None


async def test_the_files_may_go_further_than_what_is_dispatched_yet(world: World) -> None:
    thread = Thread()
    timers = await about_to_be_written(world, thread)
    thread.run()
    timers.end()
    log = TimerLog(world.store.files)
    log.follow(0)
    assert log.position == FLUSH_ENTRIES
    assert not log.load(0, FLUSH_ENTRIES - 1)  # who begins to lead looks whether that is there
    assert (log.position, log.count) == (0, 0)


async def test_what_was_trimmed_before_it_was_read_waits_no_more(world: World) -> None:
    timers = warm(world, Thread())
    await send(world, 10)
    advance(timers)
    await world.lapse(s=20)  # it is delivered
    await send(world, 30)
    world.store.retain_from(TIMER_TOPIC, QUEUE, 2)
    advance(timers)
    assert timers.log.count == 1
    await world.lapse(s=40)  # that one is delivered, too
    advance(timers)
    assert timers.log.count == 0


async def test_before_a_cut_goes_what_was_read_of_more_than_is_dispatched(world: World) -> None:
    """Another replica may lead uncleanly, and have others in the places of those."""
    thread = Thread()
    timers = await about_to_be_written(world, thread)
    thread.run()
    timers.end()
    timers.before_cut()
    assert timers.log.count == FLUSH_ENTRIES, "all of it is dispatched"
    other = World()  # as where this one was killed, and its checkpoint says less
    other.store.files = world.store.files
    await other.broker.start()
    await other.topic()
    await send(other, 900)
    again = warm(other, thread)
    assert again.log.position == FLUSH_ENTRIES
    again.before_cut()
    await send(other, *range(700, 700 + FLUSH_ENTRIES))
    advance(again)
    assert again.log.count == FLUSH_ENTRIES + 1
    assert warm(other, thread).log.position == 0, "nor is it found again"


async def test_a_flush_that_fails_is_tried_again_later_and_no_more_is_read_than_is_kept(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(warm_timers, "CHANGES_MAX", FLUSH_ENTRIES)
    monkeypatch.setattr(warm_timers, "_READ_MESSAGES", 1)
    thread = Thread()
    timers = warm(world, thread)
    await send(world, *range(10, 10 + 3 * FLUSH_ENTRIES))
    world.store.files.fault = Fault("create", 1, errno.ENOSPC, lasting=True)
    for _ in range(9):
        advance(timers)
        timers.tick(0, 0)
        thread.run()
    assert len(caplog.records) == 1
    assert timers.log.changes <= 2 * FLUSH_ENTRIES
    world.store.files.fault = None
    world.clock.advance(s=6)
    for _ in range(12):
        advance(timers)
        timers.tick(0, 0)
        thread.run()
    assert (timers.log.position, timers.log.count) == (3 * FLUSH_ENTRIES,) * 2
