"""Which offsets a batch covers, and how they are cut into tasks. Pure functions.

Planning is repeated after a crash and must then give the same tasks: nothing here reads a clock, a
random number or the service. Invariant of `split`: the pieces cover the given ranges exactly,
without overlap. Called by `stream` and `batch`.
"""

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Final, TypeAlias

from pyspark.sql.datasource import InputPartition

from pyspark_curlew.reading.offsets import Positions, TaskLimits, TopicQueue


@dataclass(frozen=True)
class QueueRange(InputPartition):
    """Offsets `start` (included) to `end` (excluded) of one queue: the work of one task."""

    topic: str
    queue: int
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start

    @property
    def ranges(self) -> "tuple[QueueRange, ...]":
        """What the task reads: as of `QueueRanges`."""
        return (self,)


@dataclass(frozen=True)
class QueueRanges(InputPartition):
    """A few messages of each of several queues, whose rows one task gives in this order."""

    ranges: tuple[QueueRange, ...]


Task: TypeAlias = QueueRange | QueueRanges
QUEUES_PER_TASK_MAX: Final = 8
"""A task asks for all of them at once, each on a connection of its own."""


@dataclass(frozen=True, slots=True)
class LostRange:
    """Offsets that should have been read and cannot be, with the reason in words."""

    topic: str
    queue: int
    start: int
    end: int
    reason: str

    def __str__(self) -> str:
        return (
            f"topic {self.topic!r} queue {self.queue}: offsets [{self.start}, {self.end}) are gone"
            f" ({self.reason}). The query would skip {self.end - self.start} messages."
        )


def limit_rows(start: Positions, end: Positions, rows: int) -> dict[TopicQueue, int]:
    """Move `end` back so that at most `rows` messages lie between, in proportion to the backlogs.

    Every queue with a backlog advances by at least one message, so that none waits for ever behind
    a large one. With fewer rows than such queues, the queues take turns: the sum of the start
    offsets, which grows by `rows` with each batch, says which is first.
    """
    backlog = {key: end[key] - start[key] for key in sorted(end) if end[key] > start[key]}
    if sum(backlog.values()) <= rows:
        return dict(end)
    if len(backlog) > rows:
        shares = dict.fromkeys(_in_turn(list(backlog), sum(start.values()), rows), 1)
    else:
        shares = _proportional(backlog, rows)
    return {key: start[key] + shares.get(key, 0) if key in backlog else end[key] for key in end}


def _in_turn(keys: Sequence[TopicQueue], first: int, count: int) -> list[TopicQueue]:
    return [keys[(first + step) % len(keys)] for step in range(count)]


def _proportional(backlog: Mapping[TopicQueue, int], rows: int) -> dict[TopicQueue, int]:
    """One message each, the rest by largest remainder; the shares add up to `rows`."""
    spare = rows - len(backlog)
    waiting = sum(backlog.values()) - len(backlog)
    shares = {key: 1 + (size - 1) * spare // waiting for key, size in backlog.items()}
    by_remainder = sorted(backlog, key=lambda key: -((backlog[key] - 1) * spare % waiting))
    for key in by_remainder[: rows - sum(shares.values())]:
        shares[key] += 1
    return shares


def limit_bytes(
    start: Positions, end: Positions, averages: Mapping[TopicQueue, int], size: int
) -> dict[TopicQueue, int]:
    """Move `end` back so that about `size` bytes lie between, in proportion to the backlogs.

    `averages` are the bytes of a message in each queue. Every queue with a backlog advances by at
    least one message, however small `size` is.
    """
    waiting = [key for key in sorted(end) if end[key] > start[key]]
    total = sum((end[key] - start[key]) * averages[key] for key in waiting)
    if total <= size:
        return dict(end)
    limited = dict(end)
    for key in waiting:
        limited[key] = start[key] + max(1, (end[key] - start[key]) * size // total)
    return limited


def ranges_between(start: Positions, end: Positions) -> list[QueueRange]:
    """The non-empty ranges from `start` to `end`, in the order of topic and queue."""
    return [
        QueueRange(key.topic, key.queue, start[key], end[key])
        for key in sorted(end)
        if end[key] > start[key]
    ]


def split(ranges: Sequence[QueueRange], max_records: int, min_pieces: int = 1) -> list[QueueRange]:
    """Cut ranges into near-equal pieces of at most `max_records` (0: any), queues by turns.

    With fewer than `min_pieces`, the range with the largest pieces is cut once more, and so on, as
    long as there are records. The order of the result matters for the first wave of tasks: it
    spreads over the queues, and so over nodes.
    """
    counts = [1 if max_records == 0 else -(-whole.size // max_records) for whole in ranges]
    largest = [
        (-whole.size / count, index)
        for index, (whole, count) in enumerate(zip(ranges, counts, strict=True))
    ]
    heapq.heapify(largest)
    for _ in range(min(min_pieces, sum(whole.size for whole in ranges)) - sum(counts)):
        _, index = largest[0]
        counts[index] += 1
        heapq.heapreplace(largest, (-ranges[index].size / counts[index], index))
    pieces = [_pieces(whole, count) for whole, count in zip(ranges, counts, strict=True)]
    return [piece for wave in zip_longest(*pieces) for piece in wave if piece is not None]


def plan_tasks(ranges: Sequence[QueueRange], limits: TaskLimits) -> list[Task]:
    """Cut ranges above `max_records` (0: none), and put together those below `min_records`."""
    most, together, tasks = limits
    return bundle(split(ranges, most, tasks), min(together, most) if most else together, tasks)


def bundle(pieces: Sequence[QueueRange], messages: int, min_tasks: int = 1) -> list[Task]:
    """Have one task read small ranges of several queues, together at most so many messages.

    A task costs about ten milliseconds of processor time, a pull of a few messages less than one.
    Ranges that are too large, and those of a queue that is cut into several, stay tasks of their
    own, and come first. With fewer than `min_tasks` afterwards nothing is put together.
    """
    cuts = Counter((piece.topic, piece.queue) for piece in pieces)
    tasks: list[Task] = []
    bundles: list[list[QueueRange]] = []
    room = 0
    for piece in pieces:
        if piece.size > messages or cuts[piece.topic, piece.queue] > 1:
            tasks.append(piece)
            continue
        if piece.size > room or len(bundles[-1]) == QUEUES_PER_TASK_MAX:
            bundles.append([])
            room = messages
        bundles[-1].append(piece)
        room -= piece.size
    tasks += [QueueRanges(tuple(each)) if len(each) > 1 else each[0] for each in bundles]
    return tasks if len(tasks) >= min_tasks else list(pieces)


def _pieces(whole: QueueRange, count: int) -> list[QueueRange]:
    cuts = [whole.start + whole.size * index // count for index in range(count + 1)]
    return [
        QueueRange(whole.topic, whole.queue, cuts[index], cuts[index + 1]) for index in range(count)
    ]


def clamp(
    ranges: Iterable[QueueRange], earliest: Positions, latest: Positions
) -> tuple[list[QueueRange], list[LostRange]]:
    """Divide the ranges into what can be read now and what is lost."""
    readable: list[QueueRange] = []
    lost: list[LostRange] = []
    for whole in ranges:
        key = TopicQueue(whole.topic, whole.queue)
        if key not in latest or key not in earliest:
            lost.append(_loss(whole, whole.start, whole.end, "the queue no longer exists"))
            continue
        low = min(max(whole.start, earliest[key]), whole.end)
        high = max(min(whole.end, latest[key]), low)
        if low > whole.start:
            reason = f"earliest is {earliest[key]}; retention or deletion"
            lost.append(_loss(whole, whole.start, low, reason))
        if high < whole.end:
            reason = f"latest is {latest[key]}; the queue was cut or made anew"
            lost.append(_loss(whole, high, whole.end, reason))
        if high > low:
            readable.append(QueueRange(whole.topic, whole.queue, low, high))
    return readable, lost


def narrow(tasks: Iterable[Task], readable: Iterable[QueueRange]) -> list[Task]:
    """The same tasks with what is `readable` of their ranges, if only nothing."""
    bounds = {(whole.topic, whole.queue): (whole.start, whole.end) for whole in readable}

    def part(piece: QueueRange) -> QueueRange:
        low, high = bounds.get((piece.topic, piece.queue), (piece.start, piece.start))
        start = min(max(piece.start, low), piece.end)
        return replace(piece, start=start, end=max(start, min(piece.end, high)))

    return [
        part(task)
        if isinstance(task, QueueRange)
        else replace(task, ranges=tuple(part(piece) for piece in task.ranges))
        for task in tasks
    ]


def _loss(whole: QueueRange, start: int, end: int, reason: str) -> LostRange:
    return LostRange(whole.topic, whole.queue, start, end, reason)


def cut_queues(begin: Positions, latest: Positions) -> list[str]:
    """Say which queues end before the position that the query has already reached, or are gone."""
    findings: list[str] = []
    for key, position in sorted(begin.items()):
        queue = f"topic {key.topic!r} queue {key.queue}"
        if key not in latest:
            findings.append(
                f"{queue}: the queue no longer exists, or is not among the chosen ones; it was read"
                f" up to {position}."
            )
        elif latest[key] < position:
            findings.append(
                f"{queue}: was read up to {position} but now ends at {latest[key]}; it was cut or"
                " made anew, and messages may have been lost."
            )
    return findings


def remade_topics(known: Mapping[str, int], present: Mapping[str, int]) -> dict[str, str]:
    """The topics whose generation is another one than the query has read, with words for each."""
    return {
        topic: f"topic {topic!r} was deleted and made anew (generation {known[topic]} before, now"
        f" {generation}); messages of the earlier one that were not read are lost."
        for topic, generation in sorted(present.items())
        if known.get(topic, generation) != generation
    }
