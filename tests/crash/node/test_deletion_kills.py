"""Topics deleted and made again on a real node that dies at a write or sync in the middle of it.

After each life what was acknowledged since the last making is there, and nothing of a deleted topic
is, by offset, by key or by idempotency key. A deletion whose answer never came is whole or has not
begun.

Positive control: `test_positive_control` lets a life without a deletion keep its messages.
"""

import contextlib
import http.client
import json
import subprocess
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import Final

import pytest

from tests.crash.node.test_node_kills import finish
from tests.crash.sweeps.kills import kill_at
from tests.support.length import selection
from tests.support.nodes.node import RunningNode, start_node

pytestmark = pytest.mark.crash

SECONDS: Final = 30
TOPIC: Final = "/v1/topics/orders"
ALL_POINTS: Final = (
    *(("pwrite64", nth) for nth in (1, 3, 6, 10, 15)),
    *(("fdatasync", nth) for nth in (1, 2, 3, 5, 8, 12)),
    *(("pwritev,pwritev2", nth) for nth in (1, 2, 3, 4, 6, 9)),
)
"""Writes and syncs of the database, and those of the log."""
POINTS: Final = selection(
    ALL_POINTS,
    [
        *(("pwrite64", nth) for nth in (3, 10)),
        *(("fdatasync", nth) for nth in (2, 8)),
        *(("pwritev,pwritev2", nth) for nth in (1, 2, 4)),
    ],
)


def call(
    node: RunningNode, method: str, path: str, body: object = None, **headers: str
) -> tuple[int, dict[str, object]]:
    """Status and answer; (0, {}) when the node died instead."""
    connection = HTTPConnection("127.0.0.1", node.port, timeout=SECONDS)
    content = None if body is None else json.dumps(body)
    try:
        named = {name.replace("_", "-"): text for name, text in headers.items()}
        kind = "application/vnd.curlew+json" if method == "POST" else "application/json"
        connection.request(method, path, content, {"Content-Type": kind, **named})
        response = connection.getresponse()
        text = response.read()
        return response.status, json.loads(text) if text else {}
    except (OSError, http.client.HTTPException):
        return 0, {}
    finally:
        connection.close()


@dataclass
class Seen:
    """What the client may expect: one of `states`, each the bodies of the topic or None."""

    states: list[list[str] | None] = field(default_factory=lambda: [None])
    number: int = 0

    def delete(self, node: RunningNode) -> bool:
        status, _ = call(node, "DELETE", TOPIC)
        assert status in (0, 204, 404)
        self.states = [None] if status else [*self.states, None]
        return status != 0

    def make(self, node: RunningNode) -> bool:
        status, _ = call(node, "PUT", TOPIC, {"queues": 1})
        assert status in (0, 201)
        self.states = [[]] if status else [*self.states, []]
        return status != 0

    def send(self, node: RunningNode) -> bool:
        self.number += 1
        text = f"message {self.number}"
        envelope = {"text": text, "keys": ["k"]}
        key = str(len(self.states[-1] or []))  # the same in each generation
        status, answer = call(
            node,
            "POST",
            f"{TOPIC}/messages",
            envelope,
            Idempotency_Key=key,
        )
        assert status in (0, 201), answer
        before = self.states[-1]
        assert before is not None
        self.states = [[*before, text]] if status else [before, [*before, text]]
        return status != 0


def bodies(node: RunningNode) -> list[str] | None:
    """What the topic has, by offset; held to what its key finds. None: there is no topic."""
    status, ends = call(node, "GET", f"{TOPIC}/queues/0/messages?offset=0&clamp=true")
    if status == 404:
        return None
    assert status == 200, ends
    messages = ends["messages"]
    assert isinstance(messages, list)
    found = [message["text"] for message in messages]
    status, keyed = call(node, "GET", f"{TOPIC}/messages?key=k")
    assert status == 200, keyed
    listed = keyed["messages"]
    assert isinstance(listed, list)
    assert sorted(message["text"] for message in listed) == sorted(found)
    return found


def live(node: RunningNode, seen: Seen, rounds: int) -> None:
    """Delete, make again and send, until the node is gone."""
    for _ in range(rounds):
        if not (seen.delete(node) and seen.make(node) and seen.send(node) and seen.send(node)):
            return


def test_a_deletion_is_whole_wherever_the_node_dies(tmp_path: Path) -> None:
    seen = Seen()
    for calls, nth in POINTS:
        node = start_node(tmp_path / "data")
        try:
            found = bodies(node)
            assert found in seen.states, (calls, nth, found, seen.states)
            seen.states = [found]
            if found is None:
                seen.make(node)
            strace = kill_at(node.process.pid, calls, nth, tmp_path / "strace")
            live(node, seen, rounds=4)
            with contextlib.suppress(subprocess.TimeoutExpired):
                node.process.wait(1)
            node.kill()
            strace.wait(SECONDS)
        finally:
            finish(node)
    node = start_node(tmp_path / "data")
    try:
        assert bodies(node) in seen.states
    finally:
        finish(node)


def test_positive_control(tmp_path: Path) -> None:
    """What is not deleted is found again: the check does not pass on an empty topic."""
    seen = Seen()
    node = start_node(tmp_path / "data")
    try:
        assert seen.make(node)
        assert seen.send(node)
        node.kill()
    finally:
        finish(node)
    node = start_node(tmp_path / "data")
    try:
        assert bodies(node) == ["message 1"]
        assert None not in seen.states
    finally:
        finish(node)
