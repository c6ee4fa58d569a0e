"""R12: whose clock is off neither leads nor is elected while another member can."""

from dataclasses import replace
from typing import Final

import pytest

from app.cluster.replication.confirmation import LogEnd
from app.cluster.replication.events import (
    Appended,
    ChangeRow,
    ClockSeen,
    Received,
    RowSeen,
    Send,
    TakeNoMore,
    Tick,
    TransferAsked,
)
from app.cluster.replication.leader import Leader, Phase
from app.cluster.replication.messages import (
    AskEnds,
    Ends,
    EndsAnswer,
    Hello,
    PromiseAnswer,
)
from app.cluster.replication.replica import Replica
from app.cluster.replication.replica_state import ReplicaState, Timing
from app.cluster.replication.shard_row import Elect, HandOver, RowChange, ShardRow
from app.cluster.replication.terms import Member, Promise, Term, TermStart

A, B, C = Member("A", 1), Member("B", 2), Member("C", 3)
FORMER, TERM = Term(4, 40), Term(5, 50)
IN_SYNC = frozenset({A, B, C})
WRITTEN: Final = 100
END: Final = 110
TIMING: Final = Timing()


def state_of_a() -> ReplicaState:
    return ReplicaState(
        me=A,
        timing=TIMING,
        new_grant=lambda: 1,
        peers=("B", "C"),
        promise=Promise(FORMER, 7, IN_SYNC),
        history=(TermStart(FORMER, 0),),
        end=LogEnd(WRITTEN, WRITTEN),
        high_watermark=0,
    )


def leading() -> Leader:
    """A has led for a lease, the others have all and a disk with room; its own clock has been off
    for long enough, and nobody else's."""
    leader = Leader(state_of_a(), TERM, ShardRow(TERM, A, IN_SYNC, 9, 7, min_in_sync=2), 0)
    leader.appended(Appended(END, wants_sync=True, term_start=TermStart(TERM, WRITTEN)))
    leader._state.end = LogEnd(END, END)
    for member in (B, C):
        former = Promise(FORMER, 7, IN_SYNC)
        leader.promise_answer(PromiseAnswer(TERM, member, former, is_given=True))
    for member in (B, C):
        hello = Hello(1, member, Promise(TERM), (TermStart(FORMER, 0),), WRITTEN)
        leader.hello(member.node, hello)
        leader.ends(member.node, Ends(1, TERM, END, END, 9, has_room=True))
    assert leader.phase is Phase.SERVING
    leader._state.clock_off_since_ms = 0
    pass_time(leader, TIMING.lease_ms)
    return leader


def pass_time(leader: Leader, ms: int) -> None:
    """The database answers, and the others say what they said before."""
    state = leader._state
    state.now_ms += ms
    leader._lease_end_ms = state.now_ms + TIMING.lease_ms
    for view in leader.followers:
        view.heard_ms = view.mark_ms = state.now_ms
    state.actions.clear()


def changed(state: ReplicaState) -> list[RowChange]:
    actions, state.actions = state.actions, []
    return [each.change for each in actions if isinstance(each, ChangeRow)]


def named(leader: Leader) -> list[str]:
    """Who is named at the next tick."""
    leader.tick()
    return [each.to for each in changed(leader._state) if isinstance(each, HandOver)]


@pytest.mark.parametrize(("off", "expected"), [("", ["B"]), ("B", ["C"]), ("C", ["B"]), ("BC", [])])
def test_a_leader_whose_clock_is_off_names_one_whose_clock_is_not(
    off: str, expected: list[str]
) -> None:
    leader = leading()
    for view in leader.followers:
        view.is_clock_off = view.node in off
    assert named(leader) == expected
    assert leader.over is None, "it goes on until the row has the next one"


def test_it_takes_work_until_then_and_names_again_as_an_answer_may_be_lost() -> None:
    leader = leading()
    leader.tick()
    assert TakeNoMore() not in leader._state.actions
    for after_ms, expected in ((TIMING.row_ms - 1, []), (1, ["B"])):
        pass_time(leader, after_ms)
        assert named(leader) == expected


def test_where_all_clocks_seem_off_at_once_it_is_the_databases() -> None:
    leader = leading()
    leader._state.clock_off_since_ms = leader._state.now_ms
    pass_time(leader, TIMING.clock_ms - 1)
    assert named(leader) == []
    for node in "BC":
        leader.ends(node, Ends(1, TERM, END, END, 9, has_room=True, is_clock_off=True))
    pass_time(leader, 1)
    assert named(leader) == []
    leader.ends("C", Ends(1, TERM, END, END, 9, has_room=True))
    pass_time(leader, TIMING.row_ms)
    assert named(leader) == ["C"]


@pytest.mark.parametrize("lack", ["full", "resting", "behind", "silent", "gone"])
def test_one_that_lacks_something_else_is_not_named_for_its_clock(lack: str) -> None:
    leader = leading()
    views = {view.node: view for view in leader.followers}
    if lack == "full":
        views["B"].has_room = False
    elif lack == "resting":
        views["B"].would_rest = True
    elif lack == "behind":
        views["B"].ends = LogEnd(WRITTEN, WRITTEN)
    elif lack == "silent":
        views["B"].heard_ms -= TIMING.silence_ms + 1
    else:
        leader.disconnected("B")
    assert named(leader) == ["C"]


def test_a_full_leader_names_one_with_room_whatever_its_clock_says_and_gets_nothing_back() -> None:
    leader = leading()
    state, views = leader._state, {view.node: view for view in leader.followers}
    state.full_since_ms = 0
    views["B"].has_room, views["C"].is_clock_off = False, True
    assert named(leader) == ["C"]
    state.full_since_ms = None  # as C, with the clock that is off, sees the others
    views["C"].is_clock_off, views["C"].has_room = False, False
    pass_time(leader, TIMING.row_ms)
    assert named(leader) == []


def test_of_two_with_room_a_full_leader_names_the_one_whose_clock_is_right() -> None:
    leader = leading()
    leader._state.full_since_ms = 0
    next(iter(leader.followers)).is_clock_off = True
    assert named(leader) == ["C"]


def test_who_was_elected_just_now_and_who_has_no_database_stay() -> None:
    leader = leading()
    leader._serving_ms = leader._state.now_ms - TIMING.lease_ms + 1
    assert named(leader) == []
    leader._serving_ms -= 1
    leader._lease_end_ms = leader._state.now_ms
    assert named(leader) == []


@pytest.mark.parametrize("resigns", [False, True])
@pytest.mark.parametrize(("off", "expected"), [("B", "C"), ("C", "B"), ("BC", "B")])
def test_who_leaves_names_one_whose_clock_is_off_where_there_is_no_other(
    off: str, expected: str, resigns: bool
) -> None:
    leader = leading()
    leader._state.clock_off_since_ms = None
    for view in leader.followers:
        view.is_clock_off = view.node in off
    if resigns:
        leader.resign("the disk has failed")
    else:
        leader.leave(TransferAsked())
        leader.takes_no_more()
    assert changed(leader._state) == [HandOver(TERM, expected)]


# --- elections

DEAD: Final = ShardRow(FORMER, C, IN_SYNC, 8, 7, min_in_sync=2)
"""C has led, and is silent."""
NOW_MS: Final = 20_000
ANSWER: Final = EndsAnswer(0, B, Promise(FORMER), FORMER, WRITTEN)


def standing(row: ShardRow = DEAD, *, is_off: bool = True) -> Replica:
    """A asks the others, as the lease is over by the row."""
    state = state_of_a()
    state.now_ms, state.database_since_ms, state.has_room = NOW_MS, 0, True
    replica = Replica(state)
    replica.handle(ClockSeen(is_off), NOW_MS)
    replica.handle(RowSeen(row, 0, NOW_MS), NOW_MS)
    assert asked_ends(replica, NOW_MS)
    replica.handle(RowSeen(row, 0, NOW_MS), NOW_MS)
    return replica


def asked_ends(replica: Replica, now_ms: int) -> bool:
    actions = replica.handle(Tick(), now_ms)
    sent = [each.message for each in actions if isinstance(each, Send)]
    return any(isinstance(each, AskEnds) for each in sent)


def stands(replica: Replica, answer: EndsAnswer, now_ms: int = NOW_MS) -> list[RowChange]:
    """What it asks of the row when only this answer has come in time."""
    answer = replace(answer, question=replica._questions)
    actions = replica.handle(Received("B", answer), now_ms)
    actions += replica.handle(Tick(), now_ms + TIMING.ask_ms)
    return [each.change for each in actions if isinstance(each, ChangeRow)]


def test_it_lets_one_with_as_much_go_first() -> None:
    assert stands(standing(), ANSWER) == []
    assert [type(each) for each in stands(standing(is_off=False), ANSWER)] == [Elect]


@pytest.mark.parametrize(
    "answer",
    [
        replace(ANSWER, yields=True),
        replace(ANSWER, member=Member("B", 9)),
        replace(ANSWER, end=WRITTEN - 1),
    ],
    ids=["lacks something itself", "not in sync", "less"],
)
def test_it_stands_where_the_other_one_may_not_or_would_not(answer: EndsAnswer) -> None:
    assert [type(each) for each in stands(standing(), answer)] == [Elect]


def test_it_stands_when_the_shard_was_handed_to_it() -> None:
    row = replace(DEAD, handed_to="A")
    assert [type(each) for each in stands(standing(row), ANSWER)] == [Elect]


@pytest.mark.parametrize(("later_ms", "is_over"), [(-1, False), (0, True)])
def test_it_lets_others_go_first_for_a_lease_and_then_stands(later_ms: int, is_over: bool) -> None:
    replica, now_ms = standing(), NOW_MS + TIMING.lease_ms + later_ms
    assert stands(replica, ANSWER) == []
    replica.handle(RowSeen(DEAD, 0, now_ms), now_ms)
    assert asked_ends(replica, now_ms)
    replica.handle(RowSeen(DEAD, 0, now_ms), now_ms)
    assert [type(each) for each in stands(replica, ANSWER, now_ms)] == [Elect] * is_over


def test_much_later_is_another_occasion() -> None:
    state = state_of_a()
    found = []
    for now_ms in (0, TIMING.lease_ms, TIMING.rest_ms - 1, TIMING.rest_ms):
        state.now_ms = now_ms
        found.append(state.may_yield())
    assert found == [True, False, False, True]


def test_a_leader_that_begins_anew_with_a_clock_that_is_off_names_the_other_one() -> None:
    row = replace(DEAD, leader=A)
    assert stands(standing(row), ANSWER) == [HandOver(FORMER, "B")]
    assert [type(each) for each in stands(standing(row, is_off=False), ANSWER)] == [Elect]


@pytest.mark.parametrize("lack", ["clock", "room", "rest", ""])
def test_an_answer_says_whether_its_replica_lacks_something(lack: str) -> None:
    state = state_of_a()
    state.now_ms, state.row, state.has_room = NOW_MS, DEAD, lack != "room"
    state.could_not_lead_ms = NOW_MS if lack == "rest" else None
    replica = Replica(state)
    replica.handle(ClockSeen(lack == "clock"), NOW_MS)
    (sent,) = replica.handle(Received("B", AskEnds(3)), NOW_MS)
    assert isinstance(sent, Send)
    assert isinstance(sent.message, EndsAnswer)
    assert sent.message.yields == bool(lack)


def test_a_clock_that_is_right_again_is_forgotten() -> None:
    replica = Replica(state_of_a())
    for is_off, since_ms in ((True, 10), (True, 10), (False, None), (True, 13)):
        now_ms = replica.state.now_ms + 1 if replica.state.now_ms else 10
        replica.handle(ClockSeen(is_off), now_ms)
        assert replica.state.clock_off_since_ms == since_ms
