"""What the names of consume queue files say of a queue's offsets, in our store and in RocketMQ's.

A queue file is named by its first byte, so the first one bounds the queue's offsets from below and
the last one from above. Older files go only when all their messages are gone from the log.
"""

from collections.abc import Mapping

from app.store import paths
from app.store.formats.files.consume_queue import UNIT_BYTES
from app.store.formats.files.state_file import Checkpoint, StoreMeta
from app.store.fs.files import FileSystem
from app.store.fs.strays import is_file, names_in, queue_directories
from app.store.log.log_scan import NO_OFFSETS, QueueName


def offsets_in_files(files: FileSystem) -> dict[tuple[str, int], range]:
    """Where the offsets of each queue that has files may lie, by their names and sizes."""
    found: dict[tuple[str, int], range] = {}
    for topic, queue_id in queue_directories(files):
        directory = paths.queue_directory(topic, queue_id)
        bases = [
            base
            for name in names_in(files, directory) or ()
            if (base := paths.parse_file_name(name)) is not None
            and base % UNIT_BYTES == 0
            and is_file(files, f"{directory}/{name}")
        ]
        if bases:
            file = files.open(f"{directory}/{paths.file_name(bases[-1])}")
            try:
                end = bases[-1] + file.size()
            finally:
                file.close()
            found[topic, queue_id] = range(bases[0] // UNIT_BYTES, end // UNIT_BYTES)
    return found


def known_offsets(
    meta: StoreMeta, checkpoint: Checkpoint | None, files: FileSystem
) -> Mapping[QueueName, range]:
    """Where the first record of each queue may stand that may lack our checksum.

    From 0 on, because the log has records of deleted topics, which are below their queues' minima.
    """
    if not meta.unchecked_end:
        return NO_OFFSETS
    if checkpoint is None:
        return {name: range(known.stop) for name, known in offsets_in_files(files).items()}
    return {(state.topic, state.queue_id): range(state.max_offset) for state in checkpoint.queues}
