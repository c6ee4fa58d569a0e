"""Lives of a real process that is killed at a chosen call or time, and what must be left of it.

A `Chain` is one data directory that several drivers use one after the other; each is killed. After
each kill the store is opened and everything is read and compared with what was acknowledged.
"""

import math
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from app.domain.message import StoredMessage
from app.store import MessageStore, OsFiles
from tests.crash.sweeps.driver import CONFIG, QUEUES, SIZES, make_body, step_of
from tests.support.nodes.waiting import wait_until
from tests.support.stores.clock import FakeClock
from tests.support.stores.turns import ManualTurns

ROOT = Path(__file__).resolve().parents[3]
LIVES = 8
COUNT = 260
PARALLEL = 2
DRIVER_SECONDS = 60

CALLS = {
    "write": "pwritev2,pwritev,pwrite64",
    "sync": "fdatasync,fsync",
    "rename": "rename,renameat,renameat2",
    "allocate": "fallocate",
    "truncate": "ftruncate",
    "mkdir": "mkdir,mkdirat",
    "time": "",
}
"""Where to kill: at the n-th of these system calls; `time`: between any two."""

FIRST_LIFE = ("mkdir", "truncate", "allocate", "rename")
"""Calls that are made mainly in a new directory."""

REACH = {"write": 24, "sync": 36, "rename": 4, "allocate": 3, "truncate": 6, "mkdir": 3}
"""Up to which n; about what a driver does in one life. When it ends before, n is halved."""


class Point(NamedTuple):
    call: str
    nth: int
    flush: str
    sizes: str


@dataclass
class Figures:
    """Added up over points. Times in seconds."""

    points: int = 0
    killed: int = 0
    acknowledged: int = 0
    lost: int = 0
    complaints: list[str] = field(default_factory=list)
    recovery_s: list[float] = field(default_factory=list)

    def add(self, other: "Figures") -> None:
        self.points += other.points
        self.killed += other.killed
        self.acknowledged += other.acknowledged
        self.lost += other.lost
        self.complaints += other.complaints
        self.recovery_s += other.recovery_s


@dataclass
class Output:
    """What a driver said before it died."""

    acks: dict[tuple[int, int], int] = field(default_factory=dict)
    """(queue, offset) -> number of the message."""
    flushed: int = -1
    outcomes: list[str] = field(default_factory=list)
    status: int = 0
    cut_at: float = math.inf
    """What was said later does not count: after a power loss nobody says anything."""

    def take(self, line: str) -> None:
        time_or_word, *rest = line.split()
        if time_or_word == "failed":
            self.outcomes.append(rest[0])
        elif rest and rest[0] in ("ack", "flushed") and float(time_or_word) < self.cut_at:
            *place, number = map(int, rest[1:])
            if place:
                self.acks[place[0], place[1]] = number
            else:
                self.flushed = number


def driver_command(root: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "tests.crash.sweeps.driver", str(root), *arguments]


def run_driver(command: list[str], *, kill_after_acks: int | None = None) -> Output:
    """Run to the end, whatever that is; or kill it when it has acknowledged so many."""
    output = Output()
    process = subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    watchdog = threading.Timer(DRIVER_SECONDS, process.kill)
    watchdog.start()
    try:
        with process.stdout:
            for line in process.stdout:
                output.take(line)
                if kill_after_acks is not None and len(output.acks) >= kill_after_acks:
                    process.send_signal(signal.SIGKILL)
        output.status = process.wait(DRIVER_SECONDS)
    finally:
        watchdog.cancel()
        process.kill()
        process.wait()
    return output


def kill_once(root: Path, point: Point, first: int, *extra: str) -> Output:
    command = driver_command(root, "--first", str(first), "--count", str(COUNT), *extra)
    command += ["--flush", point.flush, "--sizes", point.sizes]
    if point.call == "time":
        return run_driver(command, kill_after_acks=point.nth)
    calls = CALLS[point.call]
    inject = f"inject={calls}:signal=SIGKILL:when={point.nth}"
    strace = ["strace", "-f", "-qq", "-o", str(root) + ".strace", "-e", f"trace={calls}"]
    return run_driver([*strace, "-e", inject, *command])


def kill_at(pid: int, calls: str, nth: int, log: Path) -> subprocess.Popen[bytes]:
    """Let strace kill a running process when one of its threads enters the n-th of these calls."""
    strace = subprocess.Popen(
        [
            *("strace", "-f", "-qq", "-o", str(log), "-p", str(pid)),
            *("-e", f"trace={calls}", "-e", f"inject={calls}:signal=SIGKILL:when={nth}"),
        ]
    )
    status = Path(f"/proc/{pid}/status")
    wait_until(lambda: "TracerPid:\t0\n" not in status.read_text())
    return strace


def read_everything(store: MessageStore) -> Iterator[StoredMessage | tuple[int, int]]:
    """Every message of the store; (queue, offset) for what cannot be read."""
    for queue_id in range(QUEUES):
        bounds = store.bounds("orders", queue_id)
        offset = bounds.min_offset
        while offset < bounds.max_offset:
            result = store.read(
                "orders", queue_id, offset, max_messages=500, max_bytes=1 << 24, wait_for_disk=True
            )
            yield from map(store.decode, result.records)
            for gap in result.gaps:
                yield from ((queue_id, bad) for bad in range(gap.from_offset, gap.to_offset))
            offset = result.next_offset


class Chain:
    """One data directory and what was acknowledged in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.figures = Figures()
        self._acks: dict[tuple[int, int], int] = {}
        self._first = 0

    def live(self, point: Point, *extra: str) -> None:
        """One life, its end, and what is left."""
        self.figures.points += 1
        while True:
            output = kill_once(self.root, point, self._first, *extra)
            self._first += COUNT
            self.figures.acknowledged += len(output.acks)
            self._acks.update(output.acks)
            self.check(str(point))
            if output.status != 0 or point.nth == 1:
                break
            point = point._replace(nth=point.nth // 2)
        self.figures.killed += output.status != 0

    def check(self, name: str) -> None:
        started = time.perf_counter()
        store = MessageStore.open(OsFiles(self.root), CONFIG, FakeClock(), ManualTurns())
        self.figures.recovery_s.append(time.perf_counter() - started)
        left = dict(self._acks)
        numbers: set[int] = set()
        for found in read_everything(store):
            if not isinstance(found, StoredMessage):
                self.figures.complaints.append(f"{name}: {found} is a hole")
                continue
            number = int(found.body.partition(b":")[0])
            numbers.add(number)
            if left.pop((found.queue_id, found.queue_offset), number) != number:
                self.figures.complaints.append(f"{name}: {number} is not what was acknowledged")
            if found.body not in {make_body(number, mix) for mix in SIZES}:
                self.figures.complaints.append(f"{name}: {number} has another body")
        for number in sorted(numbers):
            if not numbers.issuperset(step_of(number)):
                self.figures.complaints.append(f"{name}: {number} is there without its step")
        self.figures.lost += len(left)
        for place in left:
            del self._acks[place]
        store.fail("the next life finds what a kill leaves")
        store.close()


def choose_points(chance: random.Random, count: int) -> list[Point]:
    """Every kind of call in turn, everything else by chance."""
    later = [call for call in CALLS if call not in ("mkdir", "truncate")]
    return [
        Point(
            call := FIRST_LIFE[number // LIVES % len(FIRST_LIFE)]
            if number % LIVES == 0
            else later[number % len(later)],
            chance.randint(1, REACH.get(call, COUNT - 20)),
            chance.choice(["sync", "async"]),
            chance.choice(list(SIZES)),
        )
        for number in range(count)
    ]


def run_points(points: list[Point], *extra: str) -> Figures:
    """Kill at all points, in chains, two at a time."""

    def run_chain(part: list[Point]) -> Figures:
        root = Path(tempfile.mkdtemp(prefix="curlew-kill-"))
        try:
            store = root / "store"
            store.mkdir()
            chain = Chain(store)
            for point in part:
                chain.live(point, *extra)
            return chain.figures
        finally:
            shutil.rmtree(root)

    total = Figures()
    parts = [points[start : start + LIVES] for start in range(0, len(points), LIVES)]
    with ThreadPoolExecutor(PARALLEL) as pool:
        for figures in pool.map(run_chain, parts):
            total.add(figures)
    return total


def strace_version() -> str:
    """Empty when there is no strace."""
    if shutil.which("strace") is None:
        return ""
    text = subprocess.run(["strace", "-V"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"version (\S+)", text)
    return found[1] if found else "unknown"
