"""Trails: what is noted is found again, cheaply, and never gets in the way."""

import asyncio
from threading import Event
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.broker.tracing.message_trace import MessageTrace
from app.broker.tracing.trace_notes import TraceKind
from app.broker.tracing.trace_notes import runs_of as _runs
from app.domain.errors import DiskFull
from app.domain.limits import Limits
from app.domain.names import TRACE_TOPIC
from app.domain.positions import FlushMode
from app.domain.settings import TopicSettings, TraceMode
from app.store import ColdRead
from tests.support.nodes.brokers import GROUP, TOPIC, World, running
from tests.support.nodes.waiting import until

pytestmark = pytest.mark.anyio


def trails(world: World) -> MessageTrace:
    return world.broker.message_trace


async def kinds(world: World, offset: int, group: str | None = None) -> list[str]:
    trail = await trails(world).trail(TOPIC, 0, offset, group=group)
    assert trail.is_complete
    return [f"{event.group}:{event.kind.name}" for event in trail.events]


async def write(world: World) -> None:
    await trails(world).turn()
    await until(lambda: world.store.bounds(TRACE_TOPIC, 0).max_offset == records(world))


def records(world: World) -> int:
    queue = world.store.queues.get((TRACE_TOPIC, 0))
    return len(queue.records) if queue else 0


async def test_the_events_of_one_message_are_found() -> None:
    async with running() as world:
        note = trails(world).note
        note(
            TraceKind.DELIVERED,
            TOPIC,
            (TOPIC, 0),
            range(100),
            group=GROUP,
            attempt=1,
            client_id="c1",
        )
        world.clock.advance(s=1)
        note(TraceKind.ACKED, TOPIC, (TOPIC, 0), [0, 1, 5], group=GROUP)
        note(TraceKind.DELIVERED, TOPIC, (TOPIC, 1), range(100), group="other")
        assert await kinds(world, 5) == ["billing:DELIVERED", "billing:ACKED"]
        await write(world)
        note(TraceKind.DELIVERED, TOPIC, (TOPIC, 0), [5], group="second")
        assert await kinds(world, 5) == ["billing:DELIVERED", "billing:ACKED", "second:DELIVERED"]
        assert await kinds(world, 6) == ["billing:DELIVERED"]
        assert await kinds(world, 5, group="second") == ["second:DELIVERED"]
        event = (await trails(world).trail(TOPIC, 0, 5)).events[0]
        assert (event.attempt, event.client_id, event.detail) == (1, "c1", None)


async def test_events_are_found_once_while_they_are_being_written() -> None:
    """Neither in memory only nor in the log already."""
    async with running() as world:
        trails(world).note(TraceKind.DELIVERED, TOPIC, (TOPIC, 0), [5], group=GROUP)
        world.store.held = []
        await trails(world).turn()
        assert await kinds(world, 5) == ["billing:DELIVERED"]
        trails(world).note(TraceKind.ACKED, TOPIC, (TOPIC, 0), [5], group=GROUP)
        await trails(world).turn()
        assert await kinds(world, 5) == ["billing:DELIVERED", "billing:ACKED"]
        world.store.confirm()
        assert await kinds(world, 5) == ["billing:DELIVERED", "billing:ACKED"]
        assert trails(world)._in_memory((TOPIC, 0, 0)) == []


@pytest.mark.parametrize("when", ["just before the log is read", "just after"])
async def test_events_that_are_written_while_a_trail_is_read_are_found_once(
    monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    async with running() as world:
        trails(world).note(TraceKind.DELIVERED, TOPIC, (TOPIC, 0), [5], group=GROUP)
        await write(world)
        trails(world).note(TraceKind.ACKED, TOPIC, (TOPIC, 0), [5], group=GROUP)
        real, is_there, go_on = world.store.find_by_key_before, Event(), Event()

        def meanwhile() -> None:
            is_there.set()
            assert go_on.wait(10)

        def find(*arguments: Any, wait_for_disk: bool, **more: Any) -> Any:
            if not wait_for_disk:
                raise ColdRead
            if when != "just after":
                meanwhile()
            found = real(*arguments, **more)
            if when == "just after":
                meanwhile()
            return found

        monkeypatch.setattr(world.store, "find_by_key_before", find)
        reading = asyncio.ensure_future(kinds(world, 5))
        await until(is_there.is_set)
        await write(world)
        go_on.set()
        assert await reading == ["billing:DELIVERED", "billing:ACKED"]


async def test_what_could_not_be_written_is_forgotten() -> None:
    async with running() as world:
        world.store.failure = DiskFull("the disk has no room")
        trails(world).note(TraceKind.DELIVERED, TOPIC, (TOPIC, 0), [5], group=GROUP)
        await trails(world).turn()
        await until(lambda: not trails(world)._leaving)
        assert await kinds(world, 5) == []


async def test_many_messages_at_once_cost_one_record_a_page() -> None:
    async with running() as world:
        for first in range(0, 4_096, 32):
            trails(world).note(
                TraceKind.DELIVERED, TOPIC, (TOPIC, 0), range(first, first + 32), group=GROUP
            )
        await write(world)
        assert records(world) == 4
        assert await kinds(world, 4_095) == ["billing:DELIVERED"]


async def test_a_topic_without_trails_costs_nothing() -> None:
    async with running() as world:
        settings = TopicSettings(queues=1, flush=FlushMode.ASYNC, trace=TraceMode.OFF)
        await world.metadata.put_topic(TOPIC, settings)
        trails(world).note(TraceKind.DELIVERED, TOPIC, (TOPIC, 0), [1], group=GROUP)
        trails(world).note(TraceKind.DELIVERED, "deleted", ("deleted", 0), [1], group=GROUP)
        trails(world).note(TraceKind.DELIVERED, TOPIC, (TOPIC, 0), [], group=GROUP)
        await trails(world).turn()
        assert records(world) == 0


async def test_too_many_notes_are_dropped_and_counted() -> None:
    async with running(limits=Limits(trace_notes_pending_max=2)) as world:
        for offset in range(5):
            trails(world).note(TraceKind.ACKED, TOPIC, (TOPIC, 0), [offset], group=GROUP)
        assert trails(world).dropped == 3
        world.store.refusal = DiskFull("no room")
        await trails(world).turn()
        assert trails(world).dropped == 5
        world.store.refusal = None
        trails(world).note(TraceKind.ACKED, TOPIC, (TOPIC, 0), [7], group=GROUP)
        assert await kinds(world, 7) == ["billing:ACKED"]


async def test_a_long_trail_says_that_it_is_not_complete() -> None:
    async with running(limits=Limits(trace_records_read_max=2)) as world:
        for _ in range(4):
            trails(world).note(TraceKind.EXPIRED, TOPIC, (TOPIC, 0), [3], group=GROUP)
            await write(world)
        trail = await trails(world).trail(TOPIC, 0, 3)
        assert (len(trail.events), trail.is_complete) == (2, False)


async def test_stopping_writes_what_was_noted() -> None:
    async with running() as world:
        trails(world).note(TraceKind.ACKED, TOPIC, (TOPIC, 0), [3], group=GROUP)
        await world.restart()
        await until(lambda: world.store.bounds(TRACE_TOPIC, 0).max_offset == 1)
        assert await kinds(world, 3) == ["billing:ACKED"]


@given(st.lists(st.integers(0, 5_000), min_size=1))
def test_runs_hold_exactly_the_offsets_and_cross_no_page(offsets: list[int]) -> None:
    runs = list(_runs(offsets))
    assert [offset for first, end in runs for offset in range(first, end)] == offsets
    assert all(first >> 10 == (end - 1) >> 10 for first, end in runs)
