"""A node for the tests of a program: fixtures for pytest, and a context manager for others.

    pytest_plugins = ["curlew_client.testing"]            # in conftest.py

    def test_orders(curlew):                              # a Client of a node of its own
        curlew.admin.put_topic("orders")
        curlew.send("orders", "created")

Needs the server: the command `curlew` beside this Python or on the path, or `CURLEW_COMMAND`.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from curlew_client.client import Client

COMMAND_VARIABLE: Final = "CURLEW_COMMAND"
STOP_S: Final = 30.0
_ADDRESS: Final = re.compile(r"(http://\S+)/ui")


@dataclass(frozen=True)
class TestNode:
    """A node that answers at `url` until its block ends."""

    __test__ = False

    url: str
    data_dir: Path


def node_command() -> list[str]:
    """How a node is started. Raises `FileNotFoundError` with what to do."""
    named = os.environ.get(COMMAND_VARIABLE)
    if named:
        return shlex.split(named)
    beside = Path(sys.executable).with_name("curlew")
    found = str(beside) if beside.exists() else shutil.which("curlew")
    if found is None:
        raise FileNotFoundError(
            "there is no command curlew beside this Python or on the path: install the server, or "
            f"name it in {COMMAND_VARIABLE}"
        )
    return [found]


@contextmanager
def running_node(*flags: str, data_dir: Path | None = None) -> Iterator[TestNode]:
    """A node on a free port of 127.0.0.1, with its data in a directory that goes with it.

    `flags` are those of `curlew dev`. It makes topics and groups by use, and asks for no key.
    """
    with tempfile.TemporaryDirectory(prefix="curlew-") as directory:
        where = data_dir or Path(directory) / "data"
        where.mkdir(parents=True, exist_ok=True)
        log = Path(directory) / "node.log"
        command = [*node_command(), "dev", "--data-dir", str(where), "--port", "0", *flags]
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith("CURLEW_")
        }
        with log.open("w") as errors:
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, text=True, env=inherited
            )
        with process:
            try:
                yield TestNode(_address_of(process, log), where)
            finally:
                process.terminate()
                try:
                    process.wait(STOP_S)
                finally:
                    process.kill()


def _address_of(process: subprocess.Popen[str], log: Path) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if found := _ADDRESS.search(line):
            return found[1]
    process.wait(STOP_S)
    raise RuntimeError(f"the node did not start: {log.read_text()[-2_000:]}")


@pytest.fixture(scope="session")
def curlew_node() -> Iterator[TestNode]:
    """A node for all tests of a run. They share it: use names of your own in each."""
    with running_node("--segment-mib", "32") as node:
        yield node


@pytest.fixture
def curlew(curlew_node: TestNode) -> Iterator[Client]:
    """A client of that node, for one test."""
    with Client(curlew_node.url) as client:
        yield client
