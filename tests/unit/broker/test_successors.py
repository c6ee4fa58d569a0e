"""What is on its way when a topic or group is deleted belongs to no successor of the name: retries,
acks, resets, delayed messages. `test_identity` has what was there before."""

import asyncio

import pytest

from app.broker.results import BatchItem, Send
from app.domain.delays import Due
from app.domain.errors import MessageNotFound, TooManyRequests
from app.domain.identity import Kind
from app.domain.message import Message
from app.domain.names import retry_topic
from app.domain.settings import GroupSettings, TopicSettings
from app.store import Done
from tests.support.nodes.brokers import GROUP, TOPIC, World, offsets, put_group, put_topic, running
from tests.support.nodes.waiting import until

DAY_MS = 86_400_000
pytestmark = pytest.mark.anyio


async def make_again(world: World) -> None:
    await world.broker.settings_changes.delete_topic(TOPIC)
    await put_topic(world.broker, TOPIC, TopicSettings(queues=1))


async def readable(world: World) -> list[bytes]:
    low, high = world.store.bounds(TOPIC, 0)
    read = world.store.read(TOPIC, 0, low, max_messages=high - low, max_bytes=1 << 20)
    return [world.store.decode(record).body for record in read.records]


async def test_what_waits_for_a_deleted_topic_is_not_shown_with_its_successor() -> None:
    async with running() as world:
        later = Due(60_000, is_delay=True)
        old = (await world.broker.sender.send(TOPIC, Message(b"old"), due=later)).recall_handle
        assert old is not None
        await make_again(world)
        new = (await world.broker.sender.send(TOPIC, Message(b"new"), due=later)).recall_handle
        scheduled = world.broker.delayed_messages
        page = await scheduled.page(TOPIC, 10)
        assert [each.message.body for each in page.messages] == [b"new"]
        assert page.messages[0].recall_handle == new
        for act in (
            scheduled.get(TOPIC, old),
            scheduled.move(TOPIC, old, later),
            scheduled.deliver(TOPIC, old),
        ):
            with pytest.raises(MessageNotFound):
                await act
        await world.lapse(s=61)
        assert await readable(world) == [b"new"]
        assert world.broker.delays.timers.count == 0


@pytest.mark.parametrize("what", ["ack", "ack and send", "reset"])
@pytest.mark.parametrize("is_made_again", ["before", "after"])
@pytest.mark.parametrize("kind", list(Kind))
async def test_progress_that_is_on_its_way_is_not_that_of_a_successor(
    kind: Kind, is_made_again: str, what: str
) -> None:
    """The log confirms it when its group or topic is deleted already."""

    async def successor() -> None:
        if kind is Kind.TOPIC:
            await put_topic(world.broker, TOPIC, TopicSettings(queues=1))
        else:
            await put_group(world.broker, GROUP, GroupSettings())

    async def progress() -> None:
        handles = [each.receipt_handle for each in leased]
        if what == "ack":
            await world.broker.settler.settle(TOPIC, GROUP, acks=handles)
        elif what == "reset":
            await world.commit(2, force=True)
        else:
            send = Send("others", BatchItem(Message(b"made of it")))
            await world.broker.ack_and_produce.ack_and_send(TOPIC, GROUP, handles, [send])

    async with running() as world:
        await world.topic(name="others")
        await world.send(b"a", b"b", b"c")
        leased = await world.receive(2)
        world.store.held = []
        task = asyncio.ensure_future(progress())
        await until(lambda: bool(world.store.held))
        if kind is Kind.TOPIC:
            await world.broker.settings_changes.delete_topic(TOPIC)
        else:
            await world.broker.settings_changes.delete_group(GROUP)
        if is_made_again == "before":
            await successor()
        world.store.confirm()
        await asyncio.gather(task, return_exceptions=True)
        if is_made_again == "after":
            await successor()
        assert world.committed() == {}
        await world.broker.offset_cache.write()
        assert world.metadata.committed(GROUP, TOPIC) == {}
        if kind is Kind.GROUP:
            assert offsets(await world.receive()) == [0, 1, 2]


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("kind", list(Kind))
async def test_a_retry_that_waits_for_its_time_keeps_no_successor_from_another_kind(
    kind: Kind, *, is_restarted: bool
) -> None:
    async with running() as world:
        await world.send(b"old", b"older")
        for delivery in await world.receive():
            await world.nack(delivery, delay_ms=DAY_MS)
        if kind is Kind.TOPIC:
            await make_again(world)
        else:
            await world.broker.settings_changes.delete_group(GROUP)
        await world.send(b"new")
        [*others, last] = await world.receive()
        assert await world.ack(*others) == [None] * len(others)
        await world.nack(last, delay_ms=1_000)
        if is_restarted:
            await world.broker.delays.compaction.flush()
            await world.restart()
        await world.broker.delays.catch_up()
        assert world.broker.delays.retry_count(GROUP, TOPIC) == 1
        assert (await world.broker.lag.group_lag(GROUP)).topics[0].delayed == 1
        await world.lapse(s=2)
        assert world.broker.delays.retry_count(GROUP, TOPIC) == 0
        [retry] = await world.receive()
        assert await world.ack(retry) == [None]
        await world.lapse(s=120)
        await world.commit(world.store.bounds(TOPIC, 0).max_offset)
        await world.lapse(ms=DAY_MS)
        assert world.broker.delays.retry_count(GROUP, TOPIC) == 0
        assert world.broker.delays.timers.count == 0


@pytest.mark.parametrize("kind", list(Kind))
async def test_a_first_retry_that_is_on_its_way_is_not_for_a_successor(kind: Kind) -> None:
    async with running() as world:
        await world.retry_at_once()
        await world.send(b"old")
        leased = await world.receive(1)
        world.store.held = []
        nacking = asyncio.ensure_future(world.nack(*leased))
        await until(lambda: world.store.next_offset(retry_topic(GROUP, TOPIC), 0) == 1)
        if kind is Kind.TOPIC:
            await make_again(world)
        else:
            await world.broker.settings_changes.delete_group(GROUP)
            await put_group(world.broker, GROUP, GroupSettings(start="latest"))
        world.store.confirm()
        await asyncio.gather(nacking, return_exceptions=True)
        assert await world.receive() == []
        await world.kill()
        assert await world.receive() == []


async def test_retries_whose_deletion_is_refused_keep_nothing_else_from_being_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running() as world:
        await world.retry_at_once()
        await world.send(b"old", b"older")
        await world.nack(*await world.receive(1))
        await world.commit(1, take_over=True)
        delete = world.store.delete_topic

        def refuse(topic: str, generation: int = 0, done: Done | None = None) -> bool:
            is_new = delete(topic, generation, done)
            if not generation:
                raise TooManyRequests("busy")
            return is_new

        with monkeypatch.context() as patched:
            patched.setattr(world.store, "delete_topic", refuse)
            await make_again(world)
        assert world.committed() == {}
        assert world.broker.consumer_journal.topics(GROUP) == set()
        assert await world.receive() == []
