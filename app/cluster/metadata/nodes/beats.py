"""The beat of a node: one statement that says what is new, and gives its sign of life.

Each node asks every second, so it asks for all at once: how new topics and keys are, whether it
leads its shard still, what time it is. When its lease and its sign of life are due, the same
statement writes both; SQLite, which has one node and no lease, writes the sign apart.

A replica asks about the row of its shard as often, to renew its lease or to see who leads. Such a
question brings the beat with it (`CarriedBeats`), so the node needs none of its own. The lease of a
shard with replicas is its replica's matter, and none of the beat's.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Row,
    cast,
    exists,
    extract,
    func,
    literal,
    null,
    select,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from app.cluster.metadata.schema.tables import (
    access_state,
    metadata_version,
    nodes,
    shard_replicas,
    shards,
)
from app.domain.clock import Clock
from app.domain.positions import TimestampMs

LEASE_MS: Final = 30_000
"""A node that leads a shard counts as at work for so long after each sign of life."""


CARRIED_SECONDS: Final = 1.0
"""How old an answer may be that a question about the row has brought."""


class Beat(NamedTuple):
    """What the database says."""

    version: int
    """Of topics, groups, shards and settings."""
    policy_version: int
    """Of keys and policies."""
    is_registered: bool
    grant_id: bytes | None
    """Of the start that leads the shard of this node; None: there is no such shard."""
    epoch: int
    """In which the shard is led."""
    clock_ms: int | None
    """The database's clock; None: it has none of its own."""
    is_replica: bool = False
    """Whether the node is among the replicas of its shard."""


def clock_ms() -> ColumnElement[int]:
    """PostgreSQL's clock at the moment, in epoch milliseconds."""
    return cast(extract("epoch", func.clock_timestamp()) * 1_000, BigInteger)


async def beat(
    connection: AsyncConnection,
    node_id: str,
    shard: str,
    grant_id: bytes,
    now_ms: TimestampMs,
    *,
    renews: bool,
) -> Beat:
    """Ask; with `renews` also renew the lease of the grant and the node's sign of life, which only
    PostgreSQL can. One statement."""
    is_postgres = connection.dialect.name == "postgresql"
    statement = select(*beat_columns(node_id, shard, is_postgres=is_postgres))
    if renews and is_postgres:
        row, replica = shards.c, shard_replicas.c
        lease = update(shards).where(
            row.name == shard, row.grant_id == grant_id, row.segment_bytes.is_(None)
        )
        sign = update(nodes).where(nodes.c.node_id == node_id)
        there = update(shard_replicas).where(replica.shard == shard, replica.node_id == node_id)
        statement = statement.add_cte(
            lease.values(lease_until_ms=clock_ms() + LEASE_MS).returning(literal(1)).cte("lease"),
            sign.values(seen_ms=now_ms).returning(literal(1)).cte("sign"),
            there.values(seen_ms=clock_ms()).returning(literal(1)).cte("there"),
        )
    return beat_of((await connection.execute(statement)).one())


def beat_columns(node_id: str, shard: str, *, is_postgres: bool) -> Sequence[ColumnElement[Any]]:
    """What a statement asks for that brings a beat."""
    row, replica = shards.c, shard_replicas.c
    now = clock_ms() if is_postgres else cast(null(), BigInteger)
    is_replica = exists().where(replica.shard == shard, replica.node_id == node_id)
    return (
        select(metadata_version.c.version).scalar_subquery().label("beat_version"),
        select(access_state.c.version).scalar_subquery().label("beat_policy_version"),
        exists().where(nodes.c.node_id == node_id).label("beat_is_registered"),
        select(row.grant_id).where(row.name == shard).scalar_subquery().label("beat_grant_id"),
        select(row.epoch).where(row.name == shard).scalar_subquery().label("beat_epoch"),
        now.label("beat_clock"),
        is_replica.label("beat_is_replica"),
    )


def beat_of(found: Row[Any]) -> Beat:
    """The beat that such a statement has brought."""
    return Beat(
        found.beat_version,
        found.beat_policy_version,
        bool(found.beat_is_registered),
        None if found.beat_grant_id is None else bytes(found.beat_grant_id),
        found.beat_epoch or 0,
        found.beat_clock,
        bool(found.beat_is_replica),
    )


class CarriedBeats:
    """The last beat that a question about the shard's row has brought. Event loop only."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last: Beat | None = None
        self._answered_s = 0.0

    def take(self, beat: Beat) -> None:
        """It has come just now."""
        self._last, self._answered_s = beat, self._clock.monotonic_s()

    def fresh(self) -> Beat | None:
        """The last one, once, with its clock as of now; None: there is none that is new enough."""
        last, self._last = self._last, None
        age_s = self._clock.monotonic_s() - self._answered_s
        if last is None or age_s > CARRIED_SECONDS:
            return None
        if last.clock_ms is None:
            return last
        return last._replace(clock_ms=last.clock_ms + round(age_s * 1_000))
