"""Principals and their API keys in SQL, and what a node knows of both and of policies.

Every change leaves at least one live key of an administrator; it closes the cluster for ever: no
deletion opens it, only `open_to_anybody`. Of a key its digest is stored. Event loop only. Any
method may raise `MetadataUnavailable`.
"""

import asyncio
import json
import logging
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from secrets import token_bytes
from types import MappingProxyType
from typing import Any, Final

from sqlalchemy import Row, bindparam, delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from app.cluster.metadata.access.access_changes import (
    AccessChange,
    AccessChanges,
    load_policies,
    principal_of,
    state_of,
)
from app.cluster.metadata.listing import Page, Wanted, page_of
from app.cluster.metadata.schema.tables import access_state, api_keys, principals
from app.domain.access.accounts import Account, ListedKey, PrincipalSettings
from app.domain.access.actions import Action
from app.domain.access.audit import ChangeLog, Shown
from app.domain.access.evaluator import Evaluator, Principal
from app.domain.access.keyring import Keyring, KnownKey, PolicyAge
from app.domain.access.keys import KEY_ID_BYTES, KEY_SECRET_BYTES, NewKey, digest_of, make_key
from app.domain.access.refusals import PrincipalNotFound
from app.domain.access.roles import Role
from app.domain.changes.conditions import Changed, Terms
from app.domain.errors import InvalidRequest, PreconditionFailed, StateConflict
from app.domain.limits import (
    KEYS_OF_A_PRINCIPAL_MAX,
    NAME_CHARS_MAX,
    PATTERNS_OF_A_PRINCIPAL_MAX,
    PRINCIPALS_MAX,
    Limits,
)
from app.domain.positions import TimestampMs

_LOG: Final = logging.getLogger(__name__)

FIRST_ADMINISTRATOR: Final = "admin"
_NAME: Final = re.compile(rf"[A-Za-z0-9_.@-]{{1,{NAME_CHARS_MAX}}}")
DOTS: Final = frozenset({".", ".."})
"""Segments of a path that browsers and curl take out of an address, encoded or not (RFC 3986)."""
_ROWS_A_TURN: Final = 500
"""Rows that one turn of the event loop reads; two milliseconds."""


class Principals:
    """Reachable as `Metadata.principals`."""

    def __init__(self, changes: AccessChanges, limits: Limits) -> None:
        self._changes = changes
        self._database = changes.database
        self._clock = changes.clock
        self._limits = limits
        self.keyring = Keyring()
        """What is known now; replaced as a whole. Read by each request, so a plain attribute."""
        self.age = PolicyAge(changes.clock.monotonic_s)
        """How long ago it was the database's."""
        self.used_keys: set[str] = set()
        """Ids of the keys that were shown since `write_last_use`; added to by each request."""
        self.waiting: set[Callable[[], object]] = set()
        """Called when `keyring` was replaced: requests that wait, and streams."""
        self.regressed_to: int | None = None
        """The version of the database, when it is an older copy."""
        self._closed_here = False
        self._is_loaded = False

    @property
    def changes(self) -> AccessChanges:
        """How changes are made; policies share it."""
        return self._changes

    @property
    def audit(self) -> ChangeLog[AsyncConnection] | None:
        """Told of each change of principals, keys and policies, within its transaction."""
        return self._changes.audit

    @audit.setter
    def audit(self, audit: ChangeLog[AsyncConnection] | None) -> None:
        self._changes.audit = audit

    def close_here(self) -> None:
        """Ask for keys from now on, whatever the database says."""
        self._closed_here = True
        known = self.keyring
        self._show(Keyring(True, known.keys, known.version, known.principals, known.evaluator))

    async def refresh(self) -> None:
        """Take over what was changed elsewhere. An older database revives no key.

        One without any principal is no copy: it has lost all, and nothing can come alive.
        """
        async with self._database.reading() as connection:
            version, closed_ms = await state_of(connection)
            known = max(self.keyring.version, self._changes.known_version)
            if version < known:
                is_empty = not await connection.scalar(select(func.count()).select_from(principals))
                if not is_empty or self.keyring.version:
                    self._note_regress(version, known)
                    self.age.renew()  # nothing is revoked there before it counts
                    return
            elif version == self.keyring.version and self._is_loaded:
                self.regressed_to = None
                self.age.renew()
                return
            self.regressed_to = None
            made = await self._read(connection, version, closed_ms is not None)
        self._is_loaded = True
        self.age.renew()
        if made.version >= self.keyring.version:
            self._show(made)

    def is_current(self, version: int) -> bool:
        """Take note of the version that the database has just told; whether nothing is new."""
        if not self._is_loaded or version != self.keyring.version:
            return False
        if version < self._changes.known_version:
            return False
        self.regressed_to = None
        self.age.renew()
        return True

    def _note_regress(self, version: int, known: int) -> None:
        if self.regressed_to is None:
            _LOG.error(
                "the metadata database knows fewer changes of keys (%d) than this node (%d): it is "
                "an older copy; its keys and policies are not taken over",
                version,
                known,
            )
        self.regressed_to = version

    async def _read(self, connection: AsyncConnection, version: int, is_closed: bool) -> Keyring:
        evaluator = Evaluator(await load_policies(connection))
        found: dict[str, Principal] = {}
        keys: dict[bytes, KnownKey] = {}
        for row in (await connection.execute(select(principals))).all():
            found[row.name] = principal_of(row)
            if len(found) % _ROWS_A_TURN == 0:
                await asyncio.sleep(0)
        for row in (await connection.execute(select(api_keys))).all():
            keys[bytes(row.digest)] = KnownKey(row.principal, row.key_id, row.expires_ms)
            if len(keys) % _ROWS_A_TURN == 0:
                await asyncio.sleep(0)
        self._closed_here = self._closed_here or is_closed
        return Keyring(
            self._closed_here, MappingProxyType(keys), version, MappingProxyType(found), evaluator
        )

    def _show(self, keyring: Keyring) -> None:
        self._changes.known_version = max(self._changes.known_version, keyring.version)
        self.keyring = keyring
        self.tell_waiting()

    def tell_waiting(self) -> None:
        """Let all that waits ask again whether it may go on."""
        for look_again in tuple(self.waiting):
            look_again()

    def look_at_age(self) -> None:
        """End what waits, when what is known has become too old to serve anybody. A service calls
        it."""
        if self.age.look(is_closed=self.keyring.is_closed):
            _LOG.error(
                "the metadata database has not told of keys for %.0f s: nobody is served until it "
                "does (policy_age_max)",
                self.age.seconds,
            )
            self.tell_waiting()

    # --- principals

    async def make_first(self, given: NewKey | None = None) -> NewKey:
        """The first administrator and its key, a new one unless it is given.

        Of two at once the second is refused.
        """
        async with self._changes.begin(is_first=True) as change:
            if await change.connection.scalar(select(func.count()).select_from(principals)):
                raise StateConflict(
                    "there is an administrator already",
                    hint="use its key; when it is lost, make another administrator with "
                    "`curlew key create NAME --role admin`, with the settings of the node",
                )
            settings = PrincipalSettings(roles=(str(Role.ADMIN),))
            await self._insert(change, FIRST_ADMINISTRATOR, settings)
            return await self._add_key(change, FIRST_ADMINISTRATOR, None, given)

    async def create(
        self, name: str, settings: PrincipalSettings, expires_ms: TimestampMs | None
    ) -> NewKey:
        """A new principal and its key."""
        check_principal(name)
        async with self._changes.begin() as change:
            if await _find(change.connection, name) is not None:
                raise StateConflict(
                    f"there is a principal {name!r} already",
                    hint=f"give it another key with `curlew key rotate {name}`",
                )
            await self._insert(change, name, settings)
            return await self._add_key(change, name, expires_ms)

    async def put(
        self, name: str, settings: PrincipalSettings, terms: Terms | None = None
    ) -> Changed[Account]:
        """Make a principal, or give it these settings; what changes nothing writes nothing."""
        check_principal(name)
        terms = terms or Terms()
        async with self._changes.begin(is_dry_run=terms.is_dry_run) as change:
            present = await self._account(change.connection, name)
            version = 0 if present is None else present.version
            terms.conditions.check(f"principal {name!r}", version)
            if present is not None and present.settings == settings:
                return Changed(present, present)
            if present is None:
                await self._insert(change, name, settings)
            else:
                await change.connection.execute(
                    update(principals)
                    .where(principals.c.name == name)
                    .values(**_columns(settings), version=change.version)
                )
                shown = {"name": name, **settings.shown()}
                before = {"name": name, **present.settings.shown()}
                await change.note(Action.UPDATE, f"principal:{name}", before, shown)
            made = await self._account(change.connection, name)
        assert made is not None
        if not terms.is_dry_run:
            await self.refresh()
        return Changed(present, made)

    async def remove(self, name: str, terms: Terms | None = None) -> Account:
        """Take a principal away, with all its keys, or raise `PrincipalNotFound`."""
        terms = terms or Terms()
        async with self._changes.begin(is_dry_run=terms.is_dry_run) as change:
            present = await self._account(change.connection, name)
            if present is None:
                raise _missing(name)
            terms.conditions.check(f"principal {name!r}", present.version)
            await change.connection.execute(delete(api_keys).where(api_keys.c.principal == name))
            await change.connection.execute(delete(principals).where(principals.c.name == name))
            before = {"name": name, **present.settings.shown()}
            await change.note(Action.DELETE, f"principal:{name}", before, None)
        if not terms.is_dry_run:
            await self.refresh()
        return present

    async def get(self, name: str) -> Account:
        """The principal with its keys, or `PrincipalNotFound`."""
        async with self._database.reading() as connection:
            found = await self._account(connection, name)
        if found is None:
            raise _missing(name)
        return found

    async def listed(
        self, *, prefix: str = "", page_size: int = 100, page_token: str | None = None
    ) -> Page[Account]:
        """Principals by name."""
        async with self._database.reading() as connection:
            names = (await connection.execute(select(principals.c.name))).scalars().all()
            page = page_of(
                {name: name for name in names},
                Wanted("", prefix),
                page_size,
                page_token,
                self._limits.page_size_max,
            )
            accounts = await self._accounts(connection, page.items)
        return Page(tuple(accounts[name] for name in page.items), page.next_page_token)

    # --- keys

    def now_ms(self) -> int:
        """By the clock that keys expire by."""
        return self._clock.now_ms()

    async def rotate(
        self,
        name: str,
        expires_ms: TimestampMs | None,
        *,
        known_keys: Collection[str] | None = None,
        is_dry_run: bool = False,
    ) -> NewKey:
        """Another key for a principal; the one that it has goes on to work until it is revoked.

        Raises `PreconditionFailed` when its keys are others than `known_keys`: of two that are to
        make a key at once, through any nodes, one makes it."""
        async with self._changes.begin(is_dry_run=is_dry_run) as change:
            account = await self._account(change.connection, name)
            if account is None:
                raise _missing(name)
            if known_keys is not None and {each.key_id for each in account.keys} != {*known_keys}:
                raise PreconditionFailed(
                    f"the keys of {name!r} are others than the request knows of",
                    hint=f"look at them with GET /v1/principals/{name}: one may be of this request",
                )
            await change.connection.execute(
                delete(api_keys).where(
                    api_keys.c.principal == name, api_keys.c.expires_ms <= self._clock.now_ms()
                )
            )
            own = select(api_keys.c.key_id).where(api_keys.c.principal == name)
            rows = await change.connection.execute(own.order_by(api_keys.c.created_ms))
            present = rows.scalars().all()
            if len(present) >= KEYS_OF_A_PRINCIPAL_MAX:
                raise StateConflict(
                    f"{name!r} has {len(present)} keys, the most there may be",
                    hint=f"revoke the older one: curlew key revoke {name} --key {present[0]}",
                )
            return await self._add_key(change, name, expires_ms)

    async def revoke(
        self, name: str, key_id: str | None = None, *, is_dry_run: bool = False
    ) -> int:
        """Take one key of a principal away; without an id the principal with all keys.

        How many keys are gone. The last live key of an administrator is not revoked.
        """
        if key_id is None:
            return len((await self.remove(name, Terms(is_dry_run=is_dry_run))).keys)
        async with self._changes.begin(is_dry_run=is_dry_run) as change:
            if await _find(change.connection, name) is None:
                raise _missing(name)
            chosen = delete(api_keys).where(
                api_keys.c.principal == name, api_keys.c.key_id == key_id
            )
            gone = (await change.connection.execute(chosen)).rowcount
            if not gone:
                raise PrincipalNotFound(
                    f"{name!r} has no key {key_id!r}", hint="`curlew key list` shows all"
                )
            await change.note(Action.DELETE, f"key:{name}/{key_id}", {"id": key_id}, None)
        return gone

    async def accounts(self) -> list[Account]:
        """All principals with their keys, by name."""
        async with self._database.reading() as connection:
            names = (await connection.execute(select(principals.c.name))).scalars().all()
            found = await self._accounts(connection, names)
        return [found[name] for name in sorted(found)]

    async def open_to_anybody(self) -> int:
        """Forget all principals and keys, and ask for none. How many keys are gone."""
        async with self._changes.begin(is_first=True, may_lock_out=True) as change:
            gone = (await change.connection.execute(delete(api_keys))).rowcount
            await change.connection.execute(delete(principals))
            await change.connection.execute(update(access_state).values(closed_ms=None))
            await change.note(Action.DELETE, "principals", {"keys": gone}, None)
            return gone

    async def accept(self) -> int:
        """Let this database count although it knows less than the node remembers; its version."""
        async with self._changes.begin(is_first=True, may_lock_out=True) as change:
            await change.note(Action.UPDATE, "principals", None, {"version": change.version})
            return change.version

    async def write_last_use(self) -> None:
        """Write down which keys were shown since this was called last. A service calls it."""
        if not self.used_keys:
            return
        used = sorted(self.used_keys)
        self.used_keys.clear()
        now_ms = self._clock.now_ms()
        column = api_keys.c
        statement = (
            update(api_keys)
            .where(column.key_id == bindparam("of_key"))
            .values(last_used_ms=bindparam("at_ms"))
        )
        async with self._database.transaction() as connection:
            rows = [{"of_key": key_id, "at_ms": now_ms} for key_id in used]
            await connection.execute(statement, rows)

    # --- rows

    async def _insert(self, change: AccessChange, name: str, settings: PrincipalSettings) -> None:
        count = await change.connection.scalar(select(func.count()).select_from(principals)) or 0
        if count >= PRINCIPALS_MAX:
            raise StateConflict(f"there are {PRINCIPALS_MAX} principals, the most there may be")
        now_ms = self._clock.now_ms()
        await change.connection.execute(
            insert(principals).values(
                name=name, **_columns(settings), created_ms=now_ms, version=change.version
            )
        )
        await change.connection.execute(
            update(access_state).where(access_state.c.closed_ms.is_(None)).values(closed_ms=now_ms)
        )
        shown = {"name": name, **settings.shown()}
        await change.note(Action.CREATE, f"principal:{name}", None, shown)

    async def _add_key(
        self,
        change: AccessChange,
        name: str,
        expires_ms: TimestampMs | None,
        given: NewKey | None = None,
    ) -> NewKey:
        key = given or make_key(token_bytes(KEY_ID_BYTES), token_bytes(KEY_SECRET_BYTES))
        await change.connection.execute(
            insert(api_keys).values(
                key_id=key.key_id,
                principal=name,
                digest=digest_of(key.text.encode("ascii")),
                created_ms=self._clock.now_ms(),
                expires_ms=expires_ms,
            )
        )
        shown: Shown = {"id": key.key_id, "expires_ms": expires_ms}
        await change.note(Action.CREATE, f"key:{name}/{key.key_id}", None, shown)
        return key

    async def _account(self, connection: AsyncConnection, name: str) -> Account | None:
        return (await self._accounts(connection, (name,))).get(name)

    async def _accounts(
        self, connection: AsyncConnection, names: Sequence[str]
    ) -> dict[str, Account]:
        order = api_keys.c.created_ms, api_keys.c.key_id
        keys: dict[str, list[ListedKey]] = defaultdict(list)
        found: dict[str, Account] = {}
        now_ms = self._clock.now_ms()
        for first in range(0, len(names), _ROWS_A_TURN):
            part = names[first : first + _ROWS_A_TURN]
            query = select(api_keys).where(api_keys.c.principal.in_(part)).order_by(*order)
            for row in await connection.execute(query):
                keys[row.principal].append(_key_of(row, now_ms))
            query = select(principals).where(principals.c.name.in_(part))
            for row in await connection.execute(query):
                found[row.name] = _account_of(row, keys[row.name])
        return found


def _columns(settings: PrincipalSettings) -> dict[str, object]:
    if len(settings.patterns) > PATTERNS_OF_A_PRINCIPAL_MAX:
        raise InvalidRequest(
            f"{len(settings.patterns)} resources; a principal has at most "
            f"{PATTERNS_OF_A_PRINCIPAL_MAX}",
            hint="name them by prefixes, or in policies",
        )
    return {
        "roles": json.dumps(list(settings.roles)),
        "patterns": json.dumps([str(each) for each in settings.patterns]),
        "namespace": settings.namespace,
        "disabled": settings.is_disabled,
        "allowed_from": json.dumps(list(settings.allowed_from)),
    }


def _key_of(row: Row[Any], now_ms: TimestampMs) -> ListedKey:
    is_live = row.expires_ms is None or row.expires_ms > now_ms
    return ListedKey(row.key_id, row.created_ms, row.expires_ms, row.last_used_ms, is_live)


def _account_of(row: Row[Any], keys: Sequence[ListedKey]) -> Account:
    found = principal_of(row)
    settings = PrincipalSettings(
        found.roles, found.patterns, found.namespace, found.is_disabled, found.allowed_from
    )
    return Account(row.name, settings, tuple(keys), row.created_ms, row.version)


async def _find(connection: AsyncConnection, name: str) -> str | None:
    found: str | None = await connection.scalar(
        select(principals.c.name).where(principals.c.name == name)
    )
    return found


def check_principal(name: str) -> None:
    """Raise `InvalidRequest` unless a principal may have the name."""
    if not _NAME.fullmatch(name):
        raise InvalidRequest(
            f"{name!r} is no name of a principal",
            hint=f"use 1 to {NAME_CHARS_MAX} letters, digits and _ . @ -",
        )
    if name in DOTS:
        raise InvalidRequest(
            f"{name!r} is no name of a principal: it is no part of an address",
            hint="use another name: clients resolve . and .. in a path and never send them",
        )


def _missing(name: str) -> PrincipalNotFound:
    return PrincipalNotFound(
        f"there is no principal {name!r}", hint="`curlew key list` shows all that have keys"
    )
