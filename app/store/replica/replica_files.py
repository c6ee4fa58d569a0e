"""The small files of a replica: its promise, its history, its incarnation (see `incarnation`), and
where its log is to begin anew (see `beginnings`).

Each is replaced whole and is on the medium when `keep_…` returns, under its name too. One that is
damaged is told of and never guessed: without its promise a replica could take what it must not,
without its history it could keep what it must cut. Such a replica is made anew.

Blocks; one thread at a time.
"""

from typing import TypeVar

import msgspec

from app.store import paths
from app.store.formats.files.replica_files import (
    KIND_BEGINNING,
    KIND_HISTORY,
    KIND_INCARNATION,
    KIND_PROMISE,
    KIND_RESET,
    KeptBeginning,
    KeptHistory,
    KeptIncarnation,
    KeptPromise,
    KeptReset,
)
from app.store.formats.files.state_file import StateFileError, decode_document, encode_document
from app.store.fs.files import FileSystem, read_whole, write_atomically

_Document = TypeVar("_Document", bound=msgspec.Struct)


class ReplicaFileDamaged(Exception):
    """A file of the replica says nothing any more; the text names it and says what to do."""


class ReplicaFiles:
    """The files in a store's directory, whose lock the caller holds.

    Every method raises `OSError`: a shortage, or `SyncFailed`, behind which nothing is sure.
    """

    def __init__(self, files: FileSystem) -> None:
        """What a process before this one has written may not have its name on the medium yet."""
        self._files = files
        files.sync_directory("")

    def promise(self) -> KeptPromise | None:
        """The promise; None when none was ever kept. Raises `ReplicaFileDamaged`."""
        return self._read(paths.REPLICA_PROMISE, KIND_PROMISE, KeptPromise)

    def history(self) -> KeptHistory | None:
        """The history; None when none was ever kept. Raises `ReplicaFileDamaged`."""
        return self._read(paths.REPLICA_HISTORY, KIND_HISTORY, KeptHistory)

    def incarnation(self) -> KeptIncarnation | None:
        """The incarnation; None when none was ever kept, or when the file is damaged: then the
        directory proves nothing."""
        try:
            return self._read(paths.REPLICA_INCARNATION, KIND_INCARNATION, KeptIncarnation)
        except ReplicaFileDamaged:
            return None

    def beginning(self) -> KeptBeginning | None:
        """Where the log is to begin; None: as it is. Raises `ReplicaFileDamaged`."""
        return self._read(paths.REPLICA_BEGINNING, KIND_BEGINNING, KeptBeginning)

    def keep_promise(self, promise: KeptPromise) -> None:
        """Replace the promise."""
        self._keep(paths.REPLICA_PROMISE, KIND_PROMISE, promise)

    def keep_history(self, history: KeptHistory) -> None:
        """Replace the history."""
        self._keep(paths.REPLICA_HISTORY, KIND_HISTORY, history)

    def keep_incarnation(self, incarnation: KeptIncarnation) -> None:
        """Replace the incarnation."""
        self._keep(paths.REPLICA_INCARNATION, KIND_INCARNATION, incarnation)

    def keep_beginning(self, beginning: KeptBeginning) -> None:
        """Have the log begin elsewhere, from the next opening on."""
        self._keep(paths.REPLICA_BEGINNING, KIND_BEGINNING, beginning)

    def forget_beginning(self) -> None:
        """It does."""
        self._files.remove(paths.REPLICA_BEGINNING)
        self._files.sync_directory("")

    def reset(self) -> KeptReset | None:
        """What is being thrown away; None: nothing. Raises `ReplicaFileDamaged`."""
        return self._read(paths.REPLICA_RESET, KIND_RESET, KeptReset)

    def keep_reset(self, reset: KeptReset) -> None:
        """From now on the next opening throws away what this says."""
        self._keep(paths.REPLICA_RESET, KIND_RESET, reset)

    def _keep(self, path: str, kind: bytes, document: msgspec.Struct) -> None:
        write_atomically(self._files, path, encode_document(kind, document))

    def _read(self, path: str, kind: bytes, document: type[_Document]) -> _Document | None:
        data = read_whole(self._files, path)
        if data is None:
            return None
        try:
            return decode_document(kind, data, document)
        except StateFileError as error:
            raise ReplicaFileDamaged(
                f"{path} is damaged ({error}); what this replica has promised cannot be told: make "
                "it anew with an empty directory"
            ) from error
