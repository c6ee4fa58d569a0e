"""Namespaces in SQL, and what is in one. Works in the caller's transaction.

Changes are made under `versions.lock`, and so is whatever is made in a namespace: one is deleted
only while nothing is in it, and nothing is made in one that is not there.
"""

from sqlalchemy import Table, delete, func, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from app.cluster.metadata.schema.tables import consumer_groups, namespaces, schedules, topics
from app.cluster.metadata.snapshot import NamespaceView
from app.cluster.metadata.tables import versions
from app.domain.changes.conditions import Changed, Terms
from app.domain.errors import NamespaceNotEmpty, NamespaceNotFound, StateConflict
from app.domain.limits import NAMESPACES_MAX
from app.domain.names import DEFAULT_NAMESPACE, namespace_of, stored_name
from app.domain.positions import TimestampMs

_KEPT = {"topics": topics, "groups": consumer_groups, "schedules": schedules}


async def load(connection: AsyncConnection) -> list[NamespaceView]:
    """All of them."""
    return [
        NamespaceView(row.name, row.created_ms, row.version)
        for row in await connection.execute(select(namespaces))
    ]


async def put(
    connection: AsyncConnection, name: str, terms: Terms, now_ms: TimestampMs
) -> Changed[NamespaceView]:
    """Make it, or leave it as it is."""
    version = await versions.lock(connection) + 1
    present = await _find(connection, name)
    terms.conditions.check(f"namespace {name!r}", present.version if present else 0)
    if present is not None:
        return Changed(present, present)
    if await _count(connection, namespaces) >= NAMESPACES_MAX:
        raise StateConflict(
            f"there are {NAMESPACES_MAX} namespaces, the most there may be",
            hint="delete namespaces that nobody needs",
            fields={"limit": NAMESPACES_MAX, "bound": "namespaces_max"},
        )
    made = NamespaceView(name, now_ms, version)
    await connection.execute(
        insert(namespaces).values(name=name, created_ms=now_ms, version=version)
    )
    await versions.raise_to(connection, version)
    return Changed(None, made)


async def remove(connection: AsyncConnection, name: str, terms: Terms) -> tuple[NamespaceView, int]:
    """Delete it; return it, and the new metadata version. Raises `NamespaceNotFound` and
    `NamespaceNotEmpty`."""
    version = await versions.lock(connection) + 1
    present = await _find(connection, name)
    if present is None:
        raise missing(name)
    terms.conditions.check(f"namespace {name!r}", present.version)
    counts = {noun: await _count_in(connection, table, name) for noun, table in _KEPT.items()}
    if any(counts.values()):
        shown = ", ".join(f"{count} {noun}" for noun, count in counts.items() if count)
        raise NamespaceNotEmpty(
            f"namespace {name!r} has {shown}",
            hint="delete them first; their lists are those of requests with this namespace",
            fields={**counts},
        )
    await connection.execute(delete(namespaces).where(namespaces.c.name == name))
    await versions.raise_to(connection, version)
    return present, version


async def require(connection: AsyncConnection, stored: str) -> None:
    """Raise `NamespaceNotFound` when something of this stored name could not be made. The caller
    holds the lock."""
    namespace = namespace_of(stored)
    if namespace != DEFAULT_NAMESPACE and await _find(connection, namespace) is None:
        raise missing(namespace)


def missing(name: str) -> NamespaceNotFound:
    """The refusal of a namespace that is not there."""
    return NamespaceNotFound(
        f"there is no namespace {name!r}", hint=f"make it with PUT /v1/namespaces/{name}"
    )


async def _find(connection: AsyncConnection, name: str) -> NamespaceView | None:
    row = (
        await connection.execute(select(namespaces).where(namespaces.c.name == name))
    ).one_or_none()
    return None if row is None else NamespaceView(row.name, row.created_ms, row.version)


async def _count(connection: AsyncConnection, table: Table) -> int:
    return int(await connection.scalar(select(func.count()).select_from(table)) or 0)


async def _count_in(connection: AsyncConnection, table: Table, namespace: str) -> int:
    inside = table.c.name.startswith(stored_name(namespace, ""), autoescape=True)
    counted = select(func.count()).select_from(table).where(inside)
    return int(await connection.scalar(counted) or 0)
