"""Ports for servers that must know theirs before they listen, or keep it through several lives."""

import os
import secrets
import socket
from pathlib import Path
from typing import Final

LOOPBACK: Final = "127.0.0.1"
_LOWEST: Final = 10_000
_TRIES: Final = 100
_WORKERS: Final = 4
"""Processes of a test run that give no port of each other."""
_given: set[int] = set()
"""A server that was killed has its port, though nobody listens there until it comes again."""


def free_port() -> int:
    """One that nobody listens on, below those that the kernel gives to whoever asks for none.

    One of the kernel's would be free now, and that of a client's connection a moment later. They
    are random bytes that choose: the processes of a test run share their seeds. None is given
    twice by a process, nor by another worker of the run.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _WORKERS
    count = (_kernels_first() - _LOWEST) // _WORKERS
    if len(_given) > count // 2:
        _given.clear()
    for _ in range(_TRIES):
        port = _LOWEST + worker * count + secrets.randbelow(count)
        if port in _given:
            continue
        with socket.socket() as probe:
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
        _given.add(port)
        return port
    raise AssertionError(f"no port from {_LOWEST} to {_kernels_first()} is free; end what has them")


def _kernels_first() -> int:
    first = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0]
    assert int(first) > _LOWEST, f"set net.ipv4.ip_local_port_range to begin above {_LOWEST}"
    return int(first)
