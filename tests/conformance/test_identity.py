"""What the metadata promises of generations, deletions and its store, on both databases."""

from dataclasses import replace

import pytest

from app.cluster import Metadata
from app.domain.identity import Deletion, Kind
from tests.support.metadata.metadata import OpenNode, make, offset

pytestmark = pytest.mark.anyio


async def test_a_deletion_leaves_a_tombstone_until_it_is_carried_out(
    metadata: Metadata, open_node: OpenNode
) -> None:
    await make(metadata, topics="orders bills", groups="billing")
    topic = metadata.snapshot.topics["orders"].generation
    group = metadata.snapshot.groups["billing"].generation
    await metadata.delete_topic("orders")
    await metadata.delete_group("billing")
    deleted = [
        Deletion(Kind.TOPIC, "orders", topic),
        Deletion(Kind.GROUP, "billing", group),
    ]
    await make(metadata, topics="orders")
    async with open_node() as restarted:
        assert set(await restarted.deletions()) == set(deleted)
        for _ in range(2):
            await restarted.carried_out(deleted[0])
        assert await restarted.deletions() == deleted[1:]


async def test_a_generation_may_be_given_at_the_making_and_afterwards(
    metadata: Metadata, open_node: OpenNode
) -> None:
    assert (await metadata.ensure_topic("orders", generation=7)).generation == 7
    assert (await metadata.ensure_group("billing", generation=8)).generation == 8
    assert await metadata.set_generation(Kind.TOPIC, "orders", 9, 7)
    assert await metadata.set_generation(Kind.GROUP, "billing", 10, 8)
    version = metadata.snapshot.version
    assert not await metadata.set_generation(Kind.TOPIC, "orders", 11, 7)
    assert not await metadata.set_generation(Kind.TOPIC, "nowhere", 11, 7)
    assert metadata.snapshot.version == version
    async with open_node() as restarted:
        assert restarted.snapshot.topics["orders"].generation == 9
        assert restarted.snapshot.groups["billing"].generation == 10
        assert restarted.snapshot == metadata.snapshot


async def test_offsets_of_another_generation_are_left_out_and_named(metadata: Metadata) -> None:
    await make(metadata, topics="orders", groups="billing")
    topic = metadata.snapshot.topics["orders"].generation
    group = metadata.snapshot.groups["billing"].generation
    row = replace(offset("billing", "orders", 0, 5), topic_generation=topic, group_generation=group)
    of_topic, of_group = (
        replace(row, topic_generation=topic + 1),
        replace(row, group_generation=group + 1),
    )
    assert await metadata.commit_offsets([of_topic, of_group]) == [of_topic, of_group]
    assert await metadata.load_offsets() == []
    assert await metadata.commit_offsets([row]) == []
    assert await metadata.load_offsets() == [offset("billing", "orders", 0, 5)]
