"""Small real disks for fault tests: loop-mounted images whose power can be cut, and tmpfs.

Needs root, the right to mount and, for all but tmpfs, loop devices. `why_not` says what is missing
and how to come by it; a test then fails with that (`need`), as it does when a program is missing.
"""

import fcntl
import os
import re
import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from app.domain.limits import MIB
from app.store import OsFiles

SHUTDOWN = 0x8004587D
"""FS_IOC_SHUTDOWN: the file system forgets what is not on the medium and refuses all else."""

CAP_SYS_ADMIN = 21
"""The number of the capability to mount; root in most containers is without it."""

JOURNAL_ROUNDS = 400
"""Each writes at least three blocks; the journal of `EXT4_EAGER` has 1,024."""

SMALL_DISK_BYTES = 512 * MIB
"""No disk of these is larger; what is, is the machine's, and is never filled."""

LOOP_CONTROL = Path("/dev/loop-control")

DROP_JOURNAL, FLUSH_JOURNAL = 2, 1
"""Lose everything unsynced; or bring the names and sizes to the medium first, but not the data."""


@dataclass(frozen=True)
class Kind:
    name: str
    make: tuple[str, ...]
    options: str
    size_bytes: int


EXT4_ORDERED = Kind("ext4 ordered", ("mkfs.ext4", "-q"), "data=ordered", 48 * MIB)
EXT4_WRITEBACK = Kind("ext4 writeback", ("mkfs.ext4", "-q"), "data=writeback,nodelalloc", 48 * MIB)
XFS = Kind("xfs", ("mkfs.xfs", "-q"), "defaults", 304 * MIB)
EXT4_EAGER = Kind(
    "ext4 eager",
    ("mkfs.ext4", "-q", "-b", "4096", "-J", "size=4", "-E", "lazy_itable_init=0"),
    "defaults",
    64 * MIB,
)
KINDS = (EXT4_ORDERED, EXT4_WRITEBACK, XFS)


def run(*command: str | Path) -> None:
    subprocess.run(command, check=True, capture_output=True)


def may_mount() -> bool:
    """Whether this process is root with all that belongs to it."""
    (found,) = re.findall(r"^CapEff:\s*(\w+)$", Path("/proc/self/status").read_text(), re.MULTILINE)
    return os.geteuid() == 0 and bool(int(found, 16) >> CAP_SYS_ADMIN & 1)


def why_not(kind: Kind | None = None) -> str:
    """Why such a disk cannot be used here; empty when it can. Without a kind: tmpfs."""
    if not may_mount():
        return (
            "tests that mount disks need root with CAP_SYS_ADMIN: run them as root, in a container "
            "with --privileged"
        )
    if kind is not None and not LOOP_CONTROL.exists():
        return (
            "tests that mount file systems need loop devices: modprobe loop, and give a container "
            "/dev/loop-control, as --privileged does"
        )
    return ""


def need(kind: Kind | None = None) -> None:
    """Fail, with what to do, where such a disk cannot be used."""
    if reason := why_not(kind):
        pytest.fail(reason)


class Disk:
    """A mounted image."""

    def __init__(self, kind: Kind, image: Path, root: Path) -> None:
        self.kind = kind
        self.root = root
        self._image = image
        with image.open("wb") as file:
            file.truncate(kind.size_bytes)
        run(*kind.make, image)
        root.mkdir()
        self.mount()

    def mount(self) -> None:
        run("mount", "-o", f"loop,{self.kind.options}", self._image, self.root)

    def unmount(self) -> None:
        run("umount", self.root)

    def cut_power(self, flag: int) -> None:
        descriptor = os.open(self.root, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, SHUTDOWN, struct.pack("I", flag))
        finally:
            os.close(descriptor)

    def write_page_by_page(self) -> None:
        """Have each request to the medium succeed or fail whole.

        Linux' loop driver takes a short write for a success (seen with 6.18); a real disk does not.
        """
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
        (device,) = [source for source, where, *_ in mounts if where == str(self.root)]
        queue = Path("/sys/block") / Path(device).name / "queue"
        (queue / "max_sectors_kb").write_text("4")

    def write_journal_through(self) -> None:
        """Have the image hold every block of the journal, so that only data can lack room."""
        for _ in range(JOURNAL_ROUNDS):
            (self.root / "touched").write_bytes(b"x")
            OsFiles(self.root).sync_directory("")

    def restart(self) -> None:
        """What a machine does when the power comes back. Nothing may have files open."""
        self.unmount()
        self.mount()


@contextmanager
def mounted_disk(kind: Kind, directory: Path) -> Iterator[Disk]:
    disk = Disk(kind, directory / "image", directory / "disk")
    try:
        yield disk
    finally:
        if disk.root.is_mount():
            run("umount", "-l", disk.root)


@contextmanager
def mounted_tmpfs(size_bytes: int, root: Path) -> Iterator[Path]:
    root.mkdir()
    run("mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", root)
    try:
        yield root
    finally:
        run("umount", "-l", root)


def room(path: Path) -> int:
    """Bytes of the small disk that will hold `path`; fails when it would be the machine's own."""
    size = shutil.disk_usage(path.parent).total
    assert size <= SMALL_DISK_BYTES, f"{path} is on no small disk: {size} bytes would be filled"
    return size


def fill(path: Path) -> None:
    """Write until there is no room left."""
    room(path)
    with path.open("wb", buffering=0) as file:
        for size in (MIB, 4096):
            try:
                while file.write(bytes(size)) == size:
                    pass
            except OSError:
                continue
