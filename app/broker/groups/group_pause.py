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


class GroupPause:
    """One per broker."""

    def __init__(self, metadata: Metadata, groups: Groups) -> None:
        self._metadata = metadata
        self._groups = groups

    async def pause(self, name: str, *, is_dry_run: bool = False) -> SettingsChange[Group]:
        """Hand out nothing more. Raises `GroupNotFound` or `MetadataUnavailable`."""
        return await self._set(name, is_paused=True, is_dry_run=is_dry_run)

    async def resume(self, name: str, *, is_dry_run: bool = False) -> SettingsChange[Group]:
        """Go on. Raises as `pause`."""
        return await self._set(name, is_paused=False, is_dry_run=is_dry_run)

    async def _set(self, name: str, *, is_paused: bool, is_dry_run: bool) -> SettingsChange[Group]:
        check_group(name)
        terms = Terms(must_exist=True, is_dry_run=is_dry_run)
        changed: Changed[Group] = await self._metadata.change_group(
            name, {"paused": is_paused}, terms
        )
        if not is_dry_run:
            self._groups.wake_everybody(name)
        return SettingsChange(changed.before, changed.after, (), is_dry_run)
