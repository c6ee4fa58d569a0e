"""G2, G2b, G3, G4 on real file systems: power cut, write-back errors, a full disk.

A driver works on a loop-mounted disk when the power is cut under it (the shutdown ioctl); then the
driver is killed, the disk mounted again, and everything is read. Needs root and loop devices; where
they are missing these tests are reported as not run.

Positive controls: a process that does not sync, and one that tries a failed sync again.
"""

import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from app.domain.errors import DiskFull
from app.domain.limits import MIB
from app.domain.message import StoredMessage
from app.store import MessageStore, OsFiles
from tests.crash.disks import (
    DROP_JOURNAL,
    EXT4_EAGER,
    EXT4_ORDERED,
    FLUSH_JOURNAL,
    KINDS,
    Disk,
    Kind,
    fill,
    mounted_disk,
    mounted_tmpfs,
    why_not,
)
from tests.crash.driver import CONFIG, QUEUES, SIZES, NamedBoot, make_body
from tests.crash.kills import ROOT, Output, driver_command, read_everything
from tests.support.clock import FakeClock
from tests.support.stores import open_store
from tests.support.turns import ManualTurns

LIVES = 2
COUNT = 100_000
DRIVER_SECONDS = 30

pytestmark = pytest.mark.powerloss


def need(kind: Kind | None) -> None:
    if reason := why_not(kind):
        pytest.skip(reason)


def run_until(command: list[str], acks: int, strike: Callable[[], object]) -> Output:
    """Let a driver work, strike when it has acknowledged so many, and let it end or kill it."""
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
                strike()
            if output.outcomes:
                process.kill()
    process.kill()
    output.status = process.wait(DRIVER_SECONDS)
    watchdog.cancel()
    return output


def read_all(root: Path, boot: str) -> dict[tuple[int, int], int]:
    """(queue, offset) -> number of every message, after a start of the machine called `boot`."""
    store = MessageStore.open(NamedBoot(root, boot), CONFIG, FakeClock(), ManualTurns())
    try:
        found: dict[tuple[int, int], int] = {}
        for message in read_everything(store):
            assert isinstance(message, StoredMessage), f"{message} is a hole"
            number = int(message.body.partition(b":")[0])
            assert message.body in {make_body(number, sizes) for sizes in SIZES}
            found[message.queue_id, message.queue_offset] = number
        return found
    finally:
        store.fail("the power goes next")
        store.close()


def lose_power(disk: Disk, flush: str, flag: int, *extra: str) -> tuple[int, int]:
    """Several times: numbers of messages acknowledged and durable, and lost of these."""
    store = disk.root / "store"
    store.mkdir()
    disk_synced(disk)
    expected: dict[tuple[int, int], int] = {}
    lost = durable = 0
    for life in range(LIVES):
        first = life * COUNT
        options = ["--flush", flush, "--sizes", "mixed", "--boot", f"{life}"]
        command = driver_command(store, *options, "--first", str(first), "--count", str(COUNT))
        output = run_until([*command, *extra], 150 + 70 * life, lambda: disk.cut_power(flag))
        safe = {
            place: number
            for place, number in output.acks.items()
            if flush == "sync" or number < output.flushed
        }
        durable += len(safe)
        disk.restart()
        found = read_all(store, f"{life + 1}")
        lost += sum(found.get(place) != number for place, number in (expected | safe).items())
        assert dense(found)
        expected = found
    return durable, lost


def disk_synced(disk: Disk) -> None:
    """The store directory itself is made by whoever sets up the machine, long before."""
    OsFiles(disk.root).sync_directory("")


def dense(found: dict[tuple[int, int], int]) -> bool:
    """Each queue holds a prefix of what was sent to it."""
    for queue_id in range(QUEUES):
        offsets = sorted(offset for queue, offset in found if queue == queue_id)
        numbers = [found[queue_id, offset] for offset in offsets]
        if offsets != list(range(len(offsets))) or numbers != sorted(numbers):
            return False
    return True


@pytest.mark.parametrize("flag", [DROP_JOURNAL, FLUSH_JOURNAL], ids=["drop", "flush"])
@pytest.mark.parametrize("flush", ["sync", "async"])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_power_loss(tmp_path: Path, kind: Kind, flush: str, flag: int) -> None:
    need(kind)
    with mounted_disk(kind, tmp_path) as disk:
        durable, lost = lose_power(disk, flush, flag)
    print(f"{kind.name} {flush}: {durable} durable, {lost} lost")
    assert lost == 0
    assert durable > 100


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_process_that_does_not_sync_is_found_out(tmp_path: Path, kind: Kind) -> None:
    need(kind)
    with mounted_disk(kind, tmp_path) as disk:
        _, lost = lose_power(disk, "sync", DROP_JOURNAL, "--leave-out", "syncing")
    assert lost > 0


def fail_write_back(tmp_path: Path, *extra: str) -> tuple[Output, int, int]:
    """Let the medium of a running store fail; (output, lost, served but not on the medium)."""
    with mounted_tmpfs(24 * MIB, tmp_path / "medium") as medium:
        with mounted_disk(EXT4_EAGER, medium) as disk:
            store = disk.root / "store"
            store.mkdir()
            disk_synced(disk)
            ballast = medium / "ballast"
            command = driver_command(store, "--sizes", "mixed", "--count", str(COUNT))
            output = run_until([*command, *extra], 150, lambda: fill(ballast))
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


def test_a_write_back_error_stops_the_store_and_loses_nothing(tmp_path: Path) -> None:
    need(EXT4_EAGER)
    output, lost, vanished = fail_write_back(tmp_path)
    assert set(output.outcomes) <= {"unknown", "not_stored"}
    assert output.outcomes
    assert (lost, vanished) == (0, 0)


def test_trying_a_failed_sync_again_is_found_out(tmp_path: Path) -> None:
    need(EXT4_EAGER)
    _, lost, _ = fail_write_back(tmp_path, "--leave-out", "stopping")
    assert lost > 0


@pytest.mark.parametrize("real", [False, True], ids=["tmpfs", "ext4"])
def test_a_full_disk_refuses_and_goes_on_when_there_is_room(tmp_path: Path, real: bool) -> None:
    need(EXT4_ORDERED if real else None)
    if real:
        with mounted_disk(EXT4_ORDERED, tmp_path) as disk:
            fill_and_free(disk.root)
    else:
        with mounted_tmpfs(4 * MIB, tmp_path / "disk") as root:
            fill_and_free(root)


def fill_and_free(root: Path) -> None:
    directory = root / "store"
    directory.mkdir()
    opened = open_store(OsFiles(directory), CONFIG)
    sent = [bytes(1000 + number) for number in range(300)]
    for body in sent:
        opened.send(body)
    fill(root / "ballast")
    while True:
        opened.append(body := bytes(8_000))
        opened.settle(len(opened.outcomes) + 1)
        error = opened.outcomes[-1]
        if error is not None:
            break
        sent.append(body)
    assert isinstance(error, DiskFull)
    assert error.outcome == "not_stored"
    assert opened.store.status().failed is None
    assert opened.bodies() == sent
    (root / "ballast").unlink()
    sent.append(b"there is room")
    opened.send(sent[-1])
    assert opened.bodies() == sent
    opened.store.close()
    again = open_store(OsFiles(directory), CONFIG)
    assert again.bodies() == sent
    again.store.close()
