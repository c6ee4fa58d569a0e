"""A windowed stream: departures and delays by airport and week of event time, with a watermark.

Event time is the scheduled hour of the flight. The four queues hold different carriers, so a batch
may be some weeks further in one queue than in another; the watermark allows for that, and not one
row may come too late for its window.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everybody gives it

from flights.streams.streaming import StreamFailed, flights_of, follow

WATERMARK: Final = "60 days"
WEEK_MS: Final = 7 * 86_400_000


class Week(NamedTuple):
    """An airport's week; `start_ms` is epoch milliseconds, a Thursday 0:00 UTC as the epoch."""

    origin: str
    start_ms: int


class Departures(NamedTuple):
    """Whole numbers only, so that two computations can be compared exactly."""

    flights: int
    departed: int
    delay_minutes: int


def streamed_weeks(
    session: SparkSession,
    endpoint: str,
    topic: str,
    messages: int,
    checkpoint: Path,
    on_rows: Callable[[int], None],
) -> dict[Week, Departures]:
    """The last state of every window. In update mode a batch gives the windows it has changed."""
    found: dict[Week, Departures] = {}

    def take(batch: DataFrame, _number: int) -> None:
        found.update(map(_week, batch.collect()))

    query = (
        _windows(flights_of(session, endpoint, topic, messages))
        .writeStream.outputMode("update")
        .foreachBatch(take)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    follow(query, on_rows)
    late = sum(
        operator["numRowsDroppedByWatermark"]
        for progress in query.recentProgress
        for operator in progress["stateOperators"]
    )
    if late:
        raise StreamFailed(f"{late} rows came too late for their windows")
    return found


def _windows(flights: DataFrame) -> DataFrame:
    hour = F.col("flight.time_hour").cast("timestamp")
    return (
        flights.withColumn("hour", hour)
        .withWatermark("hour", WATERMARK)
        .groupBy(F.window("hour", "7 days").alias("week"), "flight.origin")
        .agg(
            F.count("*").alias("flights"),
            F.count("flight.dep_delay").alias("departed"),
            F.sum("flight.dep_delay").alias("delay_minutes"),
        )
        .select(F.unix_millis("week.start").alias("start_ms"), "*")
    )


def _week(row: Row) -> tuple[Week, Departures]:
    departures = Departures(row["flights"], row["departed"], row["delay_minutes"] or 0)
    return Week(row["origin"], row["start_ms"]), departures


def weeks_of(flights: pa.Table) -> dict[Week, Departures]:
    """The same, straight from the rows."""
    hours = pc.strptime(flights["time_hour"], format="%Y-%m-%dT%H:%M:%SZ", unit="ms")
    numbers = pc.divide(hours.cast(pa.int64()), WEEK_MS)
    table = pa.table(
        {"origin": flights["origin"], "week": numbers, "dep_delay": flights["dep_delay"]}
    )
    grouped = table.group_by(["origin", "week"]).aggregate(
        [([], "count_all"), ("dep_delay", "count"), ("dep_delay", "sum")]
    )
    return {
        Week(row["origin"], row["week"] * WEEK_MS): Departures(
            row["count_all"], row["dep_delay_count"], row["dep_delay_sum"] or 0
        )
        for row in grouped.to_pylist()
    }
