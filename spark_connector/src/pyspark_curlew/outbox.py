"""Records of one queue on their way: full portions go out, the rest waits for more.

Where a portion ends depends on the records alone, not on the batches in which Spark hands them
over; so a task that is repeated makes the same requests with the same numbers. Called by `sending`.
"""

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

from pyspark_curlew.outgoing import frame_of, portions


class Portion(NamedTuple):
    """A request frame. `seq`: the number of its first message in this queue."""

    seq: int
    messages: int
    frame: memoryview


class Outbox:
    """What waits for one queue. Sizes as in `portions`."""

    def __init__(self, max_messages: int, max_bytes: int) -> None:
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._rest: pa.Array | None = None
        self._seq = 0

    def add(self, records: pa.Array) -> Iterator[Portion]:
        """Take records; give the portions that are full."""
        if self._rest is not None:
            records = pa.concat_arrays([self._rest, records])
        ranges = portions(records, self._max_messages, self._max_bytes)
        first, last = ranges[-1]
        if last - first < self._max_messages:
            ranges.pop()
            self._rest = records.slice(first)
        else:
            self._rest = None
        for begin, end in ranges:
            yield self._portion(records, begin, end)

    def rest(self) -> Iterator[Portion]:
        """What is left, at the end of the task."""
        rest, self._rest = self._rest, None
        if rest is not None:
            yield self._portion(rest, 0, len(rest))

    def _portion(self, records: pa.Array, begin: int, end: int) -> Portion:
        portion = Portion(self._seq, end - begin, frame_of(records, begin, end))
        self._seq += portion.messages
        return portion
