"""Openings of one replica, one behind the other: nothing of an earlier one counts in a later."""

from app.cluster.replication.confirmation import LogEnd
from app.cluster.replication.events import (
    Action,
    ChangeRow,
    Received,
    RowSeen,
    Send,
    Tick,
    UncleanAsked,
    UncleanJudged,
    UncleanRefusal,
)
from app.cluster.replication.messages import AskEnds, EndsAnswer, Hello, Message, Welcome
from app.cluster.replication.replica import Replica
from app.cluster.replication.replica_state import ReplicaState, Timing
from app.cluster.replication.shard_row import ShardRow
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


def test_who_asks_for_it_hears_within_a_lease_that_the_database_says_nothing() -> None:
    replica = opened(first_number=50)
    lease_ms = replica.state.timing.lease_ms
    assert asked_to_lead(replica, 1_050) == []
    told: list[UncleanJudged] = []
    for now_ms in range(1_100, 1_050 + lease_ms + 100, 50):
        actions = replica.handle(Tick(), now_ms)
        told += [each for each in actions if isinstance(each, UncleanJudged)]
    assert [each.refusal for each in told] == [UncleanRefusal.DATABASE_AWAY]
