"""When groups that begin at the end of a topic were first used in it, in SQL, for all shards.

One row for a pair of group and topic, which goes with either of them and with the group's offsets
in the topic. Only what has several shards is written.
"""

from sqlalchemy import delete, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from app.cluster.metadata.database.database import Database
from app.cluster.metadata.schema.tables import first_uses
from app.cluster.metadata.tables import versions
from app.cluster.metadata.tables.group_subscriptions import check_generations
from app.domain.clock import Clock
from app.domain.consumers.consumption import FirstUse, SubscriptionPair

_ROW = first_uses.c


class FirstUses:
    """Reachable as `Metadata.first_uses`. Event loop only."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def find(self, pair: SubscriptionPair) -> int | None:
        """When it was, in epoch milliseconds; None: not yet."""
        async with self._database.reading() as connection:
            return await _find(connection, pair)

    async def note(self, pair: SubscriptionPair) -> FirstUse:
        """When it was: now, unless there was one. Of several at once one is the first.

        Raises `GroupNotFound` or `TopicNotFound` when one was deleted."""
        now_ms = self._clock.now_ms()
        async with self._database.transaction() as connection:
            await versions.lock(connection)
            await check_generations(connection, pair)
            found = await _find(connection, pair)
            if found is not None:
                return FirstUse(found, is_this=False)
            values = {"consumer_group": pair.group, "topic": pair.topic, "used_ms": now_ms}
            await connection.execute(insert(first_uses).values(values))
        return FirstUse(now_ms, is_this=True)


async def remove(connection: AsyncConnection, group: str, topic: str, at_ms: int) -> None:
    """Forget the one that was at this time: the next use is the first. Another one, which came
    since, stays."""
    this = _ROW.consumer_group == group, _ROW.topic == topic, _ROW.used_ms == at_ms
    await connection.execute(delete(first_uses).where(*this))


async def _find(connection: AsyncConnection, pair: SubscriptionPair) -> int | None:
    of_pair = _ROW.consumer_group == pair.group, _ROW.topic == pair.topic
    return await connection.scalar(select(_ROW.used_ms).where(*of_pair))
