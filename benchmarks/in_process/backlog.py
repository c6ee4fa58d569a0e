"""A million messages that a group holds, and a million acked out of order, through a whole node.

`python -m benchmarks.in_process.backlog` opens a node in process (its services run; metadata in
SQLite) and measures processor time of the process a message, resident memory, and what the log
grows by:

1. receive and settle with nothing held;
2. hold more and more, to a million, without a settle;
3. receive and settle others while a million are held;
4. ack all but the first of each queue in random order, so that no offset can be committed;
5. receive and settle others above the open ones;
6. close, open again, and see that only the open ones come again.

Rates are of the first and the last windows of a step: one that slows down shows.
"""

import argparse
import asyncio
import gc
import random
import tempfile
from array import array
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from time import perf_counter, process_time

from app.broker.results import Delivery, ReceiveRequest
from app.cluster import migrate
from app.commands.node_commands import COLLECTOR_THRESHOLDS
from app.config import Config
from app.domain.limits import Limits
from app.domain.positions import FlushMode
from app.domain.settings import GroupSettings, TopicSettings
from app.node import Node
from benchmarks.frames import request_frame, request_record
from benchmarks.in_process.timers import memory_mib
from tests.support.nodes.brokers import put_group, put_topic

TOPIC, GROUP = "orders", "billing"
QUEUES = 4
BATCH = 32
FRAME_MESSAGES = 1_000
WINDOW_MESSAGES = 32_000
WINDOWS = 5
"""Of the steps that receive and settle: the least of several counts, other work only adds."""
BODY = b"x" * 100
INVISIBLE_MS = 6 * 3_600_000
REQUEST = ReceiveRequest(max_messages=BATCH)


class Handles:
    """Many handles in little memory, some 100 bytes each: what is measured is the node's."""

    def __init__(self) -> None:
        self._texts = bytearray()
        self._size = 0
        self.order = array("l")
        self.first: dict[int, int] = {}
        """Queue → the lowest offset, whose handle is not kept: nobody settles it."""

    def add(self, delivery: Delivery) -> None:
        message = delivery.message
        if self.first.setdefault(message.queue_id, message.queue_offset) != message.queue_offset:
            text = delivery.receipt_handle.encode()
            self._size = len(text)
            self.order.append(len(self.order))
            self._texts += text

    def take(self, first: int, count: int) -> list[str]:
        """Some of them, in the order that is wanted."""
        size = self._size
        places = [place * size for place in self.order[first : first + count]]
        return [self._texts[at : at + size].decode() for at in places]


class Consumer:
    """Receives and settles, and notes what it costs."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.broker = node.broker

    async def receive(self) -> list[Delivery]:
        """One batch."""
        result = await self.broker.receiver.receive(TOPIC, GROUP, REQUEST, gone=lambda: False)
        return result.deliveries

    async def settle(self, handles: Sequence[str]) -> None:
        """All of them are live."""
        results = await self.broker.settler.settle(TOPIC, GROUP, acks=handles)
        assert all(result.error is None for result in results)

    async def through_both(self, title: str) -> None:
        """Receive and settle some windows."""
        spent: list[float] = []
        for _ in range(WINDOWS):
            began_s = process_time()
            for _ in range(WINDOW_MESSAGES // BATCH):
                deliveries = await self.receive()
                assert len(deliveries) == BATCH
                await self.settle([delivery.receipt_handle for delivery in deliveries])
            spent.append(process_time() - began_s)
        self.tell(title, spent)

    async def hold(self, count: int) -> Handles:
        """Receive `count` and settle none."""
        held = Handles()
        spent: list[float] = []
        while len(held.order) < count:
            began_s = process_time()
            for _ in range(WINDOW_MESSAGES // BATCH):
                for delivery in await self.receive():
                    held.add(delivery)
            spent.append(process_time() - began_s)
        self.tell("hold one more", spent)
        return held

    async def ack(self, handles: Handles) -> None:
        """Settle all."""
        spent: list[float] = []
        for first in range(0, len(handles.order), WINDOW_MESSAGES):
            began_s = process_time()
            for at in range(first, first + WINDOW_MESSAGES, BATCH):
                if some := handles.take(at, BATCH):
                    await self.settle(some)
            spent.append(process_time() - began_s)
        self.tell("ack one, in random order", spent[:-1])

    def tell(self, title: str, spent: Sequence[float]) -> None:
        """Microseconds a message of the first and the last windows, memory, and end of the log."""
        each = [seconds * 1e6 / WINDOW_MESSAGES for seconds in spent]
        few = max(len(each) // 8, 2)
        first, last = min(each[:few]), min(each[-few:])
        log_mib = self.node.store.status().written_end / (1 << 20)
        print(
            f"{title:44} {first:6.1f} {last:6.1f} {max(each):6.1f} {memory_mib():8.0f}"
            f" {log_mib:8.0f}",
            flush=True,
        )


async def measure(root: Path, count: int) -> None:
    """All steps."""
    limits = replace(Limits(), group_in_flight_max=2 * count)
    config = Config(data_dir=root, port=0, flush=FlushMode.ASYNC, limits=limits)
    migrate(config.database)
    node = await Node.open(config)
    broker = node.broker
    await put_topic(broker, TOPIC, TopicSettings(queues=QUEUES, flush=FlushMode.ASYNC))
    settings = replace(GroupSettings(), max_in_flight=2 * count, invisible_ms=INVISIBLE_MS)
    await put_group(broker, GROUP, settings)
    frame = request_frame([request_record(TOPIC, BODY)] * FRAME_MESSAGES)
    stored = count + (3 * WINDOWS + 2) * WINDOW_MESSAGES
    for number in range(stored // FRAME_MESSAGES + 1):
        await broker.sender.send_frame(TOPIC, frame, queue_id=number % QUEUES)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTOR_THRESHOLDS)
    print(f"{'':44} {'first':>6} {'last':>6} {'most':>6} {'MiB':>8} {'log MiB':>8}  (us a message)")
    consumer = Consumer(node)
    await consumer.through_both("receive and settle, nothing held")
    held = await consumer.hold(count)
    await consumer.through_both(f"receive and settle, {len(held.order):,} held")
    random.Random(1).shuffle(held.order)
    await consumer.ack(held)
    open_ones, acked = held.first, len(held.order)
    del held
    await consumer.through_both(f"receive and settle, {acked:,} acked")
    committed = {row.queue_id: row.offset for row in broker.groups.offsets.committed(GROUP, TOPIC)}
    assert committed == open_ones, (committed, open_ones)
    ends = [
        broker.consumer_journal.queue((GROUP, TOPIC, queue_id)).end for queue_id in range(QUEUES)
    ]
    began_s = perf_counter()
    await node.close()
    closed_s = perf_counter() - began_s
    began_s = perf_counter()
    node = await Node.open(config)
    opened_s = perf_counter() - began_s
    consumer = Consumer(node)
    print(f"closed in {closed_s:.2f} s, open again in {opened_s:.2f} s, {memory_mib():.0f} MiB")
    again = [each.message for _ in range(QUEUES) for each in await consumer.receive()]
    old = {m.queue_id: m.queue_offset for m in again if m.queue_offset < ends[m.queue_id]}
    assert old == open_ones, (old, open_ones)
    print(f"of {acked + QUEUES:,} that were held, {len(old)} came again: those that were not acked")
    await node.close()


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1_000_000)
    options = parser.parse_args()
    with ExitStack() as stack:
        root = stack.enter_context(tempfile.TemporaryDirectory(prefix="curlew-bench-"))
        asyncio.run(measure(Path(root), options.count))


if __name__ == "__main__":
    main()
