"""The stream reader's options beyond one topic and a limit of rows, called as the engine does."""

import logging

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark_curlew.errors import DataLoss, OptionInvalid, TopicNotFound

from spark_connector.tests.support.clock import Clock
from spark_connector.tests.support.fake_node import FakeNode, refusal
from spark_connector.tests.support.streams import ALL, first_end, reader_of, stored, values_of


@pytest.fixture
def node(fake: FakeNode) -> FakeNode:
    fake.add_topic("orders", queues=2)
    return fake


@pytest.fixture
def time() -> Clock:
    return Clock()


def test_several_topics(node: FakeNode, time: Clock) -> None:
    node.add_topic("events", queues=1)
    node.send("orders", 1, b"a")
    node.send("events", 0, b"b", b"c")
    reader = reader_of(node, time, topics="orders,events")
    start = reader.initialOffset()
    end = first_end(reader)
    assert end["topics"] == {"events": {"0": 2}, "orders": {"0": 0, "1": 1}}
    assert values_of(reader, start, end) == [b"a", b"b", b"c"]


def test_a_topic_that_is_made_later_matches_the_pattern(node: FakeNode, time: Clock) -> None:
    reader = reader_of(node, time, topicsPattern="ord.*", startingOffsets="latest")
    end = first_end(reader)
    node.add_topic("ordinary", queues=1)
    node.add_topic("disorder", queues=1)
    node.send("ordinary", 0, b"x")
    after = reader.latestOffset(end, ALL)
    assert after["from"] == {"ordinary": {"0": 0}}
    assert values_of(reader, end, after) == [b"x"]


def test_only_the_chosen_queues(node: FakeNode, time: Clock) -> None:
    node.send("orders", 0, b"a")
    node.send("orders", 1, b"b")
    reader = reader_of(node, time, queues='{"orders":[1]}')
    start, end = reader.initialOffset(), first_end(reader)
    assert values_of(reader, start, end) == [b"b"]
    with pytest.raises(OptionInvalid, match="names queue 2 of topic 'orders', which has 2"):
        reader_of(node, time, queues='{"orders":[2]}').initialOffset()


def test_a_topic_that_never_was(node: FakeNode, time: Clock) -> None:
    with pytest.raises(TopicNotFound):
        reader_of(node, time, topics="orders,nothing").initialOffset()


@pytest.mark.parametrize("on_new_disk", [False, True])
def test_a_topic_made_anew_is_a_loss(
    node: FakeNode, time: Clock, caplog: pytest.LogCaptureFixture, on_new_disk: bool
) -> None:
    """Though its offsets have already passed those that the query has read."""
    reader = reader_of(node, time)
    node.send("orders", 0, b"a", b"b")
    end = first_end(reader)
    node.add_topic("orders", queues=2, on_new_disk=on_new_disk)
    node.send("orders", 0, b"1", b"2", b"3")
    with pytest.raises(DataLoss, match=r"'orders' was deleted and made anew \(generation 1 before"):
        reader.latestOffset(end, ALL)
    careless = reader_of(node, time, failOnDataLoss="false")
    with caplog.at_level(logging.WARNING, "pyspark_curlew"):
        after = careless.latestOffset(end, ALL)
    assert values_of(careless, end, after) == [b"1", b"2", b"3"]
    assert after["generations"] == {"orders": 2}
    assert caplog.text.count("made anew") == 1
    node.send("orders", 0, b"4")
    assert values_of(careless, after, careless.latestOffset(stored(after), ALL)) == [b"4"]


def test_a_checkpoint_without_generations_is_read(node: FakeNode, time: Clock) -> None:
    reader = reader_of(node, time)
    node.send("orders", 0, b"a", b"b")
    early = {"fmt": "curlew", "v": 1, "topics": {"orders": {"0": 1, "1": 0}}}
    after = reader.latestOffset(early, ALL)
    assert values_of(reader, early, after) == [b"b"]


def test_a_limit_of_bytes(node: FakeNode, time: Clock) -> None:
    node.send("orders", 0, *[b"x" * 1000] * 50)
    node.send("orders", 1, *[b"x"] * 50)
    reader = reader_of(node, time, maxBytesPerTrigger="20000")
    assert reader.getDefaultReadLimit() == ReadAllAvailable()
    end = first_end(reader)["topics"]["orders"]
    # 1117 and 118 bytes a record with what belongs to it; 62 KB in all.
    assert 10 <= end["0"] <= 18
    assert 10 <= end["1"] <= 18


def test_of_two_limits_the_smaller_one_wins(node: FakeNode, time: Clock) -> None:
    node.send("orders", 0, *[b"x" * 1000] * 50)
    reader = reader_of(node, time, maxBytesPerTrigger="20000", maxOffsetsPerTrigger="3")
    end = reader.latestOffset(reader.initialOffset(), ReadMaxRows(3))
    assert end["topics"] == {"orders": {"0": 3, "1": 0}}
    other = reader_of(node, time, maxBytesPerTrigger="3000", maxOffsetsPerTrigger="30")
    end = other.latestOffset(other.initialOffset(), ReadMaxRows(30))
    assert end["topics"] == {"orders": {"0": 2, "1": 0}}


def test_a_small_batch_is_held_until_it_is_large_enough(node: FakeNode, time: Clock) -> None:
    reader = reader_of(node, time, minOffsetsPerTrigger="3", maxTriggerDelay="15m")
    end = first_end(reader)
    node.send("orders", 0, b"a", b"b")
    assert reader.latestOffset(end, ALL) == end
    node.send("orders", 1, b"c")
    assert reader.latestOffset(end, ALL)["topics"] == {"orders": {"0": 2, "1": 1}}


def test_a_small_batch_is_held_no_longer_than_said(node: FakeNode, time: Clock) -> None:
    reader = reader_of(node, time, minOffsetsPerTrigger="3", maxTriggerDelay="10s")
    end = first_end(reader)
    node.send("orders", 0, b"a")
    time.now_s += 9.9
    assert reader.latestOffset(end, ALL) == end
    time.now_s += 0.1
    after = reader.latestOffset(end, ALL)
    assert after["topics"] == {"orders": {"0": 1, "1": 0}}
    node.send("orders", 0, b"b")
    assert reader.latestOffset(stored(after), ALL) == after


def test_holding_does_not_hammer_the_service(node: FakeNode, time: Clock) -> None:
    reader = reader_of(node, time, minOffsetsPerTrigger="3", pollWaitMs="30")
    end = first_end(reader)
    node.send("orders", 0, b"a")
    node.requests.clear()
    assert reader.latestOffset(end, ALL) == end
    assert ["wait=30ms" in target for target in node.requests] == [True, True]


def test_a_pattern_that_matches_nothing_does_not_hammer_the_service(
    node: FakeNode, time: Clock
) -> None:
    reader = reader_of(node, time, topicsPattern="none-.*", pollWaitMs="1000")
    end = first_end(reader)
    assert reader.latestOffset(end, ALL) == end
    assert sum(time.pauses) == pytest.approx(1.0)


def test_available_now_holds_nothing(node: FakeNode, time: Clock) -> None:
    reader = reader_of(node, time, minOffsetsPerTrigger="3")
    end = first_end(reader)
    node.send("orders", 0, b"a")
    reader.prepareForTriggerAvailableNow()
    assert reader.latestOffset(end, ALL)["topics"] == {"orders": {"0": 1, "1": 0}}


def test_a_group_is_told_the_next_offsets(node: FakeNode, time: Clock) -> None:
    node.send("orders", 0, b"a", b"b")
    reader = reader_of(node, time, consumerGroup="etl")
    reader.latestOffset(first_end(reader), ALL)
    assert node.committed == {("etl", "orders"): {0: 2, 1: 0}}
    again = reader_of(node, time, consumerGroup="etl", startingOffsets="committed")
    assert again.initialOffset()["topics"] == {"orders": {"0": 2, "1": 0}}


def test_a_group_is_told_of_each_topic_once(node: FakeNode, time: Clock) -> None:
    node.add_topic("events", queues=1)
    node.send("events", 0, b"a")
    reader = reader_of(node, time, topics="orders,events", consumerGroup="etl")
    end = first_end(reader)
    asked = len(node.requests)
    reader.latestOffset(end, ALL)
    assert node.committed == {("etl", "events"): {0: 1}, ("etl", "orders"): {0: 0, 1: 0}}
    told = [request for request in node.requests[asked:] if "/groups/etl/" in request]
    assert len(told) == 2


def test_nothing_is_committed_without_a_wish(node: FakeNode, time: Clock) -> None:
    for given in ({}, {"consumerGroup": "etl", "commitOffsets": "false"}):
        reader = reader_of(node, time, **given)
        reader.latestOffset(first_end(reader), ALL)
    assert node.committed == {}


def test_a_group_that_has_committed_nothing(node: FakeNode, time: Clock) -> None:
    node.send("orders", 0, b"a")
    given = {"consumerGroup": "new", "startingOffsets": "committed"}
    assert reader_of(node, time, **given).initialOffset()["topics"]["orders"]["0"] == 0
    reader = reader_of(node, time, **given, startingOffsetsFallback="latest")
    assert reader.initialOffset()["topics"]["orders"]["0"] == 1


def test_a_commit_that_fails_is_one_warning(
    node: FakeNode, time: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    reader = reader_of(node, time, consumerGroup="etl", retryTimeoutMs="8000")
    end = first_end(reader)
    asked = len(node.requests)
    node.faults = [refusal(503)]
    reader.latestOffset(end, ALL)
    assert len(node.requests) == asked + 2, "the commit is not tried again"
    assert "offsets of topic 'orders' are not committed: CURLEW_UNAVAILABLE" in caplog.text


def test_a_queue_that_is_gone_does_not_keep_the_others_from_being_committed(
    node: FakeNode, time: Clock
) -> None:
    reader = reader_of(node, time, consumerGroup="etl", failOnDataLoss="false")
    end = first_end(reader)
    del node.topics["orders"][1]
    node.send("orders", 0, b"a")
    following = reader.latestOffset(end, ALL)
    reader.latestOffset(following, ALL)
    assert node.committed == {("etl", "orders"): {0: 1}}
