"""Shards in the metadata: which store is which, and whose queues are whose."""

import asyncio

import pytest

from app.cluster import Claim, ForeignStore, Metadata
from app.domain.settings import TopicSettings
from tests.support.metadata.databases import Databases
from tests.support.metadata.metadata import OpenNode

pytestmark = pytest.mark.anyio

ONE, TWO = b"\1" * 4, b"\2" * 4


async def claim(metadata: Metadata, store: bytes, name: str = "", address: str = "a:1") -> int:
    asked = Claim(store, name, f"node-{store.hex()}", address, "here:/data", store * 4)
    return await metadata.claim_shard(asked)


@pytest.fixture
def is_alone(databases: Databases) -> bool:
    """Whether the database is for one store."""
    return databases.engine == "sqlite"


class TestOneStore:
    async def test_a_store_is_a_shard_of_its_own_and_has_every_queue(
        self, metadata: Metadata
    ) -> None:
        await metadata.put_topic("early", TopicSettings(queues=2))
        assert await claim(metadata, ONE) == 0
        assert metadata.shard == "01010101"
        await metadata.put_topic("orders", TopicSettings(queues=3))
        for name, queues in (("early", 2), ("orders", 3)):
            topic = metadata.snapshot.topics[name]
            assert list(topic.writable_here) == list(range(queues))
            assert [topic.shard_of(queue) for queue in range(queues)] == [None] * queues
            assert topic.first_queues == queues

    async def test_its_epoch_is_remembered_over_starts(
        self, metadata: Metadata, open_node: OpenNode
    ) -> None:
        await claim(metadata, ONE, address="a:1")
        await metadata.lead_shard(ONE * 4, 5)
        async with open_node() as again:
            assert await claim(again, ONE, address="b:2") == 5

    async def test_a_shard_keeps_its_name_and_its_store(
        self, metadata: Metadata, open_node: OpenNode
    ) -> None:
        await claim(metadata, ONE, "east", "b:2")
        async with open_node() as other:
            with pytest.raises(ForeignStore, match="is the shard 'east'") as refused:
                await claim(other, ONE, "west")
            assert "--shard east" in str(refused.value.hint)
            await claim(other, ONE)
            assert other.shard == "east"

    async def test_another_store_is_refused_where_the_database_is_for_one(
        self, metadata: Metadata, open_node: OpenNode, is_alone: bool
    ) -> None:
        await claim(metadata, ONE, "east", "b:2")
        match = r"01010101.*b:2.*02020202" if is_alone else "shard 'east' is the store 01010101"
        async with open_node() as other:
            with pytest.raises(ForeignStore, match=match) as refused:
                await claim(other, TWO, "east", "c:3")
            assert "curlew release-store" in str(refused.value.hint)
            assert await other.release_shard() == ("east", ONE)
            assert await other.release_shard() is None
            await claim(other, TWO, "east", "c:3")
        with pytest.raises(ForeignStore):
            await claim(metadata, ONE, "east")

    async def test_of_stores_that_want_one_name_at_once_one_gets_it(
        self, metadata: Metadata, other: Metadata
    ) -> None:
        stores = [bytes((number, 0, 0, 0)) for number in range(6)]
        results = await asyncio.gather(
            *(
                claim(node, store, "east")
                for number, store in enumerate(stores)
                for node in ((metadata, other)[number % 2],)
            ),
            return_exceptions=True,
        )
        assert sum(result == 0 for result in results) == 1
        assert sum(isinstance(result, ForeignStore) for result in results) == 5
