"""Three shards in PostgreSQL: where queues go, who hears of what, what each deletes, and how one is
drained."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import psycopg
import pytest

from app.cluster import Claim, ClusterConfig, Event, ForeignStore, Metadata, NodeView
from app.domain.errors import DrainRefused, ShardNotFound
from app.domain.identity import Deletion, Kind
from app.domain.positions import TimestampMs
from app.domain.settings import TopicSettings
from app.domain.shards.takes import Takes
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
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def nodes(url: str, clock: FakeClock) -> AsyncIterator[list[Metadata]]:
    async with AsyncExitStack() as stack:
        opened = []
        for _ in STORES:
            metadata = await Metadata.open(ClusterConfig(url), clock)
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


def end_lease(url: str) -> None:
    """As time does."""
    with psycopg.connect(url) as connection:
        connection.execute("UPDATE shards SET lease_until_ms = 1")


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


async def test_a_node_knows_at_once_where_its_own_shard_is_led(nodes: list[Metadata]) -> None:
    for metadata, name in zip(nodes, STORES, strict=True):
        await start(metadata, name, epoch=7)
        shard = metadata.snapshot.shards[name]
        assert (shard.epoch, shard.leader, shard.advertise_url) == (
            *(7, f"node-{name}"),
            f"http://{name}:8710",
        )


async def test_a_new_shard_is_heard_of_before_a_topic_is_spread_over_it(
    cluster: list[Metadata], url: str
) -> None:
    """Its node is still at its start, and others make a topic."""
    first = cluster[0]
    fourth = await Metadata.open(ClusterConfig(url), FakeClock())
    try:
        await fourth.claim_shard(Claim(b"new!", "d", "node-d", "d:1", "", b"g"))
        await first.put_topic("orders", TopicSettings(queues=4))
        assert set(places(first, "orders")) <= set(first.snapshot.shards)
    finally:
        await fourth.close()


async def test_what_a_released_shard_did_not_delete_is_left_to_the_next_store(
    cluster: list[Metadata], url: str
) -> None:
    """Which may be the same one, under another name: its log has what was deleted."""
    first = cluster[0]
    topic, _ = await first.put_topic("orders", TopicSettings(queues=3))
    await first.delete_topic("orders")
    await first.release_shard("b")
    await first.release_shard("c")
    metadata = await Metadata.open(ClusterConfig(url), FakeClock())
    try:
        await metadata.claim_shard(Claim(STORES["b"], "again", "node-b", "b:1", "", b"g"))
        assert await metadata.deletions() == [Deletion(Kind.TOPIC, "orders", topic.generation)]
    finally:
        await metadata.close()


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


async def test_the_last_shard_that_is_left_does_not_take_the_queues_of_a_released_one(
    nodes: list[Metadata],
) -> None:
    """Else it would take messages of a queue that the next new store gets."""
    first, second, third = nodes
    await start(first, "a")
    await start(second, "b")
    await first.put_topic("orders", TopicSettings(queues=2))
    await first.put_topic("payments", TopicSettings(queues=2))
    await first.release_shard("b")
    await first.refresh()
    for name in ("orders", "payments"):
        topic = first.snapshot.topics[name]
        assert [topic.shard_of(queue) for queue in range(2)] == [None, ""]
    topic, _ = await first.put_topic("orders", TopicSettings(queues=3))
    assert list(first.snapshot.topics["orders"].writable_here) == [0, 2]
    await second.refresh()
    assert list(second.snapshot.topics["orders"].writable_here) == []
    await start(third, "c")
    assert places(third, "orders") == ("a", "c", "a")


async def test_a_shard_that_is_not_there_is_not_released(cluster: list[Metadata]) -> None:
    with pytest.raises(ForeignStore, match="no shard 'east'; it has a, b, c"):
        await cluster[0].release_shard("east")


async def test_a_store_that_is_new_has_to_name_its_shard(nodes: list[Metadata]) -> None:
    """A lone node that lost its data directory is no second shard."""
    first, second, _ = nodes
    await start(first, "a")
    with pytest.raises(ForeignStore, match=r"'a'.*01010101.*a:1.*02020202") as refused:
        await second.claim_shard(Claim(STORES["b"], "", "node-b", "b:1"))
    assert "--shard" in str(refused.value.hint)
    assert "release-store" in str(refused.value.hint)
    await second.claim_shard(Claim(STORES["a"], "", "node-a", "a:1"))
    assert second.shard == "a"
    await first.release_shard()
    await second.claim_shard(Claim(STORES["b"], "", "node-b", "b:1"))
    assert second.shard == "02020202"


class TestCopies:
    """Of a data directory: its store is the shard, too."""

    async def lead(self, metadata: Metadata, place: str, grant_id: bytes) -> None:
        await metadata.claim_shard(Claim(STORES["a"], "a", "node-a", "a:1", place, grant_id))
        await metadata.register_node(NodeView("node-a", "a:1", STORES["a"], BEGAN, BEGAN, "a"))

    async def test_one_is_refused_while_the_node_has_its_lease(
        self, nodes: list[Metadata], clock: FakeClock
    ) -> None:
        """By the clock of the database, whatever that of a node says."""
        original, copy, _ = nodes
        await self.lead(original, "here:/data", b"1")
        clock.advance(s=3_600)
        await original.beat("node-a")
        with pytest.raises(ForeignStore, match=r"01010101.*here:/data.* lease runs") as refused:
            await self.lead(copy, "there:/data", b"2")
        assert not refused.value.retryable
        await self.lead(copy, "here:/data", b"3")  # the same, behind a kill

    async def test_a_killed_node_counts_as_gone_later(
        self, nodes: list[Metadata], url: str
    ) -> None:
        original, copy, _ = nodes
        await self.lead(original, "here:/data", b"1")
        end_lease(url)
        await self.lead(copy, "there:/data", b"2")
        await original.leave_shard(b"1")  # which is not its own any more
        with pytest.raises(ForeignStore, match="there:/data"):
            await self.lead(original, "here:/data", b"3")

    async def test_whoever_led_before_hears_of_it_and_renews_no_lease(
        self, nodes: list[Metadata], url: str
    ) -> None:
        original, copy, _ = nodes
        await self.lead(original, "here:/data", b"1")
        assert (await original.beat("node-a")).grant_id == b"1"
        end_lease(url)
        await self.lead(copy, "there:/data", b"2")
        end_lease(url)
        assert (await original.beat("node-a")).grant_id == b"2"
        await self.lead(nodes[2], "elsewhere:/data", b"3")  # no lease keeps it out

    async def test_a_node_that_has_ended_may_start_elsewhere_at_once(
        self, nodes: list[Metadata]
    ) -> None:
        original, moved, _ = nodes
        await self.lead(original, "here:/data", b"1")
        await original.leave_shard(b"1")
        await self.lead(moved, "there:/data", b"2")


async def kinds(metadata: Metadata) -> list[tuple[str, str]]:
    """Of all events, the oldest first."""
    found = await metadata.events.page(None, 100)
    assert [each.seq for each in found] == [*range(len(found), 0, -1)]
    return [(each.kind, each.shard) for each in reversed(found)]


async def test_what_happens_to_shards_is_kept_with_the_change(
    cluster: list[Metadata], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = cluster[:2]
    of_a_start = ["shard_made", "node_registered", "shard_led"]
    assert await kinds(first) == [(kind, name) for name in STORES for kind in of_a_start]
    await first.lead_shard(STORES["a"] * 4, 1)  # nothing new
    await first.leave_shard(b"another start")
    store = STORES["a"]
    with pytest.raises(ForeignStore):  # what is rolled back did not happen
        await first.claim_shard(Claim(store, "other", "node-a", "a:1", "", b"x"))
    assert len(await kinds(first)) == 9
    await first.leave_shard(store * 4)
    await start(first, "a", 2)
    await second.release_shard("c")
    await second.events.note(Event("node_fenced", "c", "node-c", 1, "shard 'c' was released"))
    newest = (await second.events.page(None, 6))[::-1]
    assert [(each.kind, each.shard, each.node_id, each.epoch) for each in newest] == [
        ("shard_left", "a", "node-a", 1),
        ("shard_claimed", "a", "node-a", 1),
        ("node_registered", "a", "node-a", None),
        ("shard_led", "a", "node-a", 2),
        ("shard_released", "c", "node-c", 1),
        ("node_fenced", "c", "node-c", 1),
    ]
    assert [each.seq for each in await first.events.page(newest[0].seq, 2)] == [9, 8]
    monkeypatch.setattr("app.cluster.metadata.nodes.cluster_events.EVENTS_KEPT_MAX", 5)
    await second.events.note(Event("node_fenced", "c", "node-c", 1))
    assert [each.seq for each in await first.events.page(None, 100)] == [16, 15, 14, 13, 12]


async def test_no_new_queue_is_placed_there_and_all_nodes_hear_of_it(
    cluster: list[Metadata],
) -> None:
    first, other, _ = cluster
    await first.put_topic("orders", TopicSettings(queues=3))
    await other.refresh()
    found = await other.shard_drains.change("a", Takes.KEYED, "ops")
    assert (found.before, found.after, found.only_here) == (Takes.ALL, Takes.KEYED, ())
    assert other.snapshot.shards["a"].takes is Takes.KEYED
    assert list(other.snapshot.topics["orders"].open_queues) == [1, 2]
    assert list(first.snapshot.topics["orders"].open_queues) == [0, 1, 2], "it has not heard yet"
    assert await first.refresh()
    assert list(first.snapshot.topics["orders"].open_queues) == [1, 2]
    await first.put_topic("orders", TopicSettings(queues=7))
    assert places(first, "orders") == tuple("abcbcbc")
    assert list(first.snapshot.topics["orders"].open_queues) == [1, 2, 3, 4, 5, 6]
    await first.put_topic("payments", TopicSettings(queues=2))
    assert set(places(first, "payments")) == {"b", "c"}
    moved = await first.shard_drains.change("a", Takes.NONE)
    assert moved.before is Takes.KEYED
    assert first.snapshot.topics["orders"].moved == {0}
    asked = await first.shard_drains.change("a", Takes.KEYED)
    assert (asked.before, asked.after) == (Takes.NONE, Takes.NONE), "its keys do not come back"
    await first.shard_drains.change("a", Takes.ALL, "ops")
    assert list(first.snapshot.topics["orders"].open_queues) == list(range(7))
    events = list(await first.events.page(None, 3))[::-1]
    assert [(each.kind, each.shard, each.detail) for each in events] == [
        ("shard_drains", "a", "asked for by ops"),
        ("shard_keys_moved", "a", ""),
        ("shard_takes_all", "a", "asked for by ops"),
    ]


async def test_a_dry_run_and_what_is_so_already_change_nothing(cluster: list[Metadata]) -> None:
    first = cluster[0]
    await first.put_topic("lonely", TopicSettings(queues=1))
    await first.refresh()
    version = first.snapshot.version
    tried = await first.shard_drains.change("a", Takes.NONE, is_dry_run=True)
    assert (tried.before, tried.after, tried.only_here) == (Takes.ALL, Takes.NONE, ("lonely",))
    await first.shard_drains.change("a", Takes.ALL)
    assert not await first.refresh()
    assert first.snapshot.version == version
    assert first.snapshot.shards["a"].takes is Takes.ALL


async def test_the_last_shard_that_takes_messages_does_not_drain(cluster: list[Metadata]) -> None:
    first = cluster[0]
    await first.shard_drains.change("a", Takes.KEYED)
    await first.shard_drains.change("b", Takes.NONE)
    with pytest.raises(DrainRefused) as refused:
        await first.shard_drains.change("c", Takes.KEYED)
    assert refused.value.fields["reason"] == "last_shard"
    with pytest.raises(ShardNotFound, match="there is no shard 'd'"):
        await first.shard_drains.change("d", Takes.KEYED)
    await first.shard_drains.change("b", Takes.KEYED)
    await first.shard_drains.change("a", Takes.ALL)
    await first.shard_drains.change("c", Takes.KEYED)


async def test_a_shard_that_drains_tells_of_itself_when_all_others_were_released(
    cluster: list[Metadata],
) -> None:
    first = cluster[0]
    await first.shard_drains.change("a", Takes.KEYED)
    for name in ("b", "c"):
        await first.release_shard(name)
    found = await first.shard_drains.change("a", Takes.KEYED, is_dry_run=True)
    assert (found.before, found.after) == (Takes.KEYED, Takes.KEYED)
    with pytest.raises(DrainRefused):
        await first.shard_drains.change("a", Takes.NONE)
