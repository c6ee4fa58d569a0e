"""What topic `orders` of a node holds, read by the connector."""

from typing import Any

from pyspark_curlew.options import parse_batch_options
from pyspark_curlew.reading.batch import CurlewBatchReader


def stored_at(endpoint: str, column: str) -> list[Any]:
    """One column of all rows."""
    reader = CurlewBatchReader(parse_batch_options({"endpoint": endpoint, "topic": "orders"}))
    return [
        value
        for task in reader.partitions()
        for part in reader.read(task)
        for value in part.column(column).to_pylist()
    ]


def values_at(endpoint: str) -> list[int]:
    """The bodies as numbers, sorted."""
    return sorted(map(int, stored_at(endpoint, "value")))
