"""A replica that begins anew: all but its promise is gone, however often that is interrupted."""

import random
from collections.abc import Iterator

import pytest

from app.domain.limits import Limits
from app.store import StoreUnusable, paths
from app.store.formats.files.replica_files import (
    KeptHistory,
    KeptPromise,
    KeptTerm,
    KeptTermStart,
)
from app.store.lifecycle.store_parts import StoreParts
from app.store.replica.replica_files import ReplicaFileDamaged
from app.store.replica.replica_store import OpeningOptions, ReplicaDirectory, ReplicaStore
from tests.support.stores.clock import FakeClock
from tests.support.stores.simulated_files import SimulatedFiles
from tests.support.stores.stores import SMALL
from tests.unit.store.replica.logs import block_ends, fill
from tests.unit.store.replica.test_follower_dispatch import units, units_of_log
from tests.unit.store.replica.test_replica_store import SHARD, Opened

PROMISE = KeptPromise(KeptTerm(3, 30), 7, ())
HISTORY = KeptHistory((KeptTermStart(3, 30, 0),))
NEW = 2
"""The incarnation that comes next."""


@pytest.fixture(scope="module")
def leader() -> StoreParts:
    files = SimulatedFiles()
    fill(files)
    return StoreParts.open(files, SMALL, FakeClock(), lambda _call: None, Limits())


def full(leader: StoreParts) -> SimulatedFiles:
    """The directory of a replica that has all of the leader's log, stopped in order."""
    opened = Opened(SimulatedFiles())
    opened.take(leader, block_ends(leader.log)[-1])
    opened.show(block_ends(leader.log)[-1])
    opened.directory.replica_files.keep_promise(PROMISE)
    opened.directory.replica_files.keep_history(HISTORY)
    opened.stop()
    assert opened.files.list(paths.INDEX)
    return opened.files


def decide(files: SimulatedFiles, *, keeps_log: bool) -> None:
    directory = ReplicaDirectory(files, lambda: NEW)
    directory.begin_reset("somebody asks", keeps_log=keeps_log)
    directory.release()


def expect_anew(files: SimulatedFiles, leader: StoreParts, *, keeps_log: bool) -> None:
    """The next start finds a new member, which has shown nothing and can follow."""
    end = block_ends(leader.log)[-1]
    opened = Opened(files, number=NEW)
    kept = opened.directory.replica_files
    assert kept.reset() is None
    assert kept.promise() == PROMISE
    assert kept.history() == (HISTORY if keeps_log else None)
    assert opened.directory.incarnation.number == NEW
    assert opened.store.high_watermark == 0
    assert units(opened.store.parts.queues) == {}
    assert opened.store.log.written == (end if keeps_log else 0)
    opened.take(leader, end)
    opened.show(end)
    assert units(opened.store.parts.queues) == units_of_log(leader.log, end)
    opened.stop()


@pytest.mark.parametrize("keeps_log", [False, True])
def test_the_next_start_has_nothing_but_the_promise(leader: StoreParts, keeps_log: bool) -> None:
    files = full(leader)
    decide(files, keeps_log=keeps_log)
    expect_anew(files, leader, keeps_log=keeps_log)


@pytest.mark.parametrize("keeps_log", [False, True])
def test_an_open_directory_begins_anew_with_its_next_opening(
    leader: StoreParts, keeps_log: bool
) -> None:
    end = block_ends(leader.log)[-1]
    opened = Opened(full(leader), number=NEW)
    opened.store.close()
    opened.directory.begin_reset("somebody asks", keeps_log=keeps_log)
    options = OpeningOptions(SMALL, FakeClock(), lambda _call: None, Limits(), SHARD)
    store = ReplicaStore.open(opened.directory, options)
    assert (store.log.written, store.high_watermark) == (end if keeps_log else 0, 0)
    assert opened.directory.incarnation.number == NEW
    store.close()


class _Killed(BaseException):
    """The process has ended."""


def interrupted(files: SimulatedFiles) -> Iterator[SimulatedFiles]:
    """What is there when the start was killed before each of its calls of the system, or had lost
    power then."""
    chance = random.Random(7)
    at = 0
    while True:
        at += 1
        tried = files.kill()
        left = at

        def call(_kind: str) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise _Killed

        tried.on_call = call
        try:
            ReplicaDirectory(tried, lambda: NEW)
        except _Killed:
            yield tried.kill()
            for plan in tried.crash_plans(chance, 1) if at % 4 == 0 else ():
                yield tried.crash(plan)
        else:
            return


@pytest.mark.parametrize("keeps_log", [False, True])
def test_an_interrupted_one_is_finished(leader: StoreParts, keeps_log: bool) -> None:
    files = full(leader)
    decide(files, keeps_log=keeps_log)
    count = 0
    for found in interrupted(files):
        count += 1
        expect_anew(found, leader, keeps_log=keeps_log)
    assert count > 40


def test_before_it_is_decided_nothing_is_thrown_away(leader: StoreParts) -> None:
    end = block_ends(leader.log)[-1]
    opened = Opened(full(leader), number=NEW)
    assert (opened.store.log.written, opened.store.high_watermark) == (end, end)
    assert opened.directory.incarnation.number == 1


def test_a_lone_node_does_not_take_what_is_being_thrown_away() -> None:
    files = SimulatedFiles()
    opened = Opened(files)
    opened.directory.begin_reset("somebody asks", keeps_log=False)
    opened.store.close()
    files.unlock()
    with pytest.raises(StoreUnusable, match="that of a replica"):
        StoreParts.open(files, SMALL, FakeClock(), lambda _call: None, Limits())


def test_a_damaged_decision_is_told_and_nothing_is_thrown_away(leader: StoreParts) -> None:
    files = full(leader)
    decide(files, keeps_log=False)
    file = files.open(paths.REPLICA_RESET)
    file.pwritev([b"\0"], 12)
    before = files.fingerprint()
    with pytest.raises(ReplicaFileDamaged, match="replica-reset"):
        ReplicaDirectory(files, lambda: NEW)
    assert files.fingerprint() == before
    assert not files.locked
