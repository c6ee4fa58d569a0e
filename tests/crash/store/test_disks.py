"""Where no disk can be mounted, the tests that need one fail and say what to do.

Positive control: a `why_not` that takes a missing mkfs for a reason makes the last test fail (tried
by hand).
"""

from pathlib import Path

import pytest

from tests.crash.sweeps import disks
from tests.crash.sweeps.disks import EXT4_EAGER, KINDS, Kind, mounted_disk, need, why_not


@pytest.mark.parametrize("kind", [None, *KINDS, EXT4_EAGER])
def test_without_the_right_to_mount_all_fail(
    monkeypatch: pytest.MonkeyPatch, kind: Kind | None
) -> None:
    monkeypatch.setattr(disks, "may_mount", lambda: False)
    with pytest.raises(pytest.fail.Exception, match="run them as root"):
        need(kind)


def test_without_loop_devices_all_but_tmpfs_fail(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(disks, "may_mount", lambda: True)
    monkeypatch.setattr(disks, "LOOP_CONTROL", tmp_path / "none")
    for kind in KINDS:
        with pytest.raises(pytest.fail.Exception, match="modprobe loop"):
            need(kind)
    need(None)


@pytest.mark.parametrize("kind", [*KINDS, EXT4_EAGER], ids=lambda kind: kind.name)
def test_a_missing_program_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: Kind
) -> None:
    monkeypatch.setattr(disks, "may_mount", lambda: True)
    monkeypatch.setattr(disks, "LOOP_CONTROL", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert why_not(kind) == ""
    with pytest.raises(FileNotFoundError, match=kind.make[0]), mounted_disk(kind, tmp_path):
        pass
