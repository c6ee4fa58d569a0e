"""Clients of both kinds race for one group and topic: a queue never has two readers in the group.

Requests of a batch run at the same time; between batches time passes, nodes are killed. Watched are
live leases, members and what was seen: leases and members are never there together, a lease ends
only by its client, its time, force or a kill, and no message is passed over that nobody has read.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.broker.groups.consumption import Consumptions
from app.broker.members.member_values import Heartbeat
from app.broker.offsets.offset_commits import Committer
from app.broker.results import Nack, PullRequest, QueuePosition
from app.domain.consumers.membership import Profile, TopicSubscription
from app.domain.errors import ConsumptionConflict as Refused
from app.domain.errors import (
    CurlewError,
    MemberNotFound,
    OffsetOutOfRange,
    QueueNotOwned,
    ReceiptHandleExpired,
    StaleGeneration,
)
from app.domain.handles.receipt import ReceiptSigner
from app.domain.settings import CustomizedRetry, GroupSettings
from tests.support.nodes.brokers import GROUP, KEYS, TOPIC, World, never_gone, running

QUEUES = 2
EXPECTED = (Refused, StaleGeneration, QueueNotOwned, MemberNotFound, ReceiptHandleExpired)
PROFILE = Profile((TopicSubscription(TOPIC),))


class Request(NamedTuple):
    """What a client does; `who` is a number, of a client, a handle or a queue."""

    what: str
    who: int = 0
    force: bool = False


class Model:
    """The clients of one group, and what they know."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.sent: set[bytes] = set()
        self.seen: set[bytes] = set()
        self.handles: dict[str, tuple[int, int]] = {}
        """Of deliveries that are not settled: queue and offset as the table has them."""
        self.newest: dict[tuple[int, int], str] = {}
        """Of each place; a handle before it is void, and says nothing of the lease."""
        self.generations = [0, 0]

    async def run(self, request: Request) -> None:
        await getattr(self, f"_{request.what}")(request.who, request.force)

    async def _send(self, who: int, _force: bool) -> None:
        body = b"%d" % len(self.sent)
        self.sent.add(body)
        await self.world.send(body, queue_id=who % QUEUES)

    async def _receive(self, _who: int, force: bool) -> None:
        for delivery in await self.world.receive(2, force=force):
            self.seen.add(delivery.message.body)
            read = ReceiptSigner(KEYS.receipts, self.world.store.store_id).read(
                delivery.receipt_handle
            )
            place = read.queue_id, read.queue_offset
            self.handles[delivery.receipt_handle] = place
            self.newest[place] = delivery.receipt_handle

    async def _ack(self, who: int, _force: bool) -> None:
        if self.handles:
            handle = sorted(self.handles)[who % len(self.handles)]
            del self.handles[handle]
            await self.world.broker.settler.settle(TOPIC, GROUP, acks=[handle])

    async def _nack(self, who: int, _force: bool) -> None:
        if self.handles:
            handle = sorted(self.handles)[who % len(self.handles)]
            del self.handles[handle]
            await self.world.broker.settler.settle(TOPIC, GROUP, nacks=[Nack(handle, 0)])

    async def _join(self, who: int, force: bool) -> None:
        who %= 2
        beat = Heartbeat(PROFILE, self.generations[who], force=force)
        try:
            share = await self.world.broker.members.heartbeat(GROUP, f"m{who}", beat, never_gone)
        except CurlewError:
            self.generations[who] = 0
            raise
        self.generations[who] = share.assignment.generation

    async def _leave(self, who: int, _force: bool) -> None:
        self.generations[who % 2] = 0
        if GROUP in self.world.metadata.snapshot.groups:
            await self.world.broker.members.leave(GROUP, f"m{who % 2}")

    async def _commit(self, who: int, force: bool) -> None:
        """As member 0 or 1, or as nobody, of what was read from the committed offset on."""
        queue_id = who % QUEUES
        start = self.world.committed().get(queue_id, 0)
        read = await self.world.broker.puller.pull(TOPIC, queue_id, PullRequest(start))
        bodies = [self.world.broker.puller.decode(record).body for record in read.read.records]
        member = who // QUEUES % 3
        committer = Committer(f"m{member}", self.generations[member]) if member < 2 else None
        rows = [QueuePosition(queue_id, read.next_offset)]
        self.seen |= set(bodies)  # before: whoever is refused has read them all the same
        await self.world.broker.offset_commits.commit(
            GROUP, TOPIC, rows, committer=committer, take_over=force
        )

    # --- what must hold

    def live(self) -> set[tuple[int, int]]:
        subscription = self.world.broker.groups.find(GROUP, TOPIC)
        if subscription is None:
            return set()
        return {
            (queue.queue_id, offset)
            for queue in subscription.sources
            for offset in queue.leases._leases
        }

    async def check(self) -> None:
        members = (await self.world.metadata.members.read(GROUP)).members
        live = self.live()
        assert not (members and live), "leases and members read one topic"
        subscription = self.world.broker.groups.find(GROUP, TOPIC)
        assert subscription is None or not (members and subscription.is_leasing)

    def check_kept(self, before: set[tuple[int, int]]) -> None:
        """Nobody has used force and no time has passed: what is not settled is leased still."""
        held = {place for place, handle in self.newest.items() if handle in self.handles}
        assert before & held <= self.live(), "a lease was ended without force"

    async def check_nothing_is_lost(self) -> None:
        """In the end, receives get whatever nobody has seen."""
        for _ in range(200):
            await self.world.lapse(s=31)
            received = await self.world.receive(10, force=True)
            self.seen |= {delivery.message.body for delivery in received}
            await self.world.ack(*received)
            if not received:
                break
        assert self.sent <= self.seen


async def play(batches: list[list[Request] | int]) -> None:
    """A number is a time that passes, in seconds; 0: the node is killed."""
    async with AsyncExitStack() as stack:
        world = await stack.enter_async_context(running(queues=QUEUES))
        await world.group(GroupSettings(retry_policy=CustomizedRetry((0,)), max_attempts=1_000))
        model = Model(world)
        for batch in batches:
            if isinstance(batch, int):
                model.handles.clear()
                if batch:
                    world.clock.advance(s=batch)
                    await world.broker.expire_leases()
                    await world.broker.members.turn()
                    await world.broker.consumptions.turn()
                else:
                    await world.kill()
            else:
                before = model.live()
                results = await asyncio.gather(
                    *(model.run(request) for request in batch), return_exceptions=True
                )
                for result in results:
                    assert result is None or isinstance(result, (*EXPECTED, OffsetOutOfRange))
                if not any(request.force for request in batch):
                    model.check_kept(before)
            await model.check()
        await model.check_nothing_is_lost()


REQUESTS = st.builds(
    Request,
    st.sampled_from(["send", "receive", "receive", "ack", "nack", "join", "commit", "leave"]),
    st.integers(0, 11),
    st.sampled_from([False, False, False, True]),
)
BATCHES = st.lists(
    st.one_of(
        st.lists(REQUESTS, min_size=1, max_size=4),
        st.sampled_from([0, 5, 31]),
    ),
    max_size=25,
)


@settings(max_examples=150, deadline=None)
@given(BATCHES)
def test_a_queue_never_has_two_readers(batches: list[list[Request] | int]) -> None:
    asyncio.run(play(batches))


MIXED: list[list[Request] | int] = [[Request("send")], [Request("receive")], [Request("join")]]
AHEAD: list[list[Request] | int] = [
    [Request("send"), Request("send")],
    [Request("receive")],
    [Request("commit", 4)],
]


def test_the_handle_of_a_lease_that_force_has_ended_says_nothing_of_the_next() -> None:
    first = [Request("send"), Request("receive"), Request("join", 0, True)]
    batches: list[list[Request] | int] = [
        [*first, Request("receive", 0, True)],
        [Request("ack", 1)],
        [Request("ack", 0)],
    ]
    asyncio.run(play(batches))


@pytest.mark.parametrize(
    ("batches", "noticed"), [(MIXED, "read one topic|without force"), (AHEAD, "without force")]
)
def test_the_model_notices_kinds_that_are_not_kept_apart(
    batches: list[list[Request] | int], noticed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def agree(*_arguments: object, **_more: object) -> None:
        """As before there were kinds."""

    check: Callable[..., Awaitable[None]] = agree
    monkeypatch.setattr(Consumptions, "_check", check)
    with pytest.raises(AssertionError, match=noticed):
        asyncio.run(play(batches))
