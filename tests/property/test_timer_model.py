"""The timer log against a set, and the timers of a broker against a heap; clocks that step.

`Deaf` is the positive control: a log that overhears what is taken back is told off.
"""

import asyncio
import random
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from typing_extensions import override

from app.broker.delays.timer_index import FOREVER_MS, NOTHING
from app.broker.journal.append_future import AppendFuture
from app.domain.message import Message
from app.domain.positions import FlushMode
from app.store import Timer, TimerLog
from tests.support.nodes.brokers import TOPIC, World, running
from tests.support.stores.clock import START_MS
from tests.support.stores.simulated_files import NOTHING as LOST
from tests.support.stores.simulated_files import CrashPlan, SimulatedFiles

HOUR = 3_600_000
ACTIONS = ["add", "add", "add", "remove", "flush", "abandon", "crash", "rot", "lose"]


class LogModel:
    """A timer log, the set that it should be, and everything that was ever handed in."""

    def __init__(self, kind: type[TimerLog]) -> None:
        self.kind = kind
        self.files = SimulatedFiles()
        self.log = kind(self.files, flush_entries=10)
        self.log.load(0, 0)
        self.waiting: set[Timer] = set()
        self.history: list[tuple[str, Timer]] = []

    def hand_in(self, what: str, timer: Timer) -> None:
        self.history.append((what, timer))
        (self.waiting.add if what == "add" else self.waiting.discard)(timer)
        self._tell(what, timer)
        self.log.position = len(self.history)

    def _tell(self, what: str, timer: Timer) -> None:
        (self.log.add if what == "add" else self.log.remove)(timer, f"topic{timer.offset % 3}")

    def flush(self, *, finish: bool) -> None:
        flushing = self.log.begin_flush()
        assert flushing is not None
        if finish:
            flushing.run()
            self.log.finish(flushing)
        else:
            self.log.abandon(flushing)

    def reopen(self) -> None:
        self.log = self.kind(self.files, flush_entries=10)
        self.log.load(0, len(self.history))
        for what, timer in self.history[self.log.position :]:
            self._tell(what, timer)
        self.log.position = len(self.history)

    def check(self, after: Timer, until_ms: int, limit: int) -> None:
        expected = sorted(each for each in self.waiting if each > after and each.due_ms <= until_ms)
        assert self.log.page(after).read(until_ms, limit) == expected[:limit]
        assert self.log.count == len(self.waiting)
        for topic in range(3):
            count = sum(timer.offset % 3 == topic for timer in self.waiting)
            assert self.log.count_for(f"topic{topic}") == count
        oldest = min((timer.offset for timer in self.waiting), default=self.log.position)
        assert self.log.oldest_offset <= oldest


def play(seed: int, kind: type[TimerLog] = TimerLog, steps: int = 60) -> None:
    chance = random.Random(seed)
    model = LogModel(kind)
    for _ in range(steps):
        action = chance.choice(ACTIONS)
        if action == "add":
            for _ in range(chance.randint(1, 30)):
                timer = Timer(START_MS + chance.randint(0, 9) ** 3, len(model.history))
                model.hand_in("add", timer)
        elif action == "remove":
            count = min(len(model.waiting), chance.randint(1, 20))
            for timer in chance.sample(sorted(model.waiting), count):
                model.hand_in("remove", timer)
        elif action in {"flush", "abandon"}:
            model.flush(finish=action == "flush")
        elif action == "crash":
            model.files.crash(CrashPlan(0, {}, LOST))
            model.reopen()
        else:
            names = model.files.list("timerlog")
            if names:
                path = f"timerlog/{chance.choice(names)}"
                if action == "lose":
                    model.files.remove(path)
                else:
                    file = model.files.open(path)
                    file.pwritev([b"\xff"], file.size() - 1 - chance.randrange(24))
            model.reopen()
        after = Timer(START_MS + chance.randint(-1, 700), chance.randint(0, 200))
        model.check(chance.choice([NOTHING, after]), START_MS + chance.randint(0, 800), 25)
    model.check(NOTHING, FOREVER_MS, 100_000)


def play_all(seeds: range, kind: type[TimerLog]) -> None:
    for seed in seeds:
        play(seed, kind)


@settings(max_examples=40, deadline=None, phases=[Phase.generate])
@given(st.integers(0, 1 << 32))
def test_the_timer_log_is_a_sorted_set_through_crashes_and_losses(seed: int) -> None:
    play(seed)


class Deaf(TimerLog):
    """Does not hear every third removal."""

    @override
    def remove(self, timer: Timer, topic: str) -> None:
        if timer.offset % 3:
            super().remove(timer, topic)


def test_control_a_log_that_forgets_removals_is_told_off() -> None:
    with pytest.raises(AssertionError):
        play_all(range(20), Deaf)


# --- a broker's timers


async def delay_many(world: World, due_ms: list[int]) -> None:
    part = world.broker.delays.part
    number = world.metadata.snapshot.topics[TOPIC].generation
    for start in range(0, len(due_ms), 1_000):
        messages = [
            part(Message(b"%d" % due), TOPIC, 0, due, number).messages[0]
            for due in due_ms[start : start + 1_000]
        ]
        confirmation = AppendFuture()
        world.store.append("rmq_sys_wheel_timer", 0, messages, FlushMode.ASYNC, confirmation.done)
        await confirmation.wait()


def delivered(world: World, from_offset: int) -> list[int]:
    end = world.store.bounds(TOPIC, 0).max_offset
    if from_offset == end:
        return []
    read = world.store.read(TOPIC, 0, from_offset, max_messages=1 << 20, max_bytes=1 << 40)
    return [int(world.store.decode(record).body) for record in read.records]


async def turns(world: World) -> None:
    """Until nothing more comes."""
    before = -1
    while before != (before := world.store.bounds(TOPIC, 0).max_offset):
        await world.broker.delays.turn()


@pytest.mark.anyio
async def test_a_hundred_thousand_timers_come_in_time_whatever_the_clock_does() -> None:
    chance = random.Random(6)
    async with running() as world:
        due = [START_MS + 1 + int(chance.expovariate(1 / HOUR)) for _ in range(100_000)]
        await delay_many(world, due)
        waiting = sorted(due)
        done = 0
        restarts = iter((3, 7))
        again = next(restarts)
        for step in range(12):
            if step in {4, 8}:
                world.clock.set_wall(world.clock.now_ms() + HOUR * (1 if step == 4 else -1))
            else:
                world.clock.advance(ms=chance.randint(1, HOUR // 2))
            if step == again:
                again = next(restarts, -1)
                await world.restart()
            await turns(world)
            now_ms = world.clock.now_ms()
            came = delivered(world, done)
            done += len(came)
            expected = [ms for ms in waiting if ms <= now_ms]
            assert sorted(came) == expected
            waiting = waiting[len(expected) :]
        world.clock.advance(ms=40 * 24 * HOUR)
        await turns(world)
        assert sorted(delivered(world, done)) == waiting
        assert world.broker.delays.timers.count == 0


@pytest.mark.anyio
@settings(
    max_examples=15,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(seed=st.integers(0, 1 << 32))
async def test_a_small_near_part_changes_nothing(seed: int) -> None:
    """With four timers in memory, additions, cancels and steps of the clock against a set."""
    chance = random.Random(seed)
    async with running() as world:
        timers = world.broker.delays.timers
        timers._near_max = 4
        waiting: list[int] = []
        done = 0
        for _ in range(25):
            fresh = [
                world.clock.now_ms() + chance.randint(1, 60) for _ in range(chance.randint(0, 9))
            ]
            await delay_many(world, fresh)
            waiting += fresh
            await world.broker.delays.catch_up()
            if chance.random() < 0.3 and timers.count:
                with ThreadPoolExecutor(1) as pool:
                    page = timers.log.page(NOTHING)
                    found = await asyncio.get_running_loop().run_in_executor(
                        pool, page.read, FOREVER_MS, 50
                    )
                timer = chance.choice(found)
                assert await timers.claim_waiting(timer)
                await world.broker.delays.end({timer: TOPIC}, [])
                waiting.remove(timer.due_ms)
            if chance.random() < 0.2:
                await world.broker.delays.compaction.flush()
            if chance.random() < 0.2:
                world.clock.set_wall(world.clock.now_ms() + chance.randint(-40, 40))
            world.clock.advance(ms=chance.randint(0, 30))
            await turns(world)
            came = delivered(world, done)
            done += len(came)
            now_ms = world.clock.now_ms()
            assert sorted(came) == sorted(ms for ms in waiting if ms <= now_ms)
            waiting = [ms for ms in waiting if ms > now_ms]
