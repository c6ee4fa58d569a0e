"""How groups consume topics of several shards, in SQL: one row for a group, topic and shard.

A shard enters a kind before it is of that kind, and only when no other shard has entered the other
one. By force it ends the rows of the others: each of them finds that its row has ended. A row goes
with its group, its topic and its shard. Only what has several shards is written.
"""

from collections.abc import Callable, Sequence

from sqlalchemy import ColumnElement, and_, delete, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from app.cluster.metadata.database.database import Database
from app.cluster.metadata.database.upserts import upsert
from app.cluster.metadata.schema.tables import consumptions, shards
from app.cluster.metadata.tables import versions
from app.cluster.metadata.tables.group_subscriptions import check_generations
from app.domain.clock import Clock
from app.domain.consumers.consumption import (
    Consumption,
    ConsumptionElsewhere,
    ConsumptionRow,
    SubscriptionPair,
)

_ROW = consumptions.c
_KEY = ["consumer_group", "topic", "shard"]
_DELETED_AT_ONCE = 200


class Consumptions:
    """Reachable as `Metadata.consumptions`. Event loop only."""

    def __init__(self, database: Database, clock: Clock, shard: Callable[[], str]) -> None:
        self._database = database
        self._clock = clock
        self._shard = shard

    async def enter(
        self, pair: SubscriptionPair, kind: Consumption, *, force: bool
    ) -> ConsumptionElsewhere | None:
        """This shard is of this kind from now on, unless another is of the other one, which is
        returned. With `force` those of the other kind end.

        Raises `GroupNotFound` or `TopicNotFound` when one was deleted."""
        async with self._database.transaction() as connection:
            await versions.lock(connection)
            await check_generations(connection, pair)
            if force:
                others = self._of_others(pair, kind)
                await connection.execute(update(consumptions).where(*others).values(is_ended=True))
            elif (found := await self._find(connection, pair, kind)) is not None:
                return found
            values = {"kind": kind.value, "since_ms": self._clock.now_ms(), "is_ended": False}
            key = {"consumer_group": pair.group, "topic": pair.topic, "shard": self._shard()}
            await connection.execute(
                upsert(connection, consumptions)
                .values(**key, **values)
                .on_conflict_do_update(index_elements=_KEY, set_=values)
            )
        return None

    async def elsewhere(
        self, pair: SubscriptionPair, kind: Consumption
    ) -> ConsumptionElsewhere | None:
        """The first other shard that is of the other kind."""
        async with self._database.reading() as connection:
            return await self._find(connection, pair, kind)

    async def held(self, *, ended_only: bool) -> list[ConsumptionRow]:
        """What this shard has entered."""
        here = [_ROW.shard == self._shard()]
        if ended_only:
            here.append(_ROW.is_ended.is_(True))
        query = select(_ROW.consumer_group, _ROW.topic, _ROW.kind, _ROW.is_ended).where(*here)
        async with self._database.reading() as connection:
            rows = await connection.execute(query)
        return [
            ConsumptionRow(group, topic, Consumption(kind), is_ended)
            for group, topic, kind, is_ended in rows
        ]

    async def leave(self, names: Sequence[tuple[str, str]]) -> None:
        """This shard is of no kind any more in these pairs of group and topic."""
        here = _ROW.shard == self._shard()
        async with self._database.transaction() as connection:
            for first in range(0, len(names), _DELETED_AT_ONCE):
                pairs = [
                    and_(_ROW.consumer_group == group, _ROW.topic == topic)
                    for group, topic in names[first : first + _DELETED_AT_ONCE]
                ]
                await connection.execute(delete(consumptions).where(here, or_(*pairs)))

    async def _find(
        self, connection: AsyncConnection, pair: SubscriptionPair, kind: Consumption
    ) -> ConsumptionElsewhere | None:
        query = select(_ROW.shard, _ROW.kind, _ROW.since_ms).where(*self._of_others(pair, kind))
        found = (await connection.execute(query.order_by(_ROW.since_ms, _ROW.shard))).first()
        return (
            None
            if found is None
            else ConsumptionElsewhere(found[0], Consumption(found[1]), found[2])
        )

    def _of_others(self, pair: SubscriptionPair, kind: Consumption) -> list[ColumnElement[bool]]:
        """Rows of other shards that are of the other kind and have not ended. One that a shard has
        entered when it was given up already is none."""
        of_pair = [_ROW.consumer_group == pair.group, _ROW.topic == pair.topic]
        of_pair.append(_ROW.shard.in_(select(shards.c.name)))
        other = [_ROW.shard != self._shard(), _ROW.kind != kind.value]
        return [*of_pair, *other, _ROW.is_ended.is_(False)]
