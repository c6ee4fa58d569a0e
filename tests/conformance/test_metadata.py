"""What the metadata promises of topics and groups, over SQLite and over a real PostgreSQL alike."""

import pytest

from app.cluster import Metadata
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
from app.domain.limits import GENERATION_MAX, Limits
from app.domain.positions import FlushMode
from app.domain.settings import (
    DEFAULT_RETRY,
    CustomizedRetry,
    DeliveryOrder,
    ExponentialRetry,
    GroupSettings,
    TopicSettings,
    TopicType,
)
from tests.support.metadata.hints import hint_of
from tests.support.metadata.metadata import OpenNode, make
from tests.support.stores.clock import START_MS, FakeClock

pytestmark = pytest.mark.anyio


class TestTopics:
    async def test_a_new_topic_has_its_settings(
        self, metadata: Metadata, open_node: OpenNode
    ) -> None:
        settings = TopicSettings(9, TopicType.FIFO, FlushMode.ASYNC, 3_600_000)
        topic, created = await metadata.put_topic("orders", settings)
        assert created
        assert topic.name == "orders"
        assert topic.settings == settings
        assert 0 < topic.generation <= GENERATION_MAX
        assert (topic.created_ms, topic.updated_ms) == (START_MS, START_MS)
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

    async def test_a_topic_made_again_may_be_smaller_and_has_another_generation(
        self, metadata: Metadata
    ) -> None:
        versions, generations = set(), set()
        for queues in (4, 3, 2):
            topic, created = await metadata.put_topic("orders", TopicSettings(queues=queues))
            assert created
            versions.add(topic.version)
            generations.add(topic.generation)
            await metadata.delete_topic("orders")
        assert len(versions) == len(generations) == 3
        generations.add((await metadata.ensure_topic("orders")).generation)
        generations.add((await metadata.ensure_topic("others")).generation)
        assert len(generations) == 5

    async def test_deleting_what_does_not_exist(self, metadata: Metadata) -> None:
        await make(metadata, topics="orders")
        with pytest.raises(TopicNotFound) as caught:
            await metadata.delete_topic("order")
        assert hint_of(caught.value) == "did you mean 'orders'?"
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
        assert hint_of(caught.value) == "did you mean 'shipping'?"

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
