"""The stream reader: which offsets a micro-batch covers (driver) and reading them (executors).

Spark calls, for each batch: `latestOffset`, then, once the end is in the checkpoint, `partitions`,
then `read` on the executors. State in `self` lives as long as the query on the driver and is not
there on the executors. `stop` is never called. Invariants: `partitions` is a function of start, end
and options; a first batch always pins where it began (see `offsets`), even when it is empty, so
that messages sent between a first start and a restart are not lost to `startingOffsets=latest`.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from pyspark_curlew.errors import ConnectorError, Unsupported, report_loss
from pyspark_curlew.http.client import CurlewClient, calls_for
from pyspark_curlew.options import SourceOptions
from pyspark_curlew.reading.catalog import Catalog, Standing
from pyspark_curlew.reading.offsets import Positions, StreamOffset, TopicQueue, nested
from pyspark_curlew.reading.planning import (
    Task,
    clamp,
    cut_queues,
    limit_bytes,
    limit_rows,
    narrow,
    plan_tasks,
    ranges_between,
    remade_topics,
)
from pyspark_curlew.reading.positions_found import resolve

if TYPE_CHECKING:
    import pyarrow as pa

_LOG: Final = logging.getLogger("pyspark_curlew")
POLL_PAUSE_MS: Final = 50
"""Between two looks where the service cannot wait: at no topic, or at too many for one call."""


class CurlewStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Topics as a stream. Holds plain values only: Spark pickles it for the executors."""

    def __init__(
        self,
        options: SourceOptions,
        sleep: Callable[[float], None] = time.sleep,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._sleep = sleep
        self._now = now
        self._last_batch_s: float | None = None
        self._initial: StreamOffset | None = None
        self._target: Positions | None = None
        """With Trigger.AvailableNow: the end that must not be passed."""
        self._newest: Positions | None = None
        self._averages: Mapping[TopicQueue, int] = {}
        self._told: Positions | None = None
        """What the consumer group was told last."""
        self._idle_state: str | None = None
        """The service's state in which there was nothing behind `_idle_at`."""
        self._idle_at: Positions | None = None
        self._found: tuple[dict[str, object], Standing] | None = None
        """The end of the newest batch, and where the service stood when it was found."""

    def initialOffset(self) -> dict[str, object]:  # noqa: N802 - Spark's name
        """Where a new query begins. Spark asks more than once, and must get the same each time."""
        if self._initial is None:
            found = self._catalog().lookups()
            start = resolve(self._options.starting, found, "startingOffsets")
            self._initial = StreamOffset(start, fresh=True)
        return self._initial.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        rows = self._options.trigger.max_offsets
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        catalog = self._catalog()
        topics = catalog.topics()
        # A topic that is gone is found out, as a loss, where the query's position is known.
        self._target = catalog.standing(topics, topics).latest

    def latestOffset(self, start: dict[str, object], limit: ReadLimit) -> dict[str, object]:  # noqa: N802
        """The end of the next batch; `start` itself when there is nothing to read."""
        begin = StreamOffset.from_json(start)
        self._tell_group(begin)
        standing, end = self._available(begin)
        if not begin.fresh and (end == begin.positions or not self._is_enough(begin, end)):
            return start
        moved = self._starts_elsewhere(begin, end, standing)
        positions = {**begin.positions, **moved}
        limited = self._limited(positions, end, limit, standing)
        self._last_batch_s = self._now()
        begun_at = positions if begin.fresh else moved
        known = {**begin.generations, **standing.generations}
        tasks = self._options.tasks
        found = StreamOffset(limited, begun_at, generations=known, tasks=tasks).to_json()
        self._found = found, standing
        return found

    def reportLatestOffset(self) -> dict[str, object] | None:  # noqa: N802 - Spark's name
        """The ends of the queues as last seen, and the bytes of a message; Spark's progress shows
        them, and `progress` makes metrics of them."""
        if self._newest is None:
            return None
        document = StreamOffset(self._newest).to_json()
        return {**document, "averageBytes": nested(self._averages)}

    def partitions(self, start: dict[str, object], end: dict[str, object]) -> Sequence[Task]:
        """The tasks of the batch from `start` to `end`.

        What is lost leaves gaps in tasks, and empty ones: a repeated batch has the same tasks, or a
        sink would take a task's rows for those that another one has sent.

        The service is asked for a batch whose end is from the checkpoint. Of one that has just been
        found it is known where the service stands; what is lost since then, the tasks notice, for
        a store gives no offset again, be it in a topic that is made anew.
        """
        stop = StreamOffset.from_json(end)
        begin = {**StreamOffset.from_json(start).positions, **stop.begun_at}
        ranges = ranges_between(begin, stop.positions)
        if not ranges:
            return []
        if self._found is not None and self._found[0] == end:
            standing = self._found[1]
        else:
            topics = sorted({whole.topic for whole in ranges})
            standing = self._catalog().standing(topics, topics)
        remade = remade_topics(stop.generations, standing.generations)
        report_loss(list(remade.values()), fail=self._options.fail_on_data_loss)
        there = [whole for whole in ranges if whole.topic not in remade]
        readable, lost = clamp(there, standing.earliest, standing.latest)
        report_loss([str(part) for part in lost], fail=self._options.fail_on_data_loss)
        # Checkpoints from before tasks were kept are from before ranges were put together.
        tasks = plan_tasks(ranges, stop.tasks or self._options.tasks._replace(min_records=0))
        return narrow(tasks, readable) if lost or remade else tasks

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        from pyspark_curlew.reading.pulling import read_range

        assert isinstance(partition, Task)
        return read_range(partition, self._options, self._client())

    def commit(self, end: dict[str, object]) -> None:
        """Nothing to do: Spark says so one batch late, and of the last one not at all."""

    def _tell_group(self, begin: StreamOffset) -> None:
        """Spark asks for the end of the next batch when the one before it is done: the checkpoint
        holds that position, and a group is told of it for those who look at it.

        Of queues that are there: of a topic the service commits all offsets or none.
        """
        group, positions = self._options.consumer_group, begin.positions
        if group is None or not self._options.commit_offsets:
            return
        if begin.fresh or positions == self._told:
            return
        self._told = positions
        if self._newest is not None:
            positions = {key: positions[key] for key in positions if key in self._newest}
        client = self._client()
        for topic, rows in groupby(sorted(positions.items()), lambda row: row[0].topic):
            try:
                client.commit(group, topic, {key.queue: offset for key, offset in rows})
            except ConnectorError as error:  # it would end the query
                _LOG.warning("offsets of topic %r are not committed: %s", topic, error)

    def _available(self, begin: StreamOffset) -> tuple[Standing, dict[TopicQueue, int]]:
        """The end of what may be read, never behind `begin`; waits while there is too little.

        The service waits for us, and answers as soon as a queue has grown: one request a second for
        an idle query, and no delay for a busy one.
        """
        may_wait = self._target is None and not begin.fresh
        wait_ms = self._options.poll_wait_ms if may_wait else 0
        deadline_s = self._now() + wait_ms / 1000
        catalog = self._catalog()
        gone = {key.topic for key in begin.positions}
        topics = catalog.topics()
        # What was seen last, if that was no more than what has been read: nothing to look at twice.
        known = self._idle_state if begin.positions == self._idle_at else None
        while True:
            standing = catalog.standing(topics, gone, known=known, wait_ms=wait_ms)
            self._newest, self._averages = standing.latest, standing.averages
            end = self._reconciled(begin.positions, standing.latest)
            if end == begin.positions:
                self._idle_state, self._idle_at = standing.state, begin.positions
            elif self._is_enough(begin, end):
                return standing, end
            left_ms = round((deadline_s - self._now()) * 1000)
            service_waits = len(calls_for(topics)) == 1
            if wait_ms == 0 or left_ms <= 0 or (service_waits and standing.state == known):
                return standing, end
            if not service_waits:
                self._sleep(POLL_PAUSE_MS / 1000)
            known, wait_ms = standing.state, left_ms

    def _is_enough(self, begin: StreamOffset, end: Positions) -> bool:
        """Whether `minOffsetsPerTrigger` is reached, or `maxTriggerDelay` is over."""
        trigger = self._options.trigger
        if self._target is not None or self._last_batch_s is None or trigger.min_offsets == 0:
            return True
        waiting = sum(max(0, end[key] - begin.positions.get(key, 0)) for key in end)
        delayed_ms = (self._now() - self._last_batch_s) * 1000
        return waiting >= trigger.min_offsets or delayed_ms >= trigger.max_delay_ms

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

    def _starts_elsewhere(
        self, begin: StreamOffset, end: Positions, standing: Standing
    ) -> Positions:
        """Queues that are new, or whose topic was made anew, begin at their earliest offset."""
        remade = remade_topics(begin.generations, standing.generations)
        report_loss(list(remade.values()), fail=self._options.fail_on_data_loss)
        return {
            key: min(standing.earliest.get(key, end[key]), end[key])
            for key in sorted(end)
            if key not in begin.positions or key.topic in remade
        }

    def _limited(
        self, start: Positions, end: Positions, limit: ReadLimit, standing: Standing
    ) -> Positions:
        size = self._options.trigger.max_bytes
        if size is not None:
            end = limit_bytes(start, end, standing.averages, size)
        if isinstance(limit, ReadMaxRows):
            return limit_rows(start, end, limit.max_rows)
        if isinstance(limit, ReadAllAvailable):
            return end
        raise Unsupported(f"the engine asked for a batch limited by {type(limit).__name__}")

    def _catalog(self) -> Catalog:
        return Catalog(self._options, self._client())

    def _client(self) -> CurlewClient:
        return CurlewClient(self._options.http)
