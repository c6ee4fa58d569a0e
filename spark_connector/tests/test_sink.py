"""The sink: requests, refusals before any task, and rows that are stored once."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
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
    RequestRefused,
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

from app.store.formats.frame.batch_frame import HEADER_BYTES
from spark_connector.tests.support.fake_node import FakeNode, Reply, refusal
from spark_connector.tests.support.proxy import Dropping, run_proxy
from spark_connector.tests.support.real_node import RealNode
from spark_connector.tests.support.stored import rows_at, values_at


@pytest.fixture
def node(fake: FakeNode) -> FakeNode:
    fake.add_topic("orders", queues=2)
    fake.add_topic("events", queues=1)
    return fake


TYPES: dict[str, DataType] = {
    "binary": BinaryType(),
    "string": StringType(),
    "collated": StringType("UNICODE"),
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
    writer = source_of("http://127.0.0.1:9", **given).streamWriter(
        schema_of("value collated"), False
    )
    writer.commit([Sent(1)], 0)
    writer.abort([None], 0)


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


class Tasks:
    """Tasks of micro-batches of one query, as Spark would run them, into one topic."""

    def __init__(self, endpoint: str, topic: str) -> None:
        self.options = {"endpoint": endpoint, "topic": topic, "sendMaxMessages": "8"}
        self.family = f"spark:{topic}"

    def run(self, rows: Sequence[int], epoch: int = 0, *, keyed: bool = False, **given: str) -> int:
        """Send the numbers; how many they were."""
        options = parse_sink_options({**self.options, **given})
        producer = Producer(self.family, 0, epoch) if options.idempotence else None
        sender = Sender(options, CurlewClient(options.http), 0, producer)
        columns = {"value": [b"%d" % number for number in rows]}
        if keyed:
            columns["key"] = [b"k%d" % (number % 7) for number in rows]
        whole = pa.RecordBatch.from_pydict(columns)
        return send_all(sender, (whole.slice(first, 7) for first in range(0, len(rows), 7)))

    def seal(self, epoch: int, *counts: int) -> None:
        """The commit of a batch whose tasks sent so many each."""
        writer = CurlewStreamWriter(parse_sink_options(self.options))
        writer.commit([*[Sent(count, self.family) for count in counts], None], epoch)

    def stored(self) -> list[int]:
        return values_at(self.options["endpoint"], self.options["topic"])


@pytest.fixture
def tasks(real: RealNode, topic: str) -> Tasks:
    real.add_topic(topic, 3)
    return Tasks(real.base_url, topic)


def test_a_repeated_task_a_straggler_and_a_repeated_batch(tasks: Tasks) -> None:
    """Each row once: a task that died in the middle, a second attempt, one that comes too late."""
    rows = range(100)
    tasks.run(rows[:60], 4)
    assert tasks.run(rows, 4) == 100
    assert tasks.run(rows, 4) == 100, "the commit failed before it closed the batch"
    tasks.seal(4, 100)
    assert tasks.run(rows, 4) == 100, "the batch is repeated"
    assert tasks.stored() == list(rows)
    tasks.run([100], 5)
    tasks.seal(5, 1)
    with pytest.raises(ProducerFenced, match="CURLEW_FENCED"):
        tasks.run(rows, 4)
    assert tasks.stored() == list(range(101))


def test_two_attempts_of_a_task_at_once(tasks: Tasks) -> None:
    """Speculation: both send the same rows at the same time, and both come to their end."""
    given = {"sendMaxMessages": "3", "retryTimeoutMs": "60000"}
    with ThreadPoolExecutor(2) as attempts:
        runs = [attempts.submit(tasks.run, range(400), **given) for _ in range(2)]
    assert [run.result() for run in runs] == [400, 400]
    assert tasks.stored() == list(range(400))


def test_a_commit_of_the_sink_that_fails_and_is_repeated(node: FakeNode) -> None:
    """The query ends with the error; the batch is repeated, and what it sends is known already."""
    tasks = Tasks(node.base_url, "orders")
    tasks.options["retryTimeoutMs"] = "0"
    node.faults = [refusal(503)]
    with pytest.raises(ServiceUnavailable, match="closing batch 3"):
        tasks.seal(3, 1)
    tasks.seal(3, 1)
    assert node.seals[-1] == ("spark:orders", 3)


def test_a_batch_of_which_the_node_has_lost_rows_is_not_done(tasks: Tasks) -> None:
    """As after a power loss, which may take what was acknowledged and not yet synced."""
    tasks.run(range(30))
    with pytest.raises(SequenceBroken, match=r"of 50 messages .* 30 are stored.* repeated"):
        tasks.seal(0, 20, 30)
    tasks.run(range(50))
    tasks.seal(0, 20, 30)
    assert tasks.stored() == list(range(50))


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("changed", [{}, {"sendMaxMessages": "8"}, {"sendMaxBytes": "1024"}])
def test_a_repeated_batch_finds_its_rows_although_something_was_changed(
    real: RealNode, topic: str, tasks: Tasks, keyed: bool, changed: dict[str, str]
) -> None:
    """Queues are added, or portions get another size: rows without keys change queues with each.
    Without the plan of the first time they would go to other queues."""
    before = {"sendMaxMessages": "5"}
    tasks.run(range(37), 3, keyed=keyed, **before)
    if not changed:
        real.add_topic(topic, 5)
    tasks.run(range(60), 3, keyed=keyed, **{**before, **changed})
    assert tasks.stored() == list(range(60))
    tasks.run(range(60), 4, keyed=keyed, **before)
    queues = {row["queue"] for row in rows_at(real.base_url, topic)}
    assert queues == set(range(3 if changed else 5)), "the next batch takes all"


@pytest.mark.parametrize("idempotence", ["true", "false"])
def test_a_request_whose_answer_was_lost_is_stored_once(
    real: RealNode, topic: str, tasks: Tasks, idempotence: str
) -> None:
    """Control: without idempotence it is stored again."""
    rule = Dropping(every=3)
    with run_proxy(real.base_url, rule) as endpoint:
        given = {"endpoint": endpoint, "sendMaxMessages": "2", "idempotence": idempotence}
        tasks.run(range(20), **given)
    assert rule.dropped.is_set()
    assert (tasks.stored() == list(range(20))) == (idempotence == "true")
    assert set(tasks.stored()) == set(range(20))


@pytest.mark.parametrize("column", ["queue", "partition"])
def test_a_queue_that_is_not_there_is_told_by_the_column_that_names_it(
    node: FakeNode, column: str
) -> None:
    rows = batch(value=[b"a"], **{column: [2**40]})
    with pytest.raises(RowRefused, match=f"column '{column}' has {2**40}; the topic has queues"):
        write(node.base_url, [rows], f"value binary, {column} long", topic="orders")
    assert node.sent == []


def test_a_topic_of_a_row_that_no_topic_can_have(node: FakeNode) -> None:
    rows = batch(value=[b"a"], topic=["a b"])
    with pytest.raises(RowRefused, match="column 'topic' has 'a b'"):
        write(node.base_url, [rows], "value binary, topic string")


def test_rows_without_a_producer_go_to_the_queues_that_take_messages(node: FakeNode) -> None:
    """Of a shard that drains none does; where none is told to take any, the service says why."""
    node.leaders = dict.fromkeys((("orders", 0), ("orders", 1)), node.base_url)
    rows = batch(value=[b"a", b"b"], key=["k1", "k2"])
    for closed, expected in (({0}, {1}), ({1}, {0}), (set(), {0, 1}), ({0, 1}, {0, 1})):
        node.closed = {("orders", queue) for queue in closed}
        node.sent.clear()
        write(
            node.base_url,
            [rows],
            "value binary, key string",
            topic="orders",
            idempotence="false",
        )
        assert {queue for _, queue, _ in node.sent} == expected


def test_a_queue_that_takes_nothing_is_no_matter_of_credentials(node: FakeNode) -> None:
    said = b'{"code":"NO_PERMISSION","detail":"queue 0 takes no new messages: its shard drains"}'
    node.faults = [lambda reply: reply, lambda _reply: Reply(403, {}, said)]
    rows = batch(value=[b"a"], queue=[0])
    with pytest.raises(RequestRefused, match="its shard drains"):
        write(node.base_url, [rows], "value binary, queue int", topic="orders", idempotence="false")


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
