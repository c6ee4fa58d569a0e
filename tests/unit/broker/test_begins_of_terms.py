"""A broker begins its term while no other replica confirms anything, so that messages are read."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from app.broker import Broker
from app.broker.leasing import epochs
from app.broker.leasing.epochs import epoch_of
from app.broker.results import Delivery, PullRequest, ReceiveRequest
from app.domain.errors import NotEnoughReplicas
from app.domain.identity import Deletion, Kind
from app.domain.limits import Limits
from app.domain.message import Message
from app.domain.names import EPOCHS_TOPIC
from app.domain.positions import FlushMode
from app.domain.settings import GroupSettings, TopicSettings
from app.store import MessageStore
from tests.support.metadata.memory_metadata import MemoryMetadata
from tests.support.nodes.brokers import GROUP, IDLE, TOPIC, never_gone
from tests.support.nodes.waiting import until
from tests.support.stores.clock import FakeClock
from tests.support.stores.held_back import HoldingGate
from tests.support.stores.replicated import CONFIG
from tests.support.stores.simulated_files import SimulatedFiles

pytestmark = pytest.mark.anyio

GONE = "gone"


@dataclass
class Shard:
    """Its log and metadata, which outlive a term."""

    clock: FakeClock = field(default_factory=FakeClock)
    files: SimulatedFiles = field(default_factory=SimulatedFiles)

    def __post_init__(self) -> None:
        self.metadata = MemoryMetadata(self.clock)

    async def put_topic(self, name: str, queues: int) -> int:
        """Its generation."""
        settings = TopicSettings(queues=queues, flush=FlushMode.ASYNC)
        topic, _ = await self.metadata.put_topic(name, settings)
        return topic.generation

    @asynccontextmanager
    async def term(self, epoch: int, gate: HoldingGate) -> AsyncIterator[Broker]:
        store = MessageStore.open(
            self.files, CONFIG, self.clock, asyncio.get_running_loop(), gate=gate
        )
        try:
            async with asyncio.timeout(5):
                broker = await Broker.open(
                    *(store, self.metadata, self.clock, Limits(), IDLE), epoch_floor=epoch - 1
                )
            yield broker
            gate.is_open = True
            gate.confirm_all()
            await broker.stop()
        finally:
            store.close()


async def receive(broker: Broker) -> list[Delivery]:
    request = ReceiveRequest(max_messages=1)
    return (await broker.receiver.receive(TOPIC, GROUP, request, gone=never_gone)).deliveries


def open_gate() -> HoldingGate:
    gate = HoldingGate()
    gate.is_open = True
    return gate


async def test_a_broker_begins_before_anything_is_confirmed() -> None:
    shard, gate = Shard(), HoldingGate()
    await shard.put_topic(TOPIC, queues=1)
    generation = await shard.put_topic(GONE, queues=1)
    await shard.metadata.put_group(GROUP, GroupSettings(start="earliest"))
    async with shard.term(3, open_gate()) as before:
        for topic in (TOPIC, TOPIC, GONE):
            await before.sender.send(topic, Message(b"x"), queue_id=0)
        (leased,) = await receive(before)
    await shard.put_topic(TOPIC, queues=2)  # where the group begins in the new one is to be written
    await shard.metadata.delete_topic(GONE)
    deletion = Deletion(Kind.TOPIC, GONE, generation)
    async with shard.term(7, gate) as broker:
        store = broker.store
        assert broker.epochs.current == 7
        assert epoch_of(broker.groups.lease_ids.next) == 7
        assert store.bounds(EPOCHS_TOPIC, 0).max_offset < store.next_offset(EPOCHS_TOPIC, 0)
        pulled = await broker.puller.pull(TOPIC, 0, PullRequest(offset=0))
        assert len(pulled.read.records) == 2
        assert store.is_gone(GONE, generation)
        assert shard.metadata.pending == [deletion], "nobody knows yet whether it is confirmed"
        carrying_out = asyncio.ensure_future(broker.lifecycle.carry_out_deletions())
        settling = asyncio.ensure_future(
            broker.settler.settle(TOPIC, GROUP, acks=[leased.receipt_handle])
        )
        await until(lambda: store.status().written_end == gate.ends.written)
        assert not carrying_out.done()
        assert not settling.done()
        gate.is_open = True
        gate.confirm_all()
        await carrying_out
        assert shard.metadata.pending == []
        (settled,) = await settling
        assert settled.error is None, "it was held for whoever has it"


async def test_an_epoch_that_the_term_does_not_prove_is_waited_for() -> None:
    """The log knows a later one than the row: the database is another one."""
    shard, gate = Shard(), HoldingGate()
    async with shard.term(9, open_gate()):
        pass

    async def begin() -> int:
        async with shard.term(4, gate) as broker:
            return broker.epochs.current

    beginning = asyncio.ensure_future(begin())
    await until(lambda: bool(gate.written))
    assert not beginning.done()
    gate.is_open = True
    gate.confirm_all()
    assert await beginning == 10


async def test_it_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The replica resigns, as its broker does not begin, and another one may have followers."""
    monkeypatch.setattr(epochs, "CONFIRMED_SECONDS", 0.01)
    shard, gate = Shard(), HoldingGate()
    async with shard.term(9, open_gate()):
        pass
    with pytest.raises(NotEnoughReplicas) as raised:
        await shard.term(4, gate).__aenter__()
    assert raised.value.outcome == "unknown"
    assert gate.written


async def test_a_term_whose_epoch_is_refused_does_not_begin() -> None:
    """Nothing says then that no other node leads in that epoch."""
    shard, gate = Shard(), open_gate()
    async with shard.term(9, open_gate()):
        pass
    gate.too_few = "1 more would have to answer"
    with pytest.raises(NotEnoughReplicas):
        await shard.term(4, gate).__aenter__()
    async with shard.term(10, gate) as broker:
        assert broker.epochs.current == 10
        gate.too_few = None
