"""Which nodes have a replica of a shard, in SQL: they join before their store is made, and stay
until an operator takes one out.

All changes are made under the metadata version's lock, and raise it: nodes that run hear of it by
their beat, and find the members in the snapshot. The first in-sync set is told here and nowhere
else, once there are as many members as the set must never fall below (`Found`); from the first
election on the shard's leader alone changes it.

Times are those of PostgreSQL's clock. SQLite has one node, and no replicas.
"""

import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import Row, delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from app.cluster.metadata.database.database import Database
from app.cluster.metadata.nodes.beats import LEASE_MS, clock_ms
from app.cluster.metadata.nodes.cluster_events import Event, Kind, note
from app.cluster.metadata.nodes.shard_rows import columns_of, row_of, set_and_asker
from app.cluster.metadata.nodes.shards import UNCLAIMED
from app.cluster.metadata.schema.tables import (
    cluster_events,
    shard_replicas,
    shards,
    tombstones,
    topic_queues,
)
from app.cluster.metadata.snapshot import ReplicaMember
from app.cluster.metadata.tables import versions
from app.cluster.replication.shard_row import (
    Found,
    Need,
    PutOut,
    ShardRow,
    need_of,
    need_to_copy,
    without_node,
)
from app.cluster.replication.terms import Member
from app.domain.errors import MetadataUnavailable, ReplicaNeeded, ReplicaNotFound
from app.domain.limits import REPLICAS_MAX, SHARDS_MAX

STORE_ID_BYTES: Final = 4


class ReplicaRefused(MetadataUnavailable):
    """The node cannot have a replica of the shard; somebody has to act."""

    title = "The node cannot have a replica of the shard"
    retryable = False


class JoinRequest(NamedTuple):
    """What a node says that is to have a replica of a shard."""

    shard: str
    node_id: str
    cluster_url: str
    """Where the other replicas reach it."""
    advertise_url: str | None
    zone: str | None
    replicas: int
    """Wanted of the shard, when this node makes it."""
    segment_bytes: int
    """Of the shard's log, when this node makes it."""
    incarnation: int
    """That the opening of its directory has, when it finds nothing."""
    store_id: bytes | None = None
    """Of the store that is in its directory; None: none yet."""


class ReplicaSet(NamedTuple):
    """A shard of several replicas."""

    shard: str
    store_id: bytes
    segment_bytes: int
    members: tuple[ReplicaMember, ...]
    """In the order in which they joined."""
    target_replicas: int
    """No more may join. How many replicas may have noted a set goes by this, too."""
    min_in_sync: int
    joined_ms: Mapping[str, int]
    """Node → since when it is a member, by the database's clock."""


class WithoutReplica(NamedTuple):
    """What a shard is, or would be, without the replica of a node."""

    shard: str
    node_id: str
    was_in_sync: bool
    in_sync: tuple[str, ...]
    """Nodes that are left in sync."""
    left: tuple[str, ...]
    """Nodes that have a replica then."""


def min_in_sync_of(replicas: int) -> int:
    """How small the in-sync set of a new shard may become: from three replicas on, any two sets
    meet; of two, one has to be able to go on alone."""
    return replicas // 2 + 1 if replicas > 2 else 1


class ReplicaSets:
    """Every method raises `MetadataUnavailable`; then nothing was changed, or, when the connection
    broke at the commit, it is unknown: all may be repeated. Event loop only."""

    def __init__(self, database: Database, joined: Callable[[str], Awaitable[None]]) -> None:
        """`joined` takes over that this node has a replica of the shard."""
        self._database = database
        self._joined = joined

    async def join(self, request: JoinRequest) -> ReplicaSet:
        """Enter the node among the replicas of a shard, or where it is now; the first makes the
        shard. Raises `ReplicaRefused`."""
        if self._database.address.sqlite_file is not None:
            raise ReplicaRefused(
                "a shard of several replicas keeps its metadata in PostgreSQL, and this is SQLite",
                hint="name a PostgreSQL database with --database-url, or leave out --replicas",
            )
        if not 1 <= request.replicas <= REPLICAS_MAX:
            raise ReplicaRefused(
                f"a shard has 1 to {REPLICAS_MAX} replicas, and not {request.replicas}",
                hint="say how many it is to have with --replicas",
            )
        async with self._database.transaction() as connection:
            joining = _Joining(connection, request)
            await joining.run()
            found = await _find(connection, request.shard)
        await self._joined(request.shard)
        assert found is not None
        return found

    async def read(self, shard: str) -> ReplicaSet | None:
        """None: there is no such shard, or it is a lone node's."""
        async with self._database.reading() as connection:
            return await _find(connection, shard)

    async def stopped(self, shard: str, node_id: str) -> None:
        """The node has ended in order: its directory may be started elsewhere at once."""
        row = shard_replicas.c
        statement = update(shard_replicas).where(row.shard == shard, row.node_id == node_id)
        async with self._database.transaction() as connection:
            await connection.execute(statement.values(seen_ms=0))

    async def leave(
        self, shard: str, node_id: str, by: str = "", *, is_dry_run: bool = False
    ) -> WithoutReplica:
        """Take a replica out for good, as the operator `by` has asked; the node hears of it by its
        beat. Who is in sync leaves the set in the same transaction. Raises `ReplicaNotFound`, and
        `ReplicaNeeded` for one that the shard cannot do without."""
        async with self._database.transaction() as connection:
            version = await versions.lock(connection)
            found, row = await _judged(connection, shard, node_id)
            if not is_dry_run:
                after = await _put_out(connection, row, shard, node_id)
                of_node = shard_replicas.c.shard == shard, shard_replicas.c.node_id == node_id
                await connection.execute(delete(shard_replicas).where(*of_node))
                said = set_and_asker(after.in_sync, by)
                await note(
                    connection, Event("replica_removed", shard, node_id, row.term.epoch, said)
                )
                await versions.raise_to(connection, version + 1)
        return found

    async def put_out(
        self, shard: str, node_id: str, by: str = "", *, is_dry_run: bool = False
    ) -> WithoutReplica:
        """Take a replica, which stays one, out of the set, for it is to begin anew, as `by` has
        asked. It is not at work meanwhile, or its leader takes it in again. Raises as `leave`, and
        `ReplicaNeeded` while nobody leads."""
        async with self._database.transaction() as connection:
            version = await versions.lock(connection)
            found, row = await _judged(connection, shard, node_id, is_to_copy=True)
            if not is_dry_run:
                after = await _put_out(connection, row, shard, node_id)
                said = set_and_asker(after.in_sync, by)
                await note(connection, Event("replica_reset", shard, node_id, row.term.epoch, said))
                await versions.raise_to(connection, version + 1)
        return found

    async def was_removed(self, shard: str, node_id: str, joined_ms: int) -> bool:
        """Whether an operator has taken out this node, which the database knows no replica of,
        since it joined at `joined_ms`: else it is an older copy, from before the node joined, or
        joined again. The copy counts its events on from where it was: their numbers say nothing."""
        row = cluster_events.c
        kinds: tuple[Kind, ...] = ("replica_joined", "replica_removed")
        of_node = row.shard == shard, row.node_id == node_id, row.kind.in_(kinds)
        query = select(row.kind, row.at_ms).where(*of_node).order_by(row.seq.desc()).limit(1)
        async with self._database.reading() as connection:
            last = (await connection.execute(query)).one_or_none()
        return last is not None and last.kind == "replica_removed" and last.at_ms >= joined_ms


async def _judged(
    connection: AsyncConnection, shard: str, node_id: str, *, is_to_copy: bool = False
) -> tuple[WithoutReplica, ShardRow]:
    """What the shard would be without the replica, and its row. The caller holds the version's
    lock. `is_to_copy`: its data is to be had from the leader. Raises `ReplicaNotFound` and
    `ReplicaNeeded`."""
    found = await _find(connection, shard)
    nodes = () if found is None else tuple(each.node_id for each in found.members)
    if node_id not in nodes:
        raise ReplicaNotFound(
            f"the node {node_id!r} has no replica of a shard {shard!r}",
            hint=f"those who have: {', '.join(nodes)}"
            if nodes
            else "GET /v1/cluster has the replicas of each shard",
            fields={"shard": shard, "node": node_id},
        )
    query = select(shards, clock_ms().label("now_ms")).where(shards.c.name == shard)
    read = (await connection.execute(query)).one()
    row = row_of(read)
    in_sync = tuple(sorted(member.node for member in without_node(row, node_id)))
    need = need_to_copy(row, node_id, read.now_ms) if is_to_copy else need_of(row, node_id)
    if need is not None:
        raise _needed(need, row, in_sync, shard, node_id)
    left = tuple(each for each in nodes if each != node_id)
    was_in_sync = node_id in {member.node for member in row.in_sync}
    return WithoutReplica(shard, node_id, was_in_sync, in_sync, left), row


def _needed(
    need: Need, row: ShardRow, in_sync: Sequence[str], shard: str, node_id: str
) -> ReplicaNeeded:
    detail, hint = {
        Need.LEADS: ("it leads", f"have another one lead first: curlew hand-over {shard}"),
        Need.HANDED_OVER: ("the shard is being handed over to it", "ask again in some seconds"),
        Need.TOO_FEW: (
            f"it is in sync, and without it only {', '.join(in_sync) or 'nobody'} would be;"
            f" {row.min_in_sync} have to be",
            "bring another replica in sync first: start its node, or take it out and start another"
            " one in its place; GET /v1/cluster shows when it is",
        ),
        Need.NO_LEADER: (
            "nobody leads, so there is nothing to copy from",
            "wait until GET /v1/cluster shows a leader",
        ),
    }[need]
    return ReplicaNeeded(
        f"the shard {shard!r} needs the replica of {node_id}: {detail}",
        hint=hint,
        fields={
            "shard": shard,
            "node": node_id,
            "reason": need.value,
            "min_in_sync": row.min_in_sync,
        },
    )


async def _put_out(
    connection: AsyncConnection, row: ShardRow, shard: str, node_id: str
) -> ShardRow:
    """Take it out of the set, if it is in; the row behind that. Whoever else changes the set waits
    for the version's lock."""
    after = PutOut(node_id).apply(row, 0)
    if after is None:
        return row
    columns = columns_of(after)
    changed = {name: columns[name] for name in ("in_sync", "in_sync_version")}
    await connection.execute(update(shards).where(shards.c.name == shard).values(changed))
    return after


class _Joining:
    """One request, under the version's lock."""

    def __init__(self, connection: AsyncConnection, request: JoinRequest) -> None:
        self._connection = connection
        self._request = request
        self._is_new = False
        """Whether others have to hear of it."""

    async def run(self) -> None:
        connection, name = self._connection, self._request.shard
        version = await versions.lock(connection)
        query = select(shards).where(shards.c.name == name)
        found = (await connection.execute(query)).one_or_none()
        if found is None:
            await self._make_shard()
            found = (await connection.execute(query)).one()
        else:
            self._refuse_other(found)
        replicas = await _replicas(connection, name)
        known = next((each for each in replicas if each.node_id == self._request.node_id), None)
        self._refuse_place(replicas, known, found.target_replicas, is_regressed=found.is_regressed)
        if known is None:
            await self._enter()
        else:
            await self._renew(known)
        await self._found(row_of(found))
        if self._is_new:
            await versions.raise_to(connection, version + 1)

    # --- refusals

    def _refuse_other(self, found: Row[Any]) -> None:
        """Raise for a shard that is no shard of replicas, or another one than this directory's."""
        asked, store_id = self._request, bytes(found.shard_id)
        if found.segment_bytes is None:
            raise ReplicaRefused(
                f"the shard {asked.shard!r} is a lone node's, last started at {found.address}: what"
                " it has was never confirmed by replicas",
                hint="give the shard of replicas another name with --shard; the lone node goes on"
                " with its own",
            )
        if asked.store_id is not None and asked.store_id != store_id:
            raise ReplicaRefused(
                f"the shard {asked.shard!r} is the store {store_id.hex()}, and the directory of"
                f" this node has the store {asked.store_id.hex()}",
                hint="name the shard of this directory with --shard; with an empty directory the"
                " node becomes a new replica",
            )

    def _refuse_place(
        self,
        replicas: Sequence[Row[Any]],
        known: Row[Any] | None,
        target: int,
        *,
        is_regressed: bool,
    ) -> None:
        """Raise for a node that has no place among the replicas, or is there already."""
        asked = self._request
        holder = next((each for each in replicas if each.cluster_url == asked.cluster_url), None)
        if holder is not None and holder.node_id != asked.node_id:
            raise ReplicaRefused(
                f"{asked.cluster_url} is where the shard {asked.shard!r} has the replica of the"
                f" node {holder.node_id}, whose data directory this is not",
                hint="give this node a cluster URL of its own; if the other directory is gone for"
                f" good: curlew remove-node {holder.node_id} --shard {asked.shard}",
            )
        if known is None and asked.store_id is None and is_regressed:
            raise ReplicaRefused(
                f"the metadata database has forgotten what the shard {asked.shard!r} is: no new"
                " replica joins before it is restored",
                hint="start the nodes that were there, and follow what their alarms say",
            )
        if known is None and len(replicas) >= target:
            names = ", ".join(f"{each.node_id} at {each.cluster_url}" for each in replicas)
            raise ReplicaRefused(
                f"the shard {asked.shard!r} has all its {target} replicas: {names}",
                hint="name another shard with --shard; if one of them is gone for good, take it out"
                f" with `curlew remove-node NODE --shard {asked.shard}` and start again",
            )
        if known is None or known.cluster_url == asked.cluster_url:
            return
        left_ms = known.seen_ms + LEASE_MS - known.now_ms
        if known.seen_ms and left_ms > 0:
            raise ReplicaRefused(
                f"the node {asked.node_id} is at work at {known.cluster_url}",
                hint="one of the two data directories is a copy: delete `node-id` in it and give"
                " the node a place of its own, or stop the other one; a node that was killed counts"
                f" as gone in {left_ms // 1_000 + 1} s",
            )

    # --- changes

    async def _make_shard(self) -> None:
        connection, asked = self._connection, self._request
        rows = (await connection.execute(select(shards.c.name, shards.c.shard_id))).all()
        if asked.store_id is not None:
            raise ReplicaRefused(
                f"the metadata database has no shard {asked.shard!r}, and the directory of this"
                f" node has a store already, {asked.store_id.hex()}",
                hint="this is another database, or an older copy: name the right one with"
                " --database-url, or restore it; with an empty directory the node makes the shard"
                " anew",
            )
        if len(rows) >= SHARDS_MAX:
            raise ReplicaRefused(
                f"the cluster has {len(rows)} shards, and may have no more",
                hint="release those that are gone for good with `curlew release-store`",
            )
        taken = {bytes(row.shard_id) for row in rows}
        store_id = secrets.token_bytes(STORE_ID_BYTES)
        while store_id in taken:
            store_id = secrets.token_bytes(STORE_ID_BYTES)
        values = {
            "name": asked.shard,
            "shard_id": store_id,
            "epoch": 0,
            "place": "",
            "address": asked.advertise_url or asked.cluster_url,
            "lease_until_ms": 0,
            "created_ms": clock_ms(),
            "min_in_sync": min_in_sync_of(asked.replicas),
            "target_replicas": asked.replicas,
            "segment_bytes": asked.segment_bytes,
        }
        await connection.execute(insert(shards).values(values))
        said = f"for {asked.replicas} replicas"
        await self._note("shard_made", said)
        for table in (topic_queues, tombstones):
            await connection.execute(
                update(table).where(table.c.shard == UNCLAIMED).values(shard=asked.shard)
            )

    async def _enter(self) -> None:
        asked = self._request
        values = {"shard": asked.shard, "node_id": asked.node_id, "joined_ms": clock_ms()}
        insertion = insert(shard_replicas).values({**values, **self._place()})
        await self._connection.execute(insertion)
        await self._note("replica_joined", asked.cluster_url)

    async def _renew(self, known: Row[Any]) -> None:
        asked, row = self._request, shard_replicas.c
        is_same = row.shard == asked.shard, row.node_id == asked.node_id
        statement = update(shard_replicas).where(*is_same).values(self._place())
        await self._connection.execute(statement)
        place = known.cluster_url, known.advertise_url, known.zone
        if place != (asked.cluster_url, asked.advertise_url, asked.zone):
            await self._note("replica_moved", f"{known.cluster_url} to {asked.cluster_url}")

    def _place(self) -> dict[str, object]:
        asked = self._request
        return {
            "cluster_url": asked.cluster_url,
            "advertise_url": asked.advertise_url,
            "zone": asked.zone,
            "incarnation": asked.incarnation,
            "seen_ms": clock_ms(),
        }

    async def _found(self, row: ShardRow) -> None:
        """Tell the first in-sync set, or in which incarnation one of it is there now."""
        connection, name = self._connection, self._request.shard
        replicas = await _replicas(connection, name)
        founders = {member.node for member in row.in_sync} or {
            each.node_id for each in replicas[: row.min_in_sync]
        }
        there = {Member(each.node_id, each.incarnation) for each in replicas}
        change = Found(frozenset(member for member in there if member.node in founders))
        after = change.apply(row, 0)
        if after is None:
            return
        statement = update(shards).where(shards.c.name == name).values(columns_of(after))
        await connection.execute(statement)
        await self._note("in_sync_changed", set_and_asker(after.in_sync))

    async def _note(self, kind: Kind, said: str) -> None:
        self._is_new = True
        asked = self._request
        await note(self._connection, Event(kind, asked.shard, asked.node_id, detail=said))


async def _replicas(connection: AsyncConnection, shard: str) -> Sequence[Row[Any]]:
    """In the order in which they joined, with the database's clock."""
    row = shard_replicas.c
    query = select(shard_replicas, clock_ms().label("now_ms")).where(row.shard == shard)
    return (await connection.execute(query.order_by(row.joined_ms, row.node_id))).all()


async def _find(connection: AsyncConnection, shard: str) -> ReplicaSet | None:
    query = select(shards).where(shards.c.name == shard)
    found = (await connection.execute(query)).one_or_none()
    if found is None or found.segment_bytes is None:
        return None
    replicas = await _replicas(connection, shard)
    members = tuple(
        ReplicaMember(each.node_id, each.cluster_url, each.advertise_url, each.zone)
        for each in replicas
    )
    return ReplicaSet(
        found.name,
        bytes(found.shard_id),
        found.segment_bytes,
        members,
        found.target_replicas,
        found.min_in_sync,
        {each.node_id: each.joined_ms for each in replicas},
    )
