"""Promise, history and incarnation outlive kills and losses of power, or say that they do not."""

import errno

import pytest

from app.domain.shortages import SyncFailed
from app.store import paths
from app.store.formats.files.replica_files import (
    KeptHistory,
    KeptMember,
    KeptPromise,
    KeptTerm,
    KeptTermStart,
)
from app.store.formats.files.state_file import VERSION
from app.store.fs.files import FileSystem
from app.store.replica.incarnation import Incarnation
from app.store.replica.replica_files import ReplicaFileDamaged, ReplicaFiles
from tests.support.stores.simulated_files import (
    EVERYTHING,
    NOTHING,
    CrashPlan,
    Fault,
    SimulatedFiles,
)
from tests.support.stores.stores import OpenStore, open_store

OLD = KeptPromise(KeptTerm(1, 77), 3, (KeptMember("a", 5), KeptMember("b", 6)))
NEW = KeptPromise(KeptTerm(2, 78), 3, (KeptMember("a", 5),))
HISTORY = KeptHistory((KeptTermStart(1, 77, 0), KeptTermStart(2, 78, 1 << 40)))


def test_what_is_kept_is_read() -> None:
    files = SimulatedFiles()
    replica = ReplicaFiles(files)
    assert (replica.promise(), replica.history(), replica.incarnation()) == (None, None, None)
    replica.keep_promise(OLD)
    replica.keep_history(HISTORY)
    after = ReplicaFiles(files.crash(CrashPlan(0, {}, NOTHING)))
    assert (after.promise(), after.history()) == (OLD, HISTORY)


def test_each_crash_leaves_the_old_or_the_new() -> None:
    for nth in range(1, 12):
        files = SimulatedFiles()
        replica = ReplicaFiles(files)
        replica.keep_promise(OLD)
        disks: list[SimulatedFiles] = []
        seen = 0

        def look(_kind: str) -> None:
            nonlocal seen
            seen += 1
            if seen == nth:  # noqa: B023
                plans = [CrashPlan(n, {}, keep) for n in (0, 99) for keep in (NOTHING, EVERYTHING)]
                disks.extend([files.kill(), *map(files.crash, plans)])  # noqa: B023

        files.on_call = look
        replica.keep_promise(NEW)
        for disk in disks:
            found = ReplicaFiles(disk).promise()
            assert found in (OLD, NEW)
            again = ReplicaFiles(disk.crash(CrashPlan(0, {}, NOTHING)))
            assert again.promise() == found, "what was read once is on the medium"
        if not disks:
            assert nth > 4
            return
    raise AssertionError


@pytest.mark.parametrize("path", [paths.REPLICA_PROMISE, paths.REPLICA_HISTORY])
def test_each_damaged_byte_is_told_of(path: str) -> None:
    files = SimulatedFiles()
    replica = ReplicaFiles(files)
    replica.keep_promise(OLD)
    replica.keep_history(HISTORY)
    read = replica.promise if path == paths.REPLICA_PROMISE else replica.history
    content = files.names[path].seen
    for at in range(len(content)):
        content[at] ^= 4
        with pytest.raises(ReplicaFileDamaged, match=path):
            read()
        content[at] ^= 4
    for size in range(len(content)):
        kept = content[size:]
        del content[size:]
        with pytest.raises(ReplicaFileDamaged, match=path):
            read()
        content += kept
    assert read() is not None
    assert VERSION == 1


@pytest.mark.parametrize("kind", ["open", "create", "write", "rename"])
def test_a_shortage_leaves_the_old_one(kind: str) -> None:
    files = SimulatedFiles()
    replica = ReplicaFiles(files)
    replica.keep_promise(OLD)
    files.fault = Fault(kind, 1, errno.ENOSPC)
    with pytest.raises(OSError, match="ENOSPC"):
        replica.keep_promise(NEW)
    assert replica.promise() == OLD
    replica.keep_promise(NEW)
    assert replica.promise() == NEW


def test_a_failed_sync_says_so() -> None:
    files = SimulatedFiles()
    replica = ReplicaFiles(files)
    files.fault = Fault("sync", 1)
    with pytest.raises(SyncFailed):
        replica.keep_promise(OLD)


class Life:
    """A store that is opened with its incarnation."""

    def __init__(self, files: SimulatedFiles, number: int) -> None:
        self.files = files
        self.incarnation = Incarnation(files, ReplicaFiles(files), lambda: number)
        self.before = self.incarnation.begin_opening()
        self.opened: OpenStore = open_store(files, threads=False)
        self.found = self.incarnation.end_opening(self.opened.store.status().recovery)

    def send(self, count: int = 3) -> None:
        for number in range(count):
            self.opened.send(b"%d" % number * 100)
            self.opened.turns.run()

    def stop(self) -> None:
        self.opened.store.close()
        self.incarnation.note_stop(self.opened.store.status().written_end)


def lived(files: FileSystem | None = None) -> Life:
    assert files is None
    life = Life(SimulatedFiles(), 1)
    life.send()
    return life


def test_an_empty_directory_has_a_new_number_and_keeps_it() -> None:
    life = lived()
    assert life.incarnation.number == 1
    assert "none" in str(life.before)
    killed = Life(life.files.kill(), 2)
    assert (killed.incarnation.number, killed.before, killed.found) == (1, None, None)
    killed.send()
    killed.stop()
    restarted = Life(killed.files.crash(CrashPlan(99, {}, NOTHING)), 3)
    assert (restarted.incarnation.number, restarted.before, restarted.found) == (1, None, None)


def test_a_loss_of_power_makes_a_new_one() -> None:
    after = Life(lived().files.crash(CrashPlan(99, {}, EVERYTHING)), 2)
    assert after.incarnation.number == 2
    assert "machine started anew" in str(after.before)


def test_a_failed_sync_makes_a_new_one() -> None:
    life = lived()
    life.files.open(paths.SYNC_FAILED, create=True)
    after = Life(life.files.kill(), 2)
    assert after.incarnation.number == 2
    assert after.before == "a sync failed"


def test_an_interrupted_opening_makes_a_new_one() -> None:
    """Else damage that it cut would never be known."""
    files = lived().files.kill()
    Incarnation(files, ReplicaFiles(files), lambda: 2).begin_opening()
    after = Life(files.kill(), 3)
    assert after.incarnation.number == 3
    assert "interrupted" in str(after.before)


def foreseeing(files: SimulatedFiles) -> Incarnation:
    numbers = iter((7, 8, 9))
    return Incarnation(files, ReplicaFiles(files), lambda: next(numbers))


def test_the_number_of_an_opening_is_foreseen() -> None:
    """A node names it before it knows what store to make."""
    kept = foreseeing(lived().files.kill())
    assert kept.foresee() == 1
    assert kept.begin_opening() is None
    assert kept.number == 1
    empty = foreseeing(SimulatedFiles())
    assert (empty.foresee(), empty.foresee()) == (7, 7)
    empty.begin_opening()
    assert empty.number == 7
    assert empty.foresee() == 8, "the opening that has begun was not ended"


def test_files_that_may_be_old_ones_make_a_new_one_once() -> None:
    files = lived().files.kill()
    distrusted = foreseeing(files)
    distrusted.distrust("it is a copy")
    assert distrusted.foresee() == 7
    assert distrusted.begin_opening() == "it is a copy"
    assert distrusted.number == 7
    distrusted.note_stop(0)
    assert distrusted.begin_opening() is None
    assert distrusted.number == 7


def flip(files: SimulatedFiles, at: int) -> None:
    """A bit of the log, on the medium."""
    inode = files.names[paths.segment(0)]
    inode.sync()
    inode.seen[at] ^= 1
    inode.safe[at] ^= 1


def test_damage_makes_a_new_one_once() -> None:
    files = lived().files.kill()
    flip(files, 60)
    after = Life(files, 2)
    assert after.incarnation.number == 2
    assert "no good record" in str(after.found)
    after.stop()
    again = Life(files, 3)
    assert again.opened.store.status().recovery.damages
    assert again.incarnation.number == 2, "it is known by now"


def test_damage_that_was_put_right_is_news_when_it_comes_again() -> None:
    files = lived().files.kill()
    flip(files, 60)
    after = Life(files, 2)
    assert after.incarnation.number == 2
    flip(files, 60)
    after.incarnation.note_mended(0)
    after.stop()
    flip(files, 60)
    assert Life(files, 3).incarnation.number == 3


def test_a_damaged_end_that_was_cut_makes_a_new_one() -> None:
    life = lived()
    end = life.opened.store.status().written_end
    files = life.files.kill()
    flip(files, end - 60)
    after = Life(files, 2)
    assert after.incarnation.number == 2
    assert "end of the log was cut" in str(after.found)


def test_a_shorter_log_makes_a_new_one_unless_it_was_cut_by_order() -> None:
    life = lived()
    life.stop()
    for is_ordered in (False, True):
        files = life.files.kill()
        incarnation = Incarnation(files, ReplicaFiles(files), lambda: 2)
        if is_ordered:
            incarnation.begin_opening()
            opened = open_store(files, threads=False)
            incarnation.end_opening(opened.store.status().recovery)
            incarnation.note_cut(0)
            opened.store.close()
        for path in [*files.names]:
            if path.startswith(("checkpoint", "commitlog/", "consumequeue/", "index/")):
                del files.names[path]
        after = Life(files, 3)
        assert after.incarnation.number == (1 if is_ordered else 3)
        assert (after.found is None) == is_ordered


def test_a_damaged_file_of_the_incarnation_makes_a_new_one() -> None:
    files = lived().files.kill()
    files.names[paths.REPLICA_INCARNATION].seen[20] ^= 1
    assert Life(files, 2).incarnation.number == 2
