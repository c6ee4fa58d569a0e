"""Topics in SQL: what is particular to them. `TOPICS` works in the caller's transaction."""

from dataclasses import replace
from typing import Final

from sqlalchemy import Row

from app.cluster.metadata.schema.tables import topics
from app.cluster.metadata.snapshot import TopicView
from app.cluster.metadata.tables import room
from app.cluster.metadata.tables.settings_table import SettingsTable
from app.domain.errors import StateConflict, TopicNotFound
from app.domain.identity import Kind
from app.domain.positions import FlushMode, TimestampMs
from app.domain.settings import TopicSettings, TopicType, TraceMode


def _made(
    name: str,
    settings: TopicSettings,
    generation: int,
    now_ms: TimestampMs,
    version: int,
) -> TopicView:
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
    )


def _altered(
    present: TopicView, settings: TopicSettings, now_ms: TimestampMs, version: int
) -> TopicView:
    if settings.queues < present.queues:
        raise StateConflict(
            f"topic {present.name!r} has {present.queues} queues and cannot shrink "
            f"to {settings.queues}",
            hint="queues hold messages and never go away; leave queues out, or use a new topic",
            fields={"queues": present.queues},
            pointer="/queues",
        )
    return replace(
        present,
        queues=settings.queues,
        type=settings.type,
        flush=settings.flush,
        retention_ms=settings.retention_ms,
        trace=settings.trace,
        trace_rate=settings.trace_rate,
        updated_ms=now_ms,
        version=version,
    )


def _columns(view: TopicView) -> dict[str, str | int | float]:
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
    )


def _missing(name: str) -> TopicNotFound:
    return TopicNotFound(f"topic {name!r} does not exist", hint="PUT makes it")


TOPICS: Final[SettingsTable[TopicView, TopicSettings]] = SettingsTable(
    topics, "topic", _view, _columns, _made, _altered, _missing, room.for_topic, Kind.TOPIC
)
