"""Topics in SQL: what is particular to them. `TOPICS` works in the caller's transaction."""

from dataclasses import replace
from typing import Final

from sqlalchemy import Row, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from app.cluster.metadata.schema.tables import shards, topic_queues, topics
from app.cluster.metadata.snapshot import TopicView
from app.cluster.metadata.tables import room
from app.cluster.metadata.tables.settings_table import SettingsTable, as_arguments
from app.domain.errors import StateConflict, TopicNotFound
from app.domain.identity import Kind
from app.domain.positions import FlushMode, ReplicationMode, TimestampMs
from app.domain.settings import (
    Permission,
    TopicSettings,
    TopicType,
    TraceMode,
    check_write_queues,
)
from app.domain.shards.placement import placed
from app.domain.shards.takes import Takes


def _made(
    name: str,
    settings: TopicSettings,
    generation: int,
    now_ms: TimestampMs,
    version: int,
) -> TopicView:
    check_write_queues(settings)
    return TopicView(
        name,
        **as_arguments(settings, write_queues="write_queues_set"),
        generation=generation,
        created_ms=now_ms,
        updated_ms=now_ms,
        version=version,
        first_queues=settings.queues,
    )


def _altered(
    present: TopicView, settings: TopicSettings, now_ms: TimestampMs, version: int
) -> TopicView:
    if settings.queues < present.queues:
        raise StateConflict(
            f"topic {present.name!r} has {present.queues} queues and cannot shrink "
            f"to {settings.queues}",
            hint="queues hold messages and never go away; write_queues says how many take new ones",
            fields={"queues": present.queues},
            pointer="/queues",
        )
    check_write_queues(settings)
    values = as_arguments(settings, write_queues="write_queues_set")
    return replace(present, **values, updated_ms=now_ms, version=version)


def _columns(view: TopicView) -> dict[str, str | int | float | None]:
    return {
        "queues": view.queues,
        "type": view.type.value,
        "flush": view.flush.value,
        "retention_ms": view.retention_ms,
        "trace_mode": view.trace.value,
        "trace_rate": view.trace_rate,
        "generation": view.generation,
        "first_queues": view.first_queues,
        "updated_ms": view.updated_ms,
        "version": view.version,
        "permission": view.permission.value,
        "write_queues": view.write_queues_set,
        "max_body_bytes": view.max_body_bytes,
        "max_rate": view.max_rate,
        "max_stored_bytes": view.max_stored_bytes,
        "replication": None if view.replication is None else view.replication.value,
    }


def _view(row: Row[*tuple[object, ...]]) -> TopicView:
    return TopicView(
        name=row.name,
        queues=row.queues,
        type=TopicType(row.type),
        flush=FlushMode(row.flush),
        retention_ms=row.retention_ms,
        trace=TraceMode(row.trace_mode),
        trace_rate=row.trace_rate,
        generation=row.generation,
        created_ms=row.created_ms,
        updated_ms=row.updated_ms,
        version=row.version,
        first_queues=row.first_queues,
        permission=Permission(row.permission),
        write_queues_set=row.write_queues,
        max_body_bytes=row.max_body_bytes,
        max_rate=row.max_rate,
        max_stored_bytes=row.max_stored_bytes,
        replication=None if row.replication is None else ReplicationMode(row.replication),
    )


def _missing(name: str) -> TopicNotFound:
    return TopicNotFound(f"topic {name!r} does not exist", hint="PUT makes it")


async def _write_queues(
    connection: AsyncConnection, before: TopicView | None, after: TopicView
) -> None:
    """Bring the rows of the topic's queues to what the topic says; new ones get their shard."""
    row = topic_queues.c
    of_topic = row.topic == after.name
    if before is not None and before.generation != after.generation:
        values = {"generation": after.generation}
        await connection.execute(update(topic_queues).where(of_topic).values(values))
    written = 0 if before is None else before.queues
    for queue_id in range(written):
        perm = after.permission_of(queue_id)
        if before is None or perm is before.permission_of(queue_id):
            continue
        same = update(topic_queues).where(of_topic, row.queue_id == queue_id)
        await connection.execute(same.values(perm=perm.value))
    if after.queues > written:
        await _add_queues(connection, after, written)


async def _add_queues(connection: AsyncConnection, view: TopicView, written: int) -> None:
    row = topic_queues.c
    last = select(row.shard).where(row.topic == view.name, row.queue_id == written - 1)
    neighbour = await connection.scalar(last) if written else None
    counts = await placeable(connection) or {"": 0}
    chosen = placed(counts, view.queues - written, neighbour)
    rows = [
        {
            "topic": view.name,
            "generation": view.generation,
            "queue_id": written + number,
            "perm": view.permission_of(written + number).value,
            "shard": shard,
        }
        for number, shard in enumerate(chosen)
    ]
    await connection.execute(insert(topic_queues), rows)


async def placeable(connection: AsyncConnection) -> dict[str, int]:
    """How many queues each shard has, of those that may get new ones: none that drains, unless all
    do."""
    found = (await connection.execute(select(shards.c.name, shards.c.takes))).all()
    names = [each.name for each in found if each.takes == Takes.ALL] or [
        each.name for each in found
    ]
    if len(names) < 2:
        return dict.fromkeys(names, 0)  # there is no choice
    row = topic_queues.c
    per_shard = select(row.shard, func.count().label("queues")).group_by(row.shard)
    counted = {found.shard: found.queues for found in await connection.execute(per_shard)}
    return {name: counted.get(name, 0) for name in names}


async def load_drains(connection: AsyncConnection) -> tuple[tuple[str, Takes], ...]:
    """The shards that do not take all, by name."""
    row = shards.c
    query = select(row.name, row.takes).where(row.takes != Takes.ALL).order_by(row.name)
    return tuple((name, Takes(takes)) for name, takes in await connection.execute(query))


async def load_places(
    connection: AsyncConnection, here: str, topic: str | None = None
) -> dict[str, tuple[str, ...]]:
    """The shards of the queues of each topic, or of one. Without any where all are `here`."""
    names = (await connection.execute(select(shards.c.name).limit(2))).scalars().all()
    row = topic_queues.c
    query = select(row.topic, row.shard).order_by(row.topic, row.queue_id)
    if topic is not None:
        query = query.where(row.topic == topic)
    if len(names) < 2:  # what a released shard had is nobody's, and not of the one that is left
        elsewhere = query.where(row.shard != (here or names[0])).limit(1) if names else None
        if elsewhere is None or (await connection.execute(elsewhere)).first() is None:
            return {}
    found: dict[str, list[str]] = {}
    for name, shard in await connection.execute(query):
        found.setdefault(name, []).append(shard)
    return {name: tuple(of_queues) for name, of_queues in found.items()}


TOPICS: Final[SettingsTable[TopicView, TopicSettings]] = SettingsTable(
    topics,
    "topic",
    _view,
    _columns,
    _made,
    _altered,
    _missing,
    room.for_topic,
    Kind.TOPIC,
    _write_queues,
)
