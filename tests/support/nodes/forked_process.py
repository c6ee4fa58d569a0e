"""Nodes as forks of one process that has imported everything: see `fork_server`."""

import atexit
import ctypes
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO, Final

from tests.support.nodes.fork_server import Start

ROOT: Final = Path(__file__).resolve().parents[3]
_PR_SET_CHILD_SUBREAPER: Final = 36


class ForkedProcess:
    """A child of this process that it has not started; as `subprocess.Popen` of a text."""

    def __init__(self, pid: int, stdout: IO[str]) -> None:
        self.pid = pid
        self.stdout: IO[str] | None = stdout
        self.returncode: int | None = None
        self._descriptor = os.pidfd_open(pid)

    def poll(self) -> int | None:
        """The exit status, negative for a signal; None while it runs."""
        if self.returncode is None:
            self._look(os.WNOHANG)
        return self.returncode

    def _look(self, options: int) -> None:
        pid, status = os.waitpid(self.pid, options)
        if pid:
            self.returncode = os.waitstatus_to_exitcode(status)
            os.close(self._descriptor)

    def wait(self, timeout: float | None = None) -> int:
        """The exit status. Raises `subprocess.TimeoutExpired` after `timeout` seconds."""
        if self.returncode is None:
            ended = select.poll()
            ended.register(self._descriptor, select.POLLIN)
            if not ended.poll(None if timeout is None else timeout * 1_000):
                raise subprocess.TimeoutExpired("a forked node", timeout or 0)
            self._look(0)  # it has ended, but one that strace looks at is strace's for a moment
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, if it still runs."""
        if self.poll() is None:
            signal.pidfd_send_signal(self._descriptor, number)

    def kill(self) -> None:
        """kill -9, if it still runs."""
        self.send_signal(signal.SIGKILL)


@cache
def _fork_server() -> socket.socket:
    """Where nodes are asked for; the server is started at the first of them."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "this process cannot adopt nodes")
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.nodes.fork_server", str(theirs.fileno())],
            cwd=ROOT,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            # threads would not live in a fork
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        )

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


def fork_node(
    arguments: Sequence[str], environment: Mapping[str, str], errors: IO[str]
) -> ForkedProcess:
    """Run `curlew` with these arguments; the environment is the whole of it."""
    request = json.dumps(Start(arguments, environment)).encode()
    answer, answering = os.pipe()  # of its own: other threads may ask, too
    reading, writing = os.pipe()
    try:
        socket.send_fds(_fork_server(), [request], [writing, errors.fileno(), answering])
    finally:
        os.close(writing)
        os.close(answering)
    with os.fdopen(answer) as answered:
        return ForkedProcess(int(answered.read()), os.fdopen(reading))
