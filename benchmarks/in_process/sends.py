"""What a send costs in process: single ones, frames of 100, and batches under a key.

`python -m benchmarks.in_process.sends --against TREE` runs this tree and another one (an unpacked
`git archive`, say) in windows in turn, each in a process of its own, on real stores without
replicas; prints the processor time a message and the median of the ratios of neighbouring windows.
HTTP is not in it, so over HTTP the ratio is nearer to 1.
"""

import argparse
import asyncio
import gc
import os
import subprocess
import sys
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any, Final

from app.broker import Broker
from app.broker.dedup.tokens import ProducerToken
from app.domain.limits import MIB, Limits
from app.domain.message import Message
from app.domain.positions import FlushMode
from app.domain.settings import TopicSettings, TraceMode
from app.runtime.direct import DirectRun
from app.runtime.system_clock import SystemClock
from app.store import MessageStore, OsFiles, StoreConfig
from benchmarks.in_process.timers import IDLE
from tests.support.clients.frames import request_frame
from tests.support.metadata.memory_metadata import MemoryMetadata

ROOT: Final = Path(__file__).parents[2]
TOPIC: Final = "orders"
BODY: Final = b"x" * 256
A_TURN: Final = 50
"""Sends that are under way at a time."""
CALLS: Final = {"single": 4_000, "frame": 400, "keyed": 1_500}
"""Of one window."""
FRAME_MESSAGES: Final = 100


class Bench:
    """One broker, and the sends to measure."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._frame = request_frame([Message(BODY)] * FRAME_MESSAGES, TOPIC)
        self._seq = 0
        self._under_way = 0

    def _call(self, kind: str) -> Coroutine[Any, Any, object]:
        if kind == "single":
            return self._broker.sender.send(TOPIC, Message(BODY))
        if kind == "frame":
            return self._broker.sender.send_frame(TOPIC, self._frame)
        claim = ProducerToken("bench", 0, self._seq)
        self._seq += 1
        return self._broker.deduplicator.send(TOPIC, Message(BODY), claim, queue_id=0)

    async def _run(self, kind: str) -> None:
        await self._call(kind)
        self._under_way -= 1

    async def window(self, kind: str) -> float:
        """Processor seconds of the process."""
        gc.collect()
        began_s = process_time()
        left = CALLS[kind]
        start_task = asyncio.get_running_loop().create_task
        while left or self._under_way:
            while left and self._under_way < A_TURN:
                left -= 1
                self._under_way += 1
                DirectRun(self._run(kind), start_task).go_on()
            await asyncio.sleep(0)
        return process_time() - began_s


async def serve() -> None:
    """A window for each line of the input; prints its seconds."""
    with tempfile.TemporaryDirectory() as directory:
        clock, limits, loop = SystemClock(), Limits(), asyncio.get_running_loop()
        config = StoreConfig(segment_bytes=256 * MIB)
        store = MessageStore.open(OsFiles(Path(directory)), config, clock, loop, limits)
        metadata = MemoryMetadata(clock)
        settings = TopicSettings(queues=1, flush=FlushMode.ASYNC, trace=TraceMode.OFF)
        await metadata.put_topic(TOPIC, settings)
        broker = await Broker.open(store, metadata, clock, limits, IDLE)
        bench = Bench(broker)
        while kind := sys.stdin.readline().strip():
            print(await bench.window(kind), flush=True)
        await broker.stop()
        store.close()


class Tree:
    """A process that measures the code of one tree."""

    def __init__(self, root: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": str(root)}
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=root,
            env=environment,
        )

    def window(self, kind: str) -> float:
        """Microseconds a message."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{kind}\n")
        self._process.stdin.flush()
        messages = CALLS[kind] * (FRAME_MESSAGES if kind == "frame" else 1)
        return float(self._process.stdout.readline()) * 1e6 / messages

    def close(self) -> None:
        """End it."""
        self._process.communicate()


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", type=Path, default=ROOT, help="the tree of before")
    parser.add_argument("--windows", type=int, default=60)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve())
        return
    before, after = Tree(options.against.resolve()), Tree(ROOT)
    for kind in CALLS:
        pairs: list[tuple[float, float]] = []
        for number in range(options.windows + 2):
            if number % 2:
                was, now = before.window(kind), after.window(kind)
            else:
                now, was = after.window(kind), before.window(kind)
            if number >= 2:
                pairs.append((was, now))
        was, now = (median(column) for column in zip(*pairs, strict=True))
        ratio = median(now / was for was, now in pairs)
        print(f"{kind}: {was:.2f} → {now:.2f} µs a message, ratio {ratio:.3f}, {len(pairs)} pairs")
    before.close()
    after.close()


if __name__ == "__main__":
    main()
