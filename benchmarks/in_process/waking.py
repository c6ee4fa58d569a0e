"""How soon a request that waits goes on after the append that it waits for, within the process.

The time from the store's confirmation of the append, the same call in which a sender is told, to
the moment at which the broker hands the message to whoever waited for it: woken, read and decided.
HTTP and sockets are in the row of the long poll, not in these.
"""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import perf_counter
from typing import Final

from app.broker import Broker, BrokerConfig
from app.broker.results import PullRequest, ReceiveRequest
from app.domain.errors import CurlewError
from app.domain.message import Message
from app.domain.positions import FlushMode
from app.store import MessageStore
from benchmarks.in_process.timers import open_broker
from tests.support.nodes.waiting import until

TOPIC: Final = "orders"
QUEUE: Final = 0
TIMES: Final = 500
WAIT_S: Final = 30.0
BODY: Final = b"x" * 1024

Waiting = Callable[[Broker, int], Awaitable[object]]


async def pulling(broker: Broker, offset: int) -> None:
    """One long poll of the queue."""
    request = PullRequest(offset=offset, wait_s=WAIT_S)
    assert (await broker.puller.pull(TOPIC, QUEUE, request)).read.records


async def receiving(broker: Broker, _offset: int) -> None:
    """One long receive of a group, which leases the message."""
    request = ReceiveRequest(max_messages=1, wait_s=WAIT_S, client_id="worker-1")
    result = await broker.receiver.receive(TOPIC, "bench", request, gone=lambda: False)
    assert len(result.deliveries) == 1


def delays_ms(waiting: Waiting, *, sync: bool = False) -> list[float]:
    """Milliseconds of some hundred wake-ups, in order of size."""
    with tempfile.TemporaryDirectory(prefix="curlew-bench-") as directory:
        return sorted(asyncio.run(_measure(Path(directory), waiting, sync=sync)))


async def _measure(root: Path, waiting: Waiting, *, sync: bool) -> list[float]:
    store, broker = await open_broker(root, BrokerConfig())
    flush = FlushMode.SYNC if sync else FlushMode.ASYNC
    found = [await _wake(store, broker, waiting, offset, flush) for offset in range(TIMES)]
    await broker.stop()
    store.close()
    return found


async def _wake(
    store: MessageStore, broker: Broker, waiting: Waiting, offset: int, flush: FlushMode
) -> float:
    confirmed_s = 0.0

    def done(error: CurlewError | None) -> None:
        nonlocal confirmed_s
        assert error is None
        confirmed_s = perf_counter()

    waiter = asyncio.ensure_future(waiting(broker, offset))
    await until(lambda: broker.waiting_count == 1)
    store.append(TOPIC, QUEUE, (Message(BODY),), flush, done)
    await waiter
    return (perf_counter() - confirmed_s) * 1000
