"""The beat of a node: one statement that says what is new, and gives its sign of life.

Each node asks every second, so it asks for all at once: how new topics and keys are, whether it
leads its shard still, what time it is. When its lease and its sign of life are due, the same
statement writes both; SQLite, which has one node and no lease, writes the sign apart.
"""

from typing import Final, NamedTuple

from sqlalchemy import (
    BigInteger,
    ColumnElement,
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

from app.cluster.metadata.schema.tables import access_state, metadata_version, nodes, shards
from app.domain.positions import TimestampMs

LEASE_MS: Final = 30_000
"""A node that leads a shard counts as at work for so long after each sign of life."""


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
    row = shards.c
    is_postgres = connection.dialect.name == "postgresql"
    now = clock_ms() if is_postgres else cast(null(), BigInteger)
    statement = select(
        select(metadata_version.c.version).scalar_subquery().label("version"),
        select(access_state.c.version).scalar_subquery().label("policy_version"),
        exists().where(nodes.c.node_id == node_id).label("is_registered"),
        select(row.grant_id).where(row.name == shard).scalar_subquery().label("grant_id"),
        select(row.epoch).where(row.name == shard).scalar_subquery().label("epoch"),
        now.label("now"),
    )
    if renews and is_postgres:
        lease = update(shards).where(row.name == shard, row.grant_id == grant_id)
        sign = update(nodes).where(nodes.c.node_id == node_id)
        statement = statement.add_cte(
            lease.values(lease_until_ms=clock_ms() + LEASE_MS).returning(literal(1)).cte("lease"),
            sign.values(seen_ms=now_ms).returning(literal(1)).cte("sign"),
        )
    found = (await connection.execute(statement)).one()
    return Beat(
        found.version,
        found.policy_version,
        bool(found.is_registered),
        None if found.grant_id is None else bytes(found.grant_id),
        found.epoch or 0,
        found.now,
    )
