"""What a replica throws away when it begins anew: what was made of its log, or the log as well.

Where the log goes, a file says so first (`paths.REPLICA_BEGINNING`), and goes last: an opening that
finds it does all of this again. Blocks; no store is open.
"""

import contextlib

from app.store import paths
from app.store.formats.files.replica_files import KeptBeginning, KeptHistory
from app.store.fs.files import FileSystem
from app.store.fs.strays import is_segment, names_in, queue_directories
from app.store.lifecycle.checkpoints import begin_with
from app.store.log.commit_log import CommitLog
from app.store.replica.replica_files import ReplicaFiles


def forget_derived(files: FileSystem) -> None:
    """Remove queues, index and timer log, then the checkpoint, which says until the last step how
    much was shown. Raises `OSError`; may be repeated."""
    queues = [
        paths.queue_directory(topic, queue_id) for topic, queue_id in queue_directories(files)
    ]
    for directory in (paths.TIMER_LOG, paths.INDEX, *queues):
        names = names_in(files, directory)
        for name in names or ():
            with contextlib.suppress(IsADirectoryError, PermissionError):  # no store made it
                files.remove(f"{directory}/{name}")
        if names:
            files.sync_directory(directory)
    for path in (paths.CHECKPOINT, paths.CHECKPOINT_COPY):
        if files.exists(path):
            files.remove(path)
    files.sync_directory("")


def finish_beginning(files: FileSystem, replica_files: ReplicaFiles, segment_bytes: int) -> None:
    """Have the log begin where the file says, with nothing in it; without the file, nothing.

    Raises `ReplicaFileDamaged` or `OSError`; may be repeated.
    """
    beginning = replica_files.beginning()
    if beginning is None:
        return
    forget_derived(files)
    for name in files.list(paths.COMMIT_LOG):
        if is_segment(files, name, segment_bytes):
            files.remove(f"{paths.COMMIT_LOG}/{name}")
    _begin(files, replica_files, segment_bytes, beginning)
    replica_files.forget_beginning()


def _begin(
    files: FileSystem, replica_files: ReplicaFiles, segment_bytes: int, beginning: KeptBeginning
) -> None:
    replica_files.keep_history(KeptHistory(beginning.starts))
    files.make_directory(paths.COMMIT_LOG)
    CommitLog(files, segment_bytes).prepare(beginning.start)
    begin_with(files, beginning.start)
