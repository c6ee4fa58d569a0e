"""A file system in memory that forgets what was not synced. Deterministic; one thread at a time.

`SimulatedFiles` implements `app.store.FileSystem`. It keeps, for every file, the bytes on the
medium and the changes since the last sync; and, for every directory, the names on the medium and
the name changes since its last sync. `kill` makes what a killed process leaves: everything.
`crash` makes what a machine may find after a power loss, as a `CrashPlan` says: which unsynced
changes survived, in any order, one of them torn; and how many name changes.

A sync that fails behaves as Linux does: what was to be synced stays readable and never reaches the
medium, and the next sync succeeds. (Names are journaled: what a sync of a directory failed to bring
to the medium, a later one brings.)

Making a file is an "open" and then a "create". A sync of a directory has to open it, so it can lack
a descriptor; any other error of a sync is a `SyncFailed`.

A `Fault` makes the n-th call of a kind raise an `OSError`, once or from then on.
"""

import errno
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from typing_extensions import override

from app.domain.shortages import SyncFailed
from app.store.fs.files import Buffer, DiskUsage, File, FileSystem, Lock, StoreLocked

KINDS = (
    "open",
    "create",
    "write",
    "sync",
    "allocate",
    "truncate",
    "rename",
    "unlink",
    "mkdir",
    "sync_directory",
    "read",
)
SECTORS = (512, 4096)
LAST_CHANGES = 5
"""Of the unsynced changes, so many of the newest get crash states of their own."""


class Change(NamedTuple):
    """A write, or (`data` is None) a change of the size: exactly `offset`, or at least."""

    number: int
    offset: int
    data: bytes | None
    grow_only: bool = False


class Keep(NamedTuple):
    """Which bytes `[start, end)` of a write survive."""

    start: int
    end: int


NOTHING = Keep(0, 0)
EVERYTHING = Keep(0, 1 << 62)


class CrashPlan(NamedTuple):
    """What a power loss spares."""

    name_changes: int
    fates: Mapping[int, Keep]
    """By number of the change."""
    others: Keep


@dataclass
class Inode:
    """One file or directory: what the process sees, what is on the medium, and the difference."""

    directory: bool = False
    seen: bytearray = field(default_factory=bytearray)
    safe: bytearray = field(default_factory=bytearray)
    unsynced: list[Change] = field(default_factory=list)

    def change(self, change: Change) -> None:
        _apply(self.seen, change, EVERYTHING)
        self.unsynced.append(change)

    def sync(self) -> None:
        for change in self.unsynced:
            _apply(self.safe, change, EVERYTHING)
        self.unsynced.clear()

    def drop_cached(self) -> None:
        self.seen = bytearray(self.safe)
        for change in self.unsynced:
            _apply(self.seen, change, EVERYTHING)

    def after_crash(self, plan: CrashPlan) -> "Inode":
        content = bytearray(self.safe)
        for change in self.unsynced:
            _apply(content, change, plan.fates.get(change.number, plan.others))
        return Inode(self.directory, content, bytearray(content))

    def clone(self) -> "Inode":
        return Inode(
            self.directory, bytearray(self.seen), bytearray(self.safe), list(self.unsynced)
        )


def _apply(content: bytearray, change: Change, keep: Keep) -> None:
    if change.data is None:
        if keep != NOTHING:
            if not change.grow_only:
                del content[change.offset :]
            content.extend(bytes(max(change.offset - len(content), 0)))
        return
    data = change.data[keep.start : keep.end]
    if data:
        offset = change.offset + keep.start
        content.extend(bytes(max(offset - len(content), 0)))
        content[offset : offset + len(data)] = data


@dataclass
class Fault:
    """Raise `error` at the n-th call of `kind`; `lasting`: at every later one too."""

    kind: str
    nth: int
    error: int = errno.EIO
    lasting: bool = False
    seen: int = 0
    raised: int = 0

    def check(self, kind: str) -> None:
        if kind == self.kind:
            self.seen += 1
            if self.seen == self.nth or (self.lasting and self.seen > self.nth):
                self.raised += 1
                raise OSError(self.error, errno.errorcode[self.error])


class SimulatedFiles(FileSystem):
    """See the module. `skip_sync` is a positive control: a disk that lies about syncs."""

    def __init__(self, *, skip_sync: bool = False) -> None:
        root = Inode(directory=True)
        self.names: dict[str, Inode] = {"": root}
        self.fault: Fault | None = None
        self.usage = DiskUsage(1000, 900)
        self.on_call: Callable[[str], object] = lambda _kind: None
        self._safe_names: dict[str, Inode] = {"": root}
        self._changes: list[tuple[str, Inode | None]] = []
        self._numbers = 0
        self._locked = False
        self._skip_sync = skip_sync
        self._boots = 1

    def call(self, kind: str) -> None:
        assert kind in KINDS
        self.on_call(kind)
        if self.fault is not None:
            self.fault.check(kind)

    def kill(self) -> "SimulatedFiles":
        """What the next process finds when this one was killed."""
        after = SimulatedFiles(skip_sync=self._skip_sync)
        clones: dict[int, Inode] = {}

        def clone(inode: Inode) -> Inode:
            return clones.setdefault(id(inode), inode.clone())

        after.names = {path: clone(inode) for path, inode in self.names.items()}
        after._safe_names = {path: clone(inode) for path, inode in self._safe_names.items()}
        after._changes = [
            (path, None if inode is None else clone(inode)) for path, inode in self._changes
        ]
        after._numbers = self._numbers
        after._boots = self._boots
        return after

    def crash(self, plan: CrashPlan) -> "SimulatedFiles":
        """What the next start finds after a power loss."""
        names = dict(self._safe_names)
        for path, inode in self._changes[: plan.name_changes]:
            if inode is None:
                names.pop(path, None)
            else:
                names[path] = inode
        after = SimulatedFiles(skip_sync=self._skip_sync)
        after.names = {
            path: inode.after_crash(plan)
            for path, inode in names.items()
            if _reachable(path, names)
        }
        after._safe_names = dict(after.names)
        after._boots = self._boots + 1
        return after

    def lose_first_change(self, paths: str) -> "SimulatedFiles":
        """After a power loss that spared everything but the oldest unsynced change there."""
        oldest = min(
            change.number
            for path, inode in self.names.items()
            if path.startswith(paths)
            for change in inode.unsynced
        )
        return self.crash(CrashPlan(len(self._changes), {oldest: NOTHING}, EVERYTHING))

    def crash_plans(self, chance: random.Random, drawn: int) -> Iterator[CrashPlan]:
        """The telling ways to lose power now, and `drawn` random ones."""
        names = len(self._changes)
        changes = sorted(
            {change for inode in self.names.values() for change in inode.unsynced},
            key=lambda change: change.number,
        )
        for kept in range(names + 1):
            yield CrashPlan(kept, {}, EVERYTHING)
            yield CrashPlan(kept, {}, NOTHING)
        for change in changes[-LAST_CHANGES:]:
            for keep in (NOTHING, EVERYTHING, *_torn(change)):
                for others in (NOTHING, EVERYTHING):
                    if keep != others:
                        yield CrashPlan(names, {change.number: keep}, others)
        for _ in range(drawn if changes or names else 0):
            fates = {
                change.number: chance.choice([NOTHING, EVERYTHING, *_torn(change)])
                for change in changes
            }
            yield CrashPlan(chance.randint(0, names), fates, NOTHING)

    def fingerprint(self) -> int:
        """Equal for equal contents, as a start would find them."""
        return hash(tuple((path, bytes(self.names[path].seen)) for path in sorted(self.names)))

    @override
    def disk_usage(self) -> DiskUsage:
        return self.usage

    @override
    def boot_id(self) -> str:
        return f"boot {self._boots}"

    @override
    def open(self, path: str, *, create: bool = False) -> File:
        self.call("open")
        inode = self.names.get(path)
        if inode is None:
            if not create or path.rpartition("/")[0] not in self.names:
                raise FileNotFoundError(errno.ENOENT, path)
            self.call("create")
            inode = Inode()
            self._rename([(path, inode)])
        return SimulatedFile(self, inode)

    @override
    def exists(self, path: str) -> bool:
        return path in self.names

    @override
    def list(self, directory: str) -> list[str]:
        return sorted(
            path.rpartition("/")[2]
            for path in self.names
            if path and path.rpartition("/")[0] == directory
        )

    @override
    def make_directory(self, directory: str) -> None:
        parent = ""
        for part in directory.split("/"):
            path = f"{parent}/{part}" if parent else part
            if path not in self.names:
                self.call("mkdir")
                self._rename([(path, Inode(directory=True))])
                try:
                    self.sync_directory(parent)
                except OSError:
                    self._rename([(path, None)])
                    raise
            parent = path

    @override
    def remove(self, path: str) -> None:
        self.call("unlink")
        self._rename([(path, None)])

    @override
    def replace(self, source: str, target: str) -> None:
        self.call("rename")
        self._rename([(source, None), (target, self.names[source])])

    def _rename(self, changes: Sequence[tuple[str, Inode | None]]) -> None:
        for path, inode in changes:
            if inode is None:
                del self.names[path]
            else:
                self.names[path] = inode
        self._changes += changes

    @override
    def sync_directory(self, directory: str) -> None:
        try:
            self.call("sync_directory")
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                raise
            raise SyncFailed(error.errno, error.strerror) from error
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
    def lock(self, path: str) -> Lock:
        if self._locked:
            raise StoreLocked("in use")
        self._locked = True
        return SimulatedLock(self)

    def unlock(self) -> None:
        self._locked = False

    @property
    def locked(self) -> bool:
        return self._locked

    def change(
        self, inode: Inode, offset: int, data: bytes | None, *, grow_only: bool = False
    ) -> None:
        self._numbers += 1
        inode.change(Change(self._numbers, offset, data, grow_only))

    def sync(self, inode: Inode) -> None:
        try:
            self.call("sync")
        except OSError as error:
            inode.unsynced.clear()
            raise SyncFailed(error.errno, error.strerror) from error
        if not self._skip_sync:
            inode.sync()


def _reachable(path: str, names: Mapping[str, Inode]) -> bool:
    parent = path.rpartition("/")[0]
    return path == "" or (parent in names and _reachable(parent, names))


def _torn(change: Change) -> list[Keep]:
    """The first and the last boundary of each sector size inside a write, either side kept."""
    keeps: list[Keep] = []
    if change.data is not None:
        end = change.offset + len(change.data)
        for sector in SECTORS:
            first, last = change.offset // sector + 1, (end - 1) // sector
            for boundary in sorted({first, last}) if first <= last else ():
                at = boundary * sector - change.offset
                keeps += (Keep(0, at), Keep(at, len(change.data)))
    return keeps


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
        return bytes(memoryview(self._inode.seen)[offset : offset + size])

    @override
    def next_data(self, offset: int) -> int | None:
        rest = self._inode.seen[offset:]
        stripped = rest.lstrip(b"\0")
        return offset + len(rest) - len(stripped) if stripped else None

    @override
    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> None:
        data = b"".join(bytes(buffer) for buffer in buffers)
        try:
            self._files.call("write")
        except OSError:  # a short write, then the error
            self._files.change(self._inode, offset, data[: len(data) // 2])
            raise
        self._files.change(self._inode, offset, data)

    @override
    def sync(self) -> None:
        self._files.sync(self._inode)

    @override
    def allocate(self, size: int) -> None:
        self._files.call("allocate")
        self._files.change(self._inode, size, None, grow_only=True)
        self._files.sync(self._inode)

    @override
    def truncate(self, size: int) -> None:
        self._files.call("truncate")
        self._files.change(self._inode, size, None)

    @override
    def drop_cached(self, offset: int = 0, size: int = 0) -> None:
        self._inode.drop_cached()  # a kernel, too, may let go of more than it was asked to

    @override
    def close(self) -> None:
        pass
