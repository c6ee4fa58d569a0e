"""G12 over HTTP: what a consumer acked before kill -9 is not delivered again; the rest is.

The database is locked by somebody else for the whole second life, which must not matter. Positive
control: with the journal of acks left out of the broker, acked messages come back (tried once by
hand; in the suite, `test_durable_progress` keeps such a control).
"""

import http.client
import json
import sqlite3
import threading
from pathlib import Path
from typing import Final

import pytest

from tests.support.nodes.node import RunningNode, start_node

pytestmark = pytest.mark.crash

MESSAGES: Final = 2_000
LIVES: Final = 3
ACKS_A_LIFE: Final = 300
SECONDS: Final = 60
RECEIVE: Final = "/v1/topics/orders/groups/billing/messages:receive"
SETTLE: Final = "/v1/topics/orders/groups/billing/messages:settle"
JSON: Final = {"Content-Type": "application/json"}


def call(connection: http.client.HTTPConnection, path: str, body: object) -> dict[str, object]:
    connection.request("POST", path, json.dumps(body), JSON)
    response = connection.getresponse()
    answer: dict[str, object] = json.loads(response.read())
    assert response.status == http.HTTPStatus.OK, answer
    return answer


class Consumer:
    """Receives and acks every second message, out of order, until the node is gone."""

    def __init__(self, node: RunningNode, number: int, enough: threading.Semaphore) -> None:
        self.received: set[str] = set()
        self.acked: set[str] = set()
        """Acks that were answered."""
        self.in_doubt: set[str] = set()
        self._node = node
        self._number = number
        self._enough = enough
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def join(self) -> None:
        self._thread.join(SECONDS)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._node.port)
        asked = {"max_messages": 16, "invisible": "10m", "wait": 1}
        try:
            while True:
                messages = call(connection, RECEIVE, asked)["messages"]
                assert isinstance(messages, list)
                self.received |= {message["text"] for message in messages}
                chosen = messages[self._number % 2 :: 2][::-1]
                texts = {message["text"] for message in chosen}
                if not chosen:
                    continue
                self.in_doubt = texts
                call(connection, SETTLE, {"acks": [each["receipt_handle"] for each in chosen]})
                self.acked |= texts
                self.in_doubt = set()
                self._enough.release(len(texts))
        except (OSError, http.client.HTTPException):
            pass
        finally:
            connection.close()


def fill(node: RunningNode) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", node.port)
    topic = json.dumps({"queues": 3, "flush": "async"})
    connection.request("PUT", "/v1/topics/orders", topic, JSON)
    assert connection.getresponse().read()
    group = {"invisible": "1s", "retry_policy": {"customized": ["50ms"]}}
    connection.request("PUT", "/v1/groups/billing", json.dumps(group), JSON)
    response = connection.getresponse()
    assert response.status == http.HTTPStatus.CREATED, response.read()
    response.read()
    entries = [{"text": str(number)} for number in range(MESSAGES)]
    for start in range(0, MESSAGES, 100):
        call(connection, "/v1/topics/orders/messages:batch", {"messages": entries[start:][:100]})
    connection.close()


def test_acks_survive_kills_and_a_locked_database(tmp_path: Path) -> None:
    acked: set[str] = set()
    in_doubt: set[str] = set()
    for life in range(LIVES):
        node = start_node(tmp_path / "data")
        lock = None
        try:
            if life == 0:
                fill(node)
            enough = threading.Semaphore(0)
            if life == 1:
                [database] = (tmp_path / "data").glob("*.db")
                lock = sqlite3.connect(database, check_same_thread=False)
                lock.execute("BEGIN IMMEDIATE")
            consumers = [Consumer(node, number, enough) for number in range(4)]
            for _ in range(ACKS_A_LIFE):
                assert enough.acquire(timeout=SECONDS), "no acks are answered"
            node.kill()
            for consumer in consumers:
                consumer.join()
                assert not consumer.received & acked, "an acked message was delivered again"
            for consumer in consumers:
                acked |= consumer.acked
                in_doubt |= consumer.in_doubt
        finally:
            if lock is not None:
                lock.close()
            node.process.kill()
            node.process.wait(SECONDS)
            assert node.process.stdout is not None
            node.process.stdout.close()
    node = start_node(tmp_path / "data")
    try:
        connection = http.client.HTTPConnection("127.0.0.1", node.port)
        left: set[str] = set()
        asked = {"max_messages": 500, "invisible": "10m", "wait": 5}  # some are held for a second
        while messages := call(connection, RECEIVE, asked)["messages"]:
            assert isinstance(messages, list)
            left |= {message["text"] for message in messages}
        connection.close()
    finally:
        node.kill()
        assert node.process.stdout is not None
        node.process.stdout.close()
    assert not left & acked
    everything = {str(number) for number in range(MESSAGES)}
    assert left | acked | in_doubt == everything
