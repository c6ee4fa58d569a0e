"""Resets, commits, beginnings and deletions that the log takes and then rolls back: undone in
memory or written again, so that neither a snapshot nor a kill makes another history of them."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Literal

import pytest

from app.broker.groups.group_lookup import find_group
from app.domain.errors import DiskFull, GroupNotFound, TooManyRequests
from app.domain.settings import GroupSettings
from tests.support.nodes.brokers import GROUP, TOPIC, World, bodies, running

pytestmark = pytest.mark.anyio


async def refused(world: World, *steps: Coroutine[Any, Any, object]) -> None:
    """Steps that the log takes together and then rolls back together."""
    world.store.failure = DiskFull("full", outcome="not_stored")
    outcomes = await asyncio.gather(*steps, return_exceptions=True)
    world.store.failure = None
    assert [type(each) for each in outcomes] == [DiskFull] * len(steps)


async def killed(world: World, *, snapshot: bool) -> None:
    if snapshot:
        await world.broker.consumer_journal._journal.write_snapshot()
    await world.kill()


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("end", ["now", "killed", "snapshot"])
async def test_a_refused_commit_or_reset_hides_nothing(force: bool, end: str) -> None:
    async with running() as world:
        await world.retry_at_once()
        await world.send(*(b"m%d" % number for number in range(6)))
        assert await world.ack(*(await world.receive(2))) == [None, None]
        await refused(world, world.commit(5, force=force, take_over=True))
        await world.broker.offset_cache.write()
        assert world.metadata.offsets[GROUP, TOPIC, 0] == 2, "SQL hears of nothing refused"
        assert world.committed() == {0: 2}
        if end != "now":
            await killed(world, snapshot=end == "snapshot")
        assert bodies(await world.receive(force=True)) == [b"m2", b"m3", b"m4", b"m5"]


async def test_a_refused_reset_backwards_repeats_nothing() -> None:
    async with running() as world:
        await world.send(b"a", b"b", b"c")
        assert await world.ack(*(await world.receive(2))) == [None, None]
        await refused(world, world.commit(0, force=True, take_over=True))
        assert bodies(await world.receive()) == [b"c"]
        await killed(world, snapshot=True)
        assert bodies(await world.receive()) == [b"c"]


@pytest.mark.parametrize("forces", [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize("snapshot", [False, True])
async def test_acks_and_moves_that_are_refused_together(
    forces: tuple[bool, bool], snapshot: bool
) -> None:
    async with running() as world:
        await world.retry_at_once()
        await world.send(*(b"m%d" % number for number in range(6)))
        deliveries = await world.receive(3)
        assert await world.ack(deliveries[1]) == [None]
        await refused(
            world,
            world.ack(deliveries[0]),
            world.commit(3, force=forces[0], take_over=True),
            world.commit(4, force=forces[1], take_over=True),
        )
        await killed(world, snapshot=snapshot)
        rest = bodies(await world.receive(force=True))
        assert rest == [b"m0", b"m2", b"m3", b"m4", b"m5"]


async def test_a_group_whose_first_commit_was_refused_begins_where_it_says() -> None:
    async with running() as world:
        await world.group(GroupSettings(start="latest"))
        await world.send(b"a", b"b")
        await refused(world, world.commit(1, take_over=True))
        assert await world.receive(force=True) == []
        await world.send(b"c")
        assert bodies(await world.receive()) == [b"c"]


async def test_a_group_that_begins_beside_a_refused_commit_begins_where_it_says() -> None:
    async with running() as world:
        await world.send(b"a", b"b")
        await refused(world, world.commit(1, force=True), world.receive(1))
        assert bodies(await world.receive()) == [b"a", b"b"]


@pytest.mark.parametrize("is_deletion_refused", [False, True])
async def test_acks_count_although_the_log_refused_where_the_group_began(
    is_deletion_refused: bool,
) -> None:
    async with running() as world:
        await world.send(b"m0", b"m1", b"m2")
        assert await world.ack(*(await world.receive(2))) == [None, None]
        full = DiskFull("full", outcome="not_stored")
        world.store.failure = full if is_deletion_refused else None
        await world.broker.settings_changes.delete_group(GROUP)
        world.store.failure = full
        with pytest.raises(DiskFull):
            await world.receive(1)
        world.store.failure = None
        deliveries = await world.receive(3)
        assert bodies(deliveries) == [b"m0", b"m1", b"m2"]
        assert await world.ack(deliveries[0]) == [None]
        await world.kill()
        assert bodies(await world.receive()) == [b"m1", b"m2"]


async def test_a_deletion_that_was_refused_is_told_to_the_log_again() -> None:
    async with running() as world:
        await world.send(b"m0", b"m1")
        assert await world.ack(*(await world.receive(1))) == [None]
        world.store.failure = DiskFull("full", outcome="not_stored")
        await world.broker.settings_changes.delete_group(GROUP)
        await asyncio.sleep(0)
        await world.broker.consumer_journal.turn()
        await asyncio.sleep(0)
        world.store.failure = None
        await world.broker.consumer_journal.turn()
        await asyncio.sleep(0)
        again = type(world.broker.consumer_journal._state)()
        world.broker.consumer_journal._journal._state = again
        await world.broker.consumer_journal._journal.replay()
        assert not again.queues
        with pytest.raises(GroupNotFound):
            find_group(world.metadata, GROUP)


async def test_a_deletion_of_offsets_that_was_refused_takes_nothing_away() -> None:
    async with running() as world:
        await world.retry_at_once()
        await world.send(b"a", b"b", b"c")
        deliveries = await world.receive(2)
        assert await world.ack(deliveries[0]) == [None]
        await world.nack(deliveries[1])
        await refused(world, world.broker.offset_admin.delete(GROUP, TOPIC, None))
        assert world.committed() == {0: 2}
        await world.broker.offset_cache.write()
        assert world.metadata.offsets[GROUP, TOPIC, 0] == 2
        await killed(world, snapshot=True)
        assert sorted(bodies(await world.receive())) == [b"b", b"c"], "the retry is there still"


@pytest.mark.parametrize("start", ["earliest", "latest"])
async def test_a_deletion_of_offsets_that_is_refused_at_once_takes_nothing_away(
    start: Literal["earliest", "latest"],
) -> None:
    async with running() as world:
        await world.group(GroupSettings(start=start))
        await world.send(b"a", b"b", b"c")
        await world.commit(1)
        world.store.refusal = TooManyRequests("busy")
        with pytest.raises(TooManyRequests):
            await world.broker.offset_admin.delete(GROUP, TOPIC, None)
        world.store.refusal = None
        assert world.committed() == {0: 1}
        await world.broker.offset_cache.write()
        assert world.metadata.offsets[GROUP, TOPIC, 0] == 1
        group, topic = (
            world.metadata.snapshot.groups[GROUP],
            world.metadata.snapshot.topics[TOPIC],
        )
        assert await world.broker.groups.offsets.positions(group, topic) == [1]
