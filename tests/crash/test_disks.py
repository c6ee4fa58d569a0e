"""What keeps tests on real disks from running: no root, no loop devices. Nothing else may.

Positive control: a `why_not` that takes a missing mkfs for a reason makes the last test fail (tried
by hand).
"""

from pathlib import Path

import pytest

from tests.crash import disks
from tests.crash.disks import EXT4_EAGER, KINDS, Kind, mounted_disk, why_not


def test_without_the_right_to_mount_all_are_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disks, "may_mount", lambda: False)
    assert all(why_not(kind).startswith("not run: ") for kind in (None, *KINDS, EXT4_EAGER))


def test_without_loop_devices_only_tmpfs_is_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(disks, "may_mount", lambda: True)
    monkeypatch.setattr(disks, "LOOP_CONTROL", tmp_path / "none")
    assert [why_not(kind) for kind in KINDS] == ["not run: no loop devices"] * len(KINDS)
    assert why_not(None) == ""


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
