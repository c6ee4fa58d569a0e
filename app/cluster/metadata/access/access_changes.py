"""What all changes of who may do what have in common: one lock, one version, one audit, and never
the last administrator gone. Event loop only.

A change takes the lock of `access_state` and raises its version, which is not the metadata's: a
topic that is made changes no rights. It is refused while the database is an older copy, and while
the audit cannot be written.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import inf
from typing import Any, Final

from sqlalchemy import Row, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from app.cluster.metadata.database.database import Database
from app.cluster.metadata.schema.tables import access_state, api_keys, policies, principals
from app.domain.access.actions import CLUSTER, Action
from app.domain.access.audit import Change, ChangeLog, Shown
from app.domain.access.evaluator import Evaluator, Principal
from app.domain.access.policies import (
    Effect,
    Policy,
    Subject,
    SubjectKind,
    read_actions,
    read_pattern,
)
from app.domain.access.refusals import PolicyRegressed
from app.domain.access.roles import Role
from app.domain.clock import Clock
from app.domain.errors import StateConflict
from app.domain.limits import ADMINISTRATOR_MS_MIN
from app.domain.positions import TimestampMs

_HAS_ROLE: Final = f'%"{Role.ADMIN}"%'


class AccessChange:
    """One transaction that changes who may do what, and its version."""

    def __init__(
        self, connection: AsyncConnection, version: int, audit: ChangeLog[AsyncConnection] | None
    ) -> None:
        self.connection = connection
        self.version = version
        self._audit = audit

    async def note(
        self, action: Action, resource: str, before: Shown | None, after: Shown | None
    ) -> None:
        """Tell the audit."""
        if self._audit is not None:
            await self._audit.changed(self.connection, Change(action, resource, before, after))


class AccessChanges:
    """Makes transactions that change who may do what. Shared by principals and policies."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self.database = database
        self.clock = clock
        self.audit: ChangeLog[AsyncConnection] | None = None
        """Told of each change, within its transaction."""
        self.known_version = 0
        """The newest that this node, or its data directory, has ever seen."""

    @asynccontextmanager
    async def begin(
        self, *, is_dry_run: bool = False, is_first: bool = False, may_lock_out: bool = False
    ) -> AsyncIterator[AccessChange]:
        """A change. Raises `PolicyRegressed` for an older copy of the database, and `StateConflict`
        when no administrator would have a key that works; then nothing is changed.

        `is_first`: of a database without principals, which is no copy; or which is to count.
        `may_lock_out`: though nobody is administrator then.
        """
        async with self.database.transaction(is_dry_run=is_dry_run) as connection:
            version = await lock(connection)
            if version < self.known_version and not is_first:
                raise regressed(version, self.known_version)
            version = max(version, self.known_version) + 1
            before = 0.0 if may_lock_out else await self._administered_until(connection)
            await connection.execute(update(access_state).values(version=version))
            yield AccessChange(connection, version, self.audit)
            if not may_lock_out:
                await self._refuse_lock_out(connection, before)

    async def _refuse_lock_out(self, connection: AsyncConnection, before: float) -> None:
        """`before` is until when there was an administrator. A key that ends soon is one only where
        there was none that lasts: it would lock everybody out a little later."""
        after = await self._administered_until(connection)
        if after and after >= min(before, self.clock.now_ms() + ADMINISTRATOR_MS_MIN):
            return
        if not before:
            raise StateConflict(
                "there is no administrator yet, and this would close the node to everybody",
                hint="make the first one: `curlew init`, with the settings of the node",
            )
        hours = ADMINISTRATOR_MS_MIN // 3_600_000
        raise StateConflict(
            "this would leave no administrator with a key that works"
            + (f" for {hours} hours or more" if after else ""),
            hint="make another one before: PUT /v1/principals/{name} with the role admin and POST "
            "…/keys, or `curlew key create NAME --role admin`",
        )

    async def _administered_until(self, connection: AsyncConnection) -> float:
        """When the last key of an administrator ends that works now; 0: none does."""
        now_ms = self.clock.now_ms()
        is_live = or_(api_keys.c.expires_ms.is_(None), api_keys.c.expires_ms > now_ms)
        of_it = api_keys.c.principal == principals.c.name
        query = (
            select(principals, api_keys.c.expires_ms)
            .join(api_keys, of_it)
            .where(principals.c.roles.like(_HAS_ROLE), is_live)
        )
        evaluator = Evaluator(await load_policies(connection))
        return max(
            (
                inf if row.expires_ms is None else float(row.expires_ms)
                for row in await connection.execute(query)
                if evaluator.decide(principal_of(row), Action.ADMIN, CLUSTER).is_allowed
            ),
            default=0.0,
        )


def regressed(version: int, known: int) -> PolicyRegressed:
    """The refusal of an older copy of the database."""
    return PolicyRegressed(
        f"the metadata database knows fewer changes of keys and policies ({version}) than this "
        f"node has seen ({known}): it is an older copy",
        hint="bring the newer database back; or, if this one is to count, with all keys that it "
        "has: `curlew security accept` with the settings of this node",
        fields={"version": version, "known_version": known},
    )


async def lock(connection: AsyncConnection) -> int:
    """Keep other changes out until the transaction ends; the version."""
    statement = select(access_state.c.version).with_for_update()
    return int((await connection.execute(statement)).scalar_one())


async def state_of(connection: AsyncConnection) -> tuple[int, TimestampMs | None]:
    """The version, and since when the cluster is closed (None: it is open)."""
    row = (await connection.execute(select(access_state))).one()
    return row.version, row.closed_ms


async def load_policies(connection: AsyncConnection) -> list[Policy]:
    """All policies, by name."""
    rows = await connection.execute(select(policies).order_by(policies.c.name))
    return [policy_of(row) for row in rows]


def policy_of(row: Row[Any]) -> Policy:
    """As it was written."""
    return Policy(
        row.name,
        Subject(SubjectKind(row.subject_kind), row.subject),
        Effect(row.effect),
        read_actions(json.loads(row.actions)),
        tuple(map(read_pattern, json.loads(row.patterns))),
        row.namespace,
    )


def principal_of(row: Row[Any]) -> Principal:
    """As it is decided on."""
    return Principal(
        row.name,
        tuple(json.loads(row.roles)),
        row.namespace,
        tuple(map(read_pattern, json.loads(row.patterns))),
        row.disabled,
        tuple(json.loads(row.allowed_from)),
    )
