"""Committed offsets in SQL: how far each group is in each queue.

They have no part in the snapshot and do not raise the metadata version: the broker keeps them in
memory and writes them behind. Lock order on PostgreSQL, so that two nodes cannot deadlock: groups,
then topics, then offsets, each in sorted order.
"""

from collections.abc import Collection, Sequence

from sqlalchemy import Table, delete, select
from sqlalchemy.ext.asyncio import AsyncConnection

from app.cluster.metadata.database.upserts import upsert
from app.cluster.metadata.schema.tables import committed_offsets, consumer_groups, topics
from app.domain.positions import CommittedOffset, QueueOffset, TimestampMs

_NAMES_PER_QUERY = 500
"""Far below the number of parameters that a statement may have in either database."""


async def load(connection: AsyncConnection, group: str | None = None) -> list[CommittedOffset]:
    """All committed offsets, or a group's, in the order of group, topic and queue."""
    row = committed_offsets.c
    query = select(row.consumer_group, row.topic, row.queue_id, row.committed_offset).order_by(
        row.consumer_group, row.topic, row.queue_id
    )
    if group is not None:
        query = query.where(row.consumer_group == group)
    return [
        CommittedOffset(group, topic, queue_id, QueueOffset(offset))
        for group, topic, queue_id, offset in await connection.execute(query)
    ]


async def commit(
    connection: AsyncConnection,
    rows: Sequence[CommittedOffset],
    *,
    force: bool,
    now_ms: TimestampMs,
) -> list[CommittedOffset]:
    """Store the offsets; one that is lower than the stored one changes nothing unless forced.

    Rows whose group or topic does not exist, or is another one of its name, are left out and
    returned: it may have been deleted while they waited to be written, and the others must not
    wait with them.
    """
    groups = await _existing(connection, consumer_groups, {row.group for row in rows})
    known_topics = await _existing(connection, topics, {row.topic for row in rows})

    def is_kept(row: CommittedOffset) -> bool:
        of_group, of_topic = groups.get(row.group), known_topics.get(row.topic)
        return (
            of_group is not None
            and of_topic is not None
            and row.group_generation in (0, of_group)
            and row.topic_generation in (0, of_topic)
        )

    kept = [row for row in rows if is_kept(row)]
    if kept:
        await _write(connection, _merged(kept, force=force), force=force, now_ms=now_ms)
    return [row for row in rows if not is_kept(row)]


async def remove(
    connection: AsyncConnection, group: str, topic: str, kept: Collection[int]
) -> None:
    """Forget the group's offsets in the topic, but for those of the queues `kept`; nothing happens
    when there are none."""
    # Commits hold a share of the group's row. Wait for them here, and not row by row in an
    # order that may cross theirs.
    name = consumer_groups.c.name
    await connection.execute(select(name).where(name == group).with_for_update())
    row = committed_offsets.c
    gone = delete(committed_offsets).where(row.consumer_group == group, row.topic == topic)
    await connection.execute(gone.where(row.queue_id.not_in(sorted(kept))) if kept else gone)


async def remove_all(connection: AsyncConnection) -> None:
    """Forget the offsets of all groups."""
    await connection.execute(
        select(consumer_groups.c.name).order_by(consumer_groups.c.name).with_for_update()
    )
    await connection.execute(delete(committed_offsets))


async def _existing(connection: AsyncConnection, table: Table, names: set[str]) -> dict[str, int]:
    """Those of `names` that exist, with their generations; they cannot be deleted until the
    transaction ends."""
    found: dict[str, int] = {}
    wanted = sorted(names)
    name = table.c.name
    for start in range(0, len(wanted), _NAMES_PER_QUERY):
        query = (
            select(name, table.c.generation)
            .where(name.in_(wanted[start : start + _NAMES_PER_QUERY]))
            .order_by(name)
            .with_for_update(read=True, key_share=True)
        )
        found.update((known, generation) for known, generation in await connection.execute(query))
    return found


def _merged(rows: Sequence[CommittedOffset], *, force: bool) -> list[CommittedOffset]:
    """One row per queue: the highest, or when forced the last. Sorted, against deadlocks."""
    merged: dict[tuple[str, str, int], CommittedOffset] = {}
    for row in rows:
        key = (row.group, row.topic, row.queue_id)
        if force or key not in merged or row.offset > merged[key].offset:
            merged[key] = row
    return [merged[key] for key in sorted(merged)]


async def _write(
    connection: AsyncConnection,
    rows: Sequence[CommittedOffset],
    *,
    force: bool,
    now_ms: TimestampMs,
) -> None:
    insertion = upsert(connection, committed_offsets)
    new = insertion.excluded
    statement = insertion.on_conflict_do_update(
        index_elements=["consumer_group", "topic", "queue_id"],
        set_={"committed_offset": new.committed_offset, "updated_ms": new.updated_ms},
        where=None if force else new.committed_offset > committed_offsets.c.committed_offset,
    )
    values = [
        {
            "consumer_group": row.group,
            "topic": row.topic,
            "queue_id": row.queue_id,
            "committed_offset": row.offset,
            "updated_ms": now_ms,
        }
        for row in rows
    ]
    await connection.execute(statement, values)
