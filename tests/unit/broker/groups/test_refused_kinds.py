"""Kinds of consumption that the log takes and then rolls back: a refused commit sets none, and
what somebody consumes by is told to the log again."""

import asyncio

import pytest

from app.domain.consumers.consumption import Consumption
from app.domain.errors import ConsumptionConflict, DiskFull
from tests.support.nodes.brokers import World, bodies, running
from tests.support.nodes.waiting import until
from tests.support.stores.memory_store import Held
from tests.unit.broker.failures.test_refused_moves import killed, refused
from tests.unit.broker.groups.test_consumption import LEASE_S, beat, kind

pytestmark = pytest.mark.anyio


async def told(world: World) -> None:
    """The services have their turns, and the log takes what they write."""
    await world.broker.consumer_journal.turn()
    await asyncio.sleep(0)


@pytest.mark.parametrize("end", ["now", "killed", "snapshot", "told and killed"])
@pytest.mark.parametrize("commits", [1, 2])
async def test_a_refused_commit_sets_no_kind(commits: int, end: str) -> None:
    async with running() as world:
        await world.send(b"a", b"b")
        await refused(world, *[world.commit(1) for _ in range(commits)])
        assert kind(world) is None
        if end.startswith("told"):
            await told(world)
        if end != "now":
            await killed(world, snapshot=end == "snapshot")
            assert kind(world) is None
        assert bodies(await world.receive()) == [b"a", b"b"]


async def test_a_refused_commit_that_took_over_leaves_no_kind() -> None:
    async with running() as world:
        await world.send(b"a", b"b")
        await world.receive(1)
        await refused(world, world.commit(1, take_over=True))
        assert kind(world) is None
        assert bodies(await world.receive()) == [b"a", b"b"]


async def test_a_refused_commit_takes_no_kind_from_who_has_it() -> None:
    async with running() as world:
        await world.send(b"a", b"b", b"c")
        await world.commit(1)
        await refused(world, world.commit(2))
        assert kind(world) is Consumption.ASSIGNED
        with pytest.raises(ConsumptionConflict):
            await world.receive()


@pytest.mark.parametrize("refused", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("is_first_first", [False, True])
async def test_of_two_commits_on_their_way_one_is_enough(
    refused: tuple[bool, bool], is_first_first: bool
) -> None:
    async with running() as world:
        await world.send(b"a", b"b", b"c")
        held: list[Held] = []
        world.store.held = held
        committing = [asyncio.ensure_future(world.commit(1))]
        await until(lambda: len(held) == 3)  # what the group is bound to, the commit, the kind
        held[2][4](None)
        committing.append(asyncio.ensure_future(world.commit(2)))
        await until(lambda: len(held) == 4)
        commits = [(held[1], refused[0]), (held[3], refused[1])]
        for (*_, done), is_refused in commits if is_first_first else commits[::-1]:
            assert kind(world) is Consumption.ASSIGNED
            done(DiskFull("full", outcome="not_stored") if is_refused else None)
        world.store.held = None
        outcomes = await asyncio.gather(*committing, return_exceptions=True)
        assert tuple(type(each) is DiskFull for each in outcomes) == refused
        assert kind(world) is (None if all(refused) else Consumption.ASSIGNED)


async def test_a_member_that_joined_beside_a_refused_commit_reads() -> None:
    async with running() as world:
        await world.send(b"a", b"b")
        world.store.failure = DiskFull("full", outcome="not_stored")
        outcomes = await asyncio.gather(world.commit(1), beat(world), return_exceptions=True)
        world.store.failure = None
        assert type(outcomes[0]) is DiskFull
        assert kind(world) is Consumption.ASSIGNED
        with pytest.raises(ConsumptionConflict):
            await world.receive()


async def test_a_kind_that_was_refused_is_told_to_the_log_again() -> None:
    async with running() as world:
        await world.receive()
        world.clock.advance(s=LEASE_S + 1)
        await world.broker.consumptions.turn()
        assert kind(world) is None
        world.store.failure = DiskFull("full", outcome="not_stored")
        await world.receive()  # a full disk stops no consumer
        assert kind(world) is Consumption.LEASE
        await told(world)
        world.store.failure = None
        await told(world)
        await world.kill()
        assert kind(world) is Consumption.LEASE
        world.store.refusal = DiskFull("full", outcome="not_stored")
        world.clock.advance(s=LEASE_S + 1)
        await world.broker.consumptions.turn()
        assert kind(world) is None
        await told(world)
        world.store.refusal = None
        await told(world)
        await world.kill()
        assert kind(world) is None
