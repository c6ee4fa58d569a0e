"""A follower alone: what it has the log do, connection by connection."""

import pytest

from app.cluster.replication.confirmation import LogEnd
from app.cluster.replication.events import (
    Action,
    Alarm,
    BeginAnew,
    CutLog,
    DeleteBelow,
    MakeAnew,
    Send,
    WriteBlocks,
)
from app.cluster.replication.follower import Follower
from app.cluster.replication.messages import Blocks, Ends, Watermark, Welcome
from app.cluster.replication.replica_state import ReplicaState, Timing
from app.cluster.replication.shard_row import ShardRow
from app.cluster.replication.terms import Member, Promise, Term, TermStart

TERM = Term(1, 7)
ME = Member("B", 2)
IN_SYNC = frozenset({Member("A", 1), ME})


def following(written: int) -> tuple[ReplicaState, Follower]:
    """A follower of A, whose log is written and synced so far."""
    state = ReplicaState(
        me=ME,
        timing=Timing(),
        new_grant=lambda: 1,
        peers=("A",),
        promise=Promise(TERM, 1, IN_SYNC),
        history=(TermStart(TERM, 0),),
        end=LogEnd(written, written),
        high_watermark=0,
    )
    state.leader_heard = "A", TERM
    return state, Follower(state, 0)


def welcomed(state: ReplicaState, follower: Follower, cut_to: int) -> list[Action]:
    """What a new connection leads to, whose leader has the log up to `cut_to`."""
    follower.tick()
    state.actions.clear()
    follower.welcome("A", Welcome(follower.session, TERM, 1, IN_SYNC, cut_to, 0))
    return list(state.actions)


def taken(state: ReplicaState, follower: Follower, start: int, end: int) -> list[Action]:
    state.actions.clear()
    assert follower.blocks("A", Blocks(follower.session, TERM, start, end, (), 0, 0))
    return list(state.actions)


def test_blocks_that_are_still_being_written_are_cut_before_they_come_again() -> None:
    """Else they would stand in the log twice: seeds 377, 2182 and 2414 of the simulation."""
    state, follower = following(written=100)
    assert CutLog(100) not in welcomed(state, follower, 100)
    assert WriteBlocks(100, 200) in taken(state, follower, 100, 200)
    follower.disconnected("A")
    assert CutLog(100) in welcomed(state, follower, 100)
    assert WriteBlocks(100, 200) in taken(state, follower, 100, 200)


def test_what_is_cut_is_cut_once() -> None:
    state, follower = following(written=100)
    welcomed(state, follower, 100)
    taken(state, follower, 100, 200)
    follower.disconnected("A")
    welcomed(state, follower, 100)
    follower.disconnected("A")
    assert CutLog(100) not in welcomed(state, follower, 100)


def test_what_has_been_written_meanwhile_is_cut_as_well() -> None:
    state, follower = following(written=100)
    welcomed(state, follower, 100)
    taken(state, follower, 100, 200)
    follower.disconnected("A")
    follower.tick()
    state.end = LogEnd(200, 100)
    state.actions.clear()
    follower.welcome("A", Welcome(follower.session, TERM, 1, IN_SYNC, 100, 0))
    assert CutLog(100) in state.actions
    assert state.end == LogEnd(100, 100)


def test_nothing_of_a_former_term_is_taken_after_a_newer_promise() -> None:
    """R2 at the replica. A second fence: no history of the simulation needs it."""
    state, follower = following(written=100)
    welcomed(state, follower, 100)
    state.promise_term(Term(2, 8))
    state.actions.clear()
    assert not follower.blocks("A", Blocks(follower.session, TERM, 100, 200, (), 0, 0))
    assert not any(isinstance(action, WriteBlocks) for action in state.actions)


def test_a_replica_that_would_lose_what_was_confirmed_says_so_as_long_as_it_stands() -> None:
    state, follower = following(written=100)
    state.high_watermark = 100
    assert not welcomed(state, follower, 50), "the row is not seen yet: it may tell of a loss"
    state.row = ShardRow(TERM, Member("A", 1), IN_SYNC, 1, 1, loss_epoch=TERM.epoch)
    follower.disconnected("A")
    assert [type(action) for action in welcomed(state, follower, 50)] == [Alarm]
    for _ in range(3):
        state.actions.clear()
        follower.tick()
        (alarm,) = state.actions
        assert isinstance(alarm, Alarm)
        assert alarm.code == "CUT_BELOW_WATERMARK"


def test_a_replica_whose_log_was_given_up_is_made_anew() -> None:
    state, follower = following(written=100)
    state.high_watermark, state.leader_heard = 100, None
    lost = Term(2, 8)
    state.row = ShardRow(lost, Member("A", 1), frozenset({Member("A", 1)}), 2, 2, loss_epoch=2)
    follower.tick()
    state.actions.clear()
    follower.welcome("A", Welcome(follower.session, lost, 2, state.row.in_sync, 50, 0))
    assert [type(action) for action in state.actions] == [MakeAnew]


@pytest.mark.parametrize("begins_at", [0, 60])
def test_a_log_that_begins_behind_what_the_leader_has_is_given_up_whole(begins_at: int) -> None:
    """Made anew it would keep its log, of which nothing is left by then. That loss was told."""
    history = (TermStart(TERM, 0),) if begins_at else ()
    for log_start, expected in ((50, MakeAnew), (51, BeginAnew)):
        state, follower = following(written=100)
        state.high_watermark, state.log_start = 80, log_start
        lost = Term(2, 9)
        state.row = ShardRow(lost, Member("A", 1), frozenset({Member("A", 1)}), 2, 1, loss_epoch=2)
        follower.tick()
        state.actions.clear()
        in_sync = state.row.in_sync
        welcome = Welcome(follower.session, lost, 2, in_sync, 50, 0, begins_at, history)
        follower.welcome("A", welcome)
        (action,) = state.actions
        assert type(action) is expected
        if isinstance(action, BeginAnew):
            assert (action.start, action.history, action.is_loss) == (begins_at, history, True)
            assert "this one begins at 51" in action.reason


def test_who_would_rest_if_it_were_named_says_so_until_it_would_not() -> None:
    state, follower = following(written=100)
    state.now_ms, state.could_not_lead_ms = 10_000, 9_000
    for now_ms, would_rest in ((10_000, True), (9_000 + state.timing.lease_ms, False)):
        state.now_ms = now_ms
        follower.disconnected("A")
        said = [each.message for each in welcomed(state, follower, 100) if isinstance(each, Send)]
        assert [each.would_rest for each in said if isinstance(each, Ends)] == [would_rest]


def test_a_follower_says_whether_its_disk_takes_messages() -> None:
    state, follower = following(written=100)
    for has_room in (None, True, False, None, True):
        state.see_room(has_room)
        follower.disconnected("A")
        said = [each.message for each in welcomed(state, follower, 100) if isinstance(each, Send)]
        assert [each.has_room for each in said if isinstance(each, Ends)] == [has_room]


def test_a_follower_says_whether_its_clock_is_off() -> None:
    state, follower = following(written=100)
    for is_off in (False, True, True, False):
        state.see_clock(is_off=is_off)
        follower.disconnected("A")
        said = [each.message for each in welcomed(state, follower, 100) if isinstance(each, Send)]
        assert [each.is_clock_off for each in said if isinstance(each, Ends)] == [is_off]


def test_a_follower_deletes_what_its_leader_has_deleted_and_hears_it_once() -> None:
    state, follower = following(written=100)
    welcomed(state, follower, 100)
    said = []
    for term, log_start in ((TERM, 0), (TERM, 64), (TERM, 64), (Term(0, 3), 80), (TERM, 96)):
        state.actions.clear()
        sign = Watermark(follower.session, term, 100, 100, 1, IN_SYNC, log_start)
        follower.watermark("A", sign)
        said.append([each.start for each in state.actions if isinstance(each, DeleteBelow)])
    assert said == [[], [64], [], [], [96]]


@pytest.mark.parametrize(("loss_epoch", "is_loss"), [(0, False), (1, False), (2, True)])
def test_what_is_cut_for_a_loss_that_was_told_is_called_one(loss_epoch: int, is_loss: bool) -> None:
    state, follower = following(written=200)
    state.history = (TermStart(Term(1, 1), 0),)
    state.row = ShardRow(TERM, in_sync=IN_SYNC, loss_epoch=loss_epoch)
    assert CutLog(100, is_loss) in welcomed(state, follower, 100)
