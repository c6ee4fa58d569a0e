"""The work of one task: read ranges of queues, most often one, as RecordBatches.

Every offset of a range is either in a batch or reported as lost; nothing is skipped in silence.
Under `filterTags` the service says itself which offsets it could not read.
The range's end was seen by the driver, so the messages are there unless they were removed since.
Called by `stream` on the executors.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_curlew.errors import (
    ProtocolViolation,
    ServiceUnavailable,
    TopicNotFound,
    report_loss,
)
from pyspark_curlew.http.client import CurlewClient, OutOfRange, Pull, Pulled
from pyspark_curlew.options import SourceOptions
from pyspark_curlew.reading.planning import LostRange, QueueRange, Task
from pyspark_curlew.reading.read_ahead import ReadAhead
from pyspark_curlew.wire.columns import decode
from pyspark_curlew.worker_memory import freeze_loaded, keep_freed_memory

_STALLED_PULLS_MAX = 5
_STALLED_WAIT_S = 2


def read_range(
    task: Task, options: SourceOptions, client: CurlewClient
) -> Iterator[pa.RecordBatch]:
    """Yield the messages of the task's ranges, each in order, one after the other."""
    keep_freed_memory()
    firsts = _first_answers(task.ranges, options, client)
    for wanted, first in zip(task.ranges, firsts, strict=True):
        with closing(ReadAhead(wanted, options, client, first)) as ahead:
            yield from _batches(wanted, options, ahead)
    freeze_loaded()


def _first_answers(
    ranges: Sequence[QueueRange], options: SourceOptions, client: CurlewClient
) -> Sequence[Pulled | OutOfRange | None]:
    """To a pull of each range, where there are several; None where it is still to be asked for.

    All of them together have at most `pull_max_bytes`.
    """
    is_simple = all(0 < each.size <= options.pull_max_messages for each in ranges)
    if len(ranges) == 1 or not is_simple:
        return [None] * len(ranges)
    size = max(1, options.pull_max_bytes // len(ranges))
    return client.pull_at_once(
        [Pull(r.topic, r.queue, r.start, r.end, r.size, size, options.filter_tags) for r in ranges]
    )


def _batches(
    wanted: QueueRange, options: SourceOptions, ahead: ReadAhead
) -> Iterator[pa.RecordBatch]:
    position = wanted.start
    stalled = 0
    while position < wanted.end:
        try:
            answer = ahead.pull(position, wait_s=_STALLED_WAIT_S if stalled else 0)
        except TopicNotFound:
            _lose(wanted, options, [(position, wanted.end)], "the topic or queue no longer exists")
            return
        if isinstance(answer, OutOfRange):
            lost_end = _first_readable(answer, position, wanted.end)
            _lose(wanted, options, [(position, lost_end)], _reason(answer))
            position = lost_end
            continue
        batch, gaps, reached = _rows(answer, wanted, position, options)
        _lose(wanted, options, gaps, "the service cannot read them, or they were never stored")
        if batch is not None:
            yield batch
        stalled = stalled + 1 if reached == position else 0
        if stalled > _STALLED_PULLS_MAX:
            raise ServiceUnavailable(
                f"topic {wanted.topic!r} queue {wanted.queue}: nothing comes from offset {position}"
                f" on, though the queue was seen to reach {wanted.end}"
            )
        position = reached


def _first_readable(answer: OutOfRange, position: int, end: int) -> int:
    """Where reading can go on: behind what retention took, or at the end of the range."""
    if position < answer.min_offset:
        return min(answer.min_offset, end)
    return end


def _reason(answer: OutOfRange) -> str:
    return f"the queue now has offsets {answer.min_offset} to {answer.max_offset} (excluded)"


def _rows(
    answer: Pulled, wanted: QueueRange, position: int, options: SourceOptions
) -> tuple[pa.RecordBatch | None, list[tuple[int, int]], int]:
    """The batch, the holes in it, and the offset that is reached by it."""
    if answer.frame.records == 0:
        reached = min(max(answer.next_offset, position), wanted.end)
        if options.filter_tags is not None:
            return None, list(answer.gaps), reached
        return None, [(position, reached)] if reached > position else [], reached
    batch, offsets = decode(
        answer.frame,
        wanted.topic,
        wanted.queue,
        answer.store_id,
        include_properties=options.include_properties,
        include_headers=options.include_headers,
    )
    if offsets[0] < position or (np.diff(offsets) < 1).any():
        raise ProtocolViolation(
            f"topic {wanted.topic!r} queue {wanted.queue}: the answer to a pull from {position}"
            " holds offsets out of order"
        )
    inside = int(np.searchsorted(offsets, wanted.end))
    reached = min(max(answer.next_offset, int(offsets[-1]) + 1), wanted.end)
    if options.filter_tags is None:
        gaps = _gaps(offsets[:inside], position, reached)
    else:
        gaps = list(answer.gaps)
    return (batch.slice(0, inside) if inside else None), gaps, reached


def _gaps(offsets: NDArray[np.int64], start: int, end: int) -> list[tuple[int, int]]:
    """The holes that the ascending `offsets` leave between `start` and `end`."""
    if len(offsets) == end - start:
        return []
    before = np.concatenate(([start - 1], offsets)) + 1
    after = np.concatenate((offsets, [end]))
    holes = np.flatnonzero(after > before)
    return [(int(before[index]), int(after[index])) for index in holes]


def _lose(
    wanted: QueueRange, options: SourceOptions, gaps: list[tuple[int, int]], reason: str
) -> None:
    lost = [str(LostRange(wanted.topic, wanted.queue, start, end, reason)) for start, end in gaps]
    report_loss(lost, fail=options.fail_on_data_loss)
