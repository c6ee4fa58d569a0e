"""The lag of the event loop, as a service notices it."""

import asyncio
import time

import pytest

from app.runtime.loop_lag import LAG_BUCKETS_S, LoopLag
from app.runtime.service import Service
from tests.support.nodes.waiting import until


def test_wake_ups_are_counted_by_their_lateness() -> None:
    lag = LoopLag()
    for late_s in (-0.001, 0.002, 0.003, 0.05, 0.3, 9.0):
        lag.note(late_s)
    assert lag.buckets == [2, 1, 0, 0, 1, 0, 0, 1, 0, 0, 1]
    assert len(lag.buckets) == len(LAG_BUCKETS_S) + 1
    assert lag.seconds == pytest.approx(9.355)


def test_the_longest_is_that_since_it_was_asked_last() -> None:
    lag = LoopLag()
    assert lag.take_longest() == 0.0
    for late_s in (0.1, 0.3, 0.2):
        lag.note(late_s)
    assert lag.take_longest() == 0.3
    assert lag.take_longest() == 0.0


@pytest.mark.anyio
async def test_a_long_turn_is_noticed_by_a_service() -> None:
    lag, turns = LoopLag(), 0

    async def turn() -> None:
        nonlocal turns
        turns += 1

    service = Service("work", 0.001, turn)
    service.on_wake = lag.note
    await service.start()
    await until(lambda: turns >= 3)
    lag.take_longest()
    seen, busy_until = turns, time.monotonic() + 0.1
    while time.monotonic() < busy_until:
        """The loop has its hands full."""
    await until(lambda: turns > seen)
    assert lag.take_longest() > 0.09
    await service.run_now()
    await service.stop()
    assert sum(lag.buckets) >= 4, "a turn that was asked for is not late"
    await asyncio.sleep(0)
