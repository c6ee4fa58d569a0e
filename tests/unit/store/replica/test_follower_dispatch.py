"""A follower's queues and keys are the leader's, up to the watermark and never beyond."""

from dataclasses import dataclass

import pytest

from app.domain.limits import Limits
from app.runtime.shortage_log import ShortageLog
from app.store.formats.record.record import decode_fields
from app.store.fs.files import FileSystem
from app.store.lifecycle.checkpoints import Checkpoints
from app.store.lifecycle.dispatcher import BlockDispatcher
from app.store.lifecycle.store_parts import StoreParts
from app.store.log.commit_log import CommitLog
from app.store.log.log_scan import LogScanner
from app.store.queues.queue_table import QueueTable
from app.store.replica.block_reader import BlockReader
from app.store.replica.follower_dispatch import FollowerDispatch
from app.store.replica.replica_log import ReplicaLog
from tests.support.stores.clock import FakeClock
from tests.support.stores.simulated_files import SimulatedFiles
from tests.support.stores.stores import SMALL
from tests.unit.store.replica.logs import SHAPE, block_ends, fill

Units = dict[tuple[str, int], list[int]]


@dataclass
class Opened:
    """A store as an opening leaves it, with what a follower has beside."""

    parts: StoreParts
    replica: ReplicaLog
    dispatch: FollowerDispatch


def opened(files: FileSystem, range_bytes: int = 700) -> Opened:
    parts = StoreParts.open(files, SMALL, FakeClock(), lambda _call: None, Limits())
    end = parts.recovery.end
    replica = ReplicaLog(files, parts.log, SHAPE, end)
    dispatcher = BlockDispatcher(parts.queues, parts.index, indexed_end=0)
    reader = BlockReader(parts.log, SHAPE, range_bytes)
    return Opened(parts, replica, FollowerDispatch(reader, dispatcher, end, replica.fresh))


def leader(seed: int) -> Opened:
    files = SimulatedFiles()
    fill(files, seed)
    return opened(files)


def units(queues: QueueTable) -> Units:
    """Physical offset of each message of each queue."""
    found: Units = {}
    for queue in queues:
        read = queue.units(queue.min_offset, queue.max_offset)
        found[queue.topic, queue.queue_id] = [unit[0] for unit in read]
    return found


def keyed(source: Opened) -> list[int | None]:
    """Where the index finds records with a key."""
    return list(source.parts.index.candidates("orders", "k", 0, 1 << 60, wait_for_disk=True))


def units_of_log(log: CommitLog, end: int) -> Units:
    """The same of the records of a log below `end`, read from the log itself."""
    found: Units = {}
    for at, record in LogScanner(log).records(0):
        if at < end:
            fields = decode_fields(record)
            found.setdefault((fields.topic, fields.queue_id), []).append(at)
    return found


def copy(source: Opened, target: Opened) -> None:
    reader, end = BlockReader(source.parts.log, SHAPE), source.replica.written
    while target.replica.written < end:
        found = reader.read(target.replica.written, end)
        target.replica.write(target.replica.check(found))


@pytest.mark.parametrize("seed", [1, 2])
def test_all_below_the_watermark_and_nothing_more(seed: int) -> None:
    source = leader(seed)
    target = opened(SimulatedFiles())
    copy(source, target)
    ends = block_ends(source.parts.log)
    for high_watermark in [*ends[::5], ends[-1]]:
        while target.dispatch.advance(high_watermark):
            assert target.dispatch.end < high_watermark
        assert target.dispatch.end == high_watermark
        assert units(target.parts.queues) == units_of_log(source.parts.log, high_watermark)
        assert not target.dispatch.advance(high_watermark)
    assert units(target.parts.queues) == units(source.parts.queues)
    assert target.dispatch.store_time_ms == source.parts.recovery.store_time_ms
    assert {queue.next_offset - queue.max_offset for queue in target.parts.queues} == {0}
    found = [keyed(each) for each in (source, target)]
    assert found[0] == found[1] != []


def test_a_checkpoint_at_the_watermark_is_where_the_next_start_goes_on() -> None:
    source = leader(1)
    files = SimulatedFiles()
    target = opened(files)
    copy(source, target)
    ends = block_ends(source.parts.log)
    high_watermark = ends[len(ends) // 2]
    while target.dispatch.advance(high_watermark):
        pass
    target.replica.sync(target.replica.written)
    parts = target.parts
    checkpoints = Checkpoints(files, parts.queues, parts.index, ShortageLog())
    writing = checkpoints.begin(
        target.dispatch.end, store_time_ms=target.dispatch.store_time_ms, clean=False
    )
    assert not writing.collect()
    writing.run()
    again = opened(files.kill())
    behind = [at for at, _ in LogScanner(source.parts.log).records(high_watermark)]
    assert again.parts.recovery.scanned_records == len(behind)


def test_what_was_just_written_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    source = leader(1)
    target = opened(SimulatedFiles())
    copy(source, target)
    monkeypatch.delattr(BlockReader, "read")
    while target.dispatch.advance(target.replica.written):
        pass
    assert units(target.parts.queues) == units(source.parts.queues)


def test_what_was_cut_and_written_anew_is_dispatched_as_it_is_now() -> None:
    source, other = leader(1), leader(2)
    target = opened(SimulatedFiles())
    copy(source, target)
    target.replica.cut(0, 0)
    copy(other, target)
    while target.dispatch.advance(target.replica.written):
        pass
    assert units(target.parts.queues) == units(other.parts.queues)
