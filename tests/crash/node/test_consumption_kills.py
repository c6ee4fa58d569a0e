"""Kill -9 while receives and members race for groups: a start finds one kind, and nothing is lost.

After each kill the last answer that a client got must hold still: who was told that it consumes
does, and the other kind is refused. Positive control: with the kind left out of the log the other
kind is taken after the start (tried once by hand; `test_consumption` keeps the rest).
"""

import http.client
import itertools
import json
import threading
from pathlib import Path
from typing import Final

import pytest

from tests.support.nodes.node import RunningNode, start_node

pytestmark = pytest.mark.crash

LIVES: Final = 2
GROUPS_A_LIFE: Final = 20
CHECKED: Final = 8
"""Of each kind, the last before the kill; within the 30 s that a start waits for clients."""
SECONDS: Final = 60
JSON: Final = {"Content-Type": "application/json"}
CONFLICT: Final = "CONSUMPTION_CONFLICT"


def call(port: int, method: str, path: str, body: object = None) -> tuple[int, dict[str, object]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    try:
        connection.request(method, path, None if body is None else json.dumps(body), JSON)
        response = connection.getresponse()
        return response.status, json.loads(response.read() or b"{}")
    finally:
        connection.close()


def receive(port: int, group: str) -> tuple[int, dict[str, object]]:
    path = f"/v1/topics/orders/groups/{group}/messages:receive"
    return call(port, "POST", path, {"invisible": "10m"})


def commit(port: int, group: str) -> tuple[int, dict[str, object]]:
    body = {"offsets": [{"queue_id": 0, "offset": 1}]}
    return call(port, "PUT", f"/v1/groups/{group}/offsets/orders", body)


def join(port: int, group: str) -> tuple[int, dict[str, object]]:
    body = {"subscriptions": [{"topic": "orders"}], "generation": 0}
    return call(port, "PUT", f"/v1/groups/{group}/members/worker", body)


class Racer:
    """Asks for one kind of each group in turn, until the node is gone.

    It races for half of the groups; of the others each kind has its own, so that it wins some
    however slow it is.
    """

    def __init__(self, node: RunningNode, kind: str, life: int) -> None:
        self.won: list[str] = []
        self.done = threading.Semaphore(0)
        self._port, self._kind, self._life = node.port, kind, life
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def join(self) -> None:
        self._thread.join(SECONDS)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        try:
            for number in itertools.count():
                if number % 4 == (2 if self._kind == "assigned" else 3):
                    continue  # the other's own
                group = f"group-{self._life}-{number}"
                if self._kind == "lease":
                    status, answer = receive(self._port, group)
                else:
                    status, answer = (commit, join)[number % 2](self._port, group)
                if status == http.HTTPStatus.OK:
                    self.won.append(group)
                else:
                    assert answer["code"] == CONFLICT, answer
                self.done.release()
        except (OSError, http.client.HTTPException):
            pass


def check_kinds(node: RunningNode, won: dict[str, list[str]]) -> None:
    """What was told before the kill holds; of a group that nobody was told of either may."""
    for group in won["lease"][-CHECKED:]:
        for refused in (commit, join):
            status, answer = refused(node.port, group)
            assert (status, answer.get("current")) == (409, "lease"), (group, answer)
    for group in won["assigned"][-CHECKED:]:
        status, answer = receive(node.port, group)
        assert (status, answer.get("current")) == (409, "assigned"), (group, answer)


def finish(node: RunningNode) -> None:
    node.process.kill()
    node.process.wait(SECONDS)
    assert node.process.stdout is not None
    node.process.stdout.close()


def test_the_kind_that_was_told_survives_kills(tmp_path: Path) -> None:
    won: dict[str, list[str]] = {"lease": [], "assigned": []}
    for life in range(LIVES):
        node = start_node(tmp_path / "data")
        try:
            if life == 0:
                call(node.port, "PUT", "/v1/topics/orders", {"queues": 1, "flush": "async"})
                call(node.port, "POST", "/v1/topics/orders/messages", "a message")
            check_kinds(node, won)
            racers = {kind: Racer(node, kind, life) for kind in won}
            for racer in racers.values():
                for _ in range(GROUPS_A_LIFE):
                    assert racer.done.acquire(timeout=SECONDS), "requests are not answered"
            node.kill()
            for kind, racer in racers.items():
                racer.join()
                won[kind] = racer.won  # those of the life before may have been given up by now
            assert not {*won["lease"]} & {*won["assigned"]}
            assert won["lease"]
            assert won["assigned"]
        finally:
            finish(node)
    node = start_node(tmp_path / "data")
    try:
        check_kinds(node, won)
        for group in (won["lease"][-1], won["assigned"][-1]):
            status, answer = call(
                node.port, "POST", f"/v1/topics/orders/groups/{group}/messages:receive?force=true"
            )
            assert status == http.HTTPStatus.OK
            assert isinstance(answer["messages"], list)
    finally:
        finish(node)
