"""Pausing and resuming groups. A paused group is handed nothing; settling goes on.

Parked receives keep waiting, and go on when the group is resumed. It is a setting in the metadata,
so a restart changes nothing. Event loop only.
"""

from dataclasses import replace

from app.broker.groups import Groups
from app.broker.ports import Group, Metadata
from app.domain.errors import GroupNotFound, PreconditionFailed
from app.domain.names import check_group


class GroupFlow:
    """One per broker."""

    def __init__(self, metadata: Metadata, groups: Groups) -> None:
        self._metadata = metadata
        self._groups = groups

    async def pause(self, name: str) -> Group:
        """Hand out nothing more. Raises `GroupNotFound` or `MetadataUnavailable`."""
        return await self._set(name, paused=True)

    async def resume(self, name: str) -> Group:
        """Go on. Raises as `pause`."""
        return await self._set(name, paused=False)

    async def _set(self, name: str, *, paused: bool) -> Group:
        while True:
            present = self._metadata.snapshot.groups.get(name)
            if present is None:
                check_group(name)
                raise GroupNotFound(
                    f"consumer group {name!r} does not exist", hint="see GET /v1/groups"
                )
            settings = replace(present.settings, paused=paused)
            try:
                group, _ = await self._metadata.put_group(
                    name, settings, if_version=present.version
                )
            except PreconditionFailed:
                await self._metadata.refresh()  # its other settings were changed meanwhile
                continue
            self._groups.wake_everybody(name)
            return group
