"""G12: what was acked stays acked, across kill -9, with and without a database."""

import asyncio

import pytest

from app.domain.errors import DiskFull, ReceiptHandleExpired, StoreFailed, TooManyRequests
from app.domain.names import PROGRESS_TOPIC, retry_topic
from app.domain.positions import FlushMode
from app.domain.settings import GroupSettings, TopicSettings
from tests.support.nodes.brokers import GROUP, TOPIC, offsets, running
from tests.support.nodes.waiting import until

pytestmark = pytest.mark.anyio


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


async def test_acks_in_any_order_survive_a_kill() -> None:
    async with running(queues=2) as world:
        for queue_id in range(2):
            world.store.fill(TOPIC, queue_id, numbered(6))
        received = await world.receive(12)
        await world.ack(*received[1:5], *received[7:12:2])
        await world.kill()
        again = await world.receive(12)
        assert [(d.message.queue_id, d.message.queue_offset) for d in again] == [
            (0, 0),
            (0, 5),
            (1, 0),
            (1, 2),
            (1, 4),
        ]
        assert {d.attempt for d in again} == {2}
        assert await world.ack(*received) == [ReceiptHandleExpired] * 12
        await world.ack(*again)
        await world.kill()
        assert await world.receive() == []
        assert world.committed() == {0: 6, 1: 6}


async def test_the_control_without_the_journal_acks_are_lost() -> None:
    """As if acks were kept in memory and in SQL only: the kill brings them back."""
    async with running() as world:
        world.store.fill(TOPIC, 0, numbered(3))
        await world.ack(*await world.receive())
        queue = world.store.queues[PROGRESS_TOPIC, 0]
        queue.min_offset = queue.confirmed
        await world.kill()
        assert offsets(await world.receive()) == [0, 1, 2]


async def test_an_ack_waits_for_the_log_and_for_what_the_topic_asks() -> None:
    async with running() as world:
        await world.metadata.put_topic(TOPIC, TopicSettings(queues=1, flush=FlushMode.SYNC))
        world.store.fill(TOPIC, 0, numbered(1))
        received = await world.receive()
        modes = world.store.flushes[-1:]
        world.store.held = []
        ack = asyncio.ensure_future(world.ack(*received))
        await until(lambda: bool(world.store.held))
        await asyncio.sleep(0)
        assert not ack.done()
        modes += world.store.flushes[-1:]
        assert modes == [FlushMode.ASYNC, FlushMode.SYNC]
        world.store.confirm()
        assert await ack == [None]


async def test_a_delivery_waits_for_the_log_and_is_counted_across_kills() -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, numbered(1))
        for attempt in range(1, 5):
            [delivery] = await world.receive()
            assert delivery.attempt == attempt
            await world.kill()
        await world.receive(gone=lambda: True)
        await world.kill()
        [delivery] = await world.receive()
        assert delivery.attempt == 5
        world.store.fill(TOPIC, 0, numbered(1))
        world.store.held = []
        receive = asyncio.ensure_future(world.receive())
        await until(lambda: bool(world.store.held))
        await asyncio.sleep(0)
        assert not receive.done()
        receive.cancel()
        with pytest.raises(asyncio.CancelledError):
            await receive
        world.store.confirm()
        [delivery] = await world.receive()
        assert delivery.attempt == 1


async def test_the_database_may_be_gone_for_the_whole_time() -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, numbered(2))
        await world.ack(*await world.receive())
        world.metadata.is_down = True
        for _ in range(5):
            world.store.fill(TOPIC, 0, numbered(3))
            received = await world.receive()
            await world.ack(received[2], received[0])
            await world.broker.offset_cache.write()
        await world.kill()
        again = await world.receive(100)
        assert offsets(again) == [3, 6, 9, 12, 15]


async def test_a_start_at_the_end_is_kept_over_a_kill() -> None:
    async with running() as world:
        await world.group(GroupSettings(start="latest"))
        world.store.fill(TOPIC, 0, numbered(5))
        assert await world.receive() == []
        world.store.fill(TOPIC, 0, numbered(1))
        await world.kill()
        assert offsets(await world.receive()) == [5]


async def test_where_all_queues_are_here_a_group_begins_at_the_end_without_the_database() -> None:
    async with running() as world:
        await world.group(GroupSettings(start="latest"))
        world.store.fill(TOPIC, 0, numbered(5))
        world.metadata.is_down = True
        assert await world.receive() == []
        world.store.fill(TOPIC, 0, numbered(1))
        assert offsets(await world.receive()) == [5]


async def test_where_a_group_begins_is_written_again_after_a_full_disk() -> None:
    async with running() as world:
        await world.send(b"before")
        await world.group(GroupSettings(start="latest"))
        world.store.failure = DiskFull("no room for another segment", outcome="not_stored")
        for _ in range(2):
            with pytest.raises(DiskFull):
                await world.receive()
        world.store.failure = None
        assert await world.receive() == []
        await world.send(b"behind")
        await world.kill()
        assert offsets(await world.receive()) == [1]


async def test_commits_and_resets_survive_a_kill() -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, numbered(9))
        await world.commit(5)
        await world.kill()
        assert world.committed() == {0: 5}
        received = await world.receive(2, force=True)
        await world.ack(received[1])
        await world.commit(2, force=True)
        await world.kill()
        again = await world.receive(20)
        assert offsets(again) == [2, 3, 4, 5, 6, 7, 8]
        assert {d.attempt for d in again} == {1}


async def test_sql_ahead_of_the_log_does_not_count() -> None:
    """A loss of power took the end of the log, with asynchronous flush: the log is the truth."""
    async with running() as world:
        world.store.fill(TOPIC, 0, numbered(5))
        await world.ack(*await world.receive(4))
        await world.broker.offset_cache.write()
        queue = world.store.queues[PROGRESS_TOPIC, 0]
        queue.confirmed -= 1
        await world.kill()
        assert world.committed() == {0: 0}
        assert offsets(await world.receive()) == [0, 1, 2, 3, 4]


async def test_acks_of_messages_that_the_log_has_lost_are_not_acks_of_others() -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, numbered(6))
        received = await world.receive()
        await world.ack(received[0], received[5])
        queue = world.store.queues[TOPIC, 0]
        del queue.records[4:], queue.tag_hashes[4:]
        queue.confirmed = 4
        for _ in range(2):
            await world.kill()
            assert offsets(await world.receive()) == [1, 2, 3]
        world.store.fill(TOPIC, 0, numbered(3))
        assert offsets(await world.receive()) == [4, 5, 6]
        await world.kill()
        assert offsets(await world.receive()) == [1, 2, 3, 4, 5, 6]


async def test_what_was_deleted_does_not_come_back() -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, numbered(3))
        await world.ack(*await world.receive())
        await world.broker.settings_changes.delete_group(GROUP)
        await world.kill()
        assert offsets(await world.receive()) == [0, 1, 2]


async def test_a_deletion_that_a_kill_cut_short_is_finished_by_the_start() -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, numbered(10))
        await world.nack(*await world.receive(2))
        await world.commit(9, force=True)
        await world.metadata.delete_group(GROUP)
        await world.kill()  # before the broker has heard of it
        assert world.store.bounds(retry_topic(GROUP, TOPIC), 0) == (2, 2)
        await world.commit(3)  # makes the group again
        await world.kill()
        assert world.committed() == {0: 3}
        assert offsets(await world.receive(force=True)) == list(range(3, 10))


async def test_a_busy_log_does_not_keep_what_was_deleted() -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, numbered(10))
        await world.commit(9)
        world.store.refusal = TooManyRequests("too many bytes wait to be written")
        await world.broker.settings_changes.delete_group(GROUP)
        world.store.refusal = None
        assert offsets(await world.receive()) == list(range(10))


async def test_a_failed_ack_is_no_ack_and_can_be_repeated() -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, numbered(2))
        received = await world.receive()
        world.store.refusal = StoreFailed("broken")
        with pytest.raises(StoreFailed):
            await world.ack(*received)
        world.store.refusal, world.store.failure = None, DiskFull("no room")
        with pytest.raises(DiskFull):
            await world.ack(*received)
        world.store.failure = None
        assert await world.ack(*received) == [None, None]
        await world.kill()
        assert await world.receive() == []


async def test_a_broken_store_hands_nothing_out_and_a_full_disk_does() -> None:
    async with running() as world:
        world.store.fill(TOPIC, 0, numbered(1))
        await world.receive(topic=TOPIC, group="other")
        for failure in ("refusal", "failure"):
            setattr(world.store, failure, StoreFailed("broken"))
            with pytest.raises(StoreFailed):
                await world.receive()
            setattr(world.store, failure, None)
            assert [d.attempt for d in await world.receive(gone=lambda: True)] == []
        world.store.refusal = DiskFull("no room")
        [delivery] = await world.receive()
        assert delivery.attempt == 1


@pytest.mark.parametrize("how", ["refusal", "failure"])
async def test_no_lease_goes_out_on_a_full_disk_where_others_may_lead(how: str) -> None:
    """They would give the message again while the lease runs, and not count it."""
    async with running() as world:
        world.store.has_gate = True
        world.store.fill(TOPIC, 0, numbered(1))
        assert await world.receive(gone=lambda: True) == []
        setattr(world.store, how, DiskFull("no room"))
        with pytest.raises(DiskFull):
            await world.receive()
        setattr(world.store, how, None)
        [delivery] = await world.receive()
        assert delivery.attempt == 1
        await world.kill()
        assert [each.attempt for each in await world.receive()] == [2]


async def test_a_snapshot_keeps_the_journal_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.broker.journal.journal.ENTRIES_MAX", 10)
    async with running() as world:
        for _ in range(30):
            world.store.fill(TOPIC, 0, numbered(2))
            received = await world.receive()
            await world.ack(received[1])
            await world.broker.consumer_journal.turn()
            low, high = world.store.bounds(PROGRESS_TOPIC, 0)
            assert high - low <= 12
        await world.kill()
        again = await world.receive(100)
        assert offsets(again) == list(range(0, 60, 2))
        assert {d.attempt for d in again} == {2}


async def test_filtered_messages_need_no_entry() -> None:
    async with running() as world:
        for number in range(6):
            world.store.fill(TOPIC, 0, [b"%d" % number], tag="ab"[number % 2])
        received = await world.receive(filter="a")
        await world.ack(*received)
        await world.kill()
        assert await world.receive(filter="a") == []
        assert world.committed() == {0: 6}
