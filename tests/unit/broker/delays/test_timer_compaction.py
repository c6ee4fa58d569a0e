"""What waits long moves with the log; what is done leaves it; counts survive restarts."""

import errno

import pytest

from app.broker.delays import delay_delivery
from app.broker.delays.delay_delivery import DelayDelivery
from app.broker.journal.append_future import flush_store
from app.broker.ports import Store
from app.domain.delays import Due
from app.domain.errors import DiskFull, TimersNotReady
from app.domain.message import Message
from app.domain.names import TIMER_TOPIC
from app.store import Timer
from tests.support.nodes.brokers import TOPIC, World, running
from tests.support.stores.simulated_files import Fault

pytestmark = pytest.mark.anyio
DAY = 86_400_000


async def send_later(world: World, body: bytes, ms: int) -> str:
    due = Due(ms, is_delay=True)
    sent = await world.broker.sender.send(TOPIC, Message(body, tag="t"), queue_id=0, due=due)
    assert sent.recall_handle is not None
    return sent.recall_handle


async def settle(world: World) -> DelayDelivery:
    delays = world.broker.delays
    for _ in range(4):
        await delays.turn()
    return delays


def bodies(world: World) -> list[bytes]:
    if not world.store.bounds(TOPIC, 0).max_offset:
        return []
    read = world.store.read(TOPIC, 0, 0, max_messages=10_000, max_bytes=1 << 30)
    return [world.store.decode(record).body for record in read.records]


async def test_a_message_that_waits_for_weeks_moves_every_two_days_and_comes_once() -> None:
    async with running() as world:
        handle = await send_later(world, b"far", 7 * DAY)
        first = await world.broker.delayed_messages.get(TOPIC, handle)
        for _ in range(3):
            world.clock.advance(ms=2 * DAY)
            await settle(world)
        world.clock.advance(s=11)
        await settle(world)
        await world.broker.delays.compaction.flush()
        bounds = world.store.bounds(TIMER_TOPIC, 0)
        assert (bounds.min_offset, bounds.max_offset) == (5, 7)
        found = await world.broker.delayed_messages.get(TOPIC, handle)
        assert found.recall_handle == handle
        assert (found.deliver_time_ms, found.message.message_id) == (
            first.deliver_time_ms,
            first.message.message_id,
        )
        assert found.message.physical_offset > first.message.physical_offset
        assert bodies(world) == []
        world.clock.advance(ms=DAY)
        await settle(world)
        await settle(world)
        assert bodies(world) == [b"far"]


async def test_cancelling_finds_what_has_moved() -> None:
    async with running() as world:
        handle = await send_later(world, b"far", 7 * DAY)
        world.clock.advance(ms=3 * DAY)
        await settle(world)
        await world.broker.delayed_messages.cancel(TOPIC, handle)
        world.clock.advance(ms=5 * DAY)
        await settle(world)
        assert bodies(world) == []


async def test_a_move_that_fails_leaves_the_message_where_it_is() -> None:
    async with running() as world:
        await send_later(world, b"far", 7 * DAY)
        world.clock.advance(ms=3 * DAY)
        world.store.failure = DiskFull("full")
        await settle(world)
        world.store.failure = None
        world.clock.advance(ms=4 * DAY)
        await settle(world)
        assert bodies(world) == [b"far"]


async def test_what_waits_is_pinned_and_what_is_done_is_trimmed() -> None:
    async with running() as world:
        for number in range(5):
            await send_later(world, b"%d" % number, 1_000)
        delays = await settle(world)
        held = world.store.pins.held()
        assert held is not None
        assert held.name == "delayed messages"
        world.clock.advance(ms=1_000)
        await settle(world)
        await delays.compaction.flush()
        bounds = world.store.bounds(TIMER_TOPIC, 0)
        assert bounds.min_offset == bounds.max_offset
        assert world.store.pins.held() is None


async def test_a_filling_disk_makes_what_holds_much_log_move(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("app.broker.delays.timer_compaction.HELD_BYTES_MIN", 10)
    async with running() as world:
        await send_later(world, b"far", 7 * DAY)
        world.store.state.written_end = 1_000_000
        delays = await settle(world)
        world.clock.advance(s=11)
        before = world.store.bounds(TIMER_TOPIC, 0).max_offset
        await settle(world)
        assert world.store.bounds(TIMER_TOPIC, 0).max_offset == before
        delays.compaction.disk_is_low = True
        world.clock.advance(s=11)
        await delays.turn()
        assert world.store.bounds(TIMER_TOPIC, 0).max_offset == before + 2


async def test_counts_are_exact_after_a_restart_with_and_without_the_files() -> None:
    async with running() as world:
        for number in range(7):
            await send_later(world, b"%d" % number, 1_000 * (number + 1))
        world.clock.advance(ms=3_000)
        await settle(world)
        assert world.broker.delays.waiting_count(TOPIC) == 4
        await world.restart()
        await world.broker.delays.catch_up()
        assert world.broker.delays.waiting_count(TOPIC) == 4
        await world.broker.stop()
        world.store.files.remove("timerlog/manifest")
        world.broker = world.new_broker()
        await world.broker.start()
        await world.broker.delays.catch_up()
        assert world.broker.delays.waiting_count(TOPIC) == 4
        assert world.broker.delays.timers.count == 4


async def test_what_waits_outlives_the_loss_of_the_timer_log_behind_a_trimmed_front() -> None:
    """The record that says that others are done may outlive those that it tells of."""
    async with running() as world:
        for number in range(5):
            await send_later(world, b"%d" % number, 1_000)
        await send_later(world, b"far", DAY)
        world.clock.advance(s=11)
        delays = await settle(world)
        await delays.compaction.flush()
        assert world.store.bounds(TIMER_TOPIC, 0) == (5, 7)
        await world.broker.stop()
        world.store.files.remove("timerlog/manifest")
        world.broker = world.new_broker()
        await world.broker.start()
        delays = await settle(world)
        assert (delays.timers.count, delays.waiting_count(TOPIC)) == (1, 1)
        world.clock.advance(s=11)
        await settle(world)
        await delays.compaction.flush()
        world.clock.advance(ms=DAY)
        await settle(world)
        assert bodies(world)[-1] == b"far"


async def test_a_run_that_a_merge_finds_damaged_is_made_again_from_the_topic() -> None:
    """Nobody looks at what is due in weeks until then; merging does."""
    async with running() as world:
        for number in range(3):
            await send_later(world, b"%d" % number, 30 * DAY + number)
        delays = await settle(world)
        await delays.compaction.flush()
        files = world.store.files
        (name,) = set(files.list("timerlog")) - {"manifest"}
        run = files.open(f"timerlog/{name}")
        run.pwritev([bytes([run.pread(1, 0)[0] ^ 1])], 0)
        for number in range(3, 6):
            await send_later(world, b"%d" % number, DAY)
        await delays.catch_up()
        await delays.compaction.flush()  # merges, which fails
        await settle(world)
        await delays.compaction.flush()
        assert delays.timers.log.watermark == delays.timers.log.position == 6
        world.clock.advance(ms=DAY)
        await settle(world)
        assert bodies(world) == [b"3", b"4", b"5"]


@pytest.mark.parametrize("kind", ["write", "sync", "rename", "sync_directory"])
async def test_a_flush_that_fails_leaves_no_files_and_is_tried_again_after_a_pause(
    kind: str,
) -> None:
    async with running() as world:
        await send_later(world, b"far", DAY)
        delays = await settle(world)
        delays.timers.log._flush_entries = 1
        files = world.store.files
        files.fault = Fault(kind, 1, errno.ENOSPC, lasting=True)
        for _ in range(5):
            await delays.turn()
        assert [name for name in files.list("timerlog") if "manifest" not in name] == []
        assert files.fault.seen == 1
        files.fault = None
        world.clock.advance(s=5)
        await delays.turn()
        assert len(files.list("timerlog")) == 2


@pytest.mark.parametrize("nth", [1, 2, 3])
async def test_runs_that_the_disk_does_not_give_back_are_made_again(nth: int) -> None:
    """At a start: the manifest, a run's trailer, its index."""
    async with running() as world:
        await send_later(world, b"one", DAY)
        delays = await settle(world)
        await delays.compaction.flush()
        await world.broker.stop()
        world.store.files.fault = Fault("read", nth)
        world.broker = world.new_broker()
        await world.broker.start()
        await settle(world)
        assert world.store.files.fault.raised == 1
        world.clock.advance(ms=DAY)
        await settle(world)
        assert bodies(world) == [b"one"]


async def test_a_block_that_the_disk_does_not_give_back_has_the_log_made_again() -> None:
    async with running() as world:
        handle = await send_later(world, b"one", DAY)
        delays = await settle(world)
        await delays.compaction.flush()
        world.store.files.fault = Fault("read", 1)
        with pytest.raises(TimersNotReady):
            await world.broker.delayed_messages.get(TOPIC, handle)
        await settle(world)
        assert (await world.broker.delayed_messages.get(TOPIC, handle)).recall_handle == handle


async def test_a_run_that_cannot_be_removed_does_not_undo_the_flush() -> None:
    async with running() as world:
        await send_later(world, b"1", DAY)
        delays = await settle(world)
        await delays.compaction.flush()
        await send_later(world, b"2", DAY)
        await delays.catch_up()
        world.store.files.fault = Fault("unlink", 1)
        await delays.compaction.flush()
        assert world.store.files.fault.raised == 1
        assert delays.timers.log.watermark == 2
        await world.restart()
        assert len(world.store.files.list("timerlog")) == 2
        assert world.broker.delays.timers.count == 2


@pytest.mark.parametrize("end", ["cancel", "deliver"])
async def test_what_ends_while_the_timer_log_is_written_stays_ended_after_a_kill(
    end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files say that it waits; so its record stays, and with it what says that it is done."""
    async with running() as world:
        handle = await send_later(world, b"far", DAY)
        delays = await settle(world)

        async def end_and_sync(store: Store) -> None:
            await getattr(world.broker.delayed_messages, end)(TOPIC, handle)
            await flush_store(store)

        with monkeypatch.context() as patch:
            patch.setattr("app.broker.delays.timer_compaction.flush_store", end_and_sync)
            await delays.compaction.flush()
        assert world.store.bounds(TIMER_TOPIC, 0).min_offset == 0
        monkeypatch.setattr(delays.compaction, "stop", delays.catch_up)
        await world.kill()
        assert (await settle(world)).timers.count == 0
        world.clock.advance(ms=DAY)
        await settle(world)
        assert bodies(world) == ([b"far"] if end == "deliver" else [])


async def test_a_timer_log_that_is_made_only_in_part_is_gone_on_with() -> None:
    """It knows that it never had some records whose end is still to come."""
    async with running() as world:
        await send_later(world, b"near", 1_000)
        await send_later(world, b"far", DAY)
        await settle(world)
        world.clock.advance(s=2)
        delays = await settle(world)  # the third record says that the first waits no more
        world.store.retain_from(TIMER_TOPIC, 0, 1)
        await delays.timers.rebuild()
        assert not await delays.timers.catch_up(1)
        assert (delays.timers.log.position, delays.timers.log.count) == (2, 1)
        await delays.compaction.flush()
        again = world.store.timer_log()
        assert again.load(1, 3)
        again.remove(Timer(0, 0), TOPIC)
        assert (again.position, again.made_from, again.count, again.count_for(TOPIC)) == (
            2,
            1,
            1,
            1,
        )
        await settle(world)
        assert delays.timers.log.count == 1


async def test_many_records_are_written_down_while_they_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Or each record that is added takes longer, the more there are."""
    async with running() as world:
        for number in range(50):
            await send_later(world, b"far", DAY + number)
        delays = await settle(world)
        await delays.timers.rebuild()
        log, most = delays.timers.log, 0
        log._flush_entries = 10
        add = log.add

        def noted(timer: Timer, topic: str) -> None:
            nonlocal most
            add(timer, topic)
            most = max(most, log.changes)

        log.add = noted  # type: ignore[method-assign]
        monkeypatch.setattr(delay_delivery, "FLUSH_ENTRIES", 10)
        await delays.turn()
        assert (most, log.count) == (10, 50)


async def test_nothing_moves_before_it_is_known_what_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As where a node that was down for days reads much back."""
    async with running() as world:
        handle = await send_later(world, b"far", 7 * DAY)
        await settle(world)
        await world.broker.delayed_messages.cancel(TOPIC, handle)
        for body, days in ((b"first", 4), (b"second", 7)):
            await send_later(world, body, days * DAY)
        world.clock.advance(ms=3 * DAY)
        delays = world.broker.delays
        await delays.timers.rebuild()
        monkeypatch.setattr(delay_delivery, "FLUSH_ENTRIES", 1)
        await settle(world)
        assert delays.timers.count == 2
        for _ in range(2):
            world.clock.advance(ms=4 * DAY)
            await settle(world)
        assert bodies(world) == [b"first", b"second"]
