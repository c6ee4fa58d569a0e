"""The batch reader: its range is fixed when it is planned first."""

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark_curlew.errors import DataLoss
from pyspark_curlew.options import parse_batch_options
from pyspark_curlew.reading.batch import CurlewBatchReader

from spark_connector.tests.support.fake_node import FakeNode

EARLY = "1700000000000"


@pytest.fixture
def node(fake: FakeNode) -> FakeNode:
    fake.add_topic("orders", queues=2)
    fake.send("orders", 0, b"a", b"b", b"c")
    fake.send("orders", 1, b"d", b"e")
    return fake


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


def test_the_range_does_not_grow(node: FakeNode) -> None:
    reader = reader_of(node)
    tasks = reader.partitions()
    node.send("orders", 0, b"late")
    assert reader.partitions() == tasks
    assert values(reader) == [b"a", b"b", b"c", b"d", b"e"]


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        (
            {"startingOffsets": '{"orders":{"0":1}}', "endingOffsets": '{"orders":{"0":2,"1":1}}'},
            [b"b", b"d"],
        ),
        (
            {"startingOffsets": '{"orders":{"0":2}}', "endingOffsets": '{"orders":{"0":1}}'},
            [b"d", b"e"],  # an end before the beginning is nothing
        ),
        (
            {"startingTimestamp": EARLY, "endingTimestamp": "1800000000000"},
            [b"a", b"b", b"c", b"d", b"e"],
        ),
        ({"endingTimestamp": EARLY}, []),
    ],
)
def test_between_bounds(node: FakeNode, bounds: dict[str, str], expected: list[bytes]) -> None:
    assert values(reader_of(node, **bounds)) == expected


def test_nothing_to_read_is_no_rows(node: FakeNode) -> None:
    reader = reader_of(node, endingTimestamp=EARLY)
    assert reader.partitions() == []
    assert list(reader.read(InputPartition(None))) == []


def test_what_is_gone_is_a_loss(node: FakeNode) -> None:
    start = '{"orders":{"0":0}}'
    node.topics["orders"][0].remove_before(2)
    with pytest.raises(DataLoss, match=r"offsets \[0, 2\) are gone"):
        reader_of(node, startingOffsets=start).partitions()
    careless = reader_of(node, startingOffsets=start, failOnDataLoss="false")
    assert values(careless) == [b"c", b"d", b"e"]
