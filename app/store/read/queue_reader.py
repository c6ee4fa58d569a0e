"""The one door to the messages of a queue by offset: chooses the fast paths that a read takes.

What a fast path remembers belongs to the reader: the store asks it to read, the appender takes the
checksums of frames from it, and neither knows how a read is made. docs/performance/fast-paths.md
lists the fast paths; `FastPaths` in the configuration turns each one off, and no result depends on
it. The choice is made at construction where it can be.

Any thread, but for the checksums of frames, which belong to the event loop.
"""

from collections.abc import Sequence

from app.store.config import StoreConfig
from app.store.log.commit_log import CommitLog
from app.store.queues.consume_queue import ConsumeQueue
from app.store.read.frame_checksums import FrameChecksums
from app.store.read.known_reads import Stretch, read_known
from app.store.read.queue_reads import ReadResult, Wanted, before_unasked, read_queue
from app.store.read.read_repair import ReadRepair
from app.store.read.record_checks import Source
from app.store.read.verified_blocks import nothing_known
from app.store.read.zero_copy import find_in_place


class QueueReader:
    """Reads the queues of one store. `unchecked_end` as in `Source`."""

    def __init__(self, log: CommitLog, unchecked_end: int, config: StoreConfig) -> None:
        fast_paths = config.fast_paths
        gap_bytes = config.coalesce_gap_bytes
        self.source = Source(
            log,
            unchecked_end,
            gap_bytes,
            nothing_known(),
            fast_paths.verified_blocks,
            fast_paths,
            ReadRepair(),
        )
        self.frame_checksums: FrameChecksums | None = None
        """What the appender asks about a frame; None: the first read of a block finds its sum."""
        if fast_paths.verified_blocks and fast_paths.frame_checksums:
            self.frame_checksums = FrameChecksums(self.source.known, log.segment_bytes, gap_bytes)
        self._reads_known = fast_paths.verified_blocks and fast_paths.known_reads
        self._may_leave_in_place = fast_paths.verified_blocks and fast_paths.zero_copy

    def read(self, queue: ConsumeQueue, wanted: Wanted, *, wait_for_disk: bool) -> ReadResult:
        """Read and verify messages until a bound is met; at least one if there is one.

        Raises `ColdRead` when it would have to wait for the disk and may not.
        """
        return read_queue(self.source, queue, wanted, wait_for_disk=wait_for_disk)

    def before_unasked(
        self, queue: ConsumeQueue, first: int, result: ReadResult, *, wait_for_disk: bool
    ) -> ReadResult:
        """Of what was read from offset `first` on: as far as no other replica may have what is a
        gap. Raises `ShardUnavailable` where that is nothing, and `ColdRead` as above."""
        return before_unasked(self.source, queue, first, result, wait_for_disk=wait_for_disk)

    def read_known(
        self, asked: Sequence[Stretch], max_bytes: int, all_bytes_max: int
    ) -> list[ReadResult | None]:
        """A little of each of many queues, where all of it is known to be good; at most `max_bytes`
        of one, and `all_bytes_max` in all. None: `read` it. Never waits."""
        if not self._reads_known:
            return [None] * len(asked)
        return read_known(self.source, asked, max_bytes, all_bytes_max)

    def find_in_place(
        self, queue: ConsumeQueue, wanted: Wanted, *, wait_for_disk: bool
    ) -> ReadResult | None:
        """The records where they stand, as `RecordsInPlace`, up to the last whole verified block.

        None: they have to be read. `ColdRead` as for `read`.
        """
        if not self._may_leave_in_place or wanted.tag_hashes is not None:
            return None
        return find_in_place(self.source, queue, wanted, wait_for_disk=wait_for_disk)
