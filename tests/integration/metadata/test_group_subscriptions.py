"""Filters that operators have set, on both engines: every node learns them, and they go with the
group or the topic."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from app.cluster import ClusterConfig, Metadata
from app.domain.consumers.consumption import KeptSubscription, SubscriptionPair
from app.domain.errors import GroupNotFound, PreconditionFailed, StateConflict, TopicNotFound
from app.domain.limits import Limits
from tests.support.metadata.databases import Databases
from tests.support.stores.clock import FakeClock

pytestmark = pytest.mark.anyio

RED = KeptSubscription("red", "ann", 5, 2**40)
ENDED = KeptSubscription(None, None, 6, 2**40 + 1)
PAIR = ("billing", "orders")


@pytest.fixture
async def nodes(databases: Databases) -> AsyncIterator[list[Metadata]]:
    """Two nodes of one database, with a topic and a group."""
    url = databases.migrated()
    async with AsyncExitStack() as stack:
        opened = []
        for _ in range(2):
            config, limits = ClusterConfig(url), Limits(subscriptions_per_group_max=2)
            metadata = await Metadata.open(config, FakeClock(), limits)
            stack.push_async_callback(metadata.close)
            opened.append(metadata)
        await opened[0].ensure_topic("orders")
        await opened[0].ensure_group("billing")
        await opened[1].refresh()
        yield opened


def pair(metadata: Metadata, topic: str = "orders") -> SubscriptionPair:
    snapshot = metadata.snapshot
    group, found = snapshot.groups["billing"], snapshot.topics[topic]
    return SubscriptionPair(group.name, found.name, group.generation, found.generation)


async def keep(metadata: Metadata, kept: KeptSubscription, topic: str = "orders") -> None:
    await metadata.change_subscription(pair(metadata, topic), lambda _: kept)


async def test_another_node_learns_it_and_that_it_is_over(nodes: list[Metadata]) -> None:
    first, second = nodes
    await keep(first, RED)
    assert first.snapshot.subscriptions == {PAIR: RED}
    assert second.snapshot.subscriptions == {}
    assert await second.refresh()
    assert second.snapshot.subscriptions == {PAIR: RED}
    seen: list[KeptSubscription | None] = []

    def end(kept: KeptSubscription | None) -> KeptSubscription:
        seen.append(kept)
        return ENDED

    await second.change_subscription(pair(second), end)
    assert seen == [RED]
    await first.refresh()
    assert first.snapshot.subscriptions == {PAIR: ENDED}


async def test_what_changes_nothing_is_refused_or_tried_writes_nothing(
    nodes: list[Metadata],
) -> None:
    first, second = nodes
    await keep(first, RED)
    await second.refresh()
    version = first.snapshot.version

    def refuse(_: KeptSubscription | None) -> KeptSubscription:
        raise PreconditionFailed("another version")

    await first.change_subscription(pair(first), lambda kept: kept)
    await first.change_subscription(pair(first), lambda _: ENDED, is_dry_run=True)
    with pytest.raises(PreconditionFailed):
        await first.change_subscription(pair(first), refuse)
    assert not await second.refresh()
    assert (first.snapshot.version, first.snapshot.subscriptions) == (version, {PAIR: RED})


@pytest.mark.parametrize("kind", ["group", "topic"])
async def test_it_goes_with_the_group_or_the_topic(nodes: list[Metadata], kind: str) -> None:
    first, second = nodes
    await keep(first, RED)
    await second.refresh()
    late = pair(second)
    if kind == "group":
        await first.delete_group("billing")
        await first.ensure_group("billing")
    else:
        await first.delete_topic("orders")
        await first.ensure_topic("orders")
    assert first.snapshot.subscriptions == {}
    with pytest.raises(GroupNotFound if kind == "group" else TopicNotFound):
        await second.change_subscription(late, lambda _: RED)
    await second.refresh()
    assert second.snapshot.subscriptions == {}


async def test_a_group_has_room_for_so_many(nodes: list[Metadata]) -> None:
    first = nodes[0]
    for name in ("orders", "bills", "shipments"):
        await first.ensure_topic(name)
    await keep(first, RED)
    await keep(first, RED, "bills")
    with pytest.raises(StateConflict):
        await keep(first, RED, "shipments")
    await keep(first, ENDED)  # it has its place
