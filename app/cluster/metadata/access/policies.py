"""Policies in SQL. Event loop only. Any method may raise `MetadataUnavailable`."""

import json
from collections.abc import Awaitable, Callable

from sqlalchemy import delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from app.cluster.metadata.access.access_changes import AccessChanges, policy_of
from app.cluster.metadata.listing import Page, Wanted, page_of
from app.cluster.metadata.schema.tables import policies
from app.domain.access.accounts import StoredPolicy
from app.domain.access.actions import Action
from app.domain.access.policies import Policy
from app.domain.access.refusals import PolicyNotFound
from app.domain.changes.conditions import Changed, Terms
from app.domain.errors import StateConflict
from app.domain.limits import POLICIES_MAX, Limits


class Policies:
    """Reachable as `Metadata.policies`."""

    def __init__(
        self, changes: AccessChanges, limits: Limits, refresh: Callable[[], Awaitable[None]]
    ) -> None:
        self._changes = changes
        self._limits = limits
        self._refresh = refresh

    async def put(self, policy: Policy, terms: Terms | None = None) -> Changed[StoredPolicy]:
        """Make a policy, or replace it; what changes nothing writes nothing."""
        terms = terms or Terms()
        now_ms = self._changes.clock.now_ms()
        async with self._changes.begin(is_dry_run=terms.is_dry_run) as change:
            connection = change.connection
            present = await _find(connection, policy.name)
            version = 0 if present is None else present.version
            terms.conditions.check(f"policy {policy.name!r}", version)
            if present is not None and present.policy == policy:
                return Changed(present, present)
            values = {
                "subject_kind": str(policy.subject.kind),
                "subject": policy.subject.name,
                "effect": str(policy.effect),
                "actions": json.dumps(sorted(map(str, policy.actions))),
                "patterns": json.dumps([str(each) for each in policy.patterns]),
                "namespace": policy.namespace,
                "version": change.version,
            }
            if present is None:
                count = await connection.scalar(select(func.count()).select_from(policies)) or 0
                if count >= POLICIES_MAX:
                    raise StateConflict(f"there are {POLICIES_MAX} policies, the most there may be")
                row = insert(policies).values(name=policy.name, created_ms=now_ms, **values)
                await connection.execute(row)
            else:
                at = policies.c.name == policy.name
                await connection.execute(update(policies).where(at).values(**values))
            action = Action.CREATE if present is None else Action.UPDATE
            before = None if present is None else present.policy.shown()
            await change.note(action, f"policy:{policy.name}", before, policy.shown())
            made = await _find(connection, policy.name)
        assert made is not None
        if not terms.is_dry_run:
            await self._refresh()
        return Changed(present, made)

    async def remove(self, name: str, terms: Terms | None = None) -> StoredPolicy:
        """Take a policy away, or raise `PolicyNotFound`."""
        terms = terms or Terms()
        async with self._changes.begin(is_dry_run=terms.is_dry_run) as change:
            present = await _find(change.connection, name)
            if present is None:
                raise _missing(name)
            terms.conditions.check(f"policy {name!r}", present.version)
            await change.connection.execute(delete(policies).where(policies.c.name == name))
            await change.note(Action.DELETE, f"policy:{name}", present.policy.shown(), None)
        if not terms.is_dry_run:
            await self._refresh()
        return present

    async def get(self, name: str) -> StoredPolicy:
        """The policy, or `PolicyNotFound`."""
        async with self._changes.database.reading() as connection:
            found = await _find(connection, name)
        if found is None:
            raise _missing(name)
        return found

    async def listed(
        self, *, prefix: str = "", page_size: int = 100, page_token: str | None = None
    ) -> Page[StoredPolicy]:
        """Policies by name."""
        async with self._changes.database.reading() as connection:
            rows = await connection.execute(select(policies))
            found = {
                row.name: StoredPolicy(policy_of(row), row.created_ms, row.version) for row in rows
            }
        return page_of(found, Wanted("", prefix), page_size, page_token, self._limits.page_size_max)


async def _find(connection: AsyncConnection, name: str) -> StoredPolicy | None:
    query = select(policies).where(policies.c.name == name)
    row = (await connection.execute(query)).one_or_none()
    return None if row is None else StoredPolicy(policy_of(row), row.created_ms, row.version)


def _missing(name: str) -> PolicyNotFound:
    return PolicyNotFound(f"there is no policy {name!r}", hint="GET /v1/policies lists them")
