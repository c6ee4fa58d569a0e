"""Pausing a group and changing its settings, each on a node that has not heard of the other."""

import asyncio
from typing import cast

import pytest

from app.broker.groups.group_pause import GroupPause
from app.broker.groups.groups import Groups
from app.cluster import Metadata
from app.domain.errors import GroupNotFound

pytestmark = pytest.mark.anyio


class _Nobody:
    """The groups of a node where nobody waits."""

    def wake_everybody(self, name: str) -> None:
        assert name == "billing"


def flow_of(metadata: Metadata) -> GroupPause:
    return GroupPause(metadata, cast("Groups", _Nobody()))


async def test_neither_undoes_the_other(metadata: Metadata, other: Metadata) -> None:
    await metadata.change_group("billing", {"max_attempts": 5})
    assert "billing" not in other.snapshot.groups
    paused = await flow_of(other).pause("billing")
    assert (paused.after.paused, paused.after.max_attempts) == (True, 5)
    changed = await metadata.change_group("billing", {"max_attempts": 6})
    assert (changed.after.paused, changed.after.max_attempts) == (True, 6)
    resumed = await flow_of(other).resume("billing")
    assert (resumed.after.paused, resumed.after.max_attempts) == (False, 6)


async def test_at_once(metadata: Metadata, other: Metadata) -> None:
    await metadata.change_group("billing", {})
    await asyncio.gather(
        flow_of(other).pause("billing"), metadata.change_group("billing", {"max_attempts": 7})
    )
    await metadata.refresh()
    group = metadata.snapshot.groups["billing"]
    assert (group.paused, group.max_attempts) == (True, 7)


async def test_a_group_that_another_node_deleted_cannot_be_paused(
    metadata: Metadata, other: Metadata
) -> None:
    await metadata.ensure_group("billing")
    await other.refresh()
    await metadata.delete_group("billing")
    with pytest.raises(GroupNotFound):
        await flow_of(other).pause("billing")
