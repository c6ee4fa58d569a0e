"""Random keys that all nodes of a cluster share, by name (one signs receipt handles)."""

from secrets import token_bytes
from typing import Final

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from app.cluster.metadata.database.upserts import upsert
from app.cluster.metadata.schema.tables import secrets
from app.domain.positions import TimestampMs

SECRET_BYTES: Final = 32


async def get_or_create(connection: AsyncConnection, name: str, now_ms: TimestampMs) -> bytes:
    """The secret; of nodes that ask at the same time the first makes it, and all get that one."""
    present = await connection.scalar(select(secrets.c.value).where(secrets.c.name == name))
    if present is not None:  # a full disk, too, takes a transaction that changes nothing
        return bytes(present)
    insertion = upsert(connection, secrets).values(
        name=name, value=token_bytes(SECRET_BYTES), created_ms=now_ms
    )
    await connection.execute(insertion.on_conflict_do_nothing(index_elements=["name"]))
    value = await connection.scalar(select(secrets.c.value).where(secrets.c.name == name))
    assert value is not None
    return bytes(value)
