"""Delayed messages that wait: how long a store with millions of them takes to open, and its memory.

`python -m benchmarks.in_process.timers --count 5000000` fills a store, then opens it in a fresh
process: with what waits, and empty for comparison. `--late` sends to a running broker and measures
how late the messages come. Prints one line for each, with the target.
"""

import argparse
import asyncio
import json
import random
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

from app.broker import Broker, BrokerConfig
from app.broker.journal.append_future import AppendFuture
from app.domain.delays import Due
from app.domain.limits import MIB, Limits
from app.domain.message import Message
from app.domain.names import TIMER_TOPIC
from app.domain.positions import FlushMode
from app.domain.settings import TopicSettings
from app.runtime.system_clock import SystemClock
from app.store import MessageStore, OsFiles, StoreConfig
from tests.support.metadata.memory_metadata import MemoryMetadata

DAY_MS = 86_400_000
BATCH = 2_000
BODY = b"x" * 100
IDLE = BrokerConfig(delay_check_seconds=3600)


async def open_broker(root: Path, config: BrokerConfig) -> tuple[MessageStore, Broker]:
    """A started broker on a store, with one topic; the metadata is in memory."""
    clock = SystemClock()
    limits = Limits()
    store = MessageStore.open(
        OsFiles(root),
        StoreConfig(segment_bytes=256 * MIB),
        clock,
        asyncio.get_running_loop(),
        limits,
    )
    metadata = MemoryMetadata(clock)
    await metadata.put_topic("orders", TopicSettings(flush=FlushMode.ASYNC))
    broker = await Broker.open(store, metadata, clock, limits, config)
    return store, broker


async def fill(root: Path, count: int) -> None:
    """Store messages that are due in one to forty days, in no order."""
    store, broker = await open_broker(root, IDLE)
    chance = random.Random(1)
    first_ms = SystemClock().now_ms() + DAY_MS
    part = broker.delays.part
    number = (await broker.lifecycle.ensure_topic("orders")).generation
    for start in range(0, count, BATCH):
        messages = [
            part(Message(BODY), "orders", 0, first_ms + chance.randrange(39 * DAY_MS), number)
            for _ in range(min(BATCH, count - start))
        ]
        confirmation = AppendFuture()
        flat = [one.messages[0] for one in messages]
        store.append(TIMER_TOPIC, 0, flat, FlushMode.ASYNC, confirmation.done)
        await confirmation.wait()
        await broker.delays.turn()
        if start % 100_000 == 0:
            store.begin_checkpoint().run()
    await broker.stop()
    store.close()


def memory_mib() -> float:
    """Resident now, not at the most."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise AssertionError("no VmRSS")


async def measure_open(root: Path) -> dict[str, float]:
    """Seconds until the first look at what is due, and memory then."""
    began_s = perf_counter()
    store, broker = await open_broker(root, IDLE)
    await broker.delays.turn()
    seconds = perf_counter() - began_s
    result = {
        "seconds": seconds,
        "rss_mib": memory_mib(),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "waiting": float(broker.delays.timers.count),
    }
    await broker.stop()
    store.close()
    return result


async def measure_lateness(root: Path, seconds: float) -> list[float]:
    """How late messages come that were sent ten a second, at rest otherwise."""
    store, broker = await open_broker(root, BrokerConfig())
    end_s = perf_counter() + seconds
    sent = 0
    while perf_counter() < end_s:
        delay_ms = random.Random(sent).randint(200, 1_500)
        await broker.sender.send(
            "orders", Message(b"x"), queue_id=0, due=Due(delay_ms, is_delay=True)
        )
        sent += 1
        await asyncio.sleep(0.1)
    await asyncio.sleep(2)
    read = store.read("orders", 0, 0, max_messages=sent, max_bytes=MIB, wait_for_disk=True)
    late: list[float] = []
    for record in read.records:
        message = store.decode(record)
        due_ms = int(message.system["MQ_TIMER"].partition("-")[0])
        late.append(message.store_time_ms - due_ms)
    assert len(late) == sent, "messages are missing"
    await broker.stop()
    store.close()
    return sorted(late)


def in_fresh_process(root: Path) -> dict[str, float]:
    """`measure_open` in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.in_process.timers", "--measure", str(root)]
    found: dict[str, float] = json.loads(
        subprocess.run(command, check=True, capture_output=True, text=True).stdout
    )
    return found


def main() -> None:
    """Fill, open, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=5_000_000)
    parser.add_argument("--late", type=float, default=20.0, help="seconds of the lateness run")
    parser.add_argument("--measure", type=Path)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(asyncio.run(measure_open(options.measure))))
        return
    with tempfile.TemporaryDirectory() as directory:
        empty, full = Path(directory, "empty"), Path(directory, "full")
        empty.mkdir()
        full.mkdir()
        late = asyncio.run(measure_lateness(empty, options.late))
        print(
            f"{'lateness at rest, p50 / p99 / max':42} {late[len(late) // 2]:.0f} /"
            f" {late[int(len(late) * 0.99)]:.0f} / {late[-1]:.0f} ms  target p99 <= 100 ms"
        )
        began_s = perf_counter()
        asyncio.run(fill(full, options.count))
        rate = options.count / (perf_counter() - began_s)
        print(f"{'stored and put in order':42} {rate:,.0f} messages/s")
        without, found = in_fresh_process(empty), in_fresh_process(full)
        assert found["waiting"] == options.count
        more = found["rss_mib"] - without["rss_mib"]
        print(
            f"{f'open with {options.count:,} waiting':42} {found['seconds']:.2f} s  target <= 2 s"
        )
        print(f"{'memory over that of an empty store':42} {more:.1f} MiB  target <= 100 MB")


if __name__ == "__main__":
    main()
