"""A shard that has come to rest, and what is waited for in it, for scenarios of a few faults."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from app.cluster.replication.candidate import Candidate
from tests.property.replication.simulated_shard import SimulatedShard

NEVER = 1 << 60
"""Of a time in milliseconds: behind the end of each history."""


def running(replicas: int = 3) -> SimulatedShard:
    """So many replicas in sync, led by A."""
    shard = SimulatedShard(1, replicas=replicas, min_in_sync=2)
    shard.load(20_000)

    def all_follow(name: str) -> bool:
        return serves(shard, name) and len(shard.database.row.in_sync) == replicas

    pass_until(shard, lambda: any(map(all_follow, shard.nodes)))
    if not serves(shard, "A"):
        name_next(shard, "A")
        pass_until(shard, lambda: all_follow("A"))
    return shard


def pass_time(shard: SimulatedShard, time_ms: int) -> None:
    shard.schedule.run_until(shard.schedule.now_ms + time_ms)


def pass_until(shard: SimulatedShard, is_met: Callable[[], bool]) -> int:
    """Let time pass until a condition is met; how long it took, in milliseconds."""
    began_ms = shard.schedule.now_ms
    while not is_met():
        shard.schedule.run_until(shard.schedule.now_ms + 1)
        assert shard.schedule.now_ms < began_ms + 60_000, shard.history()
    return shard.schedule.now_ms - began_ms


def serves(shard: SimulatedShard, name: str) -> bool:
    node = shard.nodes[name]
    return node.replica is not None and node.replica.is_serving


def until_elected(shard: SimulatedShard, name: str) -> int:
    """How long it takes until the row names a node, which serves some time later."""
    took_ms = pass_until(shard, lambda: shard.database.row.leader == shard.nodes[name].member)
    pass_until(shard, lambda: serves(shard, name))
    return took_ms


def name_next(shard: SimulatedShard, name: str) -> None:
    """As an operator does who moves the shard."""
    row, now_ms = shard.database.row, shard.schedule.now_ms
    shard.database.row = replace(row, handed_to=name, lease_until_ms=now_ms)


def stand_without_enough_answers(patch: pytest.MonkeyPatch) -> None:
    """A broken R1: a candidate stands however few would confirm with it."""
    patch.setattr(Candidate, "_has_too_few", lambda *_: False)
