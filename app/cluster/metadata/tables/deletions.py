"""Tombstones in SQL: what was deleted, until the store has carried it out.

A deletion is a row's end and a tombstone in one transaction. The store then makes the messages
unreadable and the tombstone goes. After a crash in between the next start finds the tombstone; a
name that is merely missing, because an older copy of the database was restored, is no deletion.
"""

from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncConnection

from app.cluster.metadata.database.upserts import upsert
from app.cluster.metadata.schema.tables import tombstones
from app.domain.identity import Deletion, Kind
from app.domain.positions import TimestampMs


async def note(connection: AsyncConnection, deletion: Deletion, now_ms: TimestampMs) -> None:
    """In the transaction that deletes it."""
    insertion = upsert(connection, tombstones).values(
        kind=deletion.kind.value,
        name=deletion.name,
        generation=deletion.generation,
        deleted_ms=now_ms,
    )
    await connection.execute(
        insertion.on_conflict_do_nothing(index_elements=["kind", "name", "generation"])
    )


async def load(connection: AsyncConnection) -> list[Deletion]:
    """All that were not carried out, by time."""
    row = tombstones.c
    query = select(row.kind, row.name, row.generation).order_by(row.deleted_ms, row.name)
    return [
        Deletion(Kind(kind), name, generation)
        for kind, name, generation in await connection.execute(query)
    ]


async def forget(connection: AsyncConnection, deletion: Deletion) -> None:
    """The store has carried it out."""
    row = tombstones.c
    await connection.execute(
        delete(tombstones).where(
            row.kind == deletion.kind.value,
            row.name == deletion.name,
            row.generation == deletion.generation,
        )
    )
