"""The Spark connector against what this Spark can do at all: `make bench-spark`, some minutes.

Everything runs in one session (local[2], noop sink, messages of 1 KiB), round by round in turn, so
that a ratio compares like with like; medians count, for they scatter less than the best rounds,
which are printed beside them. What is written between two reads may let go of what is read. The
upper bound yields ready RecordBatches without any service, and is what is written; the twin pulls
from the same node and yields tuples. A sink that drops what it gets says what Spark leaves a write.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]
import urllib3
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType
from pyspark_curlew import register
from pyspark_curlew.http.client import CurlewClient
from pyspark_curlew.http.http_options import HTTP_NAMES, read_http_options
from pyspark_curlew.option_reader import OptionReader
from pyspark_curlew.reading.schema import source_schema
from pyspark_curlew.source import CurlewDataSource
from pyspark_curlew.writing.encode import encode_records, frame_of
from typing_extensions import override

TOPIC = "bench"
QUEUES = 4
BODY = b"x" * 1024
PORTION = 4096
TURNS = 6
BATCHES = 18
"""In each turn; the first third warms up."""
PROBE_BYTES = 256 * 2**20
PAGE_BYTES = 4096


class Rate(NamedTuple):
    """What a row of the table measures."""

    median: float
    best: float
    unit: str


class Target(NamedTuple):
    """What a ratio should be at least, or at most."""

    value: float
    is_most: bool = False


class Ready(DataSource):
    """The upper bound: batches in memory, the same columns as ours."""

    @classmethod
    @override
    def name(cls) -> str:
        return "bench_ready"

    @override
    def schema(self) -> StructType:
        return source_schema(include_properties=False)

    @override
    def reader(self, schema: StructType) -> DataSourceReader:
        return ReadyReader(int(self.options["rows"]))


class ReadyReader(DataSourceReader):
    """One batch, made once for each task, over and over."""

    def __init__(self, rows: int) -> None:
        self._rows = rows

    @override
    def partitions(self) -> list[InputPartition]:
        return [InputPartition(self._rows // QUEUES) for _ in range(QUEUES)]

    @override
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        moment = pa.timestamp("us", "UTC")
        kinds = {
            "key": (pa.binary(), b"k"),
            "value": (pa.binary(), BODY),
            "topic": (pa.string(), TOPIC),
            "queue": (pa.int32(), 0),
            "offset": (pa.int64(), 0),
            "timestamp": (moment, 0),
            "born_timestamp": (moment, 0),
            "message_id": (pa.string(), "0" * 34),
            "tag": (pa.string(), None),
            "partition": (pa.int32(), 0),
        }
        arrays = [pa.array([value] * PORTION, kind) for kind, value in kinds.values()]
        whole = pa.RecordBatch.from_arrays(arrays, list(kinds))
        left = int(partition.value)
        while left > 0:
            yield whole.slice(0, left)
            left -= PORTION


class Dropping(DataSource):
    """A sink that drops what it gets."""

    @classmethod
    @override
    def name(cls) -> str:
        return "bench_dropping"

    @override
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return DroppingWriter()


class DroppingWriter(DataSourceArrowWriter):
    """Looks at no row."""

    @override
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()


class Tuples(CurlewDataSource):
    """Our source, with each row as a Python tuple."""

    @classmethod
    @override
    def name(cls) -> str:
        return "bench_tuples"

    @override
    def reader(self, schema: StructType) -> DataSourceReader:  # type: ignore[override]
        return TupleReader(super().reader(schema))


class TupleReader(DataSourceReader):
    """Our reader, unpacked row by row."""

    def __init__(self, inner: DataSourceReader) -> None:
        self._inner = inner

    @override
    def partitions(self) -> list[InputPartition]:
        return list(self._inner.partitions())

    @override
    def read(self, partition: InputPartition) -> Iterator[tuple[object, ...]]:
        for batch in self._inner.read(partition):
            assert isinstance(batch, pa.RecordBatch)
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def fill(url: str, rows: int) -> None:
    """Store `rows` messages of 1 KiB with a key, spread over the queues."""
    client = CurlewClient(read_http_options(OptionReader({"endpoint": url}, HTTP_NAMES)))
    put_topics(url)
    part = pa.array([BODY] * 1000, pa.binary())
    keys = pa.array([b"k%d" % number for number in range(1000)], pa.binary())
    frame = frame_of([encode_records(TOPIC, part, keys, None, None)])
    for number in range(rows // 1000):
        client.send(TOPIC, number % QUEUES, frame)


def put_topics(url: str) -> None:
    """Make the topic to read and the one to write."""
    for name in (TOPIC, f"{TOPIC}-copy"):
        headers = {"Content-Type": "application/json"}
        body = json.dumps({"queues": QUEUES})
        address = f"{url}/v1/topics/{name}"
        answer = urllib3.request("PUT", address, body=body, headers=headers)
        assert answer.status in {200, 201}, answer.data


def seconds(work: Callable[[], object]) -> float:
    """How long `work` takes."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def times_of(works: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """The times of each, all taking turns; a round before them warms up.

    What one leaves to be written to the disk is written before the next one begins.
    """
    found: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds + 1):
        for name, work in works.items():
            os.sync()
            found[name].append(seconds(work))
    return {name: times[1:] for name, times in found.items()}


def drain(frame: DataFrame) -> None:
    """Compute all rows and drop them."""
    frame.write.format("noop").mode("overwrite").save()


def new_page(folder: Path) -> float:
    """What a page costs that a file takes of the machine's free memory, in microseconds.

    On a virtual machine whose host takes free memory back it may be ten times what it is elsewhere,
    and a million messages of 1 KiB take 275,000 pages.
    """
    piece = os.urandom(2**20)
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        taken = seconds(lambda: [file.write(piece) for _ in range(PROBE_BYTES // len(piece))])
    return taken / (PROBE_BYTES // PAGE_BYTES) * 1e6


def small_batches(streams: dict[str, DataFrame], folder: Path) -> dict[str, list[float]]:
    """How long each micro-batch of a few rows takes, in seconds, all streams taking turns."""
    found: dict[str, list[float]] = {name: [] for name in streams}
    for turn in range(TURNS):
        for name, stream in streams.items():
            found[name] += batch_times(stream, folder / f"{name}-{turn}")
    return found


def batch_times(stream: DataFrame, folder: Path) -> list[float]:
    """How long each micro-batch of a new query takes, in seconds."""
    query = (
        stream.writeStream.format("noop")
        .option("checkpointLocation", str(folder))
        .trigger(processingTime="0 seconds")
        .start()
    )
    try:
        deadline = time.monotonic() + 120
        while query.lastProgress is None or query.lastProgress.batchId < BATCHES:
            if time.monotonic() > deadline or not query.isActive:
                raise RuntimeError(f"the query came to {query.lastProgress}; {query.exception()}")
            time.sleep(0.1)
        return [
            progress.durationMs["triggerExecution"] / 1000
            for progress in query.recentProgress
            if progress.batchId > BATCHES // 3
        ]
    finally:
        query.stop()


def session(folder: Path) -> SparkSession:
    """A Spark of two threads that knows what is compared, set as the connector's README says."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.local.dir", str(folder / "spark"))
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "2500")
        .config("spark.sql.execution.arrow.maxBytesPerBatch", "2147483647")
        .getOrCreate()
    )
    register(spark)
    spark.dataSource.register(Ready)
    spark.dataSource.register(Dropping)
    spark.dataSource.register(Tuples)
    return spark


def line(name: str, rate: Rate, ratio: float, target: Target) -> str:
    """One row of the table."""
    reached = ratio <= target.value if target.is_most else ratio >= target.value
    sign = "<=" if target.is_most else ">="
    verdict = "reached" if reached else "MISSED"
    numbers = f"{rate.median:>12,.3f} (best {rate.best:>12,.3f}) {rate.unit:<7} {ratio:>6.2f}"
    return f"{name:<34} {numbers}  {sign} {target.value:<5} {verdict}"


def measure(rows: int, rounds: int, folder: Path, url: str) -> list[str]:
    """The table."""
    page_before = new_page(folder)
    fill(url, rows)
    spark = session(folder)
    try:
        ours = spark.read.format("curlew").options(endpoint=url, topic=TOPIC)
        tuples = spark.read.format("bench_tuples").options(endpoint=url, topic=TOPIC)
        ready = spark.read.format("bench_ready").options(rows=str(rows))
        rows_to_write = ready.load().select("value")
        dropping = rows_to_write.write.format("bench_dropping").mode("append")
        copy = rows_to_write.write.format("curlew").mode("append")
        times = times_of(
            {
                "ready": lambda: drain(ready.load()),
                "ours": lambda: drain(ours.load()),
                "tuples": lambda: drain(tuples.load()),
                "sink": lambda: copy.options(endpoint=url, topic=f"{TOPIC}-copy").save(),
                "dropping": dropping.save,
            },
            rounds,
        )
        rate = spark.readStream.format("rate-micro-batch").options(rowsPerBatch="4").load()
        stream = spark.readStream.format("curlew").options(
            endpoint=url, topic=TOPIC, startingOffsets="earliest", maxOffsetsPerTrigger="4"
        )
        small = small_batches({"theirs": rate, "ours": stream.load()}, folder)
    finally:
        spark.stop()
    page_after = new_page(folder)
    rate_of = {
        name: Rate(rows / median(taken), rows / min(taken), "rows/s")
        for name, taken in times.items()
    }
    bound, read, write = rate_of["ready"], rate_of["ours"], rate_of["sink"]
    dropped = rate_of["dropping"]
    batch = Rate(median(small["ours"]), min(small["ours"]), "s")
    return [
        f"{rows:,} messages of 1 KiB, medians of {rounds} rounds in turn;"
        f" a new page of memory took {page_before:.1f} us before, {page_after:.1f} us after",
        f"the bound {bound.median:,.0f} rows/s (best {bound.best:,.0f}),"
        f" a sink that drops all {dropped.median:,.0f} (best {dropped.best:,.0f}),"
        f" of which the write is {write.median / dropped.median:.2f}",
        line("read, to upper bound", read, read.median / bound.median, Target(0.55)),
        line("read, to tuples", read, read.median / rate_of["tuples"].median, Target(2.3)),
        line(
            "small micro-batch, to rate source",
            batch,
            batch.median / median(small["theirs"]),
            Target(1.2, is_most=True),
        ),
        line("write, to upper bound", write, write.median / bound.median, Target(0.25)),
    ]
