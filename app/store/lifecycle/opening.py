"""Opening a store: meta file, checkpoint, and from which offset `recovery` has to read the log."""

import logging
import os
import secrets
from dataclasses import replace
from typing import Final, NamedTuple

from app.domain.clock import Clock
from app.domain.shortages import shortage_of
from app.store import paths
from app.store.config import StoreConfig
from app.store.damage import DamageKind, Damages
from app.store.formats.files.rocketmq_files import RocketCheckpoint, encode_rocket_checkpoint
from app.store.formats.files.state_file import (
    KIND_META,
    Checkpoint,
    StateFileError,
    StoreMeta,
    decode_checkpoint,
    decode_meta,
    encode_state,
)
from app.store.formats.record.record import END_OF_FILE_BYTES
from app.store.fs.files import FileSystem, read_whole, write_atomically
from app.store.fs.strays import queue_directories, strangers
from app.store.index.key_index import KeyIndex
from app.store.lifecycle.opening_progress import OpeningProgress
from app.store.lifecycle.recovery import (
    BeforeCut,
    Recovery,
    ScanPlan,
    damages_of_newest,
    no_doubt,
    recover,
)
from app.store.log.commit_log import CommitLog
from app.store.queues.queue_files import known_offsets
from app.store.queues.queue_table import QueueTable

_LOG: Final = logging.getLogger(__name__)

_PHYSICAL_MAX: Final = 1 << 63

_BRING_BACK: Final = (
    "restore the files of commitlog/ from a backup; `curlew store repair` puts empty segments in "
    "their place, and what they held is lost"
)


class StoreUnusable(Exception):
    """The directory cannot be opened as a store; the text says why and what to do."""


class ShardMeta(NamedTuple):
    """What of their meta all replicas of a shard have in common; the row of the shard has it."""

    store_id: str
    """Eight hexadecimal digits."""
    segment_bytes: int


def load_or_make_meta(
    files: FileSystem,
    config: StoreConfig,
    clock: Clock,
    damages: Damages,
    shard: ShardMeta | None = None,
) -> StoreMeta:
    """The store's meta, made at its first opening: that of a replica as its `shard` says. Raises
    `StoreUnusable`, also for a directory of another shard."""
    is_replica = any(map(files.exists, (paths.REPLICA_PROMISE, paths.REPLICA_RESET)))
    if shard is None and is_replica:
        raise StoreUnusable(
            "the directory is that of a replica: what stands at the end of its log may never have "
            "been confirmed. Start its node as a replica of its shard"
        )
    meta = _load_or_make_meta(files, config, clock, damages, shard)
    found = ShardMeta(meta.store_id, meta.segment_bytes)
    if shard is not None and found != shard:
        raise StoreUnusable(
            f"the directory is of store {found.store_id} with segments of {found.segment_bytes} "
            f"bytes, and the shard is {shard.store_id} with {shard.segment_bytes}; use an empty "
            "directory, and this node becomes a new replica"
        )
    return meta


def _load_or_make_meta(
    files: FileSystem,
    config: StoreConfig,
    clock: Clock,
    damages: Damages,
    shard: ShardMeta | None,
) -> StoreMeta:
    damage: StateFileError | None = None
    for path, copy in ((paths.META, paths.META_COPY), (paths.META_COPY, paths.META)):
        data = read_whole(files, path)
        try:
            meta = decode_meta(data) if data is not None else None
        except StateFileError as error:
            damage = error
            damages.note(DamageKind.STATE, f"{path}: {error}; it is written again from {copy}")
            continue
        if meta is not None and data is not None:
            _renew_copy(files, copy, data, damages)
            return meta
    if damage is not None:
        raise StoreUnusable(
            f"the store's meta file and its copy are damaged ({damage}); restore it from a backup"
        ) from damage
    if any(paths.parse_file_name(name) is not None for name in files.list(paths.COMMIT_LOG)):
        raise StoreUnusable(
            "the directory has a commit log but no meta file; restore it, or use another directory"
        )
    meta = StoreMeta(
        store_id=secrets.token_hex(4) if shard is None else shard.store_id,
        segment_bytes=config.segment_bytes if shard is None else shard.segment_bytes,
        queue_file_units=config.queue_file_units,
        index_slots=config.index_slots,
        index_entries=config.index_entries,
        created_ms=clock.now_ms(),
    )
    for path in (paths.META, paths.META_COPY):
        write_atomically(files, path, encode_state(KIND_META, meta))
    return meta


def _renew_copy(files: FileSystem, copy: str, data: bytes, damages: Damages) -> None:
    """Make the other meta file what this one is; on a full disk the next start does.

    That it is missing is no damage: the making of a store may have been interrupted between.
    """
    found = read_whole(files, copy)
    if found == data:
        return
    if found is not None:
        damages.note(DamageKind.STATE, f"{copy} is not what the other meta file is; written again")
    try:
        write_atomically(files, copy, data)
    except OSError as error:
        if shortage_of(error) is None:
            raise


def open_log(
    files: FileSystem,
    meta: StoreMeta,
    log: CommitLog,
    queues: QueueTable,
    index: KeyIndex,
    damages: Damages,
    clock: Clock,
    *,
    is_replica: bool = False,
    before_cut: BeforeCut = no_doubt,
) -> Recovery:
    """Bring queues, index and log together, by the checkpoint if it is good.

    The log of a replica may go further than what is confirmed, and be cut there: nothing is made of
    what lies behind the checkpoint, and offsets follow from the log alone.

    Raises `StoreUnusable` when segments are missing that may hold what no checkpoint knows.
    """
    progress = OpeningProgress(clock)
    checkpoint = load_checkpoint(files, damages)
    if checkpoint is None and log.bases:
        what = "no checkpoint is good; the log is read whole"
        damages.note(DamageKind.STATE, what)
    for path in strangers(files, meta.segment_bytes):
        damages.note(DamageKind.STRAY_FILE, f"{path} is no part of a store; it is left alone")
    _refuse_missing_segments(meta, checkpoint, log, damages)
    known_end = checkpoint.dispatched_end if checkpoint else 0
    for base in log.short_segments():
        if base < known_end or base != log.bases[-1]:  # else it was being made
            damages.note(DamageKind.SEGMENT, f"{paths.segment(base)} has lost its end")
    log.extend_short_segments()
    if checkpoint is None:
        plan = ScanPlan(
            log.start,
            index.load((), log.start),
            0,
            meta.unchecked_end,
            power_lost=False,
            known_offsets=known_offsets(meta, checkpoint, files),
            dispatch_end=log.start if is_replica else None,
            believes_records=not is_replica,
        )
        recovery = recover(files, log, queues, index, plan, progress, before_cut)
    else:
        recovery = _open_by(
            checkpoint, files, meta, log, queues, index, damages, progress, is_replica, before_cut
        )
    _refuse_missing_end(meta, log, recovery)
    if not is_replica and (checkpoint is None or not checkpoint.clean):
        _keep_known_offsets(files, queues, recovery, damages)
    _correct_minima(log, queues, checkpoint, damages)
    _tell(recovery, damages)
    return recovery


def _refuse_missing_segments(
    meta: StoreMeta, checkpoint: Checkpoint | None, log: CommitLog, damages: Damages
) -> None:
    """No missing segment may hold anything behind the checkpoint: nobody would know its offsets."""
    known_end = checkpoint.dispatched_end if checkpoint else 0
    if known_end > log.end_of_segments:
        raise StoreUnusable(
            f"segments are missing: the log ends at {log.end_of_segments}, but it was written "
            f"to {known_end}; {_BRING_BACK}"
        )
    is_clean = checkpoint is not None and checkpoint.clean
    if known_end < log.start and (is_clean or not _anything_at(log, log.start)):
        # Retention leaves the segment in use, and there is no write before the first record.
        raise StoreUnusable(
            f"segments are missing: the log begins at {log.start}, where nothing that belongs to "
            f"it is written, and {paths.segment(log.base_of(known_end))}, to which it was written, "
            f"is gone; {_BRING_BACK}"
        )
    bases = set(log.bases)
    for base in range(log.start, log.end_of_segments, meta.segment_bytes):
        if base in bases:
            continue
        if base + meta.segment_bytes > known_end and base >= meta.unchecked_end:
            raise StoreUnusable(
                f"segments are missing: {paths.segment(base)} is gone, and there are later ones; "
                f"{_BRING_BACK}, or move the later ones away if they are of another store"
            )
        damages.note(DamageKind.SEGMENT, f"{paths.segment(base)} is missing")


def _refuse_missing_end(meta: StoreMeta, log: CommitLog, recovery: Recovery) -> None:
    """A segment is closed only when the next one is made: behind a closed one there is another."""
    end = recovery.end
    if end > max(meta.unchecked_end, log.start) and end == log.end_of_segments:
        raise StoreUnusable(
            f"segments are missing: {paths.segment(end - meta.segment_bytes)} is closed, and the "
            f"one behind it, {paths.segment(end)}, is gone; {_BRING_BACK}"
        )


def _keep_known_offsets(
    files: FileSystem, queues: QueueTable, recovery: Recovery, damages: Damages
) -> None:
    """Give no offset again that a unit in a file gave to a message which the log has no more.

    Units get into files only when their messages are on the medium, before the checkpoint that
    says so.
    """
    lost_ranges = [(found.start, found.end) for found in recovery.damages]
    lost_ranges.append((recovery.end, _PHYSICAL_MAX))
    for topic, queue_id in queue_directories(files):
        queues.get_or_make(topic, queue_id)
    for queue in queues:
        known_end = queue.end_of_units_into(lost_ranges)
        if known_end > queue.max_offset:
            what = (
                f"{queue.topic}/{queue.queue_id}: messages {queue.max_offset} to {known_end - 1} "
                "were confirmed and are not in the log; their offsets are not given again"
            )
            damages.note(DamageKind.LOG, what)
            queue.extend(known_end)


def _tell(recovery: Recovery, damages: Damages) -> None:
    """Count and log what the recovery found."""
    for found in recovery.damages:
        size = found.end - found.start
        what = f"{size} bytes of the log from {found.start} on hold no good record: {found.reason}"
        damages.note(DamageKind.LOG, what)
    if recovery.was_cut:
        where = f"moved to {recovery.kept_in}" if recovery.kept_in else "given up, on a full disk"
        kept = f"{recovery.cut_bytes} bytes from {recovery.end} on were {where}"
        if recovery.cut_because is None:
            _LOG.info("the log ended in a write that nobody was told of: %s", kept)
        else:
            damages.note(DamageKind.TAIL, f"{kept}: {recovery.cut_because}")
    damages.sum_up()


def _open_by(
    checkpoint: Checkpoint,
    files: FileSystem,
    meta: StoreMeta,
    log: CommitLog,
    queues: QueueTable,
    index: KeyIndex,
    damages: Damages,
    progress: OpeningProgress,
    is_replica: bool,
    before_cut: BeforeCut,
) -> Recovery:
    end = checkpoint.dispatched_end
    lost = queues.load(checkpoint.queues, end)
    for state in lost:
        what = f"{state.topic}/{state.queue_id}: files are missing or damaged; made again"
        damages.note(DamageKind.QUEUE, what)
    promised_end = min(checkpoint.indexed_end, end)
    good_end = index.load(checkpoint.index_files, promised_end)
    if good_end < promised_end:
        what = f"files are missing or damaged; keys are taken again from {good_end} on"
        damages.note(DamageKind.INDEX, what)
    elif index.wrong_slots and checkpoint.clean:  # after a kill newer ones may stand there
        damages.note(DamageKind.INDEX, f"{index.wrong_slots} slots were wrong and are put right")
    indexed_end = max(good_end, log.start)
    start = max(log.start, log.start if lost else min(end, indexed_end))
    clean = checkpoint.clean and start >= end and not _anything_at(log, end)
    if clean:
        log.sync_names()  # a segment that could not be finished may have an unsafe one
        recovery = Recovery(end, end, store_time_ms=checkpoint.store_time_ms)
        recovery.damages = damages_of_newest(log, max(log.start, meta.unchecked_end), end)
        return recovery
    power_lost = _writes_were_lost(files, checkpoint)
    known = known_offsets(meta, checkpoint, files)
    plan = ScanPlan(start, indexed_end, end, meta.unchecked_end, power_lost, known)
    if is_replica:
        plan = replace(plan, dispatch_end=max(end, log.start), believes_records=False)
    recovery = recover(files, log, queues, index, plan, progress, before_cut)
    recovery.store_time_ms = max(recovery.store_time_ms, checkpoint.store_time_ms)
    recovery.rebuilt_queues = len(lost)
    recovery.index_rebuilt_from = indexed_end if indexed_end < end else None
    for state in lost:
        queues.get_or_make(state.topic, state.queue_id).extend(state.max_offset)
    return recovery


def _anything_at(log: CommitLog, end: int) -> bool:
    """Whether somebody else wrote behind the end that we left."""
    return end < log.end_of_segments and any(log.read(end, END_OF_FILE_BYTES))


def _correct_minima(
    log: CommitLog, queues: QueueTable, checkpoint: Checkpoint | None, damages: Damages
) -> None:
    """No queue begins with messages of segments that are gone.

    Retention raises the minima before it deletes a segment, and a clean stop writes them down, so
    after one a queue that begins before the log has lost messages. After a kill retention may have
    been at work.
    """
    gone = 0
    if log.start:
        for queue in queues:
            if queue.min_offset < queue.max_offset and not queue.begins_behind(log.start):
                first = queue.first_at_or_behind(log.start)
                gone += first - queue.min_offset
                queue.min_offset = first
    if gone:
        what = f"the log begins at {log.start}; {gone} messages before it are gone"
        if checkpoint is not None and checkpoint.clean:
            damages.note(DamageKind.SEGMENT, f"{what} and had not expired")
        else:
            _LOG.info("%s, as if retention had been interrupted by the kill", what)


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


def load_checkpoint(files: FileSystem, damages: Damages | None = None) -> Checkpoint | None:
    """The last checkpoint, or the copy; None when neither is intact. `damages` hears of damage."""
    found: Checkpoint | None = None
    is_missing = False
    for path in (paths.CHECKPOINT, paths.CHECKPOINT_COPY):
        data = read_whole(files, path)
        if data is None:
            is_missing = is_missing or path == paths.CHECKPOINT
            continue
        try:
            checkpoint = decode_checkpoint(data)
        except StateFileError as error:
            if damages is not None:
                damages.note(DamageKind.STATE, f"{path}: {error}")
            continue
        found = found or checkpoint
    if found is not None and is_missing and damages is not None:
        damages.note(DamageKind.STATE, f"{paths.CHECKPOINT} is missing; its copy is used")
    return found
