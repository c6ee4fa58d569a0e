"""Nodes in SQL: who is there, where, with which store. Of each, the snapshot has where the shard
that it leads is reached."""

from sqlalchemy import delete, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from app.cluster.metadata.database.upserts import upsert
from app.cluster.metadata.nodes.cluster_events import Event, note
from app.cluster.metadata.schema.tables import nodes
from app.cluster.metadata.snapshot import NodeView
from app.cluster.metadata.tables import versions
from app.domain.limits import NODES_KEPT_MAX


async def register(connection: AsyncConnection, node: NodeView) -> None:
    """Enter the node, or replace what an earlier start of it entered.

    Of more than `NODES_KEPT_MAX` rows those go that were not seen for longest; a node that was
    forgotten so and lives registers again with its next heartbeat.
    """
    entry = {
        "address": node.address,
        "store_id": node.store_id,
        "started_ms": node.started_ms,
        "seen_ms": node.seen_ms,
        "shard": node.shard,
        "advertise_url": node.advertise_url,
        "cluster_url": node.cluster_url,
        "zone": node.zone,
        "version": node.version,
    }
    await versions.lock(connection)
    said = f"{node.advertise_url or node.address}, version {node.version or 'unknown'}"
    await note(connection, Event("node_registered", node.shard, node.node_id, detail=said))
    insertion = upsert(connection, nodes).values(node_id=node.node_id, **entry)
    await connection.execute(
        insertion.on_conflict_do_update(index_elements=["node_id"], set_=entry)
    )
    row = nodes.c
    newest = select(row.node_id).where(row.node_id != node.node_id)
    kept = newest.order_by(row.seen_ms.desc(), row.node_id).limit(NODES_KEPT_MAX - 1)
    found = (await connection.execute(kept)).scalars().all()
    if len(found) == NODES_KEPT_MAX - 1:
        await connection.execute(delete(nodes).where(row.node_id.not_in([*found, node.node_id])))


async def heartbeat(connection: AsyncConnection, node_id: str, now_ms: int) -> None:
    """Note a sign of life, if the node is registered."""
    statement = update(nodes).where(nodes.c.node_id == node_id).values(seen_ms=now_ms)
    await connection.execute(statement)


async def load(connection: AsyncConnection) -> list[NodeView]:
    """All nodes, by id."""
    return [
        NodeView(
            row.node_id,
            row.address,
            bytes(row.store_id),
            row.started_ms,
            row.seen_ms,
            row.shard,
            row.advertise_url,
            row.cluster_url,
            row.zone,
            row.version,
        )
        for row in await connection.execute(select(nodes).order_by(nodes.c.node_id))
    ]
