"""A real node starts on a full disk: it serves readers, and goes on when there is room."""

import json
import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.domain.limits import MIB
from tests.crash.sweeps.disks import fill, mounted_tmpfs, need
from tests.support.length import selection
from tests.support.nodes.fork_server import RETENTION_SECONDS
from tests.support.nodes.node import RunningNode, run_node
from tests.support.nodes.waiting import wait_until

pytestmark = pytest.mark.powerloss

SENT = 30
SEGMENT_MIB = "8"
OFTEN = {RETENTION_SECONDS: "0.5"}
"""The disk is looked at so often that nobody waits for it."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    need()
    with mounted_tmpfs(96 * MIB, tmp_path / "disk") as root:
        (root / "data.log").symlink_to(tmp_path / "data.log")  # the log has room
        yield root


def ask(node: RunningNode, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    request = urllib.request.Request(node.url + path, body, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def send(node: RunningNode, body: bytes) -> int:
    return ask(node, "POST", "/v1/topics/orders/messages", body)[0]


def receive(node: RunningNode, group: str = "billing", at_most: int = 2) -> list[str]:
    path = f"/v1/topics/orders/groups/{group}/messages:receive?max_messages={at_most}"
    status, body = ask(node, "POST", path)
    assert status == 200, body
    return [message["message_id"] for message in json.loads(body)["messages"]]


def degraded(node: RunningNode) -> list[str]:
    status, body = ask(node, "GET", "/readyz")
    assert status == 200, body
    return [entry["code"] for entry in json.loads(body)["degraded"]]


def leave_free(root: Path, free_bytes: int) -> Path:
    """Fill the disk but for so many bytes; what fills it."""
    filler = root / "filler"
    fill(filler)
    os.truncate(filler, filler.stat().st_size - free_bytes)
    return filler


STARTS = [
    (free_bytes, was_killed) for was_killed in (True, False) for free_bytes in (0, 4_096, 16_384)
]
SHORT = [(0, True), (4_096, False), (16_384, True)]


@pytest.mark.parametrize(("free_bytes", "was_killed"), selection(STARTS, SHORT))
def test_it_reads_and_goes_on_when_there_is_room(
    disk: Path, free_bytes: int, was_killed: bool
) -> None:
    data = disk / "data"
    with run_node(data, "--segment-mib", SEGMENT_MIB, environment=OFTEN) as node:
        for number in range(SENT):
            assert send(node, b"%d" % number * 500) == 201
        assert len(receive(node)) > 0
        if was_killed:
            node.kill()
    filler = leave_free(disk, free_bytes)
    stored = SENT
    for _ in range(2):  # the second start finds what the first left
        with run_node(data, "--segment-mib", SEGMENT_MIB, environment=OFTEN) as node:
            wait_until(lambda node=node: "DISK_FULL" in degraded(node))  # type: ignore[misc]
            status, body = ask(node, "GET", "/v1/topics/orders/stats")
            assert status == 200, body
            answered = send(node, b"in the room that the segment has")
            assert answered in (201, 507)
            stored += answered == 201
            assert len(receive(node)) > 0
            if was_killed:
                node.kill()
    with run_node(data, "--segment-mib", SEGMENT_MIB, environment=OFTEN) as node:
        wait_until(lambda: "DISK_FULL" in degraded(node))
        before = node.log.read_text()
        filler.unlink()
        wait_until(lambda: degraded(node) == [])
        assert send(node, b"there is room") == 201
        assert ask(node, "PUT", "/v1/topics/new", b"{}")[0] == 201
        found: list[str] = []
        while len(found) <= stored and (more := receive(node, "audit", 32)):
            found += more
        assert len(found) == len(set(found)) == stored + 1
    log = node.log.read_text()
    assert log[len(before) :].count("the disk has no room: that has passed") == 1
    assert "Traceback" not in log
    assert "--data-dir" not in log


def test_what_is_old_goes_when_the_disk_is_full(disk: Path) -> None:
    """Retention makes room for all that waits for it, without anybody's help."""
    data = disk / "data"
    with run_node(data, "--segment-mib", SEGMENT_MIB, environment=OFTEN) as node:
        for _ in range(6):  # each has a segment of its own
            assert send(node, bytes(4 * MIB)) == 201
        node.kill()
    segments = data / "store" / "commitlog"
    oldest = min(segments.iterdir())
    leave_free(disk, 0)
    with run_node(data, "--segment-mib", SEGMENT_MIB, environment=OFTEN) as node:
        wait_until(lambda: not oldest.exists())
        wait_until(lambda: "no room" not in json.dumps(ask(node, "GET", "/readyz")[1].decode()))
    log = node.log.read_text()
    assert "segments deleted" in log
    assert "Traceback" not in log
