"""Copying a store while a node has it open: its log, up to a moment, as a store of its own.

Only the log is copied. It is written at its end alone, so what is read of it once stays as it is;
queues, key index and checkpoint change in place, and are made again from the copy. The copy of a
replica's store is that of a lone node: what was promised to other replicas is not in it.

Blocks; beside a node, or on a store that nobody has open.
"""

from dataclasses import dataclass
from typing import Final

from app.domain.clock import Clock
from app.store import paths
from app.store.config import StoreConfig
from app.store.formats.files.state_file import KIND_META, encode_state
from app.store.fs.files import FileSystem, write_atomically
from app.store.fs.read_only_files import ReadOnlyFiles
from app.store.lifecycle.checkpoints import begin_with
from app.store.lifecycle.opening import StoreUnusable
from app.store.log.atomic_batch import WholeBatches
from app.store.log.log_scan import LogScanner
from app.store.message_store import MessageStore
from app.store.offline.directory import Directory, locked, open_directory
from app.store.offline.importing import TargetNotEmpty
from app.store.offline.verification import Verification, verify
from app.store.write.worker import Turns

_COPY_BYTES: Final = 1 << 20
_LOOKS_MAX: Final = 5
"""At what looks damaged: what is being written when it is read is whole a moment later."""


@dataclass(frozen=True, slots=True)
class Backup:
    """What the copy has. Ends are physical offsets."""

    start: int
    end: int
    verification: Verification
    """Of the copy."""


def back_up(source: ReadOnlyFiles, target: FileSystem, clock: Clock, turns: Turns) -> Backup:
    """Copy the log as it is now, make the rest from it, and read all of the copy.

    The meta files come last, so a copy that was interrupted is none that a node would open. Raises
    `StoreUnusable`, also when retention or a cut was quicker; `TargetNotEmpty`, `OSError`.
    """
    with locked(target):
        _refuse_if_not_empty(target)
        directory = open_directory(source)
        try:
            start, end = directory.log.start, _end_of(directory)
            target.make_directory(paths.COMMIT_LOG)
            for base in [base for base in directory.log.bases if base <= end]:
                _copy_segment(directory, target, base, end)
            target.sync_directory(paths.COMMIT_LOG)
            begin_with(target, start)
        finally:
            directory.close()
        for path in (paths.META_COPY, paths.META):
            write_atomically(target, path, encode_state(KIND_META, directory.meta))
    MessageStore.open(target, StoreConfig(), clock, turns).close()
    with locked(target):
        return Backup(start, end, verify(target))


def _refuse_if_not_empty(target: FileSystem) -> None:
    if target.exists(paths.META) or target.exists(paths.META_COPY) or target.list(paths.COMMIT_LOG):
        raise TargetNotEmpty("there is a store in the target already, or a part; name an empty one")


def _end_of(directory: Directory) -> int:
    """Behind the last whole block that is written now. Damage is stepped over, as an opening does:
    it is copied, and told of by the check of the copy."""
    end, found = _look(directory, frozenset())
    lasting = found
    for _ in range(_LOOKS_MAX):
        if not found:
            return end
        end, found = _look(directory, frozenset())
        lasting &= found
    return _look(directory, lasting)[0]


def _look(directory: Directory, damaged: frozenset[int]) -> tuple[int, frozenset[int]]:
    """Behind the last whole block before any damage but what is known to be `damaged`, and where
    damage begins."""
    log, unchecked_end = directory.log, directory.meta.unchecked_end
    end = max(directory.dispatched_end, log.start)
    scanner = LogScanner(log, unchecked_end=unchecked_end)
    steps = WholeBatches(unchecked_end, scanner.damages)
    for block in steps.only_whole(scanner.blocks(end)):
        if all(found.start in damaged for found in scanner.damages):
            end = block.base + block.starts[-1] + block.sizes[-1]
    return end, frozenset(found.start for found in scanner.damages)


def _copy_segment(directory: Directory, target: FileSystem, base: int, end: int) -> None:
    """What stands before the end of the copy; the rest of the segment is zeros."""
    size = directory.meta.segment_bytes
    position, wanted = base, min(base + size, end)
    writer = target.open(paths.segment(base), create=True)
    try:
        writer.truncate(size)
        while position < wanted:
            data = directory.log.read(position, min(_COPY_BYTES, wanted - position))
            if not data:
                raise StoreUnusable(
                    f"{paths.segment(base)} is gone: the retention of the node was quicker. Remove "
                    "the copy, and begin again"
                )
            if any(data):
                writer.pwritev([data], position - base)
            position += len(data)
        writer.sync()
    finally:
        writer.close()
