"""Finding the consumer group that a request of offsets names; refusing one in broadcast mode."""

from typing import Final

from app.broker.ports import Group, Metadata
from app.domain.errors import BroadcastGroup, GroupNotFound
from app.domain.names import check_group, did_you_mean, suggest_similar
from app.domain.settings import GroupMode

_BROADCAST_HINT: Final = (
    "pull from the queues that the heartbeat of a member lists, and keep the offsets in the client"
)


def find_group(metadata: Metadata, name: str) -> Group:
    """The group, or `GroupNotFound`."""
    groups = metadata.snapshot.groups
    group = groups.get(name)
    if group is not None:
        return group
    check_group(name)
    error = GroupNotFound(
        f"consumer group {name!r} does not exist", hint="a group is made by its first use"
    )
    raise suggest_similar(error, "group", name, groups, did_you_mean)


def refuse_broadcast(group: Group) -> None:
    """Raise `BroadcastGroup` when clients of the group keep their offsets themselves."""
    if group.mode is GroupMode.BROADCAST:
        raise BroadcastGroup(
            f"group {group.name!r} is in broadcast mode: every member reads every message, and the "
            "server keeps no progress for it",
            hint=_BROADCAST_HINT,
        )
