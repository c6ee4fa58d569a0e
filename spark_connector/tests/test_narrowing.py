"""Reading less and sending less: tags, compression, and several addresses."""

import gc
import os
import sys
from types import ModuleType

import pyarrow as pa
import pytest
from pyspark_curlew import worker_memory as freezing
from pyspark_curlew.errors import OptionInvalid, RequestRefused
from pyspark_curlew.http.client import CurlewClient
from pyspark_curlew.http.retry import RetryPolicy
from pyspark_curlew.options import parse_batch_options
from pyspark_curlew.reading.batch import CurlewBatchReader
from pyspark_curlew.worker_memory import freeze_loaded
from pyspark_curlew.writing.sink_options import parse_sink_options
from pyspark_curlew.writing.write_task import Sender, send_all

from spark_connector.tests.support.clock import Clock
from spark_connector.tests.support.fake_node import FakeNode, refusal
from spark_connector.tests.support.real_node import RealNode
from spark_connector.tests.support.sized import sized_options


@pytest.fixture(scope="module")
def tagged(real: RealNode) -> str:
    """A topic whose messages have three tags by turns, two each."""
    real.add_topic("tagged", 2)
    for first in range(0, 60, 6):
        for tag, shift in (("created", 0), ("paid", 2), ("sent", 4)):
            real.send("tagged", 0, *[b"%d" % (first + shift + n) for n in (0, 1)], tag=tag)
    return "tagged"


@pytest.fixture
def node(fake: FakeNode) -> FakeNode:
    fake.add_topic("orders", queues=2)
    fake.send("orders", 0, b"a", b"b", b"c")
    fake.send("orders", 1, b"d", b"e")
    return fake


def reader_of(endpoint: str, **given: str) -> CurlewBatchReader:
    given = {"endpoint": endpoint, "topic": "orders", **given}
    return CurlewBatchReader(sized_options(given, parse_batch_options))


def values(reader: CurlewBatchReader) -> list[bytes]:
    return [
        value
        for task in reader.partitions()
        for batch in reader.read(task)
        for value in batch.column("value").to_pylist()
    ]


@pytest.mark.parametrize("portion", ["1", "5", "4096"])
@pytest.mark.parametrize(
    ("expression", "remainders"),
    [("created", {0, 1}), ("created || sent", {0, 1, 4, 5}), ("*", set(range(6))), ("none", set())],
)
def test_only_the_tags_that_are_wanted(
    real: RealNode, tagged: str, portion: str, expression: str, remainders: set[int]
) -> None:
    """Holes in the offsets are no loss under a filter, whatever the portions."""
    reader = reader_of(real.base_url, topic=tagged, filterTags=expression, pullMaxMessages=portion)
    found = [int(value) for value in values(reader)]
    assert found == [number for number in range(60) if number % 6 in remainders]


def test_a_condition_over_properties(real: RealNode, tagged: str) -> None:
    found = values(reader_of(real.base_url, topic=tagged, filterTags="sql: TAGS = 'paid'"))
    assert {int(value) % 6 for value in found} == {2, 3}


def test_a_filter_that_the_service_does_not_understand(real: RealNode, tagged: str) -> None:
    with pytest.raises(RequestRefused, match="ILLEGAL_FILTER_EXPRESSION"):
        values(reader_of(real.base_url, topic=tagged, filterTags="sql: amount >"))
    with pytest.raises(OptionInvalid, match=r"'filterTags' = 'a \|\|'"):
        reader_of(real.base_url, topic=tagged, filterTags="a ||")


def test_an_address_that_failed_is_not_tried_first_again(node: FakeNode) -> None:
    """The engine's calls make a client each, and each would find out anew that a host is down."""
    options = parse_batch_options(
        {"endpoint": f"http://127.0.0.1:9, {node.base_url}", "topic": "orders"}
    )
    clock = Clock()
    for _ in range(3):
        policy = RetryPolicy(1_000, clock.sleep, clock.now)
        assert CurlewClient(options.http, policy).queue_count("orders") == 2
    assert len(clock.pauses) == 1


def test_frames_are_compressed_both_ways(real: RealNode, topic: str) -> None:
    real.add_topic(topic, 1)
    given = {"endpoint": real.base_url, "compression": "zstd", "topic": topic}
    options = parse_sink_options(given)
    rows = pa.RecordBatch.from_pydict({"value": [b"x" * 1000] * 100})
    assert send_all(Sender(options, CurlewClient(options.http), 0, None), iter([rows])) == 100
    assert values(CurlewBatchReader(parse_batch_options(given))) == [b"x" * 1000] * 100


def test_compression_is_asked_for(node: FakeNode) -> None:
    values(reader_of(node.base_url, compression="zstd"))
    assert {headers.get("Accept-Encoding") for headers in node.headers} == {"zstd"}
    with pytest.raises(OptionInvalid, match="not one of none, zstd"):
        reader_of(node.base_url, compression="lz4")


def test_another_address_when_the_first_is_not_there(node: FakeNode) -> None:
    endpoint = f"http://127.0.0.1:9, {node.base_url}/"
    assert len(values(reader_of(endpoint))) == 5
    node.faults = [refusal(503)]
    assert len(values(reader_of(endpoint))) == 5
    with pytest.raises(OptionInvalid, match="'orders:8710' is not a base address"):
        reader_of("http://localhost:8710,orders:8710")


def test_a_worker_freezes_again_when_more_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    frozen: list[int] = []
    monkeypatch.setattr(freezing, "_modules_frozen", {})
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(1))
    freeze_loaded()
    freeze_loaded()
    assert len(frozen) == 1
    monkeypatch.setitem(sys.modules, "of_a_users_function", ModuleType("of_a_users_function"))
    freeze_loaded()
    freeze_loaded()
    assert len(frozen) == 2
    monkeypatch.setattr(os, "getpid", lambda: 0)
    freeze_loaded()
    assert len(frozen) == 3
