"""Producers of a cluster while its nodes are killed: nothing is lost, nothing doubled, and what may
go elsewhere does (G10, G21). Three processes, each with a shard, and a PostgreSQL.

Control: `tests/client/faults/test_kills.py` shows that the judge sees what is lost and doubled."""

import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic
from typing import Any, Final

import httpx
import pytest
from curlew_client import Client, CurlewError, SendResult

from tests.client.faults.test_kills import violations
from tests.history.checker import Rules, check
from tests.history.events import Delivered, Drained, Event, NodeDied, Received, Sent, Settled
from tests.history.worker import GROUP, TOPIC
from tests.support.metadata.databases import PostgresDatabases
from tests.support.nodes.free_ports import free_port
from tests.support.nodes.node import RunningNode, start_node
from tests.support.nodes.waiting import wait_until

pytestmark = [pytest.mark.crash, pytest.mark.postgres]

QUEUES: Final = 6
STEP: Final = 40
GIVES_UP: Final = "1s"
"""What was under way at a leader that is killed may be stored, and waits for it; so long."""
INVISIBLE_S: Final = 30.0
PATIENT: Final[dict[str, Any]] = {"retries": 1_000, "async_retries": 1_000}


class Cluster:
    """Three nodes that can be killed and started again in their place."""

    def __init__(self, directory: Path, database: str) -> None:
        self._directory = directory
        secret = directory / "secret"
        secret.touch(0o600)
        secret.write_bytes(b"0" * 64)
        self._environment = {
            "CURLEW_DATABASE_URL": database,
            "CURLEW_CLUSTER_SECRET_FILE": str(secret),
            "CURLEW_AUTO_CREATE_TOPICS": "false",
        }
        self._ports = {name: (free_port(), free_port()) for name in "abc"}
        self.nodes: dict[str, RunningNode] = {}
        self.deaths: list[NodeDied] = []

    def start(self, name: str) -> None:
        port, cluster_port = self._ports[name]
        self.nodes[name] = start_node(
            self._directory / name,
            *("--port", str(port), "--shard", name),
            *("--cluster-listen", f"127.0.0.1:{cluster_port}"),
            environment=self._environment,
        )

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self._ports[name][0]}"

    def kill(self, name: str) -> None:
        began_s = monotonic()
        node = self.nodes.pop(name)
        node.kill()
        assert node.process.stdout is not None
        node.process.stdout.close()
        self.deaths.append(NodeDied(began_s, monotonic()))

    def freeze(self, name: str) -> None:
        """It takes connections, and answers nothing on them."""
        self.nodes[name].process.send_signal(signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        self.nodes[name].process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        for name in list(self.nodes):
            self.kill(name)


@pytest.fixture
def cluster(tmp_path: Path, postgres_databases: PostgresDatabases) -> Iterator[Cluster]:
    made = Cluster(tmp_path, postgres_databases.migrated())
    try:
        for name in "abc":
            made.start(name)
        topic = {"queues": QUEUES, "flush": "async"}
        assert httpx.put(f"{made.url('a')}/v1/topics/{TOPIC}", json=topic).status_code == 201
        yield made
    finally:
        made.close()


class Producer:
    """A thread that sends one message, or a few, after the other, and notes what became of them."""

    def __init__(
        self,
        url: str,
        name: str,
        send: Callable[["Producer", Client], None],
        timeout: str = "60s",
    ) -> None:
        self.name = name
        self._timeout = timeout
        self.events: list[Sent] = []
        self.failure: BaseException | None = None
        self._url = url
        self._send = send
        self._stopping = threading.Event()
        self._number = 0
        self._thread = threading.Thread(target=self._run, name=name)
        self._thread.start()

    def _run(self) -> None:
        try:
            with Client(self._url, **PATIENT, timeout=self._timeout) as curlew:
                while not self._stopping.wait(0.01):
                    self._send(self, curlew)
        except BaseException as error:  # noqa: BLE001  # the test tells it
            self.failure = error

    def next_body(self) -> str:
        self._number += 1
        return f"{self.name}.{self._number}"

    def note(self, began_s: float, body: str, key: str, result: SendResult | CurlewError) -> None:
        place = "unknown", body, key, -1, -1
        if isinstance(result, CurlewError):
            if result.outcome == "not_stored":
                place = "refused", body, key, -1, -1
        elif result.queue_id is not None and result.queue_offset is not None:
            place = "ok", body, key, result.queue_id, result.queue_offset
        self.events.append(Sent(began_s, monotonic(), *place))

    def stored(self) -> int:
        assert self.failure is None, self.failure
        return sum(event.outcome == "ok" for event in self.events)

    def goes_on(self, count: int = STEP) -> None:
        wanted = self.stored() + count
        wait_until(lambda: self.stored() >= wanted, within_s=60)

    def end(self) -> None:
        self._stopping.set()
        self._thread.join(120)
        assert not self._thread.is_alive()
        assert self.failure is None, self.failure


def send_anywhere(producer: Producer, curlew: Client) -> None:
    send_one(producer, curlew, "")


def send_by_key(producer: Producer, curlew: Client) -> None:
    send_one(producer, curlew, f"key{len(producer.events) % 12}")


def send_one(producer: Producer, curlew: Client, key: str) -> None:
    body, began_s = producer.next_body(), monotonic()
    result: SendResult | CurlewError
    try:
        result = curlew.send(TOPIC, body, sharding_key=key or None)
    except CurlewError as error:
        result = error
    producer.note(began_s, body, key, result)


def send_later(producer: Producer, curlew: Client) -> None:
    began_s = monotonic()
    sent = [(body, curlew.send_async(TOPIC, body)) for body in map(_body_of(producer), range(8))]
    for body, future in sent:
        producer.note(began_s, body, "", future.exception() or future.result())


def _body_of(producer: Producer) -> Callable[[int], str]:
    return lambda _number: producer.next_body()


def stored(url: str) -> Counter[str]:
    """How often each body is in the topic."""
    found: Counter[str] = Counter()
    for queue_id in range(QUEUES):
        offset, end = 0, 1
        while offset < end:
            path = f"{url}/v1/topics/{TOPIC}/queues/{queue_id}/messages"
            answer = httpx.get(path, params={"offset": offset, "max_messages": 1_000}).json()
            found.update(str(each["text"]) for each in answer["messages"])
            offset, end = answer["next_offset"], answer["max_offset"]
    return found


def drained(url: str, count: int) -> list[Event]:
    """All messages, received by a new group through one node, and acked."""
    found: list[Event] = []
    left = count
    path = f"{url}/v1/topics/{TOPIC}/groups/{GROUP}/messages"
    while left > 0:
        began_s = monotonic()
        wish = {"max_messages": 256, "wait": 5, "invisible_ms": int(INVISIBLE_S * 1_000)}
        answer = httpx.post(f"{path}:receive", json=wish, timeout=30)
        assert answer.status_code == 200, answer.text
        rows = answer.json()["messages"]
        assert rows, f"{left} messages do not come"
        messages = [
            Delivered(
                each["text"],
                each.get("sharding_key", ""),
                each["queue_id"],
                each["queue_offset"],
                each["delivery_attempt"],
                each["receipt_handle"],
            )
            for each in rows
        ]
        found.append(Received(began_s, monotonic(), "ok", "drain", INVISIBLE_S, messages))
        left -= len(messages)
        began_s = monotonic()
        handles = [message.handle for message in messages]
        acked = httpx.post(f"{path}:ack", json={"receipt_handles": handles}, timeout=30)
        assert acked.status_code == 200, acked.text
        found += [Settled(began_s, monotonic(), "ok", "ack", handle) for handle in handles]
    return [*found, Drained(monotonic(), monotonic())]


def test_killed_leaders_lose_and_double_nothing_and_sends_go_on_elsewhere(cluster: Cluster) -> None:
    path = f"{cluster.url('a')}/v1/topics/{TOPIC}/groups/{GROUP}/messages:receive"
    assert httpx.post(path, json={}).status_code == 200, "the group begins before all of them"
    producers = [
        Producer(cluster.url("a"), "anywhere", send_anywhere, GIVES_UP),
        Producer(cluster.url("a"), "keyed", send_by_key),
        Producer(cluster.url("a"), "later", send_later),
    ]
    anywhere = producers[0]
    try:
        for producer in producers:
            producer.goes_on()
        for name in ("b", "a"):  # a leader, and the one node that the producers were given
            cluster.kill(name)
            anywhere.goes_on()
            cluster.start(name)
            for producer in producers:
                producer.goes_on()
    finally:
        for producer in producers:
            producer.end()
    events: list[Event] = [event for producer in producers for event in producer.events]
    sent = Counter(event.outcome for event in events if isinstance(event, Sent))
    bodies = stored(cluster.url("c"))
    print(f"sent {dict(sent)}, stored {bodies.total()}")
    assert violations(events, bodies) == []
    events += [*cluster.deaths, *drained(cluster.url("b"), bodies.total())]
    assert check(events, Rules(max_attempts=16)) == {}
