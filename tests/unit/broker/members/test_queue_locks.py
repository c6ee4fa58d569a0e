"""Locks of queues: who gets one, how long it lasts, and that it outlives its holder."""

from collections.abc import AsyncIterator

import pytest

from app.domain.consumers.membership import QueueName
from app.domain.errors import StaleGeneration
from app.domain.limits import Limits
from tests.support.nodes.brokers import GROUP, TOPIC, World, running
from tests.unit.broker.members.heartbeats import beat, members_of, pass_time

pytestmark = pytest.mark.anyio

LEASE_S = Limits().member_lease_ms // 1_000
LOCK_S = Limits().queue_lock_ms // 1_000


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with running(queues=4) as world:
        yield world


async def test_a_lock_outlives_a_silent_owner_until_its_lease_ends(world: World) -> None:
    locks = world.broker.queue_locks
    await beat(world, "a")
    names = [QueueName(TOPIC, queue_id) for queue_id in range(4)]
    assert (await locks.lock(GROUP, "a", 1, names)).locked == tuple(names)
    await beat(world, "b")
    await pass_time(world, LEASE_S, {"b": 2})
    assert await members_of(world) == ["b"]
    refused = await locks.lock(GROUP, "b", 3, names)
    assert refused.locked == ()
    assert {reason for _, reason in refused.refused} == {"locked_by a"}
    await pass_time(world, LOCK_S - LEASE_S, {"b": 3})
    assert (await locks.lock(GROUP, "b", 3, names)).locked == tuple(names)


async def test_renewing_keeps_a_lock(world: World) -> None:
    locks = world.broker.queue_locks
    await beat(world, "a")
    name = QueueName(TOPIC, 0)
    for _ in range(3):
        await locks.lock(GROUP, "a", 1, [name])
        await pass_time(world, LOCK_S - 1, {"a": 1})
    held = (await world.metadata.members.read(GROUP)).queues[name].lock
    assert held is not None
    await pass_time(world, 1, {"a": 1})
    assert (await world.metadata.members.read(GROUP)).queues[name].lock is None


async def test_only_the_owner_locks_and_only_the_holder_unlocks(world: World) -> None:
    locks = world.broker.queue_locks
    await beat(world, "a")
    await beat(world, "b")
    name = QueueName(TOPIC, 0)
    with pytest.raises(StaleGeneration):
        await locks.lock(GROUP, "a", 1, [name])
    assert (await locks.lock(GROUP, "b", 2, [name])).refused == ((name, "not_owned"),)
    assert (await locks.lock(GROUP, "a", 2, [name])).locked == (name,)
    assert (await locks.unlock(GROUP, "b", [name])).refused == ((name, "locked_by a"),)
    for _ in range(2):
        assert (await locks.unlock(GROUP, "a", [name])).locked == (name,)


async def test_a_confirmed_release_unlocks(world: World) -> None:
    locks = world.broker.queue_locks
    await beat(world, "a")
    name = QueueName(TOPIC, 3)
    await locks.lock(GROUP, "a", 1, [name])
    await beat(world, "b")
    await beat(world, "a", 2)
    assert (await locks.lock(GROUP, "b", 2, [name])).locked == (name,)
