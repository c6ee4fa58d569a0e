"""Whether there is room for one more: counts of the whole cluster against its bounds.

Each step counts in the caller's transaction, which holds `versions.lock`, so of two that make the
last one at the same time one is refused. What is there already stays and may be changed, also when
there is more of it than the bound allows.
"""

from typing import NamedTuple

from sqlalchemy import Table, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from app.cluster.metadata.schema.tables import consumer_groups, schedules, tombstones, topics
from app.domain.access.refusals import QuotaExceeded
from app.domain.errors import StateConflict
from app.domain.limits import Limits
from app.domain.settings import GroupSettings, TopicSettings


class Owner(NamedTuple):
    """Whose a thing is that is made."""

    name: str | None = None
    """None: nobody's."""
    most: int = 0
    """How many of its kind it may have; 0: any number."""


async def for_topic(
    connection: AsyncConnection, was: TopicSettings | None, to_be: TopicSettings, limits: Limits
) -> None:
    """Raise `StateConflict` when a topic is one too many, or its new queues are."""
    if was is None:
        await _for_one_more(connection, topics, "topics", limits.topics_max)
        await _for_one_deletion(connection, limits)
    added = to_be.queues - (0 if was is None else was.queues)
    if added <= 0:
        return
    count = int(await connection.scalar(select(func.coalesce(func.sum(topics.c.queues), 0))) or 0)
    if count + added > limits.queues_max:
        raise StateConflict(
            f"the topics have {count} queues together; {added} more would be over"
            f" {limits.queues_max}",
            hint="delete topics that nobody needs, ask for fewer queues, or let the operator raise"
            " queues_max",
            fields={"limit": limits.queues_max, "bound": "queues_max"},
        )


async def for_group(
    connection: AsyncConnection, was: GroupSettings | None, _: GroupSettings, limits: Limits
) -> None:
    """Raise `StateConflict` when a group is one too many."""
    if was is None:
        await _for_one_more(connection, consumer_groups, "groups", limits.groups_max)
        await _for_one_deletion(connection, limits)


async def for_schedule(connection: AsyncConnection, limits: Limits) -> None:
    """Raise `StateConflict` when there is no room for one more schedule."""
    await _for_one_more(connection, schedules, "schedules", limits.schedules_max)


async def for_owner(connection: AsyncConnection, table: Table, owner: Owner, noun: str) -> None:
    """Raise `QuotaExceeded` when a thing would be one more than its owner may have."""
    if owner.name is None or not owner.most:
        return
    owned = select(func.count()).select_from(table).where(table.c.owner == owner.name)
    count = int(await connection.scalar(owned) or 0)
    if count >= owner.most:
        raise QuotaExceeded(
            f"principal {owner.name!r} has made {count} {noun}s that are there; it may have"
            f" {owner.most}",
            hint=f"delete {noun}s that nobody needs, or let the operator raise quota_{noun}s",
            fields={"limit": owner.most, "bound": f"quota_{noun}s"},
        )


async def _for_one_deletion(connection: AsyncConnection, limits: Limits) -> None:
    """What is made can be deleted, and the deletion noted until the store carries it out."""
    row = tombstones.c
    deleted = select(row.kind, row.name, row.generation).distinct().subquery()
    count = int(await connection.scalar(select(func.count()).select_from(deleted)) or 0)
    most = limits.deleted_names_max
    if count >= most:
        raise StateConflict(
            f"{count} topics and groups were deleted in the metadata database and not in the store",
            hint="look why the store writes nothing, or let the operator raise deleted_names_max",
            fields={"limit": most, "bound": "deleted_names_max"},
        )


async def _for_one_more(connection: AsyncConnection, table: Table, noun: str, limit: int) -> None:
    count = await _count(connection, table)
    if count >= limit:
        raise StateConflict(
            f"there are {count} {noun}; more than {limit} are not kept",
            hint=f"delete {noun} that nobody needs, or let the operator raise {noun}_max",
            fields={"limit": limit, "bound": f"{noun}_max"},
        )


async def _count(connection: AsyncConnection, table: Table) -> int:
    return int(await connection.scalar(select(func.count()).select_from(table)) or 0)
