"""What must hold when a leadership ends half way, and when its writer's last word comes late."""

import errno
from dataclasses import replace

from app.cluster.replication.events import LogEnds, RoomSeen, Tick
from app.cluster.replication.messages import AskPromise
from app.cluster.replication.terms import Term
from tests.support.stores.simulated_files import Fault
from tests.unit.replica.shard_of_drivers import Shard
from tests.unit.replica.test_driver import load, serving, simulated


def ask_for_a_newer_promise(shard: Shard) -> None:
    node = shard.nodes["b"]
    term = Term(shard.row.term.epoch + 1, 77)
    shard.nodes["a"].driver.received("b", AskPromise(term, node.member, shard.row.settled_version))


def test_a_leader_that_cannot_keep_a_newer_promise_ends_its_broker() -> None:
    for error in (errno.EMFILE, errno.EIO):  # a pause, and the end of the replica
        shard = serving()
        load(shard, 2)
        shard.until(shard.are_equal)
        lone = shard.nodes["a"]
        simulated(shard, "a").fault = fault = Fault("create", 1, error)
        ask_for_a_newer_promise(shard)
        assert fault.raised
        assert lone.driver.replica is None
        assert lone.serving is None, "its broker goes on, and nobody tells it any more"


def test_ends_that_come_late_claim_nothing() -> None:
    shard = serving()
    load(shard, 2)
    shard.until(shard.are_equal)
    late = shard.nodes["b"]
    end = late.replica_log.written
    late.driver.give(LogEnds(end + 500, end + 500))
    late.driver.give(Tick())
    assert (late.replica_log.written, late.replica_log.flushed) == (end, end)
    load(shard, 4)
    shard.until(shard.are_equal)
    shard.check_equal_logs()
    assert "REPLICA_PAUSED" not in late.alarms


def test_who_lacks_what_leading_needs_hands_over_at_once() -> None:
    shard = serving()
    load(shard, 2)
    shard.until(shard.are_equal)
    former, began_ms = shard.leader, shard.now_ms
    former.driver.lacks("its broker does not begin")
    shard.run()
    assert shard.row.handed_to == "b"
    assert shard.now_ms == began_ms
    shard.until(shard.is_served)
    assert shard.leader.name == "b"
    assert shard.now_ms - began_ms < shard.row.lease_until_ms - began_ms
    load(shard, 2)
    shard.until(shard.are_equal)
    shard.check_equal_logs()


def test_a_full_disk_at_an_election_gives_the_shard_to_the_next_and_is_remembered() -> None:
    shard = serving()
    load(shard, 2)
    shard.until(shard.are_equal)
    files = simulated(shard, "b")
    files.fault = fault = Fault("create", 1, errno.ENOSPC, lasting=True)
    shard.row = replace(shard.row, handed_to="b", lease_until_ms=shard.now_ms)
    shard.until(lambda: shard.row.leader == shard.nodes["c"].member)
    assert fault.raised
    files.fault = None
    node = shard.nodes["b"]
    assert node.driver.could_not_lead_ms is not None
    shard.until(lambda: node.driver.replica is not None)
    state = node.driver.replica and node.driver.replica.state
    assert state
    assert state.could_not_lead_ms == node.driver.could_not_lead_ms
    shard.until(lambda: shard.is_served() and shard.are_equal())
    assert shard.leader.name == "c"


def test_a_fault_of_a_leader_hands_over_at_once() -> None:
    shard = serving()
    load(shard, 2)
    shard.until(shard.are_equal)
    simulated(shard, "b").fault = Fault("create", 1, errno.EIO)
    shard.row = replace(shard.row, handed_to="b", lease_until_ms=shard.now_ms)
    shard.until(lambda: shard.nodes["b"].driver.failed is not None)
    assert shard.row.handed_to == "c"


def test_a_full_disk_is_remembered_over_a_pause() -> None:
    """Else it would say that it has room, and a full leader hand over to it."""
    shard = serving()
    follower = shard.nodes["c"].driver
    follower.give(RoomSeen(has_room=False))
    before = follower.replica
    shard.until(lambda: before is not None and before.state.has_room is False)
    follower.lacks("a descriptor")
    shard.until(lambda: follower.replica not in {None, before})
    assert follower.replica is not None
    assert follower.replica.state.has_room is False


def test_numbers_go_on_behind_a_pause() -> None:
    shard = serving()
    follower = shard.nodes["c"].driver
    shard.until(lambda: follower.last_number > 0)
    before = follower.last_number
    follower.lacks("a descriptor")
    assert follower.last_number == before
    shard.until(lambda: follower.replica is not None)
    assert follower.replica is not None
    assert follower.replica.state.first_number == before
    load(shard, 2)
    shard.until(shard.are_equal)
    assert follower.last_number > before
