"""The log of a replica that follows: it takes the leader's blocks at their places.

Beside the appender, on the same `CommitLog`: one of the two writes at a time. What came is checked
(`check`), then written as it is (`write`), synced as far as the leader asks (`sync`), and cut where
the leader has something else (`cut`). Ends are ends of blocks, so the log never ends in a block.

A shortage (`app.domain.shortages`) passes: `OSError` is raised, nothing of what was asked for is
there, and the same call may succeed later. Any other failure of a write or a cut, and every one of
a sync, is sticky, for the reasons of `app.store.write.writer`: `ReplicaLogFailed` from then on.

Blocks; one thread at a time, whichever.
"""

import errno
import logging
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from app.domain.shortages import SyncFailed, shortage_of
from app.store.formats.record.record import Found, inspect
from app.store.formats.record.record_block import walk
from app.store.fs.files import FileSystem
from app.store.lifecycle.recovery import keep_and_cut
from app.store.log.commit_log import CommitLog
from app.store.log.log_scan import ScannedBlock
from app.store.replica.block_walk import BlockRange, BlocksRefused, LogShape, check_blocks
from app.store.replica.fresh_blocks import FreshBlocks

_LOG: Final = logging.getLogger(__name__)


class ReplicaLogFailed(Exception):
    """Nothing is written any more before the store is opened anew; the text says why."""


class CutBelowWatermark(Exception):
    """What was confirmed, and may have been read, is never cut. Nothing was changed."""


class LogsDiffer(Exception):
    """Two logs are not the same where their histories say that they are. Nothing was changed."""


class CheckedBlocks(NamedTuple):
    """Blocks that may be written; `ReplicaLog.check` makes them."""

    blocks: BlockRange
    records: ScannedBlock


class KeptTail(NamedTuple):
    """What was cut, but for zeros."""

    path: str
    """Where it is kept; empty where a full disk had no room for it."""
    size: int
    """Bytes of it that were kept."""


class ReplicaLog:
    """See the module. All ends are physical offsets."""

    def __init__(self, files: FileSystem, log: CommitLog, shape: LogShape, end: int) -> None:
        """`end` is where the opened log goes on; it is synced up to there."""
        assert log.segment_bytes == shape.segment_bytes
        self.written = end
        self.flushed = end
        self.failed: str | None = None
        """Why nothing is written any more."""
        self._files = files
        self._log = log
        self._shape = shape
        self._unfinished_cut: int | None = None
        self.fresh = FreshBlocks()
        """What was written last and is not dispatched."""

    @property
    def start(self) -> int:
        """Where the log begins. Any thread."""
        return self._log.start

    def check_begins(self, start: int) -> None:
        """Raise `BlocksRefused` where no log of this store can begin."""
        if start % self._log.segment_bytes:
            raise BlocksRefused(f"no segment begins at {start}")

    def check(self, blocks: BlockRange) -> CheckedBlocks:
        """The same blocks, if they are whole, intact and of their place: else `BlocksRefused`.

        Looks at nothing but the blocks.
        """
        return CheckedBlocks(blocks, check_blocks(blocks, self._shape))

    def write(self, checked: CheckedBlocks) -> None:
        """Write blocks behind those before.

        Raises `BlocksRefused` when they go elsewhere, `OSError` for a shortage, `ReplicaLogFailed`.
        """
        start, end, data = checked.blocks
        self._refuse_if_failed()
        self.finish_cut()
        if start != self.written:
            raise BlocksRefused(f"blocks from {start} on, and the log ends at {self.written}")
        is_begun = False
        try:
            self._log.prepare(self._log.base_of(start))
            if self._log.base_of(end) == end:  # a closed segment has one behind it
                self._log.prepare(end)
            is_begun = True
            self._log.write(start, [data])
        except OSError as error:
            self._take_back(start, error, is_begun=is_begun)
            raise
        self.written = end
        self.fresh.put(end, checked.records)

    def _take_back(self, start: int, error: OSError, *, is_begun: bool) -> None:
        """Leave nothing of a write that lacked something; raises when that is not known."""
        if shortage_of(error) is None:
            raise self._fail(f"a write of the log failed: {error}") from error
        if not is_begun:
            return
        try:
            self._log.take_back(start)
        except OSError as fault:
            raise self._fail(f"a write of the log could not be taken back: {fault}") from fault

    def sync(self, to: int) -> bool:
        """Bring the log to the medium, if it is not up to `to` there; whether there was a need.

        Raises `ReplicaLogFailed`.
        """
        self._refuse_if_failed()
        if min(to, self.written) <= self.flushed:
            return False
        end = self.written
        try:
            self._log.sync_between(self.flushed, end)
        except OSError as error:
            raise self._fail(f"a sync of the log failed: {error}") from error
        self.flushed = end
        return True

    def cut(self, end: int, high_watermark: int) -> KeptTail | None:
        """Cut what stands behind `end`, with a copy to `lost+found/`; None: there is nothing.

        Raises `CutBelowWatermark`; `OSError` for a shortage: the cut has to be finished before
        anything else then (`finish_cut`); `ReplicaLogFailed`.
        """
        self._refuse_if_failed()
        if end < high_watermark:
            raise CutBelowWatermark(
                f"the log is to be cut at {end}, and up to {high_watermark} it was confirmed"
            )
        if end >= self.written and self._unfinished_cut is None:
            return None
        self.fresh.clear()
        before = self._unfinished_cut
        self._unfinished_cut = end if before is None else min(end, before)
        return self.finish_cut()

    def finish_cut(self) -> KeptTail | None:
        """Carry out the cut that lacked something; None: there is none. Raises as `cut`."""
        end = self._unfinished_cut
        if end is None:
            return None
        try:
            kept = KeptTail(*keep_and_cut(self._files, self._log, end))
            self._log.sync_all()
        except OSError as error:
            if shortage_of(error) is None:
                if isinstance(error, SyncFailed):
                    self._log.note_failed_sync()
                raise self._fail(f"a cut of the log failed: {error}") from error
            raise
        self.written = self.flushed = end
        self._unfinished_cut = None
        _LOG.warning("%d bytes were cut off the log at %d: %s", kept.size, end, kept.path)
        return kept

    def mend(self, checked: CheckedBlocks) -> int:
        """Put records of another replica in the place of those that are damaged here; how many
        bytes were. Synced, and read again from the medium. Also while this replica leads: its
        writer is elsewhere.

        Only for what is the same at the same place of both, as their histories say. Raises
        `LogsDiffer` where a record that is intact here is another one there: nothing is written
        then. `OSError`, where it may be tried again, or `ReplicaLogFailed`.
        """
        start, end, data = checked.blocks
        self._refuse_if_failed()
        assert end <= self.written
        found = self._log.read(start, len(data))
        if found == data:
            return 0
        pieces = self._damaged(start, found, bytes(data))
        try:
            self._log.put_right(pieces)
        except SyncFailed as error:
            raise self._fail(f"a sync of the log failed: {error}") from error
        if self._log.read(start, len(data)) != data:
            at = pieces[0][0]
            raise OSError(errno.EIO, f"what was written at {at} of the log is not there")
        return sum(len(piece) for _, piece in pieces)

    def _damaged(self, start: int, found: bytes, wanted: bytes) -> list[tuple[int, bytes]]:
        """What to write, record by record, and where. Raises `LogsDiffer`."""
        marks = walk(wanted, 0, len(wanted))
        if marks[-1] < len(wanted):  # the mark of the segment's end
            marks = [*marks, len(wanted)]
        segment_end, pieces = self._shape.segment_end(start), []
        for at, behind in pairwise(marks):
            mine, theirs = found[at:behind], wanted[at:behind]
            if mine == theirs:
                continue
            left = segment_end - start - at
            finding = inspect(memoryview(mine), start + at, left=left, checksum_required=True)
            if finding.found in (Found.RECORD, Found.END_OF_FILE):
                raise LogsDiffer(f"the record at {start + at} is intact, and another one there")
            low, high = _difference(mine, theirs)
            pieces.append((start + at + low, theirs[low:high]))
        return pieces

    def moved(self, written: int, flushed: int) -> None:
        """The store's own writer, which writes while this replica leads, has come so far."""
        self.written, self.flushed = written, flushed
        self.fresh.clear()

    def _refuse_if_failed(self) -> None:
        if self.failed is not None:
            raise ReplicaLogFailed(self.failed)

    def _fail(self, reason: str) -> ReplicaLogFailed:
        self.failed = reason
        _LOG.error("%s; nothing is written any more", reason)
        return ReplicaLogFailed(reason)


def _difference(found: bytes, wanted: bytes) -> tuple[int, int]:
    """From the first to behind the last byte in which the two differ; both are 0 where none does.
    What was found may be shorter."""
    size = min(len(found), len(wanted))
    differs = np.frombuffer(found, np.uint8, size) != np.frombuffer(wanted, np.uint8, size)
    places = np.flatnonzero(differs)
    low = int(places[0]) if len(places) else size
    if size < len(wanted):
        return low, len(wanted)
    return (low, int(places[-1]) + 1) if len(places) else (0, 0)
