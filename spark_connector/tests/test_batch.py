"""The batch reader: its range is fixed when it is planned first."""

from collections.abc import Iterator

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark_curlew.errors import DataLoss
from pyspark_curlew.options import parse_batch_options
from pyspark_curlew.reading.batch import CurlewBatchReader
from pyspark_curlew.reading.planning import QueueRange

from spark_connector.tests.support.fake_node import FakeNode, run_fake_node


@pytest.fixture
def node() -> Iterator[FakeNode]:
    with run_fake_node() as node:
        node.add_topic("orders", queues=2)
        node.send("orders", 0, b"a", b"b", b"c")
        node.send("orders", 1, b"d", b"e")
        yield node


def reader_of(node: FakeNode, **given: str) -> CurlewBatchReader:
    return CurlewBatchReader(
        parse_batch_options({"endpoint": node.base_url, "topic": "orders", **given})
    )


def values(reader: CurlewBatchReader) -> list[bytes]:
    return sorted(
        value
        for task in reader.partitions()
        for batch in reader.read(task)
        for value in batch.column("value").to_pylist()
    )


def test_all_there_is(node: FakeNode) -> None:
    assert values(reader_of(node)) == [b"a", b"b", b"c", b"d", b"e"]


def test_the_range_does_not_grow(node: FakeNode) -> None:
    reader = reader_of(node)
    tasks = reader.partitions()
    node.send("orders", 0, b"late")
    assert reader.partitions() == tasks
    assert values(reader) == [b"a", b"b", b"c", b"d", b"e"]


def test_between_offsets(node: FakeNode) -> None:
    bounds = {"startingOffsets": '{"orders":{"0":1}}', "endingOffsets": '{"orders":{"0":2,"1":1}}'}
    assert values(reader_of(node, **bounds)) == [b"b", b"d"]


def test_an_end_before_the_beginning_is_nothing(node: FakeNode) -> None:
    bounds = {"startingOffsets": '{"orders":{"0":2}}', "endingOffsets": '{"orders":{"0":1}}'}
    assert values(reader_of(node, **bounds)) == [b"d", b"e"]


def test_between_times(node: FakeNode) -> None:
    early, late = "1700000000000", "1800000000000"
    assert len(values(reader_of(node, startingTimestamp=early, endingTimestamp=late))) == 5
    assert values(reader_of(node, endingTimestamp=early)) == []


def test_nothing_to_read_is_no_rows(node: FakeNode) -> None:
    reader = reader_of(node, endingTimestamp="1700000000000")
    assert reader.partitions() == []
    assert list(reader.read(InputPartition(None))) == []


def test_large_ranges_are_split(node: FakeNode) -> None:
    reader = reader_of(node, minPartitions="3", queues='{"orders":[0]}')
    assert reader.partitions() == [QueueRange("orders", 0, n, n + 1) for n in range(3)]


def test_what_is_gone_is_a_loss(node: FakeNode) -> None:
    start = '{"orders":{"0":0}}'
    node.topics["orders"][0].remove_before(2)
    with pytest.raises(DataLoss, match=r"offsets \[0, 2\) are gone"):
        reader_of(node, startingOffsets=start).partitions()
    careless = reader_of(node, startingOffsets=start, failOnDataLoss="false")
    assert values(careless) == [b"c", b"d", b"e"]
