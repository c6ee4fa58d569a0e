"""A replica that can follow and cannot lead, or takes no messages, keeps nobody out who can.

R8 and R13. The last tests break each rule, and service does not come back.
"""

import pytest

from app.cluster.replication.events import (
    Action,
    AppendTermStart,
    CannotLead,
    KeepPromise,
    Serve,
    WriteBlocks,
)
from app.cluster.replication.leader import Leader
from app.cluster.replication.replica_state import ReplicaState
from tests.property.replication.judge import Violation
from tests.property.replication.scenarios import (
    NEVER,
    name_next,
    pass_until,
    running,
    serves,
    until_elected,
)
from tests.property.replication.simulated_node import TIMING
from tests.property.replication.simulated_shard import DAYS_WITHOUT_LOSS, SimulatedShard
from tests.support import length

SEEDS = length.count(40, 1_000)


@pytest.mark.parametrize("lacking", [AppendTermStart, KeepPromise, Serve])
def test_the_next_one_has_the_shard_at_once(lacking: type[Action]) -> None:
    shard = running()
    node = shard.nodes["B"]
    node.lacks_until_ms, node.lacking = NEVER, lacking
    name_next(shard, "B")
    assert until_elected(shard, "C") < TIMING.lease_ms
    before = len(shard.judge.served)
    shard.schedule.run_until(shard.schedule.now_ms + 3 * TIMING.rest_ms)
    assert len(shard.judge.served) == before, "it stood again"
    node.lacks_until_ms = 0
    shard.schedule.run_until(shard.schedule.now_ms + 3_000)
    shard.expect_service()


def test_two_that_cannot_do_not_keep_the_third_out() -> None:
    shard = running()
    for name in "AB":
        shard.nodes[name].lacks_until_ms = NEVER
    name_next(shard, "B")
    assert until_elected(shard, "C") < TIMING.lease_ms
    name_next(shard, "A")  # which rests no more, and still cannot
    shard.schedule.run_until(shard.schedule.now_ms + TIMING.lease_ms)
    assert until_elected(shard, "C") < 2 * TIMING.lease_ms


def test_it_rests_while_the_one_that_it_has_named_is_frozen() -> None:
    shard = running()
    shard.nodes["B"].lacks_until_ms, shard.nodes["B"].lacking = NEVER, AppendTermStart
    shard.nodes["C"].paused_until_ms = shard.schedule.now_ms + 5_000
    shard.nodes["A"].stop()
    name_next(shard, "B")
    before = shard.database.row.term.epoch
    shard.schedule.run_until(shard.schedule.now_ms + 5_000)
    assert shard.database.row.term.epoch == before + 1
    assert until_elected(shard, "C") < TIMING.lease_ms


def test_two_that_name_each_other_do_it_once_in_a_lease() -> None:
    shard = running(2)
    for node in shard.nodes.values():
        node.lacks_until_ms, node.lacking = shard.schedule.now_ms + 20_000, AppendTermStart
    shard.nodes["A"].give(CannotLead("no room"))
    before = shard.database.row.term.epoch
    shard.schedule.run_until(shard.schedule.now_ms + 20_000)
    assert 5 < shard.database.row.term.epoch - before <= 2 * 20_000 // TIMING.lease_ms
    shard.schedule.run_until(shard.schedule.now_ms + 2 * TIMING.lease_ms)
    shard.expect_service()


def test_all_of_them_try_again() -> None:
    shard = running()
    for node in shard.nodes.values():
        node.lacks_until_ms = NEVER
    name_next(shard, "B")
    shard.schedule.run_until(shard.schedule.now_ms + 30_000)
    for node in shard.nodes.values():
        node.lacks_until_ms = 0
    shard.schedule.run_until(shard.schedule.now_ms + TIMING.rest_ms + 2 * TIMING.lease_ms)
    shard.expect_service()


def test_who_is_alone_goes_on_trying() -> None:
    shard = SimulatedShard(1, replicas=1)
    node = shard.nodes["A"]
    node.lacks_until_ms = 10_000
    shard.schedule.run_until(10_000)
    assert not serves(shard, "A")
    shard.schedule.run_until(10_000 + TIMING.lease_ms)
    assert serves(shard, "A")


@pytest.mark.parametrize("lacking", [AppendTermStart, KeepPromise, Serve])
def test_a_lost_answer_to_the_hand_over_is_made_good(lacking: type[Action]) -> None:
    shard = running()
    node = shard.nodes["B"]
    node.lacks_until_ms, node.lacking = NEVER, lacking
    name_next(shard, "B")
    pass_until(shard, lambda: shard.database.row.leader == node.member)
    shard.database.is_away = True
    shard.schedule.run_until(shard.schedule.now_ms + 300)
    assert shard.database.row.leader == node.member
    shard.database.is_away = False
    lease_left_ms = shard.database.row.lease_until_ms - shard.schedule.now_ms
    assert lease_left_ms > 1_500
    assert until_elected(shard, "C") < 1_500


def test_a_leader_whose_disk_is_full_hands_over() -> None:
    shard = running()
    shard.schedule.run_until(shard.schedule.now_ms + TIMING.lease_ms)
    shard.nodes["A"].full_until_ms = shard.nodes["B"].full_until_ms = NEVER
    epoch = shard.database.row.term.epoch
    assert until_elected(shard, "C") < TIMING.lease_ms
    before = len(shard.judge.served)
    assert shard.database.row.term.epoch == epoch + 1, "B was passed over"
    shard.schedule.run_until(shard.schedule.now_ms + 5 * TIMING.lease_ms)
    assert len(shard.judge.served) == before
    shard.expect_service()


def test_where_all_disks_are_full_the_leader_stays_and_takes_messages_when_there_is_room() -> None:
    shard = running()
    for node in shard.nodes.values():
        node.full_until_ms = shard.schedule.now_ms + 10 * TIMING.lease_ms
    before = len(shard.judge.served)
    shard.schedule.run_until(shard.schedule.now_ms + 9 * TIMING.lease_ms)
    assert serves(shard, "A")
    assert not shard.nodes["A"].send_value("x", wants_sync=True)
    shard.schedule.run_until(shard.schedule.now_ms + TIMING.lease_ms)
    shard.expect_service()
    assert len(shard.judge.served) == before


def test_a_full_leader_stays_while_the_database_is_away() -> None:
    shard = running()
    shard.database.is_away = True
    shard.schedule.run_until(shard.schedule.now_ms + TIMING.lease_ms)
    shard.nodes["A"].full_until_ms = NEVER
    shard.schedule.run_until(shard.schedule.now_ms + 2 * TIMING.lease_ms)
    assert serves(shard, "A")
    assert not shard.nodes["A"].takes_no_more
    shard.database.is_away = False
    pass_until(shard, lambda: serves(shard, "B") or serves(shard, "C"))


@pytest.mark.parametrize("later_ms", range(0, 1_500, 100))
def test_a_database_that_goes_away_while_the_disk_fills_ends_no_service(later_ms: int) -> None:
    shard = running()
    shard.schedule.run_until(shard.schedule.now_ms + 2 * TIMING.lease_ms)
    node = shard.nodes["A"]
    node.full_until_ms = NEVER
    shard.schedule.run_until(shard.schedule.now_ms + later_ms)
    shard.database.is_away = True
    shard.schedule.run_until(shard.schedule.now_ms + 10 * TIMING.lease_ms)
    if shard.database.row.handed_to is not None:  # it is named, and elected with the database
        shard.database.is_away = False
        pass_until(shard, lambda: serves(shard, "B") or serves(shard, "C"))
        return
    (leader,) = (name for name in "ABC" if serves(shard, name))
    assert not shard.nodes[leader].takes_no_more
    node.full_until_ms = 0
    shard.schedule.run_until(shard.schedule.now_ms + TIMING.lease_ms)
    assert shard.nodes[leader].send_value("x", wants_sync=True)


def test_a_follower_without_room_leaves_the_set_and_comes_back() -> None:
    shard = running()
    node = shard.nodes["B"]
    node.lacks_until_ms, node.lacking = NEVER, WriteBlocks
    pass_until(shard, lambda: node.member not in shard.database.row.in_sync)
    shard.schedule.run_until(shard.schedule.now_ms + 5_000)
    assert serves(shard, "A")
    node.lacks_until_ms = 0
    pass_until(shard, lambda: node.member in shard.database.row.in_sync)


def run_full_histories() -> None:
    """Faults all around, and a replica whose disk never has room for messages."""
    for seed in range(SEEDS):
        shard = SimulatedShard(seed, min_in_sync=2, forgets=True, days=DAYS_WITHOUT_LOSS)
        shard.stays_full = {"B"}
        shard.nodes["B"].full_until_ms = NEVER
        shard.run(faults=20)


def test_no_fault_keeps_messages_out_that_another_one_takes() -> None:
    run_full_histories()


def test_a_leader_that_stays_without_room_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Leader, "_without_lack", lambda *_: set())
    with pytest.raises(Violation, match="not confirmed"):
        run_full_histories()


def run_histories() -> None:
    """Faults all around, and a replica that can never lead."""
    for seed in range(SEEDS):
        shard = SimulatedShard(seed, min_in_sync=2, forgets=True, days=DAYS_WITHOUT_LOSS)
        shard.never_leads = {"B"}
        node = shard.nodes["B"]
        node.lacks_until_ms = NEVER
        node.lacking = AppendTermStart if seed % 2 else Serve
        shard.run(faults=20)


def test_no_fault_keeps_those_out_who_can_lead() -> None:
    run_histories()


def test_a_replica_that_elects_itself_for_ever_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def go_on(self: Leader, reason: str) -> None:
        self.over = reason

    monkeypatch.setattr(Leader, "resign", go_on)
    monkeypatch.setattr(ReplicaState, "is_resting", lambda _self: False)
    with pytest.raises(Violation, match="nobody serves"):
        run_histories()
