"""Settings that were changed while nodes ran, kept for all of them. In the caller's transaction.

A value is text as the environment would have it. A setting that was given its default again keeps
its row, without a value, so that the version of all never goes back.
"""

from collections.abc import Mapping
from types import MappingProxyType

from sqlalchemy import delete, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from app.cluster.metadata.schema.tables import stored_settings
from app.cluster.metadata.snapshot import StoredSettings
from app.cluster.metadata.tables import versions
from app.domain.changes.conditions import Changed, Terms
from app.domain.positions import TimestampMs


async def load(connection: AsyncConnection) -> StoredSettings:
    """All of them."""
    rows = (await connection.execute(select(stored_settings))).all()
    values = {row.name: row.value for row in rows if row.value is not None}
    newest = max((row.version for row in rows), default=0)
    return StoredSettings(MappingProxyType(values), newest + 1)


async def change(
    connection: AsyncConnection,
    named: Mapping[str, str | None],
    terms: Terms,
    now_ms: TimestampMs,
) -> Changed[StoredSettings]:
    """Keep what is named; None: its default. What changes nothing writes nothing."""
    version = await versions.lock(connection) + 1
    before = await load(connection)
    terms.conditions.check("the configuration", before.version)
    others = {name: text for name, text in named.items() if before.values.get(name) != text}
    if not others:
        return Changed(before, before)
    await connection.execute(
        delete(stored_settings).where(stored_settings.c.name.in_(list(others)))
    )
    rows = [
        {"name": name, "value": text, "updated_ms": now_ms, "version": version}
        for name, text in others.items()
    ]
    await connection.execute(insert(stored_settings), rows)
    await versions.raise_to(connection, version)
    return Changed(before, await load(connection))
