"""Where topics stand, in one look, and waiting for it to change."""

import asyncio
from collections.abc import Awaitable, Callable
from unittest import mock

import pytest

from app.broker.read.topic_ends import TopicStates
from app.domain.errors import IllegalWait, InvalidRequest, StoreFailed
from app.domain.limits import Limits
from app.domain.positions import FlushMode
from app.domain.settings import TopicSettings
from tests.support.nodes.brokers import TOPIC, World, put_topic, running
from tests.support.nodes.waiting import until

pytestmark = pytest.mark.anyio

_LONG_S = 20.0


async def _after(world: World, change: Callable[[], Awaitable[object]], *names: str) -> TopicStates:
    """What a look answers that waits for another state than the present one, after `change`."""
    positions = world.broker.topic_ends
    known = (await positions.look(names)).state
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(positions.look(names, known=known, wait_s=_LONG_S))
        await until(lambda: world.waiting == 1)
        await change()
    assert world.waiting == 0
    return waiting.result()


async def test_one_look_tells_all_of_all_queues() -> None:
    async with running(queues=2) as world:
        await world.send(b"a", b"bb")
        await world.topic(1, "other")
        found = await world.broker.topic_ends.look([TOPIC, "other", "nowhere", TOPIC])
        first, other = found.topics
        assert (first.topic, other.topic) == (TOPIC, "other")
        assert first.generation == world.metadata.snapshot.topics[TOPIC].generation
        (full, empty) = first.queues
        assert full[:3] == (0, 0, 2)
        assert full.average_bytes is not None
        assert full.average_bytes > 91
        assert empty == (1, 0, 0, None)
        assert found.missing == ["nowhere"]


@pytest.mark.parametrize("queue_id", [0, 1])
async def test_waiting_ends_with_a_message_in_any_queue(queue_id: int) -> None:
    async with running(queues=2) as world:
        found = await _after(world, lambda: world.send(b"x", queue_id=queue_id), TOPIC)
        assert found.topics[0].queues[queue_id].max_offset == 1


async def test_waiting_ends_when_a_topic_changes_is_deleted_or_made() -> None:
    async with running() as world:
        broker = world.broker
        settings = TopicSettings(queues=3, flush=FlushMode.ASYNC)
        grown = await _after(world, lambda: put_topic(broker, TOPIC, settings), TOPIC)
        assert len(grown.topics[0].queues) == 3
        gone = await _after(world, lambda: broker.settings_changes.delete_topic(TOPIC), TOPIC)
        assert gone.missing == [TOPIC]
        anew = await _after(world, lambda: put_topic(broker, TOPIC, settings), TOPIC, "other")
        assert anew.missing == ["other"]


async def test_another_state_than_the_known_one_is_answered_at_once() -> None:
    async with running() as world:
        known = (await world.broker.topic_ends.look([TOPIC])).state
        await world.send(b"x")
        found = await world.broker.topic_ends.look([TOPIC], known=known, wait_s=_LONG_S)
        assert found.state != known


async def test_retention_is_no_news() -> None:
    async with running() as world:
        await world.send(b"a", b"b")
        before = await world.broker.topic_ends.look([TOPIC])
        world.store.retain_from(TOPIC, 0, 1)
        after = await world.broker.topic_ends.look([TOPIC])
        assert after.state == before.state
        assert after.topics[0].queues[0].min_offset == 1


async def test_ends_are_on_the_medium_when_that_was_asked_for() -> None:
    """What came while the medium was busy is not among them."""
    async with running() as world:
        await world.send(b"a")
        store, look = world.store, world.broker.topic_ends.look
        store.state.written_end = 100
        flushes: list[Callable[[None], object]] = []
        with mock.patch.object(store, "flush", flushes.append):
            async with asyncio.TaskGroup() as group:
                looking = group.create_task(look([TOPIC], flushed=True))
                await until(lambda: bool(flushes))
                assert (await look([TOPIC])).topics[0].queues[0].max_offset == 1
                await world.send(b"b")
                assert not looking.done()
                flushes[0](None)
            assert looking.result().topics[0].queues[0].max_offset == 1
            store.state.flushed_end = 100
            await look([TOPIC], flushed=True)
            assert len(flushes) == 1


async def test_ends_that_cannot_be_brought_to_the_medium_are_not_told() -> None:
    async with running() as world:
        await world.send(b"a")
        world.store.state.written_end = 100
        world.store.failure = StoreFailed("the disk is broken")
        with pytest.raises(StoreFailed):
            await world.broker.topic_ends.look([TOPIC], flushed=True)


async def test_time_is_up_and_stopping() -> None:
    async with running() as world:
        known = (await world.broker.topic_ends.look([TOPIC])).state
        found = await world.broker.topic_ends.look([TOPIC], known=known, wait_s=0.001)
        assert found.state == known
        assert (await _after(world, world.broker.stop, TOPIC)).state == known


async def test_bad_questions() -> None:
    async with running(limits=Limits(topics_per_look_max=2)) as world:
        look = world.broker.topic_ends.look
        with pytest.raises(InvalidRequest, match="from 1 to 2"):
            await look([])
        with pytest.raises(InvalidRequest, match="3 topics"):
            await look(["a", "b", "c"])
        with pytest.raises(InvalidRequest):
            await look(["a b"])
        with pytest.raises(IllegalWait):
            await look([TOPIC], wait_s=1e6)


async def test_a_wait_for_one_queue_and_one_for_all_wake_together() -> None:
    async with running(queues=2) as world:
        look = world.broker.topic_ends.look
        known = (await look([TOPIC])).state
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(look([TOPIC], known=known, wait_s=_LONG_S))
            pull = group.create_task(world.pull(0, wait_s=_LONG_S))
            await until(lambda: world.waiting == 2)
            await world.send(b"x")
        assert waiting.result().topics[0].queues[0].max_offset == 1
        assert pull.result().next_offset == 1
