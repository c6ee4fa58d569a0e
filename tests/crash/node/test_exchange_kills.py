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


class Gap:
    """Between a worker's two requests, where a kill is to come."""

    def __init__(self) -> None:
        self._is_kill_due, self._is_node_gone = threading.Event(), threading.Event()
        self._waiting = threading.Semaphore(0)

    def pass_through(self) -> None:
        """For a worker: when a kill is due, stay until it is done."""
        if self._is_kill_due.is_set():
            self._waiting.release()
            assert self._is_node_gone.wait(SECONDS)

    def kill(self, node: RunningNode) -> None:
        """Kill as soon as a worker is here."""
        self._is_kill_due.set()
        assert self._waiting.acquire(timeout=SECONDS), "no worker came by"
        node.kill()
        self._is_node_gone.set()


class Worker:
    """Receives, and settles with the results, until the node is gone or nothing is left."""

    def __init__(self, node: RunningNode, enough: threading.Semaphore, gap: Gap | None) -> None:
        """With a gap it sends and acks in two requests."""
        self.in_doubt = 0
        self._port, self._enough, self._gap = node.port, enough, gap
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
                self._enough.release(len(acks))
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
        if self._gap is not None:
            batch = {"messages": [{"text": send["text"]} for send in sends]}
            status, answer = call(connection, "POST", "/v1/topics/squares/messages:batch", batch)
            assert status == http.client.OK, answer
            self._gap.pass_through()
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
            enough = threading.Semaphore(0)
            gap = Gap() if is_split else None
            workers = [Worker(node, enough, gap) for _ in range(WORKERS)]
            if life < LIVES:
                for _ in range(RESULTS_A_LIFE):
                    assert enough.acquire(timeout=SECONDS), "no work is done"
                node.kill() if gap is None else gap.kill(node)
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
