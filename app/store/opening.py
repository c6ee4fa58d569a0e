"""What happens before a store serves: meta file, checkpoint, and whether the log must be read."""

import secrets

from app.domain.clock import Clock
from app.store import paths
from app.store.commit_log import CommitLog
from app.store.config import StoreConfig
from app.store.files import FileSystem, read_whole, write_atomically
from app.store.formats.state_file import (
    KIND_META,
    Checkpoint,
    StateFileError,
    StoreMeta,
    decode_checkpoint,
    decode_meta,
    encode_state,
)
from app.store.queue_table import QueueTable
from app.store.recovery import Recovery, recover


class StoreUnusable(Exception):
    """The directory cannot be opened as a store; the text says why and what to do."""


def load_or_make_meta(files: FileSystem, config: StoreConfig, clock: Clock) -> StoreMeta:
    """The store's meta, made at its first opening. Raises `StoreUnusable`."""
    damage: StateFileError | None = None
    for path, copy in ((paths.META, paths.META_COPY), (paths.META_COPY, paths.META)):
        data = read_whole(files, path)
        try:
            meta = decode_meta(data) if data is not None else None
        except StateFileError as error:
            damage = error
            continue
        if meta is not None and data is not None:
            if read_whole(files, copy) != data:
                write_atomically(files, copy, data)
            return meta
    if damage is not None:
        raise StoreUnusable(
            f"the store's meta file and its copy are damaged ({damage}); restore it from a backup"
        ) from damage
    if files.list(paths.COMMIT_LOG):
        raise StoreUnusable(
            "the directory has a commit log but no meta file; restore it, or use another directory"
        )
    meta = StoreMeta(
        store_id=secrets.token_hex(4),
        segment_bytes=config.segment_bytes,
        queue_file_units=config.queue_file_units,
        created_ms=clock.now_ms(),
    )
    for path in (paths.META, paths.META_COPY):
        write_atomically(files, path, encode_state(KIND_META, meta))
    return meta


def open_log(files: FileSystem, meta: StoreMeta, log: CommitLog, queues: QueueTable) -> Recovery:
    """Bring queues and log together, by the checkpoint if it is good."""
    checkpoint = _load_checkpoint(files)
    start = log.start
    if checkpoint is not None:
        if checkpoint.dispatched_end > log.end_of_segments:
            raise StoreUnusable(
                f"segments are missing: the log ends at {log.end_of_segments}, but it was written "
                f"to {checkpoint.dispatched_end}; restore the files of commitlog/"
            )
        if queues.load(checkpoint.queues, checkpoint.dispatched_end):
            start = max(start, checkpoint.dispatched_end)
        else:
            queues.reset_to_minimum()
    if checkpoint is not None and checkpoint.clean and start == checkpoint.dispatched_end:
        return Recovery(start, store_time_ms=checkpoint.store_time_ms)
    recovery = recover(
        files,
        log,
        queues,
        start,
        unchecked_end=meta.unchecked_end,
        flushed_end=_flushed_end_if_writes_were_lost(files, checkpoint),
    )
    if checkpoint is not None:
        recovery.store_time_ms = max(recovery.store_time_ms, checkpoint.store_time_ms)
    return recovery


def _flushed_end_if_writes_were_lost(
    files: FileSystem, checkpoint: Checkpoint | None
) -> int | None:
    """Behind which position writes may be missing, because the power or a sync failed."""
    if checkpoint is None or checkpoint.clean:
        return None
    power_lost = files.boot_id() != checkpoint.boot_id and checkpoint.boot_id and files.boot_id()
    lost = power_lost or files.exists(paths.SYNC_FAILED)
    return checkpoint.dispatched_end if lost else None


def _load_checkpoint(files: FileSystem) -> Checkpoint | None:
    data = read_whole(files, paths.CHECKPOINT)
    if data is None:
        return None
    try:
        return decode_checkpoint(data)
    except StateFileError:
        return None
