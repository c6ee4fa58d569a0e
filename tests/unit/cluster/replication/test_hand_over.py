"""A leader that is asked to let another replica lead: when it names it, and when it does not."""

from app.cluster.replication.confirmation import LogEnd
from app.cluster.replication.events import (
    Action,
    Appended,
    ChangeRow,
    Serve,
    TakeNoMore,
    TransferAsked,
)
from app.cluster.replication.in_sync_set import InSyncSet
from app.cluster.replication.leader import Leader
from app.cluster.replication.messages import Ends
from app.cluster.replication.shard_row import HandOver
from app.cluster.replication.terms import TermStart
from tests.unit.cluster.replication.test_leader import (
    TERM,
    TIMING,
    WRITTEN,
    A,
    B,
    C,
    changes,
    serving_with,
    taken,
    taking_over,
)


def asked_for(leader: Leader, to: str) -> list[Action]:
    leader._state.database_since_ms = 0
    leader.leave(TransferAsked(to, "ada"))
    return taken(leader)


def test_the_named_member_gets_the_shard_and_the_row_says_who_asked() -> None:
    leader = serving_with(frozenset({C}))  # the operator has a reason
    assert asked_for(leader, "C") == [TakeNoMore()]
    assert asked_for(leader, "B") == []  # one at a time
    leader.takes_no_more()
    assert taken(leader) == [ChangeRow(HandOver(TERM, "C", "ada"))]


def test_what_gets_a_place_before_no_more_is_taken_is_waited_for() -> None:
    leader = serving_with(frozenset())
    asked_for(leader, "C")
    end = WRITTEN + 20
    leader.appended(Appended(end, wants_sync=True))
    leader._state.end = LogEnd(end, end)
    leader.takes_no_more()
    before = taken(leader)
    for member in (C, B):
        leader.ends(member.node, Ends(1, TERM, end, end, 9, would_rest=False))
    leader.tick()
    assert not [each for each in before if isinstance(each, ChangeRow)]
    assert changes(leader) == [HandOver(TERM, "C", "ada")]


def test_a_leader_that_stops_before_it_serves_takes_nothing_when_it_does() -> None:
    """Its own block begins the term all the same."""
    leader, end = taking_over(min_in_sync=1), WRITTEN + 20
    leader.leave(TransferAsked())
    assert TakeNoMore() not in taken(leader)
    leader.appended(Appended(end, wants_sync=True, term_start=TermStart(TERM, WRITTEN)))
    leader._state.end = LogEnd(end, end)
    leader._in_sync = InSyncSet(frozenset({A}), 10)
    leader.log_ends()
    assert taken(leader)[-2:] == [Serve(TERM), TakeNoMore()]


def test_a_member_that_cannot_follow_costs_the_leader_nothing() -> None:
    leader = serving_with(frozenset())
    leader._state.database_since_ms = 0
    leader.disconnected("C")
    assert asked_for(leader, "C") == []
    assert asked_for(leader, "D") == []
    leader._state.database_since_ms = None  # who would name it?
    leader.leave(TransferAsked("B"))
    assert taken(leader) == []
    assert TakeNoMore() in asked_for(leader, "B")


def test_a_leader_that_takes_over_yet_is_not_asked_to_leave() -> None:
    leader = taking_over()
    taken(leader)
    assert asked_for(leader, "B") == []


def test_a_named_member_that_does_not_come_ends_the_term_in_time() -> None:
    leader = serving_with(frozenset())
    end = WRITTEN + 20
    leader.appended(Appended(end, wants_sync=True))
    leader._state.end = LogEnd(end, end)
    assert asked_for(leader, "C") == [TakeNoMore()]
    leader.ends("B", Ends(1, TERM, end, end, 9, would_rest=False))
    leader._state.now_ms += TIMING.hand_over_ms - 1
    leader.tick()
    early = leader.over
    leader._state.now_ms += 1
    leader.tick()
    assert (early, leader.over) == (None, "C did not take over in time")
    assert not [each for each in changes(leader) if isinstance(each, HandOver)]


def test_a_stop_takes_whoever_has_everything_behind_a_named_member() -> None:
    leader = serving_with(frozenset())
    end = WRITTEN + 20
    leader.appended(Appended(end, wants_sync=True))
    leader._state.end = LogEnd(end, end)
    assert asked_for(leader, "C") == [TakeNoMore()]
    leader.takes_no_more()
    for member in (C, B):
        leader.ends(member.node, Ends(1, TERM, end, end, 9, would_rest=False))
    leader.disconnected("C")
    leader.leave(TransferAsked())
    leader._state.now_ms += TIMING.hand_over_ms
    leader.tick()
    assert leader.over is None
    assert [each for each in changes(leader) if isinstance(each, HandOver)] == [HandOver(TERM, "B")]
