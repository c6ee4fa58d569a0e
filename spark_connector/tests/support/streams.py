"""The stream reader called as the engine calls it, in its order, without an engine."""

import json
from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark_curlew.options import parse_stream_options
from pyspark_curlew.reading.stream import CurlewStreamReader

from spark_connector.tests.support.clock import Clock
from spark_connector.tests.support.fake_node import FakeNode

ALL = ReadAllAvailable()
Offset = dict[str, Any]


def reader_of(node: FakeNode, clock: Clock | None = None, **given: str) -> CurlewStreamReader:
    """A reader of topic `orders`, or of what is given, from the earliest on."""
    defaults = {"startingOffsets": "earliest", "pollWaitMs": "0", "retryTimeoutMs": "0"}
    if not {"topic", "topics", "topicsPattern"} & given.keys():
        defaults["topic"] = "orders"
    options = parse_stream_options({"endpoint": node.base_url, **defaults, **given})
    clock = clock or Clock()
    return CurlewStreamReader(options, clock.sleep, clock.now)


def stored(offset: Offset) -> Offset:
    """What the engine gives back: the text of the checkpoint, parsed."""
    document: Offset = json.loads(json.dumps(offset))
    return document


def first_end(reader: CurlewStreamReader) -> Offset:
    return stored(reader.latestOffset(reader.initialOffset(), ALL))


def values_of(reader: CurlewStreamReader, start: Offset, end: Offset) -> list[bytes]:
    return sorted(
        value
        for task in reader.partitions(stored(start), stored(end))
        for batch in reader.read(task)
        for value in batch.column("value").to_pylist()
    )
