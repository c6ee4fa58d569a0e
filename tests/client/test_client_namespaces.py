"""A client of a namespace: all of its names are names there, in headers, in frames, in answers."""

import json
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest
from curlew_client import Client, Worker
from curlew_client.errors import NotFound
from curlew_client.options import OF_THE_CLUSTER

from tests.support.nodes.node import RunningNode, run_node

TEXTS = [str(number) for number in range(6)]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    with run_node(tmp_path_factory.mktemp("namespaces") / "node") as running:
        with Client(running.url) as curlew:
            curlew.admin.put_namespace("eu")
            curlew.admin.put_namespace("us")
        yield running


@pytest.fixture
def eu(node: RunningNode) -> Iterator[Client]:
    with Client(node.url, namespace="eu") as curlew:
        yield curlew


def fill(eu: Client, topic: str) -> None:
    """Six messages, by each way to send."""
    eu.send(topic, TEXTS[0], queue_id=0)
    eu.send_batch(topic, TEXTS[1:3], queue_id=0)
    futures = [eu.send_async(topic, text, queue_id=0) for text in TEXTS[3:5]]
    assert [future.result().queue_offset for future in futures] == [3, 4]
    eu.send(topic, TEXTS[5], queue_id=0)


def test_what_is_sent_is_leased_there(node: RunningNode, eu: Client) -> None:
    fill(eu, "leased")
    with eu.receive("leased", group="billing", limit=6, idle="20s") as messages:
        assert [(message.topic, message.text) for message in messages] == [
            ("leased", text) for text in TEXTS
        ]
    with Client(node.url) as other, pytest.raises(NotFound):
        other.admin.get_topic("leased")
    with Client(node.url, namespace="us") as other:
        assert other.admin.list_topics() == []


def test_what_is_sent_is_polled_there(node: RunningNode, eu: Client) -> None:
    fill(eu, "polled")
    seen: list[tuple[str, str]] = []
    done = Event()
    worker = Worker(node.url, namespace="eu")

    @worker.assigned_consumer("polled", group="ledger", start="first", concurrency=1)
    def book(message: object) -> None:
        seen.append((message.topic, message.text))  # type: ignore[attr-defined]
        if len(seen) == len(TEXTS):
            done.set()

    with worker:
        assert done.wait(30)
    assert seen == [("polled", text) for text in TEXTS]


def test_chosen_queues_are_pulled_there(eu: Client) -> None:
    fill(eu, "pulled")
    with eu.pull_consumer(group="reports") as consumer:
        consumer.assign([("pulled", 0)])
        consumer.seek("pulled", 0, 0)
        found: list[tuple[str, str]] = []
        while len(found) < len(TEXTS):
            found += [(message.topic, message.text) for message in consumer.poll("5s")]
    assert found == [("pulled", text) for text in TEXTS]


def test_what_is_of_the_cluster_is_asked_for_in_no_namespace(node: RunningNode) -> None:
    with Client(node.url, namespace="fresh") as curlew:
        assert curlew.admin.put_namespace("fresh")["namespace"] == "fresh"
        assert "fresh" in [each["namespace"] for each in curlew.admin.list_namespaces()]
        curlew.send("orders", b"x")
        assert [each["name"] for each in curlew.admin.list_topics()] == ["orders"]
    with Client(node.url, namespace="moon") as curlew:
        assert curlew.admin.list_nodes()
        assert curlew.admin.request("GET", "/v1/audit")["entries"] is not None


def test_each_beginning_of_a_path_of_the_cluster_is_one_of_the_service() -> None:
    file = Path(__file__).parents[2] / "openapi" / "openapi.json"
    begins = {"/".join(path.split("/")[:3]) for path in json.loads(file.read_text())["paths"]}
    assert set(OF_THE_CLUSTER) < begins
    assert {each for each in begins if each.startswith(OF_THE_CLUSTER)} == set(OF_THE_CLUSTER)


def test_a_namespace_that_is_not_there_is_said(node: RunningNode) -> None:
    with Client(node.url, namespace="moon") as curlew:
        with pytest.raises(NotFound, match="there is no namespace 'moon'"):
            curlew.send("orders", b"x")
        with pytest.raises(NotFound, match="there is no namespace 'moon'"):
            curlew.admin.list_topics()


@pytest.mark.parametrize("name", ["", "a b", "a%b", "a\r\nb", "n" * 64, "ä"])
def test_what_is_no_namespace_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="namespace is"):
        Client(namespace=name)
    with pytest.raises(TypeError, match="namespace is a str, not int"):
        Client(namespace=7)
