"""A table of things with settings and a version, by name: topics, consumer groups.

One implementation for both: finding, making, changing and deleting a row, each a step of the
caller's transaction. What is particular to a kind is in the functions that it gives. Changes are
made under `versions.lock`, so what was read stays true until the commit.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Generic, Protocol, TypeVar

from sqlalchemy import Row, Table, delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from app.cluster.metadata.tables import deletions, namespaces, room, versions
from app.cluster.metadata.tables.room import Owner
from app.domain.changes.conditions import Changed, Conditions, Terms
from app.domain.changes.merging import Named, Settings, by_name, merged, without_changes
from app.domain.errors import NotFound
from app.domain.identity import Deletion, Kind, new_generation
from app.domain.limits import Limits
from app.domain.positions import TimestampMs
from app.domain.schedules import ScheduleSettings
from app.domain.settings import GroupSettings, TopicSettings

_Settings_co = TypeVar(
    "_Settings_co", TopicSettings, GroupSettings, ScheduleSettings, covariant=True
)


class Kept(Protocol[_Settings_co]):
    """A row as a value."""

    @property
    def name(self) -> str: ...
    @property
    def settings(self) -> _Settings_co: ...
    @property
    def version(self) -> int: ...
    @property
    def generation(self) -> int: ...
    @property
    def created_ms(self) -> TimestampMs: ...


View = TypeVar("View", bound=Kept[Any])
Columns = Mapping[str, str | int | float | None]


def as_arguments(settings: TopicSettings | GroupSettings, **renamed: str) -> dict[str, Any]:
    """Settings by name, for the view that has them: under another name where `renamed` says so."""
    return {
        renamed.get(each.name, each.name): getattr(settings, each.name) for each in fields(settings)
    }


@dataclass(frozen=True, slots=True)
class Change(Generic[Settings]):
    """A change that is asked for."""

    named: Named
    defaults: Settings
    """Of a thing that is made."""
    check: Callable[[Settings], None]
    """Raises when a setting is outside its range; given what the change brings, and defaults."""
    now_ms: TimestampMs
    terms: Terms
    limits: Limits
    owner: Owner
    """Of a thing that is made."""


@dataclass(frozen=True, slots=True)
class SettingsTable(Generic[View, Settings]):
    """One kind of things. The functions take what they are asked of first."""

    table: Table
    noun: str
    """What error texts call it."""
    view: Callable[[Row[*tuple[object, ...]]], View]
    columns: Callable[[View], Columns]
    """Of a row, but for its name and when it was made."""
    made: Callable[[str, Settings, int, TimestampMs, int], View]
    """A new thing of this name, these settings, this generation, time and version."""
    altered: Callable[[View, Settings, TimestampMs, int], View]
    """The thing with other settings; raises when it cannot have them."""
    missing: Callable[[str], NotFound]
    check_room: Callable[[AsyncConnection, Settings | None, Settings, Limits], Awaitable[None]]
    """Given what was and what shall be; raises `StateConflict` when the cluster would hold more
    than it may."""
    kind: Kind | None = None
    """Of what has generations, whose deletion leaves a tombstone."""
    follow: Callable[[AsyncConnection, View | None, View], Awaitable[None]] | None = None
    """Given what was and what is: writes what else there is to write."""
    forget: Callable[[AsyncConnection], Awaitable[None]] | None = None
    """Takes away what one that was deleted leaves elsewhere."""

    async def load(self, connection: AsyncConnection) -> list[View]:
        """All of them."""
        return [self.view(row) for row in await connection.execute(select(self.table))]

    async def find(self, connection: AsyncConnection, name: str) -> View | None:
        """The one of this name."""
        query = select(self.table).where(self.table.c.name == name)
        row = (await connection.execute(query)).one_or_none()
        return None if row is None else self.view(row)

    async def change(
        self, connection: AsyncConnection, name: str, change: Change[Settings]
    ) -> Changed[View]:
        """Make it, or merge what is named into it. What changes nothing writes nothing."""
        version = await versions.lock(connection) + 1
        present = await self.find(connection, name)
        if present is None and change.terms.must_exist:
            raise self.missing(name)
        self._check_conditions(name, present, change.terms.conditions)
        was: Settings | None = None if present is None else present.settings
        kind = type(change.defaults)
        settings = merged(kind, change.named, was, by_name(change.defaults))
        if present is not None and settings == was:
            return Changed(present, present)
        change.check(without_changes(settings, was, by_name(change.defaults)))
        await self.check_room(connection, was, settings, change.limits)
        if present is None:
            made = await self._make(
                connection,
                self.made(
                    name,
                    settings,
                    change.terms.generation or new_generation(),
                    change.now_ms,
                    version,
                ),
                change.owner,
            )
            return Changed(None, made)
        altered = self.altered(present, settings, change.now_ms, version)
        row = self.table.c
        values = dict(self.columns(altered))
        await connection.execute(update(self.table).where(row.name == name).values(values))
        await self._follow(connection, present, altered)
        await versions.raise_to(connection, version)
        return Changed(present, altered)

    async def ensure(
        self,
        connection: AsyncConnection,
        name: str,
        settings: Settings,
        *,
        generation: int,
        now_ms: TimestampMs,
        limits: Limits,
        owner: Owner,
    ) -> View:
        """The one of this name as it is, or made with `settings` when there is none."""
        version = await versions.lock(connection) + 1
        present = await self.find(connection, name)
        if present is not None:
            return present
        await self.check_room(connection, None, settings, limits)
        made = self.made(name, settings, generation or new_generation(), now_ms, version)
        return await self._make(connection, made, owner)

    async def remove(
        self,
        connection: AsyncConnection,
        name: str,
        conditions: Conditions,
        *,
        now_ms: TimestampMs,
    ) -> tuple[View, int] | None:
        """Delete it with what refers to it; return it, and the new metadata version.

        None when there was nothing to delete.
        """
        version = await versions.lock(connection) + 1
        present = await self.find(connection, name)
        if present is None:
            return None
        self._check_conditions(name, present, conditions)
        await connection.execute(delete(self.table).where(self.table.c.name == name))
        if self.kind is not None:
            deletion = Deletion(self.kind, name, present.generation)
            await deletions.note(connection, deletion, now_ms)
        await versions.raise_to(connection, version)
        if self.forget is not None:
            await self.forget(connection)
        return present, version

    async def set_generation(
        self, connection: AsyncConnection, name: str, generation: int, was: int
    ) -> bool:
        """Give it the generation that the store knows it by. False: there is none of this name and
        the generation `was`, and nothing is changed."""
        version = await versions.lock(connection) + 1
        before = await self.find(connection, name)
        if before is None or before.generation != was:
            return False
        await connection.execute(
            update(self.table)
            .where(self.table.c.name == name)
            .values(generation=generation, version=version)
        )
        after = await self.find(connection, name)
        if after is not None:
            await self._follow(connection, before, after)
        await versions.raise_to(connection, version)
        return True

    def _check_conditions(self, name: str, present: View | None, conditions: Conditions) -> None:
        conditions.check(f"{self.noun} {name!r}", 0 if present is None else present.version)

    async def _follow(self, connection: AsyncConnection, before: View | None, after: View) -> None:
        if self.follow is not None:
            await self.follow(connection, before, after)

    async def _make(self, connection: AsyncConnection, made: View, owner: Owner) -> View:
        await room.for_owner(connection, self.table, owner, self.noun)
        await namespaces.require(connection, made.name)
        values = {
            "name": made.name,
            "created_ms": made.created_ms,
            "owner": owner.name,
            **self.columns(made),
        }
        await connection.execute(insert(self.table).values(values))
        await self._follow(connection, None, made)
        await versions.raise_to(connection, made.version)
        return made
