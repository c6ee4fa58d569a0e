"""The version row: one number that every change of topics, groups and schedules raises.

Nodes poll it to learn that another node changed something. Taking it is also the lock that makes
read-then-write changes safe on PostgreSQL: every such change calls `lock` first.
"""

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from app.cluster.metadata.schema.tables import metadata_version


async def current(connection: AsyncConnection) -> int:
    """The version, as of this transaction."""
    return int((await connection.execute(select(metadata_version.c.version))).scalar_one())


async def lock(connection: AsyncConnection) -> int:
    """Keep other changes out until the transaction ends; return the version before ours."""
    statement = select(metadata_version.c.version).with_for_update()
    return int((await connection.execute(statement)).scalar_one())


async def raise_to(connection: AsyncConnection, version: int) -> None:
    """Set the version; the caller holds the lock and gives the next number."""
    await connection.execute(update(metadata_version).values(version=version))
