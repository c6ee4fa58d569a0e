"""What replicas cost: one, two and three nodes of one shard, in turn.

    python -m benchmarks.cluster.replicas [--runs 5] [--seconds 3] [--sync-ms 1,5,10]

With `--sync-ms` once for each of them: so much longer each sync takes, on each node by itself. All
nodes, PostgreSQL and the load share the machine's cores, so beside each rate stands the processor
time a message of the leader and of all followers together. Needs wrk and PostgreSQL.
"""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from statistics import median, quantiles
from typing import Final

import httpx

from benchmarks.cluster.loads import BODY, CONNECTIONS, TOPIC, idle_ms, posting_frames, spent_s
from benchmarks.cluster.starting import started
from benchmarks.load import generate, wrk
from tests.support.cluster.three_processes import leads_all
from tests.support.metadata.postgres import PostgresServer
from tests.support.nodes.waiting import wait_until

REPLICAS: Final = (1, 2, 3)


@dataclass
class Nodes:
    """Of one shard, in sync."""

    leader_url: str
    leader_pid: int
    follower_pids: list[int]

    def spent_s(self) -> tuple[float, float]:
        """Processor time so far: of the leader, and of all followers."""
        return spent_s(self.leader_pid), sum(map(spent_s, self.follower_pids))


@dataclass
class Figures:
    """Of one number of replicas, one value a run."""

    frames: list[float] = field(default_factory=list)
    frame_leader_us: list[float] = field(default_factory=list)
    frame_follower_us: list[float] = field(default_factory=list)
    frames_of_four: list[float] = field(default_factory=list)
    singles: list[float] = field(default_factory=list)
    single_leader_us: list[float] = field(default_factory=list)
    single_follower_us: list[float] = field(default_factory=list)
    idle_p50_ms: list[float] = field(default_factory=list)
    idle_p99_ms: list[float] = field(default_factory=list)


@contextmanager
def nodes(server: PostgresServer, count: int, sync_ms: float = 0) -> Iterator[Nodes]:
    """So many, with a topic of one queue that syncs each send."""
    with started(server, ["bench"] * count, count, sync_ms) as found:
        wait_until(lambda: any(_has_all(node) for node, _ in found))
        leader, pid = next(each for each in found if _has_all(each[0]))
        httpx.put(f"{leader}/v1/topics/{TOPIC}", json={"queues": 1}).raise_for_status()
        yield Nodes(leader, pid, [other for _, other in found if other != pid])


def _has_all(url: str) -> bool:
    return leads_all(httpx.get(f"{url}/metrics").text)


def measure(found: Nodes, seconds: float, into: Figures) -> None:
    """One run."""
    idle = idle_ms(found.leader_url)
    into.idle_p50_ms.append(median(idle))
    into.idle_p99_ms.append(quantiles(idle, n=100)[98])
    before = found.spent_s()
    rate = generate(posting_frames(), found.leader_url, 1, seconds).per_second
    after = found.spent_s()
    into.frames.append(rate)
    into.frame_leader_us.append(1e6 * (after[0] - before[0]) / (rate * seconds))
    into.frame_follower_us.append(1e6 * (after[1] - before[1]) / (rate * seconds))
    into.frames_of_four.append(generate(posting_frames(), found.leader_url, 4, seconds).per_second)
    path = f"{found.leader_url}/v1/topics/{TOPIC}/messages?queue_id=0"
    before = found.spent_s()
    rate = wrk(path, BODY, CONNECTIONS, seconds).per_second
    after = found.spent_s()
    into.singles.append(rate)
    into.single_leader_us.append(1e6 * (after[0] - before[0]) / (rate * seconds))
    into.single_follower_us.append(1e6 * (after[1] - before[1]) / (rate * seconds))


def _table(figures: dict[int, Figures]) -> Iterator[str]:
    yield "| | 1 node | 2 replicas | 3 replicas | 2 to 1 | 3 to 1 |"
    yield "|---|---|---|---|---|---|"
    rows = {
        "frames of 1,000 x 1 KiB, messages a second": "frames",
        "the same, processor time a message of the leader, µs": "frame_leader_us",
        "the same, of all followers, µs": "frame_follower_us",
        "frames of 1,000 x 1 KiB over four connections, messages a second": "frames_of_four",
        "single sends of 1 KiB, 64 connections, a second": "singles",
        "the same, processor time a message of the leader, µs ": "single_leader_us",
        "the same, of all followers, µs ": "single_follower_us",
        "one send where all is idle, p50, ms": "idle_p50_ms",
        "the same, p99, ms": "idle_p99_ms",
    }
    for name, attribute in rows.items():
        values: dict[int, list[float]] = {
            count: getattr(found, attribute) for count, found in figures.items()
        }
        middle = [f"{median(values[count]):.3g}" for count in REPLICAS]
        ratios = []
        for count in REPLICAS[1:]:
            pairs = zip(values[count], values[1], strict=True)
            of_pairs = [own / lone for own, lone in pairs if lone]
            ratios.append(f"{median(of_pairs):.2f}" if of_pairs else "")
        yield f"| {name.strip()} | {' | '.join([*middle, *ratios])} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--sync-ms", default="0", help="some, with commas between")
    options = parser.parse_args()
    slowed = [float(each) for each in options.sync_ms.split(",")]
    figures = {sync_ms: {count: Figures() for count in REPLICAS} for sync_ms in slowed}
    server = PostgresServer.create()
    try:
        for _, sync_ms, count in product(range(options.runs), slowed, REPLICAS):
            with nodes(server, count, sync_ms) as found:
                measure(found, options.seconds, figures[sync_ms][count])
    finally:
        server.destroy()
    for sync_ms, found_there in figures.items():
        print(f"\nEach sync takes {sync_ms:g} ms longer:\n" if sync_ms else "")
        print(*_table(found_there), sep="\n")


if __name__ == "__main__":
    main()
