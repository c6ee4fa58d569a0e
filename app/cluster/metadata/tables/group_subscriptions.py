"""Filters that operators have set for groups in topics, or taken away, in SQL.

One row for a pair of group and topic, which goes with either of them. One that was taken away keeps
its row without a filter: a shard that was away then learns that its own is over. Works in the
caller's transaction, under `versions.lock`.
"""

from collections.abc import Callable

from sqlalchemy import delete, func, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from app.cluster.metadata.schema.tables import consumer_groups, group_subscriptions, topics
from app.cluster.metadata.tables import versions
from app.domain.consumers.consumption import KeptSubscription, SubscriptionPair
from app.domain.errors import GroupNotFound, StateConflict, TopicNotFound
from app.domain.limits import Limits

Step = Callable[[KeptSubscription | None], KeptSubscription | None]
"""Given what is kept, what shall be; the same changes nothing, and what it raises neither."""


async def load(connection: AsyncConnection) -> dict[tuple[str, str], KeptSubscription]:
    """All of them."""
    return {
        (row.consumer_group, row.topic): KeptSubscription(
            row.filter, row.set_by, row.set_ms, row.version
        )
        for row in await connection.execute(select(group_subscriptions))
    }


async def change(
    connection: AsyncConnection, pair: SubscriptionPair, step: Step, limits: Limits
) -> tuple[KeptSubscription, int] | None:
    """What is kept from now on, and in which version of the metadata; None: nothing was changed.

    Raises `GroupNotFound` or `TopicNotFound` when one was deleted, and `StateConflict` when the
    group has as many as it may have."""
    version = await versions.lock(connection) + 1
    await check_generations(connection, pair)
    row = group_subscriptions.c
    is_of_group = row.consumer_group == pair.group
    query = select(row.filter, row.set_by, row.set_ms, row.version).where(
        is_of_group, row.topic == pair.topic
    )
    found = (await connection.execute(query)).one_or_none()
    before = None if found is None else KeptSubscription(*found)
    after = step(before)
    if after is None or after == before:
        return None
    if before is None:
        await _check_room(connection, pair.group, limits)
    await connection.execute(
        delete(group_subscriptions).where(is_of_group, row.topic == pair.topic)
    )
    values = {
        "consumer_group": pair.group,
        "topic": pair.topic,
        "filter": after.filter,
        "set_by": after.set_by,
        "set_ms": after.set_ms,
        "version": after.version,
    }
    await connection.execute(insert(group_subscriptions).values(values))
    await versions.raise_to(connection, version)
    return after, version


async def check_generations(connection: AsyncConnection, pair: SubscriptionPair) -> None:
    """Raise `GroupNotFound` or `TopicNotFound` when one was deleted."""
    group, topic = consumer_groups.c, topics.c
    found = await connection.scalar(select(group.generation).where(group.name == pair.group))
    if found != pair.group_generation:
        raise GroupNotFound(f"consumer group {pair.group!r} was deleted meanwhile")
    found = await connection.scalar(select(topic.generation).where(topic.name == pair.topic))
    if found != pair.topic_generation:
        raise TopicNotFound(f"topic {pair.topic!r} was deleted meanwhile")


async def _check_room(connection: AsyncConnection, group: str, limits: Limits) -> None:
    of_group = group_subscriptions.c.consumer_group == group
    query = select(func.count()).select_from(group_subscriptions).where(of_group)
    most = limits.subscriptions_per_group_max
    if (await connection.scalar(query) or 0) >= most:
        raise StateConflict(
            f"filters were set for group {group!r} in {most} topics; there is no room for more",
            fields={"limit": most, "bound": "subscriptions_per_group_max"},
        )
