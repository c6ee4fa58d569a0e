"""What `/metrics` says of a replica, and of those that follow it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from typing_extensions import override

from app.api.ports import Follower, OwnReplica, Replicas
from app.api.telemetry.metrics import following_metrics
from app.api.telemetry.replica_metrics import replica_families
from app.api.telemetry.request_metrics import RequestMetrics
from app.broker.health import Condition
from app.cluster import WithoutReplica
from app.replica.unclean import UncleanLoss
from app.store import DiskUsage, LogFigures, SyncTimes


class Other(NamedTuple):
    """Another replica."""

    node: str
    written: int | None
    lag_bytes: int | None
    lag_ms: int
    is_connected: bool = True
    out_ms: int | None = None
    why_not: str | None = None


@dataclass
class Told(Replicas):
    """A replica with others."""

    here: OwnReplica
    others: tuple[Other, ...] = ()
    log: LogFigures | None = None

    @override
    def own(self) -> OwnReplica:
        return self.here

    @override
    def followers(self) -> Sequence[Follower]:
        return self.others

    @override
    def log_figures(self) -> LogFigures | None:
        return self.log

    @override
    def successor(self, node: str | None) -> str:
        raise NotImplementedError

    @override
    def hand_over_to(self, node: str, by: str) -> None:
        raise NotImplementedError

    @override
    async def begin_anew(self, by: str, *, keeps_log: bool, is_dry_run: bool) -> WithoutReplica:
        raise NotImplementedError

    @override
    async def elect_unclean(self, by: str, *, is_dry_run: bool) -> UncleanLoss:
        raise NotImplementedError


LEADER = Told(
    OwnReplica(
        "orders",
        "a",
        leads=True,
        knows_leader=True,
        epoch=7,
        written_end=1_000,
        high_watermark=900,
        in_sync=("a", "b"),
        lacking_count=1,
        given_up_bytes=40,
        damaged_places=2,
        repaired_bytes=300,
    ),
    (Other("b", 1_000, 0, 0), Other("c", None, None, 2_500, is_connected=False)),
)


def samples(replicas: Replicas | None) -> dict[str, float]:
    return {
        family.name + labels: value
        for family in replica_families(replicas)
        for labels, value in family.samples
    }


def test_a_node_that_has_a_shard_alone_shows_none() -> None:
    assert samples(None) == {}


def test_a_leader_tells_of_all() -> None:
    def of(node: str) -> str:
        return f'{{shard="orders",replica="{node}"}}'

    assert samples(LEADER) == {
        "curlew_replica_leading" + of("a"): 1,
        "curlew_replica_leader_known" + of("a"): 1,
        "curlew_replica_epoch" + of("a"): 7,
        "curlew_replica_unconfirmed_bytes" + of("a"): 100,
        "curlew_replica_given_up_bytes_total" + of("a"): 40,
        "curlew_replica_damaged_places" + of("a"): 2,
        "curlew_replica_repaired_bytes_total" + of("a"): 300,
        'curlew_replicas_lacking{shard="orders"}': 1,
        "curlew_replica_in_sync" + of("a"): 1,
        "curlew_replica_in_sync" + of("b"): 1,
        "curlew_replica_in_sync" + of("c"): 0,
        "curlew_replica_lag_bytes" + of("b"): 0,
        "curlew_replica_lag_seconds" + of("b"): 0,
        "curlew_replica_lag_seconds" + of("c"): 2.5,
    }


def test_a_follower_tells_of_itself_only() -> None:
    follower = Told(LEADER.here._replace(leads=False, knows_leader=False, high_watermark=2_000))
    found = samples(follower)
    assert {name.partition("{")[0] for name in found} == {
        "curlew_replica_leading",
        "curlew_replica_leader_known",
        "curlew_replica_epoch",
        "curlew_replica_unconfirmed_bytes",
        "curlew_replica_given_up_bytes_total",
        "curlew_replica_damaged_places",
        "curlew_replica_repaired_bytes_total",
    }
    assert found['curlew_replica_leading{shard="orders",replica="a"}'] == 0
    assert found['curlew_replica_unconfirmed_bytes{shard="orders",replica="a"}'] == 0


class NothingTheMatter:
    """What a node in good health says of itself."""

    def obstacles(self) -> Sequence[Condition]:
        return []

    def troubles(self) -> Sequence[Condition]:
        return []


def followed(log: LogFigures | None) -> list[str]:
    """What a node that leads nothing says of its log and disk."""
    replicas = Told(LEADER.here._replace(leads=False), log=log)
    text = following_metrics(NothingTheMatter(), RequestMetrics(), None, 0, replicas)
    return [
        line
        for line in text.splitlines()
        if line.startswith(("curlew_disk", "curlew_log")) and "_bucket" not in line
    ]


def test_a_follower_tells_of_its_own_disk_and_log() -> None:
    times = SyncTimes()
    times.note(0.25)
    log = LogFigures(3, 5_000, 40, times, lambda: DiskUsage(1_000, 100))
    assert followed(log) == [
        "curlew_disk_bytes 1000",
        "curlew_disk_free_bytes 100",
        "curlew_log_segments 3",
        "curlew_log_bytes 5000",
        "curlew_log_unsynced_bytes 40",
        "curlew_log_sync_seconds_sum 0.25",
        "curlew_log_sync_seconds_count 1",
    ]


def test_a_replica_that_is_not_open_has_no_figures_of_its_log() -> None:
    assert followed(None) == []


def test_a_file_system_that_does_not_say_leaves_the_log_to_be_told_of() -> None:
    def fails() -> DiskUsage:
        raise OSError("stale handle")

    lines = followed(LogFigures(1, 0, 0, SyncTimes(), fails))
    assert lines[0] == "curlew_log_segments 1"
