"""What many nodes ask of the database: so many as are named, simulated, against a real PostgreSQL.

    python -m benchmarks.cluster.metadata_load [--nodes 10 100 1000] [--seconds 10] [--topics 1000]

Each simulated node asks what a real one does, by the same code: every second one statement, which
renews the lease of its shard or reads its row, and brings the beat. They share some connections,
as they would behind a pooler. Beside it stands what a node asks that takes a change over.
"""

import argparse
import asyncio
import json
import os
import time
from pathlib import Path
from statistics import median, quantiles
from typing import Final, NamedTuple

import psycopg
from sqlalchemy import create_engine, insert

from app.cluster import ClusterConfig, Metadata, migrate
from app.cluster.metadata.database.database import Database
from app.cluster.metadata.nodes.beats import CarriedBeats
from app.cluster.metadata.nodes.shard_rows import GRANT_BYTES, ShardRows
from app.cluster.metadata.schema.tables import nodes, shard_replicas, shards
from app.cluster.replication.replica_state import Timing
from app.cluster.replication.shard_row import Renew
from app.cluster.replication.terms import Term
from app.runtime.system_clock import SystemClock
from tests.support.metadata.postgres import PostgresServer

REPLICAS: Final = 3
CONNECTIONS: Final = 20
LOADS: Final = 10
_TICKS: Final = os.sysconf("SC_CLK_TCK")


class Asked(NamedTuple):
    """What came of a number of nodes."""

    nodes: int
    a_second: float
    p50_ms: float
    p99_ms: float
    processor: float
    """Of PostgreSQL, in cores."""


def fill(url: str, count: int) -> None:
    """Rows as so many nodes at work have them, three to a shard, the first of each leading."""
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        for first in range(0, count, REPLICAS):
            shard, members = f"s{first}", [_node(first + each) for each in range(REPLICAS)]
            connection.execute(
                insert(shards).values(
                    name=shard,
                    shard_id=first.to_bytes(4),
                    epoch=1,
                    grant_id=_term(first).grant.to_bytes(GRANT_BYTES),
                    leader=members[0],
                    leader_incarnation=1,
                    place="",
                    address="",
                    lease_until_ms=0,
                    created_ms=0,
                    in_sync=json.dumps([[node, 1] for node in members]),
                    in_sync_version=1,
                    settled_version=1,
                    min_in_sync=2,
                    target_replicas=REPLICAS,
                    segment_bytes=1 << 30,
                )
            )
            for node in members:
                connection.execute(
                    insert(nodes).values(
                        node_id=node,
                        address="",
                        store_id=first.to_bytes(4),
                        started_ms=0,
                        seen_ms=0,
                        shard=shard,
                    )
                )
                connection.execute(
                    insert(shard_replicas).values(
                        shard=shard,
                        node_id=node,
                        cluster_url="http://127.0.0.1:1",
                        incarnation=1,
                        joined_ms=0,
                        seen_ms=0,
                    )
                )
    engine.dispose()


def _node(number: int) -> str:
    return f"{number:016x}"


def _term(first: int) -> Term:
    return Term(1, first + 1)


async def ask(url: str, count: int, seconds: float, server: PostgresServer) -> Asked:
    """Let so many nodes be idle for so long."""
    clock = SystemClock()
    database = Database(ClusterConfig(url, connections_max=CONNECTIONS, connect_s_max=60))
    taken_ms: list[float] = []
    end = time.monotonic() + seconds

    async def be(number: int) -> None:
        rows = ShardRows(
            database, f"s{number - number % REPLICAS}", _node(number), CarriedBeats(clock)
        )
        renewal = Renew(_term(number), Timing().lease_ms)
        await asyncio.sleep(number / count)
        await rows.read()
        while (began := time.monotonic()) < end:
            if number % REPLICAS:
                await rows.read()
            else:
                changed = await rows.change(renewal)
                assert changed is not None
                assert changed.is_done
            taken_ms.append(1_000 * (time.monotonic() - began))
            await asyncio.sleep(began + Timing().row_ms / 1_000 - time.monotonic())

    before = _spent_s(server)
    await asyncio.gather(*map(be, range(count - count % REPLICAS)))
    spent = _spent_s(server) - before
    await database.close()
    return Asked(
        count,
        len(taken_ms) / seconds,
        median(taken_ms),
        quantiles(taken_ms, n=100)[98],
        spent / seconds,
    )


def _spent_s(server: PostgresServer) -> float:
    """Processor time of all processes of the server that live."""
    total = 0
    for each in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = each.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if server.pid in {int(fields[1]), int(each.parent.name)}:
            total += int(fields[11]) + int(fields[12])
    return total / _TICKS


async def take_over(url: str, topics: int) -> float:
    """Milliseconds in which a node takes a change over, where there are so many topics."""
    metadata = await Metadata.open(ClusterConfig(url), SystemClock())
    for number in range(topics):
        await metadata.ensure_topic(f"topic-{number}")
    taken: list[float] = []
    for _ in range(LOADS):
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("UPDATE metadata_version SET version = version + 1")
        began = time.perf_counter()
        assert await metadata.refresh()
        taken.append(1_000 * (time.perf_counter() - began))
    await metadata.close()
    return median(taken)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="*", default=[10, 100, 1_000])
    parser.add_argument("--topics", type=int, nargs="*", default=[100, 1_000, 10_000])
    parser.add_argument("--seconds", type=float, default=10)
    options = parser.parse_args()
    server = PostgresServer.create()
    try:
        print(
            "| Nodes | statements a second | p50 | p99 | PostgreSQL, cores |\n|---|---|---|---|---|"
        )
        for count in options.nodes:
            url = server.new_database()
            migrate(url)
            fill(url, count)
            found = asyncio.run(ask(url, count, options.seconds, server))
            print(
                f"| {count} | {found.a_second:.0f} | {found.p50_ms:.1f} ms | {found.p99_ms:.1f} ms"
                f" | {found.processor:.3f} |"
            )
        print("\n| Topics | a node takes a change over |\n|---|---|")
        for topics in options.topics:
            url = server.new_database()
            migrate(url)
            print(f"| {topics} | {asyncio.run(take_over(url, topics)):.1f} ms |")
    finally:
        server.destroy()


if __name__ == "__main__":
    main()
