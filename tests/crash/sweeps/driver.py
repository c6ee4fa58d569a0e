"""A process to be killed: sends numbered messages into a store and prints what is acknowledged.

    python -m tests.crash.sweeps.driver ROOT --first 0 --count 500 --flush sync --sizes small

Output, unbuffered: `open SECONDS` once, then `TIME ack QUEUE OFFSET NUMBER` for each
acknowledgement, in async mode also `TIME flushed NUMBER` (all below are on the medium), at last
`end`. Errors: `failed OUTCOME NUMBER`. TIME is that of the monotonic clock, the same for all
processes. Of ten messages the first three are one step, for three queues (`step_of`). `--leave-out`
breaks a promise on purpose.
"""

import argparse
import asyncio
import os
import random
import sys
import time
from pathlib import Path
from typing import Final

from typing_extensions import override

from app.domain.errors import CurlewError
from app.domain.message import Message
from app.domain.positions import FlushMode, TimestampMs
from app.store import MessageStore, OsFiles, StepPart, StoreConfig
from app.store.fs.files import OsFile

QUEUES: Final = 3
WINDOW: Final = 12
FLUSH_EVERY: Final = 40
CHECKPOINT_EVERY: Final = 70
STEP_EVERY: Final = 10
STEP: Final = 3
SIZES: Final = {"small": (0, 60), "mixed": (0, 2_000), "large": (1_000, 9_000)}
CONFIG: Final = StoreConfig(segment_bytes=65_536, queue_file_units=64, record_bytes_max=16_384)


def make_body(number: int, sizes: str) -> bytes:
    """The body of a message, which follows from its number."""
    chance = random.Random(number)
    return b"%d:" % number + chance.randbytes(chance.randint(*SIZES[sizes]))


def step_of(number: int) -> range:
    """The messages that are sent in one step with a message."""
    first = number - number % STEP_EVERY
    return range(first, first + STEP) if number - first < STEP else range(number, number + 1)


def say(text: str) -> None:
    os.write(1, f"{text}\n".encode())


def say_when(text: str) -> None:
    say(f"{time.monotonic():.6f} {text}")


class ProcessClock:
    """The clock of the machine."""

    def now_ms(self) -> TimestampMs:
        return TimestampMs(time.time_ns() // 1_000_000)

    def monotonic_s(self) -> float:
        return time.monotonic()


class NamedBoot(OsFiles):
    """A file system whose machine was started when the test says."""

    def __init__(self, root: Path, boot: str) -> None:
        super().__init__(root)
        self._boot = boot

    @override
    def boot_id(self) -> str:
        return self._boot or super().boot_id()


class Driver:
    """Keeps a window of sends in flight."""

    def __init__(self, store: MessageStore, options: argparse.Namespace) -> None:
        self._store = store
        self._flush = FlushMode(options.flush)
        self._sizes: str = options.sizes
        self._ack_early = options.leave_out == "waiting"
        self._apart = options.leave_out == "joining"
        self._next: int = options.first
        self._last: int = options.first + options.count
        self._in_flight = 0
        self._refused = False
        self._loop = asyncio.get_running_loop()
        self._finished = asyncio.Event()
        self._background: list[asyncio.Future[None]] = []

    async def run(self) -> None:
        self._fill()
        await self._finished.wait()
        await asyncio.gather(*self._background, return_exceptions=True)

    def _fill(self) -> None:
        while self._in_flight < WINDOW and self._next < self._last and not self._refused:
            before, sent = self._next, step_of(self._next)
            if self._apart:
                sent = range(self._next, self._next + 1)
            self._send(sent)
            self._next = sent.stop
            if self._flush is FlushMode.ASYNC and before // FLUSH_EVERY < sent.stop // FLUSH_EVERY:
                self._flush_all(self._next)
            if before // CHECKPOINT_EVERY < sent.stop // CHECKPOINT_EVERY:
                checkpointing = self._store.begin_checkpoint()
                self._background.append(self._loop.run_in_executor(None, checkpointing.run))
        if self._in_flight == 0:
            self._finished.set()

    def _send(self, numbers: range) -> None:
        places: list[str] = []

        def done(error: CurlewError | None) -> None:
            self._settled()
            if error is not None:
                self._refused = True
                say(f"failed {error.outcome} {numbers[0]}")
            elif not self._ack_early:
                for place in places:
                    say_when(place)

        parts = [
            StepPart("orders", number % QUEUES, [Message(make_body(number, self._sizes))])
            for number in numbers
        ]
        try:
            if len(parts) > 1:
                appended = self._store.append_step(parts, self._flush, done)
            else:
                appended = [self._store.append(*parts[0][:3], self._flush, done)]
        except CurlewError as error:
            self._refused = True
            say(f"failed {error.outcome} {numbers[0]}")
            return
        self._in_flight += 1
        for number, place in zip(numbers, appended, strict=True):
            places.append(f"ack {number % QUEUES} {place.first_queue_offset} {number}")
        if self._ack_early:
            for line in places:
                say_when(line)

    def _flush_all(self, number: int) -> None:
        def done(error: CurlewError | None) -> None:
            self._settled()
            if error is None:
                say_when(f"flushed {number}")

        self._in_flight += 1
        self._store.flush(done)

    def _settled(self) -> None:
        self._in_flight -= 1
        self._loop.call_soon(self._fill)


def sync_again(file: OsFile) -> None:
    """What many programs do, and what loses data on Linux."""
    try:
        os.fdatasync(file._descriptor)
    except OSError:
        os.fdatasync(file._descriptor)


async def main(options: argparse.Namespace) -> None:
    if options.leave_out == "stopping":
        setattr(OsFile, "sync", sync_again)  # noqa: B010 - mypy refuses the assignment
    started = time.perf_counter()
    store = MessageStore.open(
        NamedBoot(options.root, options.boot), CONFIG, ProcessClock(), asyncio.get_running_loop()
    )
    say(f"open {time.perf_counter() - started:.6f}")
    if options.leave_out == "syncing":
        setattr(OsFile, "sync", lambda _file: None)  # noqa: B010 - as above
    await Driver(store, options).run()
    if options.wait:
        say("waiting")
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    store.close()
    say("end")


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", type=Path)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--flush", choices=[mode.value for mode in FlushMode], default="sync")
    parser.add_argument("--sizes", choices=SIZES, default="small")
    parser.add_argument("--boot", default="", help="the boot id to believe in")
    parser.add_argument("--wait", action="store_true", help="wait for a line before the end")
    parser.add_argument("--leave-out", choices=["waiting", "syncing", "stopping", "joining"])
    return parser.parse_args(arguments)


if __name__ == "__main__":
    asyncio.run(main(parse()))
