"""Pausing and resuming groups. A paused group is handed nothing; settling goes on.

Parked receives keep waiting, and go on when the group is resumed. It is a setting in the metadata,
so a restart changes nothing. It is merged into the others as they are then: pausing leaves them
alone, and changing those leaves a group paused. Event loop only.
"""

from app.broker.groups.groups import Groups
from app.broker.ports import Group, Metadata
from app.domain.changes.conditions import Changed, Terms
from app.domain.changes.effects import SettingsChange
from app.domain.names import check_group

EXISTS = Terms(must_exist=True)


class GroupPause:
    """One per broker."""

    def __init__(self, metadata: Metadata, groups: Groups) -> None:
        self._metadata = metadata
        self._groups = groups

    async def pause(self, name: str, terms: Terms = EXISTS) -> SettingsChange[Group]:
        """Hand out nothing more. Raises `GroupNotFound`, `PreconditionFailed` or
        `MetadataUnavailable`. `terms.must_exist` is set."""
        return await self._set(name, terms, is_paused=True)

    async def resume(self, name: str, terms: Terms = EXISTS) -> SettingsChange[Group]:
        """Go on. Raises as `pause`."""
        return await self._set(name, terms, is_paused=False)

    async def _set(self, name: str, terms: Terms, *, is_paused: bool) -> SettingsChange[Group]:
        check_group(name)
        assert terms.must_exist
        changed: Changed[Group] = await self._metadata.change_group(
            name, {"paused": is_paused}, terms
        )
        if not terms.is_dry_run:
            self._groups.wake_everybody(name)
        return SettingsChange(changed.before, changed.after, (), terms.is_dry_run)
