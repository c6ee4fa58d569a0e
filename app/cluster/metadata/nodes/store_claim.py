"""Whose store a metadata database belongs to: one row. Offsets in it are those of that store."""

from sqlalchemy import delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from app.cluster.metadata.schema.tables import store_claim
from app.cluster.metadata.tables import versions
from app.domain.errors import MetadataUnavailable
from app.domain.positions import TimestampMs


class ForeignStore(MetadataUnavailable):
    """The database belongs to another store; somebody has to act."""

    title = "The metadata database belongs to another store"
    retryable = False


async def claim(
    connection: AsyncConnection, store_id: bytes, address: str, now_ms: TimestampMs
) -> None:
    """Enter the store, or note where it is now. Raises `ForeignStore` when there is another one.

    Of several that start at once the first wins: they take turns at the version's lock.
    """
    await versions.lock(connection)
    row = (await connection.execute(select(store_claim))).one_or_none()
    entry = {"store_id": store_id, "address": address, "claimed_ms": now_ms}
    if row is None:
        await connection.execute(insert(store_claim).values(id=1, **entry))
    elif bytes(row.store_id) == store_id:
        await connection.execute(update(store_claim).values(**entry))
    else:
        raise ForeignStore(
            f"this metadata database belongs to the store {bytes(row.store_id).hex()}, last "
            f"started at {row.address}, and not to the store {store_id.hex()} of this node",
            hint="give each node a database of its own with --database-url; if the other store was"
            " replaced by this one for good, run `curlew release-store` with the same settings"
            " and start again",
        )


async def is_claimed(connection: AsyncConnection, store_id: bytes) -> bool:
    """Whether the database belongs to this store already."""
    found = await connection.scalar(select(store_claim.c.store_id))
    return found is not None and bytes(found) == store_id


async def release(connection: AsyncConnection) -> bytes | None:
    """Forget whose it is: the next store that starts claims it. The id of the one that had it."""
    await versions.lock(connection)
    found = await connection.scalar(select(store_claim.c.store_id))
    await connection.execute(delete(store_claim))
    return None if found is None else bytes(found)
