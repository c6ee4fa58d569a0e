"""Figures by topic and group: true, bounded, and of one generation of a name only."""

import pytest

from app.broker.figures.counters import PUTS_PUT_DOWN_MAX, STEPS, Sums
from app.broker.figures.traffic_statistics import IDLE_STEPS, OTHER, Statistics
from app.broker.results import Nack
from app.domain.limits import Limits
from app.domain.settings import CustomizedRetry, DeliveryOrder, GroupSettings
from tests.support.nodes.brokers import GROUP, TOPIC, World, running

pytestmark = pytest.mark.anyio


async def step(world: World, count: int = 1) -> None:
    for _ in range(count):
        world.clock.advance(s=5)
        await world.broker.statistics.turn()


def put(statistics: Statistics, count: int, size: int, topic: str = TOPIC) -> None:
    figures = statistics.topic(topic)
    assert figures is not None
    figures.put(count, size, 0.003)


async def test_rates_and_sums_are_those_of_their_windows() -> None:
    async with running() as world:
        statistics = world.broker.statistics
        put(statistics, 30, 300)
        await step(world, 12)
        put(statistics, 10, 50)
        await step(world, 2)
        put(statistics, 5, 5)
        figures = statistics.topics[TOPIC]
        windows = statistics.windows(figures)
        assert figures.sums() == Sums(45, 355)
        assert windows["10s"].sums == Sums(5, 5)
        assert windows["10s"].seconds == 5
        assert windows["1m"].sums == Sums(15, 55)
        assert windows["1m"].seconds == 55
        for name in ("10m", "1h", "today"):
            assert windows[name].sums == Sums(45, 355)
            assert windows[name].seconds == 70
        await step(world, STEPS)
        assert statistics.windows(figures)["10m"].sums == Sums()
        assert statistics.windows(figures)["1h"].sums == Sums(45, 355)
        await step(world, 720)
        assert statistics.windows(figures)["1h"].sums == Sums()
        assert figures.sums() == Sums(45, 355)


async def test_a_series_has_each_step_and_loses_the_oldest() -> None:
    async with running() as world:
        statistics = world.broker.statistics
        for count in (1, 2, 3, 4):
            put(statistics, count, count)
            await step(world)
        figures = statistics.topics[TOPIC]
        series = statistics.series(figures, 6, 1)
        assert [row.in_count for row in series.rows] == [0, 0, 1, 2, 3, 4]
        assert series.start_ms == world.clock.now_ms() - 30_000
        assert series.step_ms == 5_000
        assert [row.in_count for row in statistics.series(figures, 4, 2).rows] == [3, 7]
        await step(world, STEPS - 1)
        rows = statistics.series(figures, STEPS, 1).rows
        assert [rows[0].in_count, *{row.in_count for row in rows[1:]}] == [4, 0]


async def test_a_day_begins_at_midnight_utc() -> None:
    async with running() as world:
        statistics = world.broker.statistics
        put(statistics, 3, 3)
        await step(world, 86_400 // 5)
        put(statistics, 1, 1)
        windows = statistics.windows(statistics.topics[TOPIC])
        assert windows["today"].sums.in_count == 1
        assert windows["today"].seconds < 86_400


async def test_what_has_no_room_is_counted_together_until_something_was_idle_for_an_hour() -> None:
    async with running(limits=Limits(statistics_rows_max=2)) as world:
        statistics = world.broker.statistics
        for name in ("a", "b", "c", "d"):
            await world.topic(name=name)
            put(statistics, 1, 10, name)
        assert sorted(statistics.topics) == ["a", "b"]
        assert statistics.other_topic.sums() == Sums(2, 20)
        for _ in range(IDLE_STEPS + 1):
            put(statistics, 1, 0, "a")
            await step(world)
        assert sorted(statistics.topics) == ["a"], "b was idle, and c and d had no room"
        put(statistics, 1, 10, "c")
        assert statistics.topics["c"].sums() == Sums(1, 10)


async def test_a_topic_called_as_the_rest_is_part_of_it() -> None:
    async with running() as world:
        await world.topic(name=OTHER)
        put(world.broker.statistics, 1, 1, OTHER)
        assert world.broker.statistics.topics.keys() <= {TOPIC}
        assert world.broker.statistics.other_topic.sums().in_count == 1


async def test_a_successor_of_a_name_begins_at_zero() -> None:
    async with running() as world:
        await world.group(GroupSettings())
        await world.send(b"x")
        await world.ack(*await world.receive(1))
        statistics = world.broker.statistics
        put(statistics, 7, 7)
        late, late_group = statistics.topic(TOPIC), statistics.group(GROUP, TOPIC)
        assert late is not None
        assert late_group is not None
        assert late_group.acks_ok == 1
        await world.metadata.delete_topic(TOPIC)
        assert statistics.topic(TOPIC) is None
        await world.topic()
        late.put(1, 1, None)
        late_group.given(1, 1)
        successor, successor_group = statistics.topic(TOPIC), statistics.group(GROUP, TOPIC)
        assert successor is not None
        assert successor_group is not None
        assert successor.sums() == successor_group.sums() == Sums()


async def test_a_deletion_forgets_figures_at_once() -> None:
    async with running() as world:
        await world.group(GroupSettings())
        statistics = world.broker.statistics
        put(statistics, 1, 1)
        assert statistics.group(GROUP, TOPIC) is not None
        await world.broker.settings_changes.delete_group(GROUP)
        assert not statistics.groups
        await world.broker.settings_changes.delete_topic(TOPIC)
        assert not statistics.topics


async def test_settling_is_counted_by_what_became_of_it() -> None:
    async with running() as world:
        await world.group(GroupSettings(retry_policy=CustomizedRetry((1_000,))))
        await world.send(b"a", b"b", b"c")
        acked, nacked, given_up = await world.receive(3)
        settle = world.broker.settler.settle
        await settle(TOPIC, GROUP, acks=[acked.receipt_handle, "nonsense"])
        nacks, letters = [Nack(nacked.receipt_handle)], [Nack(given_up.receipt_handle)]
        await settle(TOPIC, GROUP, nacks=nacks, dead_letters=letters)
        found = world.broker.statistics.groups[GROUP, TOPIC].sums()
        assert (found.acks_ok, found.acks_failed) == (1, 1)
        assert (found.retries, found.dead_letters) == (1, 1)


async def test_a_retry_in_place_is_counted() -> None:
    async with running() as world:
        await world.group(GroupSettings(order=DeliveryOrder.FIFO))
        await world.send(b"a")
        await world.nack(*await world.receive(1))
        assert world.broker.statistics.groups[GROUP, TOPIC].retries == 1


async def test_a_lease_that_runs_out_is_a_retry_and_then_a_dead_letter() -> None:
    async with running() as world:
        await world.group(GroupSettings(max_attempts=2, retry_policy=CustomizedRetry((0,))))
        await world.send(b"a")
        for expected in ((1, 0), (1, 1)):
            assert len(await world.receive(1)) == 1
            await world.lapse(s=60)
            found = world.broker.statistics.groups[GROUP, TOPIC].sums()
            assert (found.retries, found.dead_letters) == expected


async def test_put_latency_tells_bounds_of_its_shares() -> None:
    async with running() as world:
        figures = world.broker.statistics.topic(TOPIC)
        assert figures is not None
        assert figures.latency_at(0.5) is None
        for milliseconds in [0.5] * 98 + [30, 20_000]:
            figures.put(1, 1, milliseconds / 1_000)
        assert (figures.latency_at(0.5), figures.latency_at(0.99)) == (1, 50)
        assert figures.latency_at(1) == figures.latency_max_ms == 20_000


async def test_times_are_counted_when_somebody_looks_and_before_they_are_too_many() -> None:
    async with running() as world:
        figures = world.broker.statistics.topic(TOPIC)
        assert figures is not None
        for number in range(PUTS_PUT_DOWN_MAX):
            figures.put(1, 2, 0.001 if number % 2 else 60.0)
        assert figures.latency[0] == figures.latency[-1] == PUTS_PUT_DOWN_MAX // 2
        figures.put(1, 2, 0.0011)
        assert figures.latency[1] == 0
        figures.count_puts()
        assert figures.latency[1] == 1
        assert sum(figures.latency) == figures.in_count == PUTS_PUT_DOWN_MAX + 1
        assert round(figures.latency_ms, 3) == PUTS_PUT_DOWN_MAX // 2 * 60_001 + 1.1


async def test_the_whole_is_the_sum_of_all_and_keeps_what_is_deleted() -> None:
    async with running() as world:
        await world.topic(1, name="other")
        statistics = world.broker.statistics
        put(statistics, 3, 30)
        put(statistics, 2, 20, "other")
        await step(world)
        assert statistics.whole.sums() == Sums(5, 50)
        assert statistics.within(statistics.whole, 2) == (5.0, Sums(5, 50))
        statistics.forget_topic("other")
        put(statistics, 1, 10)
        await step(world)
        assert statistics.whole.sums() == Sums(6, 60)
        assert statistics.within(statistics.whole, 2) == (10.0, Sums(6, 60))
        assert statistics.series(statistics.whole, 2, 1).rows == [Sums(5, 50), Sums(1, 10)]
        await step(world)
        assert statistics.within(statistics.whole, 2) == (10.0, Sums(1, 10))
