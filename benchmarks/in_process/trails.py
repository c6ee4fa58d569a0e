"""What trails cost a group: processor time of receive and settle with `trace` on and off.

`python -m benchmarks.in_process.trails` runs in process on a real store: windows of two topics in
turn; the trails are written as often as the service would at 25,000 messages a second. Prints the
median of the ratios of neighbouring windows; HTTP, the larger part of a real request's time, is
not counted, so over HTTP the ratio is smaller.
"""

import argparse
import asyncio
import gc
import tempfile
from pathlib import Path
from statistics import median
from time import process_time

from app.broker import Broker
from app.broker.journal.append_future import AppendFuture
from app.broker.results import BatchItem, ReceiveRequest
from app.domain.limits import MIB, Limits
from app.domain.message import Message
from app.domain.positions import FlushMode
from app.domain.settings import TopicSettings, TraceMode
from app.runtime.system_clock import SystemClock
from app.store import MessageStore, OsFiles, StoreConfig
from benchmarks.in_process.timers import IDLE
from tests.support.metadata.memory_metadata import MemoryMetadata

BODY = b"x" * 1024
QUEUES = 4
WINDOW_MESSAGES = 3_200
WRITE_MESSAGES = 12_800
"""Half a second at 25,000 messages a second."""


async def fill(broker: Broker, topic: str) -> None:
    """One window of messages."""
    for queue_id in range(QUEUES):
        items = [BatchItem(Message(BODY), queue_id)] * (WINDOW_MESSAGES // QUEUES)
        await broker.sender.send_batch(topic, items)


async def consume(broker: Broker, topic: str, batch: int) -> float:
    """Processor seconds of the process for one window."""
    request = ReceiveRequest(max_messages=batch, client_id="worker-1")
    began_s = process_time()
    for _ in range(WINDOW_MESSAGES // batch):
        result = await broker.receiver.receive(topic, "g", request, gone=lambda: False)
        assert len(result.deliveries) == batch
        acks = [delivery.receipt_handle for delivery in result.deliveries]
        settled = await broker.settler.settle(topic, "g", acks=acks)
        assert settled[0].error is None
    return process_time() - began_s


async def measure(
    root: Path, windows: int, batch: int
) -> tuple[list[tuple[float, float]], list[float]]:
    """Microseconds a message: (off, on) of each pair of windows, and of each writing."""
    clock, limits = SystemClock(), Limits()
    loop = asyncio.get_running_loop()
    config = StoreConfig(segment_bytes=256 * MIB)
    store = MessageStore.open(OsFiles(root), config, clock, loop, limits)
    metadata = MemoryMetadata(clock)
    for topic in ("off", "on"):
        settings = TopicSettings(queues=QUEUES, flush=FlushMode.ASYNC, trace=TraceMode(topic))
        await metadata.put_topic(topic, settings)
    broker = await Broker.open(store, metadata, clock, limits, IDLE)
    pairs: list[tuple[float, float]] = []
    writings: list[float] = []
    since_written = 0
    for number in range(windows + 2):
        for topic in ("off", "on"):
            await fill(broker, topic)
        gc.collect()
        spent: dict[str, float] = {}
        for topic in ("off", "on") if number % 2 else ("on", "off"):
            spent[topic] = await consume(broker, topic, batch)
        since_written += WINDOW_MESSAGES
        if since_written >= WRITE_MESSAGES:
            since_written = 0
            began_s = process_time()
            await broker.message_trace.turn()
            confirmation = AppendFuture()
            store.flush(confirmation.done)  # the writer has taken it
            await confirmation.wait()
            writings.append((process_time() - began_s) * 1e6 / WRITE_MESSAGES)
        per_message = 1e6 / WINDOW_MESSAGES
        if number >= 2:
            pairs.append((spent["off"] * per_message, spent["on"] * per_message))
    assert broker.message_trace.dropped == 0
    await broker.stop()
    store.close()
    return pairs, writings


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--windows", type=int, default=60)
    parser.add_argument("--batch", type=int, default=32, help="messages a receive, and a settle")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        pairs, writings = asyncio.run(measure(Path(directory), options.windows, options.batch))
    writing = median(writings)
    off = median(pair[0] for pair in pairs)
    on = median(pair[1] for pair in pairs) + writing
    least_off = min(pair[0] for pair in pairs)
    least_on = min(pair[1] for pair in pairs) + min(writings)
    ratio = median((on + writing) / off for off, on in pairs)
    print(f"{'receive + settle, trace off':30} {off:6.2f} us a message (least {least_off:.2f})")
    print(f"{'receive + settle, trace on':30} {on:6.2f} us a message (least {least_on:.2f})")
    print(f"{'of this, writing the trails':30} {writing:6.2f} us a message")
    print(
        f"{'more':30} {(ratio - 1) * 100:6.1f} % (least {(least_on / least_off - 1) * 100:.1f} %)"
        "  target <= 5 %"
    )


if __name__ == "__main__":
    main()
