"""Tombstones in SQL: what was deleted, until each shard has carried it out.

A deletion is a row's end and a tombstone for each shard in one transaction. A shard then makes the
messages unreadable and its tombstone goes. After a crash in between the next start finds the
tombstone; a name that is merely missing, because an older copy of the database was restored, is no
deletion.
"""

from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncConnection

from app.cluster.metadata.database.upserts import upsert
from app.cluster.metadata.schema.tables import shards, tombstones
from app.domain.identity import Deletion, Kind
from app.domain.positions import TimestampMs


async def note(connection: AsyncConnection, deletion: Deletion, now_ms: TimestampMs) -> None:
    """In the transaction that deletes it. Where no store has the database yet, the next one that
    comes carries it out."""
    names = (await connection.execute(select(shards.c.name))).scalars().all()
    rows = [
        {
            "kind": deletion.kind.value,
            "name": deletion.name,
            "generation": deletion.generation,
            "shard": name,
            "deleted_ms": now_ms,
        }
        for name in names or [""]
    ]
    key = ["kind", "name", "generation", "shard"]
    await connection.execute(
        upsert(connection, tombstones).on_conflict_do_nothing(index_elements=key), rows
    )


async def load(connection: AsyncConnection, shard: str) -> list[Deletion]:
    """All that a shard has not carried out, by time."""
    row = tombstones.c
    query = select(row.kind, row.name, row.generation).order_by(row.deleted_ms, row.name)
    query = query.where(row.shard == shard)
    return [
        Deletion(Kind(kind), name, generation)
        for kind, name, generation in await connection.execute(query)
    ]


async def forget(connection: AsyncConnection, deletion: Deletion, shard: str) -> None:
    """The shard has carried it out."""
    row = tombstones.c
    await connection.execute(
        delete(tombstones).where(
            row.kind == deletion.kind.value,
            row.name == deletion.name,
            row.generation == deletion.generation,
            row.shard == shard,
        )
    )
