"""G16 over HTTP: a node that is killed again and again delivers each delayed message exactly once.

Messages are due while the node dies, between lives, and after them; some are cancelled. At the end
every message whose send was answered is there once, unless its cancel was answered, and none is
early. Positive control: with the record of what is done left out of the delivering step, messages
come twice (tried by hand).
"""

import http.client
import json
import random
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from tests.support.nodes.node import RunningNode, run_node
from tests.support.nodes.waiting import wait_until

pytestmark = pytest.mark.crash

LIVES: Final = 4
SENDS_A_LIFE: Final = 120
SECONDS: Final = 60
MESSAGES: Final = "/v1/topics/orders/messages"
SCHEDULED: Final = "/v1/topics/orders/scheduled"


@dataclass
class Record:
    """What clients were told. Texts name messages."""

    due_ms: dict[str, int] = field(default_factory=dict)
    """Of sends that were answered."""
    asked: set[str] = field(default_factory=set)
    cancelled: set[str] = field(default_factory=set)
    too_late: set[str] = field(default_factory=set)
    in_doubt: set[str] = field(default_factory=set)
    """Cancels without an answer."""


class Client:
    """Sends delayed messages and cancels every fourth, until the node is gone."""

    def __init__(
        self, node: RunningNode, name: str, record: Record, enough: threading.Semaphore
    ) -> None:
        self._node = node
        self._name = name
        self._record = record
        self._enough = enough
        self._chance = random.Random(name)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def join(self) -> None:
        self._thread.join(SECONDS)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._node.port, timeout=SECONDS)
        try:
            for number in range(1 << 30):
                self._once(connection, f"{self._name}-{number}", cancels=number % 4 == 0)
                self._enough.release()
        except (OSError, http.client.HTTPException):
            pass
        finally:
            connection.close()

    def _once(self, connection: http.client.HTTPConnection, text: str, *, cancels: bool) -> None:
        record = self._record
        delay_ms = self._chance.choice([1, 20, 100, 400, 1_500, 4_000])
        record.asked.add(text)
        connection.request("POST", f"{MESSAGES}?delay={delay_ms}ms", text)
        response = connection.getresponse()
        answer = json.loads(response.read())
        assert response.status == http.HTTPStatus.CREATED, answer
        record.due_ms[text] = answer["deliver_time_ms"]
        if not cancels:
            return
        record.in_doubt.add(text)
        connection.request("DELETE", f"{SCHEDULED}/{answer['recall_handle']}")
        response = connection.getresponse()
        response.read()
        assert response.status in {http.HTTPStatus.NO_CONTENT, http.HTTPStatus.CONFLICT}
        is_cancelled = response.status == http.HTTPStatus.NO_CONTENT
        (record.cancelled if is_cancelled else record.too_late).add(text)
        record.in_doubt.discard(text)


def delivered(node: RunningNode) -> dict[str, list[int]]:
    """Text → when its copies were stored."""
    found: dict[str, list[int]] = {}
    connection = http.client.HTTPConnection("127.0.0.1", node.port, timeout=SECONDS)
    for queue in range(4):
        offset = 0
        while True:
            path = f"/v1/topics/orders/queues/{queue}/messages?offset={offset}&max_messages=1000"
            connection.request("GET", path)
            answer = json.loads(connection.getresponse().read())
            for message in answer["messages"]:
                found.setdefault(message["text"], []).append(message["store_time_ms"])
            offset = answer["next_offset"]
            if answer["up_to_date"]:
                break
    connection.close()
    return found


def waiting(node: RunningNode) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", node.port, timeout=SECONDS)
    connection.request("GET", SCHEDULED)
    count = len(json.loads(connection.getresponse().read())["messages"])
    connection.close()
    return count


def test_each_delayed_message_comes_once_whenever_the_node_is_killed(tmp_path: Path) -> None:
    record = Record()
    chance = random.Random(16)
    for life in range(LIVES):
        with run_node(tmp_path / "data", "--auto-create-topics", "true") as node:
            enough = threading.Semaphore(0)
            clients = [Client(node, f"{life}-{n}", record, enough) for n in range(3)]
            for _ in range(SENDS_A_LIFE + chance.randrange(60)):
                assert enough.acquire(timeout=SECONDS)
            node.kill()
        for client in clients:
            client.join()
        time.sleep(chance.choice([0, 0.3]))  # let some fall due while nobody is there
    with run_node(tmp_path / "data", "--auto-create-topics", "true") as node:
        wait_until(lambda: waiting(node) == 0)
        check(record, delivered(node))


def check(record: Record, found: dict[str, list[int]]) -> None:
    assert len(record.due_ms) >= LIVES * SENDS_A_LIFE
    assert set(found) <= record.asked
    twice = [text for text, times in found.items() if len(times) > 1]
    assert not twice, f"delivered more than once: {twice[:5]}"
    assert not record.cancelled & set(found), "a cancelled message was delivered"
    missing = set(record.due_ms) - record.cancelled - record.in_doubt - set(found)
    assert not missing, f"never delivered: {sorted(missing)[:5]}"
    early = [text for text, due in record.due_ms.items() if text in found and found[text][0] < due]
    assert not early, f"early: {early[:5]}"
    assert record.cancelled
