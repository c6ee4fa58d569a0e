"""The sink: requests, refusals before any task, and rows that are stored once."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyspark import cloudpickle
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)
from pyspark_curlew import CurlewDataSource
from pyspark_curlew.errors import (
    ConnectorError,
    OptionConflict,
    OptionInvalid,
    ProducerFenced,
    ProtocolViolation,
    RowRefused,
    SchemaMismatch,
    SequenceBroken,
    ServiceUnavailable,
    TopicNotFound,
    Unsupported,
)
from pyspark_curlew.http.client import CurlewClient
from pyspark_curlew.writing.encode import encode_records, frame_of
from pyspark_curlew.writing.portions import Outbox, Portion
from pyspark_curlew.writing.producer_identity import Producer
from pyspark_curlew.writing.sink import CurlewStreamWriter, Sent
from pyspark_curlew.writing.sink_options import parse_sink_options
from pyspark_curlew.writing.write_task import Sender, send_all

from app.domain.message import queue_for_sharding_key
from app.store.formats.frame.batch_frame import HEADER_BYTES
from spark_connector.tests.support.fake_node import FakeNode, Reply, refusal, run_fake_node
from spark_connector.tests.support.proxy import Dropping, run_proxy
from spark_connector.tests.support.real_node import run_real_node
from spark_connector.tests.support.stored import stored_at, values_at


@pytest.fixture
def node() -> Iterator[FakeNode]:
    with run_fake_node() as node:
        node.add_topic("orders", queues=2)
        node.add_topic("events", queues=1)
        yield node


TYPES: dict[str, DataType] = {
    "binary": BinaryType(),
    "string": StringType(),
    "int": IntegerType(),
    "long": LongType(),
    "timestamp": TimestampType(),
    "map<string,int>": MapType(StringType(), IntegerType()),
}


def schema_of(text: str) -> StructType:
    """`name type, name type`; Spark's own parser needs a session."""
    pairs = [column.split(" ") for column in text.split(", ")]
    return StructType([StructField(name, TYPES[kind]) for name, kind in pairs])


def source_of(endpoint: str, **given: str) -> CurlewDataSource:
    options = {"endpoint": endpoint, **given}
    return CurlewDataSource(CaseInsensitiveDict(options))


def write(endpoint: str, batches: list[pa.RecordBatch], ddl: str, **given: str) -> Sent:
    writer = source_of(endpoint, **given).writer(schema_of(ddl), False)
    copied = cloudpickle.loads(cloudpickle.dumps(writer))
    sent: Sent = cloudpickle.loads(cloudpickle.dumps(copied.write(iter(batches))))
    return sent


def batch(**given: list[Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(given)


def test_a_key_that_is_no_text_is_refused_with_a_code(node: FakeNode) -> None:
    options = parse_sink_options({"endpoint": node.base_url, "topic": "orders"})
    rows = pa.RecordBatch.from_pydict({"value": [b"a"], "key": [b"\xff"]})
    sender = Sender(options, CurlewClient(options.http), 0, None)
    with pytest.raises(RowRefused, match="'key' has bytes that are not UTF-8"):
        send_all(sender, iter([rows]))


def test_rows_are_sent_to_the_topics_they_name(node: FakeNode) -> None:
    rows = batch(value=[b"a", b"b", b"c"], topic=["orders", "events", "orders"])
    assert write(node.base_url, [rows], "value binary, topic string").messages == 3
    assert {(topic, body.count(b"CRLW")) for topic, _, body in node.sent} == {
        ("orders", 1),
        ("events", 1),
    }
    counts = {topic: int.from_bytes(body[8:12], "big") for topic, _, body in node.sent}
    assert counts == {"orders": 2, "events": 1}


def test_the_option_goes_before_the_column(node: FakeNode) -> None:
    rows = batch(value=[b"a"], topic=["orders"])
    write(node.base_url, [rows], "value binary, topic string", topic="events")
    assert [topic for topic, _, _ in node.sent] == ["events"]


def test_portions_and_turns(node: FakeNode) -> None:
    batches = [batch(value=[b"x"] * 5), batch(value=[b"y"] * 5), batch(value=[])]
    write(node.base_url, batches[:2], "value binary", topic="orders", sendMaxMessages="3")
    counts = [(queue, int.from_bytes(body[8:12], "big")) for _, queue, body in node.sent]
    assert counts == [(0, 3), (1, 3), (0, 3), (1, 1)]


def test_a_task_without_rows_sends_nothing(node: FakeNode) -> None:
    empty = pa.RecordBatch.from_arrays([pa.array([], pa.binary())], ["value"])
    assert write(node.base_url, [empty], "value binary", topic="orders").messages == 0
    assert node.requests == []


def test_passing_troubles_are_tried_again(node: FakeNode) -> None:
    node.faults = [lambda reply: reply, refusal(503), refusal(429)]
    write(node.base_url, [batch(value=[b"x"])], "value binary", topic="orders")
    assert len({body for _, _, body in node.sent}) == 1


@pytest.mark.parametrize("claimed", [False, True])
@pytest.mark.parametrize("column", [{}, {"delayMs": [5]}])
def test_a_success_that_the_service_did_not_give_is_none(
    node: FakeNode, claimed: bool, column: dict[str, list[int]]
) -> None:
    """Such as the page of a proxy: the rows are not stored."""
    options = parse_sink_options({"endpoint": node.base_url, "topic": "orders"})
    page = Reply(200, {"Content-Type": "text/html"}, b"<h1>We will be back soon</h1>")
    node.faults = [lambda reply: reply, lambda _reply: page]
    producer = Producer("spark:q", 0, 0) if claimed else None
    sender = Sender(options, CurlewClient(options.http), 0, producer)
    rows = pa.RecordBatch.from_pydict({"value": [b"a"], **column})
    with pytest.raises(ProtocolViolation, match="not the service's"):
        send_all(sender, iter([rows]))
    node.faults = [lambda _reply: page]
    with pytest.raises(ProtocolViolation, match="not the service's"):
        CurlewStreamWriter(options).commit([Sent(1, "spark:q")], 0)


def test_a_topic_that_is_not_there(node: FakeNode) -> None:
    with pytest.raises(TopicNotFound):
        write(node.base_url, [batch(value=[b"x"])], "value binary", topic="nothing")


@pytest.mark.parametrize(
    ("given", "ddl", "overwrite", "kind", "words"),
    [
        ({"topic": "t"}, "value string", True, Unsupported, "cannot be overwritten"),
        (
            {"topic": "t", "idempotence": "false", "producerName": "etl"},
            "value string",
            False,
            OptionConflict,
            "no meaning beside idempotence=false",
        ),
        (
            {"topic": "t", "producerName": "my etl"},
            "value string",
            False,
            OptionInvalid,
            "'my etl' is not 1 to 100 letters",
        ),
        ({"topic": "t"}, "key string", False, SchemaMismatch, "no column 'value'"),
        ({"topic": "t"}, "value int", False, SchemaMismatch, "'value' is int, not binary or str"),
        ({"topic": "t"}, "value string, delay long", False, SchemaMismatch, "'delay' cannot"),
        (
            {"topic": "t"},
            "value string, delayMs long, deliverAt timestamp",
            False,
            SchemaMismatch,
            "exclude each other",
        ),
        ({}, "value string", False, SchemaMismatch, "neither an option 'topic'"),
        (
            {"topic": "t", "startingOffsets": "earliest"},
            "value string",
            False,
            OptionConflict,
            "'startingOffsets' is for reading",
        ),
        (
            {"topic": "t"},
            "value string, properties map<string,int>",
            False,
            SchemaMismatch,
            "not map<string,string>",
        ),
    ],
)
def test_what_cannot_be_written_is_refused_before_any_task(
    given: dict[str, str], ddl: str, overwrite: bool, kind: type[ConnectorError], words: str
) -> None:
    source = source_of("http://127.0.0.1:9", **given)
    for make in (source.writer, source.streamWriter):
        with pytest.raises(kind, match=words):
            make(schema_of(ddl), overwrite)


def test_options_of_sparks_own_writer_are_let_through() -> None:
    given = {"topic": "t", "checkpointLocation": "/c"}
    writer = source_of("http://127.0.0.1:9", **given).streamWriter(schema_of("value string"), False)
    writer.commit([Sent(1)], 0)
    writer.abort([None], 0)


def test_a_real_node_stores_what_is_sent(tmp_path: Path) -> None:
    with run_real_node(tmp_path) as node:
        node.add_topic("orders", 3)
        keys = [f"k{number % 5}" for number in range(100)]
        rows = batch(
            value=[b"%d" % number for number in range(100)],
            key=keys,
            tag=["t"] * 100,
        )
        write(node.base_url, [rows], "value binary, key string, tag string", topic="orders")
        reader = source_of(node.base_url, topic="orders", includeProperties="true")
        reader = reader.reader(reader.schema())
        found = [
            row
            for task in reader.partitions()
            for part in reader.read(task)
            for row in part.to_pylist()
        ]
    assert sorted(int(row["value"]) for row in found) == list(range(100))
    for row in found:
        number = int(row["value"])
        assert (row["key"].decode(), row["tag"]) == (keys[number], "t")
        assert row["queue"] == queue_for_sharding_key(keys[number], 3)


@settings(deadline=None)
@given(
    st.lists(st.lists(st.binary(max_size=30), min_size=1, max_size=6), min_size=1, max_size=6),
    st.integers(1, 7),
    st.integers(100, 700),
)
@example([[b"1"], [b"2", b"3"], [b"4"]], 2, 700)
@example([[b"1"], [b"2", b"3"], [b"4"]], 7, 300)
def test_portions_do_not_depend_on_the_batches(
    batches: list[list[bytes]], most: int, size: int
) -> None:
    """Or a repeated task would number its requests in another way."""

    def sent(parts: list[list[bytes]]) -> list[tuple[int, int, bytes]]:
        outbox = Outbox(most, size)
        found = []
        for part in parts:
            records = encode_records("orders", pa.array(part, pa.binary()), None, None, None)
            found += list(outbox.add(records))
        portions = (*found, *outbox.rest())
        return [(seq, count, b"".join(frame)) for seq, count, frame in portions]

    whole = [value for part in batches for value in part]
    assert sent(batches) == sent([whole]) == sent([[value] for value in whole])
    assert sum(count for _, count, _ in sent(batches)) == len(whole)
    for _, count, frame in sent(batches):
        records = len(frame) - HEADER_BYTES - 4 * count
        assert count == 1 or (count <= most and records <= size)


def test_a_portion_of_many_small_batches_is_few_pieces() -> None:
    """One system call takes 1,024 pieces."""
    outbox = Outbox(500, 1_000_000)
    names = [b"%d" % number for number in range(500)]
    found: list[Portion] = []
    for name in names:
        records = encode_records("orders", pa.array([name], pa.binary()), None, None, None)
        found += outbox.add(records)
    (portion,) = found
    assert portion.messages == 500
    assert len(portion.frame) <= 66
    whole = encode_records("orders", pa.array(names, pa.binary()), None, None, None)
    assert b"".join(portion.frame) == b"".join(frame_of([whole]))


def task(
    endpoint: str,
    values: list[bytes],
    epoch: int,
    keys: list[str] | None = None,
    family: str = "spark:q1",
    **given: str,
) -> Sent:
    """A task of a micro-batch, as Spark would run it."""
    options = parse_sink_options({"endpoint": endpoint, "topic": "orders", **given})
    producer = Producer(family, 0, epoch)
    sender = Sender(options, CurlewClient(options.http), 0, producer)
    columns = {"value": values} if keys is None else {"value": values, "key": keys[: len(values)]}
    whole = pa.RecordBatch.from_pydict(columns)
    parts = [whole.slice(first, 7) for first in range(0, len(values), 7)]
    return Sent(send_all(sender, iter(parts)), producer.family)


def queues_at(endpoint: str) -> set[int]:
    return set(stored_at(endpoint, "queue"))


def test_a_repeated_task_a_straggler_and_a_repeated_batch(tmp_path: Path) -> None:
    """Each row once: a task that died in the middle, a second attempt, one that comes too late."""
    rows = [b"%d" % number for number in range(100)]
    with run_real_node(tmp_path) as node:
        node.add_topic("orders", 3)
        small = {"sendMaxMessages": "8"}
        task(node.base_url, rows[:60], 4, **small)
        assert task(node.base_url, rows, 4, **small).messages == 100
        assert task(node.base_url, rows, 4, **small).messages == 100
        options = parse_sink_options({"endpoint": node.base_url, "topic": "orders"})
        writer = CurlewStreamWriter(options)
        writer.commit([Sent(100, "spark:q1"), None], 4)
        assert task(node.base_url, rows, 4, **small).messages == 100, "the batch is repeated"
        assert values_at(node.base_url) == list(range(100))
        task(node.base_url, [b"100"], 5)
        writer.commit([Sent(1, "spark:q1")], 5)
        with pytest.raises(ProducerFenced, match="CURLEW_FENCED"):
            task(node.base_url, rows, 4, **small)
        assert values_at(node.base_url) == list(range(101))


def test_two_attempts_of_a_task_at_once(tmp_path: Path) -> None:
    """Speculation: both send the same rows at the same time, and both come to their end."""
    rows = [b"%d" % number for number in range(400)]
    with run_real_node(tmp_path) as node:
        node.add_topic("orders", 2)
        with ThreadPoolExecutor(2) as attempts:
            given = {"sendMaxMessages": "3", "retryTimeoutMs": "60000"}
            runs = [
                attempts.submit(lambda: task(node.base_url, rows, 0, **given)) for _ in range(2)
            ]
        assert [run.result().messages for run in runs] == [400, 400]
        assert values_at(node.base_url) == list(range(400))


def test_a_commit_of_the_sink_that_fails_and_is_repeated(node: FakeNode) -> None:
    """The query ends with the error; the batch is repeated, and what it sends is known already."""
    options = parse_sink_options(
        {"endpoint": node.base_url, "topic": "orders", "retryTimeoutMs": "0"}
    )
    writer = CurlewStreamWriter(options)
    node.faults = [refusal(503)]
    with pytest.raises(ServiceUnavailable, match="closing batch 3"):
        writer.commit([Sent(1, "spark:q1")], 3)
    writer.commit([Sent(1, "spark:q1")], 3)
    assert node.seals[-1] == ("spark:q1", 3)


def test_a_batch_that_is_repeated_after_its_seal_failed(tmp_path: Path) -> None:
    rows = [b"%d" % number for number in range(50)]
    with run_real_node(tmp_path) as node:
        node.add_topic("orders", 2)
        for _ in range(2):  # the second time after the commit has failed and the query began anew
            task(node.base_url, rows, 0, sendMaxMessages="7")
        options = parse_sink_options({"endpoint": node.base_url, "topic": "orders"})
        CurlewStreamWriter(options).commit([Sent(50, "spark:q1")], 0)
        assert values_at(node.base_url) == list(range(50))


def test_a_batch_of_which_the_node_has_lost_rows_is_not_done(tmp_path: Path) -> None:
    """As after a power loss, which may take what was acknowledged and not yet synced."""
    rows = [b"%d" % number for number in range(50)]
    with run_real_node(tmp_path) as node:
        node.add_topic("orders", 2)
        task(node.base_url, rows[:30], 0, sendMaxMessages="7")
        options = parse_sink_options({"endpoint": node.base_url, "topic": "orders"})
        writer = CurlewStreamWriter(options)
        with pytest.raises(SequenceBroken, match=r"of 50 messages .* 30 are stored.* repeated"):
            writer.commit([Sent(20, "spark:q1"), Sent(30, "spark:q1")], 0)
        task(node.base_url, rows, 0, sendMaxMessages="7")
        writer.commit([Sent(20, "spark:q1"), Sent(30, "spark:q1")], 0)
        assert values_at(node.base_url) == list(range(50))


def test_a_repeated_batch_finds_its_rows_although_queues_were_added(tmp_path: Path) -> None:
    """By key, and in turn. Without the plan of the first time they would go to other queues."""
    rows = [b"%d" % number for number in range(60)]
    with run_real_node(tmp_path) as node:
        for keys in (None, [f"k{number % 7}" for number in range(60)]):
            node.add_topic("orders", 2)
            family = f"spark:{'turns' if keys is None else 'keys'}"
            task(node.base_url, rows[:40], 3, keys, family, sendMaxMessages="5")
            node.add_topic("orders", 5)
            task(node.base_url, rows, 3, keys, family, sendMaxMessages="5")
            assert values_at(node.base_url) == list(range(60))
            assert queues_at(node.base_url) == {0, 1}
            task(node.base_url, rows, 4, keys, family, sendMaxMessages="5")
            assert queues_at(node.base_url) == {0, 1, 2, 3, 4}, "the next batch takes all"
            node.remove_topic("orders")


@pytest.mark.parametrize("changed", [{"sendMaxMessages": "8"}, {"sendMaxBytes": "1024"}])
def test_a_repeated_batch_finds_its_rows_although_portions_have_another_size(
    tmp_path: Path, changed: dict[str, str]
) -> None:
    """Rows without keys change queues with each portion; the first attempt says how large it is."""
    rows = [b"%d" % number for number in range(60)]
    before = {"sendMaxMessages": "5"}
    with run_real_node(tmp_path) as node:
        for keys in (None, [f"k{number % 7}" for number in range(60)]):
            node.add_topic("orders", 3)
            family = f"spark:{'turns' if keys is None else 'keys'}"
            task(node.base_url, rows[:37], 3, keys, family, **before)
            task(node.base_url, rows, 3, keys, family, **{**before, **changed})
            assert values_at(node.base_url) == list(range(60))
            node.remove_topic("orders")


def test_a_request_whose_answer_was_lost_is_stored_once(tmp_path: Path) -> None:
    with run_real_node(tmp_path) as node:
        node.add_topic("orders", 1)
        rule = Dropping(every=3)
        with run_proxy(node.base_url, rule) as endpoint:
            rows = [b"%d" % number for number in range(50)]
            task(endpoint, rows, 0, sendMaxMessages="2")
        assert rule.dropped.is_set()
        assert values_at(node.base_url) == list(range(50))


def test_without_idempotence_the_lost_answer_costs_a_duplicate(tmp_path: Path) -> None:
    """The control of the test before this one."""
    with run_real_node(tmp_path) as node:
        node.add_topic("orders", 1)
        with run_proxy(node.base_url, Dropping(every=3)) as endpoint:
            rows = [batch(value=[b"%d" % number for number in range(50)])]
            given = {"sendMaxMessages": "2", "idempotence": "false"}
            write(endpoint, rows, "value binary", topic="orders", **given)
        assert len(values_at(node.base_url)) > 50


def test_a_save_is_sealed(node: FakeNode) -> None:
    source = source_of(node.base_url, topic="orders", producerName="etl")
    writer = source.writer(schema_of("value binary"), False)
    copied = [cloudpickle.loads(cloudpickle.dumps(writer)) for _ in range(2)]
    sent = [each.write(iter([batch(value=[b"x"])])) for each in copied]
    writer.commit(sent)
    ((family, epoch),) = node.seals
    assert family.startswith("spark:etl.")
    assert epoch == 0
    assert {each.family for each in sent} == {family}
    writer.abort([])
    assert node.seals == [(family, 0)] * 2


def test_a_stream_needs_to_know_its_batch(node: FakeNode) -> None:
    """Outside of Spark there is none, and at-least-once must not come by itself."""
    writer = source_of(node.base_url, topic="orders").streamWriter(schema_of("value binary"), False)
    with pytest.raises(Unsupported, match="idempotence=false"):
        writer.write(iter([batch(value=[b"x"])]))
    plain = source_of(node.base_url, topic="orders", idempotence="false")
    plain.streamWriter(schema_of("value binary"), False).write(iter([batch(value=[b"x"])]))
    assert len(node.sent) == 1
