"""G9: of one sharding key one message at a time, in order; other keys go on."""

import asyncio

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from app.broker.failures.blocked_keys import BlockedKey, Release
from app.broker.failures.dead_letter_admin import Selection
from app.broker.leasing.ordering import KeyOrder
from app.broker.leasing.subscriptions import Subscription
from app.broker.results import Delivery, Nack
from app.domain.errors import DiskFull, InvalidRequest, MessageNotFound, ReceiptHandleExpired
from app.domain.limits import Limits
from app.domain.message import Message
from app.domain.settings import (
    CustomizedRetry,
    DeliveryOrder,
    GroupSettings,
    WhenExhausted,
)
from tests.support.nodes.brokers import GROUP, TOPIC, World, bodies, offsets, running
from tests.support.nodes.waiting import until

pytestmark = pytest.mark.anyio

FIFO = DeliveryOrder.FIFO


class OrderMachine(RuleBasedStateMachine):
    """One queue against plain lists of open offsets by key."""

    def __init__(self) -> None:
        super().__init__()
        self.order = KeyOrder()
        self.lines: dict[str | None, list[int]] = {}
        self.turns: set[int] = set()
        self.next = 0

    @rule(key=st.sampled_from(["a", "b", None]))
    def enter(self, key: str | None) -> None:
        line = self.lines.setdefault(key, [])
        has_turn = self.order.enter(self.next, key, self.next % 3)
        assert has_turn == (not line)
        if has_turn:
            self.turns.add(self.next)
        line.append(self.next)
        self.next += 1

    @precondition(lambda self: self.turns)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from(sorted(self.turns)))
        [line] = [line for line in self.lines.values() if offset in line]
        turn = self.order.done(offset)
        line.remove(offset)
        self.turns.discard(offset)
        assert (turn.offset if turn else None) == (line[0] if line else None)
        if turn:
            assert turn.earlier == turn.offset % 3
            self.turns.add(turn.offset)

    @rule(ahead=st.integers(0, 6))
    def skip(self, ahead: int) -> None:
        low = min((line[0] for line in self.lines.values() if line), default=self.next)
        end = min(low + ahead, self.next)
        turns = {turn.offset for turn in self.order.skip_to(end)}
        self.turns = {turn for turn in self.turns if turn >= end} | turns
        for line in self.lines.values():
            line[:] = [offset for offset in line if offset >= end]

    @invariant()
    def the_lowest_open_offset_of_each_key_has_its_turn(self) -> None:
        assert self.turns == {line[0] for line in self.lines.values() if line}
        assert self.order.size == sum(map(len, self.lines.values()))
        assert self.order.done(10**9) is None


OrderMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestOrderMachine = OrderMachine.TestCase


async def ordered(world: World, **more: object) -> None:
    values = {"retry_policy": CustomizedRetry((5_000,)), "max_attempts": 3, **more}
    await world.group(GroupSettings(order=FIFO, **values))  # type: ignore[arg-type]


async def send(world: World, *named: str) -> None:
    """Messages such as "a1": its first letter is the key; "-1" has none."""
    for text in named:
        key = None if text[0] == "-" else text[0]
        await world.broker.sender.send(TOPIC, Message(text.encode(), sharding_key=key), queue_id=0)


def texts(deliveries: list[Delivery]) -> list[str]:
    return [body.decode() for body in bodies(deliveries)]


async def test_the_next_of_a_key_comes_after_the_ack_of_the_one_before() -> None:
    async with running() as world:
        await ordered(world)
        await send(world, "a1", "a2", "b1", "-1", "a3", "-2", "b2")
        first = await world.receive()
        assert texts(first) == ["a1", "b1", "-1"]
        assert await world.receive() == []
        await world.ack(first[1])
        assert texts(await world.receive()) == ["b2"]
        await world.ack(first[0], first[2])
        second = await world.receive()
        assert texts(second) == ["a2", "-2"]
        await world.ack(*second)
        assert texts(await world.receive()) == ["a3"]


async def test_a_retry_stays_in_place_and_blocks_its_key_for_the_delay() -> None:
    async with running() as world:
        await ordered(world)
        await send(world, "a1", "a2", "b1", "b2")
        a1, b1 = await world.receive()
        await world.broker.settler.settle(TOPIC, GROUP, nacks=[Nack(a1.receipt_handle)])
        await world.ack(b1)
        assert texts(await world.receive()) == ["b2"]
        await world.lapse(ms=4_999)
        assert await world.receive() == []
        await world.lapse(ms=1)
        [again] = await world.receive()
        assert (texts([again]), again.attempt) == (["a1"], 2)
        await world.lapse(s=31)
        await world.lapse(s=5)
        third = await world.receive()
        assert ("a1", 3) in [(d.message.body.decode(), d.attempt) for d in third]


async def test_order_and_attempts_survive_a_kill() -> None:
    async with running() as world:
        await ordered(world)
        await send(world, "a1", "a2", "b1", "b2", "b3")
        a1, b1 = await world.receive()
        await world.ack(b1)
        [b2] = await world.receive()
        assert texts([b2]) == ["b2"]
        await world.kill()
        again = await world.receive()
        assert [(d.message.body, d.attempt) for d in again] == [(b"a1", 2), (b"b2", 2)]
        assert await world.ack(a1) == [ReceiptHandleExpired]
        await world.ack(*again)
        assert texts(await world.receive()) == ["a2", "b3"]


async def use_up(world: World, text: str, attempts: int = 3) -> None:
    """Deliver a message until it is given up."""
    for attempt in range(1, attempts + 1):
        [delivery] = await world.receive(1)
        assert (delivery.message.body.decode(), delivery.attempt) == (text, attempt)
        await world.nack(delivery, delay_ms=0)


async def test_a_poisoned_key_goes_on_after_the_dead_letter() -> None:
    async with running() as world:
        await ordered(world)
        await send(world, "a1", "a2")
        await use_up(world, "a1")
        assert texts(await world.receive()) == ["a2"]
        page = await world.broker.dead_letters.browse(GROUP, Selection())
        assert [letter.message.body for letter in page.letters] == [b"a1"]


async def test_a_poisoned_key_goes_on_after_it_was_skipped() -> None:
    async with running() as world:
        await ordered(world, on_exhausted=WhenExhausted.SKIP)
        await send(world, "a1", "a2")
        await use_up(world, "a1")
        assert texts(await world.receive()) == ["a2"]
        page = await world.broker.dead_letters.browse(GROUP, Selection())
        assert page.letters == []
        assert world.committed() == {0: 1}


@pytest.mark.parametrize("kill", [False, True])
@pytest.mark.parametrize("how", list(Release))
async def test_a_parked_key_waits_for_its_release(how: Release, kill: bool) -> None:
    async with running() as world:
        await ordered(world, on_exhausted=WhenExhausted.PARK)
        await send(world, "a1", "a2", "b1")
        await use_up(world, "a1")
        [b1] = await world.receive()
        assert texts([b1]) == ["b1"]
        await world.ack(b1)
        assert await world.receive() == []
        await world.kill()
        assert await world.receive() == []
        [parked] = world.broker.blocked_keys.parked(GROUP)
        assert (parked.topic, parked.queue_id) == (TOPIC, 0)
        message = parked.message
        assert (message.offset, message.key, message.attempts) == (0, "a", 3)
        assert message.reason.startswith("not acknowledged in 3 deliveries")
        if kill:
            await world.kill()
        await world.broker.blocked_keys.release(GROUP, TOPIC, 0, 0, how)
        assert world.broker.blocked_keys.parked(GROUP) == []
        with pytest.raises(MessageNotFound):
            await world.broker.blocked_keys.release(GROUP, TOPIC, 0, 0, how)
        page = await world.broker.dead_letters.browse(GROUP, Selection())
        assert len(page.letters) == (how is Release.DEAD_LETTER)
        if how is Release.RETRY:
            [again] = await world.receive()
            assert (again.message.body, again.attempt) == (b"a1", 1)
            await world.ack(again)
        assert texts(await world.receive()) == ["a2"]
        await world.kill()
        assert texts(await world.receive()) == ["a2"]


async def test_parked_keys_are_listed_by_topic_queue_and_offset() -> None:
    async with running() as world:
        await ordered(world, on_exhausted=WhenExhausted.PARK, max_attempts=1)
        await send(world, "a1", "b1", "c1")
        c1, b1, a1 = reversed(await world.receive())
        for delivery in (b1, c1, a1):
            await world.nack(delivery)
        parked = world.broker.blocked_keys.parked(GROUP)
        assert [(key.queue_id, key.message.offset, key.message.key) for key in parked] == [
            (0, 0, "a"),
            (0, 1, "b"),
            (0, 2, "c"),
        ]


async def test_attempts_used_up_by_kills_are_noticed_in_order() -> None:
    async with running() as world:
        await ordered(world, max_attempts=2)
        await send(world, "a1", "a2")
        for attempt in (1, 2):
            assert [d.attempt for d in await world.receive()] == [attempt]
            await world.kill()
        assert await world.receive() == []
        await world.lapse()
        assert texts(await world.receive()) == ["a2"]


async def test_what_is_known_of_a_queue_is_bounded() -> None:
    async with running(limits=Limits(ordered_lookahead_max=100)) as world:
        await ordered(world)
        await send(world, *[f"a{number}" for number in range(400)])
        received = await world.receive()
        subscription = world.broker.groups.find(GROUP, TOPIC)
        assert subscription is not None
        for number in range(300):
            order = subscription.queues[0].order
            assert order is not None
            assert order.size <= 100 + 64
            assert offsets(received) == [number]
            await world.ack(*received)
            received = await world.receive()


async def test_retention_or_a_reset_moves_the_turns() -> None:
    async with running() as world:
        await ordered(world)
        await send(world, "a1", "a2", "a3", "b1")
        a1, b1 = await world.receive()
        world.store.retain_from(TOPIC, 0, 1)
        assert texts(await world.receive()) == ["a2"]
        await world.commit(1, force=True)
        assert await world.ack(a1, b1) == [ReceiptHandleExpired] * 2
        assert texts(await world.receive()) == ["a2", "b1"]


async def test_cold_queues_and_redriven_letters_are_delivered_in_order_too() -> None:
    async with running() as world:
        await ordered(world)
        await send(world, "a1", "a2")
        [a1] = await world.receive()
        letters = [Nack(a1.receipt_handle, None, "bad")]
        await world.broker.settler.settle(TOPIC, GROUP, dead_letters=letters)
        operation = world.broker.dead_letters.redrive(GROUP, Selection())
        await until(lambda: operation.done == 1)
        received = await world.receive()
        assert sorted(texts(received)) == ["a1", "a2"]


async def test_changing_the_order_ends_all_leases() -> None:
    async with running() as world:
        await send(world, "a1", "a2")
        received = await world.receive()
        assert texts(received) == ["a1", "a2"]
        await ordered(world)
        assert texts(await world.receive()) == ["a1"]
        assert await world.ack(*received) == [ReceiptHandleExpired] * 2


async def test_a_lease_that_ran_out_after_a_nack_failed_because_it_ran_out() -> None:
    async with running() as world:
        await ordered(world, max_attempts=3)
        await send(world, "a1")
        [first] = await world.receive()
        await world.broker.settler.settle(
            TOPIC, GROUP, nacks=[Nack(first.receipt_handle, 60_000, "later")]
        )
        await world.lapse(s=60)
        [second] = await world.receive()
        assert second.attempt == 2
        await world.lapse(s=31)
        await world.lapse(s=5)  # the policy's delay, not that of the nack before
        [third] = await world.receive()
        assert third.attempt == 3
        await world.lapse(s=31)
        [letter] = (await world.broker.dead_letters.browse(GROUP, Selection())).letters
        assert letter.reason == "not acknowledged in 3 deliveries; the last one: the lease ran out"


@pytest.mark.parametrize("meanwhile", ["commit", "reset", "delete"])
@pytest.mark.parametrize("what", [WhenExhausted.SKIP, WhenExhausted.PARK])
async def test_what_happens_while_one_is_given_up_holds_for_the_next(
    what: WhenExhausted, meanwhile: str
) -> None:
    async with running() as world:
        await ordered(world, on_exhausted=what, max_attempts=1)
        await send(world, "a1", "b1")
        received = await world.receive()
        world.store.held = []
        async with asyncio.TaskGroup() as group:
            group.create_task(world.nack(*received))
            await until(lambda: bool(world.store.held))  # that of the first is being written
            held, world.store.held = world.store.held, None
            if meanwhile == "delete":
                await world.broker.settings_changes.delete_group(GROUP)
            else:
                is_reset = meanwhile == "reset"
                await world.commit(0 if is_reset else 2, force=is_reset, take_over=not is_reset)
            world.store.held = held
            world.store.confirm()
        again = texts(await world.receive(force=True))
        assert again == ([] if meanwhile == "commit" else ["a1", "b1"])


async def parked(world: World) -> Subscription:
    """Park "a1", which stands at offset 0."""
    await ordered(world, on_exhausted=WhenExhausted.PARK, max_attempts=1)
    await send(world, "a1", "a2")
    await world.nack(*await world.receive())
    subscription = world.broker.groups.find(GROUP, TOPIC)
    assert subscription is not None
    assert [each.message.offset for each in world.broker.blocked_keys.parked(GROUP)] == [0]
    return subscription


async def test_of_two_releases_at_once_one_is_too_late() -> None:
    async with running() as world:
        subscription = await parked(world)
        world.store.cold.add((TOPIC, 0))
        release = world.broker.blocked_keys.release
        found = await asyncio.gather(
            *[release(GROUP, TOPIC, 0, 0, Release.DEAD_LETTER) for _ in range(2)],
            return_exceptions=True,
        )
        assert [type(each) for each in found] == [BlockedKey, MessageNotFound]
        assert subscription.in_flight.count == 0
        assert len((await world.broker.dead_letters.browse(GROUP, Selection())).letters) == 1


@pytest.mark.parametrize("how", list(Release))
async def test_a_release_that_is_refused_can_be_repeated_or_goes_on_by_itself(how: Release) -> None:
    async with running() as world:
        subscription = await parked(world)
        world.store.refusal = DiskFull("full")
        with pytest.raises(DiskFull):
            await world.broker.blocked_keys.release(GROUP, TOPIC, 0, 0, how)
        world.store.refusal = None
        if how is Release.DEAD_LETTER:
            await world.lapse()
        else:
            await world.broker.blocked_keys.release(GROUP, TOPIC, 0, 0, how)
        assert subscription.in_flight.count == 0
        assert world.broker.blocked_keys.parked(GROUP) == []
        assert texts(await world.receive()) == ["a1" if how is Release.RETRY else "a2"]


async def test_a_nack_that_counts_no_attempt_lets_its_key_wait_for_ever() -> None:
    async with running() as world:
        await ordered(world, max_attempts=2)
        await send(world, "a1", "a2", "b1")
        for kill in (False, True, False, False):
            found = {d.message.body: d for d in await world.receive()}
            assert (found[b"a1"].attempt, b"a2" in found) == (1, False)
            nack = Nack(found[b"a1"].receipt_handle, 1_000, is_counted=False)
            [result] = await world.broker.settler.settle(TOPIC, GROUP, nacks=[nack])
            assert result.error is None
            if kill:
                await world.kill()
            else:
                assert b"a1" not in bodies(await world.receive())
                await world.lapse(s=1)
        a1 = next(d for d in await world.receive() if d.message.body == b"a1")
        await world.nack(a1, delay_ms=0)
        [last] = await world.receive()
        assert (last.message.body, last.attempt) == (b"a1", 2)


async def test_a_last_attempt_that_is_not_counted_is_not_the_last() -> None:
    async with running() as world:
        await ordered(world, max_attempts=1)
        await send(world, "a1")
        for _ in range(3):
            [only] = await world.receive()
            nack = Nack(only.receipt_handle, 0, is_counted=False)
            await world.broker.settler.settle(TOPIC, GROUP, nacks=[nack])
        await world.nack(*await world.receive())
        assert await world.receive() == []
        assert (await world.broker.dead_letters.summary(GROUP)).messages == 1


async def test_in_other_groups_an_attempt_is_counted_or_the_message_released() -> None:
    async with running() as world:
        await send(world, "a1")
        [only] = await world.receive()
        nack = Nack(only.receipt_handle, 0, is_counted=False)
        [result] = await world.broker.settler.settle(TOPIC, GROUP, nacks=[nack])
        assert isinstance(result.error, InvalidRequest)
        assert await world.ack(only) == [None]
