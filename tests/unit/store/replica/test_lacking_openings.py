"""An opening that lacks something costs the incarnation only what the directory has really lost."""

import errno
from collections.abc import Callable, Iterator
from functools import cache
from itertools import count

import pytest

from app.domain.limits import Limits
from app.domain.shortages import shortage_of
from app.store import paths
from app.store.lifecycle.store_parts import StoreParts
from app.store.replica.replica_store import OpeningOptions, ReplicaDirectory, ReplicaStore
from tests.support.stores.clock import FakeClock
from tests.support.stores.simulated_files import NOTHING, CrashPlan, Fault, SimulatedFiles
from tests.support.stores.stores import SMALL
from tests.unit.store.replica.logs import block_ends, fill
from tests.unit.store.replica.test_replica_store import SHARD, Opened

KINDS = {
    "open": errno.EMFILE,
    "create": errno.ENFILE,
    "write": errno.ENOSPC,
    "allocate": errno.ENOSPC,
    "mkdir": errno.ENOSPC,
    "read": errno.ENOMEM,
    "rename": errno.ENOSPC,
    "sync_directory": errno.EMFILE,
}
FIRST = 1


class Process:
    """One life of a node over a directory."""

    def __init__(self, files: SimulatedFiles, numbers: Iterator[int]) -> None:
        self.files = files
        self.directory = ReplicaDirectory(files, lambda: next(numbers))
        self._options = OpeningOptions(SMALL, FakeClock(), lambda _call: None, Limits(), SHARD)

    def open(self) -> int:
        """The incarnation behind an opening."""
        ReplicaStore.open(self.directory, self._options).close()
        return self.directory.incarnation.number


@cache
def killed_in(prepare: Callable[[Opened, list[int]], object]) -> SimulatedFiles:
    """What a replica leaves that had a log, a checkpoint in the midst of it, and then a bad day."""
    source = SimulatedFiles()
    fill(source, blocks=18)
    leader = StoreParts.open(source, SMALL, FakeClock(), lambda _call: None, Limits())
    ends = block_ends(leader.log)
    opened = Opened(SimulatedFiles(), number=FIRST)
    opened.take(leader, ends[-1])
    opened.show(ends[len(ends) // 2])
    opened.checkpoint()
    prepare(opened, ends)
    return opened.kill()


def whole(_opened: Opened, _ends: list[int]) -> None:
    """Nothing is lost."""


def torn(opened: Opened, ends: list[int]) -> None:
    """The kill came within a write: nobody was told of that block."""
    log = opened.store.parts.log
    record = log.read(ends[-2], ends[-1] - ends[-2])
    opened.store.parts.log.write(ends[-1], [record[: len(record) // 2]])


def damaged_within(opened: Opened, ends: list[int]) -> None:
    _flip(opened.files, ends[-6] + 60)


def damaged_at_its_end(opened: Opened, ends: list[int]) -> None:
    _flip(opened.files, ends[-1] - 60)


def _flip(files: SimulatedFiles, at: int) -> None:
    inode = files.names[paths.segment(at - at % SMALL.segment_bytes)]
    inode.sync()
    inode.seen[at % SMALL.segment_bytes] ^= 1
    inode.safe[at % SMALL.segment_bytes] ^= 1


def lacking(kind: str, left: SimulatedFiles, *, lasting: bool) -> Iterator[Process]:
    """Processes whose first opening lacked something at one place after the other."""
    for nth in count(1):
        process = Process(left.kill(), count(100 * nth))
        process.files.fault = fault = Fault(kind, nth, KINDS[kind], lasting=lasting)
        try:
            process.open()
        except OSError as error:
            if shortage_of(error) is None:
                raise
            process.files.fault = None
            yield process
            continue
        if not fault.raised:
            return


@pytest.mark.parametrize("lasting", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("state", [whole, torn], ids=lambda state: state.__name__)
def test_a_shortage_costs_nothing(
    state: Callable[[Opened, list[int]], object], kind: str, lasting: bool
) -> None:
    lacked = 0
    for process in lacking(kind, killed_in(state), lasting=lasting):
        lacked += 1
        assert process.open() == FIRST, f"behind {lacked} calls"
    assert lacked or kind in ("allocate", "create", "mkdir", "read")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("state", [whole, torn], ids=lambda state: state.__name__)
def test_the_next_process_is_the_same_member(
    state: Callable[[Opened, list[int]], object], kind: str
) -> None:
    """As when an operator starts the node anew while it waits for descriptors."""
    for process in lacking(kind, killed_in(state), lasting=False):
        assert Process(process.files.kill(), count(9)).open() == FIRST


@pytest.mark.parametrize("lasting", [False, True])
@pytest.mark.parametrize("is_other_process", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "state", [damaged_within, damaged_at_its_end], ids=lambda state: state.__name__
)
def test_damage_costs_it_whoever_found_it(
    state: Callable[[Opened, list[int]], object], kind: str, is_other_process: bool, lasting: bool
) -> None:
    """Also where the opening that lacked something has cut the damage, and the next finds none."""
    for process in lacking(kind, killed_in(state), lasting=lasting):
        after = process
        if is_other_process:
            after = Process(process.files.kill(), count(9))
        assert after.open() != FIRST
        number = after.directory.incarnation.number
        assert Process(after.files.kill(), count(19)).open() == number


def a_sync_failed(opened: Opened, _ends: list[int]) -> None:
    opened.files.open(paths.SYNC_FAILED, create=True).close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("state", "is_copy"),
    [(a_sync_failed, False), (a_sync_failed, True), (whole, True), (damaged_at_its_end, True)],
)
def test_the_number_that_a_join_named_is_that_of_the_next_try(
    state: Callable[[Opened, list[int]], object], kind: str, is_copy: bool
) -> None:
    """What is found anew, or cannot be noted, costs a replica that said nothing yet no number."""
    left, lacked, nth = killed_in(state), 0, 0
    while True:
        nth += 1
        process = Process(left.kill(), count(100))
        incarnation = process.directory.incarnation
        if is_copy:
            incarnation.distrust("it is a copy")
        named = incarnation.foresee()
        process.files.fault = fault = Fault(kind, nth, KINDS[kind])
        try:
            process.open()
        except OSError:
            lacked += 1
            process.files.fault = None
            assert incarnation.foresee() == named
            assert process.open() == named, f"behind {nth} calls"
            continue
        process.files.fault = None
        if not fault.raised:
            break
    assert lacked or kind in ("allocate", "create", "mkdir", "read")
    process.files.open(paths.SYNC_FAILED, create=True).close()
    assert incarnation.foresee() not in (FIRST, named), "something was said under that one"


def test_a_sync_that_failed_is_no_shortage() -> None:
    process = Process(killed_in(whole).kill(), count(2))
    process.files.fault = Fault("sync", 2, errno.ENOSPC)
    with pytest.raises(OSError, match="ENOSPC"):
        process.open()
    process.files.fault = None
    assert Process(process.files.kill(), count(9)).open() == 9


def test_a_kill_within_an_opening_still_costs_it() -> None:
    """Behind one that lacked something, too: only this process knows what its own tries did."""
    process = Process(killed_in(whole).kill(), count(2))
    process.files.fault = Fault("rename", 2, errno.ENOSPC, lasting=True)
    with pytest.raises(OSError, match="ENOSPC"):
        process.open()
    process.files.fault = None
    assert Process(process.files.kill(), count(9)).open() == 9


def test_behind_a_loss_of_power_it_is_judged_once() -> None:
    left = killed_in(whole).kill().crash(CrashPlan(99, {}, NOTHING))
    process = Process(left, count(2))
    process.files.fault = Fault("open", 9, errno.EMFILE)
    with pytest.raises(OSError, match="EMFILE"):
        process.open()
    process.files.fault = None
    assert process.open() == 2


def test_a_mark_that_another_opening_left_is_not_taken_for_an_own_one() -> None:
    """It was given up once, taken back since, and is of an opening that failed for good."""
    process = Process(killed_in(whole).kill(), count(2))
    assert process.open() == FIRST
    process.files.fault = Fault("rename", 2, errno.ENOSPC, lasting=True)
    with pytest.raises(OSError, match="ENOSPC"):
        process.open()
    process.files.fault = None
    assert process.open() == FIRST
    process.directory.incarnation.begin_opening()
    assert process.directory.incarnation.begin_opening() == "an opening was interrupted"
