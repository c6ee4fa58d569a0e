"""Reads whole blocks of the own log for a follower. Blocks; any one thread at a time."""

from typing import Final

from app.domain.limits import MIB
from app.store.formats.record.record import END_OF_FILE_BYTES, Found, inspect
from app.store.log.commit_log import CommitLog
from app.store.replica.block_walk import BlockRange, BlocksUnreadable, LogShape, whole_blocks

RANGE_BYTES: Final = 2 * MIB
"""About so many bytes travel at once; more where one block has more."""


_PLACE_AT: Final = 28
_HEAD_BYTES: Final = 36
"""Of a record, up to and with its physical offset."""


class BlockReader:
    """Over the log of the store whose meta has this shape."""

    def __init__(self, log: CommitLog, shape: LogShape, range_bytes: int = RANGE_BYTES) -> None:
        self._log = log
        self._shape = shape
        self._range_bytes = range_bytes

    def first(self, start: int, end: int) -> BlockRange:
        """`read`, of about one block."""
        return BlockReader(self._log, self._shape, END_OF_FILE_BYTES).read(start, end)

    def is_good(self, at: int) -> bool:
        """Whether an intact record, or the mark of the segment's end, stands at a place."""
        left = self._shape.segment_end(at) - at
        head = self._log.read(at, min(left, _HEAD_BYTES))
        size = int.from_bytes(head[:4])
        is_record = int.from_bytes(head[_PLACE_AT:]) == at and size <= left
        record = self._log.read(at, size) if is_record else head
        finding = inspect(
            memoryview(record), at, left=left, checksum_required=at >= self._shape.unchecked_end
        )
        return finding.found in (Found.RECORD, Found.END_OF_FILE)

    def read_new(self, start: int, end: int) -> BlockRange:
        """`read`, of what was written a moment ago: it is not walked where all of it travels at
        once and no segment ends in it. Raises as `read`."""
        size = end - start
        if size > self._range_bytes or end >= self._shape.segment_end(start):
            return self.read(start, end)
        data = self._log.read(start, size)
        if len(data) < size:
            raise BlocksUnreadable(f"the log has nothing at {start + len(data)}")
        return BlockRange(start, end, data)

    def read(self, start: int, end: int) -> BlockRange:
        """The next whole blocks from `start` on: one at least, none behind `end`.

        Both are ends of blocks, and what is between is written. A range that closes its segment
        ends where the next one begins. Raises `BlocksUnreadable`, or `OSError`, which may be a
        shortage.
        """
        segment_end = self._shape.segment_end(start)
        left = min(end, segment_end) - start
        assert left > 0
        wanted = self._range_bytes
        while True:
            size = min(wanted, left)
            data = self._log.read(start, size)
            if len(data) < size:
                raise BlocksUnreadable(f"the log has nothing at {start + len(data)}")
            piece = whole_blocks(data, start, end, self._shape)
            if piece.size:
                behind = segment_end if piece.is_closed else start + piece.size
                return BlockRange(start, behind, data[: piece.size])
            if size == left:
                raise BlocksUnreadable(f"the block at {start} is not whole before {start + left}")
            wanted = piece.wanted
