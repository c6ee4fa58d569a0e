"""A follower's log: the leader's bytes at the leader's places, or nothing of them."""

import errno
from collections.abc import Iterable
from pathlib import Path

import pytest

from app.domain.shortages import shortage_of
from app.store import OsFiles, paths
from app.store.fs.files import FileSystem
from app.store.log.commit_log import CommitLog
from app.store.replica.block_reader import BlockReader
from app.store.replica.block_walk import BlockRange, BlocksRefused
from app.store.replica.replica_log import CutBelowWatermark, ReplicaLog, ReplicaLogFailed
from tests.support.stores.simulated_files import NOTHING, CrashPlan, Fault, SimulatedFiles
from tests.support.stores.stores import SMALL, open_store
from tests.unit.store.replica.logs import SHAPE, block_ends, fill

SEGMENT = SMALL.segment_bytes


def leader(seed: int = 1, range_bytes: int = 700) -> tuple[CommitLog, list[BlockRange]]:
    """A log, and all of it as it travels."""
    files = SimulatedFiles()
    end = fill(files, seed)
    log = CommitLog(files, SEGMENT)
    reader = BlockReader(log, SHAPE, range_bytes)
    ranges = [reader.read(0, end)]
    while ranges[-1].end < end:
        ranges.append(reader.read(ranges[-1].end, end))
    return log, ranges


def follower(files: FileSystem | None = None) -> tuple[FileSystem, CommitLog, ReplicaLog]:
    """What is in `files`, opened as a replica's log."""
    files = files or SimulatedFiles()
    opened = open_store(files, threads=False)
    end = opened.store.status().written_end
    opened.store.close()
    log = CommitLog(files, SEGMENT)
    return files, log, ReplicaLog(files, log, SHAPE, end)


def take(replica: ReplicaLog, ranges: Iterable[BlockRange]) -> None:
    for blocks in ranges:
        replica.write(replica.check(blocks))


def attempt(replica: ReplicaLog, blocks: BlockRange) -> OSError | None:
    try:
        take(replica, [blocks])
    except OSError as error:
        return error
    return None


def contents(log: CommitLog, end: int) -> bytes:
    """The bytes of a log but for the filler."""
    reader, found, start = BlockReader(log, SHAPE), [], 0
    while start < end:
        blocks = reader.read(start, end)
        found.append(bytes(blocks.data))
        start = blocks.end
    return b"".join(found)


def simulated(files: FileSystem) -> SimulatedFiles:
    assert isinstance(files, SimulatedFiles)
    return files


@pytest.mark.parametrize("range_bytes", [1, 700, 1 << 20])
def test_a_followers_store_is_the_leaders(range_bytes: int, tmp_path: Path) -> None:
    source, ranges = leader(range_bytes=range_bytes)
    files, log, replica = follower(OsFiles(tmp_path))
    take(replica, ranges)
    assert replica.written == ranges[-1].end > 3 * SEGMENT
    assert contents(log, replica.written) == contents(source, replica.written)
    assert replica.sync(replica.written)
    assert replica.flushed == replica.written
    assert not replica.sync(replica.written), "it is there already"
    log.close()
    opened = open_store(files, threads=False)
    status = opened.store.status()
    assert status.written_end == ranges[-1].end
    assert not status.damages
    assert len(opened.bodies()) > 40
    opened.store.close()


def test_a_sync_brings_to_the_medium_what_is_asked_for() -> None:
    files, _, replica = follower()
    _, ranges = leader()
    take(replica, ranges[:3])
    assert not replica.sync(0)
    assert replica.sync(ranges[0].end), "all that is written goes along"
    take(replica, ranges[3:5])
    assert replica.flushed == ranges[2].end
    after = simulated(files).crash(CrashPlan(99, {}, NOTHING))
    _, log, again = follower(after)
    assert again.written == ranges[2].end
    take(again, ranges[3:])
    assert contents(log, again.written) == b"".join(bytes(each.data) for each in ranges)


def test_what_is_refused_changes_nothing() -> None:
    _, ranges = leader()
    files, _, replica = follower()
    take(replica, ranges[:2])
    before = simulated(files).fingerprint()
    for wrong in (ranges[0], ranges[1], ranges[3]):
        with pytest.raises(BlocksRefused, match="the log ends at"):
            take(replica, [wrong])
    data = bytearray(ranges[2].data)
    data[40] ^= 1
    with pytest.raises(BlocksRefused, match="not intact"):
        take(replica, [ranges[2]._replace(data=bytes(data))])
    assert simulated(files).fingerprint() == before
    take(replica, ranges[2:])
    assert replica.written == ranges[-1].end


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("open", errno.EMFILE),
        ("create", errno.EMFILE),
        ("create", errno.ENOSPC),
        ("allocate", errno.ENOSPC),
        ("write", errno.ENOSPC),
        ("write", errno.EINTR),
    ],
)
def test_a_shortage_passes(kind: str, error: int) -> None:
    """At each call of its kind: nothing of the range is there, and it can be taken later."""
    _, ranges = leader()
    failed = 0
    for nth in range(1, 60):
        files, log, replica = follower()
        disk = simulated(files)
        disk.fault = Fault(kind, nth, error)
        for blocks in ranges:
            if disk.fault.raised:
                break
            end = replica.written
            lack = attempt(replica, blocks)
            if lack is not None:
                failed += 1
                assert shortage_of(lack)
                assert replica.written == end
                _, _, killed = follower(disk.kill())
                assert killed.written == end
                take(replica, [blocks])
        if not disk.fault.raised:
            break
        take(replica, [each for each in ranges if each.start >= replica.written])
        assert contents(log, replica.written) == b"".join(bytes(each.data) for each in ranges)
    assert failed >= (3 if kind == "write" else 1)


def test_a_fault_of_the_disk_is_sticky() -> None:
    _, ranges = leader()
    for kind in ("write", "allocate"):
        files, _, replica = follower()
        simulated(files).fault = Fault(kind, 1)
        with pytest.raises(ReplicaLogFailed, match="EIO"):
            take(replica, ranges)
        with pytest.raises(ReplicaLogFailed):
            take(replica, ranges)


def test_a_failed_sync_is_sticky_and_the_next_start_knows() -> None:
    _, ranges = leader()
    files, _, replica = follower()
    take(replica, ranges[:4])
    simulated(files).fault = Fault("sync", 1)
    with pytest.raises(ReplicaLogFailed, match="sync"):
        replica.sync(replica.written)
    for call in (lambda: replica.sync(1), lambda: replica.cut(0, 0)):
        with pytest.raises(ReplicaLogFailed):
            call()
    with pytest.raises(ReplicaLogFailed):
        take(replica, ranges[4:])
    assert replica.flushed == 0
    assert files.exists(paths.SYNC_FAILED)


def test_a_cut_keeps_a_copy_and_the_log_goes_on() -> None:
    _, ranges = leader(1)
    _, others = leader(2)
    for kept in (0, 1, len(ranges) // 2, len(ranges) - 1):
        files, log, replica = follower()
        take(replica, ranges)
        replica.sync(replica.written)
        end = ranges[kept].start
        tail = replica.cut(end, end)
        assert tail is not None
        copy = bytes(simulated(files).names[tail.path].seen)
        assert tail.path == paths.cut_tail(end)
        assert copy.startswith(bytes(ranges[kept].data))
        assert copy.endswith(bytes(ranges[-1].data).rstrip(b"\0"))
        assert (replica.written, replica.flushed) == (end, end)
        assert replica.cut(end, end) is None, "there is nothing behind it"
        _, _, killed = follower(simulated(files).crash(CrashPlan(99, {}, NOTHING)))
        assert killed.written == end
        take(replica, others if kept == 0 else ranges[kept:])
        wanted = others if kept == 0 else ranges
        assert contents(log, replica.written) == b"".join(bytes(each.data) for each in wanted)


def test_nothing_is_cut_below_the_watermark() -> None:
    _, ranges = leader()
    files, _, replica = follower()
    take(replica, ranges)
    before = simulated(files).fingerprint()
    with pytest.raises(CutBelowWatermark):
        replica.cut(ranges[2].end, ranges[2].end + 1)
    assert simulated(files).fingerprint() == before
    assert replica.written == ranges[-1].end


@pytest.mark.parametrize("kind", ["open", "create", "sync_directory", "truncate", "allocate"])
def test_a_cut_that_lacked_something_is_finished_first(kind: str) -> None:
    _, ranges = leader()
    error = errno.EMFILE if kind in ("open", "create") else errno.ENOSPC
    lacked = 0
    for nth in range(1, 40):
        files, log, replica = follower()
        take(replica, ranges)
        end = ranges[3].end
        disk = simulated(files)
        disk.fault = fault = Fault(kind, nth, error)
        try:
            replica.cut(end, 0)
        except OSError:
            lacked += 1
            assert replica.failed is None
            replica.finish_cut()
        except ReplicaLogFailed:
            assert kind == "sync_directory"
            continue
        disk.fault = None
        assert replica.written == end
        take(replica, ranges[4:])
        assert contents(log, replica.written) == b"".join(bytes(each.data) for each in ranges)
        if not fault.raised:
            break
    assert lacked or kind in ("allocate", "sync_directory", "create")


def test_it_goes_on_behind_what_the_own_writer_wrote() -> None:
    _, ranges = leader()
    _, log, replica = follower()
    take(replica, ranges[:2])
    log.prepare(0)
    log.write(ranges[2].start, [bytes(ranges[2].data)])
    log.sync()
    replica.moved(ranges[2].end, ranges[2].end)
    assert not replica.sync(ranges[2].end)
    take(replica, ranges[3:])
    assert set(block_ends(log)) >= {each.end for each in ranges if each.end % SEGMENT}
