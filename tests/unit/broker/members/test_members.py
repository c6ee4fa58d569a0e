"""Members of groups on a clock that stands still: leases, long polls, fenced commits."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from app.broker.groups.group_notifier import GroupNotifier
from app.broker.members.liveness import Liveness
from app.broker.members.member_values import Heartbeat
from app.broker.members.members import BLIND_SECONDS_MAX
from app.broker.offsets.offset_commits import Committer
from app.broker.results import QueuePosition
from app.domain.consumers.membership import (
    ConflictKind,
    Profile,
    QueueName,
    RebalanceReason,
    Strategy,
    StrategyName,
    TopicSubscription,
)
from app.domain.errors import (
    BroadcastGroup,
    CurlewError,
    IllegalFilter,
    IllegalMember,
    MemberNotFound,
    MetadataUnavailable,
    OffsetOutOfRange,
    QueueNotOwned,
    ShuttingDown,
    StaleGeneration,
    StateConflict,
    TooManyRequests,
    TopicNotFound,
)
from app.domain.limits import Limits
from app.domain.settings import GroupMode, GroupSettings, SubscriptionRule
from tests.support.nodes.brokers import GROUP, TOPIC, World, never_gone, put_group, running
from tests.support.nodes.waiting import until
from tests.unit.broker.members.heartbeats import ORDERS, beat, members_of, pass_time, queues

pytestmark = pytest.mark.anyio

LEASE_S = Limits().member_lease_ms // 1_000


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with running(queues=4) as world:
        yield world


class TestHandover:
    async def test_queues_move_when_their_owner_confirms(self, world: World) -> None:
        first = await beat(world, "a")
        assert (first.assignment.generation, queues(first)) == (1, [0, 1, 2, 3])
        second = await beat(world, "b")
        assert (second.assignment.generation, queues(second)) == (2, [])
        assert [(q.queue_id, q.held_by) for q in second.assignment.pending] == [(2, "a"), (3, "a")]
        told = await beat(world, "a", 1)
        assert queues(told) == [0, 1]
        assert [name.queue_id for name in told.assignment.revoked] == [2, 3]
        assert queues(await beat(world, "b", 2)) == []
        confirmed = await beat(world, "a", 2)
        assert confirmed.assignment.revoked == ()
        assert queues(await beat(world, "b", 2)) == [2, 3]

    async def test_an_older_process_of_the_client_is_fenced(self, world: World) -> None:
        await beat(world, "a")
        restarted = await beat(world, "a", 0)
        assert (restarted.assignment.generation, queues(restarted)) == (2, [0, 1, 2, 3])
        with pytest.raises(StaleGeneration, match="another process"):
            await beat(world, "a", 1)
        with pytest.raises(StaleGeneration, match="not had"):
            await beat(world, "a", 3)
        with pytest.raises(StaleGeneration, match="no member"):
            await beat(world, "z", 1)

    async def test_leaving_frees_at_once(self, world: World) -> None:
        await beat(world, "a")
        await beat(world, "b")
        await world.broker.members.leave(GROUP, "a")
        assert queues(await beat(world, "b", 2)) == [0, 1, 2, 3]
        with pytest.raises(MemberNotFound):
            await world.broker.members.leave(GROUP, "a")

    async def test_the_history_says_why(self, world: World) -> None:
        await beat(world, "a")
        await beat(world, "b")
        await world.topic(6)
        await world.broker.members.follow_topics()
        await world.broker.members.leave(GROUP, "b")
        history = await world.broker.members.history(GROUP)
        assert [(entry.generation, entry.reason, entry.moved) for entry in history] == [
            (4, RebalanceReason.LEFT, 3),
            (3, RebalanceReason.QUEUES, 3),
            (2, RebalanceReason.JOINED, 2),
            (1, RebalanceReason.JOINED, 4),
        ]

    async def test_a_deleted_topic_is_reported(self, world: World) -> None:
        await beat(world, "a")
        await world.broker.settings_changes.delete_topic(TOPIC)
        share = await beat(world, "a", 2)
        assert (share.assignment.generation, queues(share)) == (2, [])
        assert [conflict.kind for conflict in share.conflicts] == [ConflictKind.TOPIC_MISSING]


class TestSilence:
    async def test_a_silent_member_is_removed_after_its_lease(self, world: World) -> None:
        await beat(world, "a")
        await beat(world, "b")
        await pass_time(world, LEASE_S - 1, {"b": 2})
        assert await members_of(world) == ["a", "b"]
        await pass_time(world, 1)
        assert await members_of(world) == ["b"]
        assert queues(await beat(world, "b", 3)) == [0, 1, 2, 3]
        with pytest.raises(StaleGeneration):
            await beat(world, "a", 2)
        assert queues(await beat(world, "a", 0)) == []

    async def test_a_step_of_the_wall_clock_removes_nobody(self, world: World) -> None:
        await beat(world, "a")
        world.clock.set_wall(world.clock.now_ms() + 86_400_000)
        await world.broker.members.turn()
        assert await members_of(world) == ["a"]

    async def test_time_in_which_nobody_could_be_heard_does_not_count(self, world: World) -> None:
        await beat(world, "a")
        world.clock.advance(s=LEASE_S + BLIND_SECONDS_MAX)
        await world.broker.members.turn()
        assert await members_of(world) == ["a"]
        await pass_time(world, LEASE_S)
        assert await members_of(world) == []

    async def test_an_outage_of_the_database_removes_nobody(self, world: World) -> None:
        """Also when it can be read first and written later: heartbeats were refused."""
        await beat(world, "a")
        await pass_time(world, LEASE_S - 1)
        world.metadata.is_down = True
        await pass_time(world, 2)
        world.metadata.is_down = False
        await pass_time(world, 1)
        assert await members_of(world) == ["a"]
        await pass_time(world, LEASE_S - 2)
        world.metadata.members.is_read_only = True
        with pytest.raises(MetadataUnavailable):
            await beat(world, "a", 1)
        world.metadata.members.is_read_only = False
        await pass_time(world, 2)
        assert await members_of(world) == ["a"]

    async def test_a_node_that_starts_gives_everybody_a_lease(self, world: World) -> None:
        await beat(world, "a")
        await pass_time(world, LEASE_S - 1)
        await world.restart()
        await pass_time(world, LEASE_S - 1)
        assert await members_of(world) == ["a"]
        await pass_time(world, 2)
        assert await members_of(world) == []

    def test_a_new_sign_begins_anew_and_the_gone_are_dropped(self) -> None:
        silence: Liveness[str, int] = Liveness()
        silence.observe("g", {"a": 1, "b": 1}, 0.0)
        silence.observe("g", {"a": 2, "b": 1}, 5.0)
        assert silence.silent("g", 10.0, 10.0) == {"b": 1}
        silence.observe("g", {}, 11.0)
        assert (silence.groups, silence.silent("g", 0.0, 99.0)) == ([], {})


class TestLongPoll:
    async def test_it_is_answered_when_the_share_changes(self, world: World) -> None:
        await beat(world, "a")
        second = await beat(world, "b")
        async with asyncio.TaskGroup() as tasks:
            poll = tasks.create_task(
                beat(world, "b", 2, assignment_id=second.assignment.assignment_id, wait_s=60)
            )
            await until(lambda: world.waiting == 1)
            await beat(world, "a", 2)
        assert queues(poll.result()) == [2, 3]

    async def test_news_that_the_client_does_not_know_is_answered_at_once(
        self, world: World
    ) -> None:
        await beat(world, "a")
        second = await beat(world, "b")
        await beat(world, "a", 2)
        share = await beat(world, "b", 2, assignment_id=second.assignment.assignment_id, wait_s=60)
        assert queues(share) == [2, 3]
        assert queues(await beat(world, "a", 1, wait_s=60)) == [0, 1]

    async def test_it_ends_in_time_and_keeps_the_member_alive(self, world: World) -> None:
        await beat(world, "a")
        before = (await world.metadata.members.read(GROUP)).counter
        share = await beat(world, "a", 1, wait_s=0.01)
        assert queues(share) == [0, 1, 2, 3]
        after = (await world.metadata.members.read(GROUP)).members["a"].beat
        assert after == before + 2

    async def test_it_learns_that_the_member_was_removed(self, world: World) -> None:
        await beat(world, "a")
        poll = asyncio.ensure_future(beat(world, "a", 1, wait_s=60))
        await until(lambda: world.waiting == 1)
        await world.broker.members.leave(GROUP, "a")
        with pytest.raises(StaleGeneration):
            await poll

    async def test_another_nodes_change_is_told_with_the_next_turn(self, world: World) -> None:
        other = world.new_broker()
        await other.start()
        try:
            await beat(world, "a")
            async with asyncio.TaskGroup() as tasks:
                poll = tasks.create_task(beat(world, "a", 1, wait_s=60))
                await until(lambda: world.waiting == 1)
                await other.members.heartbeat(GROUP, "b", Heartbeat(ORDERS), never_gone)
                assert world.waiting == 1
                await world.broker.members.turn()
            assert queues(poll.result()) == [0, 1]
        finally:
            await other.stop()

    async def test_stopping_answers_and_refuses(self, world: World) -> None:
        await beat(world, "a")
        poll = asyncio.ensure_future(beat(world, "a", 1, wait_s=60))
        await until(lambda: world.waiting == 1)
        await world.broker.stop()
        assert queues(await poll) == [0, 1, 2, 3]
        with pytest.raises(ShuttingDown):
            await beat(world, "a", 1)

    async def test_waiting_is_bounded(self) -> None:
        bells = GroupNotifier(1)
        waiting = asyncio.ensure_future(bells.wait("g", 60))
        await until(lambda: bells.count == 1)
        with pytest.raises(TooManyRequests):
            await bells.wait("h", 60)
        bells.ring("other")
        bells.ring("g")
        assert await waiting
        assert bells.count == 0


class TestConflicts:
    async def test_filters_topics_and_strategies_are_compared(self, world: World) -> None:
        await world.topic(1, "bills")
        await world.group(GroupSettings(subscription=SubscriptionRule.FREE))
        await beat(world, "a", profile=Profile((TopicSubscription(TOPIC, "x"),), Strategy()))
        profile = Profile(
            (TopicSubscription("bills"), TopicSubscription(TOPIC, "y")),
            Strategy(StrategyName.CONSISTENT_HASH),
        )
        share = await beat(world, "b", profile=profile)
        kinds = [conflict.kind for conflict in share.conflicts]
        assert kinds == [ConflictKind.STRATEGY, ConflictKind.TOPICS, ConflictKind.FILTER]
        assert share.conflicts[2].values == (("x", ("a",)), ("y", ("b",)))
        assert share.strategy.name is StrategyName.AVERAGELY
        assert (await world.broker.members.describe(GROUP)).conflicts == list(share.conflicts)

    async def test_a_topic_goes_to_those_that_read_it(self, world: World) -> None:
        await world.topic(2, "bills")
        await beat(world, "a")
        both = Profile((TopicSubscription("bills"), TopicSubscription(TOPIC)))
        share = await beat(world, "b", profile=both)
        assert [(q.topic, q.queue_id) for q in share.assignment.assigned] == [
            ("bills", 0),
            ("bills", 1),
        ]

    async def test_a_configured_queue_has_one_owner(self, world: World) -> None:
        strategy = Strategy(StrategyName.CONFIGURATION)
        wanted = (QueueName(TOPIC, 0), QueueName(TOPIC, 1))
        profile = Profile(ORDERS.subscriptions, strategy, queues=wanted)
        assert queues(await beat(world, "a", profile=profile)) == [0, 1]
        share = await beat(world, "b", profile=profile)
        assert queues(share) == []
        kinds = [conflict.kind for conflict in share.conflicts]
        assert kinds == [ConflictKind.QUEUES, ConflictKind.UNASSIGNED]

    @pytest.mark.parametrize(
        ("profile", "error"),
        [
            (Profile(()), IllegalMember),
            (Profile((TopicSubscription(TOPIC), TopicSubscription(TOPIC, "x"))), IllegalMember),
            (Profile((TopicSubscription(TOPIC, "a |"),)), IllegalFilter),
            (Profile((TopicSubscription("ordres"),)), TopicNotFound),
            (Profile(ORDERS.subscriptions, Strategy(StrategyName.MACHINE_ROOM)), IllegalMember),
            (
                Profile(ORDERS.subscriptions, Strategy(StrategyName.MACHINE_ROOM_NEARBY)),
                IllegalMember,
            ),
        ],
    )
    async def test_what_makes_no_sense_is_refused(
        self, world: World, profile: Profile, error: type[CurlewError]
    ) -> None:
        with pytest.raises(error):
            await beat(world, "a", profile=profile)
        with pytest.raises(IllegalMember):
            await beat(world, "a b")

    async def test_members_are_bounded(self) -> None:
        async with running(limits=Limits(members_per_group_max=1)) as world:
            await beat(world, "a")
            with pytest.raises(StateConflict, match="1 members"):
                await beat(world, "b")


class TestCommits:
    async def commit(
        self, world: World, offset: int, *, queue_id: int = 0, by: tuple[str, int] | None = None
    ) -> None:
        await world.broker.offset_commits.commit(
            GROUP,
            TOPIC,
            [QueuePosition(queue_id, offset)],
            committer=None if by is None else Committer(*by),
        )

    async def test_they_are_fenced_by_generation_and_owner(self, world: World) -> None:
        await world.send(b"1", b"2", b"3")
        await beat(world, "a")
        await self.commit(world, 1, by=("a", 1))
        await beat(world, "b")
        for by, error in (
            (("a", 1), StaleGeneration),
            (("b", 2), QueueNotOwned),
            (("z", 2), StaleGeneration),
            (None, QueueNotOwned),
        ):
            with pytest.raises(error):
                await self.commit(world, 3, by=by)
        assert world.committed()[0] == 1
        await self.commit(world, 2, by=("a", 2))
        await self.commit(world, 1, by=("a", 2))
        assert world.committed()[0] == 2
        assert world.metadata.committed(GROUP, TOPIC)[0] == 2
        with pytest.raises(OffsetOutOfRange):
            await self.commit(world, 4, by=("a", 2))

    async def test_a_revoked_queue_can_be_committed_until_it_is_confirmed(
        self, world: World
    ) -> None:
        await world.send(b"1", queue_id=3)
        await beat(world, "a")
        await beat(world, "b")
        await beat(world, "a", 1)
        await self.commit(world, 1, queue_id=3, by=("a", 2))
        await beat(world, "a", 2)
        with pytest.raises(QueueNotOwned):
            await self.commit(world, 1, queue_id=3, by=("a", 2))
        share = await beat(world, "b", 2)
        assert share.offsets[QueueName(TOPIC, 3)] == 1

    async def test_they_survive_a_restart(self, world: World) -> None:
        await world.send(b"1", b"2")
        await beat(world, "a")
        await self.commit(world, 2, by=("a", 1))
        await world.restart()
        assert world.committed()[0] == 2
        assert (await beat(world, "a", 1)).offsets[QueueName(TOPIC, 0)] == 2


class TestStart:
    @pytest.mark.parametrize(("start", "offset"), [("earliest", 0), ("latest", 2)])
    async def test_a_new_group_begins_where_it_says_and_stays_there(
        self, world: World, start: str, offset: int
    ) -> None:
        await world.send(b"1", b"2")
        await world.group(GroupSettings(start=start))  # type: ignore[arg-type]
        first = await beat(world, "a")
        assert first.offsets[QueueName(TOPIC, 0)] == offset
        await world.send(b"3")
        await world.restart()
        again = await beat(world, "a", 1)
        assert again.offsets[QueueName(TOPIC, 0)] == offset

    async def test_a_time(self, world: World) -> None:
        await world.send(b"1")
        world.clock.advance(ms=1_000)
        await world.group(GroupSettings(start=world.clock.now_ms()))
        await world.send(b"2")
        assert (await beat(world, "a")).offsets[QueueName(TOPIC, 0)] == 1

    async def test_a_queue_that_is_added_later_begins_at_its_first_message(
        self, world: World
    ) -> None:
        await world.group(GroupSettings(start="latest"))
        await beat(world, "a")
        await world.topic(5)
        await world.send(b"1", queue_id=4)
        share = await beat(world, "a", 1)
        assert queues(share) == [0, 1, 2, 3, 4]
        assert share.offsets[QueueName(TOPIC, 4)] == 0


class TestBroadcast:
    async def test_everybody_reads_everything(self, world: World) -> None:
        await world.send(b"1")
        await world.group(GroupSettings(mode=GroupMode.BROADCAST, start="latest"))
        for client_id in "ab":
            share = await beat(world, client_id)
            assert queues(share) == [0, 1, 2, 3]
            assert share.offsets[QueueName(TOPIC, 0)] == 1
        await world.topic(5)
        assert queues(await beat(world, "a")) == [0, 1, 2, 3, 4]
        assert world.committed() == {}

    async def test_leases_and_commits_are_refused(self, world: World) -> None:
        await world.group(GroupSettings(mode=GroupMode.BROADCAST))
        with pytest.raises(BroadcastGroup) as refusal:
            await world.receive()
        assert "keep the offsets in the client" in (refusal.value.hint or "")
        with pytest.raises(BroadcastGroup):
            await world.commit(0)

    async def test_the_mode_stays_while_there_are_members(self, world: World) -> None:
        await beat(world, "a")
        with pytest.raises(StateConflict, match="mode"):
            await put_group(world.broker, GROUP, GroupSettings(mode=GroupMode.BROADCAST))
        await put_group(world.broker, GROUP, GroupSettings(max_attempts=3))
        await world.broker.members.leave(GROUP, "a")
        await put_group(world.broker, GROUP, GroupSettings(mode=GroupMode.BROADCAST))
