"""Topics in SQL: what is particular to them. `TOPICS` works in the caller's transaction."""

from dataclasses import replace
from typing import Final

from sqlalchemy import Row, delete, insert
from sqlalchemy.ext.asyncio import AsyncConnection

from app.cluster.metadata.schema.tables import topic_queues, topics
from app.cluster.metadata.snapshot import TopicView
from app.cluster.metadata.tables import room
from app.cluster.metadata.tables.settings_table import SettingsTable
from app.domain.errors import StateConflict, TopicNotFound
from app.domain.identity import Kind
from app.domain.positions import FlushMode, TimestampMs
from app.domain.settings import (
    Permission,
    TopicSettings,
    TopicType,
    TraceMode,
    check_write_queues,
)


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
        settings.queues,
        settings.type,
        settings.flush,
        settings.retention_ms,
        settings.trace,
        settings.trace_rate,
        generation=generation,
        created_ms=now_ms,
        updated_ms=now_ms,
        version=version,
        permission=settings.permission,
        write_queues_set=settings.write_queues,
        max_body_bytes=settings.max_body_bytes,
        max_rate=settings.max_rate,
        max_stored_bytes=settings.max_stored_bytes,
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
    return replace(
        present,
        queues=settings.queues,
        type=settings.type,
        flush=settings.flush,
        retention_ms=settings.retention_ms,
        trace=settings.trace,
        trace_rate=settings.trace_rate,
        permission=settings.permission,
        write_queues_set=settings.write_queues,
        max_body_bytes=settings.max_body_bytes,
        max_rate=settings.max_rate,
        max_stored_bytes=settings.max_stored_bytes,
        updated_ms=now_ms,
        version=version,
    )


def _columns(view: TopicView) -> dict[str, str | int | float | None]:
    return {
        "queues": view.queues,
        "type": view.type.value,
        "flush": view.flush.value,
        "retention_ms": view.retention_ms,
        "trace_mode": view.trace.value,
        "trace_rate": view.trace_rate,
        "generation": view.generation,
        "updated_ms": view.updated_ms,
        "version": view.version,
        "permission": view.permission.value,
        "write_queues": view.write_queues_set,
        "max_body_bytes": view.max_body_bytes,
        "max_rate": view.max_rate,
        "max_stored_bytes": view.max_stored_bytes,
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
        permission=Permission(row.permission),
        write_queues_set=row.write_queues,
        max_body_bytes=row.max_body_bytes,
        max_rate=row.max_rate,
        max_stored_bytes=row.max_stored_bytes,
    )


def _missing(name: str) -> TopicNotFound:
    return TopicNotFound(f"topic {name!r} does not exist", hint="PUT makes it")


async def _write_queues(
    connection: AsyncConnection, before: TopicView | None, after: TopicView
) -> None:
    """Bring the rows of the topic's queues to what the topic says."""
    found = [] if before is None else _rows(before)
    wanted = _rows(after)
    if found == wanted:
        return
    await connection.execute(delete(topic_queues).where(topic_queues.c.topic == after.name))
    await connection.execute(insert(topic_queues), wanted)


def _rows(view: TopicView) -> list[dict[str, str | int]]:
    return [
        {
            "topic": view.name,
            "generation": view.generation,
            "queue_id": queue_id,
            "perm": view.permission_of(queue_id).value,
        }
        for queue_id in range(view.queues)
    ]


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
