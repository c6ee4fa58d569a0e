"""A task of several queues asks all of them at once; what comes of each is as of a task of one."""

import logging
import threading
from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

import pyarrow as pa
import pytest
from pyspark_curlew.errors import AccessDenied, DataLoss
from pyspark_curlew.http.client import CurlewClient, Pull
from pyspark_curlew.http.retry import RetryPolicy, TryLater
from pyspark_curlew.http.transport import Transport
from pyspark_curlew.options import SourceOptions
from pyspark_curlew.reading.planning import QueueRange, QueueRanges, Task
from pyspark_curlew.reading.pulling import read_range

from spark_connector.tests.support.clock import Clock
from spark_connector.tests.support.fake_node import (
    FakeNode,
    Fault,
    Reply,
    damage,
    refusal,
    truncation,
)
from spark_connector.tests.support.real_node import RealNode
from spark_connector.tests.support.sized import sized_options

ORDERS_1 = QueueRange("orders", 1, 17, 20)
ORDERS_0 = QueueRange("orders", 0, 1, 3)
TRIPS = QueueRange("trips", 0, 0, 1)
TASK = QueueRanges((ORDERS_1, ORDERS_0, TRIPS))
ALL = [b"m17", b"m18", b"m19", b"b", b"c", b"t"]


@pytest.fixture
def node(fake: FakeNode) -> FakeNode:
    fake.add_topic("orders", queues=2)
    fake.add_topic("trips", queues=1)
    fake.send("orders", 1, *[b"m%d" % number for number in range(20)])
    fake.send("orders", 0, b"a", b"b", b"c")
    fake.send("trips", 0, b"t")
    return fake


def options_of(url: str, **given: str) -> SourceOptions:
    return sized_options({"endpoint": url, "topics": "orders,trips", **given})


def read(node: FakeNode, task: Task = TASK, **given: str) -> list[pa.RecordBatch]:
    options = options_of(node.base_url, **given)
    clock = Clock()
    return list(
        read_range(
            task, options, CurlewClient(options.http, RetryPolicy(1_000, clock.sleep, clock.now))
        )
    )


def rows(batches: list[pa.RecordBatch]) -> list[dict[str, object]]:
    return [row for batch in batches for row in batch.to_pylist()]


def rows_one_by_one(node: FakeNode, **given: str) -> list[dict[str, object]]:
    """What three tasks of one queue each read."""
    return [row for wanted in TASK.ranges for row in rows(read(node, wanted, **given))]


def values(batches: list[pa.RecordBatch]) -> list[object]:
    return [row["value"] for row in rows(batches)]


def test_a_few_messages_of_several_queues_cost_a_request_each(node: FakeNode) -> None:
    batches = read(node)
    assert [batch.column("queue").to_pylist() for batch in batches] == [[1, 1, 1], [0, 0], [0]]
    assert values(batches) == ALL
    assert len(node.requests) == 3


def test_all_queues_are_asked_before_the_first_answer_is_read(node: FakeNode) -> None:
    all_have_come = threading.Barrier(3, timeout=20)

    def wait_for_the_others(_request: str) -> None:
        all_have_come.wait()  # or the answer never comes

    node.after_request = wait_for_the_others
    assert values(read(node)) == ALL


def test_together_they_have_no_more_bytes_than_one_pull(node: FakeNode) -> None:
    read(node, pullMaxBytes="3001")
    asked = [parse_qs(urlsplit(request).query)["max_bytes"] for request in node.requests]
    assert asked == [["1000"]] * 3


def test_queues_of_several_stores(node: FakeNode) -> None:
    """Message ids that a store gives have its name in them."""

    def of_another_store(reply: Reply) -> Reply:
        return Reply(reply.status, {**reply.headers, "MQ-Store-Id": "0000000f"}, reply.body)

    node.faults = [of_another_store]
    batches = read(node)
    assert values(batches) == ALL
    stores = [{str(row["message_id"])[2:10] for row in rows([batch])} for batch in batches]
    assert sorted(map(sorted, stores)) == [["0000000F"], ["0A0B0C0D"], ["0A0B0C0D"]]


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize(
    "fault",
    [
        refusal(503),
        refusal(500, **{"Retry-After": "0"}),
        damage(),
        damage(40),
        truncation,
        lambda _reply: Reply(200, {"Content-Type": "text/html"}, b"<h1>soon</h1>"),
        lambda _reply: Reply(400, {}, b"{}"),
    ],
)
def test_what_fails_once_does_not_show(node: FakeNode, fault: Fault, place: int) -> None:
    whole = rows_one_by_one(node)
    node.requests.clear()
    node.faults = [*[lambda reply: reply] * place, fault]
    assert rows(read(node)) == whole
    assert len(node.requests) == 4


def test_what_is_always_refused_is_said(node: FakeNode) -> None:
    node.faults = [refusal(403)] * 9
    with pytest.raises(AccessDenied):
        read(node)


def hole(node: FakeNode) -> None:
    node.topics["orders"][1].holes = {18}


def expired(node: FakeNode) -> None:
    node.topics["orders"][1].remove_before(19)


def gone(node: FakeNode) -> None:
    del node.topics["trips"]


@pytest.mark.parametrize(
    ("lose", "left", "lost"),
    [
        (hole, [b"m17", b"m19", b"b", b"c", b"t"], "queue 1: offsets [18, 19) are gone"),
        (expired, ALL[2:], "queue 1: offsets [17, 19) are gone"),
        (gone, ALL[:-1], "topic 'trips' queue 0: offsets [0, 1) are gone"),
    ],
)
def test_what_one_queue_has_lost_is_said_and_leaves_the_others_whole(
    node: FakeNode,
    lose: Callable[[FakeNode], None],
    left: list[bytes],
    lost: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    lose(node)
    with pytest.raises(DataLoss) as loss:
        read(node)
    assert lost in str(loss.value)
    with caplog.at_level(logging.WARNING):
        assert values(read(node, failOnDataLoss="false")) == left
    assert [lost in record.getMessage() for record in caplog.records] == [True]


def test_messages_that_are_too_large_for_one_answer(node: FakeNode) -> None:
    node.send("trips", 0, b"x" * 900, b"y" * 900)
    task = QueueRanges((QueueRange("trips", 0, 0, 3), ORDERS_1))
    found = values(read(node, task, pullMaxBytes="1024"))
    assert found == [b"t", b"x" * 900, b"y" * 900, *ALL[:3]]
    firsts = [request for request in node.requests if "trips" in request and "offset=0&" in request]
    assert len(firsts) == 1  # what came at first is not asked for again


@pytest.mark.parametrize("most", ["1", "2"])
def test_ranges_of_more_than_one_pull(node: FakeNode, most: str) -> None:
    assert values(read(node, pullMaxMessages=most)) == ALL
    asked = [parse_qs(urlsplit(request).query)["max_messages"] for request in node.requests]
    assert max(asked) == [most]


def test_messages_that_come_late_are_waited_for(node: FakeNode) -> None:
    node.topics["trips"][0].cut_at(0)

    def send_the_last(request: str) -> None:
        if "wait=2" in request:
            node.send("trips", 0, b"t")
            node.after_request = lambda _request: None

    node.after_request = send_the_last
    assert values(read(node)) == ALL
    assert len(node.requests) == 5


def test_a_range_that_was_narrowed_to_nothing_is_not_asked_for(node: FakeNode) -> None:
    assert values(read(node, QueueRanges((QueueRange("trips", 0, 1, 1), ORDERS_0)))) == [b"b", b"c"]
    assert not any("trips" in request for request in node.requests)


def test_what_was_begun_is_closed_when_not_all_can_be(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A socket that is dropped without being closed is a warning, and so an error here."""
    begin = Transport.begin
    calls = []

    def begin_once(self: Transport, request: object, _endpoint: object) -> object:
        if calls:
            raise TryLater("refused")
        calls.append(begin(self, request))  # type: ignore[arg-type]
        return calls[0]

    monkeypatch.setattr(Transport, "begin", begin_once)
    client = CurlewClient(options_of(node.base_url).http)
    pulls = [Pull("orders", queue, 0, 1, 1, 1000) for queue in (0, 1)]
    assert client.pull_at_once(pulls) == [None, None]


@pytest.mark.parametrize(("tags", "count"), [(None, 8), ("t", 7), ("u", 1)])
def test_a_real_node_and_a_filter(real: RealNode, topic: str, tags: str | None, count: int) -> None:
    real.add_topic(topic, queues=3)
    for queue in range(3):
        real.send(topic, queue, b"a%d" % queue, b"b%d" % queue, tag="t")
    real.send(topic, 1, b"other", tag="u")
    real.send(topic, 1, b"last", tag="t")
    ranges = [QueueRange(topic, queue, 0, 4 if queue == 1 else 2) for queue in range(3)]
    options = options_of(real.base_url, **({} if tags is None else {"filterTags": tags}))
    client = CurlewClient(options.http)
    together = rows(list(read_range(QueueRanges(tuple(ranges)), options, client)))
    single = [row for each in ranges for row in rows(list(read_range(each, options, client)))]
    assert together == single
    assert len(together) == count
