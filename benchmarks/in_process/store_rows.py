"""The rows of the store alone, without HTTP. `--large` takes the sizes of the targets.

Rates are per second of processor time, so that the other core does not count. The baselines are
what the machine can do at most: the system call of the same bytes, or the checksum alone.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from app.store.formats.record.checksum import crc32
from benchmarks.in_process import store
from benchmarks.row import Row

BODY = bytes(range(256)) * 4
MEMORY_MIB_MAX = 300.0
OPENING_S_MAX = 1.0

Measure = Callable[[float], tuple[float, float]]


def writes(count: int, messages: int) -> float:
    """Messages a second when `messages` of 1 KiB go into a preallocated file at once."""
    data = BODY * messages
    with tempfile.TemporaryFile() as file:
        descriptor = file.fileno()
        os.posix_fallocate(descriptor, 0, len(data) * count)

        def run() -> None:
            for number in range(count):
                os.pwrite(descriptor, data, number * len(data))

        run()
        return store.per_second(count * messages, run)


def reads(count: int) -> float:
    """Messages of 1 KiB a second, read from memory 1 MiB at a time."""
    size = 1 << 20
    with tempfile.TemporaryFile() as file:
        os.pwrite(file.fileno(), bytes(size), 0)
        run = lambda: [os.pread(file.fileno(), size, 0) for _ in range(count)]  # noqa: E731
        return store.per_second(count * 1024, run)


def checksums() -> float:
    """MB a second of the CRC-32 over pieces of 1 KiB."""
    view = memoryview(BODY * 1000)

    def run() -> None:
        for _ in range(100):
            for at in range(0, len(view), 1024):
                crc32(view[at : at + 1024])

    return store.per_second(100 * len(view), run) / 1e6


def pair(baseline: Callable[[], float], ours: Callable[[], float]) -> Measure:
    """Both, one after the other; how long they take follows from their counts."""
    return lambda _seconds: (baseline(), ours())


def opening_seconds(messages: int) -> float:
    """Wall time of an opening after a clean stop."""
    with tempfile.TemporaryDirectory(dir=".") as root:
        with store.opened(Path(root)) as (opened, turns):
            store.filled(opened, turns, messages // 1000, body_bytes=16)
        started = time.perf_counter()
        with store.opened(Path(root)) as (opened, _):
            took = time.perf_counter() - started
            assert opened.status().recovery.scanned_bytes == 0
            assert opened.bounds("orders", 0).max_offset == messages
        return took


def memory_mib(gib: float, queues: int) -> float:
    """Most resident memory of a process that fills, opens and reads a store."""
    command = [sys.executable, "-m", "benchmarks.in_process.store_memory", str(gib), str(queues)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = json.loads(output)
    return float(max(*found["filling"], found["reopened"], found["read"])) / 2**20


def store_rows(*, large: bool) -> list[Row]:
    """All rows; the sizes of the targets with `large`."""
    messages, gib = (10_000_000, 10.0) if large else (1_000_000, 1.0)
    return [
        Row("store: append, one a turn", "msg/s", "one pwrite each", "≤ 8 µs, 125 k/s",
            pair(lambda: writes(20_000, 1), lambda: store.append_single(1))),
        Row("store: append, 32 a turn", "msg/s", "one pwrite for 32", "≥ 250 k/s",
            pair(lambda: writes(2_000, 32), lambda: store.append_single(32))),
        Row("store: parse and append frames of 1,000", "msg/s", "one pwrite for 1,000",
            "≥ 600 k/s", pair(lambda: writes(200, 1000), store.append_frames)),
        Row("store: read 1 MiB a call", "msg/s", "one pread of 1 MiB", "≥ 1 M/s",
            pair(lambda: reads(500), lambda: store.pull(10_000))),
        Row(f"store: open after a clean stop, {messages // 1_000_000} M", "s", "the limit",
            "≤ 1 s", pair(lambda: OPENING_S_MAX, lambda: opening_seconds(messages)), runs=1),
        Row("store: open after a kill, scan", "MB/s", "CRC-32 alone", "≥ 500 MB/s",
            pair(checksums, lambda: store.opening(clean=False))),
        Row(f"store: memory at {gib:.0f} GiB, 1,000 queues", "MiB", "the limit", "≤ 300 MiB",
            pair(lambda: MEMORY_MIB_MAX, lambda: memory_mib(gib, 1000)), runs=1),
    ]  # fmt: skip
