"""A client that gives a new name with every request makes nothing grow without end."""

from collections.abc import Awaitable, Callable

import pytest

from app.broker.claims import ProducerClaim
from app.broker.members import Heartbeat
from app.broker.results import QueuePosition, ReceiveRequest
from app.domain.errors import StateConflict, TooManyRequests
from app.domain.limits import Limits
from app.domain.membership import Profile, TopicSubscription
from app.domain.message import Message
from tests.support.brokers import GROUP, TOPIC, World, never_gone, running

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
    await world.broker.receive(topic, group, ReceiveRequest(), gone=never_gone)


async def commit(world: World, group: str, topic: str) -> None:
    await world.broker.commit_offsets(group, topic, [QueuePosition(0, 0)])


async def force(world: World, group: str, topic: str) -> None:
    await world.broker.commit_offsets(group, topic, [QueuePosition(0, 0)], force=True)


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
        assert len(world.broker._book._offsets) == MOST
        assert len((await world.metadata.members.read(GROUP)).queues) <= MOST
        assert len(world.broker.progress._state.generations) <= MOST
        await world.broker.group_positions.delete(GROUP, names[1])
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
        assert len(world.broker._book.rows()) == 2 * MOST
        await world.broker.delete_group("g0")
        await begin(world, "g-next", name)


async def test_producers_and_their_sequences_have_a_bound() -> None:
    async with running(queues=10 * MOST, limits=FEW) as world:
        producers = world.broker.producers

        async def send(producer: str, queue_id: int, epoch: int = 0) -> None:
            what = ProducerClaim(producer, epoch, 0)
            await producers.send(TOPIC, Message(b"x"), what, queue_id=queue_id)

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
        assert world.broker.producers._table._sequence_count == MOST - 1
        await world.broker.delete_topic(TOPIC)
        assert world.broker.producers._table._sequence_count == 0


async def test_closed_epochs_and_plans_have_a_bound() -> None:
    async with running(limits=FEW) as world:
        names = await topics(world, 3 * MOST)
        for number in range(MOST):
            await world.broker.producers.seal(f"f{number}", 1)
        for number in range(MOST, 10 * MOST):
            with pytest.raises(TooManyRequests, match="4 producers with closed epochs"):
                await world.broker.producers.seal(f"f{number}", 1)
        assert await world.broker.producers.seal("f0", 2) == 2
        table = world.broker.producers._table
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
        await world.broker.delete_topic(names[0])
        assert len(table._plans) == len(list(table._plans)) == MOST - 1
        await world.broker.producers.seal("f0", 3)
        await world.restart()
        table = world.broker.producers._table
        assert len(table._plans) == len(list(table._plans)) == MOST - 1


async def test_deleted_topics_leave_nothing_in_memory() -> None:
    async with running() as world:
        for number in range(1_300):
            await world.topic(1, f"t{number}")
            await world.broker.send(f"t{number}", Message(b"x"))
            await world.broker.delete_topic(f"t{number}")
        assert len(world.broker._sender._turns) <= 1_030
