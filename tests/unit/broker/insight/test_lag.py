"""Lag: every stored message is in exactly one count, whatever has happened to it (G10)."""

import random
from typing import Any

import pytest

from app.broker.insight.lag import DAMAGED, NOT_BEGUN, GroupLag
from app.broker.results import Extend, Nack
from app.domain.errors import GroupNotFound, TopicNotFound
from app.domain.limits import Limits
from app.domain.settings import (
    CustomizedRetry,
    DeliveryOrder,
    GroupSettings,
    StartPosition,
    TopicSettings,
    WhenExhausted,
)
from tests.support.nodes.brokers import GROUP, TOPIC, World, running

pytestmark = pytest.mark.anyio


async def lag(world: World) -> GroupLag:
    return await world.broker.lag.group_lag(GROUP)


def counts(found: GroupLag) -> tuple[int | None, int, int, int, int]:
    return found.ready, found.in_flight, found.retrying, found.delayed, found.dead


async def test_a_message_goes_from_count_to_count() -> None:
    async with running() as world:
        await world.group(GroupSettings(max_attempts=2, retry_policy=CustomizedRetry((10_000,))))
        assert counts(await lag(world)) == (0, 0, 0, 0, 0)
        await world.send(b"a", b"b", b"c")
        received = await world.receive(2)
        assert counts(await lag(world)) == (1, 2, 0, 0, 0)
        await world.ack(received[1])
        assert counts(await lag(world)) == (1, 1, 0, 0, 0)
        await world.broker.settler.settle(TOPIC, GROUP, nacks=[Nack(received[0].receipt_handle)])
        assert counts(await lag(world)) == (1, 0, 0, 1, 0)
        await world.lapse(s=10)
        assert counts(await lag(world)) == (1, 0, 1, 0, 0)
        again = await world.receive(2)
        assert counts(await lag(world)) == (0, 1, 1, 0, 0)
        retried = next(each for each in again if each.attempt == 2)
        await world.broker.settler.settle(TOPIC, GROUP, nacks=[Nack(retried.receipt_handle)])
        assert counts(await lag(world)) == (0, 1, 0, 0, 1)


@pytest.mark.parametrize(("start", "ready"), [("earliest", 2), ("latest", 0)])
async def test_what_was_begun_elsewhere_counts_from_where_the_group_would_begin(
    start: StartPosition, ready: int
) -> None:
    async with running() as world:
        await world.group(GroupSettings(start=start))
        await world.send(b"a", b"b")
        read = world.broker.lag.group_lag
        assert (await lag(world)).topics == []
        found = await read(GROUP, begun={TOPIC: True})
        assert counts(found) == (ready, 0, 0, 0, 0)
        assert [each.reason for each in found.topics[0].queues] == [None]
        (queue,) = (await read(GROUP, begun={TOPIC: False})).topics[0].queues
        assert (queue.ready, queue.committed_offset, queue.reason) == (None, None, NOT_BEGUN)
        assert (await lag(world)).topics == []  # it has begun nothing


async def test_a_group_that_is_deleted_while_it_is_counted_has_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running() as world:
        await world.group(GroupSettings())
        await world.send(b"a")

        async def delete() -> None:
            await world.metadata.delete_group(GROUP)

        monkeypatch.setattr(world.broker.delays, "catch_up", delete)
        found = await world.broker.lag.group_lag(GROUP, begun={TOPIC: True})
        assert [each.reason for each in found.topics[0].queues] == [NOT_BEGUN]


async def test_what_may_be_whole_at_a_silent_replica_is_counted() -> None:
    async with running() as world:
        await world.group(GroupSettings())
        await world.receive()
        await world.send(b"a", b"b")
        world.store.damaged.add((TOPIC, 0))
        (queue,) = (await lag(world)).topics[0].queues
        assert (queue.ready, queue.oldest_ms, queue.reason) == (2, None, DAMAGED)


async def test_acks_out_of_order_are_counted_exactly() -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, [b"x"] * 3_000)
        received = await world.receive(1_000)
        await world.ack(*received[::2])
        assert counts(await lag(world)) == (2_000, 500, 0, 0, 0)
        await world.restart()
        assert counts(await lag(world)) == (2_500, 0, 0, 0, 0)


async def test_the_age_is_that_of_the_oldest_that_is_not_done() -> None:
    async with running() as world:
        first = await world.send(b"a")
        world.clock.advance(s=5)
        second = await world.send(b"b")
        received = await world.receive(2)
        assert (await lag(world)).oldest_ms == first[0].store_time_ms
        await world.ack(received[0])
        assert (await lag(world)).oldest_ms == second[0].store_time_ms
        await world.ack(received[1])
        assert (await lag(world)).oldest_ms is None


async def test_what_is_not_known_is_not_given() -> None:
    async with running(queues=2) as world:
        await world.group(GroupSettings())
        world.store.fill(TOPIC, 0, [b"x"] * 3)
        found = await world.broker.lag.group_lag(GROUP, topic=TOPIC)
        assert found.ready is None
        queues = found.topics[0].queues
        assert [(each.ready, each.reason) for each in queues] == [(None, NOT_BEGUN)] * 2
        await world.receive(1)
        world.store.damage(TOPIC, 0, 0)
        queue = (await lag(world)).topics[0].queues[0]
        assert (queue.oldest_ms, queue.reason) == (None, DAMAGED)


async def test_what_retention_took_is_told_apart() -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, [b"x"] * 5)
        await world.ack(*await world.receive(1))
        world.store.retain_from(TOPIC, 0, 3)
        queue = (await lag(world)).topics[0].queues[0]
        assert (queue.expired, queue.ready) == (2, 2)


async def test_what_is_held_and_expired_is_counted_once() -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, [b"x"] * 10)
        await world.receive(4)
        world.store.retain_from(TOPIC, 0, 3)
        queue = (await lag(world)).topics[0].queues[0]
        assert (queue.expired, queue.in_flight, queue.ready) == (3, 1, 6)
        assert len(await world.receive(10)) == 6


async def test_a_parked_message_is_not_ready() -> None:
    async with running() as world:
        park = WhenExhausted.PARK
        await world.group(
            GroupSettings(order=DeliveryOrder.FIFO, on_exhausted=park, max_attempts=1)
        )
        await world.send(b"blocks")
        await world.nack(*await world.receive())
        for _ in range(2):
            queue = (await lag(world)).topics[0].queues[0]
            assert (queue.ready, queue.in_flight, queue.delayed) == (0, 0, 1)
            await world.kill()


async def test_a_topic_that_is_deleted_while_others_are_counted_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running() as world:
        await world.topic(1, "second")
        for name in (TOPIC, "second"):
            await world.receive(topic=name)

        async def slow() -> None:
            await world.broker.settings_changes.delete_topic("second")

        monkeypatch.setattr(world.broker.delays, "catch_up", slow)
        assert [each.topic for each in (await lag(world)).topics] == [TOPIC]


async def test_the_lag_of_many_groups_is_that_of_each() -> None:
    async with running() as world:
        await world.group(GroupSettings())
        await world.group(GroupSettings(), "other")
        await world.send(b"a", b"b")
        await world.receive(1)
        wanted = [GROUP, "gone", "other"]
        mine, other = await world.broker.lag.group_lags(wanted)
        assert mine == await lag(world)
        assert (mine.ready, mine.in_flight) == (1, 1)
        assert other == await world.broker.lag.group_lag("other")
        (hidden, _) = await world.broker.lag.group_lags(wanted, visible=lambda _topic: False)
        assert hidden.topics == []


async def test_the_lag_of_many_groups_looks_once_at_what_has_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Asked for each, it would look at what all groups have begun once for each."""
    async with running() as world:
        await world.send(b"a")
        for name in (GROUP, "other"):
            await world.receive(group=name)
        journal = world.broker.groups.consumer_journal
        looks: list[str] = []
        for name in ("topics", "topics_by_group"):
            real = getattr(journal, name)

            def look(*args: Any, name: str = name, real: Any = real) -> Any:
                looks.append(name)
                return real(*args)

            monkeypatch.setattr(journal, name, look)
        mine, other = await world.broker.lag.group_lags([GROUP, "other"])
        assert [each.topic for each in (*mine.topics, *other.topics)] == [TOPIC, TOPIC]
        assert looks == ["topics_by_group"]


async def test_the_sum_of_thousands_of_queues_is_kept_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running() as world:
        await world.receive()
        await world.send(b"a")
        assert await world.broker.lag.lag_of_all() == 1
        await world.send(b"b")
        assert await world.broker.lag.lag_of_all() == 2
        monkeypatch.setattr("app.broker.insight.lag.QUEUES_KEPT_A_SECOND", 0.5)
        assert await world.broker.lag.lag_of_all() == 2
        await world.send(b"c")
        world.clock.advance(s=1)
        assert await world.broker.lag.lag_of_all() == 2
        world.clock.advance(s=1)
        assert await world.broker.lag.lag_of_all() == 3


async def test_the_sum_is_taken_in_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """What all groups have begun is looked through once, and not once for each group."""
    async with running() as world:
        await world.receive()
        await world.send(b"a")
        monkeypatch.delattr(type(world.broker.lag), "_topics_of")
        assert await world.broker.lag.lag_of_all() == 1


async def test_a_group_or_topic_that_is_not_there() -> None:
    async with running() as world:
        with pytest.raises(GroupNotFound):
            await lag(world)
        await world.group(GroupSettings())
        with pytest.raises(TopicNotFound):
            await world.broker.lag.group_lag(GROUP, topic="nothing")


@pytest.mark.parametrize("seed", range(6))
async def test_nothing_is_lost_between_the_counts(seed: int) -> None:
    """Stored = acked + ready + in flight + retrying + delayed + dead, after any history."""
    rng = random.Random(seed)
    async with running(queues=2, limits=Limits()) as world:
        settings = GroupSettings(max_attempts=3, retry_policy=CustomizedRetry((0, 5_000)))
        await world.group(settings)
        await world.metadata.put_topic(TOPIC, TopicSettings(queues=2))
        stored, acked = 0, 0
        await world.receive(1)
        for _ in range(60):
            luck = rng.random()
            if luck < 0.3:
                count = rng.randrange(1, 6)
                await world.send(*[b"x"] * count, queue_id=rng.randrange(2))
                stored += count
            elif luck < 0.7:
                for each in await world.receive(rng.randrange(1, 8), invisible_ms=2_000):
                    choice = rng.random()
                    handle = each.receipt_handle
                    if choice < 0.4:
                        acked += await world.ack(each) == [None]
                    elif choice < 0.7:
                        await world.broker.settler.settle(TOPIC, GROUP, nacks=[Nack(handle)])
                    elif choice < 0.8:
                        await world.broker.settler.settle(TOPIC, GROUP, dead_letters=[Nack(handle)])
                    elif choice < 0.9:
                        await world.broker.settler.settle(
                            TOPIC, GROUP, extends=[Extend(handle, 9_000)]
                        )
            elif luck < 0.9:
                await world.lapse(s=rng.randrange(1, 6))
            else:
                await world.kill()
            found = counts(await lag(world))
            assert None not in found
            assert acked + sum(count or 0 for count in found) == stored
