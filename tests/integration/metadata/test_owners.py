"""How many topics and groups a principal may have made, on both engines, and at several nodes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Protocol

import pytest

from app.cluster import ClusterConfig, Metadata
from app.domain.access.audit import ACTOR, Actor
from app.domain.access.refusals import QuotaExceeded
from app.domain.changes.conditions import Terms
from app.domain.limits import Limits
from app.domain.positions import FlushMode
from app.domain.settings import default_topic_settings
from tests.support.metadata.databases import Databases
from tests.support.stores.clock import FakeClock

pytestmark = pytest.mark.anyio

TOPICS, GROUPS = 3, 2


class Open(Protocol):
    async def __call__(self) -> Metadata: ...


@pytest.fixture
async def opened(databases: Databases) -> AsyncIterator[Open]:
    """Opens the database as another node would."""
    url = databases.migrated()
    async with AsyncExitStack() as stack:

        async def node() -> Metadata:
            config = ClusterConfig(url, FlushMode.SYNC, TOPICS, GROUPS)
            metadata = await Metadata.open(config, FakeClock())
            stack.push_async_callback(metadata.close)
            return metadata

        yield node


def acting(name: str | None) -> None:
    ACTOR.set(Actor(name))


async def test_of_many_at_once_no_more_are_made_than_one_may_have(opened: Open) -> None:
    nodes = [await opened(), await opened()]

    async def make(number: int) -> bool:
        acting("ann")
        node = nodes[number % 2]
        try:
            if number < 8:
                await node.ensure_topic(f"t{number}")
            else:
                await node.change_topic(f"t{number}", {})
        except QuotaExceeded:
            return False
        return True

    made = await asyncio.gather(*[make(number) for number in range(16)])
    assert sum(made) == TOPICS
    await nodes[0].refresh()
    assert len(nodes[0].snapshot.topics) == TOPICS


async def test_what_is_deleted_gives_room_and_what_is_there_may_be_changed(opened: Open) -> None:
    node = await opened()
    acting("ann")
    for number in range(TOPICS):
        await node.ensure_topic(f"t{number}")
    with pytest.raises(QuotaExceeded) as refused:
        await node.change_topic("more", {})
    assert refused.value.fields == {"limit": TOPICS, "bound": "quota_topics"}
    with pytest.raises(QuotaExceeded):  # said before it is done, too
        await node.change_topic("more", {}, Terms(is_dry_run=True))
    changed = await node.change_topic("t0", {"queues": 12})
    assert changed.after.queues == 12
    await node.delete_topic("t0", Terms(is_dry_run=True))
    with pytest.raises(QuotaExceeded):
        await node.ensure_topic("more")
    await node.delete_topic("t0")
    await node.ensure_topic("t0")
    with pytest.raises(QuotaExceeded):
        await node.ensure_topic("more")


async def test_others_and_what_belongs_to_nobody_count_apart(opened: Open) -> None:
    node = await opened()
    acting(None)
    settings = default_topic_settings(Limits(), FlushMode.SYNC)
    for number in range(TOPICS + 1):
        await node.put_topic(f"old{number}", settings)
    for who in ("ann", "bob"):
        acting(who)
        for number in range(TOPICS):
            await node.ensure_topic(f"{who}{number}")
        for number in range(GROUPS):
            await node.ensure_group(f"{who}{number}")
        with pytest.raises(QuotaExceeded, match=f"'{who}' has made {GROUPS} groups") as refused:
            await node.change_group("more", {})
        assert refused.value.fields["bound"] == "quota_groups"
        with pytest.raises(QuotaExceeded):
            await node.ensure_group("more")
    await node.delete_group("ann0")
    with pytest.raises(QuotaExceeded):  # the room is ann's
        await node.ensure_group("ann0")
    acting("ann")
    await node.ensure_group("ann0")
