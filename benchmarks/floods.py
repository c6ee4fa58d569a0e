"""A good client beside those that try wrong keys as fast as they can."""

import multiprocessing
import os
import selectors
import tempfile
import time
from pathlib import Path
from statistics import median

from benchmarks.load import Connection
from benchmarks.servers import running

_PATH = "/v1/topics/flooded/messages"
_SENDS = 300
_CONNECTIONS = 200
"""Of who floods, at a time."""


def beside_wrong_keys(_seconds: float) -> tuple[float, float]:
    """Milliseconds of a send with a right key, p99: alone, and beside wrong ones."""
    with tempfile.TemporaryDirectory(prefix="curlew-bench-") as directory:
        file = Path(directory, "admin.key")
        flags = ["--port", "0", "--data-dir", f"{directory}/data", "--flush", "async"]
        with running("app.cli", "dev", *flags, "--admin-key-file", str(file)) as (url, _):
            key = file.read_text().strip()
            _p99(url, key)
            alone = _p99(url, key)
            context = multiprocessing.get_context("fork")
            flood = context.Process(target=_flood, args=(url,))
            flood.start()
            time.sleep(1)
            try:
                return alone, _p99(url, key)
            finally:
                flood.terminate()
                flood.join()


def _p99(url: str, key: str) -> float:
    connection = Connection(url)
    request = connection.build("POST", _PATH, b"x" * 1024, f"Authorization: Bearer {key}")
    delays = []
    for _ in range(_SENDS):
        began = time.perf_counter()
        status, _, answer = connection.exchange(request)
        assert status == 201, answer
        delays.append((time.perf_counter() - began) * 1_000)
        time.sleep(0.002)
    connection.close()
    assert median(delays) > 0
    return sorted(delays)[int(len(delays) * 0.99)]


def _flood(url: str) -> None:
    """Send wrong keys on many connections at once; each has a new one for its next."""
    os.nice(19)  # what is measured is the node, not this machine
    connections = [Connection(url) for _ in range(_CONNECTIONS)]
    wrong = connections[0].build("POST", _PATH, b"x", "Authorization: Bearer wrong")
    waiting = selectors.DefaultSelector()
    for each in connections:
        _ask(waiting, each, wrong)
    while True:
        for key, _ in waiting.select():
            connection: Connection = key.data
            waiting.unregister(connection)
            connection.close()
            _ask(waiting, Connection(url), wrong)


def _ask(waiting: selectors.BaseSelector, connection: Connection, request: bytes) -> None:
    connection.send(request)
    waiting.register(connection, selectors.EVENT_READ, connection)
