"""What a write asks of the operating system, and that all of it is in the file afterwards."""

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from app.store.fs.files import IOV_MAX, WRITE_BYTES_MAX, Buffer, OsFiles

BIG = bytes(range(251)) * (3 * WRITE_BYTES_MAX // 251 + 1)


def calls_of(monkeypatch: pytest.MonkeyPatch, most: int) -> list[tuple[int, int]]:
    """Buffers and bytes of each call, of which the system takes `most` bytes."""
    seen: list[tuple[int, int]] = []
    real = os.pwrite

    def pwrite(descriptor: int, data: Buffer, offset: int) -> int:
        seen.append((1, len(data)))
        return real(descriptor, memoryview(data)[:most], offset)

    def pwritev(descriptor: int, buffers: Sequence[Buffer], offset: int) -> int:
        seen.append((len(buffers), sum(map(len, buffers))))
        return real(descriptor, b"".join(buffers)[:most], offset)

    monkeypatch.setattr(os, "pwrite", pwrite)
    monkeypatch.setattr(os, "pwritev", pwritev)
    return seen


@pytest.mark.parametrize("most", [WRITE_BYTES_MAX, 100_003])
@pytest.mark.parametrize(
    "buffers",
    [
        [b"one"],
        [b"a", bytearray(b"b"), memoryview(b"c")],
        [BIG],
        [b"entry", memoryview(bytearray(BIG)), b"end"],
        [BIG[:WRITE_BYTES_MAX]],
        [BIG[:WRITE_BYTES_MAX], BIG[1:]],
        [b"x%d" % number for number in range(3 * IOV_MAX + 1)],
        [BIG[:1000]] * (2 * IOV_MAX),
    ],
    ids=["one", "three", "big", "in between", "full", "two", "many", "many and big"],
)
def test_all_is_written_in_calls_of_bounded_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, buffers: list[Buffer], most: int
) -> None:
    file = OsFiles(tmp_path).open("file", create=True)
    seen = calls_of(monkeypatch, most)
    file.pwritev(buffers, 7)
    wanted = b"".join(buffers)
    assert file.pread(len(wanted) + 8, 0) == bytes(7) + wanted
    if most == WRITE_BYTES_MAX:
        assert all(count <= IOV_MAX and size <= WRITE_BYTES_MAX for count, size in seen)
        assert len(seen) <= len(wanted) // WRITE_BYTES_MAX + len(buffers) // IOV_MAX + 1
    file.close()


@pytest.mark.parametrize("error", [None, errno.EAGAIN, errno.EOPNOTSUPP])
def test_a_buffer_is_filled_whole_from_memory_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int | None
) -> None:
    file = OsFiles(tmp_path).open("file", create=True)
    file.pwritev([b"0123456789"], 0)
    if error is not None:

        def preadv(*_args: object) -> int:
            raise OSError(error, os.strerror(error))

        monkeypatch.setattr(os, "preadv", preadv)
    buffer = memoryview(bytearray(4))
    is_cold = error == errno.EAGAIN
    assert file.pread_into(buffer, 3) is not is_cold
    assert bytes(buffer) == (bytes(4) if is_cold else b"3456")
    assert not file.pread_into(buffer, 7), "only three are there"
    file.close()


def test_what_is_made_is_its_owners_whatever_the_umask(tmp_path: Path) -> None:
    files = OsFiles(tmp_path)
    before = os.umask(0)
    try:
        files.open("file", create=True).close()
        files.make_directory("queues/orders")
        files.lock("lock").release()
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.rglob("*")}
    assert modes == {"file": 0o600, "queues": 0o700, "orders": 0o700, "lock": 0o600}
