"""Schedules in SQL, and who fires which due time.

A due time is claimed by moving the schedule on to its next one in the same transaction that enters
the firing under the node's id; the condition on the old due time lets one node win. The node sends
the message and takes the firing out; after a crash it finds it here. Event loop only.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate

import msgspec
from sqlalchemy import Row, delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from app.cluster.metadata.database.database import Database
from app.cluster.metadata.database.upserts import upsert
from app.cluster.metadata.schema.tables import NUL, schedule_firings, schedules
from app.cluster.metadata.tables import namespaces, room, versions
from app.domain.access.actions import Action
from app.domain.access.audit import Change, ChangeLog, Shown
from app.domain.changes.conditions import Changed, Conditions, Terms
from app.domain.changes.merging import Named, by_name, merged
from app.domain.clock import Clock
from app.domain.limits import PAGE_CHARS_MAX, Limits
from app.domain.names import NAMESPACE_SEPARATOR, stored_name
from app.domain.schedules import (
    SCHEDULE_DEFAULTS,
    Firing,
    Schedule,
    ScheduleSettings,
    missing_schedule,
)

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(ScheduleSettings).decode


class Schedules:
    """Reachable as `Metadata.schedules`."""

    def __init__(
        self, database: Database, clock: Clock, limits: Limits, owned_max: int = 0
    ) -> None:
        """Of each principal at most `owned_max`; 0: any number."""
        self._database = database
        self._clock = clock
        self._limits = limits
        self._owned_max = owned_max
        self.audit: ChangeLog[AsyncConnection] | None = None
        """Told of each change, within its transaction."""

    async def change(
        self,
        name: str,
        named: Named,
        due_of: Callable[[ScheduleSettings], int | None],
        terms: Terms | None = None,
        *,
        owner: str | None = None,
        check: Callable[[Schedule | None], None] = lambda _present: None,
    ) -> Changed[Schedule]:
        """Make a schedule, or merge what is named into it; what changes nothing writes nothing.

        `due_of` says when settings are due next from now on (None: they are paused), or raises what
        is wrong with them. `check` is given what is there, and raises what keeps it as it is. It
        belongs to `owner` from now on, unless that is None.
        """
        terms = terms or Terms()
        now_ms = self._clock.now_ms()
        async with self._database.transaction(is_dry_run=terms.is_dry_run) as connection:
            version = await versions.lock(connection)  # what is read here stays true
            present = await _find(connection, name)
            check(present)
            if present is None and terms.must_exist:
                raise missing_schedule(name)
            terms.conditions.check(f"schedule {name!r}", present.version if present else 0)
            was = present.settings if present else None
            settings = merged(ScheduleSettings, named, was, SCHEDULE_DEFAULTS)
            if present is not None and settings == was:
                return Changed(present, present)
            next_due_ms = due_of(settings)
            if present is None:
                await room.for_schedule(connection, self._limits)
                await namespaces.require(connection, name)
            if present is None or owner not in (None, present.owner):  # then it is one more of it
                most = room.Owner(owner, self._owned_max)
                await room.for_owner(connection, schedules, most, "schedule")
            if present is not None:
                next_due_ms = present.next_due_after(settings, next_due_ms)
            made = Schedule(
                name,
                settings,
                next_due_ms,
                present.created_ms if present else now_ms,
                now_ms,
                await _raise_version(connection, version, present),
                owner or (present.owner if present else None),
            )
            values = {
                "settings": _encode(settings).decode(),
                "next_due_ms": next_due_ms,
                "created_ms": made.created_ms,
                "updated_ms": made.updated_ms,
                "version": made.version,
                "owner": made.owner,
            }
            row = schedules.c
            if present is None:
                await connection.execute(insert(schedules).values(name=name, **values))
            else:
                await connection.execute(update(schedules).where(row.name == name).values(**values))
            await self._note(connection, name, present, made)
        return Changed(present, made)

    async def put(
        self,
        name: str,
        settings: ScheduleSettings,
        next_due_ms: int | None,
        *,
        if_version: int | None = None,
    ) -> tuple[Schedule, bool]:
        """Make a schedule, or give it all these settings; True: made. `next_due_ms` is from now on;
        None: it is paused."""
        terms = Terms(Conditions.at(if_version))
        changed = await self.change(name, by_name(settings), lambda _: next_due_ms, terms)
        return changed.after, changed.is_made

    async def get(self, name: str) -> Schedule:
        """The schedule, or `ScheduleNotFound`."""
        found = None
        if NUL not in name:
            async with self._database.reading() as connection:
                found = await _find(connection, name)
        if found is None:
            raise missing_schedule(name)
        return found

    async def load(
        self, after: str, limit: int, namespace: str = ""
    ) -> tuple[list[Schedule], bool]:
        """Schedules of a namespace behind a stored name, by name, and whether there are more.

        At most `limit`, and fewer when they are larger than `PAGE_CHARS_MAX` together.
        """
        row = schedules.c
        behind = row.name > after.partition(NUL)[0]
        mark = stored_name(namespace, "") or NAMESPACE_SEPARATOR
        if namespace:
            is_wanted = row.name.startswith(mark, autoescape=True)
        else:
            is_wanted = ~row.name.contains(mark, autoescape=True)
        sizes = select(row.name, func.length(row.settings)).where(behind, is_wanted)
        async with self._database.reading() as connection:
            rows = (await connection.execute(sizes.order_by(row.name).limit(limit + 1))).all()
            totals = accumulate(size for _, size in rows[:limit])
            count = sum(1 for total in totals if total <= PAGE_CHARS_MAX) or 1
            shown = [name for name, _ in rows[:count]]
            query = select(schedules).where(row.name.in_(shown)).order_by(row.name)
            found = [_view(each) for each in await connection.execute(query)]
        return found, len(rows) > count

    async def remove(
        self,
        name: str,
        terms: Terms | None = None,
        *,
        check: Callable[[Schedule], None] = lambda _present: None,
    ) -> Schedule:
        """Delete a schedule, or raise `ScheduleNotFound`. What is claimed is still fired."""
        if NUL in name:
            raise missing_schedule(name)
        terms = terms or Terms()
        async with self._database.transaction(is_dry_run=terms.is_dry_run) as connection:
            version = await versions.lock(connection)
            present = await _find(connection, name)
            if present is None:
                raise missing_schedule(name)
            check(present)
            terms.conditions.check(f"schedule {name!r}", present.version)
            await _raise_version(connection, version, present)
            await connection.execute(delete(schedules).where(schedules.c.name == name))
            await self._note(connection, name, present, None)
        return present

    async def _note(
        self,
        connection: AsyncConnection,
        name: str,
        before: Schedule | None,
        after: Schedule | None,
    ) -> None:
        if self.audit is None:
            return
        action = Action.CREATE if before is None else Action.UPDATE
        action = Action.DELETE if after is None else action
        change = Change(action, f"schedule:{name}", _shown(before), _shown(after))
        await self.audit.changed(connection, change)

    # --- firing

    async def due(self, until_ms: int, limit: int) -> list[Schedule]:
        """Schedules that are due by then, the longest due first."""
        row = schedules.c
        query = (
            select(schedules)
            .where(row.next_due_ms <= until_ms)
            .order_by(row.next_due_ms)
            .limit(limit)
        )
        async with self._database.asking() as connection:
            return [_view(found) for found in await connection.execute(query)]

    async def move_on(
        self, schedule: Schedule, next_due_ms: int, node_id: str | None
    ) -> Firing | None:
        """Claim the due time for a node, or pass over it (None). None: it is claimed already."""
        assert schedule.next_due_ms is not None
        row = schedules.c
        async with self._database.transaction() as connection:
            moved = await connection.execute(
                update(schedules)
                .where(
                    row.name == schedule.name,
                    row.version == schedule.version,
                    row.next_due_ms == schedule.next_due_ms,
                )
                .values(next_due_ms=next_due_ms)
            )
            if not moved.rowcount or node_id is None:
                return None
            insertion = upsert(connection, schedule_firings).values(
                schedule=schedule.name,
                due_ms=schedule.next_due_ms,
                node_id=node_id,
                settings=_encode(schedule.settings).decode(),
                owner=schedule.owner,
            )
            # A schedule that was made anew may have a due time that was claimed before.
            entered = insertion.on_conflict_do_nothing(index_elements=["schedule", "due_ms"])
            query = entered.returning(schedule_firings.c.schedule)
            if (await connection.execute(query)).first() is None:
                return None
        return Firing(schedule.name, schedule.next_due_ms, schedule.settings, schedule.owner)

    async def firings(self, node_id: str) -> Sequence[Firing]:
        """What a node has claimed and not reported as done."""
        row = schedule_firings.c
        query = (
            select(row.schedule, row.due_ms, row.settings, row.owner)
            .where(row.node_id == node_id)
            .order_by(row.due_ms)
        )
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).all()
        return [
            Firing(name, due_ms, _decode(settings), owner) for name, due_ms, settings, owner in rows
        ]

    async def done(self, firing: Firing) -> None:
        """The message is stored."""
        row = schedule_firings.c
        async with self._database.transaction() as connection:
            await connection.execute(
                delete(schedule_firings).where(
                    row.schedule == firing.schedule, row.due_ms == firing.due_ms
                )
            )


def _shown(schedule: Schedule | None) -> Shown | None:
    """For the audit: when and where to, and not what is sent."""
    if schedule is None:
        return None
    settings = schedule.settings
    return {"topic": settings.topic, "cron": settings.cron, "paused": settings.paused}


async def _raise_version(
    connection: AsyncConnection, version: int, present: Schedule | None
) -> int:
    """The next version: one that no schedule of the name has ever had. The caller holds the lock.

    Schedules of an older program counted by themselves.
    """
    following = max(version, present.version if present else 0) + 1
    await versions.raise_to(connection, following)
    return following


async def _find(connection: AsyncConnection, name: str) -> Schedule | None:
    query = select(schedules).where(schedules.c.name == name)
    row = (await connection.execute(query)).one_or_none()
    return None if row is None else _view(row)


def _view(row: Row[tuple[object, ...]]) -> Schedule:
    return Schedule(
        row.name,
        _decode(row.settings),
        row.next_due_ms,
        row.created_ms,
        row.updated_ms,
        row.version,
        row.owner,
    )
