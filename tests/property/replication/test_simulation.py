"""Random histories of a shard: nothing that was confirmed changes or goes away, on any replica.

A failure names its seed; the same seed gives the same history.
"""

from typing import Final

import pytest

from tests.property.replication.simulated_shard import (
    DAYS_WITH_BACKUPS,
    DAYS_WITH_CLOCKS,
    DAYS_WITH_RETENTION,
    SimulatedShard,
)
from tests.support import length

SEEDS: Final = length.count(40, 4_500)
"""Of each world; the full length is over 20,000 histories."""

JOINS_MS: Final = 12_000

WORLDS: Final = {
    "three replicas": {"replicas": 3},
    "two replicas": {"replicas": 2},
    "a database that forgets": {"replicas": 3, "min_in_sync": 2, "forgets": True},
    "replicas that join": {"replicas": 3, "min_in_sync": 2, "joins_ms": JOINS_MS},
    "clocks that are set, and requests that wait at frozen nodes": {
        "replicas": 3,
        "min_in_sync": 2,
        "days": DAYS_WITH_CLOCKS,
        "holds_requests": True,
    },
    "logs whose beginning is deleted": {
        "replicas": 3,
        "min_in_sync": 2,
        "days": DAYS_WITH_RETENTION,
    },
    "followers that say what is new alone": {
        "replicas": 3,
        "min_in_sync": 2,
        "says_news_only": True,
    },
    "a database from a backup": {
        "replicas": 3,
        "min_in_sync": 2,
        "forgets": True,
        "days": DAYS_WITH_BACKUPS,
        "joins_ms": JOINS_MS,
    },
}


@pytest.mark.parametrize("world", WORLDS)
def test_no_fault_breaks_a_promise(world: str) -> None:
    confirmed = elections = 0
    for seed in range(SEEDS):
        shard = SimulatedShard(seed, **WORLDS[world])  # type: ignore[arg-type]
        shard.run(faults=30)
        confirmed += len(shard.judge.confirmed)
        elections += len(shard.judge.served)
    assert confirmed > 100 * SEEDS, "messages were sent and confirmed"
    assert elections > 2 * SEEDS, "leaders were replaced"


def test_a_seed_gives_the_same_history_again() -> None:
    one, other = SimulatedShard(3), SimulatedShard(3)
    one.run(faults=8)
    other.run(faults=8)
    assert one.history() == other.history()
