"""A replica that begins anew: what its directory has is thrown away, and copied from the leader.

`ReplicaFiles.keep_reset` decides it. From then on `finish_reset` takes away what the file says
before anything else looks at the directory, as often as it is interrupted, and the file last. What
it leaves says that the directory is a new member: it has no incarnation. The promise stays, for
what a replica has promised it does not take back (R2); so does what earlier openings have cut off
(`lost+found/`).

Blocks; the lock is held, and no store is open.
"""

import logging
from typing import Final

from app.store import paths
from app.store.fs.files import FileSystem
from app.store.fs.strays import is_file, names_in
from app.store.replica.beginnings import forget_derived
from app.store.replica.replica_files import ReplicaFiles

_LOG: Final = logging.getLogger(__name__)

_OF_ALL: Final = (
    paths.REPLICA_INCARNATION,
    paths.SYNC_FAILED,
    paths.ABORT,
    paths.ROCKET_CHECKPOINT,
)
_OF_THE_LOG: Final = (
    paths.META,
    paths.META_COPY,
    paths.REPLICA_HISTORY,
    paths.REPLICA_BEGINNING,
)
"""They say what its bytes are; the shard's row has what the meta files are made of."""


def finish_reset(files: FileSystem, replica_files: ReplicaFiles) -> bool:
    """Throw away what an operator has decided; whether there was anything to do. Raises
    `ReplicaFileDamaged` or `OSError`: then the next call goes on."""
    reset = replica_files.reset()
    if reset is None:
        return False
    _LOG.warning(
        "the replica begins anew, %s its log: %s",
        "with" if reset.keeps_log else "without",
        reset.reason,
    )
    forget_derived(files)
    for path in _OF_ALL if reset.keeps_log else (*_OF_ALL, *_OF_THE_LOG):
        if files.exists(path):
            files.remove(path)
    if not reset.keeps_log:
        for name in names_in(files, paths.COMMIT_LOG) or ():
            path = f"{paths.COMMIT_LOG}/{name}"
            if paths.parse_file_name(name) is not None and is_file(files, path):
                files.remove(path)
        if files.exists(paths.COMMIT_LOG):
            files.sync_directory(paths.COMMIT_LOG)
    files.sync_directory("")
    files.remove(paths.REPLICA_RESET)
    files.sync_directory("")
    return True
