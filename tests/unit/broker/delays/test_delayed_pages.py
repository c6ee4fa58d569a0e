"""Pages of delayed messages are read some dozens at a time, whatever is on the disk."""

import threading
from collections.abc import AsyncIterator

import pytest

from app.broker.delays.delay_delivery import BATCH_BYTES
from app.broker.delays.delayed_messages import READ_AT_ONCE
from app.domain.message import Message
from app.store import ColdRead
from app.store.read.queue_reads import ReadResult
from tests.support.nodes.brokers import TOPIC, World, running
from tests.support.stores.clock import START_MS
from tests.unit.broker.delays.test_delay_delivery import delay

pytestmark = pytest.mark.anyio


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with running(queues=2) as world:
        yield world


async def bodies_of(world: World, page_size: int) -> list[list[bytes]]:
    """Of each page."""
    pages, token = list[list[bytes]](), None
    while True:
        page = await world.broker.delayed_messages.page(TOPIC, page_size, token)
        pages.append([each.message.body for each in page.messages])
        token = page.next_page_token
        if token is None:
            return pages


async def test_a_page_that_is_cold_waits_for_one_thread_and_not_for_each_message(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies = [b"%03d" % number for number in range(READ_AT_ONCE + 20)]
    for number, body in reversed(list(enumerate(bodies))):  # no two are neighbours in the log
        await delay(world, Message(body), START_MS + 1_000 + number)
    here, read = threading.get_ident(), world.store.read
    cold: list[int] = []

    def read_cold(*place: object, wait_for_disk: bool = True, **more: object) -> ReadResult:
        if threading.get_ident() == here:
            cold.append(1)
            raise ColdRead
        return read(*place, wait_for_disk=wait_for_disk, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(world.store, "read", read_cold)
    assert await bodies_of(world, 1_000) == [bodies]
    assert len(cold) == 3  # one of them looks for new ones


async def test_large_messages_come_in_more_than_one_step(world: World) -> None:
    large = [b"%d" % number * (BATCH_BYTES // 3) for number in range(8)]
    for number, body in enumerate(large):
        await delay(world, Message(body), START_MS + 1_000 + number)
    assert await bodies_of(world, 1_000) == [large]
    assert await bodies_of(world, 3) == [large[:3], large[3:6], large[6:]]
