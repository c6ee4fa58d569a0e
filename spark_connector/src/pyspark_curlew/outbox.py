"""Records of one queue on their way: full portions go out, the rest waits for more.

Where a portion ends depends on the records alone, not on the batches in which Spark hands them
over; so a task that is repeated makes the same requests with the same numbers. Called by `sending`.
"""

from collections.abc import Generator, Iterator
from typing import NamedTuple

import pyarrow as pa

from pyspark_curlew.outgoing import frame_of, portions


class Portion(NamedTuple):
    """A request frame, in pieces. `seq`: the number of its first message in this queue."""

    seq: int
    messages: int
    frame: tuple[bytes, memoryview]


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
            records = yield from self._with_rest(self._rest, records)
        yield from self._full(records)

    def _with_rest(self, rest: pa.Array, records: pa.Array) -> Generator[Portion, None, pa.Array]:
        """Give the portions that begin in the rest; return the records behind them.

        No more is copied than can belong to those portions.
        """
        before = len(rest)
        joined = pa.concat_arrays([rest, records.slice(0, self._max_messages)])
        self._rest = None
        for begin, end in portions(joined, self._max_messages, self._max_bytes):
            if begin >= before:
                return records.slice(begin - before)
            if end == len(joined) < begin + self._max_messages:
                self._rest = joined.slice(begin)
                return records.slice(len(records))
            yield self._portion(joined, begin, end)
        return records.slice(len(joined) - before)

    def _full(self, records: pa.Array) -> Iterator[Portion]:
        for begin, end in portions(records, self._max_messages, self._max_bytes):
            if end == len(records) < begin + self._max_messages:
                self._rest = records.slice(begin)
                return
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
