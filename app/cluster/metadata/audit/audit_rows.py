"""The rows of the audit. Each function works in the caller's transaction.

The head of a chain is a row of its own, locked while an entry is added: entries of one node follow
each other also where its transactions run at the same time.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from operator import gt, lt
from typing import Any, Final, NamedTuple

from sqlalchemy import ColumnElement, Row, delete, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from app.cluster.metadata.audit.chain import FIRST_LINK, AuditEntry, Linked, link_of
from app.cluster.metadata.database.upserts import upsert
from app.cluster.metadata.schema.tables import audit_entries, audit_heads

_ROWS_A_TURN: Final = 1_000


class Head(NamedTuple):
    """The newest entry of a chain. Kept elsewhere, it shows when entries are cut off."""

    node: str
    seq: int
    link: bytes


class Sought(NamedTuple):
    """Which entries are wanted; None: any."""

    since_ms: int | None = None
    principal: str | None = None
    action: str | None = None
    resource: str | None = None
    """The whole, or with `*` at its end the beginning."""


async def append(connection: AsyncConnection, entry: AuditEntry, key: bytes | None) -> None:
    """Add an entry to its chain; its `seq` is given here."""
    node = entry.node
    insertion = upsert(connection, audit_heads).values(node=node, seq=0, link=FIRST_LINK)
    await connection.execute(insertion.on_conflict_do_nothing(index_elements=["node"]))
    locked = select(audit_heads).where(audit_heads.c.node == node).with_for_update()
    head = (await connection.execute(locked)).one()
    previous = bytes(head.link)
    made = entry._replace(seq=head.seq + 1)
    link = link_of(made, previous, key)
    values = {**made._asdict(), "previous": previous, "link": link}
    await connection.execute(insert(audit_entries).values(**values))
    changed = update(audit_heads).where(audit_heads.c.node == node)
    await connection.execute(changed.values(seq=made.seq, link=link))


async def find(
    connection: AsyncConnection,
    sought: Sought,
    after: tuple[int, str, int] | None,
    limit: int,
    *,
    is_backward: bool = False,
) -> list[AuditEntry]:
    """Entries by time, node and number, from behind `after` on; backward: the newest first."""
    column = audit_entries.c
    order: list[ColumnElement[Any]] = [column.at_ms, column.node, column.seq]
    if is_backward:
        order = [each.desc() for each in order]
    query = select(audit_entries).order_by(*order).limit(limit)
    for clause in _clauses(sought):
        query = query.where(clause)
    if after is not None:
        at_ms, node, seq = after
        behind: Callable[[Any, Any], ColumnElement[bool]] = lt if is_backward else gt
        other_node = (column.at_ms == at_ms) & behind(column.node, node)
        same_node = (column.at_ms == at_ms) & (column.node == node) & behind(column.seq, seq)
        query = query.where(or_(behind(column.at_ms, at_ms), other_node, same_node))
    return [_entry_of(row) for row in await connection.execute(query)]


def _clauses(sought: Sought) -> list[ColumnElement[bool]]:
    column = audit_entries.c
    found: list[ColumnElement[bool]] = []
    if sought.since_ms is not None:
        found.append(column.at_ms >= sought.since_ms)
    if sought.principal is not None:
        found.append(column.principal == sought.principal)
    if sought.action is not None:
        found.append(column.action == sought.action)
    if sought.resource is not None:
        if sought.resource.endswith("*"):
            found.append(column.resource.startswith(sought.resource[:-1], autoescape=True))
        else:
            found.append(column.resource == sought.resource)
    return found


async def heads(connection: AsyncConnection) -> list[Head]:
    """The head of each chain, by node."""
    rows = await connection.execute(select(audit_heads).order_by(audit_heads.c.node))
    return [Head(row.node, row.seq, bytes(row.link)) for row in rows]


async def chain(connection: AsyncConnection, node: str) -> AsyncIterator[Sequence[Linked]]:
    """The entries of one chain in their order, in parts."""
    column = audit_entries.c
    last = 0
    while True:
        query = select(audit_entries).where(column.node == node, column.seq > last)
        rows = (await connection.execute(query.order_by(column.seq).limit(_ROWS_A_TURN))).all()
        if not rows:
            return
        yield [Linked(_entry_of(row), bytes(row.previous), bytes(row.link)) for row in rows]
        last = rows[-1].seq


async def expire(
    connection: AsyncConnection, node: str, before_ms: int, entries_max: int
) -> int | None:
    """Delete the entries of a chain that are older, or more than so many, but for its last one; the
    first that is kept then. None: there was nothing to delete."""
    column = audit_entries.c
    last = await connection.scalar(select(audit_heads.c.seq).where(audit_heads.c.node == node))
    kept = select(column.seq).where(
        column.node == node, column.at_ms >= before_ms, column.seq > (last or 0) - entries_max
    )
    first: int | None = await connection.scalar(kept.order_by(column.seq).limit(1))
    first = first or last
    if not first:
        return None
    old = delete(audit_entries).where(column.node == node, column.seq < first)
    return first if (await connection.execute(old)).rowcount else None


def _entry_of(row: Row[Any]) -> AuditEntry:
    return AuditEntry(*(getattr(row, name) for name in AuditEntry._fields))
