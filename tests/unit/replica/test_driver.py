"""Drivers over real logs: the same bytes up to the watermark, whatever happens on the way."""

import errno
from itertools import pairwise
from pathlib import Path

import pytest

from app.cluster.replication.events import SyncFailed, TransferAsked
from app.cluster.replication.messages import Ends, PeerMessage
from app.cluster.replication.terms import Member, Promise, Term, TermStart
from app.replica import driver
from app.replica.kept_terms import history_document, history_of, promise_document, promise_of
from app.store import OsFiles, paths
from app.store.fs.files import FileSystem
from tests.support.stores.simulated_files import Fault, SimulatedFiles
from tests.unit.replica.shard_of_drivers import TIMING, Shard

NAMES = ("a", "b", "c")


def serving(directories: dict[str, FileSystem] | None = None) -> Shard:
    shard = Shard(directories or {name: SimulatedFiles() for name in NAMES})
    shard.until(shard.is_served)
    assert shard.leader.name == "a"
    return shard


def load(shard: Shard, count: int = 12, size: int = 300) -> None:
    for number in range(count):
        shard.leader.append(b"%d" % (number % 10) * size)


def simulated(shard: Shard, name: str) -> SimulatedFiles:
    files = shard.nodes[name].files
    assert isinstance(files, SimulatedFiles)
    return files


def test_promise_and_history_are_what_was_kept() -> None:
    promise = Promise(Term(3, 9), 4, frozenset({Member("b", 2), Member("a", 1)}))
    history = (TermStart(Term(1, 5), 0), TermStart(Term(3, 9), 700))
    assert promise_of(promise_document(promise)) == promise
    assert history_of(history_document(history)) == history
    assert (promise_of(None), history_of(None)) == (Promise(), ())


def test_followers_have_the_leaders_bytes(tmp_path: Path) -> None:
    for name in NAMES:
        (tmp_path / name).mkdir()
    shard = serving({name: OsFiles(tmp_path / name) for name in NAMES})
    load(shard, 40)
    shard.until(shard.are_equal)
    shard.check_equal_logs()
    assert shard.leader.shown > 3 * 4096
    for name in NAMES:
        assert not shard.nodes[name].alarms


@pytest.mark.parametrize("real", [False, True])
def test_a_killed_follower_goes_on_from_its_end(real: bool, tmp_path: Path) -> None:
    directories: dict[str, FileSystem] = {name: SimulatedFiles() for name in NAMES}
    if real:
        directories["b"] = OsFiles(tmp_path)
    shard = serving(directories)
    for _ in range(3):
        load(shard, 7)
        files = shard.kill("b")
        load(shard, 7)
        number = next(member.incarnation for member in shard.row.in_sync if member.node == "c")
        shard.start("b", files)
        load(shard, 3)
        shard.until(shard.are_equal)
        shard.check_equal_logs()
        assert Member("c", number) in shard.row.in_sync
    assert "BLOCKS_REFUSED" not in shard.leader.alarms


def test_one_sync_is_for_all_blocks_that_are_here(monkeypatch: pytest.MonkeyPatch) -> None:
    shard = serving()
    load(shard, 1)
    shard.until(shard.are_equal)
    follower = shard.nodes["b"]
    log, before = follower.replica_log, follower.replica_log.flushed
    follower.has_more_blocks = True
    load(shard, 3)
    shard.pass_time()
    assert log.written == shard.leader.replica_log.written > before == log.flushed
    assert shard.leader.shown == before, "nothing is confirmed that it has not synced"
    monkeypatch.setattr(driver, "UNSYNCED_BYTES_MAX", log.written - before + 1)
    load(shard, 1)
    assert log.flushed == log.written, "a sync does not wait for ever"
    load(shard, 3)
    assert log.flushed < log.written
    follower.has_more_blocks = False
    shard.until(shard.are_equal)
    assert log.flushed == log.written
    shard.check_equal_logs()


def test_one_that_is_elected_owes_no_sync() -> None:
    shard = serving()
    shard.nodes["b"].has_more_blocks = shard.nodes["c"].has_more_blocks = True
    load(shard, 5)
    files = shard.kill("a")
    shard.nodes["c"].has_more_blocks = False
    shard.until(shard.is_served)
    leader = shard.leader
    assert leader.name == "b"
    leader.has_more_blocks = False
    load(shard, 5)
    assert "LOG_FAILED" not in leader.alarms
    shard.start("a", files)
    load(shard, 3)
    shard.until(shard.are_equal)
    shard.check_equal_logs()


def test_damage_on_its_way_is_refused_and_sent_again() -> None:
    shard = serving()
    load(shard, 5)
    shard.until(shard.are_equal)
    before = shard.nodes["b"].replica_log.written
    hits = 3

    def damage(receiver: str, data: bytes) -> bytes:
        nonlocal hits
        if receiver != "b" or not data or not hits:
            return data
        hits -= 1
        assert shard.nodes["b"].replica_log.written == before
        return data[:40] + bytes((data[40] ^ 1,)) + data[41:]

    shard.damage = damage
    load(shard, 1)
    shard.until(lambda: not hits)
    load(shard, 8)
    shard.until(shard.are_equal)
    assert shard.nodes["b"].alarms.count("BLOCKS_REFUSED") == 3
    shard.check_equal_logs()


def test_an_elected_follower_has_all_and_the_former_leader_is_cut() -> None:
    shard = serving()
    load(shard, 9)
    shard.until(shard.are_equal)
    shown = shard.leader.shown
    shard.cut_off = {"b", "c"}
    load(shard, 6)
    lone = shard.nodes["a"]
    assert lone.replica_log.written > lone.shown == shown
    files = shard.kill("a")
    shard.cut_off = set()
    shard.until(shard.is_served)
    assert shard.leader.name in ("b", "c")
    load(shard, 4, size=100)
    shard.start("a", files)
    shard.until(shard.are_equal)
    shard.check_equal_logs()
    kept = [path for path in simulated(shard, "a").names if path.startswith("lost+found/")]
    assert kept == [paths.cut_tail(shown)]
    (told,) = shard.nodes["a"].cuts
    assert (told.start, told.kept_in) == (shown, kept[0])
    assert told.size >= len(simulated(shard, "a").names[kept[0]].seen) > 0


def back_with_a_tail() -> tuple[Shard, int]:
    """A former leader that is back, and has more than the others behind what it had shown."""
    shard = serving()
    load(shard, 9)
    shard.until(shard.are_equal)
    shown = shard.leader.shown
    shard.cut_off = {"b", "c"}
    load(shard, 6)
    files = shard.kill("a")
    shard.cut_off = set()
    shard.until(shard.is_served)
    shard.start("a", files)
    return shard, shown


@pytest.mark.parametrize("nth", [1, 2, 3, 4])
def test_a_cut_that_ends_behind_a_pause_is_told_once(nth: int) -> None:
    shard, shown = back_with_a_tail()
    simulated(shard, "a").fault = Fault("create", nth, errno.EMFILE)
    shard.until(shard.are_equal)
    assert [cut.start for cut in shard.nodes["a"].cuts] == [shown]


def test_what_was_made_of_a_tail_goes_before_the_tail(monkeypatch: pytest.MonkeyPatch) -> None:
    shard, shown = back_with_a_tail()
    node, heard = shard.nodes["a"], list[int]()
    monkeypatch.setattr(node, "before_cut", lambda: heard.append(node.replica_log.written))
    shard.until(shard.are_equal)
    (end,) = heard
    assert end > shown


def test_the_leader_hands_over_and_follows() -> None:
    shard = serving()
    for _ in range(4):
        load(shard, 5)
        former = shard.leader
        former.driver.give(TransferAsked())
        shard.until(lambda: shard.is_served() and shard.leader is not former)  # noqa: B023
        load(shard, 3)
        shard.until(shard.are_equal)
        shard.check_equal_logs()


@pytest.mark.parametrize("kind", ["write", "allocate", "open", "create"])
def test_a_shortage_of_a_follower_passes(kind: str) -> None:
    for nth in (1, 2, 3, 4):
        shard = serving()
        load(shard, 8)
        shard.until(shard.are_equal)
        error = errno.EMFILE if kind in ("open", "create") else errno.ENOSPC
        simulated(shard, "c").fault = fault = Fault(kind, nth, error)
        load(shard, 30)
        shard.until(lambda: shard.leader.shown == shard.leader.replica_log.written)  # noqa: B023
        simulated(shard, "c").fault = None
        shard.until(shard.are_equal)
        shard.check_equal_logs()
        assert ("REPLICA_PAUSED" in shard.nodes["c"].alarms) == bool(fault.raised)


def test_a_follower_whose_sync_failed_takes_nothing_more() -> None:
    shard = serving()
    load(shard, 3)
    shard.until(shard.are_equal)
    simulated(shard, "c").fault = Fault("sync", 1)
    load(shard, 3)
    end = shard.nodes["c"].replica_log.written
    shard.until(lambda: len(shard.row.in_sync) == 2)
    load(shard, 3)
    shard.until(lambda: shard.leader.shown == shard.leader.replica_log.written)
    failed = shard.nodes["c"]
    assert failed.replica_log.written == end
    assert "LOG_FAILED" in failed.alarms
    assert failed.driver.replica is not None
    assert failed.driver.replica.state.is_broken
    before = failed.alarms.count("LOG_FAILED")
    shard.pass_time(3)
    assert failed.alarms.count("LOG_FAILED") == before + 3, "it is told as long as it lasts"
    files = simulated(shard, "c")
    number = failed.member.incarnation
    files.fault = None
    shard.start("c", shard.kill("c"))
    assert files.exists(paths.SYNC_FAILED)
    assert shard.nodes["c"].member.incarnation != number
    shard.until(shard.are_equal)
    shard.check_equal_logs()


def test_a_leader_whose_sync_failed_is_replaced() -> None:
    shard = serving()
    load(shard, 3)
    shard.until(shard.are_equal)
    former = shard.leader
    former.driver.give(SyncFailed())
    shard.until(lambda: shard.is_served() and shard.leader is not former)
    load(shard, 2)


def test_a_follower_far_behind_is_sent_what_there_is_room_for() -> None:
    shard = serving()
    files = shard.kill("b")
    shard.until(lambda: len(shard.row.in_sync) == 2)
    load(shard, 30)
    shard.leader.has_no_room = True
    shard.start("b", files)
    shard.pass_time(30)
    behind = shard.nodes["b"].replica_log.written
    assert behind < shard.nodes["c"].replica_log.written
    load(shard, 3)
    shard.leader.has_no_room = False
    shard.leader.driver.has_room("b")
    shard.run()
    assert shard.nodes["b"].replica_log.written == shard.leader.replica_log.written
    shard.until(shard.are_equal)
    shard.check_equal_logs()


def test_promises_are_kept_before_they_are_said() -> None:
    shard = serving()
    load(shard, 2)
    shard.until(shard.are_equal)
    for name in NAMES:
        driver = shard.nodes[name].driver
        assert driver.replica is not None
        state = driver.replica.state
        files = simulated(shard, name).kill()
        shard.kill(name)
        node = shard.open(name, files)
        node.begin()
        assert node.driver.replica is not None
        assert node.driver.replica.state.promise == state.promise
        assert node.driver.replica.state.history == state.history


def test_a_damaged_block_of_the_leader_is_told_of() -> None:
    shard = serving()
    load(shard, 3)
    shard.until(shard.are_equal)
    files = shard.kill("b")
    shard.until(lambda: len(shard.row.in_sync) == 2)
    at = shard.leader.replica_log.written
    load(shard, 3)
    inode = simulated(shard, "a").names[paths.segment(0)]
    inode.seen[at : at + 8] = bytes(8)
    shard.start("b", files)
    shard.until(lambda: "BLOCKS_UNREADABLE" in shard.leader.alarms)
    assert shard.nodes["b"].replica_log.written == at


def test_a_node_whose_clock_is_off_says_so_and_hands_over() -> None:
    shard = serving()
    load(shard, 2)
    shard.until(shard.are_equal)
    off = shard.leader
    off.is_clock_apart = True
    shard.until(lambda: shard.is_served() and shard.leader is not off)
    assert "CLOCK_APART" in off.alarms
    assert not [node for node in shard.nodes.values() if node is not off and node.alarms]
    off.is_clock_apart = False
    shard.pass_time(2)
    off.alarms.clear()
    shard.pass_time(2)
    assert not off.alarms


def test_a_driver_knows_of_the_clock_before_its_first_tick() -> None:
    shard = serving()
    files = shard.kill("b")
    node = shard.open("b", files)
    node.is_clock_apart = True
    node.begin()
    assert node.driver.replica is not None
    assert node.driver.replica.state.is_clock_off


def test_a_follower_says_what_is_new_and_nothing_else_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Once behind a sync, and not again to each watermark: each answer costs both nodes thread hops
    and system calls. As a sign of life it is said again."""
    shard = serving()
    shard.until(shard.are_equal)
    said: list[tuple[int, Ends]] = []
    post = shard.post

    def watched(sender: str, receiver: str, message: PeerMessage, data: bytes) -> None:
        if sender == "b" and isinstance(message, Ends):
            said.append((shard.now_ms, message))
        post(sender, receiver, message, data)

    monkeypatch.setattr(shard, "post", watched)
    load(shard, 12)
    shard.until(shard.are_equal)
    shard.pass_time(100)
    assert said[-1][1].flushed == shard.leader.shown
    for (before_ms, before), (now_ms, now) in pairwise(said):
        assert before != now or now_ms - before_ms >= TIMING.repeat_ms
        assert before.written == now.written or now.flushed == now.written
    assert said[-1][0] - said[0][0] > 2 * TIMING.sign_ms
