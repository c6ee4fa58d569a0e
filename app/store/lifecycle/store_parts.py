"""What a store is made of once its log, queues and index are brought together.

The lock is the caller's: it is taken before and kept as long as the parts are used.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from app.domain.clock import Clock
from app.domain.limits import Limits
from app.store import paths
from app.store.config import StoreConfig
from app.store.damage import Damages
from app.store.formats.files.state_file import StoreMeta
from app.store.fs.files import FileSystem
from app.store.index.key_index import KeyIndex
from app.store.lifecycle.opening import ShardMeta, load_or_make_meta, open_log
from app.store.lifecycle.recovery import BeforeCut, Recovery, no_doubt
from app.store.lifecycle.unit_repair import UnitRepair
from app.store.log.commit_log import CommitLog
from app.store.queues.queue_table import QueueTable
from app.store.read.queue_reader import QueueReader


@dataclass(frozen=True, slots=True)
class StoreParts:
    """All that `MessageStore` reads from and writes to."""

    files: FileSystem
    config: StoreConfig
    clock: Clock
    limits: Limits
    meta: StoreMeta
    log: CommitLog
    queues: QueueTable
    index: KeyIndex
    reader: QueueReader
    repair: UnitRepair
    recovery: Recovery

    @classmethod
    def open(
        cls,
        files: FileSystem,
        config: StoreConfig,
        clock: Clock,
        call_soon: Callable[[Callable[[], object]], object],
        limits: Limits,
        shard: ShardMeta | None = None,
        before_cut: BeforeCut = no_doubt,
    ) -> Self:
        """Recover what is there, or make it; that of a replica as its `shard` says. Blocks.

        Raises `StoreUnusable` or `OSError`.
        """
        damages = Damages()
        meta = load_or_make_meta(files, config, clock, damages, shard)
        files.make_directory(paths.COMMIT_LOG)
        files.make_directory(paths.CONSUME_QUEUES)
        log = CommitLog(files, meta.segment_bytes, limits.store_files_max // 16)
        queues = QueueTable(files, meta.queue_file_units, limits.store_files_max // 4)
        files.make_directory(paths.INDEX)
        index = KeyIndex(queues.cache, meta, damages, call_soon)
        reader = QueueReader(log, meta.unchecked_end, config)
        repair = UnitRepair(reader.source, damages)
        queues.repair = repair.repair
        is_replica = shard is not None
        recovery = open_log(
            files,
            meta,
            log,
            queues,
            index,
            damages,
            clock,
            is_replica=is_replica,
            before_cut=before_cut,
        )
        return cls(files, config, clock, limits, meta, log, queues, index, reader, repair, recovery)
