"""Where groups begin, how far they are, and what the metadata hears of it."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from app.broker.results import QueuePosition, QueueRange
from app.domain.errors import (
    MetadataUnavailable,
    OffsetOutOfRange,
    QueueNotFound,
    ReceiptHandleExpired,
    TopicNotFound,
)
from app.domain.message import Message
from app.domain.positions import CommittedOffset
from app.domain.settings import GroupSettings, TopicSettings
from tests.support.nodes.brokers import (
    GROUP,
    IDLE,
    TOPIC,
    World,
    offsets,
    put_topic,
    running,
)
from tests.support.nodes.waiting import until

pytestmark = pytest.mark.anyio


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


async def write(world: World) -> None:
    """One turn of the service that writes offsets."""
    await world.broker.services[0].run_now()


# --- where a group begins


async def test_a_new_group_begins_at_the_first_message() -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, numbered(5))
        world.store.retain_from(TOPIC, 0, 2)
        assert offsets(await world.receive(1)) == [2]


async def test_a_new_group_may_begin_at_the_end_and_keeps_that_over_a_restart() -> None:
    async with running() as world:
        await world.group(GroupSettings(start="latest"))
        world.store.fill(TOPIC, 0, numbered(5))
        assert await world.receive() == []
        world.store.fill(TOPIC, 0, numbered(1))
        await world.restart()
        assert offsets(await world.receive()) == [5]


async def test_a_new_group_may_begin_at_a_time() -> None:
    async with running(queues=2) as world:
        world.store.fill(TOPIC, 0, numbered(3))
        world.clock.advance(s=10)
        await world.group(GroupSettings(start=world.clock.now_ms()))
        world.store.fill(TOPIC, 0, numbered(2))
        world.store.cold.add((TOPIC, 0))
        assert offsets(await world.receive()) == [3, 4]


async def test_a_group_goes_on_where_it_was() -> None:
    async with running(queues=2) as world:
        for queue_id in range(2):
            world.store.fill(TOPIC, queue_id, numbered(5))
        received = await world.receive(10)
        await world.ack(*received[:2], *received[3:9])
        await world.restart()
        again = await world.receive(10)
        assert {(d.message.queue_id, d.message.queue_offset) for d in again} == {
            (0, 2),
            (1, 4),
        }


async def test_queues_added_later_are_read_from_their_first_message() -> None:
    async with running(queues=1) as world:
        await world.group(GroupSettings(start="latest"))
        await world.receive()
        world.store.fill(TOPIC, 1, numbered(2))
        await world.metadata.put_topic(TOPIC, TopicSettings(queues=2))
        assert offsets(await world.receive()) == [0, 1]


async def test_queues_added_between_two_runs_are_read_from_their_first_message() -> None:
    async with running(queues=1) as world:
        await world.group(GroupSettings(start="latest"))
        await world.receive()
        world.store.fill(TOPIC, 1, numbered(2))
        await world.metadata.put_topic(TOPIC, TopicSettings(queues=2))
        await world.restart()
        assert offsets(await world.receive()) == [0, 1]


# --- writing them down


async def test_progress_is_written_behind_in_one_transaction() -> None:
    async with running(queues=2) as world:
        for queue_id in range(2):
            world.store.fill(TOPIC, queue_id, numbered(5))
        await world.ack(*await world.receive(7))
        assert world.metadata.commits == []
        await write(world)
        assert len(world.metadata.commits) == 1
        assert world.metadata.committed(GROUP, TOPIC) == {0: 5, 1: 2}
        await write(world)
        assert len(world.metadata.commits) == 1


async def test_stopping_writes_what_is_left() -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, numbered(5))
        await world.ack(*await world.receive(3))
        await world.broker.stop()
        assert world.metadata.committed(GROUP, TOPIC) == {0: 3}


async def test_a_database_that_is_down_stops_nobody() -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, numbered(5))
        first = await world.receive(2)
        world.metadata.is_down = True
        await world.ack(*first)
        await write(world)
        [trouble] = world.broker.health.troubles()
        assert "cannot be written" in trouble.detail
        assert world.broker.health.obstacles() == []
        await world.ack(*await world.receive(2))
        await write(world)
        world.metadata.is_down = False
        await write(world)
        assert world.broker.health.troubles() == []
        assert world.metadata.committed(GROUP, TOPIC) == {0: 4}


async def test_stopping_without_a_database_ends_all_the_same() -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, numbered(1))
        await world.ack(*await world.receive())
        world.metadata.is_down = True
        await world.broker.stop()
        assert world.broker.health.troubles()


async def test_stopping_does_not_wait_for_a_database_that_hangs(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(config=replace(IDLE, last_write_seconds=0.001)) as world:

        async def hang(*_: object, **__: object) -> list[CommittedOffset]:
            never: asyncio.Future[list[CommittedOffset]] = asyncio.Future()
            return await never

        monkeypatch.setattr(world.metadata, "commit_offsets", hang)
        world.store.fill(TOPIC, 0, numbered(1))
        await world.ack(*await world.receive())
        await world.broker.stop()
        assert "the log has them" in caplog.text


async def test_the_writer_survives_a_failure_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, numbered(1))
        await world.ack(*await world.receive())
        with monkeypatch.context() as broken:

            async def fail(*_: object, **__: object) -> list[CommittedOffset]:
                raise ZeroDivisionError

            broken.setattr(world.metadata, "commit_offsets", fail)
            await write(world)
        await write(world)
        assert world.metadata.committed(GROUP, TOPIC) == {0: 1}


# --- commits by clients


async def test_commits_go_forward_only() -> None:
    async with running(queues=2) as world:
        world.store.fill(TOPIC, 0, numbered(9))
        assert world.committed() == {}
        await world.commit(5)
        await world.commit(3)
        assert world.committed() == {0: 5}
        await write(world)
        assert world.metadata.committed(GROUP, TOPIC) == {0: 5}


async def test_commits_stay_within_the_readable_end() -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, numbered(3))
        for offset in (-1, 4):
            for force in (False, True):
                with pytest.raises(OffsetOutOfRange) as caught:
                    await world.commit(offset, force=force)
                assert caught.value.fields["max_offset"] == 3
        with pytest.raises(QueueNotFound):
            await world.commit(0, queue_id=1)
        await world.commit(3)


async def test_a_bad_row_commits_nothing() -> None:
    async with running(queues=2) as world:
        world.store.fill(TOPIC, 0, numbered(3))
        rows = [QueuePosition(0, 2), QueuePosition(1, 7)]
        with pytest.raises(OffsetOutOfRange):
            await world.broker.offset_commits.commit(GROUP, TOPIC, rows)
        assert world.committed() == {}


async def test_a_commit_among_acks_closes_up() -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, numbered(9))
        leased = await world.receive(6)
        await world.ack(*leased[3:])
        await world.commit(3, take_over=True)
        assert world.committed() == {0: 6}
        await world.restart()
        assert world.committed() == {0: 6}


async def test_a_forced_commit_goes_back_and_voids_all_handles() -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, numbered(5))
        leased = await world.receive(3)
        await world.ack(leased[0], leased[2])
        await write(world)
        await world.commit(0, force=True)
        assert world.metadata.committed(GROUP, TOPIC) == {0: 0}
        assert await world.ack(*leased) == [ReceiptHandleExpired] * 3
        again = await world.receive(3)
        assert [(d.message.queue_offset, d.attempt) for d in again] == [(0, 1), (1, 1), (2, 1)]
        await world.ack(*again)
        assert await world.ack(*leased) == [ReceiptHandleExpired] * 3
        assert world.committed() == {0: 3}
        await write(world)
        assert world.metadata.committed(GROUP, TOPIC) == {0: 3}


async def test_a_forced_commit_that_fails_changes_nothing() -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, numbered(5))
        await world.commit(4)
        world.metadata.is_down = True
        with pytest.raises(MetadataUnavailable):
            await world.commit(1, force=True)
        assert world.committed() == {0: 4}


async def test_a_forced_commit_without_a_subscription_counts_from_the_next_receive() -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, numbered(5))
        await world.commit(4)
        await world.commit(1, force=True)
        assert offsets(await world.receive(1, force=True)) == [1]


# --- look-ups


async def test_offsets_of_all_queues() -> None:
    async with running(queues=2) as world:
        world.store.fill(TOPIC, 0, numbered(3))
        world.clock.advance(s=1)
        world.store.fill(TOPIC, 0, numbered(2))
        world.store.retain_from(TOPIC, 0, 1)
        broker, now_ms = world.broker, world.clock.now_ms()
        assert await broker.topic_ends.offsets_at(TOPIC, "earliest") == [(0, 1), (1, 0)]
        assert await broker.topic_ends.offsets_at(TOPIC, "latest") == [(0, 5), (1, 0)]
        assert await broker.topic_ends.offsets_at(TOPIC, now_ms) == [(0, 3), (1, 0)]
        assert broker.topic_ends.bounds(TOPIC) == [QueueRange(0, 1, 5), QueueRange(1, 0, 0)]
        with pytest.raises(TopicNotFound):
            await broker.topic_ends.offsets_at("order", "latest")


# --- deleting


async def test_a_deleted_group_begins_anew() -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, numbered(3))
        await world.ack(*await world.receive(2))
        await world.broker.settings_changes.delete_group(GROUP)
        assert world.committed() == {}
        await write(world)
        assert world.metadata.committed(GROUP, TOPIC) == {}
        again = await world.receive(2)
        assert [(d.message.queue_offset, d.attempt) for d in again] == [(0, 1), (1, 1)]


async def test_a_deleted_topic_takes_its_messages_and_offsets_along() -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, numbered(3))
        held = await world.receive(2)
        await world.broker.settings_changes.delete_topic(TOPIC)
        with pytest.raises(TopicNotFound):
            await world.receive()
        await put_topic(world.broker, TOPIC, TopicSettings(queues=1))
        assert await world.receive() == []
        assert await world.ack(*held) == [ReceiptHandleExpired] * 2
        await world.send(b"new")
        assert offsets(await world.receive()) == [3]


@pytest.mark.parametrize("is_database_down", [False, True])
async def test_what_is_being_written_of_a_deleted_topic_does_not_count_for_its_successor(
    is_database_down: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(queues=2) as world:
        await world.group(GroupSettings(start="latest"))
        for queue_id in range(2):
            await world.broker.sender.send(TOPIC, Message(b"old"), queue_id=queue_id)
            await world.commit(1, queue_id=queue_id)
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def slow(
            rows: Sequence[CommittedOffset], *, force: bool = False
        ) -> list[CommittedOffset]:
            await answer
            if is_database_down:
                raise MetadataUnavailable("the database does not answer")
            return list(rows)

        with monkeypatch.context() as patched:
            patched.setattr(world.metadata, "commit_offsets", slow)
            writing = asyncio.ensure_future(world.broker.offset_cache.write())
            await until(lambda: not world.broker.offset_cache._dirty)
            await world.broker.settings_changes.delete_topic(TOPIC)
            await put_topic(world.broker, TOPIC, TopicSettings(queues=2))
            await world.send(b"new")
            await world.commit(2)
            answer.set_result(None)
            await writing
        assert world.committed() == {0: 2}
        await write(world)
        assert world.metadata.committed(GROUP, TOPIC) == {0: 2}


async def test_a_topic_that_was_missing_in_sql_is_read_on_where_the_log_knows() -> None:
    async with running() as world:
        await world.group(GroupSettings(start="latest"))
        world.store.fill(TOPIC, 0, numbered(4))
        await world.commit(1)
        groups, snapshot = world.broker.groups, world.metadata.snapshot
        groups.offset_cache.forget(topic=TOPIC)  # as when SQL has left its rows out
        group, topic = snapshot.groups[GROUP], snapshot.topics[TOPIC]
        assert await groups.offsets.positions(group, topic) == [1]
        assert world.committed() == {0: 1}
