"""The shards of the cluster in SQL: which store is which, and who leads it. In the caller's
transaction.

A shard is one log. Its row is made by the first start of the node that has it, and says by `grant`
which start of a node leads it: the last one. A database in a SQLite file belongs to one store.

Of a shard with several replicas (`segment_bytes` is set) nothing here writes who leads it, in which
epoch, or for how long: only `shard_rows` does.
"""

import json
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import Row, delete, insert, literal, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from app.cluster.metadata.database.upserts import upsert
from app.cluster.metadata.nodes.beats import LEASE_MS, clock_ms
from app.cluster.metadata.nodes.cluster_events import Event, note
from app.cluster.metadata.schema.tables import (
    consumptions,
    nodes,
    shard_replicas,
    shards,
    tombstones,
    topic_queues,
)
from app.cluster.metadata.snapshot import ReplicaMember, ShardView
from app.cluster.metadata.tables import versions
from app.domain.errors import MetadataUnavailable
from app.domain.limits import SHARDS_MAX
from app.domain.positions import TimestampMs
from app.domain.shards.takes import NOBODYS, Takes

UNCLAIMED: Final = NOBODYS
"""In place of a shard's name: whichever store comes next has it."""


class ForeignStore(MetadataUnavailable):
    """The database, or the shard, belongs to another store; somebody has to act."""

    title = "The metadata database belongs to another store"
    retryable = False


class Claim(NamedTuple):
    """What a node that starts says of its shard."""

    shard_id: bytes
    name: str
    """Empty: the one that it has; the first of a database is named after its store."""
    node_id: str
    address: str
    place: str = ""
    """Host and data directory: tells a copy of the data directory from the original. In the
    database, empty: nobody works there."""
    grant_id: bytes = b""
    """Random, of this start."""


async def claim(
    connection: AsyncConnection, asked: Claim, now_ms: TimestampMs, *, is_alone: bool
) -> str:
    """Enter the shard, or who leads it now; its name. Raises `ForeignStore`.

    Of several new ones that start at once each gets its own, and the first a name that two want:
    they take turns at the version's lock.
    """
    version = await versions.lock(connection)
    rows = (await connection.execute(select(shards).order_by(shards.c.name))).all()
    mine = next((row for row in rows if bytes(row.shard_id) == asked.shard_id), None)
    name = asked.name or (asked.shard_id.hex() if mine is None else mine.name)
    if mine is None:
        _refuse(asked, name, rows, is_alone=is_alone)
    elif mine.name != name:
        raise ForeignStore(
            f"the store {asked.shard_id.hex()} of this node is the shard {mine.name!r}, and not"
            f" {name!r}",
            hint=f"start it with --shard {mine.name}, or without --shard",
        )
    elif mine.segment_bytes is not None:
        raise ForeignStore(
            f"the shard {name!r} has several replicas, and a lone node would count all that its own"
            " log has as confirmed",
            hint="start the node as one of its replicas",
        )
    elif not is_alone and mine.place and mine.place != asked.place:
        await _refuse_copy(connection, mine)
    entry: dict[str, Any] = {
        "address": asked.address,
        "leader": asked.node_id,
        "place": asked.place,
        "grant_id": asked.grant_id,
    }
    entry["lease_until_ms"] = 0 if is_alone else clock_ms() + LEASE_MS
    said = asked.place or asked.address
    if mine is not None:
        await note(connection, Event("shard_claimed", name, asked.node_id, mine.epoch, said))
        await connection.execute(update(shards).where(shards.c.name == name).values(entry))
    else:
        values = {**entry, "name": name, "shard_id": asked.shard_id, "created_ms": now_ms}
        await connection.execute(insert(shards).values(epoch=0, **values))
        await note(connection, Event("shard_made", name, asked.node_id, detail=said))
        for table in (topic_queues, tombstones):
            await connection.execute(
                update(table).where(table.c.shard == UNCLAIMED).values(shard=name)
            )
        if rows:  # the others hear of it before a topic that they make is spread over it
            await versions.raise_to(connection, version + 1)
    return name


def _refuse(asked: Claim, name: str, rows: Sequence[Row[Any]], *, is_alone: bool) -> None:
    """Raise when a store that is new here cannot be a shard of this name."""
    here = f"the store {asked.shard_id.hex()} of this node"
    if is_alone and rows:
        raise ForeignStore(
            f"this metadata database belongs to the store {bytes(rows[0].shard_id).hex()}, last"
            f" started at {rows[0].address}, and not to {here}",
            hint="a cluster of several nodes keeps its metadata in PostgreSQL; in SQLite give each"
            " node a database of its own with --database-url; if the other store was replaced by"
            " this one for good, run `curlew release-store` with the same settings and start again",
        )
    if rows and not asked.name:
        raise ForeignStore(
            f"this metadata database has the shard {rows[0].name!r} of the store"
            f" {bytes(rows[0].shard_id).hex()}, last started at {rows[0].address}, and {here} is"
            " new to it",
            hint="to add it to the cluster, name its shard with --shard; else give this node a"
            " database of its own; if the other store was replaced by this one for good, run"
            f" `curlew release-store --shard {rows[0].name}` with the same settings and start"
            " again",
        )
    holder = next((row for row in rows if row.name == name), None)
    if holder is not None:
        raise ForeignStore(
            f"the shard {name!r} is the store {bytes(holder.shard_id).hex()}, last started at"
            f" {holder.address}, and not {here}",
            hint="give this node another name with --shard, or none; if the other store was"
            f" replaced by this one for good, run `curlew release-store --shard {name}` with the"
            " same settings and start again",
        )
    if len(rows) >= SHARDS_MAX:
        raise ForeignStore(
            f"the cluster has {len(rows)} shards, and may have no more",
            hint="release those that are gone for good with `curlew release-store --shard NAME`",
        )


async def _refuse_copy(connection: AsyncConnection, mine: Row[Any]) -> None:
    """Raise while the node that leads the shard from another data directory has a lease, by the
    database's clock: this one has a copy of its log, and both would give the same offsets to
    different messages."""
    left_ms = mine.lease_until_ms - (await connection.execute(select(clock_ms()))).scalar_one()
    if left_ms <= 0:
        return
    raise ForeignStore(
        f"the store {bytes(mine.shard_id).hex()} of this node is led at {mine.address} from"
        f" {mine.place}, whose lease runs for {left_ms // 1_000 + 1} s more",
        hint="one of the two data directories is a copy: stop the node of the other, and start this"
        f" one again; a node that was killed counts as gone after {LEASE_MS // 1_000} s",
    )


async def leave(connection: AsyncConnection, name: str, grant_id: bytes) -> None:
    """The start that leads the shard ends: the store may be started from anywhere."""
    await versions.lock(connection)
    row = shards.c
    is_ours = row.name == name, row.grant_id == grant_id, row.segment_bytes.is_(None)
    found = (await connection.execute(select(row.leader, row.epoch).where(*is_ours))).one_or_none()
    if found is None:
        return
    values = {"place": "", "lease_until_ms": 0}
    await connection.execute(update(shards).where(*is_ours).values(values))
    await note(connection, Event("shard_left", name, found.leader or "", found.epoch))


async def find(connection: AsyncConnection, shard_id: bytes) -> str | None:
    """The name of the shard that is this store."""
    found = await connection.scalar(select(shards.c.name).where(shards.c.shard_id == shard_id))
    return None if found is None else str(found)


async def lead(
    connection: AsyncConnection, name: str, grant_id: bytes, epoch: int
) -> tuple[int, int]:
    """Enter the epoch in which the shard is led, unless another start leads it meanwhile, and let
    other nodes hear of it and of where its node is: also one that led it before, which there may be
    on a lone shard, too. The metadata's version before and after it: in SQLite, which has one node,
    it is not raised."""
    version = await versions.lock(connection)
    row = shards.c
    is_ours = row.name == name, row.grant_id == grant_id, row.segment_bytes.is_(None)
    found = (await connection.execute(select(row.leader, row.epoch).where(*is_ours))).one_or_none()
    if found is not None and found.epoch != epoch:
        await connection.execute(update(shards).where(*is_ours).values(epoch=epoch))
        await note(connection, Event("shard_led", name, found.leader or "", epoch))
    if connection.dialect.name != "postgresql":
        return version, version
    await versions.raise_to(connection, version + 1)
    return version, version + 1


async def _give_deletions(connection: AsyncConnection, name: str) -> None:
    """Leave what a shard has not deleted yet to the store that comes next: it may be the same, from
    a copy or under another name, and would show again what is deleted."""
    row = tombstones.c
    columns = [column for column in row if column is not row.shard]
    left = select(*columns, literal(UNCLAIMED)).where(row.shard == name)
    names = [*(column.name for column in columns), "shard"]
    insertion = upsert(connection, tombstones).from_select(names, left)
    key = [column.name for column in tombstones.primary_key]
    await connection.execute(insertion.on_conflict_do_nothing(index_elements=key))
    await connection.execute(delete(tombstones).where(row.shard == name))


async def release(connection: AsyncConnection, name: str | None) -> tuple[str, bytes] | None:
    """Forget a shard, by default the only one: the next new store that starts has its queues.

    Name and store of it; None when there was none. Raises `ForeignStore` when there are several to
    choose from, or others only.
    """
    version = await versions.lock(connection)
    rows = (await connection.execute(select(shards).order_by(shards.c.name))).all()
    found = [row for row in rows if name in (None, row.name)]
    if len(found) > 1:
        raise ForeignStore(
            f"the metadata database has {len(found)} shards: "
            + ", ".join(row.name for row in found[:20]),
            hint="say which is gone for good: --shard NAME",
        )
    if rows and not found:
        raise ForeignStore(
            f"the metadata database has no shard {name!r}; it has "
            + ", ".join(row.name for row in rows[:20]),
            hint="say which is gone for good: --shard NAME",
        )
    if not found:
        return None
    (gone,) = found
    await _refuse_replicas_at_work(connection, gone.name)
    await connection.execute(delete(shards).where(shards.c.name == gone.name))
    await connection.execute(
        update(topic_queues).where(topic_queues.c.shard == gone.name).values(shard=UNCLAIMED)
    )
    await connection.execute(delete(consumptions).where(consumptions.c.shard == gone.name))
    await _give_deletions(connection, gone.name)
    said = f"store {bytes(gone.shard_id).hex()}"
    await note(connection, Event("shard_released", gone.name, gone.leader or "", gone.epoch, said))
    if connection.dialect.name == "postgresql":
        await versions.raise_to(connection, version + 1)
    return gone.name, bytes(gone.shard_id)


async def _refuse_replicas_at_work(connection: AsyncConnection, name: str) -> None:
    """Raise while a replica gave a sign of life: its leader would go on confirming, and another
    store have the queues."""
    if connection.dialect.name != "postgresql":
        return
    row = shard_replicas.c
    is_at_work = row.shard == name, row.seen_ms > clock_ms() - LEASE_MS
    urls = (await connection.execute(select(row.cluster_url).where(*is_at_work))).scalars().all()
    if urls:
        raise ForeignStore(
            f"the shard {name!r} has replicas at work at {', '.join(sorted(urls))}",
            hint=f"stop them first; one that was killed counts as gone after {LEASE_MS // 1_000} s",
        )


async def load(connection: AsyncConnection) -> list[ShardView]:
    """All of them, by name, with what their leaders say of themselves, and their replicas."""
    members: dict[str, list[ReplicaMember]] = defaultdict(list)
    at: dict[tuple[str, str], ReplicaMember] = {}
    joined = shard_replicas.c
    order = joined.shard, joined.joined_ms, joined.node_id
    for each in await connection.execute(select(shard_replicas).order_by(*order)):
        member = ReplicaMember(each.node_id, each.cluster_url, each.advertise_url, each.zone)
        members[each.shard].append(member)
        at[each.shard, each.node_id] = member
    query = (
        select(shards, nodes.c.advertise_url, nodes.c.cluster_url)
        .outerjoin(nodes, shards.c.leader == nodes.c.node_id)
        .order_by(shards.c.name)
    )
    return [
        _view_of(row, members[row.name], at.get((row.name, row.leader or "")))
        for row in await connection.execute(query)
    ]


def _view_of(
    row: Row[Any], members: Sequence[ReplicaMember], leader: ReplicaMember | None
) -> ShardView:
    """Where it is led is what the node says that registered; before that, what it joined with."""
    return ShardView(
        row.name,
        bytes(row.shard_id),
        row.epoch,
        row.leader or "",
        row.advertise_url or (leader and leader.advertise_url) or "",
        row.cluster_url or (leader and leader.cluster_url) or "",
        tuple(members),
        tuple(node for node, _ in json.loads(row.in_sync)),
        row.target_replicas,
        row.min_in_sync,
        Takes(row.takes),
    )
