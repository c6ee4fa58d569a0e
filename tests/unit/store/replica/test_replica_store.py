"""A directory opened as a replica: of its shard, dispatched to its checkpoint, and judged."""

from dataclasses import replace

import pytest
from typing_extensions import override

from app.domain.errors import StoreFailed
from app.domain.limits import Limits
from app.store import MessageStore, StoreUnusable, paths
from app.store.config import StoreConfig
from app.store.formats.files.replica_files import (
    KeptHistory,
    KeptPromise,
    KeptTerm,
    KeptTermStart,
)
from app.store.fs.files import StoreLocked
from app.store.lifecycle.opening import ShardMeta
from app.store.lifecycle.store_parts import StoreParts
from app.store.log import page_cache_limit
from app.store.replica.block_reader import BlockReader
from app.store.replica.replica_store import KeptLock, OpeningOptions, ReplicaDirectory, ReplicaStore
from tests.support.stores.clock import FakeClock
from tests.support.stores.held_back import HoldingGate
from tests.support.stores.simulated_files import NOTHING, CrashPlan, SimulatedFiles
from tests.support.stores.stores import SMALL
from tests.support.stores.turns import ManualTurns
from tests.unit.store.replica.logs import SHAPE, block_ends, fill
from tests.unit.store.replica.test_follower_dispatch import units, units_of_log

SHARD = ShardMeta("00c0ffee", SMALL.segment_bytes)


class Opened:
    """A directory with one opening of it."""

    def __init__(
        self,
        files: SimulatedFiles,
        shard: ShardMeta = SHARD,
        number: int = 1,
        config: StoreConfig = SMALL,
    ) -> None:
        self.files = files
        self.directory = ReplicaDirectory(files, lambda: number)
        options = OpeningOptions(config, FakeClock(), lambda _call: None, Limits(), shard)
        self.store = ReplicaStore.open(self.directory, options)

    def take(self, leader: StoreParts, to: int) -> None:
        reader, log = BlockReader(leader.log, SHAPE), self.store.log
        while log.written < to:
            log.write(log.check(reader.read(log.written, to)))

    def show(self, high_watermark: int) -> None:
        while self.store.advance(high_watermark):
            pass

    def checkpoint(self) -> None:
        self.store.log.sync(self.store.log.written)
        self.store.begin_checkpoint().run()

    def kill(self) -> SimulatedFiles:
        self.store.close()
        return self.files.kill()

    def stop(self) -> None:
        self.store.log.sync(self.store.log.written)
        self.directory.incarnation.note_stop(self.store.log.written)
        self.store.stop()
        self.store.close()
        self.directory.release()


@pytest.fixture(scope="module")
def leader() -> StoreParts:
    files = SimulatedFiles()
    fill(files)
    return StoreParts.open(files, SMALL, FakeClock(), lambda _call: None, Limits())


def test_an_empty_directory_becomes_one_of_the_shard() -> None:
    shard = ShardMeta("00c0ffee", 3 * SMALL.segment_bytes)
    opened = Opened(SimulatedFiles(), shard)
    meta = opened.store.parts.meta
    assert (meta.store_id, meta.segment_bytes) == shard
    assert (opened.store.log.written, opened.store.high_watermark) == (0, 0)
    opened.stop()
    for other in (ShardMeta("00c0ffef", shard.segment_bytes), SHARD):
        with pytest.raises(StoreUnusable, match="the directory is of store 00c0ffee"):
            Opened(opened.files, other)
        opened.files.unlock()


def test_a_follower_keeps_no_more_of_its_log_in_memory_than_is_asked_for(
    leader: StoreParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It did not let go of anything: only a leader's writer did."""
    step, end = 1024, block_ends(leader.log)[-1]
    monkeypatch.setattr(page_cache_limit, "STEP_BYTES", step)
    opened = Opened(SimulatedFiles(), config=replace(SMALL, log_cache_bytes=2 * step))
    gone: list[tuple[int, int]] = []
    log = opened.store.parts.log
    monkeypatch.setattr(log, "let_go", lambda start, end: gone.append((start, end)))
    opened.take(leader, end)
    opened.store.let_go()
    assert gone == [], "what is not on the medium is not let go of"
    opened.store.log.sync(end)
    opened.store.let_go()
    assert gone == [(0, (end - 2 * step) // step * step)]
    opened.stop()


def test_one_process_has_it() -> None:
    opened = Opened(SimulatedFiles())
    with pytest.raises(StoreLocked):
        Opened(opened.files)
    opened.stop()
    Opened(opened.files).stop()


def test_nothing_is_made_of_what_is_behind_the_checkpoint(leader: StoreParts) -> None:
    ends = block_ends(leader.log)
    middle, last = ends[len(ends) // 2], ends[-1]
    opened = Opened(SimulatedFiles())
    opened.take(leader, last)
    opened.show(middle)
    opened.checkpoint()
    opened.show(ends[-2])  # in memory, and gone with it
    again = Opened(opened.kill())
    assert again.store.log.written == last
    assert again.store.high_watermark == middle
    assert units(again.store.parts.queues) == units_of_log(leader.log, middle)
    again.show(last)
    assert units(again.store.parts.queues) == units_of_log(leader.log, last)
    assert again.directory.incarnation.number == 1


def test_without_a_checkpoint_nothing_is_made(leader: StoreParts) -> None:
    opened = Opened(SimulatedFiles())
    opened.take(leader, block_ends(leader.log)[-1])
    opened.show(block_ends(leader.log)[-1])
    files = opened.kill()
    for path in (paths.CHECKPOINT, paths.CHECKPOINT_COPY):
        files.remove(path)
    again = Opened(files)
    assert again.store.high_watermark == 0
    assert units(again.store.parts.queues) == {}
    assert again.store.log.written == block_ends(leader.log)[-1]


def test_half_a_block_at_the_end_is_cut(leader: StoreParts) -> None:
    ends = block_ends(leader.log)
    opened = Opened(SimulatedFiles())
    opened.take(leader, ends[5])
    piece = BlockReader(leader.log, SHAPE).read(ends[5], ends[6])
    opened.store.parts.log.write(ends[5], [bytes(piece.data)[:-3]])
    again = Opened(opened.kill())
    assert again.store.log.written == ends[5]
    assert again.files.exists(paths.cut_tail(ends[5]))


def test_a_clean_stop_is_gone_on_from(leader: StoreParts) -> None:
    ends = block_ends(leader.log)
    opened = Opened(SimulatedFiles())
    opened.take(leader, ends[-1])
    opened.show(ends[-1])
    opened.stop()
    again = Opened(opened.files.crash(CrashPlan(0, {}, NOTHING)), number=2)
    assert again.store.parts.recovery.scanned_bytes == 0
    assert again.store.high_watermark == ends[-1]
    assert again.directory.incarnation.number == 1


def test_behind_a_loss_of_power_it_is_another_member(leader: StoreParts) -> None:
    ends = block_ends(leader.log)
    opened = Opened(SimulatedFiles())
    opened.take(leader, ends[-1])
    opened.checkpoint()
    again = Opened(opened.files.crash(CrashPlan(0, {}, NOTHING)), number=2)
    assert again.directory.incarnation.number == 2


def test_behind_a_loss_of_power_a_hole_ends_the_log(leader: StoreParts) -> None:
    """Records say what was on the medium of who led, and a hole that they deny is one here."""
    ends = block_ends(leader.log)
    opened = Opened(SimulatedFiles())
    opened.take(leader, ends[-1])
    opened.store.log.sync(ends[-1])
    at = ends[4]
    opened.store.parts.log.write(at, [bytes(40)])
    opened.store.parts.log.sync()
    again = Opened(opened.files.crash(CrashPlan(0, {}, NOTHING)), number=2)
    assert again.store.log.written == at


def test_who_begins_to_lead_has_all_dispatched(leader: StoreParts) -> None:
    ends = block_ends(leader.log)
    opened = Opened(SimulatedFiles())
    opened.take(leader, ends[-1])
    opened.show(ends[3])
    opened.store.dispatch_all()
    assert units(opened.store.parts.queues) == units_of_log(leader.log, ends[-1])
    assert opened.store.parts.recovery.end == opened.store.log.flushed == ends[-1]
    assert opened.store.parts.recovery.store_time_ms == leader.recovery.store_time_ms


def test_a_leader_that_dies_before_its_log_is_confirmed_leaves_nothing_of_it(
    leader: StoreParts,
) -> None:
    ends = block_ends(leader.log)
    opened = Opened(SimulatedFiles())
    opened.take(leader, ends[-1])
    opened.show(ends[7])
    confirmed = opened.store.high_watermark
    opened.store.dispatch_all()
    store = MessageStore.over(
        opened.store.parts,
        KeptLock(),
        ManualTurns(),
        HoldingGate(),
        opened.store.checkpoints,
        confirmed,
    )
    status = store.status()
    assert (status.confirmed_end, status.written_end) == (confirmed, ends[-1])
    store.begin_checkpoint().run()
    store.fence("it dies", lambda: StoreFailed("it dies"))
    store.close()
    again = Opened(opened.files.kill())
    assert again.store.high_watermark == confirmed
    assert again.store.log.written == ends[-1]
    assert units(again.store.parts.queues) == units_of_log(leader.log, confirmed)


def test_a_lone_node_does_not_take_the_directory_of_a_replica() -> None:
    """It would count all that stands in the log as confirmed."""
    files = SimulatedFiles()
    opened = Opened(files)
    opened.directory.replica_files.keep_promise(KeptPromise(KeptTerm(1, 2), 0, ()))
    opened.stop()
    with pytest.raises(StoreUnusable, match="that of a replica"):
        MessageStore.open(files, SMALL, FakeClock(), ManualTurns())
    Opened(files).stop()


def test_segments_are_deleted_below_the_leaders_start_and_behind_the_checkpoint(
    leader: StoreParts,
) -> None:
    """What no start and no dispatch needs; and a start finds the same queues without them."""
    ends, size = block_ends(leader.log), SMALL.segment_bytes
    last = ends[-1]
    opened = Opened(SimulatedFiles())
    opened.take(leader, last)
    log = opened.store.parts.log
    assert len(log.bases) > 3
    assert opened.store.delete_below(last, last) == 0, "nothing is dispatched"
    opened.show(last)
    assert opened.store.delete_below(last, 0) == 0, "the checkpoint is not written"
    opened.checkpoint()
    assert opened.store.delete_below(2 * size - 1, last) == 1
    assert log.bases[0] == log.start == size
    assert opened.store.delete_below(2 * size, last) == 1
    assert opened.store.delete_below(2 * size, last) == 0
    kept = {
        queue: [at for at in places if at >= 2 * size]
        for queue, places in units_of_log(leader.log, last).items()
    }
    assert units(opened.store.parts.queues) == kept
    again = Opened(opened.kill())
    assert again.store.parts.log.start == 2 * size
    assert again.store.high_watermark == last
    assert units(again.store.parts.queues) == kept
    assert again.directory.incarnation.number == 1


class Killed(Exception):
    """The process dies here."""


def stopped(leader: StoreParts) -> SimulatedFiles:
    """A directory that has shown all of the log, with timers and an index."""
    opened = Opened(SimulatedFiles())
    opened.take(leader, block_ends(leader.log)[-1])
    opened.show(block_ends(leader.log)[-1])
    opened.stop()
    files = opened.files
    files.make_directory(paths.TIMER_LOG)
    for name in (paths.TIMER_MANIFEST, paths.timer_run(0)):
        files.open(name, create=True).close()
    files.sync_directory(paths.TIMER_LOG)
    return files


def derived(files: SimulatedFiles) -> list[str]:
    """Files that are made of the log."""
    directories = (paths.TIMER_LOG, paths.INDEX, paths.CONSUME_QUEUES)
    inodes = files.names.items()
    return [path for path, each in inodes if path.startswith(directories) and not each.directory]


def made_anew(files: SimulatedFiles) -> Opened:
    directory = ReplicaDirectory(files, lambda: 7)
    directory.make_anew("a loss was told")
    directory.release()
    assert derived(files) == []
    return Opened(files, number=8)


def test_made_anew_it_has_shown_nothing_and_is_another_member(leader: StoreParts) -> None:
    files = stopped(leader)
    assert len(derived(files)) > 4
    again = made_anew(files)
    assert again.store.high_watermark == 0
    assert again.store.log.written == block_ends(leader.log)[-1]
    assert again.directory.incarnation.number != 1
    again.show(again.store.log.written)
    assert units(again.store.parts.queues) == units_of_log(leader.log, again.store.log.written)


@pytest.mark.parametrize("is_power_lost", [False, True])
def test_killed_while_it_is_made_anew_it_is_asked_for_again(
    leader: StoreParts, is_power_lost: bool
) -> None:
    """As long as anything is left of what was made, the checkpoint says that it was shown."""
    steps = 0
    while True:
        files, calls = stopped(leader), 0

        def die(kind: str, last: int = steps) -> None:
            nonlocal calls
            if kind in ("unlink", "sync_directory"):
                calls += 1
                if calls > last:
                    raise Killed

        directory = ReplicaDirectory(files, lambda: 7)
        files.on_call = die
        try:
            directory.make_anew("a loss was told")
        except Killed:
            files.on_call = lambda _kind: None
        else:
            break
        after = files.crash(CrashPlan(0, {}, NOTHING)) if is_power_lost else files.kill()
        left = derived(after)
        again = Opened(after, number=9)
        assert again.store.high_watermark or not left, f"killed at step {steps}: {left}"
        assert again.directory.incarnation.number != 1 or not steps
        again.stop()
        assert made_anew(after).store.high_watermark == 0
        steps += 1
    assert steps > 10


def test_a_directory_among_the_queues_that_no_store_made_stays(leader: StoreParts) -> None:
    class Strange(SimulatedFiles):
        @override
        def remove(self, path: str) -> None:
            if self.names[path].directory:
                raise IsADirectoryError(path)
            super().remove(path)

    files = stopped(leader)
    files.__class__ = Strange
    files.make_directory(f"{paths.INDEX}/notes")
    directory = ReplicaDirectory(files, lambda: 7)
    directory.make_anew("a loss was told")
    assert derived(files) == []
    assert files.exists(f"{paths.INDEX}/notes")


# --- beginning where the leader's log begins


START = 4 * SMALL.segment_bytes
BELOW = (KeptTermStart(1, 7, 0), KeptTermStart(3, 9, 512))


def told_to_begin(leader: StoreParts) -> SimulatedFiles:
    files = stopped(leader)
    directory = ReplicaDirectory(files, lambda: 7)
    directory.begin_anew(START, BELOW, "the leader has deleted what comes next")
    directory.release()
    return files


def check_begun(opened: Opened) -> None:
    """It has nothing, and goes on at `START`."""
    store = opened.store
    assert (store.log.start, store.log.written, store.high_watermark) == (START, START, START)
    assert units(store.parts.queues) == {}
    assert opened.directory.replica_files.history() == KeptHistory(BELOW)
    assert opened.directory.replica_files.beginning() is None
    assert opened.directory.incarnation.number != 1
    assert store.parts.repair.damages.counts() == {}


def test_an_empty_log_begins_where_the_leaders_does(leader: StoreParts) -> None:
    files = told_to_begin(leader)
    opened = Opened(files, number=8)
    check_begun(opened)
    opened.stop()
    again = Opened(files, number=9)
    check_begun(again)
    again.stop()
    again = Opened(files.crash(CrashPlan(0, {}, NOTHING)), number=10)
    check_begun(again)


@pytest.mark.parametrize("is_power_lost", [False, True])
def test_killed_while_it_begins_anew_it_begins_at_the_next_opening(
    leader: StoreParts, is_power_lost: bool
) -> None:
    steps = 0
    while True:
        files, calls = told_to_begin(leader), 0

        def die(kind: str, last: int = steps) -> None:
            nonlocal calls
            if kind in ("unlink", "sync_directory", "rename", "create"):
                calls += 1
                if calls > last:
                    raise Killed

        files.on_call = die
        try:
            Opened(files, number=8)
        except Killed:
            files.on_call = lambda _kind: None
        else:
            break
        after = files.crash(CrashPlan(0, {}, NOTHING)) if is_power_lost else files.kill()
        check_begun(Opened(after, number=9))
        steps += 1
    assert steps > 20
