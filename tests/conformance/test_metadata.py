"""What the metadata promises, over SQLite and over a real PostgreSQL alike."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

import pytest

from app.cluster import ClusterConfig, CommittedOffset, Metadata, NodeView
from app.domain.errors import (
    GroupNotFound,
    IllegalGroup,
    IllegalPage,
    IllegalSetting,
    IllegalTopic,
    PreconditionFailed,
    StateConflict,
    TopicNotFound,
)
from app.domain.limits import Limits
from app.domain.positions import FlushMode, QueueOffset, TimestampMs
from app.domain.settings import (
    DEFAULT_RETRY,
    CustomizedRetry,
    DeliveryOrder,
    ExponentialRetry,
    GroupSettings,
    TopicSettings,
    TopicType,
)
from tests.support.clock import START_MS, FakeClock
from tests.support.databases import Databases

pytestmark = pytest.mark.anyio


class OpenNode(Protocol):
    def __call__(self) -> AbstractAsyncContextManager[Metadata]: ...


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def open_node(databases: Databases, clock: FakeClock) -> OpenNode:
    """Opens the same database again, as another node or after a restart."""
    url = databases.migrated()

    @asynccontextmanager
    async def opened() -> AsyncIterator[Metadata]:
        metadata = await Metadata.open(ClusterConfig(url), clock)
        try:
            yield metadata
        finally:
            await metadata.close()

    return opened


@pytest.fixture
async def metadata(open_node: OpenNode) -> AsyncIterator[Metadata]:
    async with open_node() as opened:
        yield opened


@pytest.fixture
async def other(open_node: OpenNode, metadata: Metadata) -> AsyncIterator[Metadata]:
    """A second node on the database of `metadata`."""
    async with open_node() as opened:
        yield opened


def offset(group: str, topic: str, queue_id: int, value: int) -> CommittedOffset:
    return CommittedOffset(group, topic, queue_id, QueueOffset(value))


async def make(metadata: Metadata, *, topics: str = "", groups: str = "") -> None:
    for name in topics.split():
        await metadata.ensure_topic(name)
    for name in groups.split():
        await metadata.ensure_group(name)


class TestTopics:
    async def test_a_new_topic_has_its_settings(
        self, metadata: Metadata, open_node: OpenNode
    ) -> None:
        settings = TopicSettings(9, TopicType.FIFO, FlushMode.ASYNC, 3_600_000)
        topic, created = await metadata.put_topic("orders", settings)
        assert created
        assert topic.name == "orders"
        assert topic.settings == settings
        assert (topic.generation, topic.created_ms, topic.updated_ms) == (1, START_MS, START_MS)
        assert metadata.snapshot.topics == {"orders": topic}
        async with open_node() as restarted:
            assert restarted.snapshot == metadata.snapshot

    async def test_a_change_keeps_what_it_should(
        self, metadata: Metadata, clock: FakeClock, open_node: OpenNode
    ) -> None:
        first, _ = await metadata.put_topic("orders", TopicSettings())
        clock.advance(ms=5)
        second, created = await metadata.put_topic("orders", TopicSettings(queues=6))
        assert not created
        assert second.queues == 6
        assert second.generation == first.generation
        assert second.created_ms == first.created_ms
        assert second.updated_ms == first.updated_ms + 5
        assert second.version > first.version
        async with open_node() as restarted:
            assert restarted.snapshot.topics == {"orders": second}

    async def test_putting_the_same_changes_nothing(
        self, metadata: Metadata, clock: FakeClock
    ) -> None:
        first, _ = await metadata.put_topic("orders", TopicSettings())
        before = metadata.snapshot
        clock.advance(s=1)
        assert await metadata.put_topic("orders", TopicSettings()) == (first, False)
        assert metadata.snapshot is before

    async def test_queues_never_shrink(self, metadata: Metadata) -> None:
        topic, _ = await metadata.put_topic("orders", TopicSettings(queues=8))
        with pytest.raises(StateConflict, match="8 queues and cannot shrink to 7") as caught:
            await metadata.put_topic("orders", TopicSettings(queues=7))
        assert caught.value.hint
        assert metadata.snapshot.topics == {"orders": topic}

    async def test_a_topic_made_again_may_be_smaller_and_has_the_next_generation(
        self, metadata: Metadata
    ) -> None:
        versions = set()
        for generation in (1, 2, 3):
            topic, created = await metadata.put_topic(
                "orders", TopicSettings(queues=5 - generation)
            )
            assert created
            assert topic.generation == generation
            versions.add(topic.version)
            await metadata.delete_topic("orders")
        assert len(versions) == 3
        assert (await metadata.ensure_topic("orders")).generation == 4
        assert (await metadata.ensure_topic("others")).generation == 1

    async def test_deleting_what_does_not_exist(self, metadata: Metadata) -> None:
        await make(metadata, topics="orders")
        with pytest.raises(TopicNotFound) as caught:
            await metadata.delete_topic("order")
        assert caught.value.hint == "did you mean 'orders'?"
        before = metadata.snapshot
        with pytest.raises(TopicNotFound):
            await metadata.delete_topic("quite-another")
        assert metadata.snapshot is before

    async def test_conditional_puts(self, metadata: Metadata) -> None:
        settings = TopicSettings()
        with pytest.raises(PreconditionFailed):
            await metadata.put_topic("orders", settings, if_version=1)
        topic, created = await metadata.put_topic("orders", settings, if_version=0)
        assert created
        with pytest.raises(PreconditionFailed):
            await metadata.put_topic("orders", TopicSettings(queues=5), if_version=0)
        with pytest.raises(PreconditionFailed):
            await metadata.put_topic(
                "orders", TopicSettings(queues=5), if_version=topic.version + 1
            )
        changed, _ = await metadata.put_topic(
            "orders", TopicSettings(queues=5), if_version=topic.version
        )
        assert changed.queues == 5

    async def test_a_version_does_not_come_back_with_a_name(self, metadata: Metadata) -> None:
        old = await metadata.ensure_topic("orders")
        await metadata.delete_topic("orders")
        await make(metadata, topics="orders")
        with pytest.raises(PreconditionFailed):
            await metadata.put_topic("orders", TopicSettings(queues=5), if_version=old.version)

    async def test_ensure_makes_a_topic_once_and_never_changes_it(
        self, metadata: Metadata, other: Metadata
    ) -> None:
        made = await metadata.ensure_topic("orders")
        assert made.settings == TopicSettings()
        changed, _ = await metadata.put_topic("orders", TopicSettings(queues=9))
        assert "orders" not in other.snapshot.topics
        assert await other.ensure_topic("orders") == changed
        assert other.snapshot == metadata.snapshot

    async def test_names_and_settings_are_checked(self, metadata: Metadata) -> None:
        for name in ("", "a b", "%RETRY%g", "rmq_sys_x"):
            with pytest.raises(IllegalTopic):
                await metadata.put_topic(name, TopicSettings())
            with pytest.raises(IllegalTopic):
                await metadata.ensure_topic(name)
        with pytest.raises(IllegalSetting):
            await metadata.put_topic("orders", TopicSettings(queues=0))
        assert metadata.snapshot.version == 0

    async def test_listing(self, metadata: Metadata) -> None:
        await make(metadata, topics="b-2 a-1 b-1 c b-3")
        first = metadata.list_topics(prefix="b", page_size=2)
        assert [topic.name for topic in first.items] == ["b-1", "b-2"]
        second = metadata.list_topics(prefix="b", page_size=2, page_token=first.next_page_token)
        assert [topic.name for topic in second.items] == ["b-3"]
        assert second.next_page_token is None
        assert len(metadata.list_topics().items) == 5
        with pytest.raises(IllegalPage):
            metadata.list_topics(page_size=Limits().page_size_max + 1)


class TestGroups:
    @pytest.mark.parametrize(
        "settings",
        [
            GroupSettings(),
            GroupSettings(3, CustomizedRetry((5, 6)), DeliveryOrder.FIFO, 60_000, "latest", 7),
            GroupSettings(retry_policy=ExponentialRetry(5, 1.5, 2**31), start=START_MS),
        ],
        ids=["defaults", "customized", "exponential"],
    )
    async def test_settings_come_back(
        self, metadata: Metadata, open_node: OpenNode, settings: GroupSettings
    ) -> None:
        group, created = await metadata.put_group("billing", settings)
        assert created
        assert group.settings == settings
        assert metadata.snapshot.groups == {"billing": group}
        async with open_node() as restarted:
            assert restarted.snapshot == metadata.snapshot

    async def test_change_repeat_and_condition(self, metadata: Metadata, clock: FakeClock) -> None:
        first, _ = await metadata.put_group("billing", GroupSettings())
        clock.advance(ms=5)
        changed, created = await metadata.put_group("billing", GroupSettings(max_attempts=2))
        assert not created
        assert (changed.created_ms, changed.updated_ms) == (START_MS, START_MS + 5)
        assert changed.max_attempts == 2
        assert changed.retry_policy == DEFAULT_RETRY
        assert await metadata.put_group("billing", changed.settings) == (changed, False)
        with pytest.raises(PreconditionFailed):
            await metadata.put_group("billing", GroupSettings(), if_version=first.version)

    async def test_ensure_and_delete(self, metadata: Metadata, other: Metadata) -> None:
        made = await metadata.ensure_group("billing")
        assert made.settings == GroupSettings()
        assert await other.ensure_group("billing") == made
        await metadata.delete_group("billing")
        assert metadata.snapshot.groups == {}
        await make(metadata, groups="shipping")
        with pytest.raises(GroupNotFound) as caught:
            await metadata.delete_group("shiping")
        assert caught.value.hint == "did you mean 'shipping'?"

    async def test_names_and_settings_are_checked(self, metadata: Metadata) -> None:
        with pytest.raises(IllegalGroup):
            await metadata.put_group("a/b", GroupSettings())
        with pytest.raises(IllegalGroup):
            await metadata.ensure_group("a/b")
        with pytest.raises(IllegalSetting):
            await metadata.put_group("billing", GroupSettings(max_attempts=0))

    async def test_listing(self, metadata: Metadata) -> None:
        await make(metadata, groups="b a")
        assert [group.name for group in metadata.list_groups().items] == ["a", "b"]


class TestOffsets:
    async def test_offsets_only_go_forward(self, metadata: Metadata) -> None:
        await make(metadata, topics="orders", groups="billing")
        for value, stored in ((5, 5), (3, 5), (5, 5), (9, 9)):
            assert await metadata.commit_offsets([offset("billing", "orders", 0, value)]) == []
            assert await metadata.load_offsets() == [offset("billing", "orders", 0, stored)]

    async def test_force_goes_back(self, metadata: Metadata) -> None:
        await make(metadata, topics="orders", groups="billing")
        await metadata.commit_offsets([offset("billing", "orders", 0, 5)])
        await metadata.commit_offsets([offset("billing", "orders", 0, 2)], force=True)
        assert await metadata.load_offsets() == [offset("billing", "orders", 0, 2)]

    @pytest.mark.parametrize(("force", "kept"), [(False, 8), (True, 4)])
    async def test_one_queue_twice_in_one_commit(
        self, metadata: Metadata, force: bool, kept: int
    ) -> None:
        await make(metadata, topics="orders", groups="billing")
        rows = [offset("billing", "orders", 0, value) for value in (1, 8, 4)]
        await metadata.commit_offsets(rows, force=force)
        assert await metadata.load_offsets() == [offset("billing", "orders", 0, kept)]

    async def test_many_rows_in_one_commit(self, metadata: Metadata, open_node: OpenNode) -> None:
        await make(metadata, topics="a b", groups="g h")
        rows = [
            offset(group, topic, queue_id, 2**62 + queue_id)
            for group in ("g", "h")
            for topic in ("a", "b")
            for queue_id in range(600)
        ]
        await metadata.commit_offsets(random.Random(1).sample(rows, len(rows)))
        async with open_node() as restarted:
            assert await restarted.load_offsets() == rows

    async def test_no_rows_are_no_work(self, metadata: Metadata) -> None:
        assert await metadata.commit_offsets([]) == []

    async def test_rows_of_the_deleted_are_left_out_and_named(self, metadata: Metadata) -> None:
        await make(metadata, topics="orders", groups="billing")
        good = offset("billing", "orders", 0, 5)
        bad = [offset("billing", "gone", 0, 5), offset("gone", "orders", 0, 5)]
        assert await metadata.commit_offsets([bad[0], good, bad[1]]) == bad
        assert await metadata.load_offsets() == [good]
        assert await metadata.commit_offsets(bad) == bad

    async def test_committing_is_all_or_nothing(self, metadata: Metadata) -> None:
        await make(metadata, topics="orders", groups="billing")
        rows = [offset("billing", "orders", 0, 5), offset("billing", "orders", 1, -1)]
        with pytest.raises(Exception, match="refused a statement"):
            await metadata.commit_offsets(rows)
        assert await metadata.load_offsets() == []

    async def test_offsets_go_with_their_topic_and_their_group(self, metadata: Metadata) -> None:
        await make(metadata, topics="a b", groups="g h")
        rows = [offset(group, topic, 0, 5) for group in ("g", "h") for topic in ("a", "b")]
        await metadata.commit_offsets(rows)
        await metadata.delete_topic("a")
        assert await metadata.load_offsets() == [offset("g", "b", 0, 5), offset("h", "b", 0, 5)]
        await metadata.delete_group("h")
        assert await metadata.load_offsets() == [offset("g", "b", 0, 5)]
        await make(metadata, topics="a", groups="h")
        assert await metadata.load_offsets() == [offset("g", "b", 0, 5)]

    async def test_deleting_offsets_of_one_group_in_one_topic(self, metadata: Metadata) -> None:
        await make(metadata, topics="a b", groups="g h")
        rows = [
            *(offset("g", "a", 0, 5), offset("g", "a", 1, 5)),
            *(offset("g", "b", 0, 5), offset("h", "a", 0, 5)),
        ]
        await metadata.commit_offsets(rows)
        await metadata.delete_offsets("g", "a")
        assert await metadata.load_offsets() == rows[2:]
        await metadata.delete_offsets("g", "a")
        await metadata.delete_offsets("no", "no")

    async def test_offsets_do_not_move_the_snapshot(self, metadata: Metadata) -> None:
        await make(metadata, topics="orders", groups="billing")
        before = metadata.snapshot
        await metadata.commit_offsets([offset("billing", "orders", 0, 5)])
        assert not await metadata.refresh()
        assert metadata.snapshot is before


class TestSnapshot:
    async def test_refresh_takes_over_what_another_node_changed(
        self, metadata: Metadata, other: Metadata
    ) -> None:
        await make(metadata, topics="a b", groups="g")
        await metadata.put_topic("a", TopicSettings(queues=9))
        await metadata.delete_topic("b")
        assert other.snapshot.version == 0
        assert await other.refresh()
        assert other.snapshot == metadata.snapshot
        before = other.snapshot
        assert not await other.refresh()
        assert other.snapshot is before

    async def test_a_change_of_ours_brings_the_changes_of_others_with_it(
        self, metadata: Metadata, other: Metadata
    ) -> None:
        await make(metadata, topics="a")
        await make(other, topics="b")
        assert set(other.snapshot.topics) == {"a", "b"}

    async def test_every_change_raises_the_version_by_one(self, metadata: Metadata) -> None:
        await make(metadata, topics="a", groups="g")
        await metadata.put_topic("a", TopicSettings(queues=9))
        await metadata.put_group("g", GroupSettings(max_attempts=9))
        await metadata.delete_topic("a")
        await metadata.delete_group("g")
        assert metadata.snapshot.version == 6
        assert not await metadata.refresh()

    async def test_a_refused_change_raises_nothing(self, metadata: Metadata) -> None:
        await make(metadata, topics="a")
        with pytest.raises(StateConflict):
            await metadata.put_topic("a", TopicSettings(queues=1))
        assert not await metadata.refresh()
        assert metadata.snapshot.version == 1

    async def test_a_held_snapshot_stays_as_it_was(self, metadata: Metadata) -> None:
        await make(metadata, topics="a")
        held = metadata.snapshot
        await metadata.delete_topic("a")
        assert set(held.topics) == {"a"}


class TestNodesAndSecrets:
    async def test_nodes_register_and_give_signs_of_life(
        self, metadata: Metadata, other: Metadata, clock: FakeClock
    ) -> None:
        started = TimestampMs(START_MS - 9)
        await metadata.register_node("n2", "http://b:1", b"\x00\xff", started)
        await metadata.register_node("n1", "http://a:1", b"1", started)
        clock.advance(ms=100)
        assert await metadata.heartbeat("n1")
        assert not await metadata.heartbeat("n3")
        assert await other.list_nodes() == [
            NodeView("n1", "http://a:1", b"1", started, TimestampMs(START_MS + 100)),
            NodeView("n2", "http://b:1", b"\x00\xff", started, TimestampMs(START_MS)),
        ]

    async def test_a_node_that_starts_again_replaces_its_entry(
        self, metadata: Metadata, clock: FakeClock
    ) -> None:
        await metadata.register_node("n1", "http://a:1", b"1", clock.now_ms())
        clock.advance(s=1)
        await metadata.register_node("n1", "http://a:2", b"2", clock.now_ms())
        now = clock.now_ms()
        assert await metadata.list_nodes() == [NodeView("n1", "http://a:2", b"2", now, now)]

    async def test_a_secret_is_random_and_the_same_everywhere(
        self, metadata: Metadata, other: Metadata
    ) -> None:
        values = await asyncio.gather(*(node.secret("r") for node in (metadata, other) * 5))
        assert len(set(values)) == 1
        assert len(values[0]) == 32
        assert await metadata.secret("another") != values[0]


class TestTogether:
    async def test_two_nodes_change_everything_at_once(
        self, metadata: Metadata, other: Metadata
    ) -> None:
        await asyncio.gather(
            *(
                node.put_topic(f"t{number % 10}", TopicSettings(queues=queues))
                for number in range(20)
                for node, queues in ((metadata, 4), (other, 4))
            ),
            *(node.ensure_group(f"g{number}") for number in range(5) for node in (metadata, other)),
        )
        await metadata.refresh()
        await other.refresh()
        assert metadata.snapshot == other.snapshot
        assert metadata.snapshot.version == 15
        assert {topic.generation for topic in metadata.snapshot.topics.values()} == {1}

    async def test_of_two_conditional_puts_one_wins(
        self, metadata: Metadata, other: Metadata
    ) -> None:
        topic = await metadata.ensure_topic("orders")
        results = await asyncio.gather(
            *(
                node.put_topic("orders", TopicSettings(queues=queues), if_version=topic.version)
                for node, queues in ((metadata, 5), (other, 6))
            ),
            return_exceptions=True,
        )
        assert sum(isinstance(result, PreconditionFailed) for result in results) == 1

    async def test_commits_and_deletions_cross_without_deadlock(
        self, metadata: Metadata, other: Metadata
    ) -> None:
        await make(metadata, topics="a b c", groups="g h")
        rows = [
            offset(group, topic, queue_id, 1)
            for group in ("g", "h")
            for topic in ("a", "b", "c")
            for queue_id in range(20)
        ]
        chance = random.Random(7)

        async def commit(node: Metadata, value: int) -> None:
            mixed = [offset(r.group, r.topic, r.queue_id, value) for r in rows]
            chance.shuffle(mixed)
            await node.commit_offsets(mixed)

        await asyncio.gather(
            *(commit(node, value) for value in range(1, 11) for node in (metadata, other)),
            *(metadata.delete_offsets("g", topic) for topic in ("a", "b")),
            other.delete_topic("c"),
        )
        await commit(metadata, 99)
        assert {(r.topic, r.offset) for r in await other.load_offsets()} == {("a", 99), ("b", 99)}

    async def test_a_cancelled_change_leaves_no_lock_behind(
        self, metadata: Metadata, other: Metadata
    ) -> None:
        # Give up after any number of turns of the loop, so that every await is interrupted once.
        for turns in range(40):
            change = asyncio.ensure_future(metadata.ensure_topic(f"t{turns}"))
            for _ in range(turns):
                await asyncio.sleep(0)
            change.cancel()
            await asyncio.wait([change])
        await make(other, topics="after")
        await make(metadata, topics="after-that")
        await other.refresh()
        assert {"after", "after-that"} <= set(metadata.snapshot.topics)
        assert metadata.snapshot == other.snapshot
