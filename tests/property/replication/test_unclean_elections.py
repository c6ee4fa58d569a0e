"""An operator has a replica lead that is not in sync, where all that are have gone.

Confirmed messages may be lost then, and nothing else: no two logs that differ, no two leaders of an
epoch, and all are alike again when they have come back.
"""

from functools import partial

import pytest

from app.cluster.replication.candidate import UncleanCandidate
from app.cluster.replication.events import UncleanAsked, UncleanJudged, UncleanRefusal
from app.cluster.replication.follower import Follower
from app.cluster.replication.messages import Welcome
from app.cluster.replication.shard_row import ElectAfterLoss, ElectUnclean, ShardRow
from app.cluster.replication.terms import Member, cut_history
from tests.property.replication.judge import Violation
from tests.property.replication.scenarios import pass_time, pass_until, running, serves
from tests.property.replication.simulated_node import TIMING
from tests.property.replication.simulated_shard import SimulatedShard
from tests.property.replication.test_retention import without_what_comes_next
from tests.support import length

SEEDS = length.count(60, 2_000)


def out_of_sync(shard: SimulatedShard, name: str) -> None:
    """One is gone, and the others go on without it; then they are gone, and it comes back."""
    node = shard.nodes[name]
    node.stop()
    pass_until(shard, lambda: is_out(shard, node.member))
    pass_time(shard, shard.random.randint(300, 3_000))
    for other in shard.nodes.values():
        if other is not node:
            other.stop()
    node.start()


def is_out(shard: SimulatedShard, member: Member) -> bool:
    return member not in shard.database.row.in_sync


def judged(shard: SimulatedShard, name: str, *, is_dry_run: bool = False) -> UncleanJudged:
    """What the command is answered."""
    node = shard.nodes[name]
    node.judgements.clear()
    node.give(UncleanAsked(7, "an operator", is_dry_run))
    pass_until(shard, lambda: bool(node.judgements))
    (found,) = node.judgements
    assert found.number == 7
    return found


def test_nobody_leads_without_a_command_and_it_does_with_one() -> None:
    shard = running()
    out_of_sync(shard, "C")
    pass_time(shard, 10 * TIMING.lease_ms)
    assert not serves(shard, "C")
    tried = judged(shard, "C", is_dry_run=True)
    assert (tried.refusal, tried.in_sync, tried.answered) == (None, ("A", "B"), ())
    pass_time(shard, TIMING.lease_ms)
    assert not serves(shard, "C"), "it was a dry run"
    assert judged(shard, "C").refusal is None
    pass_until(shard, lambda: serves(shard, "C"))
    assert shard.lost, "the others had more"
    assert shard.database.row.possible_loss
    for name in "AB":
        shard.nodes[name].start()
    pass_time(shard, 8_000)
    shard.expect_service()
    assert [shard.nodes[name].made_anew for name in "ABC"] == [1, 1, 0]


def test_not_while_a_lease_holds_or_somebody_in_sync_answers() -> None:
    shard = running()
    out_of_sync(shard, "C")
    assert judged(shard, "C").refusal is UncleanRefusal.LEASE_HOLDS
    pass_time(shard, 2 * TIMING.lease_ms)
    shard.nodes["B"].start()
    pass_time(shard, 100)
    found = judged(shard, "C")
    assert (found.refusal, found.node) == (UncleanRefusal.MEMBER_ANSWERS, "B")
    pass_until(shard, lambda: serves(shard, "B"))
    assert judged(shard, "B").refusal is UncleanRefusal.LEADS
    pass_until(shard, lambda: shard.nodes["C"].member in shard.database.row.in_sync)
    shard.nodes["B"].stop()
    found = judged(shard, "C")
    assert (found.refusal, found.node) == (UncleanRefusal.LEADER_ANSWERS, "B")
    pass_time(shard, TIMING.silence_ms)
    assert judged(shard, "C").refusal is UncleanRefusal.IN_SYNC
    assert not shard.lost


def test_not_without_the_database() -> None:
    shard = running()
    out_of_sync(shard, "C")
    pass_time(shard, 2 * TIMING.lease_ms)
    shard.database.is_away = True
    assert judged(shard, "C").refusal is UncleanRefusal.DATABASE_AWAY


def test_who_has_more_goes_first() -> None:
    shard = SimulatedShard(1, replicas=4, min_in_sync=2)
    shard.load(30_000)
    pass_until(shard, lambda: len(shard.database.row.in_sync) == 4)
    names = [name for name in shard.nodes if not serves(shard, name)]
    behind, ahead, _ = names
    for name in (behind, ahead):
        shard.nodes[name].stop()
        pass_until(shard, partial(is_out, shard, shard.nodes[name].member))
        pass_time(shard, 500)
    for node in shard.nodes.values():
        node.stop()
    for name in (behind, ahead):
        shard.nodes[name].start()
    pass_time(shard, 2 * TIMING.lease_ms)
    found = judged(shard, behind)
    assert (found.refusal, found.node) == (UncleanRefusal.ANOTHER_HAS_MORE, ahead)
    assert judged(shard, ahead).refusal is None
    shard.heal()
    pass_time(shard, 10_000)
    shard.expect_service()


def test_whose_log_begins_behind_what_the_new_leader_has_begins_anew() -> None:
    shard = running()
    without_what_comes_next(shard, "C")
    pass_time(shard, 2_000)  # the other one deletes it, too
    for name in "AB":
        shard.nodes[name].stop()
    shard.nodes["C"].start()
    pass_time(shard, 2 * TIMING.lease_ms)
    assert judged(shard, "C").refusal is None
    pass_until(shard, lambda: serves(shard, "C"))
    assert shard.lost
    for name in "AB":
        assert shard.nodes[name].disk.start > shard.nodes["C"].disk.start
        shard.nodes[name].start()
    pass_time(shard, 8_000)
    shard.expect_service()
    assert [shard.nodes[name].begun_anew for name in "ABC"] == [1, 1, 0]


def test_a_copy_that_has_begun_has_not_more() -> None:
    """It begins where the leader's log does, far behind the end of the other, and has nothing."""
    shard = SimulatedShard(1, replicas=4, min_in_sync=2)
    shard.load(3_000)
    pass_until(shard, lambda: len(shard.database.row.in_sync) == 4)
    leader = next(each for each in shard.nodes.values() if serves(shard, each.name))
    names = [name for name in shard.nodes if not serves(shard, name)]
    behind, copying, _ = names
    shard.nodes[copying].stop()
    without_what_comes_next(shard, behind)
    pass_until(shard, partial(is_out, shard, shard.nodes[copying].member))
    for node in shard.nodes.values():
        node.stop()
    start = leader.disk.start
    shard.nodes[copying].disk.begin(start, cut_history(leader.disk.history, start))
    for name in (behind, copying):
        shard.nodes[name].start()
    pass_time(shard, 2 * TIMING.lease_ms)
    found = judged(shard, copying)
    assert (found.refusal, found.node) == (UncleanRefusal.ANOTHER_HAS_MORE, behind)
    assert judged(shard, behind).refusal is None
    shard.heal()
    pass_time(shard, 10_000)
    shard.expect_service()


def run_histories() -> int:
    """Faults, then a loss of all in sync, then the others come back, and faults again; how many
    confirmed blocks were lost."""
    lost = 0
    for seed in range(SEEDS):
        is_of_three = seed % 3 > 0
        shard = SimulatedShard(
            seed, replicas=3 if is_of_three else 2, min_in_sync=2 if is_of_three else 1
        )
        try:
            run_history(shard)
        except (Violation, AssertionError) as error:
            raise Violation(f"seed {seed}: {error}\n{shard.history()}") from error
        lost += shard.lost
    return lost


def run_history(shard: SimulatedShard) -> None:
    shard.load(30_000)
    for _ in range(6):
        shard.schedule.after(shard.random.randint(2_500, 8_000), shard.fault)
    shard.schedule.run_until(12_000)
    shard.heal()
    pass_time(shard, 4_000)  # whoever was killed has started again
    pass_until(shard, lambda: len(shard.database.row.in_sync) == len(shard.nodes))
    name = shard.random.choice([each for each in shard.nodes if not serves(shard, each)])
    out_of_sync(shard, name)
    pass_time(shard, 2 * TIMING.lease_ms)
    found = judged(shard, name)
    assert found.refusal is None, found
    returning_ms = shard.random.randint(0, 2_000)
    for other in shard.nodes.values():
        if other.name != name:
            if shard.random.random() < 0.3:
                shard.empty_disk(other, name)
            shard.schedule.after(returning_ms, partial(shard.start, other))
    pass_until(shard, lambda: any(serves(shard, each) for each in shard.nodes))
    for _ in range(4):
        shard.schedule.after(shard.random.randint(500, 6_000), shard.fault)
    pass_time(shard, 8_000)
    shard.heal()
    pass_time(shard, 12_000)
    shard.expect_service()


def test_no_fault_breaks_more_than_what_is_told_to_be_lost() -> None:
    assert run_histories() > SEEDS


def test_an_election_while_an_in_sync_member_answers_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(UncleanCandidate, "_refusal", lambda *_, **__: (None, None))
    shard = running()
    out_of_sync(shard, "C")
    pass_time(shard, 2 * TIMING.lease_ms)
    shard.nodes["B"].start()
    pass_time(shard, 20)
    judged(shard, "C")
    pass_until(shard, lambda: serves(shard, "C") or serves(shard, "B"))
    assert serves(shard, "C"), "what B had is given up though it lives"


def test_one_that_forgets_that_a_loss_was_told_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def apply(self: ElectUnclean, row: ShardRow, now_ms: int) -> ShardRow | None:
        untold = ElectAfterLoss(
            self.seen, self.seen_version, self.term, self.candidate, self.lease_ms
        ).apply(row, now_ms)
        return (
            None
            if untold is None
            else ShardRow(
                untold.term,
                untold.leader,
                untold.in_sync,
                untold.in_sync_version,
                untold.settled_version,
                untold.lease_until_ms,
                min_in_sync=row.min_in_sync,
                target_replicas=row.target_replicas,
            )
        )

    monkeypatch.setattr(ElectUnclean, "apply", apply)
    with pytest.raises(Violation, match="CUT_BELOW_WATERMARK"):
        run_histories()


def test_one_that_cuts_what_it_has_shown_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    welcome = Follower.welcome

    def cut(self: Follower, node: str, message: Welcome) -> None:
        self._state.high_watermark = min(self._state.high_watermark, message.cut_to)
        welcome(self, node, message)

    monkeypatch.setattr(Follower, "welcome", cut)
    with pytest.raises(Violation, match="what it showed"):
        run_histories()
