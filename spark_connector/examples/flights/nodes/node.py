"""A Curlew node of the demo's own, in a process beside it, with its data in a temporary folder."""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from flights.failures import StageFailed
from flights.nodes.service import Service

_START_S: Final = 60
_STOP_S: Final = 30
_LOOK_S: Final = 0.05
_LOG_SHOWN: Final = 2_000


class NodeFailed(StageFailed):
    """The node did not start or did not stay; the text has the end of its log."""


class OwnNode:
    """A node that can be killed and started again, on one port, with its data."""

    def __init__(self, folder: Path) -> None:
        port = _free_port()
        self.endpoint = f"http://127.0.0.1:{port}"
        self._log = folder / "node.log"
        self._settings = {
            "CURLEW_HOST": "127.0.0.1",
            "CURLEW_PORT": str(port),
            "CURLEW_DATA_DIR": str(folder / "data"),
        }
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                [_command(), "dev"],
                env={**os.environ, **self._settings},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            _wait_until_ready(process, self.endpoint, self._log)
        except BaseException:
            process.kill()
            process.wait()
            raise
        return process

    def kill_and_start(self) -> None:
        """kill -9, and a new process on what it left."""
        self._process.kill()
        self._process.wait()
        self._process = self._start()

    def failure(self) -> NodeFailed | None:
        """Why a stage failed, if the node is why."""
        ended = self._process.poll() is not None
        return _failure(self._process, self._log) if ended else None

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextmanager
def started_node(folder: Path) -> Iterator[OwnNode]:
    """Run `curlew dev` while the block runs."""
    node = OwnNode(folder)
    try:
        yield node
    except Exception:
        failure = node.failure()
        if failure is not None:
            raise failure from None
        raise
    finally:
        node.stop()


def _command() -> str:
    beside_python = Path(sys.executable).parent / "curlew"
    command = str(beside_python) if beside_python.exists() else shutil.which("curlew")
    if command is None:
        raise NodeFailed("the command curlew was not found; name a running node with --endpoint")
    return command


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def _wait_until_ready(process: subprocess.Popen[bytes], endpoint: str, log_path: Path) -> None:
    service = Service(endpoint)
    deadline = time.monotonic() + _START_S
    while not service.is_ready():
        if process.poll() is not None or time.monotonic() > deadline:
            raise _failure(process, log_path)
        time.sleep(_LOOK_S)


def _failure(process: subprocess.Popen[bytes], log_path: Path) -> NodeFailed:
    """Whatever went wrong in the demo, a node that is not there any more is the reason."""
    status = process.poll()
    what = f"is not ready after {_START_S} s" if status is None else f"ended with status {status}"
    tail = log_path.read_text("utf-8", "replace")[-_LOG_SHOWN:]
    return NodeFailed(f"the node {what}; the end of its log:\n{tail}")
