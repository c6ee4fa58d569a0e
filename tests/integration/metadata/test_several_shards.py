"""Three shards in PostgreSQL: where queues go, who hears of what, what each deletes."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import psycopg
import pytest

from app.cluster import Claim, ClusterConfig, Metadata, NodeView
from app.domain.identity import Deletion, Kind
from app.domain.positions import TimestampMs
from app.domain.settings import TopicSettings
from tests.support.metadata.databases import PostgresDatabases
from tests.support.stores.clock import FakeClock

pytestmark = [pytest.mark.anyio, pytest.mark.postgres]

BEGAN = TimestampMs(1)
STORES = {name: bytes((number,)) * 4 for number, name in enumerate("abc", 1)}


async def start(metadata: Metadata, name: str, epoch: int = 1) -> None:
    """As a node does."""
    store = STORES[name]
    node_id = f"node-{name}"
    await metadata.claim_shard(Claim(store, name, node_id, f"{name}:1", "", store * 4))
    url = f"http://{name}:8710"
    await metadata.register_node(
        NodeView(node_id, f"{name}:1", store, BEGAN, BEGAN, name, url, f"http://{name}:8711")
    )
    await metadata.lead_shard(store * 4, epoch)


@pytest.fixture
def url(postgres_databases: PostgresDatabases) -> str:
    return postgres_databases.migrated()


@pytest.fixture
async def nodes(url: str) -> AsyncIterator[list[Metadata]]:
    async with AsyncExitStack() as stack:
        opened = []
        for _ in STORES:
            metadata = await Metadata.open(ClusterConfig(url), FakeClock())
            stack.push_async_callback(metadata.close)
            opened.append(metadata)
        yield opened


@pytest.fixture
async def cluster(nodes: list[Metadata]) -> list[Metadata]:
    for metadata, name in zip(nodes, STORES, strict=True):
        await start(metadata, name)
    for metadata in nodes:
        await metadata.refresh()
    return nodes


def places(metadata: Metadata, topic: str) -> tuple[str, ...]:
    return metadata.snapshot.topics[topic].shards


async def test_queues_are_spread_and_neighbours_differ(cluster: list[Metadata]) -> None:
    first = cluster[0]
    await first.put_topic("orders", TopicSettings(queues=4))
    assert places(first, "orders") == ("a", "b", "c", "a")
    await first.put_topic("payments", TopicSettings(queues=2))
    assert places(first, "payments") == ("b", "c")
    await first.put_topic("orders", TopicSettings(queues=6))
    assert places(first, "orders") == ("a", "b", "c", "a", "b", "a")
    assert first.snapshot.topics["orders"].first_queues == 4


async def test_each_node_knows_which_queues_are_its_own(cluster: list[Metadata]) -> None:
    await cluster[0].put_topic("orders", TopicSettings(queues=4, write_queues=3))
    for metadata in cluster:
        await metadata.refresh()
    here = [list(metadata.snapshot.topics["orders"].writable_here) for metadata in cluster]
    assert here == [[0], [1], [2]]
    assert cluster[1].snapshot.topics["orders"].shard_of(0) == "a"
    assert cluster[0].snapshot.topics["orders"].shard_of(3) is None


async def test_what_was_made_before_a_shard_came_stays_where_it_is(nodes: list[Metadata]) -> None:
    first, second, _ = nodes
    await start(first, "a")
    await first.put_topic("orders", TopicSettings(queues=3))
    await start(second, "b")
    assert await first.refresh()
    assert places(first, "orders") == ("a", "a", "a")
    assert list(second.snapshot.topics["orders"].writable_here) == []
    await second.put_topic("orders", TopicSettings(queues=5))
    assert places(second, "orders") == ("a", "a", "a", "b", "a")


async def test_the_others_hear_where_a_shard_is_led(cluster: list[Metadata]) -> None:
    shard = cluster[0].snapshot.shards["c"]
    assert (shard.epoch, shard.advertise_url, shard.cluster_url) == (
        *(1, "http://c:8710"),
        "http://c:8711",
    )
    await start(cluster[2], "c", epoch=2)
    assert await cluster[0].refresh()
    assert cluster[0].snapshot.shards["c"].epoch == 2


async def test_each_shard_carries_a_deletion_out(cluster: list[Metadata]) -> None:
    first, second, third = cluster
    topic, _ = await first.put_topic("orders", TopicSettings(queues=3))
    await second.delete_topic("orders")
    gone = Deletion(Kind.TOPIC, "orders", topic.generation)
    for metadata in cluster:
        assert await metadata.deletions() == [gone]
    await first.carried_out(gone)
    assert await first.deletions() == []
    assert await third.deletions() == [gone]


async def test_a_queue_that_was_moved_by_hand_is_nobodys(cluster: list[Metadata], url: str) -> None:
    first = cluster[0]
    await first.put_topic("orders", TopicSettings(queues=3))
    with psycopg.connect(url) as connection:
        connection.execute("UPDATE topic_queues SET shard = 'nowhere' WHERE queue_id = 0")
        connection.execute("UPDATE metadata_version SET version = version + 1")
    await first.refresh()
    topic = first.snapshot.topics["orders"]
    assert topic.shard_of(0) == "nowhere"
    assert list(topic.writable_here) == []


async def test_the_queues_of_a_released_shard_wait_for_the_next_new_store(
    cluster: list[Metadata], url: str
) -> None:
    first = cluster[0]
    await first.put_topic("orders", TopicSettings(queues=3))
    assert await first.release_shard("b") == ("b", STORES["b"])
    await first.refresh()
    assert places(first, "orders") == ("a", "", "c")
    metadata = await Metadata.open(ClusterConfig(url), FakeClock())
    try:
        await metadata.claim_shard(Claim(b"new!", "d", "node-d", "d:1", "", b"g"))
        assert places(metadata, "orders") == ("a", "d", "c")
    finally:
        await metadata.close()
