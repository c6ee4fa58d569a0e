"""What a real node says about topics, as far as the connector relies on it."""

import threading
from pathlib import Path

from pyspark_curlew.http.client import NAMES_BYTES_MAX, TOPICS_MAX, WAIT_MS_MAX, CurlewClient
from pyspark_curlew.http.http_options import HTTP_NAMES, read_http_options
from pyspark_curlew.option_reader import OptionReader

from app.domain.limits import Limits
from spark_connector.tests.support.real_node import run_real_node


def test_a_real_topic_made_anew_has_another_generation(tmp_path: Path) -> None:
    with run_real_node(tmp_path) as node:
        node.add_topic("orders", 2)
        options = read_http_options(OptionReader({"endpoint": node.base_url}, HTTP_NAMES))
        client = CurlewClient(options)
        node.send("orders", 0, b"a", b"b")
        first = client.positions(["orders"])
        node.add_topic("orders", 3)
        grown = client.positions(["orders"], known=first.state, wait_ms=60_000)
        assert list(grown.topics["orders"].queues) == [0, 1, 2]
        assert grown.topics["orders"].generation == first.topics["orders"].generation
        node.remove_topic("orders")
        assert client.positions(["orders"]).missing == {"orders"}
        node.add_topic("orders", 2)
        assert client.queue_count("orders") == 2
        assert client.topic_names() == ["orders"]
        anew = client.positions(["orders"])
        assert anew.topics["orders"].generation != first.topics["orders"].generation
        queue = anew.topics["orders"].queues[0]
        assert (queue.min_offset, queue.max_offset) == (2, 2), "no offset is given again"


def test_a_real_node_answers_a_wait_when_a_message_comes(tmp_path: Path) -> None:
    with run_real_node(tmp_path) as node:
        node.add_topic("orders", 2)
        options = read_http_options(OptionReader({"endpoint": node.base_url}, HTTP_NAMES))
        client = CurlewClient(options)
        known = client.positions(["orders"]).state
        sender = threading.Timer(0.05, lambda: node.send("orders", 1, b"x"))
        sender.start()
        found = client.positions(["orders"], known, 60_000).topics["orders"].queues[1]
        sender.join()
        assert found.max_offset == 1
        assert found.average_bytes is not None


def test_more_topics_than_one_call_takes(tmp_path: Path) -> None:
    with run_real_node(tmp_path) as node:
        node.add_topic("orders", 1)
        options = read_http_options(OptionReader({"endpoint": node.base_url}, HTTP_NAMES))
        found = CurlewClient(options).positions(
            [*[f"other-{number}" for number in range(TOPICS_MAX)], "orders"]
        )
        assert list(found.topics) == ["orders"]
        assert len(found.missing) == TOPICS_MAX


def test_topics_with_long_names(tmp_path: Path) -> None:
    """The names are in the request's target, whose length the service bounds."""
    names = [f"{number:03}-{'x' * 123}" for number in range(TOPICS_MAX)]
    with run_real_node(tmp_path) as node:
        node.add_topic(names[-1], 1)
        options = read_http_options(OptionReader({"endpoint": node.base_url}, HTTP_NAMES))
        found = CurlewClient(options).positions(names)
        assert list(found.topics) == [names[-1]]
        assert len(found.missing) == TOPICS_MAX - 1


def test_the_bounds_of_a_call_are_the_service_s() -> None:
    """They stand in the connector again, because it shares no code with the service."""
    limits = Limits()
    assert limits.topics_per_look_max == TOPICS_MAX
    assert limits.wait_seconds_max * 1000 == WAIT_MS_MAX
    assert limits.request_target_bytes_max - 2048 == NAMES_BYTES_MAX
