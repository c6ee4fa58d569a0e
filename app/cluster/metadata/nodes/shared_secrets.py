"""Random keys that all nodes of a cluster share, by name (one signs receipt handles), and which
secret key, of a file outside, the cluster has: its fingerprint, never the key."""

from secrets import token_bytes
from typing import Final

from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncConnection

from app.cluster.metadata.database.upserts import upsert
from app.cluster.metadata.schema.tables import secrets
from app.domain.errors import MetadataUnavailable
from app.domain.positions import TimestampMs

SECRET_BYTES: Final = 32
_FINGERPRINT: Final = "secret-key-fingerprint"
_LOST: Final = (
    "give this node the file that the other nodes have, or a copy of it. If it is lost for good, "
    "what it signed and encrypted cannot be checked or read any more: entries of the audit up to "
    "now count as unsigned; messages, topics, offsets and API keys need it for nothing. Then run "
    "`curlew secret-key accept` with the settings of this node, and start again"
)


class OtherSecretKey(MetadataUnavailable):
    """The cluster has another secret key, or has one and the node has none."""

    title = "The cluster has another secret key"
    retryable = False


async def get_or_create(connection: AsyncConnection, name: str, now_ms: TimestampMs) -> bytes:
    """The secret; of nodes that ask at the same time the first makes it, and all get that one."""
    present = await connection.scalar(select(secrets.c.value).where(secrets.c.name == name))
    if present is not None:  # a full disk, too, takes a transaction that changes nothing
        return bytes(present)
    insertion = upsert(connection, secrets).values(
        name=name, value=token_bytes(SECRET_BYTES), created_ms=now_ms
    )
    await connection.execute(insertion.on_conflict_do_nothing(index_elements=["name"]))
    value = await connection.scalar(select(secrets.c.value).where(secrets.c.name == name))
    assert value is not None
    return bytes(value)


async def claim_key(
    connection: AsyncConnection, fingerprint: str | None, now_ms: TimestampMs
) -> None:
    """Enter the first key of a cluster. Raises `OtherSecretKey` unless it is the one entered."""
    present = await _present(connection)
    if present is None and fingerprint is not None:
        await _enter(connection, fingerprint, now_ms)
        present = await _present(connection)
    if present == fingerprint:
        return
    if fingerprint is None:
        raise OtherSecretKey(
            f"the cluster has the secret key {present}, and this node has no secret_key_file",
            hint=_LOST,
        )
    raise OtherSecretKey(
        f"the secret_key_file of this node holds the key {fingerprint}, and the cluster has the "
        f"key {present}",
        hint=_LOST,
    )


async def accept_key(
    connection: AsyncConnection, fingerprint: str | None, now_ms: TimestampMs
) -> None:
    """From now on this is the cluster's key; None: it has none."""
    await connection.execute(delete(secrets).where(secrets.c.name == _FINGERPRINT))
    if fingerprint is not None:
        await _enter(connection, fingerprint, now_ms)


async def _present(connection: AsyncConnection) -> str | None:
    found = await connection.scalar(select(secrets.c.value).where(secrets.c.name == _FINGERPRINT))
    return None if found is None else bytes(found).decode("ascii")


async def _enter(connection: AsyncConnection, fingerprint: str, now_ms: TimestampMs) -> None:
    """Of nodes that start at the same time, the first counts."""
    insertion = upsert(connection, secrets).values(
        name=_FINGERPRINT, value=fingerprint.encode("ascii"), created_ms=now_ms
    )
    await connection.execute(insertion.on_conflict_do_nothing(index_elements=["name"]))
