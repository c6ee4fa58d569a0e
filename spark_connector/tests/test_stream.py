"""The stream reader called as the engine calls it, in its order, without an engine."""

import logging
import threading
from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows
from pyspark_curlew.errors import DataLoss, Unsupported
from pyspark_curlew.reading.planning import QueueRange

from spark_connector.tests.support.fake_node import FakeNode, Queue
from spark_connector.tests.support.streams import (
    ALL,
    Offset,
    first_end,
    reader_of,
    stored,
    values_of,
)

KEPT = {
    "generations": {"orders": 1},
    "tasks": {"max_records": 250_000, "min_records": 32, "min_tasks": 1},
}


@pytest.fixture
def node(fake: FakeNode) -> FakeNode:
    fake.add_topic("orders", queues=2)
    return fake


def topics(*offsets: int) -> Offset:
    return {"orders": {str(number): offset for number, offset in enumerate(offsets)}}


def test_a_first_batch_then_a_second(node: FakeNode) -> None:
    node.send("orders", 0, b"a", b"b")
    node.send("orders", 1, b"c")
    reader = reader_of(node)
    start = reader.initialOffset()
    assert start == {"fmt": "curlew", "v": 1, "fresh": True, "topics": topics(0, 0)}
    first = reader.latestOffset(start, ALL)
    assert first == {
        "fmt": "curlew",
        "v": 1,
        "topics": topics(2, 1),
        "from": topics(0, 0),
        **KEPT,
    }
    assert values_of(reader, start, first) == [b"a", b"b", b"c"]
    reader.commit(first)
    node.send("orders", 1, b"d")
    second = reader.latestOffset(stored(first), ALL)
    assert second == {"fmt": "curlew", "v": 1, "topics": topics(2, 2), **KEPT}
    assert values_of(reader, first, second) == [b"d"]


def test_nothing_new_gives_the_start_back(node: FakeNode) -> None:
    node.send("orders", 0, b"a")
    reader = reader_of(node)
    first = reader.latestOffset(reader.initialOffset(), ALL)
    assert reader.latestOffset(stored(first), ALL) == first


def test_latest_stays_where_it_was_when_the_engine_asks_again(node: FakeNode) -> None:
    node.send("orders", 0, b"old")
    reader = reader_of(node, startingOffsets="latest")
    start = reader.initialOffset()
    first = reader.latestOffset(start, ALL)
    node.send("orders", 0, b"new")
    assert reader.initialOffset() == start
    assert values_of(reader, start, first) == []
    second = reader.latestOffset(stored(first), ALL)
    assert values_of(reader, first, second) == [b"new"]


def test_a_crash_in_the_first_batch_loses_nothing_to_latest(node: FakeNode) -> None:
    """A new process resolves `latest` anew; the stored end says where the first one began."""
    node.send("orders", 0, b"old")
    before = reader_of(node, startingOffsets="latest")
    start = before.initialOffset()
    node.send("orders", 0, b"a", b"b")
    end = before.latestOffset(start, ALL)
    node.send("orders", 0, b"c")
    after = reader_of(node, startingOffsets="latest")
    assert values_of(after, after.initialOffset(), end) == [b"a", b"b"]


def test_an_idle_first_start_is_pinned_too(node: FakeNode) -> None:
    """Or messages sent before the first restart would be lost to `latest`."""
    before = reader_of(node, startingOffsets="latest")
    start = before.initialOffset()
    pinned = before.latestOffset(start, ALL)
    assert pinned != start
    assert before.partitions(stored(start), stored(pinned)) == []
    node.send("orders", 0, b"while it was down")
    after = reader_of(node, startingOffsets="latest")
    end = after.latestOffset(stored(pinned), ALL)
    assert values_of(after, pinned, end) == [b"while it was down"]


def test_the_limit_is_told_to_the_engine_and_kept(node: FakeNode) -> None:
    node.send("orders", 0, *[b"x"] * 30)
    node.send("orders", 1, *[b"y"] * 10)
    assert reader_of(node).getDefaultReadLimit() == ReadAllAvailable()
    reader = reader_of(node, maxOffsetsPerTrigger="8")
    assert reader.getDefaultReadLimit() == ReadMaxRows(8)
    end = reader.latestOffset(reader.initialOffset(), ReadMaxRows(8))
    assert end["topics"] == topics(6, 2)
    newest = reader.reportLatestOffset()
    assert newest is not None
    assert newest.pop("averageBytes").keys() == {"orders"}  # type: ignore[attr-defined]
    assert newest == {"fmt": "curlew", "v": 1, "topics": topics(30, 10)}


def test_another_kind_of_limit_is_refused(node: FakeNode) -> None:
    reader = reader_of(node)
    with pytest.raises(Unsupported, match="ReadMaxBytes"):
        reader.latestOffset(reader.initialOffset(), ReadMaxBytes(8))


def test_available_now_ends_where_it_began(node: FakeNode) -> None:
    node.send("orders", 0, b"a", b"b", b"c")
    reader = reader_of(node, maxOffsetsPerTrigger="2")
    reader.prepareForTriggerAvailableNow()
    offset = reader.latestOffset(reader.initialOffset(), ReadMaxRows(2))
    node.send("orders", 0, b"late")
    node.topics["orders"][2] = Queue()
    offset = reader.latestOffset(stored(offset), ReadMaxRows(2))
    assert offset["topics"] == topics(3, 0)
    assert reader.latestOffset(stored(offset), ReadMaxRows(2)) == offset


def waits_of(node: FakeNode) -> list[int]:
    """Milliseconds that the node was asked to wait, request by request."""
    queries = [parse_qs(urlsplit(target).query) for target in node.requests]
    return [int(query["wait"][0].removesuffix("ms")) for query in queries if "wait" in query]


def test_available_now_does_not_wait(node: FakeNode) -> None:
    reader = reader_of(node, pollWaitMs="1000")
    reader.prepareForTriggerAvailableNow()
    start = reader.latestOffset(reader.initialOffset(), ALL)
    assert reader.latestOffset(stored(start), ALL) == start
    assert waits_of(node) == []


def test_an_idle_query_lets_the_service_wait_and_then_gives_up(node: FakeNode) -> None:
    reader = reader_of(node, pollWaitMs="30")
    start = reader.latestOffset(reader.initialOffset(), ALL)
    node.requests.clear()
    for _ in range(3):
        assert reader.latestOffset(stored(start), ALL) == start
    assert waits_of(node) == [30, 30, 30]
    assert len(node.requests) == 3


def test_waiting_ends_when_something_comes(node: FakeNode) -> None:
    reader = reader_of(node, pollWaitMs="60000")
    start = reader.latestOffset(reader.initialOffset(), ALL)
    sender = threading.Timer(0.05, lambda: node.send("orders", 1, b"x"))
    sender.start()
    assert reader.latestOffset(stored(start), ALL)["topics"] == topics(0, 1)
    sender.join()
    assert waits_of(node) == [60000]


def test_a_batch_costs_one_request_to_find_and_plan(node: FakeNode) -> None:
    reader = reader_of(node, pollWaitMs="1000", maxBytesPerTrigger="100000")
    start = reader.latestOffset(reader.initialOffset(), ALL)
    node.send("orders", 0, b"x")
    node.requests.clear()
    end = reader.latestOffset(stored(start), ALL)
    tasks = reader.partitions(stored(start), stored(end))
    assert [urlsplit(target).path for target in node.requests] == ["/v1/topics:positions"]
    assert reader_of(node).partitions(stored(start), stored(end)) == tasks
    assert len(node.requests) == 2, "a repeated batch is planned with another look"


def test_a_queue_that_is_added_begins_at_its_earliest(node: FakeNode) -> None:
    node.send("orders", 0, b"a")
    reader = reader_of(node, startingOffsets="latest")
    first = reader.latestOffset(reader.initialOffset(), ALL)
    node.topics["orders"][2] = Queue()
    node.send("orders", 2, b"gone", b"b")
    node.topics["orders"][2].remove_before(1)
    second = reader.latestOffset(stored(first), ALL)
    assert second["from"] == {"orders": {"2": 1}}
    node.send("orders", 2, b"c")
    assert values_of(reader, first, second) == [b"b"]


@pytest.mark.parametrize("given", [{"maxRecordsPerPartition": "4"}, {"minPartitions": "3"}])
def test_large_ranges_are_split(node: FakeNode, given: dict[str, str]) -> None:
    node.send("orders", 0, *[b"x"] * 10)
    reader = reader_of(node, **given)
    start = reader.initialOffset()
    assert reader.partitions(start, reader.latestOffset(start, ALL)) == [
        QueueRange("orders", 0, 0, 3),
        QueueRange("orders", 0, 3, 6),
        QueueRange("orders", 0, 6, 10),
    ]


def test_expired_messages_are_noticed_when_a_batch_is_planned_again(node: FakeNode) -> None:
    node.send("orders", 0, *[b"x"] * 10)
    reader = reader_of(node)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    node.send("orders", 0, b"of the next batch")
    reader.latestOffset(stored(end), ALL)
    node.topics["orders"][0].remove_before(4)
    for planning in (reader_of(node), reader):
        with pytest.raises(DataLoss, match=r"offsets \[0, 4\) are gone \(earliest is 4"):
            planning.partitions(start, end)
    careless = reader_of(node, failOnDataLoss="false")
    assert careless.partitions(start, end) == [QueueRange("orders", 0, 4, 10)]


def retention(node: FakeNode) -> None:
    node.topics["orders"][0].remove_before(4)


def remaking(node: FakeNode) -> None:
    node.add_topic("orders", queues=2)
    node.send("orders", 0, b"of", b"another", b"topic")


@pytest.mark.parametrize(("loss", "left"), [(retention, [b"4", b"5"]), (remaking, [])])
def test_what_is_lost_once_its_batch_was_found_is_noticed_by_the_tasks(
    node: FakeNode,
    caplog: pytest.LogCaptureFixture,
    loss: Callable[[FakeNode], None],
    left: list[bytes],
) -> None:
    node.send("orders", 0, *[b"%d" % number for number in range(6)])
    careful, careless = reader_of(node), reader_of(node, failOnDataLoss="false")
    start = careful.initialOffset()
    end = careful.latestOffset(start, ALL)
    assert careless.latestOffset(start, ALL) == end
    loss(node)
    with pytest.raises(DataLoss, match=r"offsets \[0, [46]\) are gone"):
        values_of(careful, start, end)
    with caplog.at_level(logging.WARNING, "pyspark_curlew"):
        assert values_of(careless, start, end) == left
    assert "are gone" in caplog.text
    following = careless.latestOffset(stored(end), ALL)
    if loss is retention:
        assert following == end, "nothing came since"
    else:
        assert values_of(careless, end, following) == [b"another", b"of", b"topic"]


def test_what_was_not_read_of_a_topic_made_anew_fills_no_batch(node: FakeNode) -> None:
    node.send("orders", 0, b"a", b"b", b"c")
    reader = reader_of(node, failOnDataLoss="false")
    end = reader.latestOffset(reader.initialOffset(), ReadMaxRows(1))
    node.add_topic("orders", queues=2)
    node.send("orders", 0, b"of another topic")
    following = reader.latestOffset(stored(end), ReadMaxRows(1))
    assert values_of(reader, end, following) == [b"of another topic"]


@pytest.mark.parametrize("on_new_disk", [False, True])
def test_a_topic_made_anew_is_noticed_when_its_batch_is_planned_again(
    node: FakeNode, caplog: pytest.LogCaptureFixture, on_new_disk: bool
) -> None:
    """A batch whose end is in the checkpoint is repeated without another look for its end."""
    node.send("orders", 0, b"a", b"b")
    reader = reader_of(node)
    start = stored(reader.initialOffset())
    end = stored(reader.latestOffset(start, ALL))
    node.add_topic("orders", queues=2, on_new_disk=on_new_disk)
    node.send("orders", 0, b"of", b"another", b"topic")
    with pytest.raises(DataLoss, match=r"made anew \(generation 1 before, now 2\)"):
        reader_of(node).partitions(start, end)
    careless = reader_of(node, failOnDataLoss="false")
    with caplog.at_level(logging.WARNING, "pyspark_curlew"):
        assert values_of(careless, start, end) == []
    assert caplog.text.count("DATA_LOSS") == 1, "said once, of the topic"
    after = careless.latestOffset(end, ALL)
    assert values_of(careless, end, after) == sorted([b"of", b"another", b"topic"])


def test_a_repeated_batch_keeps_its_tasks_although_options_were_changed(node: FakeNode) -> None:
    """A sink knows the rows of a repeated batch by the number of their task."""
    node.send("orders", 0, *[b"x"] * 10)
    node.send("orders", 1, b"y")
    before = reader_of(node, maxRecordsPerPartition="4")
    start = stored(before.initialOffset())
    end = stored(before.latestOffset(start, ALL))
    node.send("orders", 0, *[b"x"] * 10)
    node.send("orders", 1, b"y")
    after = reader_of(node, maxRecordsPerPartition="7", minPartitions="6")
    assert after.partitions(start, end) == before.partitions(start, end)
    assert len(after.partitions(start, end)) == 4
    following = stored(after.latestOffset(end, ALL))
    assert len(after.partitions(end, following)) == 6, "the next batch takes them up"
    early = {name: value for name, value in end.items() if name != "tasks"}
    assert reader_of(node).partitions(start, early) == [
        QueueRange("orders", 0, 0, 10),
        QueueRange("orders", 1, 0, 1),
    ], "as the connector planned that wrote no tasks"


def test_what_is_lost_does_not_move_rows_to_other_tasks(node: FakeNode) -> None:
    """A sink knows the rows of a repeated batch by the number of their task."""
    node.send("orders", 0, *[b"a%d" % number for number in range(6)])
    node.send("orders", 1, *[b"b%d" % number for number in range(6)])
    reader = reader_of(node, failOnDataLoss="false", maxRecordsPerPartition="3")
    start = stored(reader.initialOffset())
    end = stored(reader.latestOffset(start, ALL))
    before = reader.partitions(start, end)
    node.topics["orders"][0].remove_before(4)
    after = reader.partitions(start, end)
    rows = [
        [value for batch in reader.read(task) for value in batch.column("value").to_pylist()]
        for task in after
    ]
    assert rows == [[], [b"b0", b"b1", b"b2"], [b"a4", b"a5"], [b"b3", b"b4", b"b5"]]
    assert len(before) == len(after)
    del node.topics["orders"][1]
    assert [len(task.ranges) for task in reader.partitions(start, end)] == [1] * 4


def test_a_cut_queue_is_noticed_before_its_new_end_is_passed(node: FakeNode) -> None:
    node.send("orders", 0, *[b"x"] * 10)
    reader = reader_of(node)
    end = reader.latestOffset(reader.initialOffset(), ALL)
    node.topics["orders"][0].cut_at(6)
    with pytest.raises(DataLoss, match="was read up to 10 but now ends at 6"):
        reader.latestOffset(stored(end), ALL)
    careless = reader_of(node, failOnDataLoss="false")
    resumed = careless.latestOffset(stored(end), ALL)
    assert resumed["topics"] == topics(6, 0)
    assert careless.partitions(stored(end), stored(resumed)) == []
    node.send("orders", 0, b"new")
    assert values_of(careless, resumed, careless.latestOffset(resumed, ALL)) == [b"new"]


def test_a_power_loss_takes_nothing_that_was_planned(node: FakeNode) -> None:
    """Else the offsets of what was read would be given to messages that are never read."""
    node.send("orders", 0, b"a")
    reader = reader_of(node)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    node.send("orders", 0, b"not flushed")
    node.topics["orders"][0].lose_power()
    assert values_of(reader, start, end) == [b"a"]
    node.send("orders", 0, b"b", b"c")
    later = reader.latestOffset(stored(end), ALL)
    assert values_of(reader, end, later) == [b"b", b"c"]


def queue_goes(node: FakeNode) -> None:
    del node.topics["orders"][1]


def topic_goes(node: FakeNode) -> None:
    del node.topics["orders"]


@pytest.mark.parametrize("go", [queue_goes, topic_goes])
def test_a_queue_that_is_gone_keeps_its_position(
    node: FakeNode, go: Callable[[FakeNode], None]
) -> None:
    node.send("orders", 1, b"x")
    reader = reader_of(node, failOnDataLoss="false")
    end = first_end(reader)
    go(node)
    assert reader.latestOffset(end, ALL) == end
    with pytest.raises(DataLoss, match=r"queue [01]: the queue no longer exists"):
        reader_of(node).latestOffset(end, ALL)
