"""Nodes in SQL: who is there, where, with which store. No part of the snapshot."""

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from app.cluster.snapshot import NodeView
from app.cluster.tables import nodes
from app.cluster.upserts import upsert


async def register(connection: AsyncConnection, node: NodeView) -> None:
    """Enter the node, or replace what an earlier start of it entered."""
    entry = {
        "address": node.address,
        "store_id": node.store_id,
        "started_ms": node.started_ms,
        "seen_ms": node.seen_ms,
    }
    insertion = upsert(connection, nodes).values(node_id=node.node_id, **entry)
    await connection.execute(
        insertion.on_conflict_do_update(index_elements=["node_id"], set_=entry)
    )


async def heartbeat(connection: AsyncConnection, node_id: str, now_ms: int) -> bool:
    """Note a sign of life; False when the node is not registered."""
    statement = update(nodes).where(nodes.c.node_id == node_id).values(seen_ms=now_ms)
    return bool((await connection.execute(statement)).rowcount)


async def load(connection: AsyncConnection) -> list[NodeView]:
    """All nodes, by id."""
    return [
        NodeView(row.node_id, row.address, bytes(row.store_id), row.started_ms, row.seen_ms)
        for row in await connection.execute(select(nodes).order_by(nodes.c.node_id))
    ]
