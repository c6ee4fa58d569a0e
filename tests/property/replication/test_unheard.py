"""A leader that too few of its set answer, while it reaches the database: R8 and R1.

Another one is elected where it can do better, and nobody where it cannot. The last tests break the
rule, and nothing is confirmed any more.
"""

from collections.abc import Callable

import pytest

from app.cluster.replication.leader import Leader
from app.cluster.replication.shard_row import ShardRow
from tests.property.replication.judge import Violation
from tests.property.replication.scenarios import (
    pass_until,
    running,
    serves,
    stand_without_enough_answers,
)
from tests.property.replication.simulated_node import TIMING
from tests.property.replication.simulated_shard import DAYS_WITHOUT_LOSS, SimulatedShard
from tests.support import length

SEEDS = length.count(30, 1_000)

Silence = Callable[[SimulatedShard, str], None]


def unheard(shard: SimulatedShard, name: str) -> None:
    """What it says reaches no other replica."""
    for other in shard.nodes.keys() - {name}:
        shard.network.block(name, other)


def deaf(shard: SimulatedShard, name: str) -> None:
    """What the others say does not reach it."""
    for other in shard.nodes.keys() - {name}:
        shard.network.block(other, name)


def cut_off(shard: SimulatedShard, name: str) -> None:
    """Both."""
    unheard(shard, name)
    deaf(shard, name)


def confirms(shard: SimulatedShard) -> bool:
    """Whether what is sent to whoever serves is confirmed within three seconds."""
    before = shard.judge.end
    shard.send()
    shard.schedule.run_until(shard.schedule.now_ms + 3_000)
    return shard.judge.end > before


SILENCES = pytest.mark.parametrize("silence", [unheard, deaf, cut_off])


@SILENCES
def test_another_one_leads_soon(silence: Silence) -> None:
    shard = running()
    silence(shard, "A")
    took_ms = pass_until(shard, lambda: serves(shard, "B") or serves(shard, "C"))
    assert took_ms < TIMING.silence_ms + TIMING.lease_ms + 2_000
    served = len(shard.judge.served)
    assert confirms(shard)
    shard.schedule.run_until(shard.schedule.now_ms + 5 * TIMING.lease_ms)
    assert len(shard.judge.served) == served, "it goes to nobody else"
    shard.heal()
    shard.schedule.run_until(shard.schedule.now_ms + 5_000)
    shard.expect_service()


@SILENCES
def test_where_nobody_can_do_without_it_the_leader_stays_for_readers(silence: Silence) -> None:
    shard = running(2)
    epoch = shard.database.row.term.epoch
    silence(shard, "A")
    shard.schedule.run_until(shard.schedule.now_ms + 5 * TIMING.lease_ms)
    assert serves(shard, "A")
    assert shard.database.row.term.epoch == epoch
    shard.network.heal()
    shard.schedule.run_until(shard.schedule.now_ms + 3_000)
    assert serves(shard, "A")
    shard.expect_service()


@SILENCES
def test_one_that_reaches_nobody_either_takes_nothing_over(silence: Silence) -> None:
    shard = running()
    shard.nodes["C"].stop()
    silence(shard, "A")
    epoch = shard.database.row.term.epoch
    shard.schedule.run_until(shard.schedule.now_ms + 5 * TIMING.lease_ms)
    assert serves(shard, "A")
    assert shard.database.row.term.epoch == epoch
    shard.nodes["C"].start()
    pass_until(shard, lambda: serves(shard, "B") or serves(shard, "C"))
    assert confirms(shard)


def test_a_leader_whose_followers_were_dead_leads_when_they_are_back() -> None:
    shard = running()
    epoch = shard.database.row.term.epoch
    for name in "BC":
        shard.nodes[name].stop()
    shard.schedule.run_until(shard.schedule.now_ms + 5 * TIMING.lease_ms)
    assert serves(shard, "A")
    for name in "BC":
        shard.nodes[name].start()
    shard.schedule.run_until(shard.schedule.now_ms + 3 * TIMING.lease_ms)
    shard.expect_service()
    assert shard.database.row.term.epoch == epoch
    assert shard.database.row.lease_until_ms > shard.schedule.now_ms


@pytest.mark.parametrize("later_ms", range(0, 100, 10))
def test_followers_that_stood_still_take_nothing_from_who_did_not(later_ms: int) -> None:
    shard = running()
    shard.schedule.run_until(20_500 + later_ms)  # nothing is sent any more
    epoch = shard.database.row.term.epoch
    for name in "BC":
        shard.nodes[name].paused_until_ms = shard.schedule.now_ms + 3 * TIMING.lease_ms
    shard.schedule.run_until(shard.schedule.now_ms + 6 * TIMING.lease_ms)
    assert shard.database.row.term.epoch == epoch
    shard.expect_service()


def test_with_the_database_away_it_waits_for_the_database() -> None:
    shard = running()
    shard.database.is_away = True
    unheard(shard, "A")
    shard.schedule.run_until(shard.schedule.now_ms + 5 * TIMING.lease_ms)
    assert serves(shard, "A")
    shard.database.is_away = False
    pass_until(shard, lambda: serves(shard, "B") or serves(shard, "C"))
    assert confirms(shard)


def test_one_that_is_elected_and_not_heard_does_not_keep_the_others_out() -> None:
    shard = running()
    shard.nodes["A"].stop()
    silenced: list[str] = []

    def silence_the_next(change: object, before: ShardRow, after: ShardRow) -> None:
        if not silenced and after.term != before.term and after.leader is not None:
            silenced.append(after.leader.node)
            unheard(shard, after.leader.node)

    shard.database.on_change = silence_the_next
    pass_until(shard, lambda: bool(silenced))
    shard.nodes["A"].start()
    (name,) = silenced
    others = shard.nodes.keys() - {name}
    pass_until(shard, lambda: any(serves(shard, other) for other in others))
    assert confirms(shard)


def run_histories() -> None:
    """Faults all around, and then one that stays silent in one direction or in both."""
    for seed in range(SEEDS):
        shard = SimulatedShard(seed, min_in_sync=2, forgets=True, days=DAYS_WITHOUT_LOSS)
        shard.run(faults=12)
        lonely = shard.database.row.leader
        assert lonely is not None
        (unheard, deaf, cut_off)[seed % 3](shard, lonely.node)
        shard.schedule.run_until(shard.schedule.now_ms + 4 * TIMING.lease_ms)
        others = shard.nodes.keys() - {lonely.node}
        if not any(serves(shard, other) for other in others) or not confirms(shard):
            raise Violation(f"seed {seed}: nothing is confirmed\n{shard.history()}")


def test_whoever_is_not_heard_keeps_nobody_out() -> None:
    run_histories()


def test_a_leader_that_renews_for_ever_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Leader, "_is_unheard", lambda _self: False)
    with pytest.raises(Violation, match="nothing is confirmed"):
        run_histories()


def test_who_stands_without_enough_answers_ends_the_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_without_enough_answers(monkeypatch)
    shard = running()
    shard.nodes["C"].stop()
    unheard(shard, "A")
    shard.schedule.run_until(shard.schedule.now_ms + 5 * TIMING.lease_ms)
    assert not any(serves(shard, name) for name in shard.nodes)
