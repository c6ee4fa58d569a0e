"""Random acks, nacks, commits, resets and deletions, some of which the log takes and rolls back.

The model knows what was confirmed. Whatever was refused together, and whenever a snapshot was
written or the node killed: what is not done comes, what is done does not come again, and in a group
in order each key comes in its order.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.broker.results import Delivery
from app.domain.errors import DiskFull, ReceiptHandleExpired
from app.domain.handles.receipt import RETRY_QUEUE_ID
from app.domain.message import Message
from app.domain.settings import CustomizedRetry, DeliveryOrder, GroupSettings
from tests.support.nodes.brokers import GROUP, TOPIC, World, put_group, running

MESSAGES = 6
KEYS = "ab"

Step = tuple[str, int]
Round = tuple[bool, list[Step]]

steps = st.one_of(
    st.tuples(st.sampled_from(["ack", "nack"]), st.integers(0, 3)),
    st.tuples(st.just("reset"), st.integers(0, MESSAGES)),
    st.tuples(st.just("receive"), st.integers(1, 4)),
)
alone = st.tuples(
    st.booleans(), st.lists(st.tuples(st.sampled_from(["delete group"]), st.just(0)), max_size=1)
)
restarts = st.tuples(
    st.just(False),
    st.lists(
        st.tuples(st.sampled_from(["snapshot", "kill", "turn"]), st.just(0)),
        min_size=1,
        max_size=2,
    ),
)
together = st.tuples(st.booleans(), st.lists(steps, min_size=1, max_size=4))
rounds = st.lists(st.one_of(together, together, together, restarts, alone), min_size=2, max_size=14)


class Model:
    """A world, and what was confirmed in it."""

    def __init__(self, world: World, is_ordered: bool) -> None:
        self.world = world
        self.settings = GroupSettings(
            order=DeliveryOrder.FIFO if is_ordered else DeliveryOrder.CONCURRENT,
            retry_policy=CustomizedRetry((0,)),
            max_attempts=100,
        )
        self.held: list[Delivery] = []
        self.done: set[int] = set()
        self.copies: set[int] = set()
        """Messages that come as retries, whatever is committed."""

    async def begin(self) -> None:
        await put_group(self.world.broker, GROUP, self.settings)
        for number in range(MESSAGES):
            key = KEYS[number % len(KEYS)]
            await self.world.broker.sender.send(
                TOPIC, Message(b"%d" % number, sharding_key=key), queue_id=0
            )

    async def play(self, is_refused: bool, together: Sequence[Step]) -> None:
        """What is refused is refused together; what is taken is taken one by one."""
        if not is_refused:
            for step in together:
                await self.carry_out(*step)
            return
        before = set(self.done), set(self.copies)
        is_deleted = any(step[0] == "delete group" for step in together)
        self.world.store.failure = DiskFull("full", outcome="not_stored")
        await asyncio.gather(*(self.carry_out(*step) for step in together))
        await asyncio.sleep(0)
        self.world.store.failure = None
        if not is_deleted:
            assert (self.done, self.copies) == before, "refused"

    async def carry_out(self, what: str, number: int) -> None:
        try:
            await self.step(what, number)
        except DiskFull:
            assert self.world.store.failure is not None

    def step(self, what: str, number: int) -> Coroutine[Any, Any, None]:
        match what:
            case "ack" | "nack":
                return self.settle(what, number)
            case "receive":
                return self.receive(number)
            case "commit" | "reset":
                return self.commit(number, what == "reset")
            case "delete group":
                return self.delete_group()
        return self.restart(what)

    async def receive(self, count: int) -> None:
        deliveries = await self.world.receive(count)
        if self.world.store.failure is None:
            for each in deliveries:
                number = int(each.message.body)
                assert number not in self.done or self.is_retry(each), "it is done"
        self.held += deliveries

    async def settle(self, what: str, number: int) -> None:
        if number >= len(self.held):
            return
        delivery = self.held.pop(number)
        offset = int(delivery.message.body)
        if what == "nack":
            try:
                await self.world.nack(delivery, delay_ms=0)
            except AssertionError:
                return  # the handle is void
            if self.settings.order is DeliveryOrder.CONCURRENT:
                self.done.add(offset)
                self.copies.add(offset)
            return
        [error] = await self.world.ack(delivery)
        assert error in (None, ReceiptHandleExpired)
        if error is None and self.is_retry(delivery):
            self.copies.discard(offset)
        elif error is None:
            self.done.add(offset)

    def is_retry(self, delivery: Delivery) -> bool:
        handle = self.world.broker.settler._signer.read(delivery.receipt_handle)
        return handle.queue_id == RETRY_QUEUE_ID

    async def commit(self, offset: int, is_reset: bool) -> None:
        await self.world.commit(offset, force=is_reset)
        if is_reset:
            self.done = set(range(offset))
        else:
            self.done |= set(range(offset))

    async def delete_group(self) -> None:
        try:
            await self.world.broker.settings_changes.delete_group(GROUP)
        finally:  # it is deleted also when the log has not heard of it
            await put_group(self.world.broker, GROUP, self.settings)
            self.done, self.copies, self.held = set(), set(), []

    async def restart(self, how: str) -> None:
        if how == "kill":
            await self.world.kill()
        elif how == "turn":
            await self.world.broker.consumer_journal.turn()
        else:
            await self.world.broker.consumer_journal._journal.write_snapshot()

    async def drain(self) -> None:
        """Everything that is not done comes, and nothing else."""
        seen: list[int] = []
        for _ in range(3 * MESSAGES):
            await self.world.lapse(s=60)
            deliveries = await self.world.receive()
            seen += [int(each.message.body) for each in deliveries]
            assert all(error is None for error in await self.world.ack(*deliveries))
        assert set(seen) == (set(range(MESSAGES)) - self.done) | self.copies
        if self.settings.order is DeliveryOrder.FIFO:
            assert len(seen) == len(set(seen))
            for first in range(len(KEYS)):
                of_key = [number for number in seen if number % len(KEYS) == first]
                assert of_key == sorted(of_key)


@pytest.mark.parametrize("is_ordered", [False, True])
@settings(max_examples=25, deadline=None)
@given(played=rounds)
def test_what_the_log_refuses_has_not_happened(is_ordered: bool, played: list[Round]) -> None:
    async def scenario() -> None:
        async with running() as world:
            model = Model(world, is_ordered)
            await model.begin()
            for is_refused, together in played:
                await model.play(is_refused, together)
            await model.drain()

    asyncio.run(scenario())
