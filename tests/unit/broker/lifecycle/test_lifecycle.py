"""Starting, stopping, look-up by id, and whether the real neighbours fit the ports."""

import asyncio

import pytest

from app.broker.ports import Metadata, Store
from app.cluster import Metadata as ClusterMetadata
from app.domain.errors import (
    CurlewError,
    MessageNotFound,
    MetadataUnavailable,
    ShuttingDown,
    TopicNotFound,
)
from app.domain.message import Message
from app.store import MessageStore
from tests.support.nodes.brokers import TOPIC, World, running
from tests.support.nodes.waiting import until

pytestmark = pytest.mark.anyio


def real_neighbours(store: MessageStore, metadata: ClusterMetadata) -> tuple[Store, Metadata]:
    """For the type checker: what `node` hands to the broker is what the broker asks for."""
    return store, metadata


async def test_stopping_answers_all_waiters_at_once_with_nothing() -> None:
    async with running() as world, asyncio.TaskGroup() as tasks:
        pulls = [tasks.create_task(world.pull(0, wait_s=60)) for _ in range(3)]
        receives = [tasks.create_task(world.receive(wait_s=60)) for _ in range(3)]
        await until(lambda: world.waiting == 6)
        await world.broker.stop()
        assert [(await pull).read.records for pull in pulls] == [[]] * 3
        assert [await receive for receive in receives] == [[]] * 3
        assert world.waiting == 0


async def test_a_stopped_broker_refuses_work() -> None:
    async with running() as world:
        await world.broker.stop()
        await world.broker.stop()
        for send in (
            world.broker.sender.send(TOPIC, Message(b"a")),
            world.broker.sender.send_batch(TOPIC, []),
            world.broker.sender.send_frame(TOPIC, b""),
        ):
            with pytest.raises(ShuttingDown) as caught:
                await send
            assert caught.value.outcome == "not_stored"
        for call in (
            world.pull(0),
            world.receive(),
            world.broker.settler.settle(TOPIC, "g", acks=["h"]),
            world.broker.settler.settle_one("h", "ack"),
            world.broker.browser.message(TOPIC, "id"),
            world.broker.topic_ends.offsets_at(TOPIC, "latest"),
            world.broker.offset_commits.commit("g", TOPIC, []),
        ):
            with pytest.raises(ShuttingDown):
                await call


async def test_a_send_in_progress_is_answered_while_stopping() -> None:
    async with running() as world, asyncio.TaskGroup() as tasks:
        send = tasks.create_task(world.broker.sender.send(TOPIC, Message(b"a")))
        await asyncio.sleep(0)
        await world.broker.stop()
        assert (await send).queue_offset == 0


async def test_a_broker_that_has_not_started_refuses_work() -> None:
    world = World()
    with pytest.raises(ShuttingDown):
        await world.pull(0)
    await world.broker.stop()
    world.metadata.is_down = True
    with pytest.raises(MetadataUnavailable):
        await world.broker.start()
    world.metadata.is_down = False
    await world.broker.start()
    await world.broker.start()
    await world.broker.stop()


async def test_services_run_by_themselves() -> None:
    async with running() as world:
        broker = world.broker
        services = broker.services
        assert [service.running for service in services] == [True] * 10
        await services[1].run_now()
        await broker.stop()
        assert [service.running for service in services] == [False] * 10
        assert [service.failures for service in services] == [0] * 10


async def test_a_message_is_found_by_its_id() -> None:
    async with running() as world:
        await world.topic(1, name="other")
        [sent] = await world.send(b"one")
        assert (await world.broker.browser.message(TOPIC, sent.message_id)).body == b"one"
        world.store.cold.add((TOPIC, 0))
        assert (await world.broker.browser.message(TOPIC, sent.message_id)).body == b"one"
        assert world.store.disk_reads == 1
        errors: list[tuple[str, str, type[CurlewError]]] = [
            (TOPIC, "nonsense", MessageNotFound),
            ("other", sent.message_id, MessageNotFound),
            ("order", sent.message_id, TopicNotFound),
        ]
        for topic, message_id, error in errors:
            with pytest.raises(error):
                await world.broker.browser.message(topic, message_id)
