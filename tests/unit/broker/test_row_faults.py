"""One row that cannot be dealt with keeps no other from its turn, is logged once, and is shown."""

from collections.abc import Callable
from typing import Any

import pytest

from app.broker.delays import delay_delivery as delays
from app.broker.delays.timer_records import as_message
from app.broker.failures.failed_deliveries import FAULTS_MAX
from app.broker.health import ConditionCode
from app.broker.journal.append_future import AppendFuture
from app.broker.leasing.holders import InFlight
from app.broker.leasing.lease_table import LeaseTable
from app.broker.retries_and_dead_letters import retry_copy
from app.broker.row_faults import RowFaults
from app.broker.schedules import schedules
from app.broker.transactions.transaction_table import TransactionState
from app.domain.errors import DiskFull, MetadataUnavailable, PropertiesTooLarge
from app.domain.limits import ROW_FAULTS_MAX
from app.domain.message import Message
from app.domain.names import dead_letter_topic, retry_topic
from app.domain.positions import FlushMode
from app.domain.schedules import ScheduleSettings
from app.domain.settings import GroupSettings
from app.store import Timer
from tests.support.nodes.brokers import GROUP, TOPIC, World, bodies, running
from tests.support.stores.clock import START_MS

pytestmark = pytest.mark.anyio


class Injected(Exception):
    """Raised by the test."""


def poisoned(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, which raises for a message with the body `bad`."""

    def call(message: Any, *args: Any) -> Any:
        if message.body == b"bad":
            raise Injected
        return function(message, *args)

    return call


def stored(world: World, topic: str) -> list[bytes]:
    end = world.store.bounds(topic, 0).max_offset
    if not end:
        return []
    read = world.store.read(topic, 0, 0, max_messages=1_000, max_bytes=1 << 30)
    return [world.store.decode(record).body for record in read.records]


def troubles(world: World) -> list[str]:
    found = world.broker.health.troubles()
    assert all(each.code is ConditionCode.DELIVERY_FAILING for each in found)
    return [each.detail for each in found]


async def test_one_subscription_that_raises_stops_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with running() as world:
        await world.topic(name="other")
        await world.retry_at_once()
        with monkeypatch.context() as patch:
            patch.setattr("app.broker.failures.failed_deliveries.retry_copy", poisoned(retry_copy))
            await world.send(b"bad")
            await world.broker.sender.send("other", Message(b"good"), queue_id=0)
            await world.receive()
            await world.receive(topic="other")
            for _ in range(5):
                await world.lapse(s=31)
            assert stored(world, retry_topic(GROUP, "other")) == [b"good"]
            assert troubles(world) == [f"failed deliveries of {GROUP}/{TOPIC}: Injected()"]
            assert caplog.text.count("failed deliveries of") == 1
            assert caplog.text.count("Traceback") == 1
        await world.lapse(s=1)
        assert stored(world, retry_topic(GROUP, TOPIC)) == [b"bad"], "nothing is lost"
        assert troubles(world) == []


async def test_one_message_that_raises_stops_no_other_of_its_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running() as world:
        await world.retry_at_once()
        await world.send(b"a", b"b", b"bad", b"c", b"bad", b"d")
        await world.receive(6)
        with monkeypatch.context() as patch:
            patch.setattr("app.broker.failures.failed_deliveries.retry_copy", poisoned(retry_copy))
            await world.lapse(s=31)
        assert stored(world, retry_topic(GROUP, TOPIC)) == [b"a", b"b", b"c", b"d"]
        assert bodies(await world.receive(9)) == [b"a", b"b", b"c", b"d"]
        await world.lapse(s=1)
        assert stored(world, retry_topic(GROUP, TOPIC))[4:] == [b"bad", b"bad"]


async def test_many_that_raise_do_not_take_the_whole_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[bytes] = []

    def fail(message: Any, *_args: Any) -> Any:
        calls.append(message.body)
        raise Injected

    async with running() as world:
        await world.retry_at_once()
        await world.send(*[b"bad"] * 100)
        await world.receive(100)
        with monkeypatch.context() as patch:
            patch.setattr("app.broker.failures.failed_deliveries.retry_copy", fail)
            await world.lapse(s=31)
            assert len(calls) == 2 * FAULTS_MAX + 1
        await world.lapse(s=1)
        assert len(stored(world, retry_topic(GROUP, TOPIC))) == 100


async def test_a_nack_that_raises_leaves_the_message_failing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running() as world:
        await world.retry_at_once()
        await world.send(b"bad", b"good")
        deliveries = await world.receive(2)
        with monkeypatch.context() as patch:
            patch.setattr("app.broker.failures.failed_deliveries.retry_copy", poisoned(retry_copy))
            with pytest.raises(Injected):
                await world.nack(*deliveries)
        assert stored(world, retry_topic(GROUP, TOPIC)) == [b"good"]
        await world.lapse(s=1)
        assert stored(world, retry_topic(GROUP, TOPIC)) == [b"good", b"bad"]


async def test_leases_that_cannot_be_looked_at_stop_no_other_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running() as world:
        await world.retry_at_once()
        await world.send(b"m")
        await world.receive(group="first")
        await world.receive()
        broken = world.broker.groups.find("first", TOPIC)
        assert broken is not None
        expire = LeaseTable.expire

        def fail(table: LeaseTable, now_s: float) -> None:
            if table in [queue.leases for queue in broken.sources]:
                raise Injected
            expire(table, now_s)

        with monkeypatch.context() as patch:
            patch.setattr(LeaseTable, "expire", fail)
            await world.lapse(s=31)
            assert stored(world, retry_topic(GROUP, TOPIC)) == [b"m"]
            assert "leases/first" in troubles(world)[0]
        await world.lapse(s=31)
        assert troubles(world) == []


async def test_a_store_that_takes_nothing_is_no_fault_of_a_message() -> None:
    count = 3
    async with running() as world:
        await world.retry_at_once()
        await world.send(*[b"m"] * count)
        await world.receive(count)
        appended = world.store.append_step
        tries: list[int] = []

        def refuse(*args: Any, **_more: Any) -> Any:
            tries.append(1)
            raise DiskFull("no room")

        world.store.append_step = refuse  # type: ignore[method-assign]
        await world.lapse(s=31)
        assert len(tries) == 1
        assert "no room" in troubles(world)[0]
        world.store.append_step = appended  # type: ignore[method-assign]
        await world.lapse(s=1)
        assert len(stored(world, retry_topic(GROUP, TOPIC))) == count


async def test_one_delayed_message_that_raises_is_set_aside(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with running() as world:
        for number, body in enumerate((b"bad", b"a", b"b")):
            confirmation = AppendFuture()
            due_ms = START_MS + 10 + number
            generation = world.metadata.snapshot.topics[TOPIC].generation
            part = world.broker.delays.part(Message(body), TOPIC, 0, due_ms, generation)
            world.store.append_step((part,), FlushMode.SYNC, confirmation.done)
            await confirmation.wait()
        with monkeypatch.context() as patch:
            patch.setattr("app.broker.delays.delay_delivery.as_message", poisoned(as_message))
            for _ in range(4):
                await world.lapse(ms=100)
            assert stored(world, TOPIC) == [b"a", b"b"]
            assert "Injected" in troubles(world)[0]
            assert caplog.text.count("Injected()") == 1
        assert await world.broker.delays.timers.claim_waiting(Timer(START_MS + 10, 0)), "not held"
        world.broker.delays.timers.release([Timer(START_MS + 10, 0)])
        await world.lapse(s=delays.TRY_AGAIN_SECONDS)
        assert stored(world, TOPIC) == [b"a", b"b", b"bad"]
        assert troubles(world) == []


async def test_one_schedule_that_raises_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running() as world:
        for name in ("bad", "good"):
            settings = ScheduleSettings("* * * * *", TOPIC, name.encode())
            await world.broker.schedules.put(name, settings)
        sent = schedules.Schedules._send

        async def send(self: Any, firing: Any) -> None:
            if firing.schedule == "bad":
                raise PropertiesTooLarge("too large")
            await sent(self, firing)

        with monkeypatch.context() as patch:
            patch.setattr(schedules.Schedules, "_send", send)
            world.clock.advance(s=60)
            await world.broker.schedules.turn()
            await world.broker.delays.turn()
            assert stored(world, TOPIC) == [b"good"]
            assert troubles(world) == ["firing of bad: too large"]
        await world.broker.schedules.turn()
        await world.broker.delays.turn()
        assert stored(world, TOPIC) == [b"good", b"bad"]
        assert troubles(world) == []


async def test_one_transaction_that_raises_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running() as world:
        transactions = world.broker.transactions
        ids = [
            (await transactions.prepare(TOPIC, Message(b"m"), producer_group="pg")).transaction_id
            for _ in range(3)
        ]

        async def fail(transaction_id: str, *args: Any, **more: Any) -> Any:
            if transaction_id == ids[0]:
                raise Injected
            return await transactions.decide(transaction_id, *args, **more)

        with monkeypatch.context() as patch:
            patch.setattr(transactions.checks, "_decide", fail)
            for _ in range(world.limits.transaction_checks_max + 2):
                world.clock.advance(s=31)
                await transactions.checks.turn()
            states = [transactions.find(each).state for each in ids]
            assert states == [
                TransactionState.PREPARED,
                TransactionState.ROLLED_BACK,
                TransactionState.ROLLED_BACK,
            ]
            assert troubles(world) == [f"rolling back of {ids[0]}: Injected()"]
        world.clock.advance(s=31)
        await transactions.checks.turn()
        assert transactions.find(ids[0]).state is TransactionState.ROLLED_BACK
        assert troubles(world) == []


async def test_one_journal_that_raises_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running() as world:
        turns: list[str] = []

        async def fail() -> None:
            raise Injected

        async def note() -> None:
            turns.append("producers")

        with monkeypatch.context() as patch:
            patch.setattr(world.broker.dead_letters.journal, "turn", fail)
            patch.setattr(world.broker.dedup_journal.journal, "turn", note)
            await world.broker._write_snapshots()
            assert turns == ["producers"]
            assert troubles(world) == ["writing the state of dead letters: Injected()"]
        await world.broker._write_snapshots()
        assert troubles(world) == []


async def test_a_deleted_group_is_no_trouble_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running() as world:
        await world.group(GroupSettings())
        await world.send(b"bad")
        await world.receive()
        monkeypatch.setattr(
            "app.broker.failures.failed_deliveries.retry_copy", poisoned(retry_copy)
        )
        await world.lapse(s=31)
        assert len(troubles(world)) == 1
        await world.broker.settings_changes.delete_group(GROUP)
        await world.lapse(s=1)
        assert troubles(world) == []
        assert stored(world, dead_letter_topic(GROUP)) == []


def test_faults_are_told_apart_up_to_a_bound_and_logged_once_per_cause(
    caplog: pytest.LogCaptureFixture,
) -> None:
    faults = RowFaults("work")
    for number in range(ROW_FAULTS_MAX + 10):
        faults.note(number, Injected())
    assert faults.count == ROW_FAULTS_MAX
    assert faults.problem == f"work of 0: Injected() (and {ROW_FAULTS_MAX - 1} more)"
    faults.keep_only({0})
    caplog.clear()
    faults.note(0, Injected())
    faults.note(0, DiskFull("96 % full"))
    faults.note(0, DiskFull("97 % full"))
    assert [record.getMessage() for record in caplog.records] == ["work of 0: 96 % full"]
    assert faults.problem == "work of 0: 97 % full"
    with faults.guard(0):
        pass
    assert faults.problem is None


def test_what_all_rows_would_meet_is_raised_on() -> None:
    faults = RowFaults("work")
    with pytest.raises(MetadataUnavailable), faults.guard(1, passing=MetadataUnavailable):
        raise MetadataUnavailable("gone")
    assert faults.problem is None


def test_acks_that_are_refused_twice_give_their_leases_back_after_a_sweep() -> None:
    """Two entries of one expiry with equal numbers would compare their offsets."""
    table = LeaseTable(InFlight())
    (lease,) = table.grant([7], 1, 30.0)
    for _ in range(3):
        assert table.ack(7, 1, 0.0)
        table.restore(7, lease)
        table._sweep_expiries()
    assert table.get(7, 1, 0.0) is lease
    table.expire(30.0)
    assert table.take_failing(9) == [(7, lease)]
