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
    data = read_whole(files, paths.META)
    if data is not None:
        try:
            return decode_meta(data)
        except StateFileError as error:
            raise StoreUnusable(
                f"the store's meta file is damaged ({error}); restore it from a backup"
            ) from error
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
    write_atomically(files, paths.META, encode_state(KIND_META, meta))
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
    recovery = recover(files, log, queues, start, unchecked_end=meta.unchecked_end)
    if checkpoint is not None:
        recovery.store_time_ms = max(recovery.store_time_ms, checkpoint.store_time_ms)
    return recovery


def _load_checkpoint(files: FileSystem) -> Checkpoint | None:
    data = read_whole(files, paths.CHECKPOINT)
    if data is None:
        return None
    try:
        return decode_checkpoint(data)
    except StateFileError:
        return None
