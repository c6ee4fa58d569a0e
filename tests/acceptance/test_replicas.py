"""Three processes that have one shard in common: kill -9 of the leader, an orderly stop, a rolling
restart, and all the while a sender. What was confirmed is there, once, and in its order."""

import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from curlew_client.command.entry import main as command

from app.cluster.replication.replica_state import Timing
from tests.support.cluster.three_processes import NAMES, Sender, Shard, check, three_processes
from tests.support.metadata.databases import PostgresDatabases
from tests.support.nodes.waiting import wait_until

pytestmark = pytest.mark.postgres


@pytest.fixture
def shard(tmp_path: Path, postgres_databases: PostgresDatabases) -> Iterator[Shard]:
    with three_processes(tmp_path, postgres_databases.migrated()) as made:
        yield made


def test_who_is_killed_takes_nothing_along(shard: Shard) -> None:
    with Sender(shard.urls) as sender:
        sender.goes_on()
        for _ in range(2):
            leader = shard.leader()
            shard.kill(leader)
            sender.goes_on()
            shard.start(leader)
            shard.in_sync()
        sender.goes_on()
    check(shard, sender)


def test_a_rolling_restart_loses_and_refuses_nothing_for_long(shard: Shard) -> None:
    with Sender(shard.urls) as sender:
        for name in NAMES:
            sender.goes_on()
            shard.stop(name)
            sender.goes_on()
            shard.start(name)
            shard.in_sync()
        sender.goes_on()
    check(shard, sender)
    assert not sender.unknown


def test_an_operator_chooses_who_leads(shard: Shard) -> None:
    with Sender(shard.urls) as sender:
        for _ in range(3):
            sender.goes_on()
            leader = shard.leader()
            to = next(name for name in reversed(NAMES) if name != leader)
            asked = next(name for name in NAMES if name not in {leader, to})
            found = httpx.get(f"{shard.nodes[asked].url}/v1/cluster").json()["shards"][0]
            (node_id,) = (
                each["node_id"] for each in found["replicas"] if each["url"] == shard.nodes[to].url
            )
            words = ("hand-over", "orders", node_id, "--url", shard.nodes[asked].url)
            assert command([*words, "--timeout", "30s"]) == 0
            assert shard.leader() == to
            sender.goes_on()
            shard.in_sync()
    check(shard, sender)
    assert not sender.unknown


def test_a_follower_that_stops_is_not_waited_for(shard: Shard) -> None:
    """One that is killed is, for `replica_timeout_ms`."""
    with Sender(shard.urls) as sender:
        sender.goes_on()
        leader = shard.leader()
        shard.stop(next(name for name in NAMES if name != leader))
        confirmed = len(sender.confirmed)
        wait_until(
            lambda: len(sender.confirmed) > confirmed,
            within_s=Timing().replica_timeout_ms / 1_000 / 2,
        )
    assert not sender.unknown


def test_all_that_stop_come_back_with_all(shard: Shard) -> None:
    with Sender(shard.urls) as sender:
        sender.goes_on()
    for name in NAMES:
        shard.stop(name)
    for name in NAMES:
        shard.start(name)
    shard.leader()
    check(shard, sender)


def test_a_follower_that_is_killed_costs_the_senders_seconds(shard: Shard) -> None:
    with Sender(shard.urls) as sender:
        sender.goes_on()
        follower = next(name for name in NAMES if name != shard.leader())
        killed = shard.nodes[follower].url
        shard.kill(follower)
        sender.goes_on()  # behind the time after which it is out of the set
        shard.start(follower)
        shard.in_sync()
    check(shard, sender)
    assert len(sender.unknown) <= 1
    assert sender.unknown_at <= {killed}, "only what was under way there"


def test_a_second_signal_ends_a_stop_that_waits_for_another_leader(shard: Shard) -> None:
    """Frozen followers count as in sync and connected for some seconds, and take nothing over."""
    leader = shard.leader()
    node = shard.nodes[leader]
    for name, other in shard.nodes.items():
        if name != leader:
            other.process.send_signal(signal.SIGSTOP)
    node.process.send_signal(signal.SIGTERM)
    wait_until(lambda: "another replica is to lead" in node.log.read_text())
    shard.stop(leader)
    assert "told to stop at once" in node.log.read_text()
