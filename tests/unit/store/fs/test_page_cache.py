"""Whether bytes of a file are in memory, asked of the real kernel; and sending from a file."""

import os
import platform
import select
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.domain.limits import MIB
from app.store import ColdRead
from app.store.fs import page_cache
from app.store.fs.files import SEND_BYTES_MAX, FilePart, OsFile
from app.store.fs.page_cache import is_in_memory

PAGE = os.sysconf("SC_PAGESIZE")
DATA = bytes(range(251)) * (3 * MIB // 251)
HOLE = 4 * MIB
"""Where nothing was ever written or read, so that nothing is in memory."""
SHARED_MEMORY = Path("/dev/shm")
CAN_TELL = tuple(map(int, platform.release().split(".")[:2])) >= (6, 5)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[OsFile]:
    """Where the kernel tells, if it can: of overlayfs, which /tmp may be, it does not."""
    place = SHARED_MEMORY if SHARED_MEMORY.is_dir() else tmp_path
    path = place / f"curlew-{os.getpid()}"
    file = OsFile(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    try:
        file.pwritev([DATA], 0)
        file.truncate(2 * HOLE)
        yield file
    finally:
        path.unlink()
        file.close()


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        yield ours, theirs


def test_it_is_told_page_by_page(file: OsFile) -> None:
    for place in ((0, 1), (0, len(DATA)), (PAGE - 1, 2), (5 * PAGE, PAGE)):
        assert is_in_memory(file._descriptor, *place) is CAN_TELL, place
    for place in ((HOLE, 1), (0, HOLE + 1), (HOLE - PAGE, 2 * PAGE), (HOLE, PAGE)):
        assert not is_in_memory(file._descriptor, *place), place
    file.pwritev([b"x"], HOLE)
    assert is_in_memory(file._descriptor, HOLE, PAGE) is CAN_TELL
    assert not is_in_memory(file._descriptor, HOLE, PAGE + 1)


def test_it_is_not_where_the_kernel_cannot_tell(
    file: OsFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_cache, "_syscall", lambda *_: -1)
    assert not is_in_memory(file._descriptor, 0, 1)
    monkeypatch.setattr(page_cache, "_syscall", None)
    assert not is_in_memory(file._descriptor, 0, 1)


def test_a_file_that_is_closed_is_not_in_memory(file: OsFile) -> None:
    file.close()
    assert not is_in_memory(file._descriptor, 0, 1)


def test_a_part_is_sent_as_far_as_it_is_taken(
    file: OsFile, pair: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = pair
    part = FilePart(file, 7, 2 * MIB + 1)
    got = bytearray()
    done = 0
    while done < part.size:
        count = part.send(ours.fileno(), done, wait_for_disk=not CAN_TELL)
        assert 0 < count <= SEND_BYTES_MAX
        done += count
        while len(got) < done:
            got += theirs.recv(MIB)
    assert got == DATA[7 : 7 + 2 * MIB + 1] == part.read()


def test_a_socket_that_is_full_takes_none(
    file: OsFile, pair: tuple[socket.socket, socket.socket]
) -> None:
    part = FilePart(file, 0, len(DATA))
    while select.select([], [pair[0]], [], 0)[1]:
        part.send(pair[0].fileno(), 0, wait_for_disk=True)
    with pytest.raises(BlockingIOError):
        part.send(pair[0].fileno(), 0, wait_for_disk=True)


def test_what_is_not_in_memory_is_cold(
    file: OsFile, pair: tuple[socket.socket, socket.socket]
) -> None:
    part = FilePart(file, HOLE - 1, MIB)
    with pytest.raises(ColdRead):
        part.send(pair[0].fileno(), 0, wait_for_disk=False)
    assert part.send(pair[0].fileno(), 0, wait_for_disk=True) > 0


def test_reading_ahead_is_asked_of_the_kernel(
    file: OsFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, ...]] = []
    monkeypatch.setattr(os, "posix_fadvise", lambda *words: asked.append(words))
    FilePart(file, 7, MIB).will_read()
    assert asked == [(file._descriptor, 7, MIB, os.POSIX_FADV_WILLNEED)]


def test_behind_the_end_nothing_is_sent(
    file: OsFile, pair: tuple[socket.socket, socket.socket]
) -> None:
    assert FilePart(file, 2 * HOLE, 10).send(pair[0].fileno(), 0, wait_for_disk=True) == 0
