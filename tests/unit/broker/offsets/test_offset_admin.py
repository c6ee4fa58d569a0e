"""Resets, stale subscriptions and snapshots of a group's offsets, also while it is at work."""

from collections.abc import AsyncIterator

import pytest

from app.broker.members.member_values import Heartbeat
from app.broker.offsets.offset_admin import OffsetChange, ResetRequest, ResetTarget
from app.broker.offsets.offset_commits import Committer
from app.broker.results import QueuePosition
from app.domain.consumers.membership import Profile, QueueName, TopicSubscription
from app.domain.errors import (
    BroadcastGroup,
    DiskFull,
    GroupNotFound,
    MetadataUnavailable,
    QueueNotFound,
    ReceiptHandleExpired,
    SnapshotNotFound,
    StaleGeneration,
    StateConflict,
    SubscriptionNotFound,
    TopicNotFound,
)
from app.domain.identity import Kind
from app.domain.positions import CommittedOffset, QueueOffset
from app.domain.settings import GroupMode, GroupSettings, TopicSettings
from tests.support.nodes.brokers import GROUP, TOPIC, World, bodies, never_gone, put_topic, running

pytestmark = pytest.mark.anyio

ORDERS = Heartbeat(Profile((TopicSubscription(TOPIC),)))


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """Four messages in queue 0, stored a second apart, two in queue 1; offsets 2 and 1."""
    async with running(queues=2) as world:
        for number in range(4):
            await world.send(b"%d" % number)
            world.clock.advance(ms=1_000)
        await world.send(b"x", b"y", queue_id=1)
        await world.commit(2, force=True)
        await world.commit(1, queue_id=1, force=True)
        yield world


async def reset(
    world: World, to: ResetTarget, value: int = 0, *, topic: str | None = TOPIC, **more: object
) -> list[tuple[int | None, int]]:
    request = ResetRequest(to, value, **more)  # type: ignore[arg-type]
    result = await world.broker.offset_admin.reset(
        GROUP, None if topic is None else [topic], request
    )
    return [(change.before, change.after) for change in result.changes]


async def test_a_commit_of_nobodys_queues_and_its_trial_need_no_database(world: World) -> None:
    world.metadata.is_down = True
    rows = [QueuePosition(0, 3), QueuePosition(1, 0)]
    for commit in (world.broker.offset_commits.preview_commit, world.broker.offset_commits.commit):
        found = await commit(GROUP, TOPIC, rows)
        assert found.offsets == [QueuePosition(0, 3), QueuePosition(1, 1)]
    world.metadata.is_down = False


class TestReset:
    async def test_every_target(self, world: World) -> None:
        third_ms = world.clock.now_ms() - 2_000
        for to, value, after in (
            ("earliest", 0, (0, 0)),
            ("latest", 0, (4, 2)),
            ("timestamp", third_ms, (2, 0)),
            ("offset", 1, (1, 1)),
            ("shift", 1, (2, 2)),
            ("shift", -1, (1, 1)),
        ):
            before = world.committed()
            changes = await reset(world, to, value)  # type: ignore[arg-type]
            assert changes == [(before[0], after[0]), (before[1], after[1])]
            assert world.committed() == dict(enumerate(after))
            assert world.metadata.committed(GROUP, TOPIC) == dict(enumerate(after))

    async def test_a_dry_run_changes_nothing(self, world: World) -> None:
        assert await reset(world, "latest", is_dry_run=True) == [(2, 4), (1, 2)]
        assert world.committed() == {0: 2, 1: 1}

    async def test_chosen_queues(self, world: World) -> None:
        assert await reset(world, "latest", queues=frozenset({1})) == [(1, 2)]
        assert world.committed() == {0: 2, 1: 2}
        with pytest.raises(QueueNotFound):
            await reset(world, "latest", queues=frozenset({2}))

    async def test_what_cannot_be_read_is_clamped_and_said(self, world: World) -> None:
        result = await world.broker.offset_admin.reset(GROUP, [TOPIC], ResetRequest("offset", 3))
        number = world.metadata.snapshot.topics[TOPIC].generation
        assert result.changes == [
            OffsetChange(TOPIC, 0, 2, 3, 0, 4, is_clamped=False, topic_generation=number),
            OffsetChange(TOPIC, 1, 1, 2, 0, 2, is_clamped=True, topic_generation=number),
        ]

    async def test_all_topics_of_the_group(self, world: World) -> None:
        await world.topic(1, "bills")
        await world.topic(1, "other")
        await world.broker.offset_commits.commit(GROUP, "bills", [QueuePosition(0, 0)])
        request = ResetRequest("earliest")
        result = await world.broker.offset_admin.reset(GROUP, None, request)
        assert [(change.topic, change.queue_id) for change in result.changes] == [
            ("bills", 0),
            (TOPIC, 0),
            (TOPIC, 1),
        ]

    async def test_leases_end_and_their_handles_are_void(self, world: World) -> None:
        held = await world.receive()
        assert sorted(bodies(held)) == [b"2", b"3", b"y"]
        await reset(world, "earliest")
        assert set(await world.ack(*held)) == {ReceiptHandleExpired}
        assert sorted(bodies(await world.receive())) == [b"0", b"1", b"2", b"3", b"x", b"y"]

    async def test_members_are_told_by_a_generation(self, world: World) -> None:
        members = world.broker.members
        await members.heartbeat(GROUP, "a", ORDERS, never_gone)
        result = await world.broker.offset_admin.reset(GROUP, [TOPIC], ResetRequest("earliest"))
        assert result.generation == 2
        with pytest.raises(StaleGeneration):
            await world.broker.offset_commits.commit(
                GROUP, TOPIC, [QueuePosition(0, 3)], committer=Committer("a", 1)
            )
        share = await members.heartbeat(GROUP, "a", ORDERS, never_gone)
        assert {queue.since_generation for queue in share.assignment.assigned} == {2}
        assert share.offsets[QueueName(TOPIC, 0)] == 0

    async def test_it_survives_a_restart(self, world: World) -> None:
        await world.receive()
        await reset(world, "earliest")
        await world.restart()
        assert world.committed() == {0: 0, 1: 0}
        assert len(await world.receive()) == 6

    async def test_a_database_that_is_down_changes_nothing(self, world: World) -> None:
        held = await world.receive()
        world.metadata.is_down = True
        with pytest.raises(MetadataUnavailable):
            await reset(world, "earliest")
        world.metadata.is_down = False
        assert world.committed() == {0: 2, 1: 1}
        assert await world.ack(*held) == [None] * 3

    async def test_a_log_that_is_full_moves_no_offset(self, world: World) -> None:
        """Nor does it after a restart. Handles are void, so what was leased comes again."""
        held = await world.receive()
        world.store.failure = DiskFull("full", outcome="not_stored")
        with pytest.raises(DiskFull):
            await reset(world, "earliest")
        world.store.failure = None
        assert world.committed() == {0: 2, 1: 1}
        assert set(await world.ack(*held)) == {ReceiptHandleExpired}
        assert sorted(bodies(await world.receive())) == [b"2", b"3", b"y"]
        await world.restart()
        assert world.committed() == {0: 2, 1: 1}
        assert sorted(bodies(await world.receive())) == [b"2", b"3", b"y"]

    async def test_what_is_not_there(self, world: World) -> None:
        with pytest.raises(TopicNotFound):
            await reset(world, "latest", topic="none")
        with pytest.raises(GroupNotFound):
            await world.broker.offset_admin.reset("none", [TOPIC], ResetRequest("latest"))
        await world.group(GroupSettings(), "idle")
        with pytest.raises(SubscriptionNotFound):
            await world.broker.offset_admin.reset("idle", None, ResetRequest("latest"))
        await world.group(GroupSettings(mode=GroupMode.BROADCAST), "radio")
        with pytest.raises(BroadcastGroup):
            await world.broker.offset_admin.reset("radio", [TOPIC], ResetRequest("latest"))


class TestForgetting:
    async def test_a_stale_subscription_goes_for_good(self, world: World) -> None:
        held = await world.receive()
        await world.broker.offset_admin.delete(GROUP, TOPIC, None)
        assert world.committed() == {} == world.metadata.committed(GROUP, TOPIC)
        assert set(await world.ack(*held)) == {ReceiptHandleExpired}
        assert world.committed() == {}, "a handle that is refused begins nothing"
        await world.restart()
        assert world.committed() == {}
        with pytest.raises(SubscriptionNotFound):
            await world.broker.offset_admin.delete(GROUP, TOPIC, None)

    async def test_not_while_a_member_reads(self, world: World) -> None:
        await world.broker.members.heartbeat(GROUP, "a", ORDERS, never_gone)
        with pytest.raises(StateConflict, match="a"):
            await world.broker.offset_admin.delete(GROUP, TOPIC, None)

    @pytest.mark.parametrize("kind", list(Kind))
    async def test_a_successor_that_begins_meanwhile_keeps_its_offsets(
        self, world: World, monkeypatch: pytest.MonkeyPatch, kind: Kind
    ) -> None:
        delete = world.metadata.delete_offsets

        async def make_again(
            group: str, topic: str, _first_use_ms: int | None, *, elsewhere: object
        ) -> None:
            monkeypatch.setattr(world.metadata, "delete_offsets", delete)
            if kind is Kind.TOPIC:
                await world.broker.settings_changes.delete_topic(TOPIC)
                await put_topic(world.broker, TOPIC, TopicSettings(queues=2))
            else:
                await world.broker.settings_changes.delete_group(GROUP)
            await world.send(b"new", queue_id=1)
            rows = [QueuePosition(1, world.store.bounds(TOPIC, 1).max_offset)]
            await world.broker.offset_commits.commit(GROUP, TOPIC, rows)
            await delete(group, topic)

        monkeypatch.setattr(world.metadata, "delete_offsets", make_again)
        with pytest.raises(TopicNotFound if kind is Kind.TOPIC else GroupNotFound):
            await world.broker.offset_admin.delete(GROUP, TOPIC, None)
        end = world.store.bounds(TOPIC, 1).max_offset
        assert world.committed() == {1: end}
        await world.broker.offset_cache.write()
        assert world.metadata.committed(GROUP, TOPIC) == {1: end}
        await world.kill()
        assert world.committed() == {1: end}

    async def test_offsets_of_what_another_node_deleted_do_not_pile_up(self, world: World) -> None:
        await world.topic(1, "bills")
        await world.broker.offset_commits.commit(GROUP, "bills", [QueuePosition(0, 0)])
        await world.metadata.delete_topic("bills")
        await world.broker.offset_commits.commit(GROUP, TOPIC, [QueuePosition(0, 3)])
        await world.broker.offset_cache.write()
        assert [key for key, _ in world.broker.offset_cache.rows() if key[1] == "bills"] == []
        assert world.metadata.committed(GROUP, TOPIC)[0] == 3


class TestSnapshots:
    async def test_a_snapshot_brings_the_offsets_back(self, world: World) -> None:
        positions = world.broker.offset_admin
        made = await positions.take_snapshot(GROUP, "before")
        number = world.metadata.snapshot.topics[TOPIC].generation
        assert made.offsets == (
            CommittedOffset(GROUP, TOPIC, 0, QueueOffset(2), number),
            CommittedOffset(GROUP, TOPIC, 1, QueueOffset(1), number),
        )
        await reset(world, "latest")
        dry = await positions.restore(GROUP, "before", is_dry_run=True)
        assert [(change.before, change.after) for change in dry.changes] == [(4, 2), (2, 1)]
        assert world.committed() == {0: 4, 1: 2}
        await positions.restore(GROUP, "before", is_dry_run=False)
        assert world.committed() == {0: 2, 1: 1}
        assert [each.name for each in await positions.snapshots(GROUP)] == ["before"]
        await positions.delete_snapshot(GROUP, "before")
        with pytest.raises(SnapshotNotFound):
            await positions.restore(GROUP, "before", is_dry_run=False)
        with pytest.raises(SnapshotNotFound):
            await positions.delete_snapshot(GROUP, "before")

    async def test_topics_that_are_gone_are_named(self, world: World) -> None:
        await world.topic(1, "bills")
        await world.broker.offset_commits.commit(GROUP, "bills", [QueuePosition(0, 0)])
        positions = world.broker.offset_admin
        await positions.take_snapshot(GROUP, "before")
        await world.broker.settings_changes.delete_topic("bills")
        result = await positions.restore(GROUP, "before", is_dry_run=False)
        assert result.missing_topics == ["bills"]
        assert len(result.changes) == 2
