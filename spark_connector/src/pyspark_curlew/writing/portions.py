"""Records of one queue on their way: full portions go out, the rest waits for more.

Where a portion ends depends on the records alone, not on the batches in which Spark hands them
over; so a task that is repeated makes the same requests with the same numbers. A portion has at
most the messages and bytes that are allowed, or one message. Records of several batches go into
one request from where they are. Called by `write_task`.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_curlew.wire.sources import Buffer
from pyspark_curlew.writing.encode import fitting, frame_of, total_bytes

_PARTS_MAX: Final = 64
"""Of one portion; more are joined. One system call takes 1,024 (IOV_MAX of Linux)."""


Times = NDArray[np.int64] | None
"""Delivery times as in a frame; None: all now."""


class Portion(NamedTuple):
    """A request frame, in pieces. `seq`: the number of its first message in this queue."""

    seq: int
    messages: int
    frame: tuple[Buffer, ...]


class Outbox:
    """What waits for one queue. `max_bytes` counts records, without what a frame adds."""

    def __init__(self, max_messages: int, max_bytes: int) -> None:
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._waiting: list[pa.Array] = []
        self._times: list[Times] = []
        self._messages = 0
        self._bytes = 0
        self._seq = 0

    def add(self, records: pa.Array, times: Times = None) -> Iterator[Portion]:
        """Take records, and when each is delivered; give the portions that are full."""
        while len(records):
            room = self._max_messages - self._messages, self._max_bytes - self._bytes
            count = fitting(records, *room)
            if not self._messages:
                count = max(count, 1)
            if count:
                self._put(records.slice(0, count), None if times is None else times[:count])
            if count == len(records) and self._messages < self._max_messages:
                return
            yield self._portion()
            records, times = records.slice(count), None if times is None else times[count:]

    def rest(self) -> Iterator[Portion]:
        """What is left, at the end of the task."""
        if self._waiting:
            yield self._portion()

    def _put(self, records: pa.Array, times: Times) -> None:
        self._waiting.append(records)
        self._times.append(times)
        self._messages += len(records)
        self._bytes += total_bytes(records)
        if len(self._waiting) > _PARTS_MAX:
            self._times = [_joined(self._times, self._waiting)]
            self._waiting = [pa.concat_arrays(self._waiting)]

    def _portion(self) -> Portion:
        portion = Portion(self._seq, self._messages, frame_of(self._waiting, self._times))
        self._seq += self._messages
        self._waiting, self._times, self._messages, self._bytes = [], [], 0, 0
        return portion


def _joined(times: list[Times], parts: list[pa.Array]) -> Times:
    if all(each is None for each in times):
        return None
    rows = zip(times, parts, strict=True)
    return np.concatenate(
        [np.zeros(len(part), dtype=np.int64) if each is None else each for each, part in rows]
    )
