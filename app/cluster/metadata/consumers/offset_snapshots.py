"""Named snapshots of a group's offsets in SQL: made, listed, read, deleted. Bounded per group."""

import json
from collections.abc import Sequence

from sqlalchemy import delete, func, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from app.cluster.metadata.database.database import Database
from app.cluster.metadata.schema.tables import NUL, consumer_groups, offset_snapshots
from app.domain.clock import Clock
from app.domain.errors import GroupNotFound, StateConflict
from app.domain.limits import Limits
from app.domain.positions import CommittedOffset, OffsetSnapshot, QueueOffset


class OffsetSnapshots:
    """Reachable as `Metadata.offset_snapshots`. Event loop only."""

    def __init__(self, database: Database, clock: Clock, limits: Limits) -> None:
        self._database = database
        self._clock = clock
        self._limits = limits

    async def create(
        self,
        group: str,
        name: str,
        offsets: Sequence[CommittedOffset],
        *,
        is_dry_run: bool = False,
    ) -> OffsetSnapshot:
        """Keep the offsets under a new name. Raises `StateConflict` when the name is taken or the
        group has as many as it may have, and `GroupNotFound`."""
        snapshot = OffsetSnapshot(group, name, self._clock.now_ms(), tuple(offsets))
        async with self._database.transaction(is_dry_run=is_dry_run) as connection:
            await self._check_room(connection, group, name)
            await connection.execute(
                insert(offset_snapshots).values(
                    consumer_group=group,
                    name=name,
                    created_ms=snapshot.created_ms,
                    offsets=json.dumps(
                        [(o.topic, o.queue_id, o.offset, o.topic_generation) for o in offsets]
                    ),
                )
            )
        return snapshot

    async def _check_room(self, connection: AsyncConnection, group: str, name: str) -> None:
        """Under the group's row lock, so that two that are made at once are counted both."""
        known = consumer_groups.c.name
        if (await connection.scalar(select(known).where(known == group).with_for_update())) is None:
            raise GroupNotFound(f"consumer group {group!r} does not exist")
        row = offset_snapshots.c
        of_group = row.consumer_group == group
        if await connection.scalar(select(row.name).where(of_group, row.name == name)) is not None:
            raise StateConflict(
                f"group {group!r} has a snapshot {name!r} already",
                hint="choose another name, or delete it first",
            )
        count = await connection.scalar(
            select(func.count()).select_from(offset_snapshots).where(of_group)
        )
        most = self._limits.offset_snapshots_per_group_max
        if count is not None and count >= most:
            raise StateConflict(
                f"group {group!r} has {count} snapshots; more are not kept",
                hint="delete one that is no longer needed",
                fields={"limit": most},
            )

    async def load(self, group: str) -> list[OffsetSnapshot]:
        """All snapshots of the group, by name."""
        row = offset_snapshots.c
        query = (
            select(row.name, row.created_ms, row.offsets)
            .where(row.consumer_group == group)
            .order_by(row.name)
        )
        async with self._database.reading() as connection:
            return [
                OffsetSnapshot(
                    group,
                    name,
                    created_ms,
                    tuple(
                        CommittedOffset(group, topic, queue_id, QueueOffset(offset), *generation)
                        for topic, queue_id, offset, *generation in json.loads(offsets)
                    ),
                )
                for name, created_ms, offsets in await connection.execute(query)
            ]

    async def delete(self, group: str, name: str) -> bool:
        """Forget it; False when there is none."""
        if NUL in name:
            return False
        row = offset_snapshots.c
        statement = delete(offset_snapshots).where(row.consumer_group == group, row.name == name)
        async with self._database.transaction() as connection:
            return bool((await connection.execute(statement)).rowcount)
