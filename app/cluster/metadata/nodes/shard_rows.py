"""The row of a shard with replicas: reads it, and carries out what `replication.shard_row` allows.

A change is judged on the row as it was read, and written by one UPDATE whose WHERE has all of that
row: what is no longer so is judged anew. So the rule stands in one place, and no row is locked
while a node thinks. Times are those of PostgreSQL's clock; SQLite has one node, and no replicas.

Elections and changes of the set raise the metadata's version, so that routes follow, and are noted
among the events in the same transaction. A node that freezes within it loses it after
`FROZEN_MS`, for the version's lock is everybody's.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from enum import Enum, auto
from typing import Any, Final, NamedTuple

from sqlalchemy import ColumnElement, Row, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from app.cluster.metadata.database.database import Database
from app.cluster.metadata.nodes.beats import CarriedBeats, beat_columns, beat_of, clock_ms
from app.cluster.metadata.nodes.cluster_events import Event, Kind, note
from app.cluster.metadata.schema.tables import shard_replicas, shards
from app.cluster.metadata.tables import versions
from app.cluster.replication.shard_row import (
    ChangeInSync,
    Elect,
    ElectAfterLoss,
    ElectUnclean,
    HandOver,
    Renew,
    RowChange,
    ShardRow,
    TellRegressed,
    WriteBack,
)
from app.cluster.replication.terms import Member, Term
from app.domain.errors import MetadataUnavailable

FROZEN_MS: Final = 2_000
"""A transaction in which nothing is asked for so long is undone by the server."""

TRIES_MAX: Final = 5
"""Of one change, when others change the row in between."""

GRANT_BYTES: Final = 8
"""Of a replica's election. That of a lone node's start has twice as many."""

_KINDS: Final[dict[type[RowChange], Kind]] = {
    Elect: "shard_elected",
    ElectAfterLoss: "shard_elected_after_loss",
    ElectUnclean: "shard_elected_unclean",
    ChangeInSync: "in_sync_changed",
    HandOver: "shard_handed_over",
    TellRegressed: "metadata_regressed",
    WriteBack: "shard_written_back",
}
"""A renewal is not told of, and raises no version."""


class SeenRow(NamedTuple):
    """The row at one moment."""

    row: ShardRow
    now_ms: int
    """The database's clock then."""

    @property
    def lease_left_ms(self) -> int:
        """0 or less: the lease is over."""
        return self.row.lease_until_ms - self.now_ms


class ChangedRow(NamedTuple):
    """What came of a change."""

    seen: SeenRow
    """The row behind it."""
    is_done: bool


class _Written(Enum):
    """What came of a change that the row allowed."""

    DONE = auto()
    REFUSED = auto()
    """What stands beside the row forbids it."""
    OUTRUN = auto()
    """The row was no longer what was seen."""


class ShardRows:
    """The row of one shard by its name. Every method raises `MetadataUnavailable`, of a change also
    when it may have been carried out all the same."""

    def __init__(
        self,
        database: Database,
        name: str,
        node_id: str = "",
        carried: CarriedBeats | None = None,
    ) -> None:
        """`carried` is given the beat of the node that comes with each answer."""
        self._database = database
        self._name = name
        self._node_id = node_id
        self._carried = carried
        self._seen: ShardRow | None = None
        """As it was last read, or renewed."""

    async def read(self) -> SeenRow | None:
        """None: there is no such shard."""
        query = select(shards, *self._beside()).where(shards.c.name == self._name)
        async with self._database.asking() as connection:
            found = (await connection.execute(query)).one_or_none()
        if found is None:
            return None
        self._look(found)
        self._seen = row_of(found)
        return SeenRow(self._seen, found.now_ms)

    async def change(self, change: RowChange) -> ChangedRow | None:
        """Carry it out, once, if the row allows it; None: there is no such shard."""
        if isinstance(change, Renew):
            renewed = await self._renew_seen(change)
            if renewed is not None:
                return renewed
        for _ in range(TRIES_MAX):
            seen = await self.read()
            if seen is None:
                return None
            after = change.apply(seen.row, seen.now_ms)
            if after is None:
                return ChangedRow(seen, is_done=False)
            written = await self._write(change, seen.row, after)
            if written is _Written.REFUSED:
                return ChangedRow(seen, is_done=False)
            if written is _Written.DONE:
                return ChangedRow(SeenRow(after, seen.now_ms), is_done=True)
        raise MetadataUnavailable(
            f"the row of the shard {self._name!r} is never the one that was read a moment before"
        )

    async def _renew_seen(self, change: Renew) -> ChangedRow | None:
        """Renew by one statement where the row is but for its lease the one that was last seen;
        None: it has to be read. The lease begins when it is written: later than it was asked for.
        """
        seen = self._seen
        if seen is None or change.apply(seen, 0) is None:
            return None
        before = columns_of(seen)
        del before["lease_until_ms"]
        lease = update(shards).where(*self._is_still(before))
        lease = lease.values(lease_until_ms=clock_ms() + change.lease_ms)
        renewed = lease.returning(shards.c.lease_until_ms).cte("renewed")
        until = select(renewed.c.lease_until_ms).scalar_subquery().label("until_ms")
        async with self._database.asking() as connection:
            found = (await connection.execute(select(until, *self._beside()))).one()
        self._look(found)
        if found.until_ms is None:
            self._seen = None
            return None
        self._seen = replace(seen, lease_until_ms=found.until_ms)
        return ChangedRow(SeenRow(self._seen, found.until_ms - change.lease_ms), is_done=True)

    async def _write(self, change: RowChange, seen: ShardRow, after: ShardRow) -> "_Written":
        self._seen = None
        statement = update(shards).where(*self._is_still(columns_of(seen)))
        statement = statement.values(columns_of(after))
        if isinstance(change, Renew):
            async with self._database.asking() as connection:
                is_done = (await connection.execute(statement)).rowcount == 1
                return _Written.DONE if is_done else _Written.OUTRUN
        async with self._database.transaction() as connection:
            frozen = f"SET LOCAL idle_in_transaction_session_timeout = {FROZEN_MS}"
            await connection.execute(text(frozen))
            version = await versions.lock(connection)
            if isinstance(change, ChangeInSync):
                come = {member.node for member in after.in_sync - seen.in_sync}
                if not await self._have_joined(connection, come):
                    return _Written.REFUSED
            if (await connection.execute(statement)).rowcount != 1:
                return _Written.OUTRUN
            await note(connection, _event_of(change, self._name, after))
            await versions.raise_to(connection, version + 1)
        return _Written.DONE

    async def _have_joined(self, connection: AsyncConnection, nodes: set[str]) -> bool:
        """Whether all have a replica: one that was taken out is not taken into the set by a leader
        that has not heard of it yet."""
        if not nodes:
            return True
        row = shard_replicas.c
        query = select(row.node_id).where(row.shard == self._name, row.node_id.in_(nodes))
        return nodes == set((await connection.execute(query)).scalars())

    def _is_still(self, columns: Mapping[str, object]) -> list[ColumnElement[bool]]:
        return [
            shards.c.name == self._name,
            *(shards.c[column].is_not_distinct_from(value) for column, value in columns.items()),
        ]

    def _beside(self) -> list[ColumnElement[Any]]:
        """What is asked for with the row: the time, and the node's beat."""
        now = clock_ms().label("now_ms")
        if self._carried is None:
            return [now]
        return [now, *beat_columns(self._node_id, self._name, is_postgres=True)]

    def _look(self, found: Row[Any]) -> None:
        if self._carried is not None:
            self._carried.take(beat_of(found))


def _event_of(change: RowChange, name: str, after: ShardRow) -> Event:
    node = after.handed_to or ("" if after.leader is None else after.leader.node)
    by = change.by if isinstance(change, HandOver | ElectUnclean) else ""
    detail = set_and_asker(after.in_sync, by)
    return Event(_KINDS[type(change)], name, node, after.term.epoch, detail)


def set_and_asker(in_sync: frozenset[Member], by: str = "") -> str:
    """What an event says of the set, and of the operator who asked for the change, if one did."""
    said = "in sync: " + ", ".join(member.node for member in sorted(in_sync))
    return f"{said}; asked for by {by}" if by else said


def row_of(found: Row[Any]) -> ShardRow:
    """What the machine reads of a row of `shards`."""
    leader = None if found.leader is None else Member(found.leader, found.leader_incarnation)
    grant = 0 if found.grant_id is None else int.from_bytes(bytes(found.grant_id))
    return ShardRow(
        term=Term(found.epoch, grant),
        leader=leader,
        in_sync=frozenset(Member(*member) for member in json.loads(found.in_sync)),
        in_sync_version=found.in_sync_version,
        settled_version=found.settled_version,
        lease_until_ms=found.lease_until_ms,
        handed_to=found.handed_to,
        min_in_sync=found.min_in_sync,
        target_replicas=found.target_replicas,
        possible_loss=found.possible_loss,
        is_regressed=found.is_regressed,
        loss_epoch=found.loss_epoch,
    )


def columns_of(row: ShardRow) -> dict[str, object]:
    """The columns of `shards` that hold it."""
    leader = row.leader
    return {
        "epoch": row.term.epoch,
        "grant_id": _bytes_of(row.term.grant),
        "leader": None if leader is None else leader.node,
        "leader_incarnation": 0 if leader is None else leader.incarnation,
        "in_sync": json.dumps(sorted(row.in_sync)),
        "in_sync_version": row.in_sync_version,
        "settled_version": row.settled_version,
        "lease_until_ms": row.lease_until_ms,
        "handed_to": row.handed_to,
        "min_in_sync": row.min_in_sync,
        "target_replicas": row.target_replicas,
        "possible_loss": row.possible_loss,
        "is_regressed": row.is_regressed,
        "loss_epoch": row.loss_epoch,
    }


def _bytes_of(grant: int) -> bytes | None:
    if not grant:
        return None
    return grant.to_bytes(GRANT_BYTES if grant.bit_length() <= GRANT_BYTES * 8 else GRANT_BYTES * 2)
