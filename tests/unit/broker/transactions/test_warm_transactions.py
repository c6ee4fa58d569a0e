"""Half messages that a follower keeps up: a broker takes up those that nobody has decided."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from app.broker.broker import Broker
from app.broker.context import Context
from app.broker.transactions.transaction_table import TransactionState
from app.broker.warm_parts import WarmParts
from app.domain.message import Message
from app.domain.names import HALF_TOPIC
from tests.support.nodes.brokers import KEYS, TOPIC, World
from tests.unit.broker.delays.test_warm_timers import Thread

pytestmark = pytest.mark.anyio


async def prepare(world: World) -> str:
    transactions, half = world.broker.transactions, Message(b"half")
    return (await transactions.prepare(TOPIC, half, producer_group="shop")).transaction_id


def advance(warm: WarmParts) -> None:
    while warm.advance():
        pass


async def begin(world: World, warm: WarmParts) -> Broker:
    await world.broker.stop()
    kept = warm.hand_over(lambda call: call())
    readers = ThreadPoolExecutor(1)
    broker = Broker(
        Context(world.store, world.metadata, world.clock, world.limits, world.config, readers),
        KEYS,
        kept,
    )
    await broker.start()
    world.broker = broker
    return broker


@pytest.fixture
async def world() -> World:
    made = World()
    await made.broker.start()
    await made.topic()
    return made


async def test_what_nobody_has_decided_is_taken_up_without_a_read(world: World) -> None:
    warm = WarmParts(world.store, world.clock, world.limits, Thread().submit)
    first, second, third = [await prepare(world) for _ in range(3)]
    await world.broker.transactions.decide(second, TransactionState.COMMITTED)
    advance(warm)
    world.store.cold.add((HALF_TOPIC, 0))
    disk_reads = world.store.disk_reads
    broker = await begin(world, warm)
    assert broker.transactions.pending_count == 2
    assert world.store.disk_reads == disk_reads
    world.store.cold.clear()
    await broker.transactions.decide(third, TransactionState.COMMITTED)
    await broker.transactions.decide(first, TransactionState.ROLLED_BACK)
    assert broker.transactions.pending_count == 0


async def test_what_came_last_is_read(world: World) -> None:
    warm = WarmParts(world.store, world.clock, world.limits, Thread().submit)
    first = await prepare(world)
    advance(warm)
    second = await prepare(world)
    await world.broker.transactions.decide(first, TransactionState.ROLLED_BACK)
    broker = await begin(world, warm)
    listed = broker.transactions.listed(state=TransactionState.PREPARED)
    assert [each.transaction_id for each in listed] == [second]


async def test_what_a_snapshot_says_is_decided_is_not_taken_up(world: World) -> None:
    warm = WarmParts(world.store, world.clock, world.limits, Thread().submit)
    transactions = world.broker.transactions
    first, second = [await prepare(world) for _ in range(2)]
    advance(warm)
    await transactions.decide(second, TransactionState.COMMITTED)
    await transactions.journal.write_snapshot()  # the decision itself is trimmed
    advance(warm)
    broker = await begin(world, warm)
    assert broker.transactions.find(second).state is TransactionState.COMMITTED
    assert broker.transactions.find(first).state is TransactionState.PREPARED
    assert broker.transactions.pending_count == 1


async def test_decided_halves_are_let_go_of(world: World) -> None:
    warm = WarmParts(world.store, world.clock, world.limits, Thread().submit)
    for _ in range(5):
        for transaction_id in [await prepare(world) for _ in range(500)]:
            await world.broker.transactions.decide(transaction_id, TransactionState.ROLLED_BACK)
        advance(warm)
    await prepare(world)
    advance(warm)
    assert len(warm.transactions.halves) < 1_500
    assert (await begin(world, warm)).transactions.pending_count == 1
