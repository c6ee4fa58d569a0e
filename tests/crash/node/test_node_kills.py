"""G1 and G23 over HTTP: a real node, killed and stopped under load, keeps what it acknowledged.

Positive control of the stop: kill -9 in its place leaves sends without an answer.
"""

import http.client
import json
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.nodes.node import RunningNode, start_node

CLIENTS = 4
LIVES = 3
ACKS = 150
ACKS_SECONDS = 60
BODY_BYTES = 120_000
STOP_SECONDS = 60
FLAGS = ("--segment-mib", "5")
"""Segments roll every eighty messages."""

Key = tuple[int, int]

pytestmark = pytest.mark.crash


class Client:
    """Sends numbered messages to its queue until the node is gone."""

    def __init__(
        self, node: RunningNode, queue_id: int, life: int, on_ack: Callable[[], None]
    ) -> None:
        self.acks: dict[Key, str] = {}
        self.unknown = 0
        self.refused = 0
        self._node = node
        self._queue_id = queue_id
        self._life = life
        self._on_ack = on_ack
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def join(self) -> None:
        self._thread.join()

    def _run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._node.port)
        durability = "memory" if self._queue_id % 2 else "flushed"
        path = f"/v1/topics/orders/messages?queue_id={self._queue_id}"
        number = 0
        try:
            while True:
                number += 1
                body = f"{self._life}.{self._queue_id}.{number} ".ljust(
                    number * 7_919 % BODY_BYTES, "x"
                )
                headers = {"MQ-Durability": durability, "Content-Type": "text/plain"}
                connection.request("POST", path, body, headers)
                response = connection.getresponse()
                answer = json.loads(response.read())
                if response.status not in {http.HTTPStatus.CREATED, http.HTTPStatus.ACCEPTED}:
                    self.refused += answer["outcome"] == "not_stored"
                    self.unknown += answer["outcome"] == "unknown"
                    return
                self.acks[answer["queue_id"], answer["queue_offset"]] = body
                self._on_ack()
        except ConnectionRefusedError:
            self.refused += 1
        except (OSError, http.client.HTTPException):
            self.unknown += 1
        finally:
            connection.close()


def send_until(node: RunningNode, life: int, strike: Callable[[], object]) -> list[Client]:
    """Load the node, strike when enough is acknowledged, wait for the clients to end."""
    enough = threading.Semaphore(0)
    clients = [Client(node, queue_id, life, enough.release) for queue_id in range(CLIENTS)]
    for _ in range(ACKS):
        assert enough.acquire(timeout=ACKS_SECONDS), "the node does not acknowledge"
    strike()
    for client in clients:
        client.join()
    return clients


def pull_everything(node: RunningNode) -> dict[Key, str]:
    connection = http.client.HTTPConnection("127.0.0.1", node.port)
    found: dict[Key, str] = {}
    for queue_id in range(CLIENTS):
        offset = 0
        while True:
            path = f"/v1/topics/orders/queues/{queue_id}/messages"
            connection.request("GET", f"{path}?offset={offset}&max_messages=100")
            response = connection.getresponse()
            answer = json.loads(response.read())
            assert response.status == http.HTTPStatus.OK, answer
            for message in answer["messages"]:
                found[queue_id, message["queue_offset"]] = message["text"]
            if answer["next_offset"] == offset:
                break
            offset = answer["next_offset"]
        assert sorted(o for q, o in found if q == queue_id) == list(range(offset))
    connection.close()
    return found


def finish(node: RunningNode) -> None:
    node.process.kill()
    node.process.wait(STOP_SECONDS)
    assert node.process.stdout is not None
    node.process.stdout.close()


def test_a_killed_node_keeps_what_it_acknowledged(tmp_path: Path) -> None:
    acks: dict[Key, str] = {}
    unanswered = 0
    for life in range(LIVES + 1):
        node = start_node(tmp_path / "data", *FLAGS)
        try:
            found = pull_everything(node) if life else {}
            assert [key for key in acks if found.get(key) != acks[key]] == []
            if life < LIVES:
                for client in send_until(node, life, node.kill):
                    acks |= client.acks
                    unanswered += client.unknown
        finally:
            finish(node)
    print(f"{len(acks)} acknowledged over {LIVES} kills, 0 lost")
    assert len(acks) >= LIVES * ACKS
    assert unanswered > 0, "the control: a kill is no stop"


def test_a_stopped_node_leaves_no_send_in_doubt(tmp_path: Path) -> None:
    node = start_node(tmp_path / "data", *FLAGS)
    try:
        clients = send_until(node, 0, lambda: node.process.send_signal(signal.SIGTERM))
        assert node.process.wait(STOP_SECONDS) == 0
    finally:
        finish(node)
    assert [client.unknown for client in clients] == [0] * CLIENTS
    assert sum(client.refused for client in clients) == CLIENTS
    node = start_node(tmp_path / "data", *FLAGS)
    try:
        found = pull_everything(node)
    finally:
        finish(node)
    for client in clients:
        assert [key for key in client.acks if found.get(key) != client.acks[key]] == []
