"""What pyspark does with the connector in its worker processes, without a JVM."""

import json
import subprocess
import sys
from typing import TypeVar

import pytest
from pyspark import cloudpickle
from pyspark.sql.datasource import CaseInsensitiveDict, DataSource
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import LongType, StructField, StructType
from pyspark.sql.worker.plan_data_source_read import records_to_arrow_batches
from pyspark_curlew import CurlewDataSource, DefaultSource, lag_of
from pyspark_curlew.errors import OptionMissing, OptionUnknown, SchemaMismatch

from spark_connector.tests.support.fake_node import FakeNode


@pytest.fixture
def node(fake: FakeNode) -> FakeNode:
    fake.add_topic("orders", queues=1)
    fake.send("orders", 0, b"a", b"", b"c")
    return fake


def source_of(node: FakeNode, **given: str) -> CurlewDataSource:
    options = {"endpoint": node.base_url, "topic": "orders", "startingOffsets": "earliest"}
    return CurlewDataSource(CaseInsensitiveDict({**options, **given}))


T = TypeVar("T")


def roundtrip(value: T) -> T:
    again: T = cloudpickle.loads(cloudpickle.dumps(value))
    return again


@pytest.mark.parametrize("include_properties", ["true", "false"])
def test_the_batches_have_the_schema_that_spark_derives(
    node: FakeNode, include_properties: str
) -> None:
    source = roundtrip(source_of(node, includeProperties=include_properties))
    schema = source.schema()
    reader = roundtrip(source.streamReader(schema))
    start = reader.initialOffset()
    (task,) = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
    executor = roundtrip(reader)
    batches = list(records_to_arrow_batches(executor.read(roundtrip(task)), 10_000, schema, source))
    assert [batch.num_rows for batch in batches] == [3]
    assert batches[0].column("value").to_pylist() == [b"a", b"", b"c"]


def test_the_schema_is_the_documented_one(node: FakeNode) -> None:
    assert source_of(node, includeProperties="true").schema().simpleString() == (
        "struct<key:binary,value:binary,topic:string,queue:int,offset:bigint,timestamp:timestamp,"
        "born_timestamp:timestamp,message_id:string,tag:string,partition:int,properties:map<string,string>>"
    )


def test_another_schema_is_refused(node: FakeNode) -> None:
    source = source_of(node)
    with pytest.raises(SchemaMismatch, match="the source's schema is fixed"):
        source.streamReader(StructType([StructField("id", LongType())]))


def test_options_are_checked_when_the_schema_is_asked_for() -> None:
    with pytest.raises(OptionMissing, match="'topic'"):
        CurlewDataSource(CaseInsensitiveDict({"endpoint": "http://mq"})).schema()
    with pytest.raises(OptionUnknown, match="did you mean 'topic'"):
        CurlewDataSource(CaseInsensitiveDict({"endpoint": "http://mq", "topik": "orders"})).schema()


def test_discovery_finds_the_source_under_its_name() -> None:
    assert issubclass(DefaultSource, DataSource)
    assert DefaultSource.name() == "curlew"


def test_the_lag_is_told_by_kafkas_names(node: FakeNode) -> None:
    node.add_topic("more", queues=1)
    reader = source_of(node, topic="more").streamReader(source_of(node).schema())
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    node.send("more", 0, b"a", b"b")
    assert reader.latestOffset(end, ReadAllAvailable()) != end
    progress = {
        "sources": [
            {"endOffset": '{"logOffset": 3}', "latestOffset": None},
            {"endOffset": json.dumps(end), "latestOffset": json.dumps(reader.reportLatestOffset())},
        ]
    }
    average = node.topics["more"][0].state(0)["average_bytes"]
    assert average is not None
    expected = dict.fromkeys(("min", "max", "avg"), 2)
    assert lag_of(progress) == {
        **{f"{name}OffsetsBehindLatest": count for name, count in expected.items()},
        "estimatedTotalBytesBehindLatest": 2 * average,
    }
    assert lag_of({"sources": []}) == {}


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = (
        "import sys, pyspark_curlew;"
        "print([m for m in ('pandas', 'pyarrow', 'numpy', 'urllib3') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_reading_does_not_load_pandas(node: FakeNode) -> None:
    """It costs a worker a quarter of a second, and every task a longer garbage collection."""
    code = f"""
import sys
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark_curlew import CurlewDataSource
options = CaseInsensitiveDict(endpoint={node.base_url!r}, topic="orders", includeProperties="true")
options["startingOffsets"] = "earliest"
source = CurlewDataSource(options)
reader = source.streamReader(source.schema())
start = reader.initialOffset()
(task,) = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
assert sum(len(batch) for batch in reader.read(task)) == 3
print("pandas" in sys.modules)
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"
