"""The kind of consumption of a group over shards: what one of them asks of SQL, and when."""

import asyncio
import dataclasses
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from app.broker.context import Context
from app.broker.groups import consumption
from app.broker.progress import entered_consumptions
from app.broker.progress.entered_consumptions import EnteredConsumptions
from app.domain.consumers.consumption import Consumption, SubscriptionPair
from app.domain.errors import (
    ConsumptionConflict,
    MetadataUnavailable,
    OffsetOutOfRange,
)
from app.domain.limits import Limits
from app.domain.settings import GroupSettings, TopicSettings
from app.runtime import service
from tests.support.metadata.memory_metadata import MemoryConsumptions, MemoryMetadata
from tests.support.nodes.brokers import GROUP, TOPIC, World, running
from tests.support.stores.clock import FakeClock
from tests.unit.broker.failures.test_refused_moves import refused

pytestmark = pytest.mark.anyio

LEASE_S = Limits().member_lease_ms / 1_000


def spread(world: World) -> MemoryConsumptions:
    """Each topic has a second queue, in shard b; this shard is a."""
    return spread_all(world.metadata)


def spread_all(metadata: MemoryMetadata) -> MemoryConsumptions:
    metadata.shard = "a"
    snapshot = metadata.snapshot
    topics = {
        name: dataclasses.replace(topic, queues=2, shards=("a", "b"), here="a")
        for name, topic in snapshot.topics.items()
    }
    metadata.snapshot = dataclasses.replace(snapshot, topics=topics)
    return metadata.consumptions


def pair(world: World, group: str = GROUP) -> SubscriptionPair:
    snapshot = world.metadata.snapshot
    generations = snapshot.groups[group].generation, snapshot.topics[TOPIC].generation
    return SubscriptionPair(group, TOPIC, *generations)


def kind(world: World) -> Consumption | None:
    return world.broker.consumptions.state(GROUP, TOPIC).consumption


async def turn(world: World) -> None:
    world.clock.advance(s=entered_consumptions.LOOK_SECONDS)
    await world.broker.consumptions.turn()


async def test_the_first_use_alone_asks_sql() -> None:
    async with running() as world:
        await world.send(b"a", b"b")
        await world.receive(1)
        assert world.metadata.consumptions.asked == 0  # all queues are here
    async with running() as world:
        rows = spread(world)
        await turn(world)
        await world.send(b"a", b"b")
        await world.receive(1)
        assert (rows.asked, list(rows.rows)) == (2, [("a", pair(world))])
        await world.receive(1)
        assert rows.asked == 2
    async with running() as world:
        rows = spread(world)
        await turn(world)
        await world.send(b"a", b"b")
        await world.commit(1)
        assert rows.asked == 2
        await world.commit(2)
        assert rows.asked == 2


async def test_a_kind_that_nobody_uses_is_left_for_other_shards() -> None:
    async with running() as world:
        rows = spread(world)
        await world.send(b"a")
        await world.commit(1)
        await turn(world)
        assert len(rows.rows) == 1
        world.clock.advance(s=LEASE_S)
        await turn(world)
        await turn(world)
        assert rows.rows == {}
        asked = rows.asked
        await turn(world)
        assert rows.asked == asked  # there is nothing to hear of


async def test_while_sql_is_away_a_first_use_goes_on_and_is_entered_later() -> None:
    async with running() as world:
        rows = spread(world)
        await world.send(b"a", b"b")
        await world.group(GroupSettings())
        world.metadata.is_down = True
        assert len(await world.receive(1)) == 1
        assert (kind(world), rows.asked) == (Consumption.LEASE, 1)
        await turn(world)
        world.metadata.is_down = False
        await turn(world)
        assert rows.rows[("a", pair(world))][0] is Consumption.LEASE


async def test_what_was_used_without_sql_ends_where_another_shard_is_of_the_other_kind() -> None:
    async with running() as world:
        rows = spread(world)
        await world.send(b"a", b"b")
        await world.group(GroupSettings())
        world.metadata.is_down = True
        (delivery,) = await world.receive(1)
        world.metadata.is_down = False
        await rows.enter(pair(world), Consumption.ASSIGNED, force=False, shard="b")
        await turn(world)
        assert kind(world) is None
        assert await world.ack(delivery) != [None]
        with pytest.raises(ConsumptionConflict) as raised:
            await world.receive(1)
        assert "in shard 'b'" in raised.value.detail


async def test_a_start_takes_over_what_was_entered_and_leaves_what_is_over() -> None:
    async with running() as world:
        rows = spread(world)
        await world.send(b"a", b"b")
        await world.receive(1)
        await world.restart()
        await turn(world)
        asked = rows.asked
        await world.receive(1)
        assert rows.asked == asked  # it is entered already
        await world.broker.offset_admin.delete(GROUP, TOPIC, None)
        rows.rows[("a", pair(world))] = Consumption.ASSIGNED, 1, False
        await world.restart()
        await turn(world)
        assert rows.rows == {}


async def test_leases_that_were_ended_by_force_elsewhere_end_here() -> None:
    async with running() as world:
        rows = spread(world)
        await world.send(b"a", b"b")
        (delivery,) = await world.receive(1)
        await turn(world)
        await rows.enter(pair(world), Consumption.ASSIGNED, force=True, shard="b")
        await turn(world)
        assert kind(world) is None
        assert await world.ack(delivery) != [None]
        await turn(world)
        assert list(rows.rows) == [("b", pair(world))]


async def test_a_refused_commit_enters_nothing() -> None:
    async with running() as world:
        rows = spread(world)
        await world.send(b"a")
        await world.group(GroupSettings())
        with pytest.raises(OffsetOutOfRange):
            await world.commit(9)
        assert rows.rows == {}


# --- what SQL says late, or not at all


def lose_answers(world: World, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """What is entered is carried out, and nobody hears of it, until the returned is called."""
    rows = world.metadata.consumptions
    enter = rows.enter

    async def lost(*args: Any, **named: Any) -> None:
        await enter(*args, **named)
        raise MetadataUnavailable("the connection is lost")

    monkeypatch.setattr(rows, "enter", lost)
    return lambda: monkeypatch.setattr(rows, "enter", enter)


async def test_a_row_that_was_entered_without_an_answer_is_left_with_the_kind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running() as world:
        rows = spread(world)
        await world.send(b"a")
        await turn(world)
        hear = lose_answers(world, monkeypatch)
        with pytest.raises(OffsetOutOfRange):
            await world.commit(9)
        await refused(world, world.commit(1))
        assert (kind(world), list(rows.rows)) == (None, [("a", pair(world))])
        hear()
        await turn(world)
        assert rows.rows == {}


async def test_a_change_by_force_without_an_answer_is_undone_where_the_log_has_it_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running() as world:
        rows = spread(world)
        await world.send(b"a")
        await world.receive(1)
        entered, enter = asyncio.Event(), rows.enter

        async def hangs(*args: Any, **named: Any) -> None:
            await enter(*args, **named)
            entered.set()
            await asyncio.Event().wait()

        monkeypatch.setattr(rows, "enter", hangs)
        committing = asyncio.ensure_future(world.commit(1, take_over=True))
        await entered.wait()
        committing.cancel()
        await asyncio.wait({committing})
        monkeypatch.setattr(rows, "enter", enter)
        found = rows.rows["a", pair(world)][0]
        assert (kind(world), found) == (Consumption.LEASE, Consumption.ASSIGNED)
        await turn(world)
        assert rows.rows["a", pair(world)][0] is Consumption.LEASE


class Silent:
    """A call that the database does not answer: as its driver, it lets go when it is cancelled for
    the second time."""

    def __init__(self) -> None:
        self.asked = 0

    async def __call__(self, *args: object, **named: object) -> None:
        self.asked += 1
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.Event().wait()


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for the database."""
    monkeypatch.setattr(entered_consumptions, "ENTER_SECONDS", 0.01)
    monkeypatch.setattr(service, "AGAIN_SECONDS", 0.01)


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("call", ["enter", "held"])
async def test_a_silent_database_holds_up_no_first_use(
    call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running() as world:
        rows, silent = spread(world), Silent()
        await world.send(b"a", b"b")
        for name in ("one", "two"):
            await world.group(GroupSettings(), name)
        monkeypatch.setattr(rows, call, silent)
        async with asyncio.timeout(30):
            turning = asyncio.ensure_future(world.broker.consumptions.turn())
            await asyncio.gather(*[world.receive(1, group=each) for each in ("one", "two")])
            await turning
        assert silent.asked == 1
        monkeypatch.undo()
        await turn(world)
        assert {each.group for _, each in rows.rows} == {"one", "two"}


@pytest.mark.usefixtures("at_once")
async def test_a_silent_database_holds_up_no_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running() as world:
        rows, silent = spread(world), Silent()
        await world.send(b"a")
        await world.group(GroupSettings())
        monkeypatch.setattr(rows, "elsewhere", silent)
        async with asyncio.timeout(30):
            admin = world.broker.offset_commits
            await admin.preview_commit(GROUP, TOPIC, [], take_over=False)
        assert silent.asked == 1


# --- turns


async def test_each_turn_hears_of_what_has_ended_however_many_kinds_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(consumption, "LOOKS_PER_TURN", 1)
    monkeypatch.setattr(entered_consumptions, "LOOKS_PER_TURN", 1)
    async with running() as world:
        rows = spread(world)
        await world.send(b"a")
        groups = [f"group-{number}" for number in range(4)]
        for group in groups:
            await world.receive(1, group=group)
        await turn(world)
        for group in groups:
            await rows.enter(pair(world, group), Consumption.ASSIGNED, force=True, shard="b")
        await turn(world)
        states = [world.broker.consumptions.state(group, TOPIC) for group in groups]
        assert [each.consumption for each in states] == [None] * 4
        await turn(world)
        assert {shard for shard, _ in rows.rows} == {"b"}


async def test_what_is_given_up_is_left_in_the_next_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumption, "LOOKS_PER_TURN", 1)
    monkeypatch.setattr(entered_consumptions, "LOOKS_PER_TURN", 1)
    async with running() as world:
        rows = spread(world)
        await world.send(b"a")
        for number in range(4):
            group = f"group-{number}"
            await world.ack(*await world.receive(1, group=group), group=group)
        world.clock.advance(s=LEASE_S)
        for left in (4, 3, 2, 1, 0):
            await turn(world)
            assert len(rows.rows) == left


async def test_a_refused_deletion_of_offsets_keeps_the_row() -> None:
    async with running() as world:
        rows = spread(world)
        await world.send(b"a", b"b")
        await world.commit(1)
        admin = world.broker.offset_admin
        await refused(world, admin.delete(GROUP, TOPIC, None))
        assert (kind(world), list(rows.rows)) == (Consumption.ASSIGNED, [("a", pair(world))])
        await admin.delete(GROUP, TOPIC, None)
        assert (kind(world), rows.rows) == (None, {})


async def test_rows_of_a_group_that_was_at_work_at_the_start_are_looked_at_later() -> None:
    async with running() as world:
        await world.topic(name="other")
        rows = spread(world)
        await world.group(GroupSettings())
        rows.rows["a", pair(world)] = Consumption.LEASE, 1, False

        async def check() -> None: ...

        assigning = world.broker.consumptions.assigning
        async with assigning(GROUP, ["other"], force=False, check=check):
            await turn(world)
        assert len(rows.rows) == 2
        await turn(world)
        assert [each.topic for _, each in rows.rows] == ["other"]


async def test_a_new_leader_enters_nothing_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running() as world:
        rows = spread(world)
        await world.send(b"a", b"b")
        await world.receive(1)
        await world.restart()
        entering = Silent()
        monkeypatch.setattr(rows, "enter", entering)
        await world.receive(1)
        assert entering.asked == 0


async def test_what_was_entered_of_deleted_names_is_forgotten() -> None:
    clock = FakeClock()
    metadata = MemoryMetadata(clock)
    for name in ("first", "second"):
        await metadata.put_group(name, GroupSettings())
    await metadata.put_topic(TOPIC, TopicSettings())
    spread_all(metadata)
    context = cast("Context", SimpleNamespace(metadata=metadata, clock=clock))
    entered = EnteredConsumptions(context, lambda *_: Consumption.LEASE, lambda _: False)
    for name in ("first", "second"):
        await entered.enter(name, TOPIC, Consumption.LEASE)
    before = metadata.snapshot
    groups = dict(before.groups)
    groups["first"] = dataclasses.replace(groups["first"], generation=99)
    metadata.snapshot = dataclasses.replace(before, groups=groups)
    await entered.catch_up()
    metadata.snapshot = before
    assert not entered.has("first", TOPIC, Consumption.LEASE)
    assert entered.has("second", TOPIC, Consumption.LEASE)
