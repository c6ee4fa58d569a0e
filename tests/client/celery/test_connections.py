"""Connections of kombu: nodes that are away, errors, ends and forks."""

import multiprocessing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import curlew_client.celery
import pytest
from curlew_client import Client, CurlewError
from curlew_client.errors import InvalidRequest
from curlew_client.testing import TestNode, running_node
from kombu import Connection, Consumer, Producer

from tests.client.celery.brokers import (
    connected,
    direct,
    drain,
    drain_on,
    publish,
    ready,
    take,
)
from tests.support.nodes.waiting import wait_until


def test_consuming_goes_on_when_the_node_was_away(tmp_path: Path, name: str) -> None:
    queue = direct(name)
    with running_node(data_dir=tmp_path / "data") as node:
        port = urlsplit(node.url).port
        with connected(node.url) as publisher:
            publish(publisher, queue, 1)
        broker = Connection(f"curlew://127.0.0.1:{port}")
        found: list[int] = []

        def arrived(body: int, message: Any) -> None:
            found.append(body)
            message.ack()

        consumer = Consumer(broker.channel(), [queue], callbacks=[arrived])
        consumer.consume()
        drain(broker)
    with running_node("--port", str(port), data_dir=tmp_path / "data") as node:
        with connected(node.url) as publisher:
            publish(publisher, queue, 2)
        drain(broker, 30)
        broker.release()
    assert found == [1, 2]


def test_a_node_that_is_not_there_is_told_as_an_error_of_the_connection() -> None:
    broker = Connection("curlew://127.0.0.1:1", transport_options={"client": {"retries": 0}})
    with pytest.raises(broker.connection_errors):
        broker.connect()


def test_an_unknown_option_of_the_client_is_named(curlew_node: TestNode) -> None:
    with (
        pytest.raises(TypeError, match="did you mean 'retries'"),
        connected(curlew_node.url, client={"retry": 1}) as broker,
    ):
        broker.connect()


def test_a_consumer_that_the_node_ends_is_told_by_the_next_drain(
    broker: Any, curlew: Client, name: str
) -> None:
    queue = direct(name)
    with Consumer(broker.channel(), [queue], callbacks=[lambda _, message: message.ack()]):
        curlew.admin.delete_topic(name)
        with pytest.raises(CurlewError):
            broker.drain_events()


def test_a_consumer_whose_end_was_told_lets_the_others_close(
    broker: Any, curlew: Client, name: str, curlew_node: TestNode
) -> None:
    good, bad = direct(f"{name}-good"), direct(f"{name}-bad")
    publish(broker, good, 1)
    with connected(curlew_node.url) as other:
        for queue in (bad, good):
            Consumer(other.channel(), [queue], callbacks=[print]).consume()
        wait_until(lambda: curlew.admin.get_lag(f"{name}-good")["in_flight"] == 1)
        curlew.admin.delete_topic(f"{name}-bad")
        with pytest.raises(CurlewError):
            drain_on(other)
    assert [body for body, _ in take(broker, good, 1)] == [1]


def test_a_connection_is_let_go_in_a_forked_process(broker: Any, name: str, curlew: Client) -> None:
    queue = direct(name)
    with Consumer(broker.channel(), [queue], callbacks=[lambda _, message: message.ack()]):
        child = multiprocessing.get_context("fork").Process(target=broker.collect)
        child.start()
        child.join(20)
        assert child.exitcode == 0
        publish(broker, queue, 1)
        drain(broker)
    wait_until(lambda: ready(curlew, name) == 0)


def test_a_publication_that_can_never_be_stored_is_not_tried_again(broker: Any, name: str) -> None:
    queue = direct(name)
    queue(broker.channel()).declare()
    with pytest.raises(InvalidRequest, match="properties"):
        Producer(broker.channel()).publish(
            "x", routing_key=name, exchange=queue.exchange, headers={"a": "x" * 40_000}, retry=True
        )


def test_the_schemes_are_known_by_importing_the_package() -> None:
    curlew_client.celery.register()
    assert Connection("curlew://").transport_cls == "curlew"
    assert Connection("curlews://h").get_transport_cls().scheme == "https"
