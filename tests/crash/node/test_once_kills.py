"""G21 across kill -9: a repeated send gets the first result, and nothing is stored twice.

Clients send numbered messages under a sequence or a key and repeat each request until it is
answered, while the node is killed again and again, until a kill has fallen between storing and
answering. Positive control: without the headers the same loop stores messages twice.
"""

import http.client
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import httpx
import pytest

from app.domain.message import Message
from tests.support.clients.frames import request_frame
from tests.support.nodes.node import RunningNode, start_node

KILLS_MIN = 4
KILLS_MAX = 40
BETWEEN_KILLS = 180
"""Messages that one of the clients sends at least."""
FRAME = 3
SECONDS = 90

pytestmark = pytest.mark.crash

Headers = Callable[[int], Mapping[str, str]]
CLIENTS: Mapping[str, Headers] = {
    "sequence": lambda number: _sequence("plain", number),
    "key": lambda number: {"Idempotency-Key": f'"message-{number}"'},
    "frames": lambda number: _sequence("framed", number),
}


def _sequence(producer: str, number: int) -> Mapping[str, str]:
    return {"MQ-Producer-Id": producer, "MQ-Producer-Epoch": "1", "MQ-Producer-Seq": str(number)}


class Client:
    """Sends numbers to a queue of its own, each until it is answered with a success.

    Ends when there are `enough`.
    """

    def __init__(
        self, queue: int, kind: str, claims: Headers, port: list[int], enough: threading.Event
    ) -> None:
        self._queue = queue
        self._framed = kind == "frames"
        self._claims = claims
        self._port = port
        self._enough = enough
        self.done = 0
        self.repeated = 0
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        while not self._enough.is_set():
            headers = {"Content-Type": "text/plain", **self._claims(self.done)}
            path, body = f"messages?queue_id={self._queue}", str(self.done).encode()
            if self._framed:
                numbers = range(self.done, self.done + FRAME)
                body = request_frame([Message(str(n).encode()) for n in numbers], "orders")
                headers["Content-Type"] = "application/vnd.curlew.batch"
                path = f"messages:batch?queue_id={self._queue}"
            give_up = time.monotonic() + SECONDS
            while not self._send(path, body, headers):
                assert time.monotonic() < give_up, "a request is not answered"
            self.done += FRAME if self._framed else 1

    def _send(self, path: str, body: bytes, headers: Mapping[str, str]) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self._port[0], timeout=SECONDS)
        try:
            connection.request("POST", f"/v1/topics/orders/{path}", body, headers)
            answer = connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()
        if answer.status in {200, 201}:
            self.repeated += answer.headers.get("MQ-Duplicate") == "true"
            return True
        problem = json.loads(text)
        if problem["code"] == "ALREADY_STORED":
            self.repeated += 1
            return True
        assert problem["retryable"], problem
        return False


def stored(node: RunningNode, queue: int) -> Counter[str]:
    with httpx.Client(base_url=node.url, timeout=60) as http_client:
        path = f"/v1/topics/orders/queues/{queue}/messages?max_messages=10000&offset=0"
        messages = http_client.get(path).json()["messages"]
    return Counter(message["text"] for message in messages)


def is_repeated(node: RunningNode, clients: list[Client]) -> bool:
    """Whether a request that had been stored came again."""
    if any(client.repeated for client in clients):
        return True
    return any(max(stored(node, queue).values(), default=0) > 1 for queue in range(len(clients)))


@pytest.mark.parametrize("claimed", [True, False], ids=["claimed", "control"])
def test_repeated_sends_across_kills_are_stored_once(tmp_path: Path, claimed: bool) -> None:
    flags = ("--segment-mib", "5")
    node = start_node(tmp_path / "data", *flags)
    httpx.put(f"{node.url}/v1/topics/orders", json={"queues": 3}, timeout=60).raise_for_status()
    port, enough = [node.port], threading.Event()
    clients = [
        Client(queue, kind, claims if claimed else lambda _number: {}, port, enough)
        for queue, (kind, claims) in enumerate(CLIENTS.items())
    ]
    kills = 0
    try:
        while kills < KILLS_MIN or not is_repeated(node, clients):
            assert kills < KILLS_MAX, "no kill fell between storing and answering"
            kills += 1
            _wait_for(clients, BETWEEN_KILLS * kills)
            node.kill()
            assert node.process.stdout is not None
            node.process.stdout.close()
            node = start_node(tmp_path / "data", *flags)
            port[0] = node.port
    finally:
        enough.set()
    for client in clients:
        client.thread.join(SECONDS)
        assert not client.thread.is_alive()
    counts = [stored(node, queue) for queue in range(len(clients))]
    node.kill()
    assert node.process.stdout is not None
    node.process.stdout.close()
    expected = [Counter(map(str, range(client.done))) for client in clients]
    if claimed:
        assert counts == expected
    else:
        assert list(map(set, counts)) == list(map(set, expected)), "something is lost"
        assert counts != expected


def _wait_for(clients: list[Client], done: int) -> None:
    """Until one of the clients has come so far."""
    reached = threading.Event()

    def look() -> None:
        while not reached.is_set():
            if any(client.done >= done for client in clients):
                reached.set()
            reached.wait(0.001)

    watcher = threading.Thread(target=look)
    watcher.start()
    assert reached.wait(SECONDS)
    watcher.join()
