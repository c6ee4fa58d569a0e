"""The first results of what was stored before, read back from the log for a repetition.

Event loop only.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from app.broker.context import Context
from app.broker.dedup.tokens import Placed
from app.broker.journal.cold_reads import ColdReads
from app.broker.results import FrameResult, SendResult
from app.domain.errors import AlreadyStored, OffsetExpired
from app.domain.limits import MIB
from app.store import ReadResult

_READ_BYTES: Final = 4 * MIB
_READ_MESSAGES: Final = 500
"""Of a batch that is repeated, at a time: reading some costs more than sending them."""


class FirstResults:
    """One per deduplicator."""

    def __init__(self, context: Context) -> None:
        self._store = context.store
        self._readers = context.readers

    async def of_frame(self, topic: str, placed: Placed) -> FrameResult:
        """The same of a frame, as one result."""
        results = await self.of_messages(topic, placed)
        first = results[0]
        ids = [result.message_id for result in results]
        return FrameResult(
            topic, first.queue_id, first.queue_offset, len(results), first.store_time_ms, ids
        )

    async def of_messages(self, topic: str, placed: Placed) -> list[SendResult]:
        """The first results, read from the log. `OffsetExpired` when the messages are gone."""
        if not placed.firsts:
            raise AlreadyStored(
                "these messages were stored before, to be delivered later",
                hint="take it as a success",
                outcome="stored",
            )
        found: dict[tuple[int, int], SendResult] = {}
        counts: dict[int, int] = {}
        offsets = list(placed.offsets())
        for queue_id, _ in offsets:
            counts[queue_id] = counts.get(queue_id, 0) + 1
        for queue_id, first in placed.firsts:
            await self._read_results(topic, queue_id, first, first + counts[queue_id], found)
        missing = [where for where in offsets if where not in found]
        if missing:
            queue_id, offset = missing[0]
            raise OffsetExpired(
                f"stored before, in queue {queue_id} at offset {offset}, and no longer readable",
                hint="take it as a success",
                outcome="stored",
            )
        return [found[where] for where in offsets]

    async def _read_results(
        self,
        topic: str,
        queue_id: int,
        first: int,
        end: int,
        found: dict[tuple[int, int], SendResult],
    ) -> None:
        bounds = self._store.bounds(topic, queue_id)
        offset, end = max(first, bounds.min_offset), min(end, bounds.max_offset)
        while offset < end:
            read = await ColdReads(self._readers).run(self._reader(topic, queue_id, offset, end))
            for record in read.records:
                message = self._store.decode(record)
                where = queue_id, message.queue_offset
                found[where] = SendResult(message.message_id, topic, *where, message.store_time_ms)
            offset = max(read.next_offset, offset + 1)
            await asyncio.sleep(0)

    def _reader(
        self, topic: str, queue_id: int, offset: int, end: int
    ) -> Callable[[bool], ReadResult]:
        def read(wait_for_disk: bool) -> ReadResult:
            return self._store.read(
                topic,
                queue_id,
                offset,
                max_messages=min(end - offset, _READ_MESSAGES),
                max_bytes=_READ_BYTES,
                end_offset=end,
                wait_for_disk=wait_for_disk,
            )

        return read
