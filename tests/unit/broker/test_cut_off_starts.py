"""A broker whose start is cut off, as when a term ends while it begins: nothing stays at work."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from app.broker import Broker
from app.broker import broker as broker_module
from app.broker.schedules.schedules import Schedules
from app.domain.limits import Limits
from app.store import MessageStore
from tests.support.metadata.memory_metadata import MemoryMetadata
from tests.support.nodes.brokers import IDLE
from tests.support.nodes.waiting import until
from tests.support.stores.clock import FakeClock
from tests.support.stores.replicated import CONFIG
from tests.support.stores.simulated_files import SimulatedFiles

pytestmark = pytest.mark.anyio

PATIENCE_S = 30


async def test_a_read_of_it_has_ended_before_anybody_opens_the_store_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pools: list[ThreadPoolExecutor] = []
    reads, may_end = threading.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def pool(*given: Any) -> ThreadPoolExecutor:
        pools.append(ThreadPoolExecutor(*given))
        return pools[0]

    def read() -> None:
        reads.set()
        assert may_end.wait(PATIENCE_S)

    async def start(_: Schedules) -> None:
        await loop.run_in_executor(pools[0], read)

    monkeypatch.setattr(broker_module, "ThreadPoolExecutor", pool)
    monkeypatch.setattr(Schedules, "start", start)
    clock = FakeClock()
    store = MessageStore.open(SimulatedFiles(), CONFIG, clock, loop)
    tasks = asyncio.all_tasks()
    opening = asyncio.ensure_future(
        Broker.open(store, MemoryMetadata(clock), clock, Limits(), IDLE)
    )
    await until(reads.is_set)
    opening.cancel()
    for _ in range(20):  # turns of the loop
        await asyncio.sleep(0)
    assert not opening.done(), "its read is under way"
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert asyncio.all_tasks() == tasks
    assert not any(each.is_alive() for each in pools[0]._threads)
    store.close()
