"""An operator puts replicas out of the set while the shard is at work, and has some begin anew.

Who is put out and still there is taken in again by the leader. Nothing that is confirmed is lost,
whatever else goes wrong meanwhile.
"""

import pytest

from app.cluster.replication.shard_row import PutOut, need_of
from tests.property.replication.judge import Violation
from tests.property.replication.simulated_node import Node
from tests.property.replication.simulated_parts import SimDisk
from tests.property.replication.simulated_shard import (
    DAYS,
    FORGETFUL_DAYS,
    Day,
    SimulatedShard,
)
from tests.support import length

SEEDS = length.count(20, 2_000)


def put_out(shard: SimulatedShard, node: Node, other: str) -> None:
    """As an operator does; the database may be away."""
    del other
    shard.database.ask(PutOut(node.name), lambda *_: None)


def begin_anew(shard: SimulatedShard, node: Node, other: str) -> None:
    """Its replica ends, leaves the set, loses all but its promise, and starts again. Not where it
    has the only copy, as the others of the set have just lost their disks: two losses at once are
    more than is promised."""
    del other
    database, disk = shard.database, node.disk
    node.stop()
    others = [each for each in shard.nodes.values() if each is not node]
    is_kept = any(each.member in database.row.in_sync for each in others)
    is_led = not database.is_away and database.row.leader is not None
    if is_kept and is_led and need_of(database.row, node.name) is None:
        database._apply(PutOut(node.name))
        node.disk = SimDisk(shard.random.getrandbits(40))
        node.disk.promise = disk.promise
    shard.schedule.after(shard.random.randint(20, 500), lambda: shard.start(node))


def run_histories(days: tuple[Day, ...], *, forgets: bool = False, min_in_sync: int = 2) -> int:
    """How many were put out, or left by themselves."""
    changes = 0
    for seed in range(SEEDS):
        shard = SimulatedShard(seed, min_in_sync=min_in_sync, forgets=forgets, days=days)
        shard.run(faults=16)
        changes += shard.database.row.in_sync_version
    return changes


def test_whoever_is_put_out_costs_nothing_that_is_confirmed() -> None:
    assert run_histories((*DAYS, *[put_out] * 8)) > 4 * SEEDS


def test_also_where_the_database_forgets_it() -> None:
    assert run_histories((*FORGETFUL_DAYS, *[put_out] * 8), forgets=True) > 4 * SEEDS


@pytest.mark.parametrize("min_in_sync", [1, 2])
def test_whoever_begins_anew_costs_nothing_that_is_confirmed(min_in_sync: int) -> None:
    days = (*DAYS, *[begin_anew] * 6, *[put_out] * 2)
    assert run_histories(days, min_in_sync=min_in_sync) > 4 * SEEDS


def test_one_that_begins_anew_and_stays_in_the_set_is_seen() -> None:
    """It says that it is the member that had everything."""

    def begin_anew_unseen(shard: SimulatedShard, node: Node, other: str) -> None:
        del other
        disk = node.disk
        node.stop()
        node.disk = SimDisk(disk.incarnation)
        node.disk.promise = disk.promise
        shard.schedule.after(shard.random.randint(20, 500), lambda: shard.start(node))

    with pytest.raises(Violation):
        run_histories((*DAYS, *[begin_anew_unseen] * 8))
