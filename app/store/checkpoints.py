"""Writing checkpoints: what is derived is synced first, then the checkpoint is replaced whole.

Twice, because it alone knows which topics were deleted and what has expired: the log would bring
those messages back.
"""

import errno
import threading
from typing import NamedTuple

from app.store import paths
from app.store.file_cache import FileCache
from app.store.files import FileSystem, write_atomically
from app.store.formats.state_file import KIND_CHECKPOINT, Checkpoint, encode_state


class Checkpoints:
    """Writes checkpoints one at a time, never an older one over a newer one. Any thread."""

    def __init__(self, files: FileSystem, cache: FileCache) -> None:
        self._files = files
        self._cache = cache
        self._lock = threading.Lock()
        self._last_written = 0
        self._failed = False
        self.last_begun = 0

    def write(self, number: int, checkpoint: Checkpoint) -> None:
        with self._lock:
            if number < self._last_written:
                return
            if self._failed:
                raise OSError(errno.EIO, "an earlier sync of a queue failed")
            try:
                for file in self._cache.take_dirty():
                    file.sync()
            except OSError:
                self._failed = True
                raise
            data = encode_state(KIND_CHECKPOINT, checkpoint)
            for path in (paths.CHECKPOINT, paths.CHECKPOINT_COPY):
                write_atomically(self._files, path, data)
            self._last_written = number


class Checkpointing(NamedTuple):
    """A checkpoint under way: begun on the loop, `run` on any thread."""

    checkpoints: Checkpoints
    number: int
    checkpoint: Checkpoint

    def run(self) -> None:
        """Sync the queues and write the checkpoint, unless a newer one is. Blocks.

        Raises `OSError`. After a sync that failed no other checkpoint is written: it would count
        on units that may not be on the medium.
        """
        self.checkpoints.write(self.number, self.checkpoint)
