"""What the metadata promises of generations, deletions and its store, on both databases."""

import asyncio
from dataclasses import replace

import pytest

from app.cluster import ForeignStore, Metadata
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
    await metadata.set_generation(Kind.TOPIC, "orders", 9)
    await metadata.set_generation(Kind.GROUP, "billing", 10)
    await metadata.set_generation(Kind.TOPIC, "nowhere", 11)
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


async def test_another_store_is_refused_and_told_what_to_do(
    metadata: Metadata, open_node: OpenNode
) -> None:
    for address in ("a:1", "b:2"):  # the same store moves
        await metadata.claim_store(b"\x01\x02\x03\x04", address)
    async with open_node() as other:
        with pytest.raises(ForeignStore, match=r"01020304.*b:2.*05060708") as refused:
            await other.claim_store(b"\x05\x06\x07\x08", "c:3")
        assert refused.value.hint is not None
        assert "curlew release-store" in refused.value.hint
        assert await other.release_store() == b"\x01\x02\x03\x04"
        assert await other.release_store() is None
        await other.claim_store(b"\x05\x06\x07\x08", "c:3")
    with pytest.raises(ForeignStore):
        await metadata.claim_store(b"\x01\x02\x03\x04", "a:1")


async def test_of_stores_that_start_at_once_one_wins(metadata: Metadata, other: Metadata) -> None:
    stores = [bytes((number, 0, 0, 0)) for number in range(6)]
    results = await asyncio.gather(
        *(
            node.claim_store(store, "a:1")
            for number, store in enumerate(stores)
            for node in ((metadata, other)[number % 2],)
        ),
        return_exceptions=True,
    )
    assert sum(result is None for result in results) == 1
    assert sum(isinstance(result, ForeignStore) for result in results) == 5
