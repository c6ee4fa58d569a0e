"""A follower's log behind a sync or a cut that was broken off."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from app.store import OsFiles, paths
from app.store.formats.record.record import encode_end_of_file, encode_record
from app.store.lifecycle.opening import write_abort
from app.store.replica.block_walk import BlockRange, BlocksRefused
from app.store.replica.replica_log import ReplicaLogFailed
from tests.support.stores.simulated_files import NOTHING, CrashPlan, Fault
from tests.support.stores.stores import SMALL
from tests.unit.store.replica.test_replica_log import (
    SEGMENT,
    contents,
    follower,
    leader,
    simulated,
    take,
)


def test_a_sync_that_was_begun_and_given_up_is_made_good() -> None:
    """As when the writer of a leader is fenced before its worker has come to a flush."""
    _, ranges = leader()
    files, log, replica = follower()
    take(replica, ranges)
    log.begin_sync()
    assert replica.sync(replica.written)
    _, _, again = follower(simulated(files).crash(CrashPlan(99, {}, NOTHING)))
    assert again.written == replica.flushed == ranges[-1].end


def test_a_cut_that_lacked_a_descriptor_for_the_directory_is_finished(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _, ranges = leader()
    for nth in (1, 2, 3):
        directory_of_it = tmp_path / str(nth)
        directory_of_it.mkdir()
        files, log, replica = follower(OsFiles(directory_of_it))
        take(replica, ranges)
        calls = 0

        def sync_directory(
            directory: str,
            sync: Callable[[str], None] = files.sync_directory,
            nth: int = nth,
        ) -> None:
            nonlocal calls
            calls += directory == paths.COMMIT_LOG
            if calls == nth:
                calls += 1
                raise OSError(errno.EMFILE, "no descriptor")
            sync(directory)

        monkeypatch.setattr(files, "sync_directory", sync_directory)
        with pytest.raises(OSError, match="no descriptor"):
            replica.cut(ranges[0].end, 0)
        replica.finish_cut()
        assert replica.failed is None
        take(replica, ranges[1:])
        assert contents(log, replica.written) == b"".join(bytes(each.data) for each in ranges)
        log.close()


def test_the_next_start_is_told_of_a_sync_that_failed_in_a_cut() -> None:
    _, ranges = leader()
    files, _, replica = follower()
    take(replica, ranges)
    simulated(files).fault = fault = Fault("sync", 2)  # the first is that of the copy
    with pytest.raises(ReplicaLogFailed):
        replica.cut(ranges[2].end, 0)
    assert fault.raised
    assert files.exists(paths.SYNC_FAILED)


def test_a_record_that_crosses_its_segments_end_is_refused() -> None:
    start, end = SEGMENT - 200, SEGMENT
    record = encode_record(
        topic=b"orders",
        queue_id=0,
        queue_offset=0,
        physical_offset=start,
        body=b"x" * 300,
        properties=b"",
        born_time_ms=1,
        store_time_ms=1,
        store_host=SMALL.store_host,
    )
    mark = (end - start - len(record)).to_bytes(4, signed=True) + encode_end_of_file(8)[4:]
    _, _, replica = follower()
    with pytest.raises(BlocksRefused, match="bytes for"):
        replica.check(BlockRange(start, end, record + mark))


@pytest.mark.parametrize("has_abort", [False, True])
def test_without_room_for_a_file_a_failed_sync_is_told_all_the_same(
    has_abort: bool, caplog: pytest.LogCaptureFixture
) -> None:
    _, ranges = leader()
    files, _, replica = follower()
    if has_abort:
        write_abort(files)
    take(replica, ranges)
    disk = simulated(files)

    def lack(kind: str) -> None:
        if kind == "create":
            raise OSError(errno.EMFILE, "no descriptor")

    disk.on_call, disk.fault = lack, Fault("sync", 1)
    with pytest.raises(ReplicaLogFailed):
        replica.sync(replica.written)
    assert files.exists(paths.SYNC_FAILED) == has_abort
    assert any(each.levelname == "CRITICAL" for each in caplog.records) != has_abort
    assert "no descriptor" in caplog.text
