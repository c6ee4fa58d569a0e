"""Schedules: each due time once, in time, whatever dies in between; cron as Debian has it."""

from dataclasses import replace
from datetime import datetime

import pytest

from app.broker.schedules.cron import due_times
from app.broker.schedules.schedules import CLAIMS_MAX
from app.domain.errors import DiskFull, IllegalSetting, MetadataUnavailable, TopicNotFound
from app.domain.schedules import Missed, ScheduleSettings
from app.domain.settings import TopicSettings
from tests.support.nodes.brokers import TOPIC, World, running
from tests.support.stores.clock import START_MS

MINUTE = 60_000
FIRST = START_MS // MINUTE * MINUTE + MINUTE


def every_minute(**more: object) -> ScheduleSettings:
    return ScheduleSettings("* * * * *", TOPIC, b"tick", **more)  # type: ignore[arg-type]


def times(world: World) -> list[int]:
    """Due times of what was delivered, by the ids."""
    found: list[int] = []
    for (topic, queue), _ in list(world.store.queues.items()):
        bounds = world.store.bounds(topic, queue)
        if topic == TOPIC and bounds.max_offset:
            read = world.store.read(topic, queue, 0, max_messages=1_000, max_bytes=1 << 30)
            ids = [world.store.decode(record).message_id for record in read.records]
            found += [int(message_id.rpartition(":")[2]) for message_id in ids]
    return sorted(found)


async def at(world: World, now_ms: int) -> None:
    """Let the services work at a time."""
    world.clock.set_wall(now_ms)
    await world.broker.schedules.turn()
    await world.broker.delays.turn()


@pytest.mark.anyio
async def test_fires_each_due_time_once_and_never_early() -> None:
    async with running(queues=2) as world:
        schedule, made = await world.broker.schedules.put("tick", every_minute())
        assert (made, schedule.next_due_ms) == (True, FIRST)
        shown = world.broker.schedules.shown_due_times(schedule)
        assert shown == [FIRST + n * MINUTE for n in range(5)]
        await at(world, FIRST - 3_000)
        await at(world, FIRST - 1)
        assert times(world) == []
        await at(world, FIRST)
        await at(world, FIRST)
        assert times(world) == [FIRST]
        for n in range(1, 4):
            await at(world, FIRST + n * MINUTE)
        assert times(world) == [FIRST + n * MINUTE for n in range(4)]
        assert (await world.broker.schedules.put("tick", every_minute()))[1] is False


@pytest.mark.anyio
async def test_the_trace_of_what_it_sends_names_the_schedule() -> None:
    async with running() as world:
        await world.broker.schedules.put("tick", every_minute())
        await at(world, FIRST)
        history = await world.broker.message_trace.trail(TOPIC, 0, 0)
        assert history.sent is not None
        assert history.sent.producer == ("schedule:tick", None, None)
        assert (history.sent.tries, history.events) == (1, [])


@pytest.mark.anyio
async def test_a_time_zone_that_is_gone_stops_one_schedule_only() -> None:
    """Zones are taken out of their database now and then; a schedule of one may be there before."""
    async with running() as world:
        gone = every_minute(timezone="Gone/Away")
        schedule, _ = await world.metadata.schedules.put("gone", gone, FIRST)
        await world.broker.schedules.put("tick", every_minute())
        for now_ms in (FIRST, FIRST + MINUTE):
            await at(world, now_ms)
        assert times(world) == [FIRST, FIRST + MINUTE]
        assert world.broker.schedules.shown_due_times(schedule) == [FIRST]
        repaired = every_minute(timezone="Europe/Paris")
        await world.broker.schedules.put("gone", repaired)
        await at(world, FIRST + 2 * MINUTE)
        assert times(world).count(FIRST + 2 * MINUTE) == 2


@pytest.mark.anyio
async def test_many_that_wait_for_a_node_that_is_down_hide_no_others() -> None:
    """They stay due until the node of their queue is back, and are due longest."""
    async with running() as world:
        await world.metadata.put_topic("elsewhere", TopicSettings(queues=1))
        snapshot = world.metadata.snapshot
        topic = replace(snapshot.topics["elsewhere"], shards=("other",), here="here")
        world.metadata.snapshot = snapshot.with_topic(topic)
        for number in range(2 * CLAIMS_MAX + 1):
            settings = ScheduleSettings("* * * * *", "elsewhere", b"tick")
            await world.metadata.schedules.put(f"down{number:03}", settings, FIRST - 1)
        await world.broker.schedules.put("tick", every_minute())
        for _ in range(3):
            await at(world, FIRST)
        assert times(world) == [FIRST]


@pytest.mark.anyio
@pytest.mark.parametrize("dies", ["claim", "append", "delivery"])
async def test_a_crash_between_claim_and_report_loses_and_doubles_nothing(dies: str) -> None:
    async with running() as world:
        await world.broker.schedules.put("tick", every_minute())
        book = world.metadata.schedules
        world.clock.set_wall(FIRST - 2_000)
        schedule = await book.get("tick")
        firing = await book.move_on(schedule, FIRST + MINUTE, world.store.store_id.hex())
        assert firing is not None
        if dies != "claim":
            await world.broker.schedules._send(firing)
        if dies == "delivery":
            world.clock.set_wall(FIRST)
            await world.broker.delays.turn()
            await world.broker.delays.compaction.flush()
        await world.restart()
        await at(world, FIRST)
        await at(world, FIRST + 1)
        assert times(world) == [FIRST]
        assert book.claims == {}


@pytest.mark.anyio
async def test_of_two_nodes_one_fires() -> None:
    async with running() as world, running() as other:
        other.broker.schedules._metadata = world.metadata
        other.metadata.snapshot = world.metadata.snapshot
        other.store.generations.clear()
        other.broker.schedules._node_id = "other"
        await world.broker.schedules.put("tick", every_minute())
        for n in range(6):
            for node in (world, other) if n % 2 else (other, world):
                await at(node, FIRST + n * MINUTE)
        assert sorted(times(world) + times(other)) == [FIRST + n * MINUTE for n in range(6)]


@pytest.mark.anyio
async def test_a_change_after_the_claim_fires_nothing_twice() -> None:
    """Another node cannot see in its log that the due time was fired."""
    async with running() as world, running() as other:
        other.broker.schedules._metadata = world.metadata
        other.metadata.snapshot = world.metadata.snapshot
        other.store.generations.clear()
        other.broker.schedules._node_id = "other"
        await world.broker.schedules.put("tick", every_minute())
        await at(world, FIRST - 3_000)
        other.clock.set_wall(FIRST - 2_000)
        await other.broker.schedules.put("tick", every_minute(tag="changed"))
        for n in range(3):
            await at(other, FIRST + n * MINUTE)
            await at(world, FIRST + n * MINUTE)
        assert sorted(times(world) + times(other)) == [FIRST + n * MINUTE for n in range(3)]


@pytest.mark.anyio
@pytest.mark.parametrize("missed", list(Missed))
async def test_missed_due_times_fire_once_or_not_at_all(missed: Missed) -> None:
    async with running() as world:
        await world.broker.schedules.put("tick", every_minute(missed=missed))
        later = FIRST + 30 * MINUTE + 5_000
        await at(world, later)
        fired = times(world)
        assert len(fired) == (1 if missed is Missed.FIRE_ONCE else 0)
        await at(world, FIRST + 31 * MINUTE)
        assert times(world) == [*fired, FIRST + 31 * MINUTE]


@pytest.mark.anyio
async def test_failures_are_made_up_for() -> None:
    async with running() as world:
        await world.broker.schedules.put("tick", every_minute())
        world.metadata.is_down = True
        await at(world, FIRST)
        world.metadata.is_down = False
        world.store.refusal = DiskFull("full")
        await at(world, FIRST + 1_000)
        world.store.refusal = None
        await at(world, FIRST + 2_000)
        assert times(world) == [FIRST]
        world.metadata.is_down = True
        with pytest.raises(MetadataUnavailable):
            await world.broker.schedules.put("tock", every_minute())


@pytest.mark.anyio
async def test_a_paused_schedule_rests() -> None:
    async with running() as world:
        schedule, _ = await world.broker.schedules.put("tick", every_minute(paused=True))
        assert world.broker.schedules.shown_due_times(schedule) == []
        await at(world, FIRST + MINUTE)
        assert times(world) == []
        with pytest.raises(TopicNotFound):
            await world.broker.schedules.put("tick", ScheduleSettings("* * * * *", "no", b""))


@pytest.mark.parametrize(
    ("cron", "zone", "after", "expected"),
    [
        ("*/15 8-18 * * MON-FRI", "UTC", "2026-11-20T18:50:00+00:00", "2026-11-23T08:00:00+00:00"),
        ("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00+00:00", "2026-03-29T03:00:00+02:00"),
        ("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00+00:00", "2026-10-25T02:30:00+02:00"),
        ("0 0 29 2 *", "UTC", "2026-01-01T00:00:00+00:00", "2028-02-29T00:00:00+00:00"),
    ],
)
def test_due_times_are_those_of_cron(cron: str, zone: str, after: str, expected: str) -> None:
    after_ms, expected_ms = (
        round(datetime.fromisoformat(text).timestamp() * 1_000) for text in (after, expected)
    )
    assert next(due_times(cron, zone, after_ms)) == expected_ms


@pytest.mark.parametrize(
    ("cron", "zone"),
    [
        ("* * * *", "UTC"),
        ("* * * * * *", "UTC"),
        ("61 * * * *", "UTC"),
        ("0 0 30 2 *", "UTC"),
        ("x * * * *", "UTC"),
        ("* * * * *", "Mars/Olympus"),
        ("* * * * *", "../etc/passwd"),
        ("* " * 5_000, "UTC"),
    ],
)
def test_what_is_no_cron_expression_is_refused_with_a_hint(cron: str, zone: str) -> None:
    with pytest.raises(IllegalSetting) as caught:
        next(due_times(cron, zone, START_MS))
    assert caught.value.hint


@pytest.mark.anyio
async def test_a_firing_for_a_topic_that_an_older_database_lacks_waits_for_it() -> None:
    async with running() as world:
        await world.broker.schedules.put("tick", every_minute())
        whole = world.metadata.snapshot
        world.metadata.snapshot = replace(whole, topics={})
        await at(world, FIRST)
        assert times(world) == []
        assert world.broker.schedules.faults.count == 1
        await world.restart()
        await at(world, FIRST + 1)
        assert world.broker.schedules.faults.count == 1
        world.metadata.snapshot = whole
        await at(world, FIRST + 2)
        assert times(world) == [FIRST]
        assert world.broker.schedules.faults.count == 0
        assert world.metadata.schedules.claims == {}


@pytest.mark.anyio
async def test_a_firing_for_a_topic_that_was_deleted_is_over() -> None:
    async with running() as world:
        await world.broker.schedules.put("tick", every_minute())
        await world.broker.settings_changes.delete_topic(TOPIC)
        await at(world, FIRST)
        assert times(world) == []
        assert world.broker.schedules.faults.count == 0
        assert world.metadata.schedules.claims == {}
