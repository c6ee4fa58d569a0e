"""A store's directory as it lies there: lock, state files, segments. Nothing is made or changed."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum

from app.store import paths
from app.store.formats.files.state_file import (
    Checkpoint,
    StateFileError,
    StoreMeta,
    decode_checkpoint,
    decode_meta,
)
from app.store.fs.files import FileSystem, read_whole
from app.store.fs.strays import names_in
from app.store.lifecycle.opening import StoreUnusable
from app.store.log.commit_log import CommitLog


class Kind(StrEnum):
    """What is damaged. All but `RECORD` can be repaired from the log."""

    RECORD = "record"
    TAIL = "tail"
    SEGMENT = "segment"
    QUEUE = "queue"
    INDEX = "index"
    STATE = "state"
    TIMER_LOG = "timer_log"
    STRAY = "stray"
    """A file or directory that no store makes."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is not as it should be, and where."""

    kind: Kind
    file: str
    position: int
    """Byte in the file."""
    what: str
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    """The message, or the first of several."""
    queue_end: int | None = None


@dataclass(slots=True)
class Directory:
    """The state files and segments of a store. `close` it."""

    files: FileSystem
    meta: StoreMeta
    checkpoint: Checkpoint | None
    log: CommitLog
    problems: list[Problem] = field(default_factory=list)
    """What is wrong with the state files."""

    @property
    def dispatched_end(self) -> int:
        """Below this the checkpoint promises that log and queues are on the medium."""
        return self.checkpoint.dispatched_end if self.checkpoint else 0

    def place(self, physical_offset: int) -> tuple[str, int]:
        """The segment's path and the byte in it."""
        base = self.log.base_of(physical_offset)
        return paths.segment(base), physical_offset - base

    def close(self) -> None:
        self.log.close()


@contextmanager
def locked(files: FileSystem) -> Iterator[None]:
    """Keep nodes out. Raises `StoreLocked`."""
    lock = files.lock(paths.LOCK)
    try:
        yield
    finally:
        lock.release()


def open_directory(files: FileSystem) -> Directory:
    """Read the state files. Raises `StoreUnusable` when neither meta file is good."""
    problems: list[Problem] = []
    meta = _meta(files, problems)
    if meta is None:
        if not names_in(files, paths.COMMIT_LOG) and not problems:
            raise StoreUnusable("there is no store in this directory; name another with --data-dir")
        raise StoreUnusable(
            "neither meta nor meta.copy is good; restore one of them from a backup of this store"
        )
    checkpoint = _checkpoint(files, problems)
    if not files.exists(paths.CHECKPOINT) and names_in(files, paths.COMMIT_LOG):
        problems.append(Problem(Kind.STATE, paths.CHECKPOINT, 0, "the file is missing"))
    return Directory(files, meta, checkpoint, CommitLog(files, meta.segment_bytes), problems)


def _meta(files: FileSystem, problems: list[Problem]) -> StoreMeta | None:
    found: StoreMeta | None = None
    for path in (paths.META, paths.META_COPY):
        data = read_whole(files, path)
        try:
            meta = decode_meta(data) if data is not None else None
        except StateFileError as error:
            problems.append(Problem(Kind.STATE, path, 0, str(error)))
            continue
        if meta is None and (found or files.exists(paths.META_COPY)):
            problems.append(Problem(Kind.STATE, path, 0, "the file is missing"))
        elif meta is not None and found is not None and meta != found:
            problems.append(Problem(Kind.STATE, path, 0, "differs from meta"))
        found = found or meta
    return found


def _checkpoint(files: FileSystem, problems: list[Problem]) -> Checkpoint | None:
    found: Checkpoint | None = None
    for path in (paths.CHECKPOINT, paths.CHECKPOINT_COPY):
        data = read_whole(files, path)
        try:
            checkpoint = decode_checkpoint(data) if data is not None else None
        except StateFileError as error:
            problems.append(Problem(Kind.STATE, path, 0, str(error)))
            continue
        found = found or checkpoint
    return found
