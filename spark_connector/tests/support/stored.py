"""What a topic of a node holds, read by the connector."""

from collections.abc import Mapping
from typing import Any

from pyspark_curlew.options import parse_batch_options
from pyspark_curlew.reading.batch import CurlewBatchReader


def rows_at(endpoint: str, topic: str, options: Mapping[str, str] | None = None) -> list[Any]:
    """All rows, as dictionaries."""
    given = {"endpoint": endpoint, "topic": topic, **(options or {})}
    reader = CurlewBatchReader(parse_batch_options(given))
    return [
        row
        for task in reader.partitions()
        for part in reader.read(task)
        for row in part.to_pylist()
    ]


def values_at(endpoint: str, topic: str) -> list[int]:
    """The bodies as numbers, sorted."""
    return sorted(int(row["value"]) for row in rows_at(endpoint, topic))
