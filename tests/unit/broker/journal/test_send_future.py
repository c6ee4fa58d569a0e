"""What a send waits for where replicas confirm: by a loop whose time a test moves."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from app.broker.figures.lost_answers import LostAnswers
from app.broker.journal import send_future
from app.broker.journal.send_future import SendFuture, Sends
from app.domain.errors import CurlewError, DiskFull, ReplicationTimeout, StoreFailed

pytestmark = pytest.mark.anyio
WAIT_MS = 5_000


@dataclass
class FakeLoop:
    """Timers that run when the test moves the time over them."""

    now_s: float = 100.0
    timers: list[tuple[float, Callable[[], object]]] = field(default_factory=list)

    def time(self) -> float:
        return self.now_s

    def call_at(self, when: float, callback: Callable[[], object], /) -> object:
        self.timers.append((when, callback))
        return None

    def advance(self, s: float) -> None:
        self.now_s += s
        due = [each for each in self.timers if each[0] <= self.now_s]
        self.timers = [each for each in self.timers if each[0] > self.now_s]
        for _, callback in due:
            callback()


@dataclass
class Bench:
    """Sends, and what each was told."""

    loop: FakeLoop = field(default_factory=FakeLoop)
    lost: LostAnswers = field(default_factory=LostAnswers)
    told: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.sends = Sends(WAIT_MS, self.lost, lambda: self.loop)

    def begin(self, name: str, *, is_early: bool = False) -> SendFuture:
        future = SendFuture(self.sends, 3, is_early=is_early)
        future.then(lambda: self.told.append(name))
        return future


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_an_early_one_is_answered_when_this_node_has_it(bench: Bench) -> None:
    future = bench.begin("early", is_early=True)
    assert (future.is_early, future.answer, future.is_done) == (True, future, False)
    future.here()
    assert (bench.told, future.is_done) == (["early"], True)
    future.done(None)
    assert (bench.told, bench.lost.messages) == (["early"], 0)
    assert bench.loop.timers == [], "nobody waits for replicas"


def test_an_early_one_that_is_given_up_is_counted_and_told_to_nobody(bench: Bench) -> None:
    answered, unanswered = bench.begin("a", is_early=True), bench.begin("b", is_early=True)
    answered.here()
    error = StoreFailed("deposed", outcome="unknown")
    answered.done(error)
    assert (bench.told, answered.error, bench.lost.messages) == (["a"], None, 3)
    unanswered.done(error)
    assert (bench.told, unanswered.error, bench.lost.messages) == (["a", "b"], error, 3)


def test_the_time_begins_when_this_node_has_it(bench: Bench) -> None:
    future = bench.begin("sync")
    bench.loop.advance(100)
    assert (bench.loop.timers, bench.told) == ([], [])
    future.here()
    bench.loop.advance(4.9)
    assert bench.told == []
    bench.loop.advance(0.2)
    assert (bench.told, future.is_done) == (["sync"], False)
    future.done(None)
    assert (bench.told, future.is_done) == (["sync"], True), "told once"


def test_one_timer_is_for_all(bench: Bench) -> None:
    futures = [bench.begin(f"{number}") for number in range(4)]
    for future in futures:
        future.here()
        bench.loop.advance(1)
    assert len(bench.loop.timers) == 1
    futures[0].done(None)
    assert len(bench.sends._watched) == 3
    bench.loop.advance(1)
    assert bench.told == ["0"], "that it was for has ended"
    assert len(bench.loop.timers) == 1
    bench.loop.advance(1)
    bench.loop.advance(1)
    assert bench.told == ["0", "1", "2"]
    futures[3].done(None)
    bench.loop.advance(9)
    assert bench.told == ["0", "1", "2", "3"]
    assert (bench.loop.timers, len(bench.sends._watched)) == ([], 0)


def test_what_is_confirmed_is_not_kept_until_its_time(bench: Bench) -> None:
    for number in range(100):
        future = bench.begin(f"{number}")
        future.here()
        future.done(None)
    assert len(bench.sends._watched) == 0
    assert len(bench.loop.timers) == 1


def test_many_whose_time_is_over_are_told_in_several_turns(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(send_future, "TOLD_A_TURN", 2)
    for number in range(5):
        bench.begin(f"{number}").here()
    bench.loop.advance(5)
    assert bench.told == ["0", "1"]
    bench.loop.advance(0)
    bench.loop.advance(0)
    assert bench.told == ["0", "1", "2", "3", "4"]
    assert bench.loop.timers == []


def test_one_whose_answer_fails_keeps_nobody_from_his(bench: Bench) -> None:
    def fail() -> None:
        raise RuntimeError

    broken = SendFuture(bench.sends, 1, is_early=False)
    broken.then(fail)
    broken.here()
    bench.begin("next").here()
    bench.loop.advance(5)
    assert bench.told == ["next"]


def test_who_hears_of_the_end_hears_it_behind_an_early_answer_and_a_time_out(bench: Bench) -> None:
    ends: list[object] = []
    early, late = bench.begin("early", is_early=True), bench.begin("late")
    for future in (early, late):
        future.at_end(ends.append)
        future.here()
    bench.loop.advance(5)
    assert (bench.told, ends) == (["early", "late"], [])
    error = StoreFailed("deposed")
    early.done(error)
    late.done(None)
    late.at_end(ends.append)
    assert ends == [error, None, None]
    assert error.outcome == "unknown"


def test_who_asks_for_the_end_behind_an_early_answer_hears_it_when_it_comes(bench: Bench) -> None:
    """As a large one-way batch does, whose parts are answered in several turns."""
    ends: list[object] = []
    future = bench.begin("early", is_early=True)
    future.here()
    future.at_end(ends.append)
    assert ends == [], "only its sender is answered"
    error = StoreFailed("deposed", outcome="unknown")
    future.done(error)
    assert ends == [error]


async def test_a_wait_ends_with_what_is_known(bench: Bench) -> None:
    confirmed, late, failed = bench.begin("a"), bench.begin("b"), bench.begin("c")
    told: list[bool | type[Exception]] = []

    async def wait(future: SendFuture) -> None:
        try:
            told.append(await future.is_safe_by(None))
        except CurlewError as error:
            told.append(type(error))

    async with asyncio.TaskGroup() as tasks:
        for future in (confirmed, late, failed):
            tasks.create_task(wait(future))
        await asyncio.sleep(0)
        confirmed.here()
        late.here()
        confirmed.done(None)
        failed.done(DiskFull("no room", outcome="not_stored"))
        bench.loop.advance(5)
    assert told == [True, DiskFull, False]
    with pytest.raises(ReplicationTimeout) as unknown:
        await late.wait()
    assert unknown.value.outcome == "unknown"
    assert not await late.is_safe_by(None), "who asks later is told at once"
    late.done(None)
    assert await late.is_safe_by(None)


async def test_a_deadline_ends_both_waits(bench: Bench) -> None:
    now_s = asyncio.get_running_loop().time()
    written, unwritten = bench.begin("a"), bench.begin("b")
    written.here()
    assert not await written.is_safe_by(now_s)
    assert not await unwritten.is_safe_by(now_s)
    assert (written.is_here, unwritten.is_here) == (True, False)
