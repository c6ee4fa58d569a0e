"""G15 on a real node that is killed under load: a decision holds, and a commit shows once.

Positive control: with the journal's entry left out of the step that commits, the transaction comes
back as prepared after the kill, and this test sees it.
"""

import json
import signal
import threading
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Final

import pytest

from tests.crash.node.test_node_kills import finish
from tests.crash.sweeps.kills import kill_at
from tests.support.length import selection
from tests.support.nodes.node import RunningNode, start_node

CLIENTS: Final = 4
LIVES: Final = 4
DECISIONS: Final = 120
WAIT_SECONDS: Final = 60

ALL_POINTS: Final = (
    *[("pwritev,pwritev2", nth) for nth in range(1, 7)],
    *[("fdatasync", nth) for nth in range(1, 5)],
    *[("write,writev,sendto,sendmsg", nth) for nth in range(1, 7)],
)
"""Before the n-th write of a half message or decision, before its sync, before its answer."""
POINTS: Final = selection(
    ALL_POINTS,
    [
        *(("pwritev,pwritev2", nth) for nth in (1, 2)),
        *(("fdatasync", nth) for nth in (1, 2)),
        *(("write,writev,sendto,sendmsg", nth) for nth in (1, 2, 4)),
    ],
)
"""The first transaction's half and decision, at each of the three, and a later answer."""

pytestmark = pytest.mark.crash


class Producer:
    """Prepares and decides until the node is gone; of each third it only prepares."""

    def __init__(self, node: RunningNode, name: str, on_decision: threading.Semaphore) -> None:
        self.asked: dict[str, str] = {}
        """Transaction id → the decision that was sent, answered or not; "" for none."""
        self.answered: dict[str, str] = {}
        self.bodies: dict[str, str] = {}
        self._port, self._name, self._on_decision = node.port, name, on_decision
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def join(self) -> None:
        self._thread.join()

    def _run(self) -> None:
        connection = HTTPConnection("127.0.0.1", self._port)
        try:
            for number in range(1_000_000):
                self._one(connection, number)
        except (OSError, HTTPException):
            return
        finally:
            connection.close()

    def _one(self, connection: HTTPConnection, number: int) -> None:
        body = f"{self._name}.{number}"
        headers = {"MQ-Transaction": "prepare; group=pg; check-after=1h"}
        prepared = call(connection, "POST", "/v1/topics/orders/messages", body, headers)
        transaction_id = prepared["transaction_id"]
        self.bodies[transaction_id] = body
        verb = ("commit", "rollback", "")[number % 3]
        self.asked[transaction_id] = verb
        if verb:
            call(connection, "POST", f"/v1/transactions/{transaction_id}:{verb}")
            self.answered[transaction_id] = verb
            self._on_decision.release()


def call(
    connection: HTTPConnection,
    method: str,
    path: str,
    body: str | None = None,
    headers: dict[str, str] | None = None,
) -> dict[str, str]:
    connection.request(method, path, body, headers or {})
    response = connection.getresponse()
    answer: dict[str, str] = json.loads(response.read())
    assert response.status < 300, answer
    return answer


def visible(connection: HTTPConnection) -> list[str]:
    found: list[str] = []
    for queue_id in range(4):
        offset = 0
        while True:
            path = f"/v1/topics/orders/queues/{queue_id}/messages?offset={offset}&max_messages=500"
            connection.request("GET", path)
            answer = json.loads(connection.getresponse().read())
            found += [message["text"] for message in answer.get("messages", [])]
            if answer.get("next_offset", offset) == offset:
                break
            offset = answer["next_offset"]
    return found


def check(node: RunningNode, producers: list[Producer]) -> None:
    connection = HTTPConnection("127.0.0.1", node.port)
    seen = visible(connection)
    assert len(seen) == len(set(seen)), "a commit shows twice"
    shown = set(seen)
    for producer in producers:
        for transaction_id, verb in producer.asked.items():
            found = call(connection, "GET", f"/v1/transactions/{transaction_id}")
            is_shown = producer.bodies[transaction_id] in shown
            assert (found["state"] == "COMMITTED") == is_shown, found
            if transaction_id in producer.answered:
                wanted = {"commit": "COMMITTED", "rollback": "ROLLED_BACK"}[verb]
                assert found["state"] == wanted, "an answered decision was forgotten"
            elif not verb:
                assert found["state"] == "PREPARED", found
                call(connection, "POST", f"/v1/transactions/{transaction_id}:commit")
                producer.answered[transaction_id] = producer.asked[transaction_id] = "commit"
    connection.close()


def test_decisions_hold_through_kills(tmp_path: Path) -> None:
    producers: list[Producer] = []
    for life in range(LIVES + 1):
        node = start_node(tmp_path / "data", "--segment-mib", "5")
        try:
            check(node, producers)
            if life == LIVES:
                break
            decided = threading.Semaphore(0)
            new = [Producer(node, f"{life}.{each}", decided) for each in range(CLIENTS)]
            for _ in range(DECISIONS):
                assert decided.acquire(timeout=WAIT_SECONDS), "the node decides nothing"
            node.kill()
            for producer in new:
                producer.join()
            producers += new
        finally:
            finish(node)
    assert sum(len(producer.answered) for producer in producers) >= LIVES * DECISIONS


def test_decisions_hold_wherever_the_node_dies(tmp_path: Path) -> None:
    """One producer after the other, killed between half, decision, sync and answer."""
    producers: list[Producer] = []
    killed = 0
    for life, (calls, nth) in enumerate((*POINTS, ("", 0))):
        node = start_node(tmp_path / "data", "--segment-mib", "5")
        try:
            check(node, producers)
            if not calls:
                break
            strace = kill_at(node.process.pid, calls, nth, tmp_path / "strace")
            producer = Producer(node, f"{life}", threading.Semaphore(0))
            producer.join()
            killed += node.process.wait(WAIT_SECONDS) == -signal.SIGKILL
            strace.wait(WAIT_SECONDS)
            producers.append(producer)
        finally:
            finish(node)
    assert killed == len(POINTS)
    open_decisions = [
        transaction_id
        for each in producers
        for transaction_id, verb in each.asked.items()
        if verb and transaction_id not in each.answered
    ]
    assert open_decisions, "no decision was cut short"
