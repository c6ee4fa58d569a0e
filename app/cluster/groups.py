"""Consumer groups in SQL. Each function is one step of the caller's transaction.

Changes are made under `versions.lock`, so what was read stays true until the commit.
"""

from dataclasses import replace

from sqlalchemy import Row, delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from app.cluster import versions
from app.cluster.group_columns import (
    policy_from_json,
    policy_to_json,
    start_from_text,
    start_to_text,
)
from app.cluster.preconditions import check_version
from app.cluster.snapshot import GroupView
from app.cluster.tables import consumer_groups
from app.domain.positions import TimestampMs
from app.domain.settings import DeliveryOrder, GroupMode, GroupSettings, WhenExhausted


async def load(connection: AsyncConnection) -> list[GroupView]:
    """All groups."""
    return [_view(row) for row in await connection.execute(select(consumer_groups))]


async def put(
    connection: AsyncConnection,
    name: str,
    settings: GroupSettings,
    *,
    now_ms: TimestampMs,
    if_version: int | None,
) -> tuple[GroupView, bool]:
    """Make the group, or change it; say whether it was made. Equal settings change nothing."""
    version = await versions.lock(connection)
    present = await _find(connection, name)
    check_version(f"group {name!r}", present.version if present else 0, if_version)
    if present is None:
        return await _create(connection, name, settings, now_ms, version + 1), True
    if present.settings == settings:
        return present, False
    return await _change(connection, present, settings, now_ms, version + 1), False


async def ensure(
    connection: AsyncConnection, name: str, settings: GroupSettings, *, now_ms: TimestampMs
) -> GroupView:
    """The group as it is, or made with `settings` when there is none."""
    version = await versions.lock(connection)
    present = await _find(connection, name)
    return present or await _create(connection, name, settings, now_ms, version + 1)


async def remove(connection: AsyncConnection, name: str) -> int | None:
    """Delete the group, and by cascade its offsets; return the new metadata version.

    None when there was nothing to delete.
    """
    version = await versions.lock(connection)
    deleted = await connection.execute(
        delete(consumer_groups).where(consumer_groups.c.name == name)
    )
    if not deleted.rowcount:
        return None
    await versions.raise_to(connection, version + 1)
    return version + 1


async def _create(
    connection: AsyncConnection,
    name: str,
    settings: GroupSettings,
    now_ms: TimestampMs,
    version: int,
) -> GroupView:
    view = GroupView(
        name,
        settings.max_attempts,
        settings.retry_policy,
        settings.order,
        settings.invisible_ms,
        settings.start,
        settings.max_in_flight,
        settings.mode,
        settings.on_exhausted,
        settings.max_in_flight_per_member,
        settings.paused,
        created_ms=now_ms,
        updated_ms=now_ms,
        version=version,
    )
    await connection.execute(
        insert(consumer_groups).values(name=name, created_ms=now_ms, **_columns(view))
    )
    await versions.raise_to(connection, version)
    return view


async def _change(
    connection: AsyncConnection,
    present: GroupView,
    settings: GroupSettings,
    now_ms: TimestampMs,
    version: int,
) -> GroupView:
    view = replace(
        present,
        max_attempts=settings.max_attempts,
        retry_policy=settings.retry_policy,
        order=settings.order,
        invisible_ms=settings.invisible_ms,
        start=settings.start,
        max_in_flight=settings.max_in_flight,
        mode=settings.mode,
        on_exhausted=settings.on_exhausted,
        max_in_flight_per_member=settings.max_in_flight_per_member,
        paused=settings.paused,
        updated_ms=now_ms,
        version=version,
    )
    await connection.execute(
        update(consumer_groups)
        .where(consumer_groups.c.name == present.name)
        .values(**_columns(view))
    )
    await versions.raise_to(connection, version)
    return view


async def _find(connection: AsyncConnection, name: str) -> GroupView | None:
    query = select(consumer_groups).where(consumer_groups.c.name == name)
    row = (await connection.execute(query)).one_or_none()
    return _view(row) if row else None


def _columns(view: GroupView) -> dict[str, str | int | None]:
    return {
        "max_attempts": view.max_attempts,
        "retry_policy": policy_to_json(view.retry_policy),
        "delivery_order": view.order.value,
        "invisible_ms": view.invisible_ms,
        "start_position": start_to_text(view.start),
        "max_in_flight": view.max_in_flight,
        "mode": view.mode.value,
        "on_exhausted": view.on_exhausted.value,
        "max_in_flight_per_member": view.max_in_flight_per_member,
        "paused": view.paused,
        "updated_ms": view.updated_ms,
        "version": view.version,
    }


def _view(row: Row[*tuple[object, ...]]) -> GroupView:
    return GroupView(
        name=row.name,
        max_attempts=row.max_attempts,
        retry_policy=policy_from_json(row.retry_policy),
        order=DeliveryOrder(row.delivery_order),
        invisible_ms=row.invisible_ms,
        start=start_from_text(row.start_position),
        max_in_flight=row.max_in_flight,
        mode=GroupMode(row.mode),
        on_exhausted=WhenExhausted(row.on_exhausted),
        max_in_flight_per_member=row.max_in_flight_per_member,
        paused=row.paused,
        created_ms=row.created_ms,
        updated_ms=row.updated_ms,
        version=row.version,
    )
