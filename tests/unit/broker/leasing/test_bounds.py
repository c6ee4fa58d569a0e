"""A client that gives a new name with every request makes nothing grow without end."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from app.broker.dedup.tokens import ProducerToken
from app.broker.leasing.holders import InFlight
from app.broker.leasing.lease_table import LeaseTable
from app.broker.members.member_values import Heartbeat
from app.broker.results import QueuePosition, ReceiveRequest
from app.domain.changes.conditions import Terms
from app.domain.consumers.membership import Profile, TopicSubscription
from app.domain.errors import DiskFull, StateConflict, TooManyRequests
from app.domain.limits import LEASES_ENDED_PER_LOOK_MAX, Limits
from app.domain.message import Message
from app.domain.settings import GroupSettings
from tests.support.nodes.brokers import GROUP, TOPIC, World, never_gone, running
from tests.support.nodes.waiting import until

pytestmark = pytest.mark.anyio

MOST = 4
FEW = Limits(
    producers_max=MOST,
    producer_sequences_max=MOST,
    subscriptions_per_group_max=MOST,
    subscribed_queues_max=2 * MOST,
)


async def topics(world: World, count: int, *, queues: int = 1) -> list[str]:
    names = [f"t{number}" for number in range(count)]
    for name in names:
        await world.topic(queues, name)
    return names


Begin = Callable[[World, str, str], Awaitable[None]]


async def receive(world: World, group: str, topic: str) -> None:
    await world.broker.receiver.receive(topic, group, ReceiveRequest(), gone=never_gone)


async def commit(world: World, group: str, topic: str) -> None:
    await world.broker.offset_commits.commit(group, topic, [QueuePosition(0, 0)])


async def force(world: World, group: str, topic: str) -> None:
    await world.broker.offset_commits.commit(group, topic, [QueuePosition(0, 0)], force=True)


async def join(world: World, group: str, topic: str) -> None:
    beat = Heartbeat(Profile((TopicSubscription(topic),)), None, None, 0)
    await world.broker.members.heartbeat(group, "c", beat, never_gone)


@pytest.mark.parametrize("begin", [receive, commit, force, join])
async def test_a_group_begins_in_so_many_topics(begin: Begin) -> None:
    async with running(limits=FEW) as world:
        names = await topics(world, 10 * MOST)
        for name in names[:MOST]:
            await begin(world, GROUP, name)
        for name in names[MOST:]:
            with pytest.raises(StateConflict, match="has begun in 4 topics") as caught:
                await begin(world, GROUP, name)
            assert caught.value.fields == {"limit": MOST, "bound": "subscriptions_per_group_max"}
        await begin(world, GROUP, names[0])
        assert len(world.broker.offset_cache._offsets) == MOST
        assert len((await world.metadata.members.read(GROUP)).queues) <= MOST
        assert len(world.broker.consumer_journal._state.generations) <= MOST
        await world.broker.offset_admin.delete(GROUP, names[1], None)
        await begin(world, GROUP, names[-1])


@pytest.mark.parametrize("begin", [receive, commit, force, join])
async def test_all_groups_begin_in_so_many_queues(begin: Begin) -> None:
    async with running(limits=FEW) as world:
        (name,) = await topics(world, 1)
        for number in range(2 * MOST):
            await begin(world, f"g{number}", name)
        for number in range(2 * MOST, 20 * MOST):
            with pytest.raises(StateConflict, match="have begun in 8 queues") as caught:
                await begin(world, f"g{number}", name)
            assert caught.value.fields == {"limit": 2 * MOST, "bound": "subscribed_queues_max"}
        assert len(world.broker.offset_cache.rows()) == 2 * MOST
        await world.broker.settings_changes.delete_group("g0")
        await begin(world, "g-next", name)


@pytest.mark.parametrize("begin", [receive, commit, force, join])
async def test_of_many_that_begin_at_once_no_more_do_than_may(begin: Begin) -> None:
    async with running(limits=FEW) as world:
        await world.group(GroupSettings())
        names = await topics(world, 10 * MOST)
        results = await asyncio.gather(
            *(begin(world, GROUP, name) for name in names), return_exceptions=True
        )
        refused = [result for result in results if isinstance(result, StateConflict)]
        begun = {topic for group, topic in world.broker.offset_cache._offsets if group == GROUP}
        assert len(begun) <= MOST
        assert len(world.broker.consumer_journal._state.generations) <= MOST
        assert len(refused) >= 9 * MOST
        assert all(result is None or result in refused for result in results)
        assert not world.broker.offset_cache._held


@pytest.mark.parametrize("begin", [receive, commit, force, join])
async def test_of_many_groups_that_begin_at_once_no_more_do_than_may(begin: Begin) -> None:
    async with running(limits=FEW) as world:
        (name,) = await topics(world, 1)
        for number in range(20 * MOST):
            await world.group(GroupSettings(), f"g{number}")
        results = await asyncio.gather(
            *(begin(world, f"g{number}", name) for number in range(20 * MOST)),
            return_exceptions=True,
        )
        assert len(world.broker.offset_cache.rows()) == 2 * MOST
        assert sum(isinstance(result, StateConflict) for result in results) == 18 * MOST
        assert len(world.broker.consumer_journal._state.generations) == 2 * MOST


async def test_a_commit_that_fails_gives_its_room_back() -> None:
    async with running(limits=FEW) as world:
        names = await topics(world, 2 * MOST)
        world.store.refusal = DiskFull("full")
        for name in names[:MOST]:
            with pytest.raises(DiskFull):
                await commit(world, GROUP, name)
        world.store.refusal = None
        assert not world.broker.offset_cache._held
        for name in names[MOST:]:
            await commit(world, GROUP, name)


async def test_queues_are_not_added_beyond_what_all_groups_may_read() -> None:
    async with running(limits=FEW) as world:
        (name,) = await topics(world, 1)
        for group in ("a", "b"):
            await commit(world, group, name)
        change = world.broker.settings_changes.change_topic
        with pytest.raises(StateConflict, match="have begun in 2 queues") as caught:
            await change(name, {"queues": MOST + 1}, Terms())
        assert caught.value.fields == {"limit": 2 * MOST, "bound": "subscribed_queues_max"}
        await change(name, {"queues": MOST}, Terms())
        with pytest.raises(StateConflict, match="have begun in 8 queues"):
            await commit(world, "c", name)  # before the others have an offset in each
        assert not world.broker.offset_cache._raised
        await change("nobody-reads-it", {"queues": 100}, Terms())


async def test_of_two_that_add_queues_at_once_one_may() -> None:
    async with running(limits=FEW) as world:
        names = await topics(world, 2)
        for name in names:
            await commit(world, GROUP, name)
        change = world.broker.settings_changes.change_topic
        results = await asyncio.gather(
            *(change(name, {"queues": 2 * MOST - 1}, Terms()) for name in names),
            return_exceptions=True,
        )
        assert sum(isinstance(result, StateConflict) for result in results) == 1


async def test_members_of_all_groups_have_a_bound() -> None:
    async with running(limits=Limits(members_max=MOST)) as world:
        members = world.broker.members

        async def beat(group: str, client_id: str) -> None:
            profile = Profile((TopicSubscription(TOPIC),))
            await members.heartbeat(group, client_id, Heartbeat(profile), never_gone)

        joins = [beat(f"g{number % 2}", f"c{number}") for number in range(10 * MOST)]
        results = await asyncio.gather(*joins, return_exceptions=True)
        refused = [result for result in results if result is not None]
        assert len(refused) == 9 * MOST
        for result in refused:
            assert isinstance(result, StateConflict)
            assert result.fields == {"limit": MOST, "bound": "members_max"}
        joined = [number for number, result in enumerate(results) if result is None]
        await world.restart()
        members = world.broker.members
        with pytest.raises(StateConflict, match="have 4 members together"):
            await beat("g3", "c")
        for number in joined:
            await beat(f"g{number % 2}", f"c{number}")
        await members.leave(f"g{joined[0] % 2}", f"c{joined[0]}")
        await beat("g3", "c")
        with pytest.raises(StateConflict):
            await beat("g4", "c")
        for group in ("g0", "g1", "g3"):
            await world.broker.settings_changes.delete_group(group)
        for number in range(MOST):
            await beat("g4", f"c{number}")


async def test_producers_and_their_sequences_have_a_bound() -> None:
    async with running(queues=10 * MOST, limits=FEW) as world:
        producers = world.broker.producers

        async def send(producer: str, queue_id: int, epoch: int = 0) -> None:
            what = ProducerToken(producer, epoch, 0)
            await world.broker.deduplicator.send(TOPIC, Message(b"x"), what, queue_id=queue_id)

        for queue_id in range(MOST):
            await send("p", queue_id)
        for queue_id in range(MOST, 10 * MOST):
            with pytest.raises(TooManyRequests, match="4 sequences of producers") as caught:
                await send("p", queue_id)
            assert caught.value.outcome == "not_stored"
        assert producers._table._sequence_count == MOST
        await send("p", 0, epoch=1)  # ends those of the epoch before
        assert producers._table._sequence_count == 1
        for number in range(10 * MOST):
            try:
                await send(f"p{number}", 0)
            except TooManyRequests:
                assert number >= MOST - 1
        assert len(producers._table._producers) == producers._table._sequence_count == MOST
        await producers.seal("p", 1)
        assert producers._table._sequence_count == MOST - 1
        await world.restart()
        assert world.broker.dedup_journal.table._sequence_count == MOST - 1
        await world.broker.settings_changes.delete_topic(TOPIC)
        assert world.broker.dedup_journal.table._sequence_count == 0


async def test_closed_epochs_and_plans_have_a_bound() -> None:
    async with running(limits=FEW) as world:
        names = await topics(world, 3 * MOST)
        for number in range(MOST):
            await world.broker.producers.seal(f"f{number}", 1)
        for number in range(MOST, 10 * MOST):
            with pytest.raises(TooManyRequests, match="4 producers with closed epochs"):
                await world.broker.producers.seal(f"f{number}", 1)
        assert await world.broker.producers.seal("f0", 2) == 2
        table = world.broker.dedup_journal.table
        assert len(table._seals) == MOST
        for name in names[:MOST]:
            await world.broker.producers.plan("spark:q", 1, world.metadata.snapshot.topics[name])
        for name in names[MOST:]:
            with pytest.raises(TooManyRequests, match="4 plans of producers"):
                await world.broker.producers.plan(
                    "spark:q", 1, world.metadata.snapshot.topics[name]
                )
        await world.broker.producers.plan("spark:q", 2, world.metadata.snapshot.topics[names[0]])
        assert len(table._plans) == len(list(table._plans)) == MOST
        await world.broker.settings_changes.delete_topic(names[0])
        assert len(table._plans) == len(list(table._plans)) == MOST - 1
        await world.broker.producers.seal("f0", 3)
        await world.restart()
        table = world.broker.dedup_journal.table
        assert len(table._plans) == len(list(table._plans)) == MOST - 1


async def test_deleted_topics_leave_nothing_in_memory() -> None:
    async with running() as world:
        for number in range(1_300):
            await world.topic(1, f"t{number}")
            await world.broker.sender.send(f"t{number}", Message(b"x"))
            await world.broker.settings_changes.delete_topic(f"t{number}")
        assert len(world.broker.sender.queues._turns) <= 1_030


async def test_topics_that_are_deleted_fast_share_one_look_at_all_producers() -> None:
    async with running() as world:
        table = world.broker.dedup_journal.table
        names = await topics(world, 30)
        for name in names:
            claim = ProducerToken(f"p-{name}", 0, 0)
            await world.broker.deduplicator.send(name, Message(b"x"), claim, queue_id=0)
        looks = 0
        forget = table._forget_sequences

        def look(producer_id: str) -> int:
            nonlocal looks
            looks += 1
            return forget(producer_id)

        table._forget_sequences = look  # type: ignore[method-assign]
        for name in names:
            generation = world.metadata.snapshot.topics[name].generation
            world.broker.dedup_journal.forget_topic(name, generation)
        await until(lambda: not table._gone)
        assert table._sequence_count == 0
        assert looks <= 2 * len(names)
        await world.restart()
        table = world.broker.dedup_journal.table
        await until(lambda: not table._gone)
        assert table._sequence_count == 0
        assert len(table._producers) == len(names)


async def test_two_changes_of_the_queues_of_a_topic_keep_their_room_each() -> None:
    async with running(limits=FEW) as world:
        await world.topic(1, "t")
        await receive(world, GROUP, "t")
        topic = world.broker.groups.offset_cache
        with topic.room_for_queues("t", 2 * MOST, FEW):
            with topic.room_for_queues("t", 2 * MOST, FEW):
                pass
            with pytest.raises(StateConflict), topic.room_for_queues("t", 2 * MOST + 1, FEW):
                pass
            await world.topic(1, "u")
            with pytest.raises(StateConflict):
                await receive(world, GROUP, "u")
        await receive(world, GROUP, "u")


def test_leases_that_end_together_end_in_looks_of_a_named_bound() -> None:
    in_flight, count = InFlight(), 3 * LEASES_ENDED_PER_LOOK_MAX
    table = LeaseTable(in_flight)
    for offset in range(count):
        table.grant((offset,), offset, 1.0)
    for looks in (1, 2, 3):
        assert table.next_change_s <= 2.0
        table.expire(2.0)
        assert table.failing_count == looks * LEASES_ENDED_PER_LOOK_MAX
    for offset, _ in table.take_failing(count):
        table.delay(offset, 3.0)
    assert in_flight.count == count
    for looks in (1, 2, 3):
        table.expire(4.0)
        assert table.returned_count == looks * LEASES_ENDED_PER_LOOK_MAX
    assert in_flight.count == 0
