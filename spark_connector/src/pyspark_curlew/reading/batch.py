"""The batch reader: a range of offsets, fixed once on the driver, and reading it.

The range does not grow while the query runs, however often Spark asks for the tasks. Called by
Spark: `partitions` on the driver, `read` on the executors.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from pyspark_curlew.errors import report_loss
from pyspark_curlew.http.client import CurlewClient
from pyspark_curlew.options import SourceOptions
from pyspark_curlew.reading.catalog import Catalog
from pyspark_curlew.reading.planning import Task, clamp, plan_tasks, ranges_between
from pyspark_curlew.reading.positions_found import resolve

if TYPE_CHECKING:
    import pyarrow as pa


class CurlewBatchReader(DataSourceReader):
    """Topics between two bounds. Holds plain values only: Spark pickles it for the executors."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._tasks: list[Task] | None = None

    def partitions(self) -> Sequence[Task]:
        if self._tasks is None:
            self._tasks = self._plan()
        return self._tasks

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        from pyspark_curlew.reading.pulling import read_range

        if not isinstance(partition, Task):
            return iter(())  # Spark's stand-in for no tasks at all
        return read_range(partition, self._options, CurlewClient(self._options.http))

    def _plan(self) -> list[Task]:
        options = self._options
        found = Catalog(options, CurlewClient(options.http.for_load)).lookups()
        start = resolve(options.starting, found, "startingOffsets")
        end = resolve(options.ending, found, "endingOffsets")
        for key in start:
            end[key] = max(start[key], end[key])
        readable, lost = clamp(ranges_between(start, end), found.earliest, found.latest)
        report_loss([str(part) for part in lost], fail=options.fail_on_data_loss)
        return plan_tasks(readable, options.tasks)
