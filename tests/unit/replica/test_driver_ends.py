"""What must hold when a leadership ends half way, and when its writer's last word comes late."""

import errno

from app.cluster.replication.events import LogEnds, Tick
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
