"""How many messages of a stream that another node answers are unsettled here."""

import asyncio
from collections.abc import Callable

import pytest

from app.broker.results import SettleResult
from app.broker.streams.credit import Credits
from app.broker.streams.credit_elsewhere import CreditElsewhere

pytestmark = pytest.mark.anyio

LONG_S = 60.0


class World:
    def __init__(self) -> None:
        self.credits = Credits()
        self.now_s = 100.0
        self.elsewhere = CreditElsewhere(self.credits, lambda: 7, lambda: self.now_s)

    def ack(self, handle: str) -> None:
        self.credits.note([SettleResult(handle, "ack", None, None, None)], lambda ms: ms / 1_000)

    def extend(self, handle: str, new: str, until_s: float) -> None:
        extended = SettleResult(handle, "extend", None, new, round(until_s * 1_000))
        self.credits.note([extended], lambda ms: ms / 1_000)

    def wait(self, known: int, watch: Callable[..., None] = lambda _: None) -> "asyncio.Task[int]":
        async def messages() -> int:
            return (await self.elsewhere.wait("s", known, LONG_S, watch)).messages

        return asyncio.ensure_future(messages())


async def test_what_is_settled_counts_no_more_and_the_stream_is_forgotten() -> None:
    world = World()
    world.elsewhere.take("s", ["a", "b"], 130.0)
    given = world.elsewhere.unsettled("s")
    assert (given.epoch, given.messages, given.left_ms) == (7, 2, 30_000)
    world.ack("a")
    later = world.elsewhere.unsettled("s")
    assert (later.messages, later.version > given.version) == (1, True)
    world.ack("b")
    last = world.elsewhere.unsettled("s")
    assert (last.messages, last.version > later.version) == (0, True)
    assert len(world.elsewhere._shares) == 0
    world.elsewhere.take("s", ["c"], 130.0)
    assert world.elsewhere.unsettled("s").version > last.version


async def test_an_extended_message_counts_for_longer_under_its_new_handle() -> None:
    world = World()
    world.elsewhere.take("s", ["a"], 130.0)
    known = world.elsewhere.unsettled("s").version
    waiting = world.wait(known)
    await asyncio.sleep(0)
    world.extend("a", "a2", 160.0)
    assert await waiting == 1
    assert world.elsewhere.unsettled("s")[2:] == (1, 60_000)
    assert world.elsewhere.unsettled("s").version > known
    world.credits.expire(130.0)
    assert world.elsewhere.unsettled("s").messages == 1
    world.now_s = 160.0
    world.credits.expire(world.now_s)
    assert world.elsewhere.unsettled("s").messages == 0


async def test_who_waits_hears_of_a_change_of_its_stream_only() -> None:
    world = World()
    world.elsewhere.take("s", ["a"], 130.0)
    world.elsewhere.take("other", ["x"], 130.0)
    known = world.elsewhere.unsettled("s").version
    waiting = world.wait(known)
    await asyncio.sleep(0)
    world.ack("x")
    await asyncio.sleep(0)
    assert not waiting.done()
    world.ack("a")
    assert await waiting == 0
    assert await world.wait(known) == 0  # another version than is known: at once


async def test_a_wait_ends_with_its_client_and_with_the_node() -> None:
    world = World()
    world.elsewhere.take("s", ["a"], 130.0)
    known = world.elsewhere.unsettled("s").version
    ends: list[Callable[[], object]] = []
    waiting = world.wait(known, ends.append)
    await asyncio.sleep(0)
    ends[0]()
    assert await waiting == 1
    waiting = world.wait(known)
    await asyncio.sleep(0)
    world.elsewhere.close()
    assert await waiting == 1
    assert await world.wait(known) == 1
