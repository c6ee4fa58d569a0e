"""Some rounds of the nemesis (`make test-cluster` is the long run), and its control."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.crash.nemesis.faults import database_stops, leader_is_cut_off
from tests.crash.nemesis.nemesis import Report, running_nemesis
from tests.support.cluster.hosts import why_not

pytestmark = [pytest.mark.postgres, pytest.mark.powerloss]

BEYOND_A_LEASE_S = 7.0


def history(root: Path, rounds: Sequence[Sequence[str]], replication: str = "sync") -> Report:
    if reason := why_not():
        pytest.fail(reason)
    with running_nemesis(root, seed=1, replication=replication) as nemesis:
        for names in rounds:
            nemesis.befall(tuple(names), BEYOND_A_LEASE_S)
        return nemesis.end()


def test_a_cluster_under_faults_breaks_no_promise(tmp_path: Path) -> None:
    report = history(
        tmp_path,
        [["leader cut off"], ["follower frozen", "leader killed"]],
    )
    assert report.violations == {}
    assert sum(each.outcome == "ok" for each in report.sent) > 100
    assert report.log.end > 0


def test_a_former_leader_hears_of_the_next_one_without_the_database(tmp_path: Path) -> None:
    """It was cut off while another one was elected, and the database stops before it is back."""
    if reason := why_not():
        pytest.fail(reason)
    with running_nemesis(tmp_path, seed=1) as nemesis:
        victims = nemesis.victims
        former = victims.shard.leader()
        back = leader_is_cut_off(victims)
        victims.shard.leader(but=former)
        goes_on = database_stops(victims)
        back()
        try:
            assert victims.shard.leader() != former
        finally:
            goes_on()
        victims.shard.in_sync()
        assert nemesis.end().violations == {}


def test_control_a_topic_that_waits_for_no_replica_loses(tmp_path: Path) -> None:
    """A leader that is cut off goes on for its lease, and says `stored` to its own clients."""
    report = history(tmp_path, [["leader cut off"]], replication="async")
    assert "lost" in report.violations
