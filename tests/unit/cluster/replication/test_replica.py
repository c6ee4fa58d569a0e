"""Openings of one replica, one behind the other: nothing of an earlier one counts in a later."""

import pytest

from app.cluster.replication.confirmation import LogEnd
from app.cluster.replication.events import (
    Action,
    ChangeRow,
    Disconnected,
    Received,
    RowChanged,
    RowSeen,
    Send,
    StepDown,
    StopAsked,
    Tick,
    UncleanAsked,
    UncleanJudged,
    UncleanRefusal,
)
from app.cluster.replication.messages import AskEnds, EndsAnswer, Hello, Message, Welcome
from app.cluster.replication.replica import Replica
from app.cluster.replication.replica_state import ReplicaState, Timing
from app.cluster.replication.shard_row import HandOver, ShardRow
from app.cluster.replication.terms import Member, Promise, Term, TermStart

TERM = Term(4, 7)
A, B = Member("A", 1), Member("B", 2)
IN_SYNC = frozenset({A, B})
WRITTEN = 100


def opened(first_number: int) -> Replica:
    state = ReplicaState(
        me=B,
        timing=Timing(),
        new_grant=lambda: 9,
        peers=("A",),
        promise=Promise(TERM, 1, IN_SYNC),
        history=(TermStart(TERM, 0),),
        end=LogEnd(WRITTEN, WRITTEN),
        high_watermark=0,
        now_ms=1_000,
        first_number=first_number,
    )
    return Replica(state)


def said(actions: list[Action]) -> list[Message]:
    return [action.message for action in actions if isinstance(action, Send)]


def greeting(replica: Replica, row: ShardRow) -> Hello:
    """What it says to the leader that the row names."""
    replica.handle(RowSeen(row, 5_000, 1_000), 1_000)
    (hello,) = said(replica.handle(Tick(), 1_050))
    assert isinstance(hello, Hello)
    return hello


def test_a_welcome_to_an_earlier_opening_is_not_heard() -> None:
    row = ShardRow(TERM, A, IN_SYNC, 1, 1)
    first = opened(first_number=50)
    early = greeting(first, row)
    later = opened(first.last_number)
    hello = greeting(later, row)
    late = Welcome(early.session, TERM, 1, IN_SYNC, 40, 0)
    assert not later.handle(Received("A", late), 1_060)
    assert later.state.end == LogEnd(WRITTEN, WRITTEN)
    assert later.handle(Received("A", Welcome(hello.session, TERM, 1, IN_SYNC, 40, 0)), 1_070)
    assert later.state.end == LogEnd(40, 40)


def asking(replica: Replica) -> AskEnds:
    """Its question to the others, when the shard was handed to it."""
    row = ShardRow(TERM, A, IN_SYNC, 1, 1, handed_to="B")
    replica.handle(RowSeen(row, 0, 1_000), 1_000)
    actions = replica.handle(Tick(), 1_050)
    replica.handle(RowSeen(row, 0, 1_055), 1_060)
    (question,) = [each for each in said(actions) if isinstance(each, AskEnds)]
    return question


def test_an_answer_to_an_earlier_opening_is_none_to_this_ones_question() -> None:
    first = opened(first_number=50)
    early = asking(first)
    later = opened(first.last_number)
    question = asking(later)
    behind = EndsAnswer(early.question, A, Promise(TERM, 1, IN_SYNC), TERM, 40)
    assert not later.handle(Received("A", behind), 1_070)
    answer = EndsAnswer(question.question, A, Promise(TERM, 1, IN_SYNC), TERM, WRITTEN)
    (action,) = later.handle(Received("A", answer), 1_080)
    assert isinstance(action, ChangeRow)


def elected_when(replica: Replica, now_ms: int) -> list[Action]:
    """What it does when the row names it, as it had asked."""
    question = asking(replica)
    answer = EndsAnswer(question.question, A, Promise(TERM, 1, IN_SYNC), TERM, WRITTEN)
    (action,) = replica.handle(Received("A", answer), 1_070)
    assert isinstance(action, ChangeRow)
    assert replica.is_being_elected
    replica.handle(StopAsked(), 1_080)
    assert replica.is_being_elected, "nobody knows yet what becomes of it"
    row = ShardRow(TERM, A, IN_SYNC, 1, 1, min_in_sync=2, handed_to="B")
    after = action.change.apply(row, now_ms)
    assert after is not None
    return replica.handle(RowChanged(action.change, after, True, 1_070), now_ms)


def test_one_that_is_elected_while_it_stops_names_another_at_once() -> None:
    """Else the shard has no leader for a lease: the one that the row names is gone."""
    replica = opened(first_number=50)
    actions = elected_when(replica, 1_100)
    named = [each.change for each in actions if isinstance(each, ChangeRow)]
    assert named == [HandOver(Term(5, 9), "A")]
    assert StepDown("the node stops") in actions
    assert replica.leader is None
    assert not replica.is_being_elected
    for now_ms in range(1_150, 20_000, 50):
        replica.handle(Tick(), now_ms)
        assert not replica.is_being_elected


def test_a_node_has_stopped_until_it_says_something_again() -> None:
    """Whatever this replica is when it hears of it: it may lead in a moment."""
    replica = opened(first_number=50)
    replica.handle(Disconnected("A"), 1_000)
    assert replica.state.stopped == set()
    replica.handle(Disconnected("A", has_stopped=True), 1_000)
    replica.handle(Disconnected("A"), 1_000)
    assert replica.state.stopped == {"A"}
    replica.handle(Received("A", AskEnds(0)), 1_010)
    assert replica.state.stopped == set()


def test_one_that_stops_does_not_ask_to_be_elected() -> None:
    """Neither when the shard was handed to it, nor when it has begun to ask the others."""
    waiting, resting = opened(first_number=50), opened(first_number=50)
    question = asking(waiting)
    waiting.handle(StopAsked(), 1_065)
    answer = EndsAnswer(question.question, A, Promise(TERM, 1, IN_SYNC), TERM, WRITTEN)
    assert not waiting.handle(Received("A", answer), 1_070)
    resting.handle(StopAsked(), 1_000)
    row = ShardRow(TERM, A, IN_SYNC, 1, 1, handed_to="B")
    resting.handle(RowSeen(row, 0, 1_000), 1_000)
    for replica in (waiting, resting):
        asked = said(replica.handle(Tick(), 3_000))
        assert not [each for each in asked if isinstance(each, AskEnds)]


def test_a_leader_that_stops_before_it_serves_names_another_at_once() -> None:
    replica = opened(first_number=50)
    question = asking(replica)
    answer = EndsAnswer(question.question, A, Promise(TERM, 1, IN_SYNC), TERM, WRITTEN)
    (action,) = replica.handle(Received("A", answer), 1_070)
    assert isinstance(action, ChangeRow)
    row = ShardRow(TERM, A, IN_SYNC, 1, 1, min_in_sync=2, handed_to="B")
    after = action.change.apply(row, 1_080)
    assert after is not None
    replica.handle(RowChanged(action.change, after, True, 1_070), 1_080)
    assert replica.leader is not None
    named = [
        each.change for each in replica.handle(StopAsked(), 1_090) if isinstance(each, ChangeRow)
    ]
    assert named == [HandOver(Term(5, 9), "A")]


def test_numbers_are_counted_over_all_that_it_does() -> None:
    replica = opened(first_number=50)
    assert replica.last_number == 50
    row = ShardRow(TERM, A, IN_SYNC, 1, 1)
    assert greeting(replica, row).session == replica.last_number == 51
    for turn in range(4):
        replica.handle(Tick(), 2_000 + turn * 1_000)
    assert replica.last_number == 55
    row = ShardRow(TERM, A, IN_SYNC, 1, 1, handed_to="B")
    replica.handle(RowSeen(row, 0, 6_000), 6_000)
    replica.handle(Tick(), 6_050)
    assert replica.last_number == 56


def test_who_could_not_lead_gives_the_row_to_one_that_has_not_stopped() -> None:
    replica = opened(first_number=50)
    row = ShardRow(TERM, B, frozenset({A, B, Member("C", 3)}), 1, 1)
    replica.state.could_not_lead_ms = 1_000
    replica.state.stopped.add("C")
    replica.handle(RowSeen(row, 0, 1_010), 1_010)
    actions = replica.handle(Tick(), 1_050)
    given = [each.change for each in actions if isinstance(each, ChangeRow)]
    assert given == [HandOver(TERM, "A")]


def asked_to_lead(replica: Replica, now_ms: int) -> list[UncleanJudged]:
    actions = replica.handle(UncleanAsked(3, "an operator", is_dry_run=False), now_ms)
    return [each for each in actions if isinstance(each, UncleanJudged)]


def test_who_heard_a_leader_a_moment_ago_does_not_stand_by_command() -> None:
    """The others need not be asked, which may take longer than the operator waits."""
    replica = opened(first_number=50)
    hello = greeting(replica, ShardRow(TERM, A, IN_SYNC, 1, 1))
    replica.handle(Received("A", Welcome(hello.session, TERM, 1, IN_SYNC, 100, 0)), 1_060)
    silent_ms = 1_060 + replica.state.timing.silence_ms
    for now_ms in range(1_100, silent_ms, 200):
        (judged,) = asked_to_lead(replica, now_ms)
        assert (judged.refusal, judged.node) == (UncleanRefusal.LEADER_ANSWERS, "A")
    assert asked_to_lead(replica, silent_ms) == []


@pytest.mark.parametrize("is_stop_first", [False, True])
def test_who_asks_for_it_hears_that_the_node_stops(is_stop_first: bool) -> None:
    replica = opened(first_number=50)
    if is_stop_first:
        assert replica.handle(StopAsked(), 1_040) == []
        told = asked_to_lead(replica, 1_050)
    else:
        assert asked_to_lead(replica, 1_050) == []
        actions = replica.handle(StopAsked(), 1_100)
        told = [each for each in actions if isinstance(each, UncleanJudged)]
    assert told == [UncleanJudged(3, UncleanRefusal.STOPS)]


def test_who_asks_for_it_hears_within_a_lease_that_the_database_says_nothing() -> None:
    replica = opened(first_number=50)
    lease_ms = replica.state.timing.lease_ms
    assert asked_to_lead(replica, 1_050) == []
    told: list[UncleanJudged] = []
    for now_ms in range(1_100, 1_050 + lease_ms + 100, 50):
        actions = replica.handle(Tick(), now_ms)
        told += [each for each in actions if isinstance(each, UncleanJudged)]
    assert [each.refusal for each in told] == [UncleanRefusal.DATABASE_AWAY]


@pytest.mark.parametrize(
    ("own", "others", "refusal"),
    [
        ((0, 100), (0, 120), UncleanRefusal.ANOTHER_HAS_MORE),
        ((0, 100), (0, 80), None),
        ((0, 100), (60, 120), UncleanRefusal.ANOTHER_HAS_MORE),
        ((0, 100), (120, 120), None),
        ((0, 100), (120, 150), None),
        ((120, 120), (0, 100), UncleanRefusal.ANOTHER_HAS_MORE),
        ((120, 150), (0, 100), None),
    ],
    ids=[
        "longer",
        "shorter",
        "longer, begins later",
        "has begun to copy",
        "copies from far behind",
        "has begun to copy itself",
        "copies from far behind itself",
    ],
)
def test_a_copy_under_way_has_not_more_because_it_begins_later(
    own: tuple[int, int], others: tuple[int, int], refusal: UncleanRefusal | None
) -> None:
    """B is asked to lead uncleanly, and C answers, which is not in sync either."""
    replica = opened(first_number=50)
    state = replica.state
    state.peers = ("C",)
    state.log_start, state.end = own[0], LogEnd(own[1], own[1])
    state.promise = Promise(TERM, 1, frozenset({A}))
    now_ms = 20_000
    row = ShardRow(TERM, A, frozenset({A}), 1, 1)
    replica.handle(RowSeen(row, 0, now_ms), now_ms)
    actions = replica.handle(UncleanAsked(3, "an operator", is_dry_run=False), now_ms + 10)
    (question,) = [each for each in said(actions) if isinstance(each, AskEnds)]
    replica.handle(RowSeen(row, 0, now_ms + 20), now_ms + 20)
    answer = EndsAnswer(
        *(question.question, Member("C", 3), Promise(TERM), TERM, others[1]), log_start=others[0]
    )
    actions = replica.handle(Received("C", answer), now_ms + 30)
    (told,) = [each for each in actions if isinstance(each, UncleanJudged)]
    assert told.refusal is refusal
    assert any(isinstance(each, ChangeRow) for each in actions) == (refusal is None)
