"""Cutting the power, and failing the medium, under a driver at work on a real file system."""

import math
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

from app.domain.limits import MIB
from app.domain.message import StoredMessage
from app.store import MessageStore, OsFiles
from tests.crash.sweeps.disks import EXT4_EAGER, Disk, fill, mounted_disk, mounted_tmpfs
from tests.crash.sweeps.driver import CONFIG, QUEUES, SIZES, NamedBoot, make_body, step_of
from tests.crash.sweeps.kills import ROOT, Output, driver_command, read_everything
from tests.support.stores.clock import FakeClock
from tests.support.stores.turns import ManualTurns

LIVES = 2
COUNT = 100_000
DRIVER_SECONDS = 30


def run_until(
    command: list[str], acks: int, strike: Callable[[], object], *, cut: bool = True
) -> Output:
    """Let a driver work, strike when it has acknowledged so many, and let it end or kill it.

    With `cut` an acknowledgement later than the strike does not count: a sync that is under way in
    ext4 just then may succeed without effect, which no real power loss lets anyone see.
    """
    output = Output()
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    watchdog = threading.Timer(DRIVER_SECONDS, process.kill)
    watchdog.start()
    struck = False
    with process.stdout:
        for line in process.stdout:
            output.take(line)
            if not struck and len(output.acks) >= acks:
                struck = True
                output.cut_at = time.monotonic() if cut else math.inf
                strike()
            if output.outcomes:
                process.kill()
    process.kill()
    output.status = process.wait(DRIVER_SECONDS)
    watchdog.cancel()
    return output


HOLE = -1
"""In place of the number of a message that cannot be read."""


def read_all(root: Path, boot: str) -> dict[tuple[int, int], int]:
    """(queue, offset) -> number of every message, after a start of the machine called `boot`."""
    store = MessageStore.open(NamedBoot(root, boot), CONFIG, FakeClock(), ManualTurns())
    try:
        found: dict[tuple[int, int], int] = {}
        for message in read_everything(store):
            if not isinstance(message, StoredMessage):
                found[message] = HOLE
                continue
            number = int(message.body.partition(b":")[0])
            assert message.body in {make_body(number, sizes) for sizes in SIZES}
            found[message.queue_id, message.queue_offset] = number
        return found
    finally:
        store.fail("the power goes next")
        store.close()


def lose_power(
    disk: Disk, flush: str, flag: int, *extra: str, lives: int = LIVES
) -> tuple[int, int]:
    """Several times: numbers of messages acknowledged and durable, and lost of these.

    A life that leaves a queue with a hole, or part of a step, counts as one lost message more.
    """
    store = disk.root / "store"
    store.mkdir()
    disk_synced(disk)
    expected: dict[tuple[int, int], int] = {}
    lost = durable = 0
    for life in range(lives):
        first = life * COUNT
        options = ["--flush", flush, "--sizes", "mixed", "--boot", f"{life}"]
        command = driver_command(store, *options, "--first", str(first), "--count", str(COUNT))
        output = run_until([*command, *extra], 150 + 70 * (life % 5), lambda: disk.cut_power(flag))
        safe = {
            place: number
            for place, number in output.acks.items()
            if flush == "sync" or number < output.flushed
        }
        durable += len(safe)
        disk.restart()
        found = read_all(store, f"{life + 1}")
        lost += sum(found.get(place) != number for place, number in (expected | safe).items())
        lost += not dense(found)
        expected = found
    return durable, lost


def disk_synced(disk: Disk) -> None:
    """The store directory itself is made by whoever sets up the machine, long before."""
    OsFiles(disk.root).sync_directory("")


def dense(found: dict[tuple[int, int], int]) -> bool:
    """Each queue holds a prefix of what was sent to it, and each step is whole."""
    numbers_found = set(found.values())
    if not all(numbers_found.issuperset(step_of(number)) for number in numbers_found - {HOLE}):
        return False
    for queue_id in range(QUEUES):
        offsets = sorted(offset for queue, offset in found if queue == queue_id)
        numbers = [found[queue_id, offset] for offset in offsets]
        if offsets != list(range(len(offsets))) or numbers != sorted(numbers):
            return False
    return HOLE not in found.values()


def fail_write_back(tmp_path: Path, *extra: str) -> tuple[Output, int, int]:
    """Let the medium of a running store fail.

    The output; how many acknowledged messages are lost; and how many were served after a restart
    of the process and not after one of the machine.
    """
    with mounted_tmpfs(24 * MIB, tmp_path / "medium") as medium:
        with mounted_disk(EXT4_EAGER, medium) as disk:
            store = disk.root / "store"
            store.mkdir()
            disk.write_page_by_page()
            disk.write_journal_through()
            ballast = medium / "ballast"
            command = driver_command(store, "--sizes", "mixed", "--count", str(COUNT))
            output = run_until([*command, *extra], 150, lambda: fill(ballast), cut=False)
            ballast.unlink()
            try:
                served = read_all(store, "")
            except OSError:  # the kernel has given the file system up
                served = {}
            disk.restart()
            found = read_all(store, "another")
            lost = sum(found.get(place) != number for place, number in output.acks.items())
            vanished = sum(found.get(place) != number for place, number in served.items())
        return output, lost, vanished
