"""Dispatches a follower's log up to the high watermark, so that nothing derived is ever undone.

The log itself may go further, and may be cut there. Units and keys are those that the leader made
of the same records. Who waits for messages is not told; floors and journals are read elsewhere.
"""

from app.store.formats.record.record_block import distances, walk
from app.store.lifecycle.dispatcher import BlockDispatcher
from app.store.log.log_scan import ScannedBlock
from app.store.replica.block_reader import BlockReader
from app.store.replica.fresh_blocks import FreshBlocks


class FollowerDispatch:
    """From where an opening has dispatched to; one at a time."""

    def __init__(
        self, reader: BlockReader, dispatcher: BlockDispatcher, end: int, fresh: FreshBlocks
    ) -> None:
        """`end` is where the opening has dispatched to: the end of a block. `fresh` need not be
        read."""
        self.end = end
        """All below is in queues and index: with what is flushed, the end of a checkpoint."""
        self._reader = reader
        self._dispatcher = dispatcher
        self._fresh = fresh

    @property
    def store_time_ms(self) -> int:
        """The newest of what was dispatched here."""
        return self._dispatcher.store_time_ms

    def advance(self, high_watermark: int) -> bool:
        """Dispatch the next whole blocks below; False: there are none. For the event loop, which is
        kept for about one range of the reader.

        `high_watermark` is the end of a block that is written. Raises `BlocksUnreadable`, or
        `OSError`, which may be a shortage: then the same blocks come next.
        """
        if high_watermark <= self.end:
            return False
        fresh = self._fresh.take(self.end, high_watermark)
        if fresh is not None:
            end, records = fresh
            if records.starts:
                self._dispatcher.dispatch(records)
            self.end = end
            return self.end < high_watermark
        found = self._reader.read(self.end, high_watermark)
        marks = walk(found.data, 0, len(found.data))
        if len(marks) > 1:
            self._dispatcher.dispatch(
                ScannedBlock(bytes(found.data), marks[:-1], distances(marks), found.start)
            )
        self.end = found.end
        return self.end < high_watermark
