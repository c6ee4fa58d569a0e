"""Transactions on a store in memory: invisible, then visible exactly once, or never."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from app.broker.transactions.transaction_table import Transaction, TransactionState
from app.broker.transactions.transactions import Transactions
from app.domain.errors import (
    DiskFull,
    IllegalGroup,
    InternalError,
    InvalidRequest,
    ShardUnavailable,
    ShuttingDown,
    TooManyRequests,
    TopicNotFound,
    TopicTypeConflict,
    TransactionConflict,
    TransactionNotFound,
)
from app.domain.limits import Limits
from app.domain.message import Message
from app.domain.names import HALF_TOPIC
from app.domain.settings import TopicSettings, TopicType
from app.store.read.queue_reads import ReadResult
from tests.support.nodes.brokers import TOPIC, World, never_gone, running
from tests.support.nodes.waiting import until

pytestmark = pytest.mark.anyio
COMMITTED, ROLLED_BACK = TransactionState.COMMITTED, TransactionState.ROLLED_BACK
QUICK = Limits(transaction_checks_max=2)


def transactions(world: World) -> Transactions:
    return world.broker.transactions


async def prepare(world: World, body: bytes = b"x", **more: object) -> Transaction:
    message = Message(body, tag="paid", keys=("k",), sharding_key="s", properties={"a": "1"})
    return await transactions(world).prepare(
        TOPIC,
        message,
        producer_group="pg",
        **more,  # type: ignore[arg-type]
    )


async def visible(world: World) -> list[bytes]:
    found: list[bytes] = []
    for queue_id in range(world.metadata.snapshot.topics[TOPIC].queues):
        read = (await world.pull(0, queue_id=queue_id)).read
        found += [world.broker.puller.decode(record).body for record in read.records]
    return found


async def checks(world: World, count: int = 10, wait_s: float = 0) -> list[tuple[str, int]]:
    received = await transactions(world).checks.receive(
        "pg", max_checks=count, wait_s=wait_s, gone=never_gone
    )
    return [(check.message.body.decode(), check.transaction.checks) for check in received]


async def test_a_half_message_is_visible_only_when_it_is_committed() -> None:
    async with running(queues=4) as world:
        prepared = await prepare(world)
        assert prepared.state == "PREPARED"
        assert await visible(world) == []
        committed = await transactions(world).decide(prepared.transaction_id, COMMITTED)
        assert (committed.state, committed.queue_offset) == ("COMMITTED", 0)
        assert await visible(world) == [b"x"]
        message = await world.broker.browser.message(TOPIC, prepared.transaction_id)
        assert (message.tag, message.keys, message.sharding_key) == ("paid", ("k",), "s")
        assert (message.properties, message.queue_id) == ({"a": "1"}, prepared.queue_id)


async def test_a_rolled_back_message_is_never_visible() -> None:
    async with running() as world:
        prepared = await prepare(world)
        await transactions(world).decide(prepared.transaction_id, ROLLED_BACK)
        assert await visible(world) == []
        await world.restart()
        assert await visible(world) == []
        assert transactions(world).find(prepared.transaction_id).state == "ROLLED_BACK"


@pytest.mark.parametrize(("first", "other"), [(COMMITTED, ROLLED_BACK), (ROLLED_BACK, COMMITTED)])
@pytest.mark.parametrize("restarted", [False, True])
async def test_a_decision_is_final(
    first: TransactionState, other: TransactionState, restarted: bool
) -> None:
    async with running() as world:
        transaction_id = (await prepare(world)).transaction_id
        decided = await transactions(world).decide(transaction_id, first)
        answer = (decided.state, decided.queue_id, decided.queue_offset)
        if restarted:
            await world.restart()
        again = await transactions(world).decide(transaction_id, first)
        assert (again.state, again.queue_id, again.queue_offset) == answer
        with pytest.raises(TransactionConflict) as conflict:
            await transactions(world).decide(transaction_id, other)
        assert conflict.value.fields == {"state": first}
        assert await visible(world) == ([b"x"] if first is COMMITTED else [])


async def test_of_racing_decisions_one_wins() -> None:
    async with running() as world:
        transaction_id = (await prepare(world)).transaction_id
        world.store.cold = {(HALF_TOPIC, 0)}  # committing waits for the disk
        wanted = [COMMITTED, ROLLED_BACK, COMMITTED, COMMITTED, ROLLED_BACK]
        results = await asyncio.gather(
            *[transactions(world).decide(transaction_id, decision) for decision in wanted],
            return_exceptions=True,
        )
        kinds = [type(result) for result in results]
        conflict = TransactionConflict
        assert kinds == [Transaction, conflict, Transaction, Transaction, conflict]
        assert await visible(world) == [b"x"]


async def test_what_is_prepared_waits_through_a_restart() -> None:
    async with running() as world:
        one, two = await prepare(world, b"one"), await prepare(world, b"two")
        await transactions(world).decide(one.transaction_id, COMMITTED)
        await transactions(world).journal.write_snapshot()
        await world.restart()
        await transactions(world).checks.turn()
        assert world.store.bounds(HALF_TOPIC, 0).min_offset == 1
        assert transactions(world).pending_count == 1
        await transactions(world).decide(two.transaction_id, COMMITTED)
        assert await visible(world) == [b"one", b"two"]
        await transactions(world).checks.turn()
        assert world.store.bounds(HALF_TOPIC, 0) == (2, 2)


async def test_a_producer_that_owes_a_decision_is_asked_then_given_up() -> None:
    async with running(limits=QUICK) as world:
        await prepare(world)
        assert await checks(world) == []
        for number in (1, 2):
            world.clock.advance(s=6 if number == 1 else 30)
            await transactions(world).checks.turn()
            assert await checks(world) == [("x", number)]
            assert await checks(world) == []  # one caller has it
        world.clock.advance(s=30)
        await transactions(world).checks.turn()
        found = transactions(world).listed(state=ROLLED_BACK, producer_group="pg")
        assert [each.reason for each in found] == ["CHECKS_EXHAUSTED"]
        assert await visible(world) == []


async def test_checks_are_counted_through_a_restart() -> None:
    async with running(limits=QUICK) as world:
        prepared = await prepare(world)
        world.clock.advance(s=6)
        await transactions(world).checks.turn()
        await world.restart()
        assert transactions(world).find(prepared.transaction_id).checks == 1
        world.clock.advance(s=30)
        await transactions(world).checks.turn()
        assert await checks(world) == [("x", 2)]


async def test_a_poller_waits_until_a_check_is_due() -> None:
    async with running() as world:
        await prepare(world)
        polling = asyncio.ensure_future(checks(world, wait_s=20))
        await until(lambda: world.waiting == 1)
        world.clock.advance(s=6)
        await transactions(world).checks.turn()
        assert await polling == [("x", 1)]


async def test_a_check_that_reached_nobody_is_handed_out_again() -> None:
    async with running() as world:
        await prepare(world)
        world.clock.advance(s=6)
        await transactions(world).checks.turn()
        nothing = await transactions(world).checks.receive(
            "pg", max_checks=1, wait_s=0, gone=lambda: True
        )
        assert nothing == []
        received = await transactions(world).checks.receive(
            "pg", max_checks=1, wait_s=0, gone=never_gone
        )
        transactions(world).checks.give_back(received)
        assert await checks(world) == [("x", 1)]


async def test_what_cannot_be_stored_is_not_decided() -> None:
    async with running() as world:
        prepared = await prepare(world)
        world.store.refusal = DiskFull("no room")
        with pytest.raises(DiskFull) as full:
            await transactions(world).decide(prepared.transaction_id, COMMITTED)
        assert full.value.outcome == "not_stored"
        with pytest.raises(DiskFull):
            await prepare(world)
        world.store.refusal = None
        assert transactions(world).find(prepared.transaction_id).state == "PREPARED"
        await transactions(world).decide(prepared.transaction_id, ROLLED_BACK)


async def test_a_damaged_half_can_only_be_rolled_back() -> None:
    async with running() as world:
        prepared = await prepare(world)
        world.store.damage(HALF_TOPIC, 0, 0)
        with pytest.raises(InternalError, match="cannot be read"):
            await transactions(world).decide(prepared.transaction_id, COMMITTED)
        world.clock.advance(s=6)
        await transactions(world).checks.turn()
        assert await checks(world) == []
        await transactions(world).decide(prepared.transaction_id, ROLLED_BACK)


def refuse_first_half(world: World, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """It may be whole at a replica alone that does not answer, until what is returned is called."""
    read = world.store.read

    def read_or_refuse(topic: str, queue_id: int, offset: int, **bounds: Any) -> ReadResult:
        if (topic, offset) == (HALF_TOPIC, 0):
            raise ShardUnavailable("the record is damaged here, and may be whole elsewhere")
        return read(topic, queue_id, offset, **bounds)

    monkeypatch.setattr(world.store, "read", read_or_refuse)
    return lambda: monkeypatch.setattr(world.store, "read", read)


async def test_a_half_that_may_be_whole_at_a_silent_replica_keeps_no_other_from_being_asked_about(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running(limits=QUICK) as world:
        silent, _ = await prepare(world, b"silent"), await prepare(world, b"whole")
        answer = refuse_first_half(world, monkeypatch)
        world.clock.advance(s=6)
        await transactions(world).checks.turn()
        with pytest.raises(ShardUnavailable):
            await checks(world, 1)
        assert await checks(world) == [("whole", 1)]
        with pytest.raises(ShardUnavailable):
            await checks(world)
        assert silent.state == "PREPARED"
        assert transactions(world).checks.faults.count == 1
        answer()
        assert await checks(world) == [("silent", 1)]
        assert transactions(world).checks.faults.count == 0


@pytest.mark.parametrize("counts_when_asked", [False, True])
@pytest.mark.parametrize("is_asked", [False, True])
async def test_checks_do_not_count_while_the_half_may_be_whole_at_a_silent_replica(
    monkeypatch: pytest.MonkeyPatch, *, is_asked: bool, counts_when_asked: bool
) -> None:
    """Else it would be rolled back, though nobody could be told what it is about."""
    async with running(limits=QUICK) as world:
        silent = await prepare(world, b"silent", counts_when_asked=counts_when_asked)
        answer = refuse_first_half(world, monkeypatch)
        interval_s = QUICK.transaction_check_interval_ms / 1_000
        for _ in range(10):
            world.clock.advance(s=interval_s)
            await transactions(world).checks.turn()
            if is_asked:
                with pytest.raises(ShardUnavailable):
                    await checks(world)
        assert silent.state == "PREPARED"
        is_told = transactions(world).checks.faults.problem is not None
        assert is_told is (is_asked or not counts_when_asked)
        answer()
        found: list[tuple[str, int]] = []
        while silent.state == "PREPARED":
            world.clock.advance(s=interval_s)
            await transactions(world).checks.turn()
            found += await checks(world)
        assert (silent.state, silent.reason) == ("ROLLED_BACK", "CHECKS_EXHAUSTED")
        assert found[-2:] == [("silent", 1), ("silent", 2)]
        assert transactions(world).checks.faults.count == 0


async def test_refusals() -> None:
    async with running(limits=Limits(transactions_pending_max=1)) as world:
        with pytest.raises(TransactionNotFound):
            await transactions(world).decide("nothing", COMMITTED)
        for wrong in (0, 10**9):
            with pytest.raises(InvalidRequest, match="check-after"):
                await prepare(world, check_after_ms=wrong)
        with pytest.raises(IllegalGroup):
            await transactions(world).prepare(TOPIC, Message(b""), producer_group="%")
        with pytest.raises(TopicNotFound) as missing:
            await transactions(world).prepare("nothing", Message(b""), producer_group="pg")
        assert missing.value.outcome == "not_stored"
        prepared = await prepare(world)
        with pytest.raises(TooManyRequests):
            await prepare(world)
        await world.metadata.delete_topic(TOPIC)
        with pytest.raises(TopicNotFound):
            await transactions(world).decide(prepared.transaction_id, COMMITTED)
        await world.broker.stop()
        with pytest.raises(ShuttingDown):
            await transactions(world).decide(prepared.transaction_id, ROLLED_BACK)


async def test_a_decision_that_was_not_written_is_taken_back() -> None:
    """The writer can find the disk full after the decision was appended."""
    async with running() as world:
        prepared = await prepare(world)
        world.store.failure = DiskFull("no room", outcome="not_stored")
        with pytest.raises(DiskFull):
            await transactions(world).decide(prepared.transaction_id, COMMITTED)
        world.store.failure = None
        assert transactions(world).find(prepared.transaction_id).state == "PREPARED"
        assert transactions(world).pending_count == 1
        world.clock.advance(s=6)
        await transactions(world).checks.turn()
        assert await checks(world) == [("x", 1)]
        committed = await transactions(world).decide(prepared.transaction_id, COMMITTED)
        assert (committed.state, committed.queue_offset) == ("COMMITTED", 0)
        assert await visible(world) == [b"x"]


async def test_a_repeated_decision_is_answered_when_the_first_one_is_safe() -> None:
    async with running() as world, asyncio.TaskGroup() as tasks:
        transaction_id = (await prepare(world)).transaction_id
        world.store.held = []
        first = tasks.create_task(transactions(world).decide(transaction_id, COMMITTED))
        await until(lambda: bool(world.store.held))
        again = tasks.create_task(transactions(world).decide(transaction_id, COMMITTED))
        first.cancel()  # its client has gone
        await asyncio.wait({first})
        await asyncio.sleep(0)
        is_early = again.done()
        world.store.confirm()
        assert (await again).queue_offset == 0
        assert not is_early
        assert await visible(world) == [b"x"]


async def test_what_was_prepared_is_asked_about_though_its_client_has_gone() -> None:
    async with running() as world, asyncio.TaskGroup() as tasks:
        world.store.held = []
        preparing = tasks.create_task(prepare(world))
        await until(lambda: bool(world.store.held))
        preparing.cancel()
        await asyncio.wait({preparing})
        world.store.confirm()
        await asyncio.sleep(0)
        world.clock.advance(s=6)
        await transactions(world).checks.turn()
        assert await checks(world) == [("x", 1)]


async def test_the_bound_of_pending_ones_holds_for_those_that_come_together() -> None:
    async with running(limits=Limits(transactions_pending_max=2)) as world:
        results = await asyncio.gather(*[prepare(world) for _ in range(5)], return_exceptions=True)
        assert [type(result) for result in results] == [Transaction] * 2 + [TooManyRequests] * 3


async def test_a_half_that_a_restart_finds_damaged_holds_nothing_back() -> None:
    async with running() as world:
        await prepare(world, b"lost")
        kept = await prepare(world, b"kept")
        world.store.damage(HALF_TOPIC, 0, 0)
        await world.restart()
        await transactions(world).checks.turn()
        assert world.store.bounds(HALF_TOPIC, 0).min_offset == 1
        await transactions(world).decide(kept.transaction_id, COMMITTED)
        await transactions(world).checks.turn()
        assert world.store.bounds(HALF_TOPIC, 0) == (2, 2)


@pytest.mark.parametrize("kind", list(TopicType))
async def test_only_topics_for_it_take_a_transaction(kind: TopicType) -> None:
    async with running() as world:
        await world.metadata.put_topic(TOPIC, TopicSettings(queues=1, type=kind))
        if kind in {TopicType.NORMAL, TopicType.TRANSACTION}:
            assert (await prepare(world)).state == "PREPARED"
        else:
            with pytest.raises(TopicTypeConflict) as conflict:
                await prepare(world)
            assert conflict.value.outcome == "not_stored"


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("is_of_an_early_version", [False, True])
async def test_what_was_prepared_for_a_topic_is_not_for_its_successor(
    *, is_restarted: bool, is_of_an_early_version: bool
) -> None:
    async with running(queues=4) as world:
        prepared = await prepare(world, queue_id=3)
        if is_of_an_early_version:
            prepared.generation = 0
        await world.broker.settings_changes.delete_topic(TOPIC)
        with pytest.raises(TopicNotFound):
            await transactions(world).decide(prepared.transaction_id, COMMITTED)
        world.clock.advance(ms=1)
        await world.topic(2)
        if is_restarted:
            await world.restart()
        with pytest.raises(TopicNotFound) as refused:
            await transactions(world).decide(prepared.transaction_id, COMMITTED)
        assert refused.value.outcome == "not_stored"
        assert await visible(world) == []
        await transactions(world).decide(prepared.transaction_id, ROLLED_BACK)


async def test_the_first_check_comes_in_time_though_the_clock_was_set_back() -> None:
    """Store times do not follow it, so a half message may be stored at a time to come."""
    async with running() as world:
        await prepare(world)
        world.clock.set_wall(world.clock.now_ms() - 3_600_000)
        await world.restart()
        world.clock.advance(s=6)
        await transactions(world).checks.turn()
        assert await checks(world) == [("x", 1)]


@pytest.mark.parametrize("counts_when_asked", [True, False])
async def test_a_check_that_nobody_fetched_counts_unless_the_producer_says_otherwise(
    counts_when_asked: bool,
) -> None:
    """The control: without it, a producer group that is away loses its transactions."""
    async with running(limits=QUICK) as world:
        made = await prepare(world, counts_when_asked=counts_when_asked)
        transactions = world.broker.transactions
        for kill in (False, True, False, False):
            world.clock.advance(s=31)
            await transactions.checks.turn()
            if kill:
                await world.kill()
                transactions = world.broker.transactions
        found = transactions.find(made.transaction_id)
        expected = TransactionState.PREPARED if counts_when_asked else TransactionState.ROLLED_BACK
        assert found.state is expected


async def test_checks_that_were_fetched_are_counted_through_a_restart_and_end() -> None:
    async with running(limits=QUICK) as world:
        made = await prepare(world, counts_when_asked=True)
        for asked in (1, 2):
            world.clock.advance(s=31)
            await world.broker.transactions.checks.turn()
            [check] = await world.broker.transactions.checks.receive(
                "pg", max_checks=1, wait_s=0, gone=lambda: False
            )
            assert check.transaction.checks == asked
            await world.kill()
        for _ in range(2):
            world.clock.advance(s=31)
            await world.broker.transactions.checks.turn()
        found = world.broker.transactions.find(made.transaction_id)
        assert (found.state, found.reason) == (TransactionState.ROLLED_BACK, "CHECKS_EXHAUSTED")


async def test_a_check_that_reached_nobody_is_not_counted() -> None:
    async with running(limits=QUICK) as world:
        made = await prepare(world, counts_when_asked=True)
        world.clock.advance(s=31)
        await world.broker.transactions.checks.turn()
        await world.broker.transactions.checks.receive(
            "pg", max_checks=1, wait_s=0, gone=lambda: True
        )
        assert world.broker.transactions.find(made.transaction_id).checks == 0


async def test_who_leaves_while_the_halves_are_read_takes_no_check_along() -> None:
    async with running(limits=QUICK) as world:
        made = await prepare(world, counts_when_asked=True)
        world.clock.advance(s=31)
        await transactions(world).checks.turn()
        world.store.cold.add((HALF_TOPIC, 0))
        asking = asyncio.ensure_future(checks(world))
        await asyncio.sleep(0)
        asking.cancel()
        assert isinstance((await asyncio.gather(asking, return_exceptions=True))[0], BaseException)
        assert transactions(world).find(made.transaction_id).checks == 0
        assert await checks(world) == [("x", 1)]


async def test_a_commit_that_is_repeated_when_the_message_has_expired_names_no_offset() -> None:
    async with running() as world:
        await prepare(world)  # keeps the halves
        made = await prepare(world)
        await transactions(world).decide(made.transaction_id, COMMITTED)
        world.store.trim(TOPIC, 0, 1)
        await world.kill()
        again = await transactions(world).decide(made.transaction_id, COMMITTED)
        assert (again.state, again.queue_offset) == ("COMMITTED", None)
