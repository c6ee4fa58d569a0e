"""A broker on a store whose gate holds confirmations back: what waits is seen by nobody."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

import pytest

from app.broker import Broker
from app.broker.dedup.deduplicator import Once
from app.broker.dedup.tokens import ProducerToken
from app.broker.read.browser import BrowseRequest
from app.broker.results import Delivery, PullRequest, ReceiveRequest, SendResult
from app.domain.delays import Due
from app.domain.errors import RequestInProgress
from app.domain.limits import Limits
from app.domain.message import Message
from app.domain.positions import FlushMode
from app.domain.settings import GroupSettings, TopicSettings
from app.store import MessageStore, StoreConfig
from tests.support.metadata.memory_metadata import MemoryMetadata
from tests.support.nodes.brokers import GROUP, IDLE, TOPIC, never_gone
from tests.support.nodes.waiting import until
from tests.support.stores.clock import FakeClock
from tests.support.stores.held_back import HoldingGate
from tests.support.stores.simulated_files import SimulatedFiles

T = TypeVar("T")
PATIENCE_S = 30
pytestmark = pytest.mark.anyio
CONFIG = StoreConfig(
    segment_bytes=1 << 20, record_bytes_max=1 << 16, index_slots=64, index_entries=512
)


@dataclass
class Held:
    """A running broker, and the gate of its store; open until the test closes it."""

    broker: Broker
    store: MessageStore
    gate: HoldingGate
    clock: FakeClock

    async def send(self, body: bytes, due: Due | None = None) -> SendResult:
        message = Message(body, keys=("k",))
        return await self.broker.sender.send(TOPIC, message, queue_id=0, due=due)

    async def begin(
        self, tasks: asyncio.TaskGroup, work: Coroutine[object, object, T]
    ) -> asyncio.Task[T]:
        """Begin what writes a block, which is confirmed when the test says so; return when it is
        in the log."""
        self.gate.is_open = False
        before = len(self.gate.written)
        task = tasks.create_task(work)
        await until(lambda: len(self.gate.written) > before)
        return task

    def confirm(self) -> None:
        """Everything, from now on too."""
        self.gate.is_open = True
        self.gate.confirm_all()

    async def pull(self, wait_s: float = 0) -> list[bytes]:
        found = await self.broker.puller.pull(TOPIC, 0, PullRequest(offset=0, wait_s=wait_s))
        return [self.store.decode(record).body for record in found.read.records]

    async def receive(self) -> list[Delivery]:
        request = ReceiveRequest(max_messages=10)
        found = await self.broker.receiver.receive(TOPIC, GROUP, request, gone=never_gone)
        return found.deliveries

    async def browse(self) -> list[bytes]:
        found = await self.broker.browser.browse(TOPIC, BrowseRequest())
        return [message.body for message in found.messages]

    def keyed(self) -> int:
        return len(self.store.find_by_key(TOPIC, "k", wait_for_disk=True))


@pytest.fixture
async def held() -> AsyncIterator[Held]:
    clock, gate, limits = FakeClock(), HoldingGate(), Limits()
    loop = asyncio.get_running_loop()
    gate.is_open = True
    store = MessageStore.open(SimulatedFiles(), CONFIG, clock, loop, gate=gate)
    metadata = MemoryMetadata(clock)
    await metadata.put_topic(TOPIC, TopicSettings(queues=1, flush=FlushMode.ASYNC))
    await metadata.put_group(GROUP, GroupSettings(start="earliest"))
    broker = await Broker.open(store, metadata, clock, limits, IDLE)
    held = Held(broker, store, gate, clock)
    try:
        yield held
    finally:
        held.confirm()
        await broker.stop()
        store.close()


async def test_a_message_is_read_by_nobody_before_it_is_confirmed(held: Held) -> None:
    await held.send(b"first")
    async with asyncio.TaskGroup() as tasks:
        sending = await held.begin(tasks, held.send(b"second"))
        assert await held.pull() == await held.browse() == [b"first"]
        assert held.keyed() == 1
        assert held.broker.topic_ends.bounds(TOPIC)[0].max_offset == 1
        assert not sending.done()
        held.confirm()
    assert sending.result().queue_offset == 1
    assert await held.pull() == [b"first", b"second"]
    assert await held.browse() == [b"second", b"first"]
    assert held.keyed() == 2


async def test_who_waits_for_messages_is_answered_when_one_is_confirmed(held: Held) -> None:
    async with asyncio.TaskGroup() as tasks:
        pulling = tasks.create_task(held.pull(wait_s=30))
        await until(lambda: held.broker.waiting_count == 1)
        sending = await held.begin(tasks, held.send(b"first"))
        assert held.broker.waiting_count == 1
        assert not sending.done()
        held.confirm()
    assert pulling.result() == [b"first"]


async def test_a_receive_and_an_ack_are_answered_when_their_entries_are_confirmed(
    held: Held,
) -> None:
    await held.send(b"first")
    async with asyncio.TaskGroup() as tasks:
        receiving = await held.begin(tasks, held.receive())
        assert not receiving.done()
        held.confirm()
    (delivery,) = receiving.result()
    async with asyncio.TaskGroup() as tasks:
        settling = held.broker.settler.settle(TOPIC, GROUP, acks=[delivery.receipt_handle])
        acking = await held.begin(tasks, settling)
        assert not acking.done()
        held.confirm()
    assert [result.error for result in acking.result()] == [None]


async def test_a_receive_finds_nothing_that_is_not_confirmed(held: Held) -> None:
    assert await held.receive() == []
    async with asyncio.TaskGroup() as tasks:
        sending = await held.begin(tasks, held.send(b"first"))
        assert await held.receive() == []
        assert not sending.done()
        held.confirm()
    assert [delivery.message.body for delivery in await held.receive()] == [b"first"]


async def test_a_delayed_message_has_no_timer_before_it_is_confirmed(held: Held) -> None:
    async with asyncio.TaskGroup() as tasks:
        sending = await held.begin(tasks, held.send(b"late", Due(1_000, is_delay=True)))
        written = len(held.gate.written)
        held.clock.advance(s=2)
        await held.broker.delays.turn()
        assert len(held.gate.written) == written, "nothing is delivered"
        assert not sending.done()
        held.confirm()
    await held.broker.delays.turn()
    assert await held.pull() == [b"late"]


async def test_a_repetition_while_the_first_waits_is_stored_once(held: Held) -> None:
    """Whoever gives up waiting and sends again under the same number has ended his wait only."""

    def send() -> Coroutine[object, object, Once]:
        claim = ProducerToken("spark:q1:0", 0, 0)
        return held.broker.deduplicator.send(TOPIC, Message(b"x"), claim, queue_id=0)

    async with asyncio.TaskGroup() as tasks:
        first = await held.begin(tasks, send())
        first.cancel()
        await until(first.done)
        with pytest.raises(RequestInProgress):
            await send()
        held.confirm()
    again: Once | None = None
    async with asyncio.timeout(PATIENCE_S):
        while again is None:
            with suppress(RequestInProgress):  # what was confirmed is noted in a turn of its own
                again = await send()
            await asyncio.sleep(0)
    assert again.is_repeated
    assert await held.pull() == [b"x"]
