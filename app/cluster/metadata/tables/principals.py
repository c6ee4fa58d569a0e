"""Principals and their API keys in SQL, and the keyring that a node answers by.

Every change takes the lock of `access_state`, raises its version, and leaves at least one live key
of an administrator; it closes the cluster for ever: no deletion opens it, only `open_to_anybody`.
Of a key its digest is stored. Event loop only. Any method may raise `MetadataUnavailable`.
"""

import json
import logging
import re
from secrets import token_bytes
from types import MappingProxyType
from typing import Final, NamedTuple

from sqlalchemy import delete, func, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from app.cluster.metadata.database.database import Database
from app.cluster.metadata.schema.tables import access_state, api_keys, principals
from app.domain.access.actions import Action
from app.domain.access.audit import Change, ChangeLog, Shown
from app.domain.access.keyring import Keyring, KnownKey
from app.domain.access.keys import KEY_ID_BYTES, KEY_SECRET_BYTES, NewKey, digest_of, make_key
from app.domain.access.roles import Role
from app.domain.clock import Clock
from app.domain.errors import InvalidRequest, StateConflict
from app.domain.limits import KEYS_OF_A_PRINCIPAL_MAX, NAME_CHARS_MAX, PRINCIPALS_MAX
from app.domain.positions import TimestampMs

_LOG: Final = logging.getLogger(__name__)

FIRST_ADMINISTRATOR: Final = "admin"
_NAME: Final = re.compile(rf"[A-Za-z0-9_.@-]{{1,{NAME_CHARS_MAX}}}")


class ListedKey(NamedTuple):
    """A key as operators see it."""

    principal: str
    key_id: str
    created_ms: TimestampMs
    expires_ms: TimestampMs | None
    is_live: bool


class Principals:
    """Reachable as `Metadata.principals`."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self.audit: ChangeLog[AsyncConnection] | None = None
        """Told of each change, within its transaction."""
        self.keyring = Keyring()
        """What is known now; replaced as a whole. Read by each request, so a plain attribute."""
        self._closed_here = False
        self._told_of_regress = False

    def close_here(self) -> None:
        """Ask for keys from now on, whatever the database says."""
        self._closed_here = True
        self.keyring = Keyring(True, self.keyring.keys, self.keyring.version)

    async def refresh(self, *, is_first: bool = False) -> None:
        """Take over what was changed elsewhere. An older database revives no key."""
        async with self._database.reading() as connection:
            version, closed_ms = await _state(connection)
            known = self.keyring.version
            if version <= known and not is_first:
                if version < known and not self._told_of_regress:
                    self._told_of_regress = True
                    _LOG.error(
                        "the metadata database knows fewer changes of keys (%d) than this node "
                        "(%d): it is an older copy; its keys are not taken over",
                        version,
                        known,
                    )
                return
            found = select(api_keys, principals.c.roles).join(principals)
            rows = await connection.execute(found)
            keys = {
                bytes(row.digest): KnownKey(row.principal, row.key_id, row.expires_ms)
                for row in rows
                if Role.ADMIN in json.loads(row.roles)
            }
        self._closed_here = self._closed_here or closed_ms is not None
        self.keyring = Keyring(self._closed_here, MappingProxyType(keys), version)

    async def make_first(self, given: NewKey | None = None) -> NewKey:
        """The first administrator and its key, a new one unless it is given.

        Of two at once the second is refused.
        """
        async with self._database.transaction() as connection:
            await _lock(connection)
            if await connection.scalar(select(func.count()).select_from(principals)):
                raise StateConflict(
                    "there is an administrator already",
                    hint="use its key; when it is lost, make another administrator with "
                    "`curlew key create NAME --role admin`, with the settings of the node",
                )
            return await self._add(connection, FIRST_ADMINISTRATOR, None, given)

    async def create(self, name: str, expires_ms: TimestampMs | None) -> NewKey:
        """A new administrator and its key."""
        if not _NAME.fullmatch(name):
            raise InvalidRequest(
                f"{name!r} is no name of a principal",
                hint=f"use 1 to {NAME_CHARS_MAX} letters, digits and _ . @ -",
            )
        async with self._database.transaction() as connection:
            await _lock(connection)
            count = await connection.scalar(select(func.count()).select_from(principals)) or 0
            if await connection.scalar(select(principals.c.name).where(principals.c.name == name)):
                raise StateConflict(
                    f"there is a principal {name!r} already",
                    hint=f"give it another key with `curlew key rotate {name}`",
                )
            if count >= PRINCIPALS_MAX:
                raise StateConflict(f"there are {PRINCIPALS_MAX} principals, the most there may be")
            made = await self._add(connection, name, expires_ms)
            await self._refuse_lock_out(connection)
            return made

    async def rotate(self, name: str, expires_ms: TimestampMs | None) -> NewKey:
        """Another key for a principal; the one that it has goes on to work until it is revoked."""
        async with self._database.transaction() as connection:
            await _lock(connection)
            await _require(connection, name)
            await connection.execute(
                delete(api_keys).where(
                    api_keys.c.principal == name, api_keys.c.expires_ms <= self._clock.now_ms()
                )
            )
            own = select(api_keys.c.key_id).where(api_keys.c.principal == name)
            rows = await connection.execute(own.order_by(api_keys.c.created_ms))
            present = rows.scalars().all()
            if len(present) >= KEYS_OF_A_PRINCIPAL_MAX:
                raise StateConflict(
                    f"{name!r} has {len(present)} keys, the most there may be",
                    hint=f"revoke the older one: curlew key revoke {name} --key {present[0]}",
                )
            return await self._insert_key(connection, name, expires_ms)

    async def revoke(self, name: str, key_id: str | None = None) -> int:
        """Take one key of a principal away; without an id the principal with all keys.

        How many keys are gone. The last live key of an administrator is not revoked.
        """
        async with self._database.transaction() as connection:
            await _lock(connection)
            await _require(connection, name)
            chosen = delete(api_keys).where(api_keys.c.principal == name)
            if key_id is not None:
                chosen = chosen.where(api_keys.c.key_id == key_id)
            gone = (await connection.execute(chosen)).rowcount
            if key_id is not None and not gone:
                raise InvalidRequest(
                    f"{name!r} has no key {key_id!r}", hint="`curlew key list` shows all"
                )
            if key_id is None:
                await connection.execute(delete(principals).where(principals.c.name == name))
            await self._refuse_lock_out(connection)
            resource = f"principal:{name}" if key_id is None else f"key:{name}/{key_id}"
            await self._note(connection, Action.DELETE, resource, {"keys": gone}, None)
            return gone

    async def keys(self) -> list[ListedKey]:
        """All keys, by principal and age."""
        order = api_keys.c.principal, api_keys.c.created_ms, api_keys.c.key_id
        now_ms = self._clock.now_ms()
        async with self._database.reading() as connection:
            return [
                ListedKey(
                    row.principal,
                    row.key_id,
                    row.created_ms,
                    row.expires_ms,
                    row.expires_ms is None or row.expires_ms > now_ms,
                )
                for row in await connection.execute(select(api_keys).order_by(*order))
            ]

    async def open_to_anybody(self) -> int:
        """Forget all principals and keys, and ask for none. How many keys are gone."""
        async with self._database.transaction() as connection:
            version = await _lock(connection)
            gone = (await connection.execute(delete(api_keys))).rowcount
            await connection.execute(delete(principals))
            await connection.execute(
                update(access_state).values(version=version + 1, closed_ms=None)
            )
            await self._note(connection, Action.DELETE, "principals", {"keys": gone}, None)
            return gone

    async def _note(
        self,
        connection: AsyncConnection,
        action: Action,
        resource: str,
        before: Shown | None,
        after: Shown | None,
    ) -> None:
        if self.audit is not None:
            await self.audit.changed(connection, Change(action, resource, before, after))

    async def _add(
        self,
        connection: AsyncConnection,
        name: str,
        expires_ms: TimestampMs | None,
        given: NewKey | None = None,
    ) -> NewKey:
        await connection.execute(
            insert(principals).values(
                name=name,
                roles=json.dumps([Role.ADMIN]),
                namespace="",
                created_ms=self._clock.now_ms(),
            )
        )
        await connection.execute(
            update(access_state)
            .where(access_state.c.closed_ms.is_(None))
            .values(closed_ms=self._clock.now_ms())
        )
        shown = {"name": name, "roles": [Role.ADMIN]}
        await self._note(connection, Action.CREATE, f"principal:{name}", None, shown)
        return await self._insert_key(connection, name, expires_ms, given)

    async def _insert_key(
        self,
        connection: AsyncConnection,
        name: str,
        expires_ms: TimestampMs | None,
        given: NewKey | None = None,
    ) -> NewKey:
        key = given or make_key(token_bytes(KEY_ID_BYTES), token_bytes(KEY_SECRET_BYTES))
        await connection.execute(
            insert(api_keys).values(
                key_id=key.key_id,
                principal=name,
                digest=digest_of(key.text.encode("ascii")),
                created_ms=self._clock.now_ms(),
                expires_ms=expires_ms,
            )
        )
        shown = {"id": key.key_id, "expires_ms": expires_ms}
        await self._note(connection, Action.CREATE, f"key:{name}/{key.key_id}", None, shown)
        return key

    async def _refuse_lock_out(self, connection: AsyncConnection) -> None:
        """Raise when no administrator has a key that works: then the transaction is undone."""
        expires = api_keys.c.expires_ms
        is_live = or_(expires.is_(None), expires > self._clock.now_ms())
        if not await connection.scalar(select(func.count()).select_from(api_keys).where(is_live)):
            raise StateConflict(
                "this is the last key of an administrator that works",
                hint="make another one before, with `curlew key rotate` or `curlew key create`",
            )


async def _state(connection: AsyncConnection) -> tuple[int, TimestampMs | None]:
    row = (await connection.execute(select(access_state))).one()
    return row.version, row.closed_ms


async def _lock(connection: AsyncConnection) -> int:
    """Keep other changes out until the transaction ends, and raise the version; the one before."""
    statement = select(access_state.c.version).with_for_update()
    version = int((await connection.execute(statement)).scalar_one())
    await connection.execute(update(access_state).values(version=version + 1))
    return version


async def _require(connection: AsyncConnection, name: str) -> None:
    found = select(principals.c.name).where(principals.c.name == name)
    if await connection.scalar(found) is None:
        raise InvalidRequest(
            f"there is no principal {name!r}", hint="`curlew key list` shows all that have keys"
        )
