"""Runs the joining driver and kills it, and the node, in the middle: kill -9, nothing is tidied up.

What a process leaves behind then is what a machine leaves that loses its power supply, but for what
the kernel still had to write.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from flights.failures import StageFailed
from flights.nodes.service import Service, ServiceError
from flights.streams.streaming import batch_size

_LOOK_S: Final = 0.005
_DEADLINE_S: Final = 600
_LOG_SHOWN: Final = 2_000


class DriverFailed(StageFailed):
    """The driver ended with an error; the text has the end of its log."""


class Driver:
    """The driver as a process group of its own: JVM, Python workers and all."""

    def __init__(self, arguments: Sequence[str], log: Path) -> None:
        self._log = log
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-m", "flights.streams.joining", *arguments],
                stdout=file,
                stderr=file,
                start_new_session=True,
            )

    def kill(self) -> None:
        """kill -9 to the whole group."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def wait(self, look: Callable[[], bool]) -> bool:
        """Wait until `look` holds (True) or the driver has come to its end (False)."""
        deadline = time.monotonic() + _DEADLINE_S
        while not look():
            status = self._process.poll()
            if status == 0:
                return False
            if status is not None or time.monotonic() > deadline:
                tail = self._log.read_text("utf-8", "replace")[-_LOG_SHOWN:]
                raise DriverFailed(f"the driver ended with {status}; the end of its log:\n{tail}")
            time.sleep(_LOOK_S)
        return True


def join_through_kills(
    service: Service,
    arguments: Sequence[str],
    target: str,
    messages: int,
    folder: Path,
    kill_node: Callable[[], None] | None,
    tell: Callable[[str], None],
) -> None:
    """Run the driver; kill the node in a batch of the second quarter, the driver in one behind it.

    A batch that is only just at work is seen by what the target holds; where none was seen like
    that in three quarters of the rows, the kill comes anyway.
    """
    size = batch_size(messages)

    def is_in_a_batch(part: int) -> Callable[[], bool]:
        def look() -> bool:
            stored = _stored(service, target)
            inside = size // 10 < stored % size < size * 7 // 10
            return stored >= messages // part and (inside or stored >= messages * 3 // 4)

        return look

    def say(who: str) -> None:
        stored = _stored(service, target)
        tell(f"kill -9 to the {who} at {stored:,} rows, {stored % size:,} into a batch")

    driver = Driver(arguments, folder / "driver.log")
    try:
        if kill_node is not None and driver.wait(is_in_a_batch(4)):
            kill_node()
            say("node")
        if driver.wait(is_in_a_batch(2)):
            driver.kill()
            say("driver")
            driver = Driver(arguments, folder / "driver.log")
        driver.wait(lambda: False)
    finally:
        driver.kill()


def _stored(service: Service, topic: str) -> int:
    try:
        return service.depth(topic)
    except ServiceError:
        return 0
