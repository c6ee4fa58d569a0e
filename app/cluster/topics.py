"""Topics in SQL. Each function is one step of the caller's transaction.

Changes are made under `versions.lock`, so what was read stays true until the commit.
"""

from dataclasses import replace

from sqlalchemy import Row, delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from app.cluster import versions
from app.cluster.preconditions import check_version
from app.cluster.snapshot import TopicView
from app.cluster.tables import topic_generations, topics
from app.domain.errors import StateConflict
from app.domain.positions import FlushMode, TimestampMs
from app.domain.settings import TopicSettings, TopicType


async def load(connection: AsyncConnection) -> list[TopicView]:
    """All topics."""
    return [_view(row) for row in await connection.execute(select(topics))]


async def put(
    connection: AsyncConnection,
    name: str,
    settings: TopicSettings,
    *,
    now_ms: TimestampMs,
    if_version: int | None,
) -> tuple[TopicView, bool]:
    """Make the topic, or change it; say whether it was made. Equal settings change nothing."""
    version = await versions.lock(connection)
    present = await _find(connection, name)
    check_version(f"topic {name!r}", present.version if present else 0, if_version)
    if present is None:
        return await _create(connection, name, settings, now_ms, version + 1), True
    if present.settings == settings:
        return present, False
    return await _change(connection, present, settings, now_ms, version + 1), False


async def ensure(
    connection: AsyncConnection, name: str, settings: TopicSettings, *, now_ms: TimestampMs
) -> TopicView:
    """The topic as it is, or made with `settings` when there is none."""
    version = await versions.lock(connection)
    present = await _find(connection, name)
    return present or await _create(connection, name, settings, now_ms, version + 1)


async def remove(connection: AsyncConnection, name: str) -> int | None:
    """Delete the topic, and by cascade its groups' offsets; return the new metadata version.

    None when there was nothing to delete.
    """
    version = await versions.lock(connection)
    deleted = await connection.execute(delete(topics).where(topics.c.name == name))
    if not deleted.rowcount:
        return None
    await versions.raise_to(connection, version + 1)
    return version + 1


async def _create(
    connection: AsyncConnection,
    name: str,
    settings: TopicSettings,
    now_ms: TimestampMs,
    version: int,
) -> TopicView:
    view = TopicView(
        name,
        settings.queues,
        settings.type,
        settings.flush,
        settings.retention_ms,
        settings.trace,
        generation=await _next_generation(connection, name),
        created_ms=now_ms,
        updated_ms=now_ms,
        version=version,
    )
    await connection.execute(insert(topics).values(name=name, created_ms=now_ms, **_columns(view)))
    await versions.raise_to(connection, version)
    return view


async def _change(
    connection: AsyncConnection,
    present: TopicView,
    settings: TopicSettings,
    now_ms: TimestampMs,
    version: int,
) -> TopicView:
    if settings.queues < present.queues:
        raise StateConflict(
            f"topic {present.name!r} has {present.queues} queues and cannot shrink "
            f"to {settings.queues}",
            hint="queues hold messages and never go away; keep the number, or use a new topic",
            fields={"queues": present.queues},
            pointer="/queues",
        )
    view = replace(
        present,
        queues=settings.queues,
        type=settings.type,
        flush=settings.flush,
        retention_ms=settings.retention_ms,
        trace=settings.trace,
        updated_ms=now_ms,
        version=version,
    )
    await connection.execute(
        update(topics).where(topics.c.name == present.name).values(**_columns(view))
    )
    await versions.raise_to(connection, version)
    return view


async def _next_generation(connection: AsyncConnection, name: str) -> int:
    """1 for a name that is used for the first time. The caller holds the lock."""
    row = topic_generations.c
    last = await connection.scalar(select(row.generation).where(row.topic == name))
    if last is None:
        await connection.execute(insert(topic_generations).values(topic=name, generation=1))
        return 1
    generation = int(last) + 1
    await connection.execute(
        update(topic_generations).where(row.topic == name).values(generation=generation)
    )
    return generation


async def _find(connection: AsyncConnection, name: str) -> TopicView | None:
    row = (await connection.execute(select(topics).where(topics.c.name == name))).one_or_none()
    return _view(row) if row else None


def _columns(view: TopicView) -> dict[str, str | int]:
    return {
        "queues": view.queues,
        "type": view.type.value,
        "flush": view.flush.value,
        "retention_ms": view.retention_ms,
        "trace": view.trace,
        "generation": view.generation,
        "updated_ms": view.updated_ms,
        "version": view.version,
    }


def _view(row: Row[*tuple[object, ...]]) -> TopicView:
    return TopicView(
        name=row.name,
        queues=row.queues,
        type=TopicType(row.type),
        flush=FlushMode(row.flush),
        retention_ms=row.retention_ms,
        trace=row.trace,
        generation=row.generation,
        created_ms=row.created_ms,
        updated_ms=row.updated_ms,
        version=row.version,
    )
