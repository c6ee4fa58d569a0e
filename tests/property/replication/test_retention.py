"""Logs whose beginning is deleted: who lacks it begins where the leader's log begins."""

import pytest

from app.cluster.replication.leader import Leader
from app.cluster.replication.messages import Hello
from tests.property.replication.judge import Violation
from tests.property.replication.scenarios import pass_time, pass_until, running, serves
from tests.property.replication.simulated_shard import DAYS_WITH_RETENTION, SimulatedShard


def without_what_comes_next(shard: SimulatedShard, name: str) -> None:
    """A replica is away, and the others delete what it has not."""
    node = shard.nodes[name]
    node.stop()
    pass_until(shard, lambda: node.member not in shard.database.row.in_sync)
    shard.load(shard.schedule.now_ms + 3_000)
    pass_time(shard, 3_000)
    leader = next(each for each in shard.nodes.values() if serves(shard, each.name))
    before = node.disk.written
    while leader.disk.start <= before:
        leader.expire()


@pytest.mark.parametrize("has_lost_all", [False, True])
def test_who_was_away_for_too_long_begins_where_the_leader_does(has_lost_all: bool) -> None:
    shard = running()
    without_what_comes_next(shard, "C")
    node = shard.nodes["C"]
    if has_lost_all:
        node.disk.begin(0, ())
    incarnation = node.disk.incarnation
    node.start()
    pass_until(shard, lambda: node.member in shard.database.row.in_sync)
    assert node.begun_anew == 1
    assert node.disk.incarnation != incarnation
    assert node.disk.start > 0
    shard.expect_service()


def test_the_ones_that_follow_delete_as_the_leader_does_and_can_lead() -> None:
    shard = running()
    without_what_comes_next(shard, "C")
    first = next(name for name in shard.nodes if serves(shard, name))
    shard.nodes["C"].start()
    pass_until(shard, lambda: shard.nodes["C"].member in shard.database.row.in_sync)
    pass_time(shard, 2_000)
    starts = {node.disk.start for node in shard.nodes.values()}
    assert len(starts) == 1
    for name in ("A", "B"):
        shard.nodes[name].stop()
    shard.nodes[first].start()
    pass_until(shard, lambda: any(serves(shard, name) for name in (first, "C")))
    shard.heal()
    pass_time(shard, 8_000)
    shard.expect_service()


def is_seen() -> bool:
    for seed in range(200):
        shard = SimulatedShard(seed, min_in_sync=2, days=DAYS_WITH_RETENTION)
        try:
            shard.run(faults=25)
        except Violation:
            return True
    return False


def test_control_a_log_is_sent_from_its_beginning_whatever_lacks_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hello = Leader.hello

    def say_nothing_of_it(self: Leader, node: str, message: Hello) -> None:
        self._state.log_start = 0
        hello(self, node, message)

    monkeypatch.setattr(Leader, "hello", say_nothing_of_it)
    assert is_seen()


def test_control_a_log_that_begins_anew_without_its_history(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("app.cluster.replication.leader.cut_history", lambda *_: ())
    assert is_seen()
