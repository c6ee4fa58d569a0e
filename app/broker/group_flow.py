"""Pausing and resuming groups. A paused group is handed nothing; settling goes on.

Parked receives keep waiting, and go on when the group is resumed. It is a setting in the metadata,
so a restart changes nothing. Pausing leaves the other settings alone and changing those leaves a
group paused, whatever another node or request changes meanwhile: each is tried again on what it
finds. Event loop only.
"""

from dataclasses import replace
from typing import Final

from app.broker.groups import Groups
from app.broker.ports import Group, Metadata
from app.domain.errors import GroupNotFound, PreconditionFailed, StateConflict
from app.domain.names import check_group
from app.domain.settings import GroupSettings

_TRIES: Final = 16
"""Changes of others that one change gives way to."""


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
        for _ in range(_TRIES):
            present = self._find(name)
            settings = replace(present.settings, paused=paused)
            try:
                group, _made = await self._metadata.put_group(
                    name, settings, if_version=present.version
                )
            except PreconditionFailed:
                await self._metadata.refresh()
            else:
                self._groups.wake_everybody(name)
                return group
        raise _busy(name)

    def _find(self, name: str) -> Group:
        group = self._metadata.snapshot.groups.get(name)
        if group is None:
            check_group(name)
            raise GroupNotFound(
                f"consumer group {name!r} does not exist", hint="see GET /v1/groups"
            )
        return group

    async def put(
        self, name: str, settings: GroupSettings, *, if_version: int | None = None
    ) -> tuple[Group, bool]:
        """Make or change a group, which stays paused if it is; True: made."""
        if if_version is not None and self._version(name) != if_version:
            await self._metadata.refresh()
        for _ in range(_TRIES):
            present = self._metadata.snapshot.groups.get(name)
            kept = replace(settings, paused=present is not None and present.paused)
            version = self._version(name) if if_version is None else if_version
            try:
                return await self._metadata.put_group(name, kept, if_version=version)
            except PreconditionFailed:
                if if_version is not None:
                    raise
                await self._metadata.refresh()
        raise _busy(name)

    def _version(self, name: str) -> int:
        group = self._metadata.snapshot.groups.get(name)
        return 0 if group is None else group.version


def _busy(name: str) -> StateConflict:
    return StateConflict(
        f"consumer group {name!r} is being changed again and again", hint="try again"
    )
