"""What lies in a store's directory and is no part of a store. Looked for, never touched.

`app.store.paths` says which names there are. A file with the name of a directory, or the other way
round, is a stranger too. Waits for the disk.
"""

from collections.abc import Iterator
from typing import Final

from app.store import paths
from app.store.fs.files import FileSystem

_TEMPORARY: Final = ".tmp"
"""What an interrupted `write_atomically` leaves; the next one takes the name again."""
_STATE_FILES: Final = frozenset(
    {
        paths.META,
        paths.META_COPY,
        paths.LOCK,
        paths.SYNC_FAILED,
        paths.CHECKPOINT,
        paths.CHECKPOINT_COPY,
        paths.REPLICA_PROMISE,
        paths.REPLICA_HISTORY,
        paths.REPLICA_INCARNATION,
        paths.REPLICA_BEGINNING,
        paths.REPLICA_RESET,
        paths.ABORT,
        paths.ROCKET_CHECKPOINT,
    }
)
_DIRECTORIES: Final = frozenset(
    {paths.COMMIT_LOG, paths.CONSUME_QUEUES, paths.INDEX, paths.TIMER_LOG, paths.LOST_AND_FOUND}
)


def names_in(files: FileSystem, directory: str) -> list[str] | None:
    """Sorted names in a directory, empty when it does not exist; None when it is a file."""
    try:
        return files.list(directory)
    except NotADirectoryError:
        return None


def is_file(files: FileSystem, path: str) -> bool:
    """Whether a path is a file that can be opened."""
    if not files.exists(path):
        return False
    try:
        files.open(path).close()
    except IsADirectoryError:
        return False
    return True


def strangers(files: FileSystem, segment_bytes: int) -> Iterator[str]:
    """Paths that no store makes, in each directory but those of the queues."""
    for name in names_in(files, "") or ():
        if name in _DIRECTORIES:
            if names_in(files, name) is None:
                yield name
        elif name.removesuffix(_TEMPORARY) not in _STATE_FILES:
            yield name
    for name in names_in(files, paths.COMMIT_LOG) or ():
        if not is_segment(files, name, segment_bytes):
            yield f"{paths.COMMIT_LOG}/{name}"
    yield from _strangers_among_queues(files)
    for name in names_in(files, paths.INDEX) or ():
        if not (paths.is_index_name(name) and is_file(files, paths.index_file(name))):
            yield paths.index_file(name)
    yield from _strangers_in_timer_log(files)


def _strangers_among_queues(files: FileSystem) -> Iterator[str]:
    for name in names_in(files, paths.CONSUME_QUEUES) or ():
        path = f"{paths.CONSUME_QUEUES}/{name}"
        queues = names_in(files, path) if paths.is_topic_directory(name) else None
        if queues is None:
            yield path
            continue
        for text in queues:
            if paths.parse_queue_id(text) is None:
                yield f"{path}/{text}"


def _strangers_in_timer_log(files: FileSystem) -> Iterator[str]:
    for name in names_in(files, paths.TIMER_LOG) or ():
        path = f"{paths.TIMER_LOG}/{name}"
        is_known = (
            path.removesuffix(_TEMPORARY) == paths.TIMER_MANIFEST
            or paths.parse_file_name(name) is not None
        )
        if not (is_known and is_file(files, path)):
            yield path


def queue_directories(files: FileSystem) -> Iterator[tuple[str, int]]:
    """Topic and queue id of each directory below `consumequeue/` that is a queue's by its name."""
    for topic in names_in(files, paths.CONSUME_QUEUES) or ():
        if not paths.is_topic_directory(topic):
            continue
        for text in names_in(files, f"{paths.CONSUME_QUEUES}/{topic}") or ():
            queue_id = paths.parse_queue_id(text)
            if queue_id is not None:
                yield topic, queue_id


def is_segment(files: FileSystem, name: str, segment_bytes: int) -> bool:
    """Whether a name in `commitlog/` is that of a segment, and a file."""
    base = paths.parse_file_name(name)
    if base is None or base % segment_bytes:
        return False
    return is_file(files, paths.segment(base))
