"""What happens before a store serves: meta file, checkpoint, and whether the log must be read."""

import os
import secrets

from app.domain.clock import Clock
from app.domain.shortages import shortage_of
from app.store import paths
from app.store.commit_log import CommitLog
from app.store.config import StoreConfig
from app.store.files import FileSystem, read_whole, write_atomically
from app.store.formats.record import END_OF_FILE_BYTES
from app.store.formats.rocketmq_files import RocketCheckpoint, encode_rocket_checkpoint
from app.store.formats.state_file import (
    KIND_META,
    Checkpoint,
    StateFileError,
    StoreMeta,
    decode_checkpoint,
    decode_meta,
    encode_state,
)
from app.store.key_index import KeyIndex
from app.store.log_scan import Damage
from app.store.queue_table import QueueTable
from app.store.recovery import Recovery, ScanPlan, recover


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
                _write_copy(files, copy, data)
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
        index_slots=config.index_slots,
        index_entries=config.index_entries,
        created_ms=clock.now_ms(),
    )
    for path in (paths.META, paths.META_COPY):
        write_atomically(files, path, encode_state(KIND_META, meta))
    return meta


def _write_copy(files: FileSystem, path: str, data: bytes) -> None:
    """Make the copy good again; on a full disk the next start does."""
    try:
        write_atomically(files, path, data)
    except OSError as error:
        if shortage_of(error) is None:
            raise


def open_log(
    files: FileSystem, meta: StoreMeta, log: CommitLog, queues: QueueTable, index: KeyIndex
) -> Recovery:
    """Bring queues, index and log together, by the checkpoint if it is good."""
    checkpoint = load_checkpoint(files)
    log.extend_short_segments()
    if checkpoint is None:
        plan = ScanPlan(
            log.start, index.load((), log.start), 0, meta.unchecked_end, power_lost=False
        )
        recovery = recover(files, log, queues, index, plan)
    else:
        recovery = _open_by(checkpoint, files, meta, log, queues, index)
    _correct_minima(log, queues)
    return recovery


def _open_by(
    checkpoint: Checkpoint,
    files: FileSystem,
    meta: StoreMeta,
    log: CommitLog,
    queues: QueueTable,
    index: KeyIndex,
) -> Recovery:
    end = min(checkpoint.dispatched_end, log.end_of_segments)
    if end < checkpoint.dispatched_end and (checkpoint.clean or not log.bases):
        raise StoreUnusable(
            f"segments are missing: the log ends at {end}, but it was written "
            f"to {checkpoint.dispatched_end}; restore the files of commitlog/"
        )
    cut_short = end < checkpoint.dispatched_end
    lost = queues.load(checkpoint.queues, end, cut_short=cut_short)
    indexed_end = max(
        index.load(checkpoint.index_files, min(checkpoint.indexed_end, end)), log.start
    )
    start = max(log.start, log.start if lost else min(end, indexed_end))
    clean = checkpoint.clean and start >= end and not _anything_at(log, end)
    if clean:
        log.sync_names()  # a segment that could not be finished may have an unsafe one
        return Recovery(end, store_time_ms=checkpoint.store_time_ms)
    power_lost = _writes_were_lost(files, checkpoint)
    plan = ScanPlan(start, indexed_end, end, meta.unchecked_end, power_lost)
    recovery = recover(files, log, queues, index, plan)
    recovery.store_time_ms = max(recovery.store_time_ms, checkpoint.store_time_ms)
    recovery.rebuilt_queues = len(lost)
    recovery.index_rebuilt_from = indexed_end if indexed_end < end else None
    for state in lost:
        queues.get_or_make(state.topic, state.queue_id).extend(state.max_offset)
    if cut_short:
        lost_segments = Damage(end, checkpoint.dispatched_end, "missing segments")
        recovery.damages.append(lost_segments)
    return recovery


def _anything_at(log: CommitLog, end: int) -> bool:
    """Whether somebody else wrote behind the end that we left."""
    return end < log.end_of_segments and any(log.read(end, END_OF_FILE_BYTES))


def _correct_minima(log: CommitLog, queues: QueueTable) -> None:
    """No queue begins with messages of segments that are gone."""
    if log.start:
        for queue in queues:
            if queue.min_offset < queue.max_offset and not queue.begins_behind(log.start):
                queue.min_offset = queue.first_at_or_behind(log.start)


def _writes_were_lost(files: FileSystem, checkpoint: Checkpoint | None) -> bool:
    """Whether unsynced writes may be missing, because the power or a sync failed."""
    if checkpoint is None or checkpoint.clean:
        return False
    boot_id = files.boot_id()
    power_lost = bool(checkpoint.boot_id and boot_id) and boot_id != checkpoint.boot_id
    return power_lost or files.exists(paths.SYNC_FAILED)


def write_abort(files: FileSystem) -> None:
    """Say, as RocketMQ does, that the store is open; `write_clean_stop` takes it away."""
    write_atomically(files, paths.ABORT, b"%d\n" % os.getpid())


def write_clean_stop(files: FileSystem, store_time_ms: int, end: int) -> None:
    """What RocketMQ looks for after a clean stop: its checkpoint, and no `abort`."""
    times = RocketCheckpoint(store_time_ms, store_time_ms, store_time_ms, end, end)
    write_atomically(files, paths.ROCKET_CHECKPOINT, encode_rocket_checkpoint(times))
    if files.exists(paths.ABORT):
        files.remove(paths.ABORT)
        files.sync_directory("")


def load_checkpoint(files: FileSystem) -> Checkpoint | None:
    """The last checkpoint, or the copy; None when neither is intact."""
    for path in (paths.CHECKPOINT, paths.CHECKPOINT_COPY):
        data = read_whole(files, path)
        try:
            if data is not None:
                return decode_checkpoint(data)
        except StateFileError:
            continue
    return None
