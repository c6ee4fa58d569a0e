"""Producers that are forgotten: because they say goodbye, or because there is no room."""

import pytest

from app.broker.dedup.deduplicator import Once
from app.broker.dedup.tokens import ProducerToken
from app.domain.errors import (
    ProducerNotFound,
    ProducerSealed,
    SequenceOutOfOrder,
    TooManyRequests,
)
from app.domain.limits import Limits
from app.domain.message import Message
from tests.support.nodes.brokers import TOPIC, World, running
from tests.support.nodes.waiting import until

pytestmark = pytest.mark.anyio


def claim(seq: int, epoch: int = 0, *, producer: str) -> ProducerToken:
    return ProducerToken(producer, epoch, seq)


async def send(world: World, body: bytes, what: ProducerToken) -> Once:
    return await world.broker.deduplicator.send(TOPIC, Message(body), what, queue_id=0)


async def test_a_family_that_says_goodbye_is_forgotten_and_its_epoch_stays_closed() -> None:
    async with running() as world:
        for lane in range(3):
            await send(world, b"x", claim(0, epoch=5, producer=f"till-3:{lane}"))
        producers = world.broker.producers
        assert producers.remembered[0][0] == 3
        assert await producers.forget("till-3") == 5
        await until(lambda: producers.remembered[0][0] == 0)
        with pytest.raises(ProducerSealed):
            await send(world, b"late", claim(1, epoch=5, producer="till-3:0"))
        assert await producers.forget("till-3") == 5
        await send(world, b"y", claim(0, epoch=6, producer="till-3:0"))
        with pytest.raises(ProducerNotFound):
            await producers.forget("till-4")


async def test_idle_producers_make_room_for_new_ones() -> None:
    limits = Limits(producers_max=2)
    async with running(limits=limits) as world:
        await send(world, b"a", claim(0, producer="old:1"))
        world.clock.advance(ms=1)
        await send(world, b"b", claim(0, producer="two:1"))
        await world.broker.deduplicator.send(TOPIC, Message(b"c"), claim(0, producer="two:1"))
        with pytest.raises(TooManyRequests):
            await send(world, b"d", claim(0, producer="new:1"))
        world.clock.advance(ms=limits.producer_idle_ms_min - 1)
        await send(world, b"d", claim(0, producer="new:1"))
        world.clock.advance(ms=limits.producer_idle_ms_min)
        with pytest.raises(SequenceOutOfOrder) as caught:
            await send(world, b"e", claim(1, producer="old:1"))
        assert caught.value.fields["expected_seq"] == 0


async def test_a_producer_that_was_forgotten_stays_so_after_a_restart() -> None:
    """Else its next number 0, which it was told to send, would be taken for a repetition."""
    limits = Limits(producers_max=1)
    async with running(limits=limits) as world:
        await send(world, b"a", claim(0, producer="old:1"))
        world.clock.advance(ms=limits.producer_idle_ms_min)
        await send(world, b"b", claim(0, producer="new:1"))
        world.clock.advance(ms=limits.producer_idle_ms_min)
        await world.restart()
        assert not (await send(world, b"c", claim(0, producer="old:1"))).is_repeated


async def test_a_producer_with_several_sequences_is_never_forgotten_for_room() -> None:
    limits = Limits(producers_max=1)
    async with running(limits=limits) as world:
        await send(world, b"a", claim(0, producer="two:1"))
        await world.broker.deduplicator.send(TOPIC, Message(b"b"), claim(0, producer="two:1"))
        world.clock.advance(ms=10 * limits.producer_idle_ms_min)
        with pytest.raises(TooManyRequests):
            await send(world, b"c", claim(0, producer="new:1"))


async def test_old_seals_make_room_for_new_ones() -> None:
    limits = Limits(producers_max=1)
    async with running(limits=limits) as world:
        producers = world.broker.producers
        await producers.seal("old", 0)
        with pytest.raises(TooManyRequests):
            await producers.seal("new", 0)
        world.clock.advance(ms=limits.producer_idle_ms_min + 1)
        await producers.seal("new", 0)
