"""What several shards cost: requests that are carried, batches that are parted, an idle cluster.

    python -m benchmarks.cluster.shards [--runs 3] [--windows 4] [--seconds 2]

Three nodes lead a shard each, with a topic of three queues, one in each. All nodes, PostgreSQL and
the load share the machine's cores, so what counts is the processor time a message of all nodes
together; PostgreSQL's is not in it. What three processes cost more than one is measured of programs
that do nothing (sinks), too: that much is the machine's. Needs wrk and PostgreSQL.

One and three are there at the same time and take windows in turn, the other one first each time:
the machine's speed moves by more within a minute than the two differ. A ratio is that of two
windows that follow each other. Before the first one each log has filled the memory it may have, for
memory that is new to the machine costs several times as much. A run begins with new processes.
"""

import argparse
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from statistics import median, quantiles
from typing import Final

import httpx
import psycopg

from app.domain.limits import MIB
from benchmarks.cluster.loads import (
    BODY,
    CONNECTIONS,
    TOPIC,
    idle_ms,
    posting_frames,
    posting_json,
    send_path,
    spent_s,
)
from benchmarks.cluster.starting import LOG_CACHE_MIB, started
from benchmarks.load import Work, generate, wrk
from benchmarks.rows import posting
from benchmarks.servers import running
from tests.support.metadata.postgres import PostgresServer
from tests.support.nodes.waiting import wait_until

SHARDS: Final = ("a", "b", "c")
BATCH_MESSAGES: Final = 300
IDLE_S: Final = 20
RATIOS_MIN: Final = 6
"""Pairs from which on it is said between what half of them lie."""
FILLING: Final = 1.5
"""How much is written before the first window, of what the logs keep in memory."""
SENDERS: Final = 3
"""Of frames, each with a connection."""
PACED_SINGLES_PER_S: Final = 2_000
PACED_FRAMES_PER_S: Final = 50
"""Of each of three connections: a third to a half of what the machine can do."""
_STATEMENT: Final = re.compile(r"LOG: +(?:statement|execute [^:]*): (?!BEGIN|COMMIT|ROLLBACK)")

Figures = dict[str, list[float]]
"""By the name of a row, a value for each run."""


@dataclass
class Nodes:
    """Each leads a queue of the topic; `urls[n]` leads queue n."""

    urls: list[str]
    pids: list[int]

    def spent_s(self) -> float:
        """Processor time of all together so far."""
        return sum(map(spent_s, self.pids))

    def cost_us(self, run: Callable[[], float], seconds: float) -> tuple[float, float]:
        """(messages a second, processor time a message) of what `run` gives as a rate."""
        before = self.spent_s()
        rate = run()
        return rate, 1e6 * (self.spent_s() - before) / (rate * seconds)


@contextmanager
def nodes(server: PostgresServer, shards: tuple[str, ...]) -> Iterator[Nodes]:
    """One of each shard, with a topic of three queues spread over them."""
    with started(server, shards) as found:
        pids = dict(found)
        first = next(iter(pids))
        httpx.put(
            f"{first}/v1/topics/{TOPIC}", json={"queues": 3, "flush": "async"}
        ).raise_for_status()
        for address in pids:
            wait_until(partial(_has_route, address))
        queues = _route(first).json()["queues"]
        urls = [queue["leader"] for queue in queues]
        yield Nodes(urls, list(pids.values()))


@contextmanager
def sinks(count: int) -> Iterator[Nodes]:
    """Programs that drop what they get, in place of as many nodes."""
    with ExitStack() as all_of_them:
        found = [
            all_of_them.enter_context(running("benchmarks.baselines", "sink")) for _ in range(count)
        ]
        urls, pids = zip(*found, strict=True)
        yield Nodes([urls[queue_id % count] for queue_id in range(3)], list(pids))


def _has_route(url: str) -> bool:
    return _route(url).is_success


def _route(url: str) -> httpx.Response:
    return httpx.get(f"{url}/v1/topics/{TOPIC}/route")


def _singles(url: str, connections: int, seconds: float) -> float:
    return wrk(url, BODY, connections, seconds).per_second


def _moved(work: Work, url: str, processes: int, seconds: float) -> float:
    return generate(work, url, processes, seconds).per_second


def measure_carried(found: Nodes, seconds: float, into: Figures) -> None:
    """The same requests for queue 1, asked of its own node and of another one."""
    for where, url in (("direct", found.urls[1]), ("carried", found.urls[0])):
        idle = idle_ms(url, 1)
        into[f"idle p50 {where}"].append(median(idle))
        into[f"idle p99 {where}"].append(quantiles(idle, n=100)[98])
        single = f"{url}{send_path(1)}"
        _, cost = found.cost_us(partial(_singles, single, CONNECTIONS, seconds), seconds)
        into[f"single {where}"].append(cost)
        _, cost = found.cost_us(partial(_moved, posting_frames(1), url, 1, seconds), seconds)
        into[f"frames {where}"].append(cost)


def measure_parted(found: Nodes, seconds: float, into: Figures) -> None:
    """Batches for the queue of the node that is asked, and for those of all three."""
    for where, queue_ids in (("one", (0,)), ("three", (0, 1, 2))):
        work = posting_json(queue_ids, BATCH_MESSAGES)
        run = partial(_moved, work, found.urls[0], 1, seconds)
        rate, cost = found.cost_us(run, seconds)
        into[f"batch rate {where}"].append(rate)
        into[f"batch {where}"].append(cost)


def fill_memory(found: Nodes) -> None:
    """Write until the logs use memory again that they have given back."""
    frames, messages = _at_leaders(found.urls, posting_frames), 0.0
    while messages < FILLING * LOG_CACHE_MIB * MIB / len(BODY):
        messages += _moved(frames, "", SENDERS, 1)


def spread_cases(found: Nodes) -> dict[str, Callable[[float], float]]:
    """By row, what gives a rate: requests for each queue at the node that leads it, with a third of
    the connections each, and with as many at each node as at a lone one."""
    single = _at_leaders(found.urls, _posting_one)
    frames = _at_leaders(found.urls, posting_frames)
    alike = len(found.pids)
    return {
        "spread single": partial(_singles_at_leaders, found.urls, CONNECTIONS),
        "alike single": partial(_singles_at_leaders, found.urls, CONNECTIONS * alike),
        "spread frames": partial(_moved, frames, "", SENDERS),
        "alike frames": partial(_moved, frames, "", SENDERS * alike),
        "paced single": partial(_moved, _paced(single, PACED_SINGLES_PER_S), "", SENDERS),
        "paced frames": partial(_moved, _paced(frames, PACED_FRAMES_PER_S), "", SENDERS),
    }


def measure_spread(one: Nodes, three: Nodes, windows: int, seconds: float, into: Figures) -> None:
    """Each row of one process and of three in turn."""
    both = {"one": (one, spread_cases(one)), "three": (three, spread_cases(three))}
    for row in spread_cases(one):
        for number in range(windows):
            for where in sorted(both, reverse=bool(number % 2)):
                found, cases = both[where]
                rate, cost = found.cost_us(partial(cases[row], seconds), seconds)
                into[f"{row} rate {where}"].append(rate)
                into[f"{row} {where}"].append(cost)


def _singles_at_leaders(urls: list[str], connections: int, seconds: float) -> float:
    each = connections // len(urls)
    with ThreadPoolExecutor(len(urls)) as pool:
        runs = [
            pool.submit(_singles, f"{url}{send_path(queue_id)}", each, seconds)
            for queue_id, url in enumerate(urls)
        ]
    return sum(run.result() for run in runs)


def _posting_one(queue_id: int) -> Work:
    return posting(send_path(queue_id), BODY, 1)


def _at_leaders(urls: list[str], posting_to: Callable[[int], Work]) -> Work:
    def work(_url: str, number: int) -> Iterator[int]:
        queue_id = number % len(urls)
        return posting_to(queue_id)(urls[queue_id], number)

    return work


def _paced(work: Work, per_second: int) -> Work:
    """So many exchanges a second of each process."""

    def paced(url: str, number: int) -> Iterator[int]:
        steps = work(url, number)
        yield next(steps)
        due_s = time.perf_counter()
        for moved in steps:
            due_s += 1 / per_second
            time.sleep(max(0.0, due_s - time.perf_counter()))
            yield moved

    return paced


def measure_idle(server: PostgresServer, found: Nodes, into: Figures) -> None:
    """Statements a second on the database, and processor time, while nobody asks for anything."""
    with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET log_statement = 'all'")
        connection.execute("SELECT pg_reload_conf()")
        time.sleep(1)
        before, spent = server.log.stat().st_size, found.spent_s()
        time.sleep(IDLE_S)
        spent = found.spent_s() - spent
        with server.log.open("rb") as log:
            log.seek(before)
            written = log.read().decode()
        connection.execute("ALTER SYSTEM RESET log_statement")
        connection.execute("SELECT pg_reload_conf()")
    into["idle statements"].append(len(_STATEMENT.findall(written)) / IDLE_S)
    into["idle processor"].append(100 * spent / IDLE_S)


_ROWS: Final = (
    ("one send where all is idle, p50, ms", "direct", "carried", "idle p50"),
    ("the same, p99, ms", "direct", "carried", "idle p99"),
    ("single sends of 1 KiB, 64 connections, µs a message", "direct", "carried", "single"),
    ("frames of 1,000 x 1 KiB, µs a message", "direct", "carried", "frames"),
    ("JSON batches of 300 x 1 KiB, messages a second", "one", "three", "batch rate"),
    ("the same, µs a message", "one", "three", "batch"),
    ("single sends at leaders, a second", "one", "three", "spread single rate"),
    ("the same, µs a message", "one", "three", "spread single"),
    ("frames at leaders, messages a second", "one", "three", "spread frames rate"),
    ("the same, µs a message", "one", "three", "spread frames"),
    (
        "single sends, as many connections at each node, a second",
        "one",
        "three",
        "alike single rate",
    ),
    ("the same, µs a message", "one", "three", "alike single"),
    (
        "frames, as many connections at each node, messages a second",
        "one",
        "three",
        "alike frames rate",
    ),
    ("the same, µs a message", "one", "three", "alike frames"),
    ("6,000 single sends a second at leaders, µs a message", "one", "three", "paced single"),
    ("150 frames a second at leaders, µs a message", "one", "three", "paced frames"),
)


def _table(figures: Figures, dropped: Figures) -> Iterator[str]:
    """`dropped` are the figures of the sinks."""
    yield "| | First | Second | Second to first, pairs | of sinks |"
    yield "|---|---|---|---|---|"
    for name, sooner, later, row in _ROWS:
        first, second = figures[f"{row} {sooner}"], figures[f"{row} {later}"]
        if not first:
            continue
        middle = f"{sooner} {median(first):.3g} | {later} {median(second):.3g}"
        of_sinks = dropped[f"{row} {sooner}"], dropped[f"{row} {later}"]
        control = _ratio(*of_sinks) if all(of_sinks) else ""
        yield f"| {name} | {middle} | {_ratio(first, second)} | {control} |"
    for name, row in (
        ("statements a second on the database", "idle statements"),
        ("processor time of the nodes, % of a core", "idle processor"),
    ):
        if figures[row]:
            yield f"| idle: {name} | | {median(figures[row]):.3g} | | |"


def _ratio(first: list[float], second: list[float]) -> str:
    """Of each second value to its first one: the middle, and where there are enough of them between
    what half of them lie."""
    ratios = [of / to for to, of in zip(first, second, strict=True)]
    if len(ratios) < RATIOS_MIN:
        return f"{median(ratios):.2f}"
    low, middle, high = quantiles(ratios, n=4)
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--windows", type=int, default=4)
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--only-spread", action="store_true", help="one beside three, nothing else")
    options = parser.parse_args()
    figures: Figures = defaultdict(list)
    dropped: Figures = defaultdict(list)
    server = PostgresServer.create()
    try:
        for number in range(options.runs):
            with sinks(1) as one, sinks(3) as three:
                measure_spread(one, three, options.windows, options.seconds, dropped)
            with nodes(server, SHARDS) as three:
                with nodes(server, SHARDS[:1]) as one:
                    fill_memory(one)
                    fill_memory(three)
                    measure_spread(one, three, options.windows, options.seconds, figures)
                if options.only_spread:
                    continue
                measure_carried(three, options.seconds, figures)
                measure_parted(three, options.seconds, figures)
                if number == 0:
                    measure_idle(server, three, figures)
    finally:
        server.destroy()
    print(*_table(figures, dropped), sep="\n")


if __name__ == "__main__":
    main()
