"""A real node with too few file descriptors: it stays writable, says so, and mends."""

import contextlib
import http.client
import json
import os
import resource
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.nodes.node import NodeRefused, RunningNode, run_node
from tests.support.nodes.waiting import wait_until

OPEN_FILES = 160
IDLE = 140


class Client:
    """One connection, kept open."""

    def __init__(self, node: RunningNode) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", node.port, timeout=30)
        self._connection.connect()

    def ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        self._connection.request(method, path, body)
        response = self._connection.getresponse()
        return response.status, response.read()

    def send(self, topic: str, body: bytes = b"x") -> int:
        return self.ask("POST", f"/v1/topics/{topic}/messages", body)[0]

    def degraded(self) -> list[str]:
        status, body = self.ask("GET", "/readyz")
        assert status == 200, body
        return [entry["code"] for entry in json.loads(body)["degraded"]]

    def close(self) -> None:
        self._connection.close()


def checkpointed(node: RunningNode) -> Callable[[], bool]:
    """Whether a checkpoint has been written since this was called."""
    path = node.data_dir / "store" / "checkpoint.curlew"
    before = path.stat().st_mtime_ns

    def is_newer() -> bool:
        with contextlib.suppress(FileNotFoundError):
            return path.stat().st_mtime_ns > before
        return False

    return is_newer


@contextlib.contextmanager
def idle_connections(node: RunningNode, count: int) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(socket.create_connection(("127.0.0.1", node.port), 30))
        yield


def test_idle_connections_leave_the_store_its_share(tmp_path: Path) -> None:
    with run_node(tmp_path / "data", open_files=OPEN_FILES) as node:
        client = Client(node)
        limits = json.loads(client.ask("GET", "/v1/limits")[1])
        assert "only 160 open files are allowed, so connections_max is" in node.log.read_text()
        assert limits["connections_max"] + limits["store_files_max"] < OPEN_FILES
        assert client.send("first") == 201
        with idle_connections(node, IDLE):
            for number in range(40):  # queues that have no file yet
                assert client.send(f"topic-{number}") == 201
            wait_until(checkpointed(node))
            wait_until(checkpointed(node))
        client.close()

        wait_until(lambda: takes_a_new_connection(node))
        client = Client(node)
        assert client.degraded() == []
        assert client.ask("GET", "/v1/topics/topic-39/stats")[0] == 200
        client.close()
    assert "STORE_FAILED" not in node.log.read_text()
    assert "Traceback" not in node.log.read_text()


def test_a_process_without_any_descriptor_left_refuses_and_recovers(tmp_path: Path) -> None:
    with run_node(tmp_path / "data") as node:
        pid = node.process.pid
        client = Client(node)
        assert client.send("first") == 201
        usual = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        with idle_connections(node, 30):
            wait_until(lambda: len(descriptors(pid)) > 30)
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (max(descriptors(pid)) + 1, usual[1]))
            for number in range(20):
                client.send(f"topic-{number}")
            wait_until(lambda: "SYSTEM_BUSY" in client.degraded())
            with idle_connections(node, 3):
                before, began = processor_seconds(pid), time.monotonic()
                wait_until(lambda: time.monotonic() > began + 2)
                assert processor_seconds(pid) - before < 1, "accepting spins"
            assert client.send("first") == 201
        resource.prlimit(pid, resource.RLIMIT_NOFILE, usual)
        wait_until(lambda: client.degraded() == [])
        wait_until(checkpointed(node))
        assert client.send("first") == 201
        client.close()
        wait_until(lambda: takes_a_new_connection(node))
    log = node.log.read_text()
    assert log.count("no more files can be opened: ") == 2, log
    assert log.count("no more files can be opened: that has passed") == 1
    assert "Traceback" not in log


def takes_a_new_connection(node: RunningNode) -> bool:
    client = Client(node)
    try:
        return client.send("first") == 201
    except (OSError, http.client.HTTPException):
        return False
    finally:
        client.close()


def descriptors(pid: int) -> list[int]:
    return [int(entry.name) for entry in Path(f"/proc/{pid}/fd").iterdir()]


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_too_few_descriptors_are_told_at_the_start(tmp_path: Path) -> None:
    with (
        pytest.raises(NodeRefused, match="only 100 open files are allowed"),
        run_node(tmp_path / "data", open_files=100),
    ):
        pass
