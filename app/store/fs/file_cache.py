"""A bounded number of open files, for queues that come by the ten thousand.

Event loop and reader threads. A file that is pushed out is not closed under a reader: its
descriptor goes with the last reference to it.
"""

import contextlib
import threading
from collections import OrderedDict

from app.store.fs.files import File, FileSystem

OPEN_FILES_MAX = 512
"""Half of the usual soft limit of 1,024 descriptors per process."""


class FileCache:
    """Files by path, the least recently used one dropped first."""

    def __init__(
        self, files: FileSystem, open_files_max: int = OPEN_FILES_MAX, dirty_max: int | None = None
    ) -> None:
        self.sync_failed = False
        """Whether a file could not be synced when there were too many: no checkpoint may follow."""
        self.files = files
        self._dirty_max = dirty_max or open_files_max
        self._open_files_max = open_files_max
        self._opened: OrderedDict[str, File] = OrderedDict()
        self._dirty: dict[File, None] = {}
        self._lock = threading.Lock()

    def get(self, path: str) -> File | None:
        """The open file, or None when there is no such file."""
        with self._lock:
            file = self._opened.get(path)
            if file is not None:
                self._opened.move_to_end(path)
                return file
        if not self.files.exists(path):
            return None
        return self._remember(path, self.files.open(path))

    def create(self, directory: str, path: str, size: int) -> File:
        """Make a file of `size` zeros (sparse) and its directory, all names synced."""
        self.files.make_directory(directory)
        file = self.files.open(path, create=True)
        try:
            file.truncate(size)
            self.files.sync_directory(directory)
        except OSError:  # or who tries again would find it and take it for whole
            file.close()
            with contextlib.suppress(OSError):
                self.files.remove(path)
            raise
        return self._remember(path, file)

    def _remember(self, path: str, file: File) -> File:
        with self._lock:
            file = self._opened.setdefault(path, file)
            while len(self._opened) > self._open_files_max:
                self._opened.popitem(last=False)
        return file

    def mark_dirty(self, file: File) -> None:
        """Note that `file` must be synced before a checkpoint may count on it.

        It stays open until then; so where too many wait for that, one is synced. Raises
        `SyncFailed`.
        """
        with self._lock:
            self._dirty[file] = None
            waits_longest = None
            if len(self._dirty) > self._dirty_max:
                waits_longest = next(iter(self._dirty))
                del self._dirty[waits_longest]
        if waits_longest is not None:
            try:
                waits_longest.sync()
            except OSError:
                self.sync_failed = True
                raise

    def take_dirty(self) -> list[File]:
        """The files that were written to and not synced or taken since, in the order of writing."""
        with self._lock:
            dirty, self._dirty = list(self._dirty), {}
        return dirty

    def forget(self, path: str) -> None:
        """Drop a file that is about to be removed."""
        with self._lock:
            self._opened.pop(path, None)

    def close(self) -> None:
        """Close all files; no reader is left."""
        with self._lock:
            for file in self._opened.values():
                file.close()
            self._opened.clear()
