"""The watch over turns of the event loop notices what it must, and no more."""

import asyncio
import gc
import threading
import time

import pytest

from tests.support.loop_turns import TURN_SECONDS_MAX, TurnWatch

pytestmark = pytest.mark.anyio


def work(seconds: float) -> None:
    """Use so much processor time."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        sum(range(100))


async def test_a_long_turn_is_noticed(turn_watch: TurnWatch) -> None:
    async def long_turn() -> None:
        with turn_watch.short_turns():
            await asyncio.sleep(0)
            work(TURN_SECONDS_MAX * 1.1)
            await asyncio.sleep(0)

    with pytest.raises(AssertionError, match="a turn of the event loop took"):
        await long_turn()


async def test_many_short_turns_are_none(turn_watch: TurnWatch) -> None:
    with turn_watch.short_turns():
        for _ in range(10):
            await asyncio.sleep(0)
            work(TURN_SECONDS_MAX / 5)
    assert turn_watch.longest_s >= TURN_SECONDS_MAX / 5


async def test_callbacks_of_one_turn_count_together(turn_watch: TurnWatch) -> None:
    loop = asyncio.get_running_loop()
    with turn_watch.measured():
        await asyncio.sleep(0)
        for _ in range(4):
            loop.call_soon(work, TURN_SECONDS_MAX / 3)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert turn_watch.longest_s > TURN_SECONDS_MAX


async def test_threads_and_waiting_do_not_count(turn_watch: TurnWatch) -> None:
    done = threading.Event()

    def busy() -> None:
        work(3 * TURN_SECONDS_MAX)
        done.set()

    with turn_watch.short_turns():
        waiting = asyncio.to_thread(busy)
        await asyncio.sleep(0)
        await waiting
        await asyncio.sleep(0)
    assert done.is_set()


async def test_the_garbage_collector_does_not_count(turn_watch: TurnWatch) -> None:
    kept = [[number] for number in range(1_000_000)]
    gc.collect()
    with turn_watch.short_turns():
        await asyncio.sleep(0)
        for _ in range(3):
            gc.collect()
        await asyncio.sleep(0)
    assert len(kept) == 1_000_000


async def test_a_block_without_a_turn_says_so(turn_watch: TurnWatch) -> None:
    def nothing() -> None:
        with turn_watch.short_turns():
            """No await."""

    with pytest.raises(AssertionError, match="no turn"):
        nothing()
