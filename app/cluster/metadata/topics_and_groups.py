"""Topics and consumer groups: making, changing, deleting and listing them.

One implementation for both; `tables.topics` and `tables.groups` say what is particular to a kind.
Each change is one transaction, with its line in the audit; what was committed is shown in the
snapshot. Used by `Metadata` only. Event loop only.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Final, Generic, TypeVar

from sqlalchemy.ext.asyncio import AsyncConnection

from app.cluster.metadata.audit.audit_trail import AuditTrail
from app.cluster.metadata.database.database import Database
from app.cluster.metadata.listing import Page, Wanted, page_of
from app.cluster.metadata.snapshot import ClusterSnapshot, GroupView, NamespaceView, TopicView
from app.cluster.metadata.tables.room import Owner
from app.cluster.metadata.tables.settings_table import Change, SettingsTable
from app.domain.access.actions import Action
from app.domain.access.audit import ACTOR, Shown
from app.domain.access.audit import Change as AuditedChange
from app.domain.access.standing import Visible, every
from app.domain.changes.conditions import Changed, Conditions, Terms
from app.domain.changes.merging import Named, Settings, by_name
from app.domain.clock import Clock
from app.domain.errors import NotFound
from app.domain.limits import Limits
from app.domain.names import did_you_mean, suggest_similar

_DERIVED: Final = (
    *("shards", "here", "drains", "writable_here"),
    *("open_queues", "moved", "is_open_here"),
)
"""Of a topic: where its queues are, which no change says."""

View = TypeVar("View", TopicView, GroupView)
ShownView = TopicView | GroupView | NamespaceView
"""What a change is shown by in the audit."""
NextSnapshot = Callable[[ClusterSnapshot], ClusterSnapshot]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What changes of topics and groups share."""

    database: Database
    clock: Clock
    limits: Limits
    audit: AuditTrail
    snapshot: Callable[[], ClusterSnapshot]
    show: Callable[[int, NextSnapshot], Awaitable[None]]
    """Puts the committed change of a version into the snapshot."""


@dataclass(frozen=True, slots=True)
class NamedSettings(Generic[View, Settings]):
    """Topics, or consumer groups. Raises `NotFound` for a name that must exist and does not."""

    table: SettingsTable[View, Settings]
    around: Surroundings
    owned_max: int
    """How many a principal may have made."""
    check_name: Callable[[str], object]
    defaults: Callable[[], Settings]
    check: Callable[[Settings, Limits], None]
    missing: Callable[[str], NotFound]
    known: Callable[[ClusterSnapshot], Mapping[str, View]]
    shown: Callable[[ClusterSnapshot, View], ClusterSnapshot]
    hidden: Callable[[ClusterSnapshot, str, int], ClusterSnapshot]
    placed: Callable[[AsyncConnection, View], Awaitable[View]] | None = None
    """Adds what the snapshot has of it beside its row."""

    async def change(self, name: str, named: Named, terms: Terms) -> Changed[View]:
        """Make it, or merge what is named into it; what changes nothing writes nothing."""
        self.check_name(name)
        limits = self.around.limits
        change = Change(
            named,
            self.defaults(),
            lambda settings: self.check(settings, limits),
            self.around.clock.now_ms(),
            terms,
            limits,
            self._owner(),
        )
        async with self.around.database.transaction(is_dry_run=terms.is_dry_run) as connection:
            changed = await self.table.change(connection, name, change)
            await self._note(connection, name, changed.before, changed.after)
            after = await self._placed(connection, changed.after)
        if not terms.is_dry_run:
            await self._show(after)
        return changed

    async def put(
        self, name: str, settings: Settings, if_version: int | None, generation: int
    ) -> tuple[View, bool]:
        """Make it, or give it all these settings; say whether it was made.

        `if_version=0`: only make it.
        """
        terms = Terms(Conditions.at(if_version), generation=generation)
        changed = await self.change(name, by_name(settings), terms)
        return changed.after, changed.is_made

    async def ensure(self, name: str, generation: int) -> View:
        """The one of this name; made with the defaults when there is none."""
        if present := self.known(self.around.snapshot()).get(name):
            return present
        self.check_name(name)
        now_ms = self.around.clock.now_ms()
        async with self.around.database.transaction() as connection:
            found = await self.table.ensure(
                connection,
                name,
                self.defaults(),
                generation=generation,
                now_ms=now_ms,
                limits=self.around.limits,
                owner=self._owner(),
            )
            if found.created_ms == now_ms:  # else another was faster
                await self._note(connection, name, None, found)
            found = await self._placed(connection, found)
        await self._show(found)
        return found

    async def delete(self, name: str, terms: Terms) -> View:
        """Delete it with the committed offsets that belong to it."""
        around = self.around
        async with around.database.transaction(is_dry_run=terms.is_dry_run) as connection:
            now_ms = around.clock.now_ms()
            removed = await self.table.remove(connection, name, terms.conditions, now_ms=now_ms)
            if removed is not None:
                await self._note(connection, name, removed[0], None)
        if removed is None:
            known = self.known(around.snapshot())
            raise suggest_similar(self.missing(name), self.table.noun, name, known, did_you_mean)
        view, version = removed
        if not terms.is_dry_run:
            await around.show(version, lambda now: self.hidden(now, name, version))
        return view

    def page(
        self,
        namespace: str = "",
        prefix: str = "",
        page_size: int = 100,
        page_token: str | None = None,
        visible: Visible = every,
    ) -> Page[View]:
        """Those of a namespace by name, from the snapshot."""
        known, wanted = self.known(self.around.snapshot()), Wanted(namespace, prefix)
        size_max = self.around.limits.page_size_max
        return page_of(known, wanted, page_size, page_token, size_max, visible)

    def _owner(self) -> Owner:
        """Whoever has asked for what is made now, and how many of its kind it may have."""
        return Owner(ACTOR.get().principal, self.owned_max)

    async def _placed(self, connection: AsyncConnection, view: View) -> View:
        return view if self.placed is None else await self.placed(connection, view)

    async def _show(self, view: View) -> None:
        await self.around.show(view.version, lambda now: self.shown(now, view))

    async def _note(
        self, connection: AsyncConnection, name: str, before: View | None, after: View | None
    ) -> None:
        resource = f"{self.table.noun}:{name}"
        await note_change(self.around.audit, connection, resource, before, after)


async def note_change(
    audit: AuditTrail,
    connection: AsyncConnection,
    resource: str,
    before: ShownView | None,
    after: ShownView | None,
) -> None:
    """Tell the audit what was changed; what changes nothing is not told."""
    if before == after:
        return
    action = Action.CREATE if before is None else Action.UPDATE
    change = AuditedChange(
        Action.DELETE if after is None else action, resource, _shown(before), _shown(after)
    )
    await audit.changed(connection, change)


def _shown(view: ShownView | None) -> Shown | None:
    if view is None:
        return None
    return {name: value for name, value in asdict(view).items() if name not in _DERIVED}
