"""A data directory that is opened as a replica: its log to take blocks and send them, and queues
and index that go no further than what is confirmed.

`ReplicaDirectory` is what one process holds of a directory from its start to its stop: the lock,
the small files, the incarnation. `ReplicaStore` is one opening of it. An opening dispatches to
where the last checkpoint ends, however far the log goes, and cuts off half a block at the log's
end. From there `advance` goes on, and checkpoints end at what is dispatched and on the medium. So
nothing derived is ever in a file that a cut could take back.

Who begins to lead goes on with the same opened parts (`dispatch_all`, then `MessageStore.over`);
what it dispatches beyond the high watermark is in memory alone, so who leads no more opens the
directory anew.

Blocks; one thread at a time, but for `Checkpointing.run`.
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Self

from typing_extensions import override

from app.domain.clock import Clock
from app.domain.limits import Limits
from app.domain.shortages import shortage_of
from app.runtime.shortage_log import ShortageLog
from app.store import paths
from app.store.config import StoreConfig
from app.store.formats.files.replica_files import KeptBeginning, KeptReset, KeptTermStart
from app.store.formats.files.state_file import StateFileError, decode_meta
from app.store.fs.files import FileSystem, Lock, read_whole
from app.store.lifecycle.checkpoints import Checkpointing, Checkpoints
from app.store.lifecycle.dispatcher import BlockDispatcher
from app.store.lifecycle.opening import ShardMeta
from app.store.lifecycle.retention_policy import REFUSE_RATIO
from app.store.lifecycle.store_parts import StoreParts
from app.store.log.log_figures import LogFigures
from app.store.log.page_cache_limit import bound_cache
from app.store.replica.beginnings import finish_beginning, forget_derived
from app.store.replica.block_reader import BlockReader
from app.store.replica.block_walk import LogShape
from app.store.replica.follower_dispatch import FollowerDispatch
from app.store.replica.incarnation import Incarnation
from app.store.replica.replica_files import ReplicaFiles
from app.store.replica.replica_log import ReplicaLog
from app.store.replica.reset import finish_reset
from app.store.write.writer import NO_ROOM

SPARE_RATIO: Final = 0.02
"""Of the file system: so much more of a disk that was full is free before it counts as one with
room."""


class KeptLock(Lock):
    """A lock that its holder keeps, whoever has done with what it guards."""

    @override
    def release(self) -> None:
        """Nothing."""


class ReplicaDirectory:
    """Of one process, over all its openings of the directory."""

    def __init__(self, files: FileSystem, new_number: Callable[[], int]) -> None:
        """Takes the lock. `new_number` makes incarnations. Raises `StoreLocked`,
        `ReplicaFileDamaged` or `OSError`."""
        self.files = files
        self._lock = files.lock(paths.LOCK)
        try:
            self.replica_files = ReplicaFiles(files)
            self.finish_reset()
        except BaseException:
            self._lock.release()
            raise
        self.incarnation = Incarnation(files, self.replica_files, new_number)

    def store_id(self) -> bytes | None:
        """Of the store that is there; None: none that can be told. Raises `OSError`."""
        for path in (paths.META, paths.META_COPY):
            data = read_whole(self.files, path)
            with contextlib.suppress(StateFileError):  # the opening tells of damage
                if data is not None:
                    return bytes.fromhex(decode_meta(data).store_id)
        return None

    def make_anew(self, reason: str) -> None:
        """Forget what was made of the log, which stays: the next opening has shown nothing, and has
        another incarnation. No store is open. Raises `OSError`; may be repeated, also behind a
        kill: as long as anything is left, the checkpoint says that it was shown."""
        self.incarnation.renew(reason)
        forget_derived(self.files)

    def begin_anew(self, start: int, starts: tuple[KeptTermStart, ...], reason: str) -> None:
        """Have the next opening throw away the log and all that is made of it, and begin an empty
        one at the physical offset `start`, the base of a segment; behind a kill as well. `starts`:
        of the terms below. No store is open. Raises `OSError`."""
        self.incarnation.renew(reason, keeps_log=False)
        self.replica_files.keep_beginning(KeptBeginning(start, starts))

    def begin_reset(self, reason: str, *, keeps_log: bool) -> None:
        """Have the next opening begin anew, whatever this directory has. No store is open. Raises
        `OSError`: then it may begin anew all the same."""
        self.replica_files.keep_reset(KeptReset(reason, keeps_log))

    def finish_reset(self) -> None:
        """Throw away what was to be. Raises `ReplicaFileDamaged` or `OSError`."""
        finish_reset(self.files, self.replica_files)

    def release(self) -> None:
        """Let go of the lock; all openings have ended."""
        self._lock.release()


@dataclass(frozen=True, slots=True)
class OpeningOptions:
    """How a store is opened, as for `StoreParts.open`."""

    config: StoreConfig
    clock: Clock
    call_soon: Callable[[Callable[[], object]], object]
    """Of the event loop; called there, while the replica leads."""
    limits: Limits
    shard: ShardMeta


class ReplicaStore:
    """One opening of a directory."""

    def __init__(self, directory: ReplicaDirectory, parts: StoreParts) -> None:
        self.parts = parts
        self._files = directory.files
        self.shortages = ShortageLog()
        self.checkpoints = Checkpoints(directory.files, parts.queues, parts.index, self.shortages)
        recovery = parts.recovery
        shape = LogShape(parts.meta.segment_bytes, parts.meta.unchecked_end)
        self.log = ReplicaLog(directory.files, parts.log, shape, recovery.end)
        self._cache = bound_cache(parts.log, parts.config.log_cache_bytes, recovery.end)
        self.reader = BlockReader(parts.log, shape)
        self.dispatcher = BlockDispatcher(parts.queues, parts.index, indexed_end=0)
        self._dispatch = FollowerDispatch(
            self.reader, self.dispatcher, recovery.dispatched_end, self.log.fresh
        )

    @classmethod
    def open(cls, directory: ReplicaDirectory, options: OpeningOptions) -> Self:
        """Judge, recover, judge again. Raises `StoreUnusable`, `OSError` or `MemoryError`: maybe a
        shortage.

        `directory.incarnation` is another one behind it where the directory proves nothing; a
        shortage alone does not make it one. The first checkpoint comes behind that judgement: the
        next opening reads from there, and finds no damage before it again.
        """
        directory.finish_reset()
        incarnation = directory.incarnation
        try:
            incarnation.begin_opening()
            finish_beginning(directory.files, directory.replica_files, options.shard.segment_bytes)
            parts = StoreParts.open(
                directory.files,
                options.config,
                options.clock,
                options.call_soon,
                options.limits,
                options.shard,
                incarnation.note_doubt,
            )
            store = cls(directory, parts)
            try:
                incarnation.end_opening(parts.recovery)
                store.checkpoints.open(store.begin_checkpoint)
            except BaseException:
                store.close()
                raise
        except (OSError, MemoryError) as error:
            if shortage_of(error) is not None:
                incarnation.give_up_opening()
            raise
        return store

    @property
    def high_watermark(self) -> int:
        """All below is confirmed and dispatched: at first where the checkpoint ends."""
        return self._dispatch.end

    def advance(self, high_watermark: int) -> bool:
        """Dispatch the next blocks below; whether there are more. As `FollowerDispatch.advance`."""
        return self._dispatch.advance(min(high_watermark, self.log.written))

    def let_go(self) -> None:
        """Keep no more of the log in memory than is asked for. Not while the replica leads, whose
        writer does it (docs/adr/0038)."""
        if self._cache is not None:
            self._cache.follow(self.log.flushed)

    def dispatch_all(self) -> None:
        """Bring all of the log to the medium and dispatch it, for who begins to lead. No checkpoint
        may be begun here any more.

        Raises `ReplicaLogFailed`, `BlocksUnreadable`, `OSError`.
        """
        self.log.sync(self.log.written)
        while self._dispatch.advance(self.log.written):
            pass
        recovery = self.parts.recovery
        recovery.end = recovery.dispatched_end = self.log.written
        recovery.store_time_ms = self.store_time_ms

    def figures(self) -> LogFigures:
        """Of the log. Any thread."""
        log, written = self.parts.log, self.log.written
        return LogFigures(
            len(log.bases),
            max(written - log.start, 0),
            max(written - self.log.flushed, 0),
            log.sync_times,
            self._files.disk_usage,
        )

    @property
    def refusal(self) -> str | None:
        """Why this directory would take no messages, if its replica led; None: it would. Asks the
        file system. Raises `OSError`."""
        usage = self._files.disk_usage()
        if usage.used_ratio >= REFUSE_RATIO:
            return f"the disk is {usage.used_ratio:.0%} full"
        log = self.parts.log
        if usage.free < log.segment_bytes and log.missing_next(self.log.written) is not None:
            return NO_ROOM
        return None

    @property
    def lack_of_spare_room(self) -> str | None:
        """Why this directory, whose disk was full, is not taken for one with room yet; None: it is.
        So a disk that hovers at the bound does not pass the shard to and fro. Asks the file system,
        on any thread. Raises `OSError`."""
        usage, bound = self._files.disk_usage(), REFUSE_RATIO - SPARE_RATIO
        if usage.used_ratio >= bound or usage.free < 2 * self.parts.meta.segment_bytes:
            return f"the disk was full, and is {usage.used_ratio:.0%} full: free some more space"
        return None

    def begin_checkpoint(self, *, clean: bool = False) -> Checkpointing:
        """A checkpoint of what is dispatched and on the medium. `run` it on any thread, and note
        what it raises with `checkpoints.note`."""
        checkpointing = self.checkpoints.begin(
            min(self._dispatch.end, self.log.flushed),
            store_time_ms=self.store_time_ms,
            clean=clean,
        )
        checkpointing.collect()
        return checkpointing

    def delete_below(self, start: int, checkpoint_end: int) -> int:
        """Delete the segments that lie wholly below `start` and below `checkpoint_end`, up to where
        the last checkpoint on the medium says that all is in queues and index; how many. No
        checkpoint is being written. Raises `OSError`: what was not deleted is the next time.

        As retention does on a leader: minima move first, then files go, the oldest first.
        """
        log, queues = self.parts.log, self.parts.queues
        end = min(start, checkpoint_end, self._dispatch.end)
        count = sum(base + log.segment_bytes <= end for base in log.bases[:-1])
        if count:
            kept_from = log.bases[count]
            for queue in list(queues):
                if queue.min_offset < queue.max_offset:
                    queue.expire_below(queue.first_at_or_behind(kept_from))
            for _ in range(count):
                log.drop_first()
                log.sync_names()  # in this order, or one might be missing between others
            for queue in list(queues):
                queue.drop_below_minimum()
            self.parts.index.drop_below(log.start)
        return count

    @property
    def store_time_ms(self) -> int:
        """When the newest message was stored that is dispatched; 0: there is none."""
        return max(self.parts.recovery.store_time_ms, self._dispatch.store_time_ms)

    def stop(self) -> None:
        """Write the last checkpoint; all of the log is synced. Without room the next opening reads
        more of it. Raises `OSError`."""
        try:
            self.begin_checkpoint(clean=True).run()
        except OSError as error:
            if not self.checkpoints.note(error):
                raise

    def close(self) -> None:
        """Close the files. Idempotent."""
        self.parts.queues.cache.close()
        self.parts.log.close()
