"""A driver of its own: joins the stream of flights with the airports and writes the result back.

`python -m flights.streams.joining ENDPOINT TOPIC TARGET FOLDER MESSAGES` ends when what the topic
holds is written. It may be killed at any moment and started again: the checkpoint says which batch
was at work, and the sink stores of a repeated batch only what is missing.
"""

import sys
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.csv
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everybody gives it

from flights.dataset import data_file
from flights.streams.streaming import flights_of, follow, spark_session

COLUMNS: Final = ("carrier", "flight", "tailnum", "origin", "dest", "airport", "zone", "time_hour")
_JOINED: Final = (
    "carrier STRING, flight LONG, tailnum STRING, origin STRING, dest STRING, airport STRING,"
    " zone STRING, time_hour STRING"
)


def main() -> None:
    """Write until the topic is read."""
    endpoint, topic, target, folder, messages = sys.argv[1:]
    with spark_session(Path(folder)) as session:
        joined = _joined(session, flights_of(session, endpoint, topic, int(messages)))
        query = (
            joined.writeStream.format("curlew")
            .options(endpoint=endpoint, topic=target)
            .option("checkpointLocation", f"{folder}/checkpoint-of-the-join")
            .trigger(availableNow=True)
            .start()
        )
        follow(query, lambda _rows: None)


def _joined(session: SparkSession, flights: DataFrame) -> DataFrame:
    """Key and value for the sink. Airports that the table does not have leave nulls."""
    airports = session.createDataFrame(
        airports_table().to_pylist(), "dest STRING, airport STRING, zone STRING"
    )
    rows = flights.select("flight.*").join(F.broadcast(airports), "dest", "left")
    return rows.select(
        F.col("carrier").alias("key"),
        F.to_json(F.struct(*COLUMNS)).alias("value"),
    )


def read_again(session: SparkSession, endpoint: str, target: str) -> pa.Table:
    """All rows that were written, read as a batch."""
    stored = session.read.format("curlew").options(endpoint=endpoint, topic=target).load()
    value = F.from_json(F.col("value").cast("string"), _JOINED).alias("row")
    table: pa.Table = stored.select(value).select("row.*").toArrow()
    return table.select(list(COLUMNS))


def joined_directly(flights: pa.Table) -> pa.Table:
    """The same join, straight from the rows."""
    wanted = [name for name in COLUMNS if name not in {"airport", "zone"}]
    joined = flights.select(wanted).join(airports_table(), "dest", join_type="left outer")
    return joined.select(list(COLUMNS))


def differing_rows(left: pa.Table, right: pa.Table) -> int:
    """How many rows are in one table and not in the other, each counted as often as it is there."""
    if left.num_rows == right.num_rows:
        order = [(name, "ascending") for name in COLUMNS]
        sorted_left, sorted_right = (
            table.sort_by(order).combine_chunks() for table in (left, right.cast(left.schema))
        )
        if sorted_left.equals(sorted_right):
            return 0
    from collections import Counter

    counts = [Counter(map(str, table.to_pylist())) for table in (left, right)]
    return ((counts[0] - counts[1]) + (counts[1] - counts[0])).total()


def airports_table() -> pa.Table:
    """Code, name and time zone of each airport."""
    with data_file("airports.csv").open("rb") as file:
        table = pyarrow.csv.read_csv(file)
    return table.select(["faa", "name", "tzone"]).rename_columns(["dest", "airport", "zone"])


if __name__ == "__main__":
    main()
