"""Schedules on a real node that dies at writes, syncs and answers: each due time is fired once.

The wall clock (libfaketime) begins a life that is killed seven seconds before a minute, so that the
claim of the minute (five seconds ahead) falls right behind the start and the kill into claim,
append and report. The next life begins a second after the minute and has to make good what was cut
short.

Positive control: without the look into the log whether a claimed due time was sent already,
messages come twice (tried by hand).
"""

import json
import subprocess
from collections import Counter
from datetime import UTC, datetime, timedelta
from http.client import HTTPConnection
from pathlib import Path
from typing import Final

import pytest

from tests.crash.node.test_node_kills import finish
from tests.crash.sweeps.kills import kill_at
from tests.history.load import FAKETIME
from tests.support.length import selection
from tests.support.nodes.node import RunningNode, start_node
from tests.support.nodes.waiting import wait_until

pytestmark = pytest.mark.crash

SCHEDULES: Final = ("a", "b", "c")
START: Final = datetime(2031, 5, 5, 10, 0, 20, tzinfo=UTC)
DYING: Final = timedelta(seconds=33)
"""From `START` to seven seconds before the first minute."""
MENDING: Final = timedelta(seconds=41)
"""From `START` to one second after the first minute."""
SECONDS: Final = 60
PATIENCE_SECONDS: Final = 8
"""A point that is not reached in this time is not there; the node is killed all the same."""

ALL_POINTS: Final = (
    *(("pwrite64", nth) for nth in (1, 9, 25)),
    ("fdatasync", 5),
    ("pwritev,pwritev2", 1),
)
"""As strace shows them: each of the three claims is eight writes and a sync; then each of the three
messages is an append, its sync, and a report of four writes and a sync; one pwritev delivers them.
"""
POINTS: Final = selection(ALL_POINTS, [("pwrite64", 9), ("fdatasync", 5), ("pwritev,pwritev2", 1)])
"""Within a claim, behind an append, and before the delivery."""


def start(data_dir: Path, now: datetime) -> RunningNode:
    environment = {
        "LD_PRELOAD": str(next(Path("/usr/lib").glob(FAKETIME))),
        "FAKETIME": now.strftime("@%Y-%m-%d %H:%M:%S"),
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "TZ": "UTC",
    }
    return start_node(data_dir, environment=environment)


def call(node: RunningNode, method: str, path: str, body: object = None) -> dict[str, object]:
    connection = HTTPConnection("127.0.0.1", node.port, timeout=SECONDS)
    content = None if body is None else json.dumps(body)
    connection.request(method, path, content, {"Content-Type": "application/json"})
    response = connection.getresponse()
    answer: dict[str, object] = json.loads(response.read())
    connection.close()
    assert response.status < 300, answer
    return answer


def fired(node: RunningNode) -> Counter[tuple[str, int]]:
    """How often each (schedule, due time in epoch minutes) has come."""
    found: Counter[tuple[str, int]] = Counter()
    page = call(node, "GET", "/v1/topics/jobs/queues/0/messages?offset=0&max_messages=500")
    messages = page["messages"]
    assert isinstance(messages, list)
    for message in messages:
        kind, name, due_ms = message["message_id"].split(":")
        assert kind == "schedule"
        assert message["store_time_ms"] >= int(due_ms), "early"
        found[name, int(due_ms) // 60_000] += 1
    return found


def die(node: RunningNode, calls: str, nth: int, log: Path) -> None:
    strace = kill_at(node.process.pid, calls, nth, log)
    try:
        node.process.wait(PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        node.kill()
    strace.wait(SECONDS)


def check(node: RunningNode, due: set[tuple[str, int]]) -> None:
    wait_until(lambda: due <= set(fired(node)), within_s=SECONDS)
    assert fired(node) == Counter(due)


def test_each_due_time_is_fired_once_wherever_the_node_dies(tmp_path: Path) -> None:
    node = start(tmp_path / "data", START)
    try:
        call(node, "PUT", "/v1/topics/jobs", {"queues": 1})
        for name in SCHEDULES:
            body = {"topic": "jobs", "cron": "* * * * *", "message": {"text": name}}
            call(node, "PUT", f"/v1/schedules/{name}", body)
    finally:
        finish(node)
    first = round((START + timedelta(seconds=40)).timestamp()) // 60
    for life, (calls, nth) in enumerate(POINTS):
        node = start(tmp_path / "data", START + DYING + timedelta(minutes=life))
        try:
            die(node, calls, nth, tmp_path / "strace")
        finally:
            finish(node)
        node = start(tmp_path / "data", START + MENDING + timedelta(minutes=life))
        try:
            check(node, {(name, first + at) for name in SCHEDULES for at in range(life + 1)})
        finally:
            finish(node)
