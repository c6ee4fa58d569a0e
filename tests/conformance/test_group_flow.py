"""Pausing a group and changing its settings, each on a node that has not heard of the other."""

from typing import cast

import pytest

from app.broker.group_flow import GroupFlow
from app.broker.groups import Groups
from app.cluster import Metadata
from app.domain.errors import PreconditionFailed
from app.domain.settings import GroupSettings

pytestmark = pytest.mark.anyio


class _Nobody:
    """The groups of a node where nobody waits."""

    def wake_everybody(self, name: str) -> None:
        assert name == "billing"


def flow_of(metadata: Metadata) -> GroupFlow:
    return GroupFlow(metadata, cast("Groups", _Nobody()))


async def test_neither_undoes_the_other(metadata: Metadata, other: Metadata) -> None:
    here, there = flow_of(metadata), flow_of(other)
    await here.put("billing", GroupSettings())
    await other.refresh()
    await here.put("billing", GroupSettings(max_attempts=5))
    assert (await there.pause("billing")).max_attempts == 5
    changed, is_made = await here.put("billing", GroupSettings(max_attempts=6))
    assert (changed.paused, changed.max_attempts, is_made) == (True, 6, False)
    assert (await there.resume("billing")).max_attempts == 6


async def test_a_condition_is_that_of_the_client(metadata: Metadata, other: Metadata) -> None:
    here, there = flow_of(metadata), flow_of(other)
    first, _ = await here.put("billing", GroupSettings(), if_version=0)
    paused = await there.put("billing", GroupSettings(max_attempts=5), if_version=first.version)
    paused_at = (await there.pause("billing")).version
    with pytest.raises(PreconditionFailed):
        await here.put("billing", GroupSettings(), if_version=paused[0].version)
    changed, _ = await here.put("billing", GroupSettings(max_attempts=6), if_version=paused_at)
    assert (changed.paused, changed.max_attempts) == (True, 6)
