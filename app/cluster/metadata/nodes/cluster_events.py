"""What happened to nodes and shards, and when by the database's clock.

A row is written in the transaction of its change: what was rolled back did not happen. The newest
`EVENTS_KEPT_MAX` are kept.
"""

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from sqlalchemy import BigInteger, ColumnElement, cast, delete, func, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from app.cluster.metadata.database.database import Database
from app.cluster.metadata.nodes.beats import clock_ms
from app.cluster.metadata.schema.tables import cluster_events
from app.cluster.metadata.tables import versions
from app.domain.limits import EVENTS_KEPT_MAX

Kind = Literal[
    "node_registered",
    "shard_made",
    "shard_claimed",
    "shard_led",
    "shard_left",
    "shard_released",
    "node_fenced",
    "shard_elected",
    "shard_elected_after_loss",
    "shard_elected_unclean",
    "in_sync_changed",
    "shard_handed_over",
    "metadata_regressed",
    "shard_written_back",
    "replica_joined",
    "replica_moved",
    "replica_removed",
    "replica_reset",
    "replica_cut",
    "replica_gave_up",
    "shard_drains",
    "shard_keys_moved",
    "shard_takes_all",
]

_UNIX_EPOCH_DAY: Final = 2_440_587.5
"""As a Julian day, which is SQLite's clock."""
_DAY_MS: Final = 86_400_000


class Event(NamedTuple):
    """One of them, before it has a number and a time."""

    kind: Kind
    shard: str = ""
    """Empty: of none."""
    node_id: str = ""
    """Empty: of none."""
    epoch: int | None = None
    detail: str = ""


class ClusterEvent(NamedTuple):
    """One of them, as it is kept."""

    seq: int
    """It rises by one with each."""
    at_ms: int
    kind: str
    shard: str
    node_id: str
    epoch: int | None
    detail: str


async def note(connection: AsyncConnection, event: Event) -> None:
    """Keep it. The caller holds the version's lock, before any other of its transaction."""
    row = cluster_events.c
    newest = await connection.scalar(select(func.max(row.seq)))
    seq = (newest or 0) + 1
    values = {**event._asdict(), "seq": seq, "at_ms": _now_ms(connection)}
    await connection.execute(insert(cluster_events).values(values))
    await connection.execute(delete(cluster_events).where(row.seq <= seq - EVENTS_KEPT_MAX))


def _now_ms(connection: AsyncConnection) -> ColumnElement[int]:
    if connection.dialect.name == "postgresql":
        return clock_ms()
    return cast((func.julianday("now") - _UNIX_EPOCH_DAY) * _DAY_MS, BigInteger)


class ClusterEvents:
    """Reads them, and writes what is no part of another change. One per node."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def note(self, event: Event) -> None:
        """Keep one, in a transaction of its own."""
        async with self._database.transaction() as connection:
            await versions.lock(connection)
            await note(connection, event)

    async def page(self, before: int | None, size: int) -> Sequence[ClusterEvent]:
        """The newest first, `size` at most, those before a number only when it is given."""
        row = cluster_events.c
        query = select(cluster_events).order_by(row.seq.desc()).limit(size)
        if before is not None:
            query = query.where(row.seq < before)
        async with self._database.reading() as connection:
            return [ClusterEvent(*found) for found in await connection.execute(query)]
