"""Real nodes for tests: `curlew dev` as a child process on a free port of 127.0.0.1.

Most are forks of one process that has imported the node (`fork_server`).
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.nodes.forked_process import ForkedProcess, fork_node

ROOT = Path(__file__).resolve().parents[3]
STOP_SECONDS = 60
SEGMENT_MIB = "32"
"""Segments of nodes that name no size: their preallocated logs should not fill the disk."""
_LAST_OF_BANNER = "  curl -X POST"
_ADDRESS = re.compile(r"page +(https?://\S+)/ui")


@dataclass
class RunningNode:
    """A node that answers at `url`. Everything it wrote to stderr is in `log`."""

    url: str
    data_dir: Path
    process: subprocess.Popen[str] | ForkedProcess
    log: Path
    banner: list[str]
    """The lines it printed at its start."""

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        self.process.kill()
        self.process.wait(STOP_SECONDS)

    def stop(self) -> int:
        """SIGTERM; the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_SECONDS)


class NodeRefused(Exception):
    """The node did not start; the text is what it said on stderr."""


def start_node(
    data_dir: Path,
    *flags: str,
    command: str = "dev",
    environment: Mapping[str, str] | None = None,
    open_files: int | None = None,
    module: str = "app.cli",
) -> RunningNode:
    """Start a node and wait until it takes connections. The caller ends it.

    `open_files`: no more than so many may be open, and the node cannot change that. `module`: what
    is run; it takes the arguments of `curlew`.
    """
    data_dir.mkdir(parents=True, exist_ok=True)
    log = data_dir.parent / f"{data_dir.name}.log"
    arguments = [command, "--data-dir", str(data_dir)]
    arguments += flags if "--port" in flags else ["--port", "0", *flags]
    if "--segment-mib" not in flags and "--config" not in flags:
        arguments += ["--segment-mib", SEGMENT_MIB]
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("CURLEW_")}
    added = environment or {}
    is_plain = module == "app.cli" and all(name.startswith("CURLEW_") for name in added)
    process: subprocess.Popen[str] | ForkedProcess
    with log.open("a") as errors:
        if is_plain and open_files is None:
            process = fork_node(arguments, {**inherited, **added}, errors)
        else:
            limit = f"ulimit -n {open_files} && " if open_files is not None else ""
            process = subprocess.Popen(
                ["sh", "-c", f'{limit}exec "$@"', "sh", sys.executable, "-m", module, *arguments],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=ROOT,
                env={**inherited, **added},
            )
    assert process.stdout is not None
    lines: list[str] = []
    url = ""
    for line in process.stdout:
        lines.append(line)
        if match := _ADDRESS.search(line):
            url = match[1]
        if url and line.startswith(_LAST_OF_BANNER):
            return RunningNode(url, data_dir, process, log, lines)
    process.wait(STOP_SECONDS)
    process.stdout.close()
    raise NodeRefused(log.read_text())


@contextmanager
def run_node(
    data_dir: Path,
    *flags: str,
    command: str = "dev",
    environment: Mapping[str, str] | None = None,
    open_files: int | None = None,
) -> Iterator[RunningNode]:
    """A node for the length of a block; it is stopped in order, or killed if that fails."""
    node = start_node(
        data_dir, *flags, command=command, environment=environment, open_files=open_files
    )
    try:
        yield node
    finally:
        if node.process.poll() is None:
            try:
                node.stop()
            finally:
                node.process.kill()
                node.process.wait(STOP_SECONDS)
        assert node.process.stdout is not None
        node.process.stdout.close()
