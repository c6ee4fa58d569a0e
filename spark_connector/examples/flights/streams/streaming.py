"""The Spark side: mean departure delay by carrier and month, as a streaming aggregation.

`Trigger.AvailableNow` reads what the topic holds, in several micro-batches, and ends. The sums are
whole numbers, so the result does not depend on the order in which Spark adds them.
"""

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everybody gives it
from pyspark.sql.streaming.query import StreamingQuery
from pyspark_curlew import register

from flights.dataset import Delays, Group
from flights.failures import StageFailed

_BATCHES: Final = 8
_LOOK_S: Final = 1
_BODY: Final = (
    "carrier STRING, month INT, dep_delay INT, flight LONG, tailnum STRING, origin STRING,"
    " dest STRING, time_hour STRING"
)
_TABLE: Final = "flight_delays"


class StreamFailed(StageFailed):
    """The streaming query ended with an error; the text says which."""


@contextmanager
def spark_session(folder: Path) -> Iterator[SparkSession]:
    """A Spark of two threads in this process's JVM, on the loopback address only."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    session = (
        SparkSession.builder.master("local[2]")
        .appName("flights")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.local.dir", str(folder / "spark"))
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .getOrCreate()
    )
    register(session)
    try:
        yield session
    finally:
        session.stop()


def streamed_delays(
    session: SparkSession,
    endpoint: str,
    topic: str,
    messages: int,
    checkpoint: Path,
    on_rows: Callable[[int], None],
) -> dict[Group, Delays]:
    """Read the whole topic as a stream; `on_rows` is told of rows as batches are finished."""
    query = (
        _by_carrier_and_month(flights_of(session, endpoint, topic, messages))
        .writeStream.format("memory")
        .queryName(_TABLE)
        .outputMode("complete")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    follow(query, on_rows)
    return {
        Group(row["carrier"], row["month"]): Delays(
            row["flights"], row["departed"], row["delay_minutes"] or 0
        )
        for row in session.table(_TABLE).collect()
    }


def batch_size(messages: int) -> int:
    """How many of so many messages are in a batch of `flights_of`."""
    return max(1, -(-messages // _BATCHES))


def flights_of(session: SparkSession, endpoint: str, topic: str, messages: int) -> DataFrame:
    """The topic as a stream with one column, `flight`; a few batches for all of it."""
    stream = (
        session.readStream.format("curlew")
        .options(endpoint=endpoint, topic=topic, startingOffsets="earliest")
        .option("maxOffsetsPerTrigger", str(batch_size(messages)))
        .load()
    )
    return stream.select(F.from_json(F.col("value").cast("string"), _BODY).alias("flight"))


def _first_words(text: str) -> str:
    """The connector's own words, which Spark wraps in two stack traces."""
    found = re.search(r"CURLEW_\w+: [^\n]*", text)
    return found.group() if found else text


def _by_carrier_and_month(flights: DataFrame) -> DataFrame:
    return flights.groupBy("flight.carrier", "flight.month").agg(
        F.count("*").alias("flights"),
        F.count("flight.dep_delay").alias("departed"),
        F.sum("flight.dep_delay").alias("delay_minutes"),
    )


def follow(query: StreamingQuery, on_rows: Callable[[int], None]) -> None:
    """Wait for the end of the query, telling of each finished batch once."""
    try:
        _follow(query, on_rows)
    except StreamingQueryException as failure:
        raise StreamFailed(_first_words(str(failure))) from None


def _follow(query: StreamingQuery, on_rows: Callable[[int], None]) -> None:
    """Wait for the end of the query, telling of each finished batch once."""
    told = -1
    ended = False
    while not ended:
        ended = bool(query.awaitTermination(_LOOK_S))
        for progress in query.recentProgress:
            if progress.batchId > told:
                told = progress.batchId
                on_rows(progress.numInputRows)
