"""An epoch for each life of the node, in the log; and offsets in SQL, which nobody believes.

Controls: `LeaseIds` from the clock, and offsets of SQL that count, fail these tests.
"""

import asyncio
import logging

import msgspec
import pytest

from app.broker.leasing.epochs import LEASES_OF_EPOCH, RENEWED_AFTER_BYTES, epoch_of
from app.domain.errors import (
    CurlewError,
    DiskFull,
    ReceiptHandleExpired,
    StoreFailed,
    SystemBusy,
    TooManyRequests,
)
from app.domain.identity import Kind
from app.domain.names import EPOCHS_TOPIC, PROGRESS_TOPIC
from app.domain.positions import CommittedOffset, QueueOffset
from app.domain.settings import GroupSettings
from app.store.write.first_steps import FirstSteps
from tests.support.nodes.brokers import GROUP, TOPIC, World, offsets, running

pytestmark = pytest.mark.anyio

LOG_FULL = DiskFull("no room")


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


async def lease_id(world: World) -> int:
    """The id of a lease of one more message."""
    await world.send(b"x")
    (delivery,) = await world.receive(1)
    return world.broker.settler._signer.read(delivery.receipt_handle).lease_id


async def test_each_life_has_a_higher_epoch_whatever_the_clock_says() -> None:
    async with running() as world:
        ids = [await lease_id(world)]
        for life in range(2, 5):
            world.clock.set_wall(world.clock.now_ms() - 3_600_000)
            await (world.kill() if life % 2 else world.restart())
            assert world.broker.epochs.current == life
            ids.append(await lease_id(world))
        assert [epoch_of(each) for each in ids] == [1, 2, 3, 4]
        assert len({each % LEASES_OF_EPOCH for each in ids}) == 4
        assert ids == sorted(ids)


async def test_a_damaged_epoch_neither_repeats_lease_ids_nor_lets_sql_count() -> None:
    async with running() as world:
        await world.group(GroupSettings())
        early = await lease_id(world)
        world.store.queues[EPOCHS_TOPIC, 0].records[-1] = None
        other = CommittedOffset("other", TOPIC, 0, QueueOffset(1))
        await world.group(GroupSettings(), "other")
        await world.metadata.commit_offsets([other])
        await world.restart()
        assert world.committed("other") == {}
        assert await lease_id(world) != early


async def test_nobody_gets_a_lease_before_the_epoch_is_on_the_medium() -> None:
    async with running() as world:
        queue = world.store.queues[EPOCHS_TOPIC, 0]
        assert queue.confirmed == 1
        assert world.store.flushes[0].value == "sync"


async def test_a_journal_of_epochs_stays_short() -> None:
    async with running() as world:
        for life in range(1, 4):
            await world.restart()
            assert world.store.bounds(EPOCHS_TOPIC, 0) == (life, life + 1)
        await world.broker.epochs.journal.write_snapshot()
        low, high = world.store.bounds(EPOCHS_TOPIC, 0)
        assert (low, high) == (4, 7)
        await world.restart()
        assert world.broker.epochs.current == 5


async def test_an_epoch_is_written_again_before_it_holds_much_of_the_log() -> None:
    async with running() as world:
        await world.broker.epochs.renew()
        assert world.store.bounds(EPOCHS_TOPIC, 0) == (0, 1)
        world.store.state.written_end += RENEWED_AFTER_BYTES
        for _ in range(2):
            await world.broker.epochs.renew()
            assert world.store.bounds(EPOCHS_TOPIC, 0) == (1, 4)
        await world.restart()
        assert world.broker.epochs.current == 2


@pytest.mark.parametrize("how", ["refusal", "failure"])
async def test_a_full_disk_keeps_no_node_from_starting(how: str) -> None:
    """The epoch comes before all else when there is room; until then ids are of a random place."""
    async with running() as world:
        await world.send(b"x")
        starts = set()
        for _ in range(3):
            world.store.before_next, world.store.first_steps = None, FirstSteps(world.store)
            setattr(world.store, how, LOG_FULL)
            await world.restart()
            assert world.broker.epochs.current == 2
            starts.add(world.broker.groups.lease_ids.next)
        assert len(starts) == 3
        assert {epoch_of(start) for start in starts} == {2}
        await asyncio.sleep(0)  # the last refusal is on its way
        setattr(world.store, how, None)
        await world.send(b"y")
        records = world.store.queues[EPOCHS_TOPIC, 0].confirmed
        assert records == 2
        await world.restart()
        assert world.broker.epochs.current == 3


@pytest.mark.parametrize("lack", [SystemBusy("no descriptor"), TooManyRequests("busy")])
async def test_no_other_shortage_keeps_a_node_from_starting(lack: CurlewError) -> None:
    async with running() as world:
        world.store.failure = lack
        await world.restart()
        await asyncio.sleep(0)
        world.store.failure = None
        await world.send(b"y")
        await world.restart()
        assert world.broker.epochs.current == 3


@pytest.mark.parametrize("how", ["refusal", "failure"])
async def test_a_store_that_takes_no_writes_starts_and_can_be_read(how: str) -> None:
    async with running() as world:
        await world.send(b"x")
        setattr(world.store, how, StoreFailed("the medium is gone"))
        await world.restart()
        assert [world.store.decode(each).body for each in (await world.pull()).read.records] == [
            b"x"
        ]
        await asyncio.sleep(0)
        setattr(world.store, how, None)


async def test_handles_of_an_earlier_life_are_void() -> None:
    async with running() as world:
        await world.send(b"a")
        (early,) = await world.receive()
        await world.kill()
        await world.receive()
        assert await world.ack(early) == [ReceiptHandleExpired]


class TestCopyInSql:
    async def test_what_the_log_does_not_know_does_not_count(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A loss of power took the end of the log; SQL heard of more than was kept."""
        async with running() as world:
            await world.group(GroupSettings())
            rows = [CommittedOffset(GROUP, TOPIC, 0, QueueOffset(10))]
            await world.metadata.commit_offsets(rows)
            with caplog.at_level(logging.WARNING):
                await world.restart()
            assert "1 queues of which the log knows nothing; they do not count" in caplog.text
            assert world.committed() == {}
            world.store.fill(TOPIC, 0, numbered(14))
            received = await world.receive(14)
            assert offsets(received) == list(range(14))
            await world.ack(*received[:2])
            await world.broker.offset_cache.write()
            assert world.metadata.committed(GROUP, TOPIC) == {0: 2}

    async def test_it_is_put_right_by_the_log_at_the_start(self) -> None:
        async with running() as world:
            world.store.fill(TOPIC, 0, numbered(4))
            await world.ack(*await world.receive(2))
            await world.broker.offset_cache.write()
            rows = [CommittedOffset(GROUP, TOPIC, 0, QueueOffset(4))]
            await world.metadata.commit_offsets(rows, force=True)
            await world.restart()
            assert world.metadata.committed(GROUP, TOPIC) == {0: 2}

    async def test_a_version_without_epochs_kept_offsets_there(self) -> None:
        """They are written into the log once, and no further than the queue reaches."""
        world = World()
        await world.topic(queues=2)
        await world.group(GroupSettings(start="latest"))
        world.store.fill(TOPIC, 0, numbered(4))
        world.store.fill(TOPIC, 1, numbered(1))
        for queue, offset in ((0, 2), (1, 9)):
            row = CommittedOffset(GROUP, TOPIC, queue, QueueOffset(offset))
            await world.metadata.commit_offsets([row])
        await world.broker.start()
        assert world.committed() == {0: 2, 1: 1}
        await world.metadata.delete_offsets(GROUP, TOPIC)
        await world.restart()
        assert world.committed() == {0: 2, 1: 1}
        assert offsets(await world.receive()) == [2, 3]
        await world.broker.stop()

    async def test_they_are_taken_over_on_a_full_disk_too(self) -> None:
        world = World()
        await world.topic()
        await world.group(GroupSettings(start="latest"))
        world.store.fill(TOPIC, 0, numbered(4))
        row = CommittedOffset(GROUP, TOPIC, 0, QueueOffset(2))
        await world.metadata.commit_offsets([row])
        world.store.failure = LOG_FULL
        await world.broker.start()
        await asyncio.sleep(0)
        world.store.failure = None
        await world.send(b"4")
        await world.receive(1)
        await world.restart()
        assert world.committed() == {0: 2}
        assert offsets(await world.receive()) == [2, 3, 4]
        await world.broker.stop()


@pytest.mark.parametrize(
    ("how", "lack"),
    [
        ("refusal", LOG_FULL),
        ("failure", LOG_FULL),
        ("failure", SystemBusy("no descriptor")),
    ],
)
async def test_where_a_reader_begins_outlives_a_shortage(how: str, lack: CurlewError) -> None:
    """What binds the group to the topic would take back the place, if it came behind it."""
    async with running(queues=2) as world:
        await world.group(GroupSettings(start="latest"))
        world.store.fill(TOPIC, 0, numbered(4))
        snapshot = world.metadata.snapshot
        group, topic = snapshot.groups[GROUP], snapshot.topics[TOPIC]
        setattr(world.store, how, lack)
        assert await world.broker.groups.offsets.positions(group, topic) == [4, 0]
        await asyncio.sleep(0)
        setattr(world.store, how, None)
        await world.send(b"4", b"5")
        await world.commit(0, queue_id=1)
        await world.restart()
        assert world.committed() == {0: 4, 1: 0}
        assert await world.broker.groups.offsets.positions(group, topic) == [4, 0]


async def test_nobody_hears_where_a_group_begins_before_the_log_has_it() -> None:
    """Not the second member that asks while the first one's place is being written, either."""
    async with running() as world:
        await world.group(GroupSettings(start="latest"))
        world.store.fill(TOPIC, 0, numbered(4))
        snapshot = world.metadata.snapshot
        group, topic = snapshot.groups[GROUP], snapshot.topics[TOPIC]
        world.store.held = []
        asked = [
            asyncio.ensure_future(world.broker.groups.offsets.positions(group, topic))
            for _ in range(2)
        ]
        for _ in range(5):
            await asyncio.sleep(0)
        assert [each.done() for each in asked] == [False, False]
        world.store.confirm()
        world.store.held = None
        assert await asyncio.gather(*asked) == [[4], [4]]


async def test_a_reader_of_a_topic_made_again_keeps_its_place_over_a_full_disk() -> None:
    """What binds the group to the new topic forgets what is known of the earlier one, and waits for
    room as the place does: in front of it."""
    async with running() as world:
        await world.group(GroupSettings(start="latest"))
        world.store.fill(TOPIC, 0, numbered(1))
        await world.commit(1)
        world.broker.offset_cache.forget(topic=TOPIC)
        was = world.metadata.snapshot.topics[TOPIC].generation
        await world.metadata.set_generation(Kind.TOPIC, TOPIC, 77, was)  # as if made again
        world.store.fill(TOPIC, 0, numbered(3))
        snapshot = world.metadata.snapshot
        group, topic = snapshot.groups[GROUP], snapshot.topics[TOPIC]
        world.store.generations[TOPIC] = 77, False
        world.store.refusal = LOG_FULL
        assert await world.broker.groups.offsets.positions(group, topic) == [4]
        assert world.broker.consumer_journal.is_bound(group, topic)
        world.store.refusal = None
        await world.send(b"4")
        entries = world.store.queues[PROGRESS_TOPIC, 0].records
        told = [
            msgspec.msgpack.decode(world.store.decode(memoryview(each)).body)
            for each in entries[-2:]
            if each is not None
        ]
        assert told == [
            [9, GROUP, TOPIC, [group.generation, 77], False],
            [3, GROUP, [[TOPIC, 0, 4]]],
        ]
