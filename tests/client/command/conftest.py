"""The command, run in this process: what it prints, and its exit status."""

import io
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from curlew_client.command.entry import main

from tests.support.nodes.node import RunningNode, run_node


@dataclass(frozen=True)
class Done:
    """What a command left."""

    status: int
    out: str
    err: str


Run = Callable[..., Done]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    with run_node(tmp_path_factory.mktemp("command") / "data") as running:
        yield running


@pytest.fixture(autouse=True)
def own_contexts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No context of whoever runs the tests."""
    file = tmp_path / "config" / "contexts.json"
    monkeypatch.setenv("CURLEW_CONTEXTS", str(file))
    for name in ("CURLEW_URL", "CURLEW_KEY", "CURLEW_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    return file


@pytest.fixture
def run(capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `curlew` with these words and this stdin."""

    def run_command(*words: str, stdin: bytes = b"") -> Done:
        given: Any = io.TextIOWrapper(io.BytesIO(stdin))
        monkeypatch.setattr(sys, "stdin", given)
        capsysbinary.readouterr()
        status = main(words)
        out, err = capsysbinary.readouterr()
        return Done(status, out.decode(errors="surrogateescape"), err.decode())

    return run_command


@pytest.fixture
def curlew(node: RunningNode, run: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The same at a node."""
    monkeypatch.setenv("CURLEW_URL", node.url)
    return run
