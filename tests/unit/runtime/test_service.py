"""Services: turns, failures, starting and stopping; no test waits for an interval."""

import asyncio
import logging

import pytest

from app.runtime.service import Service, within
from tests.support.nodes.waiting import until

pytestmark = pytest.mark.anyio

NEVER_S = 3600.0


class Work:
    """Counts turns; can fail and can be held."""

    def __init__(self) -> None:
        self.turns = 0
        self.fails = False
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self) -> None:
        self.turns += 1
        await self.gate.wait()
        if self.fails:
            raise ValueError("broken on purpose")


async def test_it_runs_again_and_again() -> None:
    work = Work()
    service = Service("work", 0.000_001, work)
    await service.start()
    await until(lambda: work.turns >= 3)
    await service.stop()
    turns = work.turns
    await asyncio.sleep(0)
    assert work.turns == turns


async def test_a_turn_can_be_had_at_once() -> None:
    work = Work()
    service = Service("work", NEVER_S, work)
    await service.start()
    await service.run_now()
    await service.run_now()
    assert work.turns == 2
    await service.stop()


async def test_a_failing_turn_does_not_end_it(caplog: pytest.LogCaptureFixture) -> None:
    work = Work()
    work.fails = True
    service = Service("work", NEVER_S, work)
    await service.start()
    with caplog.at_level(logging.ERROR):
        await service.run_now()
    assert "broken on purpose" in caplog.text
    work.fails = False
    await service.run_now()
    assert (work.turns, service.failures) == (2, 1)
    assert service.running
    await service.stop()


async def test_what_lasts_is_in_the_log_once(caplog: pytest.LogCaptureFixture) -> None:
    work = Work()
    service = Service("work", NEVER_S, work)
    await service.start()
    counts: list[int] = []
    for work.fails in (True, True, True, False, True):
        await service.run_now()
        counts.append(caplog.text.count("service work failed"))
    assert (counts, service.failures) == ([1, 1, 1, 1, 2], 4)
    await service.stop()


async def test_start_and_stop_may_be_repeated_in_any_order() -> None:
    work = Work()
    service = Service("work", NEVER_S, work)
    await service.stop()
    await service.start()
    await service.start()
    assert len([task for task in asyncio.all_tasks() if task.get_name() == "work"]) == 1
    await service.stop()
    await service.stop()
    assert not service.running
    await service.run_now()
    assert work.turns == 0
    await service.start()
    await service.run_now()
    assert work.turns == 1
    await service.stop()


async def test_stop_lets_the_turn_in_progress_finish() -> None:
    work = Work()
    work.gate.clear()
    service = Service("work", NEVER_S, work)
    await service.start()
    async with asyncio.TaskGroup() as tasks:
        turn = tasks.create_task(service.run_now())
        await until(lambda: work.turns == 1)
        stop = tasks.create_task(service.stop())
        await asyncio.sleep(0)
        assert not stop.done()
        work.gate.set()
    assert turn.done()
    assert not service.running


async def test_stop_cancels_a_turn_that_hangs() -> None:
    work = Work()
    work.gate.clear()
    service = Service("work", NEVER_S, work)
    await service.start()
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(service.run_now())
        await until(lambda: work.turns == 1)
        await service.stop(within_s=0.001)
    assert waiting.done()
    assert not service.running


async def test_what_takes_two_cancellations_ends_in_time() -> None:
    """As a query of a database that says nothing."""
    told: list[str] = []

    async def ask() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            told.append("cancel it")
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(within(0.01, ask()), timeout=10)
    assert told == ["cancel it"]


async def test_within_returns_what_is_in_time_and_raises_what_fails() -> None:
    async def two() -> int:
        return 2

    async def fail() -> None:
        raise KeyError("gone")

    assert await within(10, two()) == 2
    with pytest.raises(KeyError, match="gone"):
        await within(10, fail())
