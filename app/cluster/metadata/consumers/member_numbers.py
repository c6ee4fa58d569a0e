"""The row of each group that numbers its generations; the lock of its members, too.

Numbers never repeat under a name, also when a group is deleted and made again. So that no row has
to outlive its group for that, one row that belongs to none keeps the highest numbers of all groups
that were deleted; who has no row yet begins there.
"""

from typing import Final, NamedTuple

from sqlalchemy import delete, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from app.cluster.metadata.database.upserts import upsert
from app.cluster.metadata.schema.tables import consumer_groups, group_generations

FLOOR: Final = ""
"""Name of the row that belongs to no group: none can be called so."""


class Numbers(NamedTuple):
    """The row of a group's generation."""

    generation: int = 0
    counter: int = 0
    changed: int = 0


async def load(connection: AsyncConnection, group: str, *, lock: bool) -> Numbers | None:
    """The group's numbers; None when it has never had members."""
    row = group_generations.c
    query = select(row.generation, row.counter, row.changed).where(row.consumer_group == group)
    if lock:
        query = query.with_for_update()
    found = (await connection.execute(query)).one_or_none()
    return None if found is None else Numbers(*found)


async def load_or_make(connection: AsyncConnection, group: str) -> Numbers:
    """The group's numbers, locked; a new row begins behind all groups that were deleted. The
    caller keeps the group from being deleted."""
    numbers = await load(connection, group, lock=True)
    if numbers is None:
        first = await load(connection, FLOOR, lock=False) or Numbers()
        insertion = upsert(connection, group_generations).values(
            consumer_group=group, **first._asdict()
        )
        await connection.execute(
            insertion.on_conflict_do_nothing(index_elements=["consumer_group"])
        )
        numbers = await load(connection, group, lock=True)
        assert numbers is not None
    return numbers


async def forget_deleted(connection: AsyncConnection) -> None:
    """Forget the rows of groups that do not exist, in the transaction that deletes one.

    The caller holds `versions.lock`.
    """
    row = group_generations.c
    is_gone = row.consumer_group.not_in(select(consumer_groups.c.name))
    query = select(func.max(row.generation), func.max(row.counter), func.max(row.changed))
    found = (await connection.execute(query.where(is_gone))).one()
    if found[0] is None:
        return
    await connection.execute(delete(group_generations).where(is_gone))
    insertion = upsert(connection, group_generations).values(
        consumer_group=FLOOR, **Numbers(*found)._asdict()
    )
    await connection.execute(insertion)
