"""What nodes see of one another's metadata, over SQLite and over a real PostgreSQL alike."""

import asyncio
import random

import pytest
from sqlalchemy.ext.asyncio import AsyncConnection

from app.cluster import Metadata, NodeView, TopicView
from app.cluster.metadata.tables import versions
from app.cluster.metadata.tables.topics import TOPICS
from app.domain.errors import (
    PreconditionFailed,
    StateConflict,
)
from app.domain.positions import TimestampMs
from app.domain.settings import (
    GroupSettings,
    TopicSettings,
)
from tests.support.metadata.metadata import make, offset
from tests.support.stores.clock import START_MS, FakeClock

pytestmark = pytest.mark.anyio


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

    async def test_reading_sees_one_moment(self, metadata: Metadata) -> None:
        async with metadata._database.reading() as connection:
            assert await versions.current(connection) == 0
            await make(metadata, topics="a")
            assert await TOPICS.load(connection) == []
            assert await versions.current(connection) == 0

    async def test_a_slow_refresh_does_not_undo_a_change_of_ours(
        self, metadata: Metadata, other: Metadata, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await make(other, topics="a")
        table = type(TOPICS)
        loads = table.load

        async def load_slowly(self: object, connection: AsyncConnection) -> list[TopicView]:
            assert self is TOPICS
            monkeypatch.setattr(table, "load", loads)
            found = await loads(TOPICS, connection)
            await make(metadata, topics="late")
            return found

        monkeypatch.setattr(table, "load", load_slowly)
        await metadata.refresh()
        assert set(metadata.snapshot.topics) == {"a", "late"}

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
        await metadata.register_node(NodeView("n2", "http://b:1", b"\x00\xff", started, started))
        await metadata.register_node(NodeView("n1", "http://a:1", b"1", started, started))
        clock.advance(ms=100)
        assert (await metadata.beat("n1")).is_registered
        assert not (await metadata.beat("n3")).is_registered
        assert await other.list_nodes() == [
            NodeView("n1", "http://a:1", b"1", started, TimestampMs(START_MS + 100)),
            NodeView("n2", "http://b:1", b"\x00\xff", started, TimestampMs(START_MS)),
        ]

    async def test_a_node_that_starts_again_replaces_its_entry(
        self, metadata: Metadata, clock: FakeClock
    ) -> None:
        now = clock.now_ms()
        await metadata.register_node(NodeView("n1", "http://a:1", b"1", now, now))
        clock.advance(s=1)
        now = clock.now_ms()
        again = NodeView("n1", "http://a:2", b"2", now, now, "east", "http://a:2", zone="z")
        await metadata.register_node(again)
        assert await metadata.list_nodes() == [again]

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
        assert len({topic.generation for topic in metadata.snapshot.topics.values()}) == 10

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
