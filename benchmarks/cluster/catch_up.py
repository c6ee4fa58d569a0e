"""How fast a follower catches up, beside what a socket and a disk can do.

    python -m benchmarks.cluster.catch_up [--runs 3] [--mib 2048]

A leader writes so much of a log, in frames of 1,000 messages of 1 KiB. One follower was stopped
before, another one comes with an empty directory. Each is timed from when the leader hears how far
it is, until it is in sync; that its process starts is not counted. In turn with them as many bytes
go from one process through a loopback socket to another one, which writes them to a file on the
same disk and syncs it once. All share the machine's cores. Needs PostgreSQL.
"""

import argparse
import multiprocessing
import os
import re
import socket
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Final

import httpx

from benchmarks.cluster.loads import FRAME_MESSAGES, TOPIC, posting_frames, spent_s
from benchmarks.cluster.starting import Cluster, cluster
from tests.support.cluster.three_processes import leads_all
from tests.support.metadata.postgres import PostgresServer
from tests.support.nodes.waiting import wait_until

SHARD: Final = "bench"
PIECE_BYTES: Final = 2 << 20
"""In each call of the two that use a socket alone: as much as a leader sends at once."""
LOOK_S: Final = 0.02
SETTLED_S: Final = 1.0
"""Behind the load: then the leader's metrics have all of it."""
SOCKET: Final = "through a socket to a file, one sync: MiB/s"
_LAG: Final = re.compile(r"^curlew_replica_lag_bytes\{.*\} (\d+)", re.MULTILINE)

Figures = dict[str, list[float]]
"""By the name of a row, a value for each run."""


def through_socket(directory: Path, size: int) -> float:
    """Seconds in which so many bytes go to a file of another process, and to its medium."""
    listener = socket.create_server(("127.0.0.1", 0))
    path = directory / "bytes"
    receiver = multiprocessing.get_context("fork").Process(target=_receive, args=(listener, path))
    receiver.start()
    piece = os.urandom(PIECE_BYTES)
    with socket.create_connection(listener.getsockname()) as connection:
        listener.close()
        began = time.perf_counter()
        for _ in range(size // PIECE_BYTES):
            connection.sendall(piece)
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1) == b"."
        taken = time.perf_counter() - began
    receiver.join()
    path.unlink()
    return taken


def _receive(listener: socket.socket, path: Path) -> None:
    connection, _ = listener.accept()
    buffer = bytearray(PIECE_BYTES)
    view = memoryview(buffer)
    with path.open("wb", buffering=0) as file:
        while count := connection.recv_into(buffer):
            file.write(view[:count])
        os.fsync(file.fileno())
    connection.sendall(b".")
    connection.close()


def write(url: str, size: int) -> int:
    """About so many bytes of log; how many messages they are."""
    messages = size // 1_100
    steps = posting_frames()(url, 0)
    next(steps)
    return sum(next(steps) for _ in range(messages // FRAME_MESSAGES))


def behind(url: str) -> int | None:
    """By how many bytes the follower is, as its leader knows; None: it has said nothing."""
    found = _LAG.search(_metrics(url))
    return int(found[1]) if found else None


def _metrics(url: str) -> str:
    return httpx.get(f"{url}/metrics", timeout=30).text


def measure(server: PostgresServer, mib: int, into: Figures, *, is_empty: bool) -> None:
    """One run of one kind of follower, and of the socket."""
    kind = "an empty follower" if is_empty else "one that was stopped"
    with cluster(server, 2, 2 * mib) as made, made.node("leader", SHARD) as (url, pid):
        if not is_empty:
            with made.node("follower", SHARD):
                wait_until(lambda: leads_all(_metrics(url)))
        wait_until(lambda: _has_topic(url))
        write(url, mib << 20)
        time.sleep(SETTLED_S)
        taken, lag, spent = _caught_up(made, url, pid)
        into[f"{kind}, MiB/s"].append(lag / taken / (1 << 20))
        for whose, each in zip(("leader", "follower"), spent, strict=True):
            into[f"the same, processor time of the {whose}, ms/MiB ({kind})"].append(
                1_000 * each / (lag >> 20)
            )
        into[SOCKET].append((lag >> 20) / through_socket(made.root, lag))


def _has_topic(url: str) -> bool:
    return httpx.put(f"{url}/v1/topics/{TOPIC}", json={"queues": 1}).is_success


def _caught_up(made: Cluster, url: str, pid: int) -> tuple[float, int, tuple[float, float]]:
    """Start a follower that is behind: seconds, bytes, and processor time of both nodes."""
    known = behind(url)
    with made.node("follower", SHARD) as (_, follower_pid):
        while (lag := behind(url)) is None or (known is not None and lag >= known):
            time.sleep(LOOK_S)
        began, before = time.perf_counter(), (spent_s(pid), spent_s(follower_pid))
        while not leads_all(_metrics(url)):
            time.sleep(LOOK_S)
        taken = time.perf_counter() - began
        return taken, lag, (spent_s(pid) - before[0], spent_s(follower_pid) - before[1])


def _table(figures: Figures) -> Iterator[str]:
    yield "| | median | least | most | of the socket's |"
    yield "|---|---|---|---|---|"
    socket_alone = median(figures[SOCKET])
    for name, values in figures.items():
        ratio = f"{median(values) / socket_alone:.2f}" if name.endswith("MiB/s") else ""
        yield f"| {name} | {median(values):.4g} | {min(values):.4g} | {max(values):.4g} | {ratio} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--mib", type=int, default=2_048)
    options = parser.parse_args()
    figures: Figures = defaultdict(list)
    server = PostgresServer.create()
    try:
        for _ in range(options.runs):
            for is_empty in (False, True):
                measure(server, options.mib, figures, is_empty=is_empty)
    finally:
        server.destroy()
    print(*_table(figures), sep="\n")


if __name__ == "__main__":
    main()
