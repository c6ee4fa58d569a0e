"""G2, G2b, G3, G4 on real file systems: power cut, write-back errors, a full disk.

A driver works on a loop-mounted disk when the power is cut under it (the shutdown ioctl); then the
driver is killed, the disk mounted again, and everything is read. Needs root and loop devices.

Positive controls: a process that does not sync, and one that tries a failed sync again.
"""

from pathlib import Path

import pytest

from app.domain.errors import DiskFull
from app.domain.limits import MIB
from app.store import OsFiles
from tests.crash.sweeps.disks import (
    DROP_JOURNAL,
    EXT4_EAGER,
    EXT4_ORDERED,
    FLUSH_JOURNAL,
    KINDS,
    Kind,
    fill,
    mounted_disk,
    mounted_tmpfs,
    need,
)
from tests.crash.sweeps.driver import CONFIG
from tests.crash.sweeps.power import fail_write_back, lose_power
from tests.support.stores.stores import open_store

pytestmark = pytest.mark.powerloss


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


def test_a_write_back_error_stops_the_store_and_loses_nothing(tmp_path: Path) -> None:
    need(EXT4_EAGER)
    output, lost, vanished = fail_write_back(tmp_path)
    assert set(output.outcomes) <= {"unknown", "not_stored"}
    assert output.outcomes
    assert (lost, vanished) == (0, 0)


def test_trying_a_failed_sync_again_is_found_out(tmp_path: Path) -> None:
    need(EXT4_EAGER)
    assert fail_write_back(tmp_path, "--leave-out", "stopping")[1] > 0


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
