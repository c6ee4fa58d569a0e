"""The only module that calls the operating system about files, with `page_cache` for one question.

`FileSystem` and `File` are the ports; `OsFiles` is the real one. Tests have another that loses what
was not synced. Paths are relative to the store's root, with '/' between parts.

Rules that callers rely on: `pwritev` writes everything or raises; data is on the medium after
`sync`, a new name after `sync_directory`; a sync that fails raises `SyncFailed`, whatever its
errno; nothing is memory-mapped (a full disk must be an `OSError` and not a signal) and no file is
opened in append mode (Linux would ignore the offset).
"""

import contextlib
import errno
import fcntl
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import numpy as np
from typing_extensions import override

from app.domain.shortages import SyncFailed
from app.store.fs.page_cache import is_in_memory

Buffer = bytes | bytearray | memoryview

IOV_MAX: Final = 1024
"""Linux' UIO_MAXIOV: buffers that one writev takes."""

WRITE_BYTES_MAX: Final = 1024 * 1024
"""Of one call. For 2 MiB and more Linux takes free memory for its cache in pieces of 2 MiB, which
on virtual machines is memory that the host has taken back: the first byte in each waits for it."""

SEND_BYTES_MAX: Final = 1024 * 1024
"""Of one call: what has to be in memory for it not to wait for the disk."""

DIRECTORY_MODE: Final = 0o700
FILE_MODE: Final = 0o600
"""Messages are nobody's business but their node's."""


_HOLDER_BYTES: Final = 20
"""Of the lock file, which names the process. Written over in place, so that it needs no room."""

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class ColdRead(Exception):
    """The bytes are not in memory; read again where waiting for the disk is allowed."""


class StoreLocked(Exception):
    """Another process has the store open."""


class DiskUsage(NamedTuple):
    """Bytes of the file system that holds the store."""

    total: int
    free: int
    """What an ordinary process may still use."""

    @property
    def used_ratio(self) -> float:
        """Between 0 (empty) and 1 (full)."""
        return 1 - self.free / self.total if self.total else 0.0


class File(Protocol):
    """One open file. Reads may come from any thread, writes from one at a time."""

    def size(self) -> int: ...

    def pread(self, size: int, offset: int, *, wait_for_disk: bool = True) -> bytes:
        """Up to `size` bytes, fewer only at the end. `ColdRead` if it would have to wait."""
        ...

    def pread_view(self, size: int, offset: int, *, wait_for_disk: bool = True) -> memoryview:
        """The same, in memory that nobody writes to; spares large reads a copy."""
        return memoryview(self.pread(size, offset, wait_for_disk=wait_for_disk))

    def pread_into(self, buffer: memoryview, offset: int) -> bool:
        """Fill `buffer` without waiting. False: the bytes are not all there, or not in memory."""
        try:
            part = self.pread(len(buffer), offset, wait_for_disk=False)
        except ColdRead:
            return False
        if len(part) != len(buffer):
            return False
        buffer[:] = part
        return True

    def send(self, target: int, size: int, offset: int, *, wait_for_disk: bool = True) -> int:
        """Hand bytes on to the descriptor `target`; how many it took, 0 only at the end.

        `BlockingIOError` when it takes none now, `ColdRead` as `pread`.
        """
        return os.write(target, self.pread(size, offset, wait_for_disk=wait_for_disk))

    def will_read(self, offset: int, size: int) -> None:
        """Begin to bring bytes to memory, without waiting until they are there. Only a hint."""
        return

    def next_data(self, offset: int) -> int | None:
        """The next place at or behind `offset` that may hold anything but zeros; None: no more."""
        ...

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> None: ...

    def sync(self) -> None:
        """Data (and the size needed to read it) to the medium. Raises `SyncFailed`."""
        ...

    def allocate(self, size: int) -> None:
        """Reserve `size` bytes of zeros, so that writing them cannot find the disk full."""
        ...

    def truncate(self, size: int) -> None: ...

    def drop_cached(self, offset: int = 0, size: int = 0) -> None:
        """Let reads come from the medium; what is not synced stays in memory. Size 0: to the end.

        After a sync that failed, memory shows bytes which are not on the medium and which no later
        sync brings there.
        """
        ...

    def close(self) -> None: ...


class FilePart(NamedTuple):
    """Some bytes of a file, all of them there. Any thread."""

    file: File
    offset: int
    size: int

    def send(self, target: int, done: int, *, wait_for_disk: bool) -> int:
        """`File.send` of what is behind the first `done` bytes, at most `SEND_BYTES_MAX`."""
        size = min(self.size - done, SEND_BYTES_MAX)
        return self.file.send(target, size, self.offset + done, wait_for_disk=wait_for_disk)

    def will_read(self) -> None:
        """`File.will_read` of all of it."""
        self.file.will_read(self.offset, self.size)

    def read(self) -> bytes:
        """All of it. Waits for the disk."""
        return self.file.pread(self.size, self.offset)


class Lock(Protocol):
    """A held lock; released by `release` or by the end of the process."""

    def release(self) -> None: ...


class FileSystem(Protocol):
    """What the store needs of a file system."""

    def open(self, path: str, *, create: bool = False) -> File: ...

    def exists(self, path: str) -> bool: ...

    def list(self, directory: str) -> list[str]:
        """Sorted names in `directory`; empty when it does not exist."""
        ...

    def make_directory(self, directory: str) -> None:
        """Make it and its parents, each name synced."""
        ...

    def remove(self, path: str) -> None: ...

    def replace(self, source: str, target: str) -> None: ...

    def sync_directory(self, directory: str) -> None: ...

    def disk_usage(self) -> DiskUsage: ...

    def lock(self, path: str) -> Lock: ...

    def boot_id(self) -> str:
        """Another one after each start of the machine; empty where that cannot be told."""
        ...


class OsFile(File):
    """A file descriptor. Closed at the latest when the last reference to it goes."""

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __del__(self) -> None:
        self.close()

    @override
    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    @override
    def pread(self, size: int, offset: int, *, wait_for_disk: bool = True) -> bytes:
        if wait_for_disk:
            return self._read_fully(size, offset)
        return bytes(self.pread_view(size, offset, wait_for_disk=False))

    @override
    def pread_view(self, size: int, offset: int, *, wait_for_disk: bool = True) -> memoryview:
        if wait_for_disk:
            return memoryview(self._read_fully(size, offset))
        # Not a bytearray, whose zeros would be written first.
        buffer = np.empty(size, np.uint8)
        try:
            got = os.preadv(self._descriptor, [buffer.data], offset, os.RWF_NOWAIT)
        except BlockingIOError as error:
            raise ColdRead from error
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            return memoryview(self._read_fully(size, offset))
        if got < size and offset + got < self.size():
            raise ColdRead
        return buffer.data[:got].toreadonly()

    @override
    def pread_into(self, buffer: memoryview, offset: int) -> bool:
        try:
            return os.preadv(self._descriptor, [buffer], offset, os.RWF_NOWAIT) == len(buffer)
        except OSError:  # cold, or a file system that cannot tell
            return super().pread_into(buffer, offset)

    def _read_fully(self, size: int, offset: int) -> bytes:
        first = os.pread(self._descriptor, size, offset)
        if len(first) == size or not first:
            return first
        parts = [first]
        got = len(first)
        while got < size and (part := os.pread(self._descriptor, size - got, offset + got)):
            parts.append(part)
            got += len(part)
        return b"".join(parts)

    @override
    def send(self, target: int, size: int, offset: int, *, wait_for_disk: bool = True) -> int:
        if not wait_for_disk and not is_in_memory(self._descriptor, offset, size):
            raise ColdRead
        return os.sendfile(target, self._descriptor, offset, size)

    @override
    def will_read(self, offset: int, size: int) -> None:
        os.posix_fadvise(self._descriptor, offset, size, os.POSIX_FADV_WILLNEED)

    @override
    def next_data(self, offset: int) -> int | None:
        try:
            return os.lseek(self._descriptor, offset, os.SEEK_DATA)
        except OSError as error:
            return None if error.errno == errno.ENXIO else offset

    @override
    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> None:
        if len(buffers) == 1 and len(buffers[0]) <= WRITE_BYTES_MAX:  # as for a single send
            done = os.pwrite(self._descriptor, buffers[0], offset)
            if done < len(buffers[0]):
                self._write_rest(buffers[0], done, offset)
            return
        wanted = sum(map(len, buffers))
        if wanted <= WRITE_BYTES_MAX and len(buffers) <= IOV_MAX:
            self._write(buffers, wanted, offset)
        else:
            self._write_in_parts(buffers, offset)

    def _write(self, buffers: Sequence[Buffer], wanted: int, offset: int) -> None:
        """Write `wanted` bytes, which the buffers hold together, in one call if it takes all."""
        if len(buffers) == 1:
            done = os.pwrite(self._descriptor, buffers[0], offset)
        else:
            done = os.pwritev(self._descriptor, buffers, offset)
        if done < wanted:
            self._write_rest(b"".join(buffers), done, offset)

    def _write_in_parts(self, buffers: Sequence[Buffer], offset: int) -> None:
        """In order, as much in a call as it should take."""
        part: list[Buffer] = []
        size = 0
        for buffer in buffers:
            rest = memoryview(buffer)
            while rest:
                piece = rest[: WRITE_BYTES_MAX - size]
                rest = rest[len(piece) :]
                part.append(piece)
                size += len(piece)
                if size == WRITE_BYTES_MAX or len(part) == IOV_MAX:
                    self._write(part, size, offset)
                    offset += size
                    part, size = [], 0
        if part:
            self._write(part, size, offset)

    def _write_rest(self, data: Buffer, done: int, offset: int) -> None:
        """Go on after a short write; the next call tells the reason if there is one."""
        view = memoryview(data)
        while done < len(data):
            written = os.pwrite(self._descriptor, view[done:], offset + done)
            if written == 0:
                raise OSError(errno.EIO, "the write makes no progress")
            done += written

    @override
    def sync(self) -> None:
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:
            raise _sync_failed(error) from error

    @override
    def allocate(self, size: int) -> None:
        os.posix_fallocate(self._descriptor, 0, size)
        _sync(self._descriptor)

    @override
    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    @override
    def drop_cached(self, offset: int = 0, size: int = 0) -> None:
        os.posix_fadvise(self._descriptor, offset, size, os.POSIX_FADV_DONTNEED)

    @override
    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class OsLock(Lock):
    """An flock on a file that also names the holder."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @override
    def release(self) -> None:
        os.close(self._descriptor)


class OsFiles(FileSystem):
    """The real file system below `root`, which must exist."""

    def __init__(self, root: Path) -> None:
        self._root = os.fspath(root)

    def _path(self, path: str) -> str:
        return f"{self._root}/{path}"

    @override
    def open(self, path: str, *, create: bool = False) -> File:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        try:
            return OsFile(os.open(self._path(path), flags, FILE_MODE))
        except PermissionError:
            if create:
                raise
            return OsFile(os.open(self._path(path), os.O_RDONLY | os.O_CLOEXEC))

    @override
    def exists(self, path: str) -> bool:
        return os.access(self._path(path), os.F_OK)

    @override
    def list(self, directory: str) -> list[str]:
        try:
            return sorted(os.listdir(self._path(directory)))  # noqa: PTH208 - strings throughout
        except FileNotFoundError:
            return []

    @override
    def make_directory(self, directory: str) -> None:
        parent = ""
        for part in directory.split("/"):
            path = f"{parent}/{part}" if parent else part
            if not self.exists(path):
                os.mkdir(self._path(path), DIRECTORY_MODE)  # noqa: PTH102
                try:
                    self.sync_directory(parent)
                except OSError:  # or who tries again would take the name for safe
                    with contextlib.suppress(OSError):
                        os.rmdir(self._path(path))  # noqa: PTH106
                    raise
            parent = path

    @override
    def remove(self, path: str) -> None:
        os.unlink(self._path(path))  # noqa: PTH108

    @override
    def replace(self, source: str, target: str) -> None:
        os.replace(self._path(source), self._path(target))  # noqa: PTH105

    @override
    def sync_directory(self, directory: str) -> None:
        descriptor = os.open(self._path(directory), os.O_RDONLY | os.O_DIRECTORY)
        try:
            _sync(descriptor)
        finally:
            os.close(descriptor)

    @override
    def disk_usage(self) -> DiskUsage:
        found = os.statvfs(self._root)
        used = found.f_blocks - found.f_bfree
        return DiskUsage((used + found.f_bavail) * found.f_frsize, found.f_bavail * found.f_frsize)

    @override
    def lock(self, path: str) -> Lock:
        descriptor = os.open(self._path(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            named = os.pread(descriptor, _HOLDER_BYTES, 0)
            holder = named.decode("ascii", "replace").strip() or "unknown"
            os.close(descriptor)
            raise StoreLocked(
                f"the data directory {self._root} is in use by another node (process {holder}); "
                "stop it, or give this node another directory"
            ) from error
        with contextlib.suppress(OSError):  # a full disk: only whom to name is missing then
            os.pwrite(descriptor, f"{os.getpid()}\n".ljust(_HOLDER_BYTES).encode(), 0)
        return OsLock(descriptor)

    @override
    def boot_id(self) -> str:
        try:
            return _BOOT_ID.read_text().strip()
        except OSError:
            return ""


def _sync(descriptor: int) -> None:
    try:
        os.fsync(descriptor)
    except OSError as error:
        raise _sync_failed(error) from error


def _sync_failed(error: OSError) -> SyncFailed:
    return SyncFailed(error.errno, error.strerror)


def write_atomically(files: FileSystem, path: str, data: bytes) -> None:
    """Replace a small file whole: temporary file, sync, rename, sync of the directory."""
    temporary = f"{path}.tmp"
    file = files.open(temporary, create=True)
    try:
        file.truncate(0)
        file.pwritev([data], 0)
        file.sync()
    except OSError:
        with contextlib.suppress(OSError):  # on a full disk it would keep the room that there is
            files.remove(temporary)
        raise
    finally:
        file.close()
    files.replace(temporary, path)
    files.sync_directory(path.rpartition("/")[0])


def read_whole(files: FileSystem, path: str) -> bytes | None:
    """All bytes of a small file, or None when it does not exist."""
    if not files.exists(path):
        return None
    file = files.open(path)
    try:
        return file.pread(file.size(), 0)
    finally:
        file.close()
