"""A wall clock that jumps ahead by years, and is set back: who waits for what."""

import pytest

from app.broker.dedup.tokens import KeyToken, ProducerToken
from app.domain.errors import CurlewError
from app.domain.limits import Limits
from app.domain.message import Message
from tests.support.nodes.brokers import World, bodies, running
from tests.unit.broker.dedup.test_deduplicator import send
from tests.unit.broker.delays.test_delay_delivery import delay, delivered

pytestmark = pytest.mark.anyio

YEAR_MS = 365 * 86_400_000
JUMPS = pytest.mark.parametrize("jump_ms", [YEAR_MS, 10 * YEAR_MS])


def step(world: World, by_ms: int) -> None:
    world.clock.set_wall(world.clock.now_ms() + by_ms)


@JUMPS
async def test_leases_end_after_their_own_time_and_sends_go_on(jump_ms: int) -> None:
    async with running() as world:
        await world.retry_at_once()
        await world.send(b"a")
        [first] = await world.receive(invisible_ms=30_000)
        step(world, jump_ms)
        await world.lapse(s=1)
        assert await world.receive() == [], "it is leased still"
        assert await world.ack(first) == [None]
        await world.send(b"b")
        assert bodies(await world.receive(invisible_ms=30_000)) == [b"b"]
        step(world, -jump_ms)
        await world.send(b"c")
        assert bodies(await world.receive(invisible_ms=30_000)) == [b"c"]
        await world.lapse(s=31)
        assert sorted(bodies(await world.receive())) == [b"b", b"c"]


@JUMPS
async def test_delayed_messages_are_due_by_the_wall_clock(jump_ms: int) -> None:
    async with running() as world:
        start_ms = world.clock.now_ms()
        await delay(world, Message(b"before"), start_ms + 3_600_000)
        await delay(world, Message(b"late"), start_ms + jump_ms + 60_000)
        step(world, jump_ms)
        assert await delivered(world) == [b"before"]
        step(world, -jump_ms)
        await delay(world, Message(b"after"), start_ms + 60_000)
        await world.lapse(s=61)
        assert await delivered(world) == [b"before", b"after"]


@JUMPS
@pytest.mark.parametrize("kill", [False, True])
async def test_keys_and_producers_of_the_jump_hold_nobody_up_for_years(
    jump_ms: int, kill: bool
) -> None:
    limits = Limits(idempotency_keys_max=2, producers_max=2)
    async with running(limits=limits) as world:

        def claims(number: int) -> tuple[KeyToken, ProducerToken]:
            return KeyToken(f"k{number}", "f"), ProducerToken(f"p{number}", 0, 0)

        step(world, jump_ms)
        for number in range(2):
            for claim in claims(number):
                await send(world, b"ahead", claim)
        step(world, -jump_ms)
        if kill:
            await world.kill()
        for claim in claims(0):
            assert (await send(world, b"ahead", claim)).is_repeated, "known still"
        for claim in claims(2):
            with pytest.raises(CurlewError):
                await send(world, b"one too many", claim)
        longest_ms = max(limits.idempotency_window_ms, limits.producer_window_ms)
        world.clock.advance(ms=longest_ms + 1)
        for claim in claims(2):
            assert not (await send(world, b"new", claim)).is_repeated
