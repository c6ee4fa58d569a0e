"""Consume, transform, produce on a real node that is killed under load: one result for each input.

Workers receive numbers and settle each batch with its results in one request. Six kills later each
number has exactly one result. Positive control: with acks and sends in two requests (the second
test) the numbers of each batch that a kill finds between the two have two.
"""

import http.client
import json
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest

from tests.crash.node.test_node_kills import finish
from tests.support.nodes.node import RunningNode, start_node

pytestmark = pytest.mark.crash

MESSAGES: Final = 1_500
LIVES: Final = 6
RESULTS_A_LIFE: Final = 150
WORKERS: Final = 4
SECONDS: Final = 60
GROUP: Final = "/v1/topics/numbers/groups/workers"
JSON: Final = {"Content-Type": "application/json"}
ASKED: Final = {"max_messages": 8, "invisible": "1s", "wait": 3}


def call(
    connection: http.client.HTTPConnection, method: str, path: str, body: object = None
) -> tuple[int, dict[str, Any]]:
    connection.request(method, path, None if body is None else json.dumps(body), JSON)
    response = connection.getresponse()
    return response.status, json.loads(response.read())


class Kill:
    """The kill of one life. A worker carries it out, so that no work is done between the count and
    the kill, however late the test's own thread would be."""

    def __init__(self, node: RunningNode, after_results: int) -> None:
        """It is due when so many results are counted."""
        self._node, self._left = node, after_results
        self._lock = threading.Lock()
        self.is_done = threading.Event()

    def count(self, results: int) -> None:
        with self._lock:
            self._left -= results

    def strike_if_due(self) -> None:
        with self._lock:
            if self._left <= 0 and not self.is_done.is_set():
                self._node.kill()
                self.is_done.set()


class Worker:
    """Receives, and settles with the results, until the node is gone or nothing is left."""

    def __init__(self, node: RunningNode, kill: Kill, *, is_split: bool) -> None:
        """Split, it sends and acks in two requests, and kills between them."""
        self.in_doubt = 0
        self._port, self._kill, self._is_split = node.port, kill, is_split
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def join(self) -> None:
        self._thread.join(SECONDS)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port)
        try:
            while messages := call(connection, "POST", f"{GROUP}/messages:receive", ASKED)[1][
                "messages"
            ]:
                acks = [message["receipt_handle"] for message in messages]
                sends = [{"topic": "squares", "text": message["text"]} for message in messages]
                self.in_doubt += 1
                self._settle(connection, acks, sends)
                self.in_doubt -= 1
                self._kill.count(len(acks))
                if not self._is_split:
                    self._kill.strike_if_due()
        except (OSError, http.client.HTTPException):
            pass
        finally:
            connection.close()

    def _settle(
        self,
        connection: http.client.HTTPConnection,
        acks: list[str],
        sends: list[dict[str, str]],
    ) -> None:
        path = f"{GROUP}/messages:settle"
        if self._is_split:
            batch = {"messages": [{"text": send["text"]} for send in sends]}
            status, answer = call(connection, "POST", "/v1/topics/squares/messages:batch", batch)
            assert status == http.client.OK, answer
            self._kill.strike_if_due()
            call(connection, "POST", path, {"acks": acks})
            return
        status, answer = call(connection, "POST", path, {"acks": acks, "sends": sends})
        assert status in {200, 410}, answer


def fill(node: RunningNode) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", node.port)
    for topic in ("numbers", "squares"):
        call(connection, "PUT", f"/v1/topics/{topic}", {"queues": 3, "flush": "async"})
    policy = {"retry_policy": {"customized": ["0s"]}, "max_attempts": 100}
    status, answer = call(connection, "PUT", "/v1/groups/workers", policy)
    assert status < http.client.BAD_REQUEST, answer
    for start in range(0, MESSAGES, 100):
        entries = [{"text": str(number)} for number in range(start, start + 100)]
        call(connection, "POST", "/v1/topics/numbers/messages:batch", {"messages": entries})
    connection.close()


def results_of(node: RunningNode) -> Counter[str]:
    connection = http.client.HTTPConnection("127.0.0.1", node.port)
    found: Counter[str] = Counter()
    for queue_id in range(3):
        offset = 0
        while True:
            path = f"/v1/topics/squares/queues/{queue_id}/messages?offset={offset}"
            _, answer = call(connection, "GET", f"{path}&max_messages=500")
            found.update(message["text"] for message in answer["messages"])
            if answer["next_offset"] == offset:
                break
            offset = answer["next_offset"]
    connection.close()
    return found


def run(data_dir: Path, *, is_split: bool) -> tuple[Counter[str], int]:
    """The results after `LIVES` kills and a last life that works off the rest."""
    in_doubt = 0
    for life in range(LIVES + 1):
        node = start_node(data_dir, "--segment-mib", "5")
        try:
            if life == 0:
                fill(node)
            kill = Kill(node, RESULTS_A_LIFE if life < LIVES else MESSAGES + 1)
            workers = [Worker(node, kill, is_split=is_split) for _ in range(WORKERS)]
            if life < LIVES:
                assert kill.is_done.wait(SECONDS), "no work is done"
            for worker in workers:
                worker.join()
                in_doubt += worker.in_doubt
            if life == LIVES:
                return results_of(node), in_doubt
        finally:
            finish(node)
    raise AssertionError("not reached")


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, tuple[Counter[str], int]]:
    """By `is_split`; both at once, each on a node of its own, for half of it is waiting."""

    def run_one(is_split: bool) -> tuple[Counter[str], int]:
        return run(tmp_path_factory.mktemp("data"), is_split=is_split)

    with ThreadPoolExecutor(2) as pool:
        return dict(zip((False, True), pool.map(run_one, (False, True)), strict=True))


def test_each_input_has_exactly_one_result(found: dict[bool, tuple[Counter[str], int]]) -> None:
    results, in_doubt = found[False]
    assert results == Counter(str(number) for number in range(MESSAGES))
    assert in_doubt > 0, "the control: kills came in the middle of steps"


def test_the_control_in_two_requests_some_have_two(
    found: dict[bool, tuple[Counter[str], int]],
) -> None:
    results, _ = found[True]
    assert set(results) == {str(number) for number in range(MESSAGES)}
    assert results.total() >= MESSAGES + LIVES, "each kill found a worker between its requests"
