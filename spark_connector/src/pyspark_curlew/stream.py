"""The stream reader: which offsets a micro-batch covers (driver) and reading them (executors).

Spark calls, for each batch: `latestOffset`, then, once the end is in the checkpoint, `partitions`,
then `read` on the executors. State in `self` lives as long as the query on the driver and is not
there on the executors. `stop` is never called. Invariants: `partitions` is a function of start, end
and options; a first batch always pins where it began (see `offsets`), even when it is empty, so
that messages sent between a first start and a restart are not lost to `startingOffsets=latest`.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from pyspark_curlew.client import CurlewClient
from pyspark_curlew.errors import Unsupported
from pyspark_curlew.loss import report_loss
from pyspark_curlew.offsets import Positions, StreamOffset, TopicQueue, resolve_start
from pyspark_curlew.options import SourceOptions
from pyspark_curlew.planning import (
    QueueRange,
    clamp,
    cut_queues,
    limit_rows,
    ranges_between,
    split,
)

if TYPE_CHECKING:
    import pyarrow as pa

POLL_PAUSE_MS: Final = 50
"""Between two looks at an idle topic. Spark itself would ask some 80 times a second."""


class CurlewStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One topic as a stream. Holds plain values only: Spark pickles it for the executors."""

    def __init__(self, options: SourceOptions, sleep: Callable[[float], None] = time.sleep) -> None:
        self._options = options
        self._sleep = sleep
        self._initial: StreamOffset | None = None
        self._target: Positions | None = None
        """With Trigger.AvailableNow: the end that must not be passed."""
        self._newest: Positions | None = None

    def initialOffset(self) -> dict[str, object]:  # noqa: N802 - Spark's name
        """Where a new query begins. Spark asks more than once, and must get the same each time."""
        if self._initial is None:
            topic = self._options.topic
            earliest, latest = self._offsets("earliest"), self._offsets("latest")
            start = resolve_start(topic, self._options.starting_offsets, earliest, latest)
            self._initial = StreamOffset(start, fresh=True)
        return self._initial.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        rows = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._target = self._offsets("latest")

    def latestOffset(self, start: dict[str, object], limit: ReadLimit) -> dict[str, object]:  # noqa: N802
        """The end of the next batch; `start` itself when there is nothing to read."""
        begin = StreamOffset.from_json(start)
        end = self._available(begin)
        added = self._starts_of_added_queues(begin.positions, end)
        positions = {**begin.positions, **added}
        limited = _limited(positions, end, limit)
        if begin.fresh:
            return StreamOffset(limited, begun_at=positions).to_json()
        if limited == begin.positions:
            return start
        return StreamOffset(limited, begun_at=added).to_json()

    def reportLatestOffset(self) -> dict[str, object] | None:  # noqa: N802 - Spark's name
        """The ends of the queues as last seen; Spark's progress shows them for the lag."""
        return None if self._newest is None else StreamOffset(self._newest).to_json()

    def partitions(
        self, start: dict[str, object], end: dict[str, object]
    ) -> Sequence[InputPartition]:
        """The tasks of the batch from `start` to `end`."""
        stop = StreamOffset.from_json(end)
        begin = {**StreamOffset.from_json(start).positions, **stop.begun_at}
        ranges = ranges_between(begin, stop.positions)
        if not ranges:
            return []
        readable, lost = clamp(ranges, self._offsets("earliest"), self._offsets("latest"))
        report_loss([str(part) for part in lost], fail=self._options.fail_on_data_loss)
        return split(readable, self._options.max_records_per_partition)

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        from pyspark_curlew.pulling import read_range

        assert isinstance(partition, QueueRange)
        return read_range(partition, self._options, self._client())

    def commit(self, end: dict[str, object]) -> None:
        """Nothing to do: the checkpoint holds the position."""

    def _available(self, begin: StreamOffset) -> dict[TopicQueue, int]:
        """The end of what may be read, never behind `begin`; waits while there is nothing new."""
        may_wait = self._target is None and not begin.fresh
        pauses = self._options.poll_wait_ms // POLL_PAUSE_MS if may_wait else 0
        while True:
            self._newest = self._offsets("latest")
            end = self._reconciled(begin.positions, self._newest)
            if end != begin.positions or pauses == 0:
                return end
            self._sleep(POLL_PAUSE_MS / 1000)
            pauses -= 1

    def _reconciled(self, begin: Positions, latest: Positions) -> dict[TopicQueue, int]:
        """`latest` within the target; queues that were cut or are gone are reported as loss."""
        report_loss(cut_queues(begin, latest), fail=self._options.fail_on_data_loss)
        end = dict(begin)
        for key, newest in latest.items():
            position = begin.get(key)
            was_cut = position is not None and newest < position
            if was_cut or self._target is None:
                end[key] = newest
            elif key in self._target:
                end[key] = max(min(newest, self._target[key]), position or 0)
        return end

    def _starts_of_added_queues(self, known: Positions, end: Positions) -> Positions:
        """Queues that were added while the query ran begin at their earliest offset."""
        if known.keys() >= end.keys():
            return {}
        earliest = self._offsets("earliest")
        return {key: earliest[key] for key in end.keys() - known.keys()}

    def _offsets(self, at: str) -> dict[TopicQueue, int]:
        topic = self._options.topic
        by_queue = self._client().offsets(topic, at)
        return {TopicQueue(topic, queue): offset for queue, offset in by_queue.items()}

    def _client(self) -> CurlewClient:
        return CurlewClient(self._options.http)


def _limited(start: Positions, end: Positions, limit: ReadLimit) -> Positions:
    if isinstance(limit, ReadMaxRows):
        return limit_rows(start, end, limit.max_rows)
    if isinstance(limit, ReadAllAvailable):
        return end
    raise Unsupported(f"the engine asked for a batch limited by {type(limit).__name__}")
