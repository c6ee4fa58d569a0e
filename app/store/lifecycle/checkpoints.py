"""Writing checkpoints: what is derived is synced first, then the checkpoint is replaced whole.

Twice, because it alone knows which topics were deleted and what has expired: the log would bring
those messages back.

The event loop takes what a checkpoint tells of, which is quick; a thread writes it. A checkpoint
counts only on units that were taken for it or for one before it, and it writes all of those first.

The first one of a store's life says on the medium that the store is in use; without room for it the
store is opened all the same (`Checkpoints.open`), so that what is in it can be read and expire.
"""

import errno
import threading
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final, NamedTuple

from msgspec.structs import replace

from app.domain.shortages import SyncFailed, shortage_of
from app.runtime.shortage_log import ShortageLog
from app.store import paths
from app.store.formats.files.state_file import (
    KIND_CHECKPOINT,
    Checkpoint,
    IndexFileState,
    QueueState,
    encode_state,
)
from app.store.fs.files import FileSystem, write_atomically
from app.store.index.key_index import KeyIndex
from app.store.lifecycle.opening import load_checkpoint, write_abort
from app.store.queues.consume_queue import ConsumeQueue, TakenUnits
from app.store.queues.queue_table import QueueTable

LACK: Final = "checkpoint"
"""The name of checkpoints in the log of shortages."""


def begin_with(files: FileSystem, start: int) -> None:
    """The checkpoint of a store of which nothing is made yet: the next opening reads its log from
    the physical offset `start` on. Raises `OSError`."""
    checkpoint = Checkpoint(start, 0, False, (), indexed_end=start, boot_id=files.boot_id())
    for path in (paths.CHECKPOINT, paths.CHECKPOINT_COPY):
        write_atomically(files, path, encode_state(KIND_CHECKPOINT, checkpoint))


class _Taken(NamedTuple):
    """Units that were taken for the checkpoint with this number."""

    number: int
    queue: ConsumeQueue
    part: TakenUnits


class Checkpoints:
    """Writes checkpoints one at a time, never an older one over a newer one."""

    def __init__(
        self, files: FileSystem, queues: QueueTable, index: KeyIndex, shortages: ShortageLog
    ) -> None:
        self.is_in_use_on_disk = False
        """Whether a start after a loss of power would know that this store was in use."""
        self._is_opened = False
        self._files = files
        self._queues = queues
        self._index = index
        self.shortages = shortages
        self._lock = threading.Lock()
        self._last_written = 0
        self._failed = False
        self._last_begun = 0
        self._taken: deque[_Taken] = deque()
        """Not written yet, in the order of taking."""

    def begin(self, end: int, *, store_time_ms: int, clean: bool) -> "Checkpointing":
        """A checkpoint of what is below `end` in the log, all of it synced. Event loop."""
        self._last_begun += 1
        return Checkpointing(
            self,
            self._last_begun,
            end,
            list(self._queues),
            store_time_ms=store_time_ms,
            clean=clean,
        )

    def take(self, number: int, queue: ConsumeQueue, end: int) -> QueueState:
        """Take a queue's units of records below `end`. Event loop.

        And those that are taken already, of which only the queue may know: the opening takes some,
        and on a full disk it cannot write them.
        """
        part = queue.take_tail(end) or queue.last_taken()
        if part is not None:
            self._taken.append(_Taken(number, queue, part))
        return queue.state()

    def is_last(self, number: int) -> bool:
        """Whether none was begun after this one."""
        return number == self._last_begun

    def write(self, checkpointing: "Checkpointing") -> None:
        """Write what was taken, sync it, write the checkpoint. Any thread; blocks."""
        with self._lock:
            if checkpointing.number < self._last_written:
                return
            if self._failed or self._queues.cache.sync_failed:
                raise SyncFailed(errno.EIO, "an earlier sync of a queue failed")
            if self._queues.fault is not None:
                raise OSError(errno.EIO, self._queues.fault)
            while self._taken and self._taken[0].number <= checkpointing.number:
                _, queue, part = self._taken[0]
                queue.write_taken(part)
                self._taken.popleft()
            index_files = self._index.flush()
            try:
                for file in self._queues.cache.take_dirty():
                    file.sync()
            except OSError as error:
                self._failed = True
                raise SyncFailed(error.errno, error.strerror) from error
            checkpoint = checkpointing.checkpoint(
                index_files, self._index.damaged_from, self._files.boot_id()
            )
            data = encode_state(KIND_CHECKPOINT, checkpoint)
            for path in (paths.CHECKPOINT, paths.CHECKPOINT_COPY):
                write_atomically(self._files, path, data)
            self._last_written = checkpointing.number
            if not self._is_opened:
                self._finish_opening()
        self.shortages.ends(LACK)

    def _finish_opening(self) -> None:
        write_abort(self._files)
        if self._files.exists(paths.SYNC_FAILED):
            self._files.remove(paths.SYNC_FAILED)
        self.is_in_use_on_disk = self._is_opened = True

    def open(self, begin: "Callable[[], Checkpointing]") -> None:
        """Write the first checkpoint. Without room for it a later one makes up for all of it.

        Raises `OSError`.
        """
        try:
            begin().run()
        except OSError as error:
            if not self.note(error):
                raise
            self.is_in_use_on_disk = self._mark_in_place()

    def note(self, error: OSError) -> bool:
        """Take note of why a checkpoint is not written; False when it is no shortage."""
        shortage = shortage_of(error)
        if shortage is not None:
            self.shortages.begins(LACK, shortage, "no checkpoint is written")
        return shortage is not None

    def _mark_in_place(self) -> bool:
        """Take the mark of a clean stop off the last checkpoint, where it is: that needs no room.

        With the mark the next start would not ask whether the power failed in between. Only the
        copy counts while the first is written over, and the first while the copy is. One that is
        missing would need room; the next checkpoint makes it. False when even that does not
        succeed: until a checkpoint is written nothing may be appended.
        """
        checkpoint = load_checkpoint(self._files)
        if checkpoint is None or not checkpoint.clean:
            return True
        document = replace(checkpoint, clean=False, boot_id=self._files.boot_id())
        data = encode_state(KIND_CHECKPOINT, document)
        try:
            for path in filter(self._files.exists, (paths.CHECKPOINT, paths.CHECKPOINT_COPY)):
                file = self._files.open(path)
                file.pwritev([data], 0)
                file.truncate(len(data))
                file.sync()
        except OSError as error:
            if not self.note(error):
                raise
            return False
        return True


class Checkpointing:
    """A checkpoint under way: begun and collected on the event loop, `run` on any thread."""

    def __init__(
        self,
        checkpoints: Checkpoints,
        number: int,
        end: int,
        queues: list[ConsumeQueue],
        *,
        store_time_ms: int,
        clean: bool,
    ) -> None:
        self.number = number
        self._checkpoints = checkpoints
        self._end = end
        self._store_time_ms = store_time_ms
        self._clean = clean
        self._left: Iterator[ConsumeQueue] = iter(queues)
        self._states: list[QueueState] = []
        self._is_superseded = False

    def collect(self, queues_max: int | None = None) -> bool:
        """Take the next so many queues, None: all that are left. False: they were the last ones.

        A queue that is made meanwhile has nothing to tell yet. Event loop.
        """
        if not self._checkpoints.is_last(self.number):
            self._is_superseded = True  # the newer one has taken more than this one may claim
            return False
        before = len(self._states)
        for queue in islice(self._left, queues_max):
            self._states.append(self._checkpoints.take(self.number, queue, self._end))
        return queues_max is not None and len(self._states) - before == queues_max

    def run(self) -> None:
        """Write and sync the units and the keys, and the checkpoint, unless a newer one is. Blocks.

        Raises `OSError`; `Checkpoints.note` knows a shortage. What was not written is written with
        the next one. After a sync that failed no other checkpoint is written: it would count on
        units that may not be on the medium.
        """
        if not self._is_superseded:
            assert next(self._left, None) is None, "not all queues were collected"
            self._checkpoints.write(self)

    def checkpoint(
        self, index_files: tuple[IndexFileState, ...], damaged_from: int | None, boot_id: str
    ) -> Checkpoint:
        """What is written, with the state of the key index."""
        end = self._end
        return Checkpoint(
            dispatched_end=end,
            store_time_ms=self._store_time_ms,
            clean=self._clean,
            queues=tuple(self._states),
            indexed_end=end if damaged_from is None else min(end, damaged_from),
            index_files=index_files,
            boot_id=boot_id,
        )
