"""A million resolved transactions: does any trace of them slow something?

`python -m benchmarks.in_process.transactions --count 1000000` prepares and decides (three commits
for one rollback) on a real store in process, with some always undecided, and prints for each tenth
the processor time of a transaction, the resident memory and how many half messages and journal
entries are kept; then the time of the next start, in a fresh process, beside that of an empty
store.
"""

import argparse
import asyncio
import subprocess
import sys
import tempfile
from collections import deque
from pathlib import Path
from time import perf_counter, process_time

from app.broker import Broker, BrokerConfig
from app.broker.transactions.transaction_table import TransactionState
from app.domain.message import Message
from app.domain.names import DECISION_TOPIC, HALF_TOPIC
from app.domain.positions import FlushMode
from app.store import MessageStore
from benchmarks.in_process.timers import open_broker

BODY = b"x" * 100
UNDECIDED = 1_000
TOGETHER = 500
"""Transactions at work at the same time."""
GROUP = "shop"


def resident_mib() -> float:
    """Resident memory of this process, in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4_096 / 2**20


async def prepare(broker: Broker) -> str:
    """One half message; its transaction's id."""
    prepared = await broker.transactions.prepare(
        "orders", Message(BODY), producer_group=GROUP, flush=FlushMode.ASYNC
    )
    return prepared.transaction_id


async def resolve(broker: Broker, waiting: deque[str], count: int) -> None:
    """Prepare as many as are decided; the oldest of those that wait are decided."""
    for first in range(0, count, TOGETHER):
        waiting.extend(await asyncio.gather(*[prepare(broker) for _ in range(TOGETHER)]))
        decisions = [
            TransactionState.COMMITTED if (first + each) % 4 else TransactionState.ROLLED_BACK
            for each in range(TOGETHER)
        ]
        await asyncio.gather(
            *[broker.transactions.decide(waiting.popleft(), decision) for decision in decisions]
        )


def kept(store: MessageStore, topic: str) -> int:
    """Messages of a system topic that are not trimmed yet."""
    bounds = store.bounds(topic, 0)
    return bounds.max_offset - bounds.min_offset


async def fill(root: Path, count: int) -> None:
    """Resolve them all, one line for each tenth."""
    store, broker = await open_broker(root, BrokerConfig())
    waiting: deque[str] = deque()
    for _ in range(0, UNDECIDED, TOGETHER):
        waiting.extend(await asyncio.gather(*[prepare(broker) for _ in range(TOGETHER)]))
    for tenth in range(10):
        began_s = process_time()
        await resolve(broker, waiting, count // 10)
        spent_us = (process_time() - began_s) * 1e6 / (count // 10)
        print(
            f"tenth {tenth + 1:2}: {spent_us:6.1f} us a transaction, {resident_mib():5.0f} MiB, "
            f"{kept(store, HALF_TOPIC):7} half messages and "
            f"{kept(store, DECISION_TOPIC):7} entries kept",
            flush=True,
        )
    await broker.stop()
    store.close()


async def look(root: Path) -> None:
    """Start on what is there."""
    began_s = perf_counter()
    store, broker = await open_broker(root, BrokerConfig())
    pending = broker.transactions.pending_count
    print(f"start: {perf_counter() - began_s:.3f} s, {resident_mib():.0f} MiB, {pending=}")
    await broker.stop()
    store.close()


def main() -> None:
    """Fill, then start again in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--look", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.look:
        asyncio.run(look(options.look))
        return
    with tempfile.TemporaryDirectory() as directory:
        for name in ("empty", "full"):
            Path(directory, name).mkdir()
        asyncio.run(fill(Path(directory, "full"), options.count))
        for name in ("empty", "full"):
            command = [sys.executable, "-m", "benchmarks.in_process.transactions", "--look"]
            print(f"{name:6}", end="", flush=True)
            subprocess.run([*command, str(Path(directory, name))], check=True)


if __name__ == "__main__":
    main()
