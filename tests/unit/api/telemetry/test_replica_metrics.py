"""What `/metrics` says of a replica, and of those that follow it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from typing_extensions import override

from app.api.ports import Follower, Loss, OwnReplica, Replicas, WithoutReplica
from app.api.telemetry.replica_metrics import replica_families


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

    @override
    def own(self) -> OwnReplica:
        return self.here

    @override
    def followers(self) -> Sequence[Follower]:
        return self.others

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
    async def elect_unclean(self, by: str, *, is_dry_run: bool) -> Loss:
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
