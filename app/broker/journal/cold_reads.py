"""Reads that may have to wait for the disk: tried on the loop, then once on a reader thread.

A request makes at most one hop. What needs a second one is left to the caller's next request.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import TypeVar

from app.broker.ports import QueueRecords
from app.domain.errors import ShuttingDown, SystemBusy
from app.domain.shortages import HINTS, shortage_of
from app.store import ColdRead, QueueBounds

Result = TypeVar("Result")


class ColdReads:
    """One request's right to hop once. Made per request, event loop only."""

    __slots__ = ("_readers", "is_used")

    def __init__(self, readers: Executor) -> None:
        self._readers = readers
        self.is_used = False

    async def run(self, read: Callable[[bool], Result]) -> Result:
        """Call `read(False)` here or, when that is cold, `read(True)` on a reader thread.

        Raises `SystemBusy` when it lacks a descriptor (or memory, or room for what it mends).

        `read` gets `wait_for_disk` and must be safe to call on any thread. Raises `ColdRead` when
        the hop is spent.
        """
        try:
            return read(False)
        except ColdRead:
            return await self.hop(read)
        except OSError as error:
            _refuse_for_shortage(error)
            raise

    def here(self, read: Callable[[bool], Result]) -> Result:
        """Call `read(False)` here; raises `ColdRead` when that is cold, and `SystemBusy`."""
        try:
            return read(False)
        except OSError as error:
            _refuse_for_shortage(error)
            raise

    async def hop(self, read: Callable[[bool], Result]) -> Result:
        """Call `read(True)` on a reader thread, or raise `ColdRead` when the hop is spent."""
        if self.is_used:
            raise ColdRead
        self.is_used = True
        try:
            hopping = asyncio.get_running_loop().run_in_executor(self._readers, read, True)
        except RuntimeError as error:  # the threads have ended: the node stops
            raise ShuttingDown(
                "the node is shutting down",
                hint="ask another node, or again later",
                retry_after_s=1,
            ) from error
        try:
            return await hopping
        except OSError as error:
            _refuse_for_shortage(error)
            raise


def _refuse_for_shortage(error: OSError) -> None:
    """Raise `SystemBusy` when a file could not be opened or read for want of something."""
    shortage = shortage_of(error)
    if shortage is not None:
        detail = f"the messages cannot be read now: {shortage.value}"
        raise SystemBusy(detail, hint=HINTS[shortage], retry_after_s=1) from error


def find_offset_at(
    store: QueueRecords,
    topic: str,
    queue_id: int,
    bounds: QueueBounds,
    timestamp_ms: int,
    *,
    wait_for_disk: bool,
) -> int:
    """The first offset that was stored at or after `timestamp_ms`; the end when there is none.

    Bisects over queue offsets: store times never run backwards within a node, and one read per
    step is cheap. Where records are damaged, the answer may be the first damaged one before the
    record meant. Any thread, when it may wait for the disk.
    """
    low, high = bounds
    while low < high:
        middle = probe = (low + high) // 2
        records: Sequence[memoryview] = []
        while probe < high and not records:
            # One step, unless records are damaged here: look for the next whole one.
            read = store.read(
                topic,
                queue_id,
                probe,
                max_messages=1,
                max_bytes=1,
                end_offset=high,
                wait_for_disk=wait_for_disk,
            )
            records = read.records
            probe = max(read.next_offset, probe + 1)
        if records and store.decode(records[0]).store_time_ms < timestamp_ms:
            low = probe
        else:
            high = middle
    return low
