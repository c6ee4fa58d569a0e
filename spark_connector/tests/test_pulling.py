"""One task's work: every offset of a range comes out or is reported, whatever the node does."""

import logging
from dataclasses import replace
from urllib.parse import parse_qs, urlsplit

import pyarrow as pa
import pytest
from pyspark_curlew.errors import DataLoss, ProtocolViolation, RequestRefused, ServiceUnavailable
from pyspark_curlew.http.client import CurlewClient
from pyspark_curlew.http.retry import RetryPolicy
from pyspark_curlew.options import SourceOptions
from pyspark_curlew.reading.planning import QueueRange
from pyspark_curlew.reading.pulling import read_range

from spark_connector.tests.support.clock import Clock
from spark_connector.tests.support.fake_node import FakeNode, Reply, refusal
from spark_connector.tests.support.sized import sized_options

BODIES = [b"m%d" % number for number in range(20)]


@pytest.fixture
def node(fake: FakeNode) -> FakeNode:
    fake.add_topic("orders", queues=2)
    fake.send("orders", 1, *BODIES)
    return fake


def options_of(node: FakeNode, **given: str) -> SourceOptions:
    return sized_options({"endpoint": node.base_url, "topic": "orders", **given})


def read(node: FakeNode, start: int = 0, end: int = 20, **given: str) -> list[pa.RecordBatch]:
    options = options_of(node, **given)
    clock = Clock()
    client = CurlewClient(options.http, RetryPolicy(1_000, clock.sleep, clock.now))
    return list(read_range(QueueRange("orders", 1, start, end), options, client))


def values(batches: list[pa.RecordBatch]) -> list[bytes]:
    return [value for batch in batches for value in batch.column("value").to_pylist()]


def test_a_range_is_read_in_order(node: FakeNode) -> None:
    batches = read(node, 3, 17)
    assert values(batches) == BODIES[3:17]
    assert len(batches) == 1
    assert batches[0].column("queue").to_pylist() == [1] * 14


@pytest.mark.parametrize(
    ("given", "most"),
    [
        ({"pullMaxMessages": "6"}, 6),
        ({"pullMaxBytes": "1024"}, 8),
        ({"pullMaxMessages": "10", "pullMaxBytes": "1024"}, 8),
    ],
)
def test_a_range_is_read_in_portions(node: FakeNode, given: dict[str, str], most: int) -> None:
    batches = read(node, **given)
    assert values(batches) == BODIES
    assert max(len(batch) for batch in batches) == most


def test_messages_behind_the_range_are_left_out(node: FakeNode) -> None:
    def with_more(reply: Reply) -> Reply:
        return node._route(
            ["topics", "orders", "queues", "1", "messages"],
            {"offset": "5", "until_offset": "20", "max_messages": "99", "max_bytes": "99999"},
            "GET",
            b"",
        )

    node.faults = [with_more]
    assert values(read(node, 5, 8)) == BODIES[5:8]


def test_passing_troubles_do_not_show(node: FakeNode) -> None:
    node.faults = [refusal(503), lambda reply: reply, refusal(502)]
    assert values(read(node, pullMaxMessages="7")) == BODIES


def test_a_404_that_is_not_the_services_is_no_loss(node: FakeNode) -> None:
    """A proxy says it while it does not know where the service is."""
    node.faults = [lambda _reply: Reply(404, {"Content-Type": "text/html"}, b"<h1>default</h1>")]
    with pytest.raises(RequestRefused, match="HTTP 404"):
        read(node, failOnDataLoss="false")
    with pytest.raises(DataLoss, match="no longer exists"):
        read_other_topic(node)


def read_other_topic(node: FakeNode) -> None:
    options = options_of(node)
    list(read_range(QueueRange("other", 0, 0, 5), options, CurlewClient(options.http)))


def test_expired_messages_stop_the_query_or_are_skipped(
    node: FakeNode, caplog: pytest.LogCaptureFixture
) -> None:
    node.topics["orders"][1].remove_before(4)
    with pytest.raises(DataLoss) as loss:
        read(node)
    assert str(loss.value) == (
        "CURLEW_DATA_LOSS: topic 'orders' queue 1: offsets [0, 4) are gone (the queue now has"
        " offsets 4 to 20 (excluded)). The query would skip 4 messages. Set option"
        " failOnDataLoss=false to skip them, raise the topic's retention, or start a new"
        " checkpoint."
    )
    with caplog.at_level(logging.WARNING, "pyspark_curlew"):
        assert values(read(node, failOnDataLoss="false")) == BODIES[4:]
    assert "offsets [0, 4) are gone" in caplog.text


@pytest.mark.parametrize(("lose", "start", "end"), [("remove_before", 2, 9), ("cut_at", 12, 20)])
def test_a_range_that_is_gone_as_a_whole(node: FakeNode, lose: str, start: int, end: int) -> None:
    getattr(node.topics["orders"][1], lose)(11)
    with pytest.raises(DataLoss, match=rf"offsets \[{start}, {end}\) are gone"):
        read(node, start, end)
    assert read(node, start, end, failOnDataLoss="false") == []


@pytest.mark.parametrize(
    "holes", [{0}, {19}, {7, 8}, {0, 1, 9, 18, 19}, set(range(20)), set(range(4, 12))]
)
@pytest.mark.parametrize("portion", ["1", "4", "100"])
def test_holes_stop_the_query_or_are_skipped(
    node: FakeNode, holes: set[int], portion: str, caplog: pytest.LogCaptureFixture
) -> None:
    node.topics["orders"][1].holes = holes
    with pytest.raises(DataLoss, match=rf"offsets \[{min(holes)}, \d+\) are gone"):
        read(node, pullMaxMessages=portion)
    found = values(read(node, failOnDataLoss="false", pullMaxMessages=portion))
    assert found == [body for number, body in enumerate(BODIES) if number not in holes]
    skipped = [record.getMessage() for record in caplog.records]
    lost = sum(int(text.split("would skip ")[1].split(" ")[0]) for text in skipped)
    assert lost == len(holes)


def test_an_answer_that_leads_nowhere_is_asked_for_only_so_often(node: FakeNode) -> None:
    node.topics["orders"][1].cut_at(10)
    with pytest.raises(ServiceUnavailable, match="nothing comes from offset 10 on"):
        read(node)
    assert sum("offset=10&" in request for request in node.requests) == 6


def test_messages_that_come_late_are_waited_for(node: FakeNode) -> None:
    node.topics["orders"][1].cut_at(10)

    def send_the_rest(request: str) -> None:
        if "wait=2" in request:
            node.send("orders", 1, *BODIES[10:])
            node.after_request = lambda _request: None

    node.after_request = send_the_rest
    assert values(read(node)) == BODIES


def test_offsets_out_of_order_are_refused(node: FakeNode) -> None:
    queue = node.topics["orders"][1]
    queue.records[4] = replace(queue.records[4], queue_offset=3)
    with pytest.raises(ProtocolViolation, match="out of order"):
        read(node)


def test_a_topic_that_is_gone(node: FakeNode) -> None:
    del node.topics["orders"]
    with pytest.raises(
        DataLoss, match=r"offsets \[0, 20\) are gone \(the topic or queue no longer"
    ):
        read(node)
    assert read(node, failOnDataLoss="false") == []


def test_properties_are_read_when_asked_for(node: FakeNode) -> None:
    (batch,) = read(node, 0, 1, includeProperties="true")
    assert batch.column("properties").to_pylist() == [[("KEYS", "k0"), ("TAGS", "t")]]


def test_reading_ahead_does_not_show_in_the_rows(node: FakeNode) -> None:
    batches = read(node, 2, 19, pullMaxMessages="3")
    assert values(batches) == BODIES[2:19]
    assert len(node.requests) == 7  # they end at multiples of three


def windows(node: FakeNode) -> list[tuple[int, int]]:
    """What was asked for, start and end of each."""
    targets = [parse_qs(urlsplit(request).query) for request in node.requests]
    return sorted((int(query["offset"][0]), int(query["until_offset"][0])) for query in targets)


def test_windows_end_at_multiples_of_whole_blocks(node: FakeNode) -> None:
    """Once it is known how many messages come in one answer."""
    node.send("orders", 0, *[b"%d" % number for number in range(3_000)])
    size = len(node.topics["orders"][0].records[0].encode())
    options = options_of(node, pullMaxBytes=str(300 * (size + 6)))
    rows = read_range(QueueRange("orders", 0, 5, 2_900), options, CurlewClient(options.http))
    assert values(list(rows)) == [b"%d" % number for number in range(5, 2_900)]
    asked = windows(node)
    assert asked[0] == (5, 2_900)
    ends = [end for _, end in asked[1:]]
    assert ends == [*range(512, 2_817, 256), 2_900]


def test_a_rest_that_fits_in_one_answer_is_asked_for_at_once(node: FakeNode) -> None:
    assert values(read(node, 3, 13, pullMaxMessages="10")) == BODIES[3:13]
    assert windows(node) == [(3, 13)]


def test_no_more_is_read_ahead_than_allowed(node: FakeNode) -> None:
    options = options_of(node, pullMaxMessages="2")
    rows = read_range(QueueRange("orders", 1, 0, 20), options, CurlewClient(options.http))
    next(rows)
    rows.close()  # type: ignore[attr-defined]
    assert len(node.requests) <= 2


def test_what_expires_under_way_is_reported_once(
    node: FakeNode, caplog: pytest.LogCaptureFixture
) -> None:
    node.topics["orders"][1].remove_before(11)
    given = {"failOnDataLoss": "false", "pullMaxMessages": "4"}
    assert values(read(node, **given)) == BODIES[11:]
    lost = [record.getMessage() for record in caplog.records]
    assert sum(int(text.split("would skip ")[1].split(" ")[0]) for text in lost) == 11


def test_an_error_ahead_stops_the_task(node: FakeNode) -> None:
    node.faults = [lambda reply: reply, *[refusal(503)] * 20]
    with pytest.raises(ServiceUnavailable):
        read(node, pullMaxMessages="4")
