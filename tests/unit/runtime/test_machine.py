"""Whether the machine gives free memory back, by what Linux says of its devices."""

from pathlib import Path

import pytest

from app.runtime.machine import gives_free_memory_back, memory_bytes

BALLOON, DISK = "0x0005\n", "0x0002\n"
REPORTING, OTHERS = "01100100" + "0" * 56 + "\n", "11111011" + "1" * 56 + "\n"


def _device(folder: Path, name: str, kind: str, features: str) -> None:
    (folder / name).mkdir()
    (folder / name / "device").write_text(kind)
    (folder / name / "features").write_text(features)


@pytest.mark.parametrize(
    ("kind", "features", "gives"),
    [
        (BALLOON, REPORTING, True),
        (BALLOON, OTHERS, False),
        (BALLOON, "", False),
        (DISK, REPORTING, False),
    ],
)
def test_a_balloon_that_reports_free_pages_gives_them_back(
    tmp_path: Path, kind: str, features: str, gives: bool
) -> None:
    _device(tmp_path, "virtio0", DISK, OTHERS)
    (tmp_path / "virtio1").mkdir()  # one that is just being removed
    _device(tmp_path, "virtio2", kind, features)
    assert gives_free_memory_back(tmp_path) is gives


def test_a_machine_without_such_devices_does_not(tmp_path: Path) -> None:
    assert not gives_free_memory_back(tmp_path)
    assert not gives_free_memory_back(tmp_path / "missing")


def test_the_machine_has_memory() -> None:
    lines = Path("/proc/meminfo").read_text().splitlines()
    total = next(int(line.split()[1]) for line in lines if line.startswith("MemTotal:"))
    assert abs(memory_bytes() - total * 1024) < total * 1024 / 100
