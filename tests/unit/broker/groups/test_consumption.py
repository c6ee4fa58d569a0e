"""One kind of consumption per group and topic: who sets it, who is refused, what force ends."""

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from app.broker.members.member_values import Heartbeat, MemberShare
from app.broker.offsets.offset_commits import Committer
from app.broker.progress.consumer_state import ConsumerState
from app.broker.progress.progress_entries import Bound, ConsumptionSet, Unsubscribed, encode_entry
from app.broker.results import Committed, Extend, QueuePosition, ReceiveRequest
from app.domain.consumers.consumption import Consumption, ConsumptionEffectCode, ConsumptionState
from app.domain.consumers.membership import Profile, TopicSubscription
from app.domain.errors import (
    ConsumptionConflict,
    CurlewError,
    ReceiptHandleExpired,
    StateConflict,
)
from app.domain.limits import CONSUMERS_SHOWN_MAX, Limits
from app.domain.names import retry_topic
from app.domain.settings import GroupMode, GroupSettings, TopicSettings
from app.store import ReadResult
from tests.support.nodes.brokers import GROUP, TOPIC, World, never_gone, put_topic, running
from tests.support.nodes.waiting import until

pytestmark = pytest.mark.anyio

SECONDS = 60
LEASE_S = Limits().member_lease_ms // 1_000
ORDERS = Profile((TopicSubscription(TOPIC),))


async def beat(
    world: World, client_id: str = "m", generation: int | None = None, *, force: bool = False
) -> MemberShare:
    return await world.broker.members.heartbeat(
        GROUP, client_id, Heartbeat(ORDERS, generation, force=force), never_gone
    )


def state(world: World, topic: str = TOPIC) -> ConsumptionState:
    return world.broker.consumptions.state(GROUP, topic)


def kind(world: World) -> Consumption | None:
    return state(world).consumption


async def preview(
    world: World, offset: int, *, force: bool = False, take_over: bool = False
) -> Committed:
    return await world.broker.offset_commits.preview_commit(
        GROUP, TOPIC, [QueuePosition(0, offset)], force=force, take_over=take_over
    )


# --- who is refused


async def test_a_group_that_leases_takes_no_commit_and_no_member() -> None:
    async with running() as world:
        await world.send(*[b"%d" % number for number in range(4)])
        received = await world.receive(2, client_id="worker")
        assert state(world) == (TOPIC, Consumption.LEASE, world.clock.now_ms())
        since_ms = state(world).since_ms
        refusals: list[Callable[[], Awaitable[object]]] = [
            lambda: world.commit(4),
            lambda: beat(world),
            lambda: preview(world, 4),
        ]
        for refused in refusals:
            with pytest.raises(ConsumptionConflict) as raised:
                await refused()
            assert raised.value.fields == {
                "topic": TOPIC,
                "current": "lease",
                "since_ms": since_ms,
                "clients": ["worker"],
            }
            assert "force=true" in str(raised.value.hint)
            assert f"{LEASE_S} s" in str(raised.value.hint)
        assert world.committed() == {0: 0}
        assert await world.ack(*received) == [None, None]


async def test_a_group_that_reads_by_offset_leases_nothing() -> None:
    async with running() as world:
        await world.send(b"a")
        await beat(world)
        with pytest.raises(ConsumptionConflict) as raised:
            await world.receive()
        assert raised.value.fields["current"] == "assigned"
        assert raised.value.fields["clients"] == ["m"]
    async with running() as world:
        await world.send(b"a")
        await world.commit(0)  # by a client that names no member
        with pytest.raises(ConsumptionConflict):
            await world.receive()


async def test_topics_of_a_group_are_apart_and_a_broadcast_group_has_no_kind() -> None:
    async with running() as world:
        await world.send(b"a")
        await beat(world)
        await world.topic(name="other")
        assert await world.receive(topic="other") == []
        states = world.broker.consumptions.states([GROUP])[GROUP]
        assert [(each.topic, each.consumption) for each in states] == [
            (TOPIC, Consumption.ASSIGNED),
            ("other", Consumption.LEASE),
        ]
        await world.group(GroupSettings(mode=GroupMode.BROADCAST), "all")
        heartbeat = Heartbeat(ORDERS)
        await world.broker.members.heartbeat("all", "m", heartbeat, never_gone)
        assert world.broker.consumptions.states(["all"]) == {"all": []}


async def test_resets_and_forced_offsets_are_of_no_kind() -> None:
    async with running() as world:
        await world.send(b"a", b"b")
        await world.receive(1)
        await world.commit(2, force=True)
        assert kind(world) is Consumption.LEASE
        assert (await preview(world, 0, force=True)).offsets == [QueuePosition(0, 0)]


async def test_the_clients_that_a_refusal_names_are_bounded() -> None:
    async with running() as world:
        for number in range(CONSUMERS_SHOWN_MAX + 5):
            await world.receive(client_id=f"c{number}")
        with pytest.raises(ConsumptionConflict) as raised:
            await world.commit(0)
        newest = range(CONSUMERS_SHOWN_MAX + 4, 4, -1)
        assert raised.value.fields["clients"] == [f"c{number}" for number in newest]


# --- force


async def test_a_forced_commit_ends_the_leases_and_loses_nothing() -> None:
    async with running() as world:
        await world.retry_at_once()
        await world.send(*[b"%d" % number for number in range(4)])
        first, second, third = await world.receive(3)
        await world.nack(first)
        expected = [(ConsumptionEffectCode.LEASES_END, 2), (ConsumptionEffectCode.RETRIES_WAIT, 1)]
        tried = await preview(world, 2, take_over=True)
        assert [(each.code, each.count) for each in tried.effects] == expected
        assert kind(world) is Consumption.LEASE
        assert await world.broker.settler.settle(TOPIC, GROUP, acks=[third.receipt_handle])
        effects = await world.commit(2, take_over=True)
        assert [(each.code, each.count) for each in effects] == [
            (ConsumptionEffectCode.LEASES_END, 1),
            (ConsumptionEffectCode.RETRIES_WAIT, 1),
        ]
        assert kind(world) is Consumption.ASSIGNED
        assert tried.offsets == [QueuePosition(0, 2)]
        assert world.committed() == {0: 3}  # the third was acked
        assert await world.ack(second) == [ReceiptHandleExpired]
        retries = world.store.bounds(retry_topic(GROUP, TOPIC), 0)
        assert retries.max_offset - retries.min_offset == 1
        await world.kill()
        again = await world.receive(force=True)
        assert sorted(each.message.body for each in again) == [b"0", b"3"]


async def test_a_dry_run_says_what_is_committed_among_acks() -> None:
    async with running() as world:
        await world.send(*[b"%d" % number for number in range(4)])
        received = await world.receive(3)
        await world.ack(received[2])
        tried = await preview(world, 2, take_over=True)
        await world.commit(2, take_over=True)
        assert tried.offsets == [QueuePosition(0, 3)]
        assert world.committed() == {0: 3}


async def test_a_member_that_joins_by_force_begins_where_the_group_is() -> None:
    async with running() as world:
        await world.send(b"a", b"b", b"c")
        received = await world.receive(2)
        await world.ack(received[0])
        share = await beat(world, force=True)
        assert [each.code for each in share.effects] == [ConsumptionEffectCode.LEASES_END]
        assert list(share.offsets.values()) == [1]
        assert await world.ack(received[1]) == [ReceiptHandleExpired]


async def test_a_forced_receive_fences_the_members() -> None:
    async with running() as world:
        await world.send(b"a", b"b")
        share = await beat(world)
        result = await world.broker.receiver.receive(
            TOPIC, GROUP, ReceiveRequest(max_messages=1, force=True), gone=never_gone
        )
        assert [(each.code, each.count) for each in result.effects] == [
            (ConsumptionEffectCode.ASSIGNMENTS_END, 1)
        ]
        assert len(result.deliveries) == 1
        generation = share.assignment.generation
        with pytest.raises(ConsumptionConflict):
            await beat(world, generation=generation)
        with pytest.raises(ConsumptionConflict):
            await world.broker.offset_commits.commit(
                GROUP, TOPIC, [QueuePosition(0, 2)], committer=Committer("m", generation)
            )


async def test_a_refused_force_ends_nothing() -> None:
    async with running() as world:
        await world.send(b"a")
        received = await world.receive()
        with pytest.raises(StateConflict):
            await world.broker.offset_commits.commit(
                GROUP, TOPIC, [QueuePosition(0, 1)], take_over=True, committer=Committer("z", 1)
            )
        assert await world.ack(*received) == [None]


# --- time and restarts


async def test_the_kind_is_given_up_when_nobody_consumes() -> None:
    async with running() as world:
        await world.receive()
        world.clock.advance(s=LEASE_S - 1)
        assert kind(world) is Consumption.LEASE
        world.clock.advance(s=2)
        assert state(world) == (TOPIC, None, None)
        await world.broker.consumptions.turn()
        await beat(world)
        world.clock.advance(s=LEASE_S + 1)
        assert kind(world) is Consumption.ASSIGNED  # nobody has taken the member out
        for _ in range(2 * LEASE_S):
            world.clock.advance(s=1)
            await world.broker.members.turn()
        await world.broker.consumptions.turn()
        assert kind(world) is None
        await world.receive()


@pytest.mark.parametrize("waits", ["leased", "retry"])
async def test_the_kind_stays_while_something_is_not_done(waits: str) -> None:
    async with running() as world:
        await world.send(b"a")
        received = await world.receive(invisible_ms=3_600_000)
        if waits == "retry":
            await world.nack(*received, delay_ms=3_600_000)
        world.clock.advance(s=10 * LEASE_S)
        await world.broker.consumptions.turn()
        with pytest.raises(ConsumptionConflict):
            await world.commit(1)


async def test_a_receive_that_comes_late_is_no_reader_beside_members(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has waited for the disk for longer than it takes to give the kind up."""
    async with running() as world:
        await world.send(b"a")
        world.store.cold.add((TOPIC, 0))
        is_read, may_go_on = threading.Event(), threading.Event()
        read = world.store.read

        def slow_read(*args: Any, wait_for_disk: bool = False, **more: Any) -> ReadResult:
            found = read(*args, wait_for_disk=wait_for_disk, **more)
            if wait_for_disk:
                is_read.set()
                assert may_go_on.wait(SECONDS)
            return found

        monkeypatch.setattr(world.store, "read", slow_read)
        late = asyncio.ensure_future(world.receive())
        await until(is_read.is_set)
        world.clock.advance(s=LEASE_S)
        await world.broker.consumptions.turn()
        assert kind(world) is None
        may_go_on.set()
        [delivery] = await late
        with pytest.raises(ConsumptionConflict):
            await beat(world)
        assert await world.ack(delivery) == [None]


async def test_the_kind_survives_a_kill_and_then_its_end_does() -> None:
    async with running() as world:
        await world.send(b"a", b"b")
        await world.receive(1)
        since_ms = state(world).since_ms
        await world.kill()
        assert state(world) == (TOPIC, Consumption.LEASE, since_ms)
        await world.commit(0, take_over=True)
        await world.kill()
        assert kind(world) is Consumption.ASSIGNED
        with pytest.raises(ConsumptionConflict):
            await world.receive()
        world.clock.advance(s=LEASE_S + 1)
        await world.broker.consumptions.turn()
        await world.kill()
        assert kind(world) is None
        assert len(await world.receive()) == 2


async def test_a_name_that_is_made_again_has_no_kind() -> None:
    async with running() as world:
        await world.receive()
        await world.broker.settings_changes.delete_topic(TOPIC)
        await put_topic(world.broker, TOPIC, TopicSettings(queues=1))
        assert kind(world) is None
        await world.commit(0)
        await world.broker.settings_changes.delete_group(GROUP)
        await world.group(GroupSettings())
        assert kind(world) is None
        await world.kill()
        assert kind(world) is None


def test_entries_change_nothing_when_they_are_applied_again() -> None:
    """Behind a snapshot that was written among them."""
    entries = [
        encode_entry(each)
        for each in (
            Bound("g", "t", (1, 2)),
            ConsumptionSet("g", "t", Consumption.LEASE, 5),
            ConsumptionSet("g", "u", Consumption.ASSIGNED, 6),
            ConsumptionSet("g", "t", None, 7),
            ConsumptionSet("g", "t", Consumption.ASSIGNED, 8),
            Unsubscribed("g", "u"),
        )
    ]
    whole = ConsumerState()
    for entry in entries:
        whole.apply(entry)
    assert whole.consumptions == {("g", "t"): (Consumption.ASSIGNED, 8)}
    for seen in range(len(entries) + 1):
        before = ConsumerState()
        for entry in entries[:seen]:
            before.apply(entry)
        for start in range(seen + 1):
            after = ConsumerState()
            for chunk in before.dump():
                after.load(chunk)
            for entry in entries[start:]:
                after.apply(entry)
            assert after.consumptions == whole.consumptions
            assert after.generations == whole.generations


# --- races


class Race:
    """Clients of both kinds, all at once; every step of SQL and of the disk lets others go on."""

    def __init__(self, world: World, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world = world
        self.random = random.Random(seed)
        self.generations: dict[str, int] = {}
        self.handles: list[str] = []
        self.outcomes: set[str] = set()
        members = world.metadata.members
        change, read = members.change, members.read

        async def slow_change(*args: object, **more: object) -> object:
            await self._let_others_go_on()
            changed = await change(*args, **more)  # type: ignore[arg-type]
            await self._let_others_go_on()
            return changed

        async def slow_read(group: str) -> object:
            await self._let_others_go_on()
            return await read(group)

        monkeypatch.setattr(members, "change", slow_change)
        monkeypatch.setattr(members, "read", slow_read)

    async def _let_others_go_on(self) -> None:
        for _ in range(self.random.randrange(4)):
            await asyncio.sleep(0)

    async def receive(self, *, force: bool) -> None:
        received = await self.world.receive(2, force=force)
        self.handles += [each.receipt_handle for each in received]
        self.outcomes.add("leased")

    async def join(self, client_id: str, *, force: bool) -> None:
        share = await beat(self.world, client_id, force=force)
        self.generations[client_id] = share.assignment.generation
        self.outcomes.add("joined")

    async def commit(self, *, force: bool) -> None:
        await self.world.commit(0, take_over=force)
        self.outcomes.add("committed")

    async def round(self) -> None:
        async def attempt(step: Awaitable[None]) -> None:
            await self._let_others_go_on()
            try:
                await step
            except CurlewError as error:
                self.outcomes.add(error.code)

        is_forced = self.random.random() < 0.5
        steps = [
            self.receive(force=is_forced),
            self.receive(force=False),
            self.join("a", force=is_forced),
            self.join("b", force=False),
            self.commit(force=is_forced),
        ]
        self.random.shuffle(steps)
        for step in steps[3:]:
            step.close()
        await asyncio.gather(*[attempt(step) for step in steps[:3]])

    async def leases_alive(self) -> int:
        extends = [Extend(handle, 3_600_000) for handle in self.handles]
        try:
            results = await self.world.broker.settler.settle(TOPIC, GROUP, extends=extends)
        except CurlewError:  # no group yet
            return 0
        alive = [each.receipt_handle for each in results if each.error is None]
        self.handles = alive
        return len(alive)

    async def owners(self) -> list[str]:
        """Members that own queues and could commit in them now."""
        membership = await self.world.metadata.members.read(GROUP)
        return [each.owner for each in membership.queues.values() if each.owner is not None]


@pytest.mark.parametrize("seed", range(40))
async def test_a_queue_never_has_readers_of_both_kinds(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(queues=2) as world:
        for queue_id in range(2):
            await world.send(*[b"%d" % n for n in range(20)], queue_id=queue_id)
        race = Race(world, seed, monkeypatch)
        for _ in range(12):
            await race.round()
            alive, owners = await race.leases_alive(), await race.owners()
            assert not (alive and owners)
            assert not (alive and kind(world) is not Consumption.LEASE)
            assert not (owners and kind(world) is not Consumption.ASSIGNED)
        assert "CONSUMPTION_CONFLICT" in race.outcomes


@pytest.mark.parametrize("seed", range(20))
async def test_of_two_first_uses_exactly_one_wins(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running() as world:
        await world.send(b"a")
        race = Race(world, seed, monkeypatch)
        steps = [race.receive(force=False), race.join("a", force=False)]
        race.random.shuffle(steps)
        outcomes = await asyncio.gather(*steps, return_exceptions=True)
        assert [type(each) for each in outcomes if each is not None] == [ConsumptionConflict]
        assert (await race.leases_alive() == 1) == (kind(world) is Consumption.LEASE)
