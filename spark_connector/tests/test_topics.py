"""What a real node says about topics, as far as the connector relies on it."""

import threading

import pytest
from pyspark_curlew.http.client import NAMES_BYTES_MAX, TOPICS_MAX, WAIT_MS_MAX, CurlewClient
from pyspark_curlew.http.http_options import HTTP_NAMES, read_http_options
from pyspark_curlew.option_reader import OptionReader

from app.domain.limits import Limits
from spark_connector.tests.support.real_node import RealNode


@pytest.fixture
def client(real: RealNode) -> CurlewClient:
    reader = OptionReader({"endpoint": real.base_url}, HTTP_NAMES)
    return CurlewClient(read_http_options(reader))


def test_a_real_topic_made_anew_has_another_generation(
    real: RealNode, topic: str, client: CurlewClient
) -> None:
    real.add_topic(topic, 2)
    real.send(topic, 0, b"a", b"b")
    first = client.positions([topic])
    real.add_topic(topic, 3)
    grown = client.positions([topic], known=first.state, wait_ms=60_000)
    assert list(grown.topics[topic].queues) == [0, 1, 2]
    assert grown.topics[topic].generation == first.topics[topic].generation
    real.remove_topic(topic)
    assert client.positions([topic]).missing == {topic}
    assert topic not in client.topic_names()
    real.add_topic(topic, 2)
    assert client.queue_count(topic) == 2
    assert topic in client.topic_names()
    anew = client.positions([topic])
    assert anew.topics[topic].generation != first.topics[topic].generation
    queue = anew.topics[topic].queues[0]
    assert (queue.min_offset, queue.max_offset) == (2, 2), "no offset is given again"


def test_a_real_node_answers_a_wait_when_a_message_comes(
    real: RealNode, topic: str, client: CurlewClient
) -> None:
    real.add_topic(topic, 2)
    known = client.positions([topic]).state
    sender = threading.Timer(0.05, lambda: real.send(topic, 1, b"x"))
    sender.start()
    found = client.positions([topic], known, 60_000).topics[topic].queues[1]
    sender.join()
    assert found.max_offset == 1
    assert found.average_bytes is not None


@pytest.mark.parametrize("length", [10, 120])
def test_more_topics_than_one_call_takes(
    real: RealNode, topic: str, client: CurlewClient, length: int
) -> None:
    """Their names are in the request's target, whose length the service bounds."""
    real.add_topic(topic, 1)
    others = [f"{number:03}-{'x' * (length - 4)}" for number in range(TOPICS_MAX)]
    found = client.positions([*others, topic])
    assert list(found.topics) == [topic]
    assert len(found.missing) == TOPICS_MAX


def test_the_bounds_of_a_call_are_the_service_s() -> None:
    """They stand in the connector again, because it shares no code with the service."""
    limits = Limits()
    assert limits.topics_per_look_max == TOPICS_MAX
    assert limits.wait_seconds_max * 1000 == WAIT_MS_MAX
    assert limits.request_target_bytes_max - 2048 == NAMES_BYTES_MAX
