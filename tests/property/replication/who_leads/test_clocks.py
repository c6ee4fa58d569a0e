"""A replica whose clock is apart from the database's leads only where no other can: R12.

The last tests break the rule, and it leads while others could.
"""

import pytest

from app.cluster.replication.candidate import Candidate
from app.cluster.replication.leader import Leader
from tests.property.replication.judge import Violation
from tests.property.replication.scenarios import NEVER, name_next, pass_until, running, serves
from tests.property.replication.simulated_node import TIMING
from tests.property.replication.simulated_shard import DAYS_WITHOUT_LOSS, Day, SimulatedShard
from tests.support import length

SEEDS = length.count(20, 1_000)

SOON_MS = TIMING.clock_ms + TIMING.lease_ms
"""Within this a leader whose clock has gone off has handed over."""


def served_for_a_lease() -> SimulatedShard:
    """A leads, and may hand over."""
    shard = running()
    shard.schedule.run_until(shard.schedule.now_ms + TIMING.lease_ms)
    return shard


def take_off(shard: SimulatedShard, *names: str) -> None:
    for name in names:
        shard.stays_off.add(name)
        shard.nodes[name].clock_off_until_ms = NEVER


def set_right(shard: SimulatedShard, name: str) -> None:
    shard.stays_off.remove(name)
    shard.nodes[name].clock_off_until_ms = 0


def one_serves(shard: SimulatedShard, names: str) -> bool:
    return any(serves(shard, name) for name in names)


def test_a_leader_whose_clock_goes_off_hands_over_once() -> None:
    shard = served_for_a_lease()
    take_off(shard, "A", "B")
    before = len(shard.judge.served)
    assert pass_until(shard, lambda: serves(shard, "C")) < SOON_MS
    assert len(shard.judge.served) == before + 1, "B was passed over"
    set_right(shard, "A")
    shard.schedule.run_until(shard.schedule.now_ms + 5 * TIMING.lease_ms)
    assert serves(shard, "C"), "a clock that is right again takes nothing back"
    shard.expect_service()


def test_where_all_clocks_are_off_the_leader_stays() -> None:
    shard = served_for_a_lease()
    take_off(shard, "A", "B", "C")
    before = len(shard.judge.served)
    shard.schedule.run_until(shard.schedule.now_ms + 10 * TIMING.lease_ms)
    assert serves(shard, "A")
    shard.expect_service()
    assert len(shard.judge.served) == before
    set_right(shard, "B")
    pass_until(shard, lambda: serves(shard, "B"))


def test_who_is_alone_leads_whatever_its_clock_says() -> None:
    shard = SimulatedShard(1, replicas=1)
    take_off(shard, "A")
    shard.schedule.run_until(3 * TIMING.lease_ms)
    assert serves(shard, "A")
    shard.expect_service()


def test_without_the_database_it_goes_on() -> None:
    shard = served_for_a_lease()
    shard.database.is_away = True
    shard.schedule.run_until(shard.schedule.now_ms + TIMING.lease_ms)
    take_off(shard, "A")
    shard.schedule.run_until(shard.schedule.now_ms + 3 * TIMING.lease_ms)
    assert serves(shard, "A")
    shard.database.is_away = False
    pass_until(shard, lambda: one_serves(shard, "BC"))


def test_one_that_is_handed_the_shard_gives_it_on() -> None:
    shard = served_for_a_lease()
    take_off(shard, "B")
    name_next(shard, "B")
    pass_until(shard, lambda: serves(shard, "B"))
    assert pass_until(shard, lambda: one_serves(shard, "AC")) < 2 * SOON_MS


def test_a_leader_that_starts_again_with_its_clock_off_lets_nobody_wait_for_its_lease() -> None:
    shard = served_for_a_lease()
    shard.schedule.run_until(21_000)  # nothing is sent any more
    node = shard.nodes["A"]
    node.stop()
    take_off(shard, "A")
    node.start()
    assert pass_until(shard, lambda: one_serves(shard, "BC")) < TIMING.lease_ms // 2


@pytest.mark.parametrize("is_frozen", [False, True])
def test_it_leads_where_the_other_one_is_gone(is_frozen: bool) -> None:
    shard = SimulatedShard(1, replicas=2)
    pass_until(shard, lambda: one_serves(shard, "AB") and len(shard.database.row.in_sync) == 2)
    gone, left = ("A", "B") if serves(shard, "A") else ("B", "A")
    take_off(shard, left)
    if is_frozen:
        shard.nodes[gone].paused_until_ms = NEVER
    else:
        shard.nodes[gone].stop()
    assert pass_until(shard, lambda: serves(shard, left)) < 3 * TIMING.lease_ms


def test_one_that_answers_and_does_not_stand_keeps_it_out_for_a_lease() -> None:
    """It hears the others, and not the database."""
    shard = served_for_a_lease()
    shard.schedule.run_until(21_000)
    take_off(shard, "B")
    replica = shard.nodes["C"].replica
    assert replica is not None
    replica._should_stand = lambda: False  # type: ignore[method-assign]
    shard.nodes["A"].stop()
    took_ms = pass_until(shard, lambda: serves(shard, "B"))
    assert 2 * TIMING.lease_ms < took_ms < 4 * TIMING.lease_ms


def elect(seed: int) -> None:
    """The leader dies, and all have the same; the clock of one that is left is off."""
    shard = SimulatedShard(seed, min_in_sync=2)
    pass_until(shard, lambda: one_serves(shard, "ABC") and len(shard.database.row.in_sync) == 3)
    (leader,) = (name for name in "ABC" if serves(shard, name))
    off, right = sorted({"A", "B", "C"} - {leader}, reverse=bool(seed % 2))
    take_off(shard, off)
    shard.schedule.run_until(shard.schedule.now_ms + shard.random.randint(1_000, 3_000))
    shard.nodes[leader].stop()
    pass_until(shard, lambda: one_serves(shard, off + right))
    if serves(shard, off):
        raise Violation(f"seed {seed}: {off} was elected with its clock off\n{shard.history()}")


def test_another_one_is_elected() -> None:
    for seed in range(SEEDS):
        elect(seed)


def test_one_that_stands_whatever_its_clock_says_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Candidate, "_has_yielded", lambda *_: False)
    with pytest.raises(Violation, match="its clock off"):
        test_another_one_is_elected()


DAYS: tuple[Day, ...] = (
    *DAYS_WITHOUT_LOSS,
    SimulatedShard.cannot_lead,
    SimulatedShard.fill_disk,
    SimulatedShard.set_node_clock,
)


def run_histories() -> None:
    """Faults all around, and one whose clock is never right."""
    for seed in range(SEEDS):
        shard = SimulatedShard(seed, min_in_sync=2, forgets=True, days=DAYS)
        take_off(shard, "B")
        shard.run(faults=20)
        if serves(shard, "B"):
            raise Violation(f"seed {seed}: B leads, and its clock is off\n{shard.history()}")


def test_behind_all_faults_it_does_not_lead() -> None:
    run_histories()


def test_a_leader_that_stays_whatever_its_clock_says_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Leader, "_without_lack", lambda *_: set())
    with pytest.raises(Violation, match="B leads"):
        run_histories()
