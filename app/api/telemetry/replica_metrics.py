"""Metrics of a replica and, while it leads, of those that follow it. Pure.

A node that has a shard alone shows none of them. `replica` is the id of a node, as
`GET /v1/cluster` has it; what a leader knows of a replica stands at the leader only, so that each
is told of once.
"""

from collections.abc import Iterator

from app.api.ports import Replicas
from app.api.telemetry.metric_family import Family


def replica_families(replicas: Replicas | None) -> Iterator[Family]:
    """All of them; none of a node that has a shard alone."""
    if replicas is None:
        return
    own = replicas.own()
    shard = f'shard="{own.shard}"'
    here = f'{{{shard},replica="{own.node}"}}'
    yield Family(
        "curlew_replica_leading", "gauge", "1: this node leads the shard.", [(here, own.leads)]
    )
    yield Family(
        "curlew_replica_leader_known",
        "gauge",
        "1: this node knows who leads the shard.",
        [(here, own.knows_leader)],
    )
    yield Family(
        "curlew_replica_epoch",
        "gauge",
        "The newest epoch of the shard that this replica has promised; it rises with each leader.",
        [(here, own.epoch)],
    )
    yield Family(
        "curlew_replica_unconfirmed_bytes",
        "gauge",
        "Bytes of this replica's log behind the high watermark: they are not confirmed yet.",
        [(here, max(own.written_end - own.high_watermark, 0))],
    )
    yield Family(
        "curlew_replica_given_up_bytes_total",
        "counter",
        "Bytes cut off this replica's log, as an unclean election had given them up.",
        [(here, own.given_up_bytes)],
    )
    yield Family(
        "curlew_replica_damaged_places",
        "gauge",
        "Damaged places of this replica's log that no other replica has put right yet.",
        [(here, own.damaged_places)],
    )
    yield Family(
        "curlew_replica_repaired_bytes_total",
        "counter",
        "Damaged bytes of this replica's log that were put right with those of another.",
        [(here, own.repaired_bytes)],
    )
    if own.leads:
        yield from _of_the_leader(replicas)


def _of_the_leader(replicas: Replicas) -> Iterator[Family]:
    own, followers = replicas.own(), replicas.followers()

    def labels(node: str) -> str:
        return f'{{shard="{own.shard}",replica="{node}"}}'

    yield Family(
        "curlew_replicas_lacking",
        "gauge",
        "So many more replicas would have to answer before sends are taken.",
        [(f'{{shard="{own.shard}"}}', own.lacking_count)],
    )
    yield Family(
        "curlew_replica_in_sync",
        "gauge",
        "1: the replica has all that is confirmed, and may lead next.",
        [(labels(node), node in own.in_sync) for node in (own.node, *(f.node for f in followers))],
    )
    yield Family(
        "curlew_replica_lag_bytes",
        "gauge",
        "Bytes of the leader's log that the replica does not have yet; none: it has said nothing.",
        [(labels(each.node), each.lag_bytes) for each in followers if each.lag_bytes is not None],
    )
    yield Family(
        "curlew_replica_lag_seconds",
        "gauge",
        "Since when it lacks something of the leader's log, or is not heard; 0: it has all.",
        [(labels(each.node), each.lag_ms / 1_000) for each in followers],
    )
