"""A file system in memory that forgets what was not synced.

`SimulatedFiles` implements `app.store.FileSystem`. It keeps, for every file, the bytes on the
medium and the writes since the last sync; and, for every directory, the names on the medium and
the name changes since its last sync. `crash` makes the file system that a machine may find after a
power loss: any subset of the unsynced writes is there, one of them torn at a 512-byte boundary, and
a prefix of the unsynced name changes. `kill` makes what a killed process leaves: everything.

A `Fault` makes the n-th call of a kind raise an `OSError`, once or from then on.
"""

import errno
import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from typing_extensions import override

from app.store.files import Buffer, DiskUsage, File, FileSystem, Lock, StoreLocked

SECTOR_BYTES = 512


@dataclass
class Inode:
    """One file: what the process sees, what is on the medium, and the difference."""

    seen: bytearray = field(default_factory=bytearray)
    safe: bytearray = field(default_factory=bytearray)
    unsynced: list[tuple[int, bytes]] = field(default_factory=list)
    lost: bool = False
    """Bytes are seen that a failed sync will never bring to the medium."""

    def write(self, data: bytes, offset: int) -> None:
        _write(self.seen, data, offset)
        self.unsynced.append((offset, data))

    def sync(self) -> None:
        for offset, data in self.unsynced:
            _write(self.safe, data, offset)
        self.unsynced.clear()

    def lose(self) -> None:
        """A sync failed: what was not safe is in memory only, and no later sync will bring it."""
        self.lost = True
        self.unsynced.clear()

    def forget_cached(self) -> None:
        if self.lost:
            self.seen = bytearray(self.safe)
            self.lost = False

    def after_crash(self, chance: random.Random) -> "Inode":
        content = bytearray(self.safe)
        for offset, data in self.unsynced:
            fate = chance.randrange(3)
            if fate == 1:
                _write(content, data, offset)
            elif fate == 2 and data:
                kept = chance.randrange(len(data))
                end = (offset + kept) // SECTOR_BYTES * SECTOR_BYTES - offset
                _write(content, data[: max(end, 0)], offset)
        return Inode(bytearray(content), bytearray(content))


def _write(content: bytearray, data: bytes, offset: int) -> None:
    if not data:
        return
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


@dataclass
class Fault:
    """Raise `error` at the n-th call of `kind`; `lasting`: at every later one too."""

    kind: str
    nth: int
    error: int = errno.EIO
    lasting: bool = False
    seen: int = 0

    def check(self, kind: str) -> None:
        if kind == self.kind:
            self.seen += 1
            if self.seen == self.nth or (self.lasting and self.seen > self.nth):
                raise OSError(self.error, errno.errorcode[self.error])


class SimulatedFiles(FileSystem):
    """See the module. `skip_sync` is a positive control: a disk that lies about syncs."""

    def __init__(self, *, skip_sync: bool = False) -> None:
        self.names: dict[str, Inode] = {}
        self.directories: set[str] = {""}
        self.fault: Fault | None = None
        self.on_call: Callable[[str], object] = lambda _kind: None
        self._safe_names: dict[str, Inode] = {}
        self._safe_directories: set[str] = {""}
        self._changes: list[tuple[str, Inode | None]] = []
        self.mutex = threading.RLock()
        """The writer thread may be at work while a test crashes the machine."""
        self._locked = False
        self._skip_sync = skip_sync
        self.boot = 0
        self.usage = DiskUsage(1000, 900)

    def call(self, kind: str) -> None:
        self.on_call(kind)
        if self.fault is not None:
            self.fault.check(kind)

    def kill(self) -> "SimulatedFiles":
        """What the next process finds when this one was killed."""
        after = SimulatedFiles()
        with self.mutex:
            after.names = {
                path: Inode(bytearray(inode.seen), bytearray(inode.safe), list(inode.unsynced))
                for path, inode in self.names.items()
            }
        after.boot = self.boot
        after.directories = set(self.directories)
        after._safe_names = {path: after.names[path] for path in self.names}
        after._safe_directories = set(self.directories)
        return after

    def crash(self, chance: random.Random) -> "SimulatedFiles":
        """What the next start finds after a power loss, drawn by `chance`."""
        with self.mutex:
            return self._crash(chance)

    def _crash(self, chance: random.Random) -> "SimulatedFiles":
        names = dict(self._safe_names)
        for path, inode in self._changes[: chance.randint(0, len(self._changes))]:
            if inode is None:
                names.pop(path, None)
            else:
                names[path] = inode
        after = SimulatedFiles()
        after.boot = self.boot + 1
        after.names = {path: inode.after_crash(chance) for path, inode in names.items()}
        after.directories = set(self._safe_directories)
        for path in after.names:
            parts = path.split("/")[:-1]
            after.directories.update("/".join(parts[:end]) for end in range(1, len(parts) + 1))
        after._safe_names = dict(after.names)
        after._safe_directories = set(after.directories)
        return after

    @override
    def open(self, path: str, *, create: bool = False) -> File:
        self.call("open")
        with self.mutex:
            inode = self.names.get(path)
            if inode is None:
                if not create or path.rpartition("/")[0] not in self.directories:
                    raise FileNotFoundError(errno.ENOENT, path)
                inode = self.names[path] = Inode()
                self._changes.append((path, inode))
        return SimulatedFile(self, inode)

    @override
    def exists(self, path: str) -> bool:
        return path in self.names or path in self.directories

    @override
    def list(self, directory: str) -> list[str]:
        inside = f"{directory}/" if directory else ""
        found = {
            path.removeprefix(inside).split("/")[0]
            for path in (*self.names, *self.directories)
            if path.startswith(inside) and path != directory
        }
        return sorted(found - {""})

    @override
    def make_directory(self, directory: str) -> None:
        self.call("mkdir")
        parts = directory.split("/")
        for end in range(1, len(parts) + 1):
            path = "/".join(parts[:end])
            self.directories.add(path)
            self._safe_directories.add(path)

    @override
    def remove(self, path: str) -> None:
        self.call("unlink")
        del self.names[path]
        self._changes.append((path, None))

    @override
    def replace(self, source: str, target: str) -> None:
        self.call("rename")
        inode = self.names.pop(source)
        self.names[target] = inode
        self._changes += [(source, None), (target, inode)]

    @override
    def sync_directory(self, directory: str) -> None:
        self.call("sync_directory")
        if self._skip_sync:
            return
        keep: list[tuple[str, Inode | None]] = []
        for path, inode in self._changes:
            if path.rpartition("/")[0] != directory:
                keep.append((path, inode))
            elif inode is None:
                self._safe_names.pop(path, None)
            else:
                self._safe_names[path] = inode
        self._changes = keep

    @override
    def disk_usage(self) -> DiskUsage:
        return self.usage

    @override
    def boot_id(self) -> str:
        return f"boot-{self.boot}"

    @override
    def lock(self, path: str) -> Lock:
        if self._locked:
            raise StoreLocked("in use")
        self._locked = True
        return SimulatedLock(self)

    def unlock(self) -> None:
        self._locked = False

    def sync(self, inode: Inode) -> None:
        if not self._skip_sync:
            inode.sync()


class SimulatedLock(Lock):
    def __init__(self, files: SimulatedFiles) -> None:
        self._files = files

    @override
    def release(self) -> None:
        self._files.unlock()


class SimulatedFile(File):
    def __init__(self, files: SimulatedFiles, inode: Inode) -> None:
        self._files = files
        self._inode = inode

    @override
    def size(self) -> int:
        return len(self._inode.seen)

    @override
    def pread(self, size: int, offset: int, *, wait_for_disk: bool = True) -> bytes:
        self._files.call("read")
        return bytes(self._inode.seen[offset : offset + size])

    @override
    def next_data(self, offset: int) -> int | None:
        rest = self._inode.seen[offset:]
        stripped = rest.lstrip(b"\0")
        return offset + len(rest) - len(stripped) if stripped else None

    @override
    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> None:
        self._files.call("write")
        with self._files.mutex:
            self._inode.write(b"".join(bytes(buffer) for buffer in buffers), offset)

    @override
    def forget_cached(self) -> None:
        with self._files.mutex:
            self._inode.forget_cached()

    @override
    def sync(self) -> None:
        try:
            self._files.call("sync")
        except OSError:
            with self._files.mutex:
                self._inode.lose()
            raise
        with self._files.mutex:
            self._files.sync(self._inode)

    @override
    def allocate(self, size: int) -> None:
        self._files.call("allocate")
        with self._files.mutex:
            for content in (self._inode.seen, self._inode.safe):
                content.extend(bytes(max(size - len(content), 0)))

    @override
    def truncate(self, size: int) -> None:
        self._files.call("truncate")
        with self._files.mutex:
            for content in (self._inode.seen, self._inode.safe):
                del content[size:]
                content.extend(bytes(size - len(content)))

    @override
    def close(self) -> None:
        pass
