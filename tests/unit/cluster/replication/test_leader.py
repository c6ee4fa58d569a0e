"""A leader alone: what it notes, settles and grows before it knows that the row forgot nothing."""

from dataclasses import replace
from typing import Final

import pytest

from app.cluster.replication.confirmation import Confirmation, LogEnd
from app.cluster.replication.events import (
    Action,
    Appended,
    AppendTermStart,
    ChangeRow,
    ReadRow,
    Send,
    TakeNoMore,
    TransferAsked,
)
from app.cluster.replication.leader import Leader, Phase
from app.cluster.replication.messages import AskPromise, Ends, Hello, PromiseAnswer, Welcome
from app.cluster.replication.replica_state import ReplicaState, Timing
from app.cluster.replication.shard_row import (
    ChangeInSync,
    HandOver,
    PutOut,
    Renew,
    RowChange,
    ShardRow,
    WriteBack,
)
from app.cluster.replication.terms import Member, Promise, Term, TermStart

A, B, C = Member("A", 1), Member("B", 2), Member("C", 3)
FORMER, TERM = Term(4, 40), Term(5, 50)
WRITTEN: Final = 100
TIMING: Final = Timing()


def elected(
    min_in_sync: int = 2,
    in_sync: frozenset[Member] = frozenset({A, B}),
    peers: tuple[str, ...] = ("B", "C"),
) -> Leader:
    """A leads, by a row of version 9 whose last settled set has version 7. Nobody has promised."""
    state = ReplicaState(
        me=A,
        timing=TIMING,
        new_grant=lambda: 1,
        peers=peers,
        promise=Promise(FORMER, 7, frozenset({A, B, C})),
        history=(TermStart(FORMER, 0),),
        end=LogEnd(WRITTEN, WRITTEN),
        high_watermark=0,
    )
    row = ShardRow(TERM, A, in_sync, 9, 7, min_in_sync=min_in_sync, target_replicas=3)
    return Leader(state, TERM, row, 0)


def taking_over(min_in_sync: int = 2) -> Leader:
    """As `elected`, and nobody has promised in time."""
    leader = elected(min_in_sync)
    leader._state.now_ms = TIMING.fence_ms
    leader.tick()
    assert leader.phase is Phase.TAKING_OVER
    return leader


def taken(leader: Leader) -> list[Action]:
    """The actions since the last call."""
    state = leader._state
    actions, state.actions = state.actions, []
    return actions


def changes(leader: Leader) -> list[RowChange]:
    return [action.change for action in taken(leader) if isinstance(action, ChangeRow)]


def noted(leader: Leader) -> int:
    return leader._state.promise.in_sync_version


def promise(member: Member) -> PromiseAnswer:
    return PromiseAnswer(TERM, member, Promise(FORMER, 7, frozenset({A, B, C})), is_given=True)


def greeting(member: Member, end: int = WRITTEN) -> Hello:
    return Hello(1, member, Promise(TERM), (TermStart(FORMER, 0),), end)


def row_that_forgot(leader: Leader) -> WriteBack:
    """What the leader writes when it sees the row of before its election."""
    taken(leader)
    leader.row_seen(ShardRow(FORMER, B, frozenset({A, B, C}), 8, 7, min_in_sync=2))
    (change,) = changes(leader)
    assert isinstance(change, WriteBack)
    return change


def test_what_a_leader_without_proof_writes_back_is_not_settled() -> None:
    """Seeds 3566 and 3658 of the forgetful days: a set with more behind it looked old then."""
    written = row_that_forgot(taking_over())
    assert (written.row.in_sync_version, written.row.settled_version) == (10, 7)
    assert written.row.in_sync == {A, B}


def test_who_was_put_out_is_taken_in_again_when_it_has_greeted_anew() -> None:
    """Its old connection may live on for a while, and its data be thrown away by then."""
    leader = taking_over()
    leader.promise_answer(promise(C))
    for member in (B, C):
        leader.hello(member.node, greeting(member))
        leader.ends(member.node, Ends(1, TERM, WRITTEN, WRITTEN, 9))
    version, in_sync = leader._in_sync.version, frozenset({A, B, C})
    (asked,) = [each for each in changes(leader) if isinstance(each, ChangeInSync)]
    row = ShardRow(TERM, A, in_sync, version + 1, version + 1, min_in_sync=2)
    leader.row_changed(asked, row, True, 0)
    for member in (B, C):
        leader.ends(member.node, Ends(1, TERM, WRITTEN, WRITTEN, version + 1))
    leader.row_seen(PutOut("C").apply(row, 0) or row)
    for member in (B, C):
        leader.ends(member.node, Ends(1, TERM, WRITTEN, WRITTEN, version + 2))
    leader.tick()
    assert not [each for each in changes(leader) if isinstance(each, ChangeInSync)]
    again = Member("C", 4)
    leader.hello("C", replace(greeting(again), session=2))
    leader.ends("C", Ends(2, TERM, WRITTEN, WRITTEN, version + 2))
    (asked,) = [each for each in changes(leader) if isinstance(each, ChangeInSync)]
    assert asked.in_sync == {A, B, again}


@pytest.mark.parametrize(
    ("full", "named"), [("", ()), ("B", ()), ("C", ()), ("BC", ("B", "C"))], ids=str
)
def test_members_without_room_are_named_where_too_few_are_left(
    full: str, named: tuple[str, ...]
) -> None:
    leader = elected(in_sync=frozenset({A, B, C}))
    for member in (B, C):
        leader._followers.of(member.node, 0).member = member
    assert leader.full_nodes == (), "nobody has said anything"
    for node in full:
        leader._followers.of(node, 0).has_room = False
    assert leader.full_nodes == named


def test_what_a_leader_with_proof_writes_back_is_settled() -> None:
    leader = taking_over()
    leader.promise_answer(promise(C))
    written = row_that_forgot(leader)
    assert (written.row.in_sync_version, written.row.settled_version) == (10, 10)


def test_a_leader_notes_the_set_of_the_row_when_enough_have_promised() -> None:
    """An operator who restores the row takes the newest set that is noted anywhere."""
    leader = taking_over()
    assert noted(leader) == 7
    leader.promise_answer(promise(C))
    assert noted(leader) == 9


def test_one_that_joined_unheard_of_counts_in_the_proof() -> None:
    """Its set may be the newest, and the database have forgotten that it joined."""
    leader = elected(peers=("B",))
    leader._state.now_ms = TIMING.fence_ms
    leader.tick()
    assert noted(leader) == 7
    leader.promise_answer(promise(B))
    assert noted(leader) == 9


def asked_to_promise(leader: Leader) -> set[str]:
    """Nodes, since the last call."""
    sent = [action for action in taken(leader) if isinstance(action, Send)]
    return {each.node for each in sent if isinstance(each.message, AskPromise)}


def test_who_has_not_promised_is_asked_until_he_has() -> None:
    """A former leader that was cut off during the election, and has no database now."""
    leader = elected()
    assert asked_to_promise(leader) == {"B", "C"}
    leader.promise_answer(promise(B))
    leader.tick()
    assert asked_to_promise(leader) == set()
    leader._state.now_ms = TIMING.row_ms
    leader.tick()
    assert asked_to_promise(leader) == {"C"}
    leader.promise_answer(promise(C))
    leader._state.now_ms = 2 * TIMING.row_ms
    leader.tick()
    assert asked_to_promise(leader) == set()


def test_those_that_follow_note_what_the_leader_has_noted() -> None:
    leader = taking_over()
    taken(leader)
    leader.hello("C", greeting(C))
    (welcome,) = [each.message for each in taken(leader) if isinstance(each, Send)]
    assert isinstance(welcome, Welcome)
    assert welcome.in_sync_version == 7
    assert welcome.in_sync == {A, B, C}


def test_who_follows_has_promised() -> None:
    leader = taking_over()
    leader.hello("C", greeting(C))
    assert noted(leader) == 7, "the greeting is of before the welcome, which may be lost"
    leader.ends("C", Ends(1, TERM, WRITTEN, WRITTEN, 7))
    assert noted(leader) == 9


def test_where_one_replica_may_go_on_alone_it_notes_without_proof() -> None:
    assert noted(taking_over(min_in_sync=1)) == 9


def grown(leader: Leader, end: int = WRITTEN) -> list[ChangeInSync]:
    """What is asked for when C follows and has everything."""
    leader.hello("C", greeting(C, end))
    taken(leader)
    leader.ends("C", Ends(1, TERM, end, end, 7))
    return [each for each in changes(leader) if isinstance(each, ChangeInSync)]


def test_the_set_grows_when_the_row_is_proven() -> None:
    leader = taking_over()
    taken(leader)
    assert grown(leader) == [ChangeInSync(TERM, 9, frozenset({A, B, C}), is_proven=True)]


@pytest.mark.parametrize("flushed", [0, WRITTEN - 1])
def test_who_lacks_what_leaders_before_may_have_confirmed_does_not_join(flushed: int) -> None:
    """Seed 701476 with 8 faults: one with a new disk was taken in as it had all up to the watermark
    that the new leader had heard of, and led without anything behind the next power cut."""
    leader = taking_over()
    leader.promise_answer(promise(C))
    leader._confirmation = Confirmation(0)
    leader._confirmation.append(WRITTEN, wants_sync=True)
    leader.hello("C", greeting(C, flushed))
    taken(leader)
    leader.ends("C", Ends(1, TERM, flushed, flushed, 7))
    assert not [each for each in changes(leader) if isinstance(each, ChangeInSync)]
    leader.ends("C", Ends(1, TERM, WRITTEN, flushed, 7))
    assert not [each for each in changes(leader) if isinstance(each, ChangeInSync)]
    leader.ends("C", Ends(1, TERM, WRITTEN, WRITTEN, 7))
    (change,) = [each for each in changes(leader) if isinstance(each, ChangeInSync)]
    assert C in change.in_sync


def alone() -> Leader:
    """A leads alone, where one replica may; its log has the start of its term."""
    leader = elected(min_in_sync=1, in_sync=frozenset({A}))
    assert AppendTermStart(TERM) in taken(leader)
    start = TermStart(TERM, WRITTEN)
    leader._state.end = LogEnd(WRITTEN + 10, WRITTEN)
    leader.appended(Appended(WRITTEN + 10, wants_sync=True, term_start=start))
    return leader


def test_the_set_does_not_grow_without_proof() -> None:
    """Seed 2722: a set that was noted before looked forgotten to who was elected by the growth."""
    leader = alone()
    assert leader.phase is Phase.TAKING_OVER
    assert grown(leader) == []


def test_who_serves_has_proof() -> None:
    leader = alone()
    leader._state.end = LogEnd(WRITTEN + 10, WRITTEN + 10)
    leader.log_ends()
    assert leader.phase is Phase.SERVING
    change = ChangeInSync(TERM, 9, frozenset({A, C}), is_proven=True)
    assert grown(leader, WRITTEN + 10) == [change]


@pytest.mark.parametrize("promised", [Term(6, 60), Term(5, 51)])
def test_a_leader_that_a_replica_excludes_ends(promised: Term) -> None:
    """Such a replica takes nothing of this leader, and would stay behind as long as the leader
    leads; the next election is above all promises."""
    leader = alone()
    leader.hello("B", Hello(1, B, Promise(promised), (TermStart(FORMER, 0),), WRITTEN))
    assert leader.over is not None
    assert not [each for each in taken(leader) if isinstance(each, Send)]


def test_a_replica_that_has_promised_an_older_term_is_welcome() -> None:
    leader = alone()
    leader.hello("B", Hello(1, B, Promise(FORMER), (TermStart(FORMER, 0),), WRITTEN))
    assert leader.over is None


def serving_with(resting: frozenset[Member]) -> Leader:
    """A leads, and B and C have everything; those who `resting` names could not lead just now."""
    leader = elected(in_sync=frozenset({A, B, C}))
    end = WRITTEN + 10
    for member in (B, C):
        leader.promise_answer(promise(member))
    leader.appended(Appended(end, wants_sync=True, term_start=TermStart(TERM, WRITTEN)))
    leader._state.end = LogEnd(end, end)
    for member in (B, C):
        leader.hello(member.node, greeting(member))
        leader.ends(member.node, Ends(1, TERM, end, end, 9, member in resting))
    assert leader.phase is Phase.SERVING
    taken(leader)
    return leader


@pytest.mark.parametrize(
    ("resting", "named"),
    [(set(), "B"), ({B}, "C"), ({C}, "B"), ({B, C}, "B")],
)
@pytest.mark.parametrize("resigns", [False, True])
def test_who_would_rest_is_named_when_there_is_nobody_else(
    resting: set[Member], named: str, resigns: bool
) -> None:
    """It would wait a lease before it stands, while nobody leads."""
    leader = serving_with(frozenset(resting))
    if resigns:
        leader.resign("the disk has no room")
    else:
        leader.leave(TransferAsked())
        leader.takes_no_more()
    assert changes(leader) == [HandOver(TERM, named)]


@pytest.mark.parametrize(
    ("gone", "stopped", "named"),
    [("BC", "B", "C"), ("BC", "C", "B"), ("BC", "BC", "B"), ("B", "B", "C"), ("BC", "", "B")],
)
def test_who_has_said_that_it_stops_is_named_when_there_is_nobody_else(
    gone: str, stopped: str, named: str
) -> None:
    """Nobody leads before a lease has passed where the one that is named is not there."""
    leader = serving_with(frozenset())
    for node in gone:
        leader.disconnected(node)
    leader._state.stopped |= set(stopped)
    leader.resign("a sync failed")
    assert changes(leader) == [HandOver(TERM, named)]


def full(leader: Leader, since_ms: int = 0, served_ms: int = TIMING.lease_ms) -> Leader:
    """Its disk is full since then, it has served for so long, the database answers, and all others
    have room."""
    state = leader._state
    state.full_since_ms = since_ms
    state.now_ms = leader._serving_ms + served_ms
    leader._lease_end_ms = state.now_ms + TIMING.lease_ms
    for view in leader.followers:
        view.has_room, view.heard_ms = True, state.now_ms
    return leader


@pytest.mark.parametrize("other", [False, None], ids=["full", "unknown"])
@pytest.mark.parametrize(
    ("full_ones", "named"), [(set(), "B"), ({B}, "C"), ({C}, "B"), ({B, C}, None)]
)
def test_a_leader_whose_disk_is_full_names_one_with_room(
    full_ones: set[Member], named: str | None, other: bool | None
) -> None:
    leader = full(serving_with(frozenset()))
    for view in leader.followers:
        view.has_room = other if view.member in full_ones else True
    leader.tick()
    handed = [each for each in changes(leader) if isinstance(each, HandOver)]
    assert handed == ([] if named is None else [HandOver(TERM, named)])


def test_a_full_leader_goes_on_until_the_row_has_the_next_one() -> None:
    """The database may go away, or the next one die: to have taken no more could not be undone."""
    leader = full(serving_with(frozenset()))
    leader.tick()
    asked = taken(leader)
    assert ChangeRow(HandOver(TERM, "B")) in asked
    assert TakeNoMore() not in asked
    for after_ms, named in ((TIMING.row_ms - 1, []), (1, ["B"])):  # an answer may be lost
        leader._state.now_ms += after_ms
        leader._lease_end_ms = leader._state.now_ms + TIMING.lease_ms
        leader.tick()
        assert [each.to for each in changes(leader) if isinstance(each, HandOver)] == named
    leader.disconnected("B")
    leader._state.full_since_ms = None
    leader._state.now_ms += TIMING.row_ms
    leader.tick()
    assert not [each for each in changes(leader) if isinstance(each, HandOver)]
    assert leader.over is None


def test_a_full_leader_names_nobody_that_lacks_something() -> None:
    leader = full(serving_with(frozenset()))
    end = WRITTEN + 20
    leader.appended(Appended(end, wants_sync=True))
    leader._state.end = LogEnd(end, end)
    leader.tick()
    assert not [each for each in changes(leader) if isinstance(each, HandOver)]


def test_a_word_of_before_its_disk_was_full_does_not_count() -> None:
    """The other disk may have filled in the same minute, by the same messages."""
    leader = full(serving_with(frozenset()), since_ms=10)
    views = {view.node: view for view in leader.followers}
    views["B"].heard_ms, views["C"].heard_ms = 9, 10
    leader.tick()
    handed = [each for each in changes(leader) if isinstance(each, HandOver)]
    assert handed == [HandOver(TERM, "C")]


@pytest.mark.parametrize(
    ("of_b", "of_c", "named"),
    [(None, True, "C"), (True, None, "B"), (False, None, "C"), (None, False, "B")],
)
@pytest.mark.parametrize("resigns", [False, True])
def test_one_with_room_is_named_before_one_that_has_not_said(
    of_b: bool | None, of_c: bool | None, named: str, resigns: bool
) -> None:
    leader = serving_with(frozenset())
    for view in leader.followers:
        view.has_room = of_b if view.node == "B" else of_c
    if resigns:
        leader.resign("the disk has no room")
    else:
        leader.leave(TransferAsked())
        leader.takes_no_more()
    assert changes(leader) == [HandOver(TERM, named)]


def test_it_waits_for_what_the_others_say_of_their_disks() -> None:
    leader = full(serving_with(frozenset()), since_ms=TIMING.lease_ms)
    leader._state.full_since_ms = leader._state.now_ms
    leader.tick()
    assert not [each for each in changes(leader) if isinstance(each, HandOver)]


def test_who_was_elected_just_now_stays_also_with_a_full_disk() -> None:
    leader = full(serving_with(frozenset()), served_ms=TIMING.lease_ms - 1)
    leader.tick()
    assert not [each for each in changes(leader) if isinstance(each, HandOver)]


def test_a_full_leader_stays_while_the_database_is_silent() -> None:
    leader = full(serving_with(frozenset()))
    leader._lease_end_ms = leader._state.now_ms
    leader.tick()
    assert not [each for each in changes(leader) if isinstance(each, HandOver)]


def test_who_leaves_lets_go_of_one_that_has_died() -> None:
    """Else nothing would be confirmed any more, and the shard never handed over."""
    leader = serving_with(frozenset())
    leader.appended(Appended(WRITTEN + 20, wants_sync=True))
    leader._state.end = LogEnd(WRITTEN + 20, WRITTEN + 20)
    leader.log_ends()
    leader.ends("B", Ends(1, TERM, WRITTEN + 20, WRITTEN + 20, 9))
    leader.leave(TransferAsked())
    leader.disconnected("C")
    leader._state.now_ms += TIMING.replica_timeout_ms + 1
    leader.tick()
    assert [each.in_sync for each in changes(leader) if isinstance(each, ChangeInSync)] == [
        frozenset({A, B})
    ]


def test_who_says_that_it_stops_is_not_waited_for() -> None:
    leader = serving_with(frozenset())
    leader.disconnected("C")
    leader._state.stopped.add("C")
    taken(leader)
    leader.tick()
    (change,) = [each for each in changes(leader) if isinstance(each, ChangeInSync)]
    assert change.in_sync == {A, B}


def test_who_stops_before_it_has_greeted_is_not_waited_for() -> None:
    """It has promised, so the fence did not put it out; nothing is confirmed while it is in."""
    leader = elected(in_sync=frozenset({A, B, C}))
    for member in (B, C):
        leader.promise_answer(promise(member))
    leader._state.stopped.add("C")
    taken(leader)
    leader.tick()
    (change,) = [each for each in changes(leader) if isinstance(each, ChangeInSync)]
    assert change.in_sync == {A, B}


def test_who_is_cut_off_stays_in_the_set() -> None:
    leader = serving_with(frozenset())
    leader.disconnected("B")
    leader.disconnected("C")
    leader.hello("C", Hello(2, C, Promise(TERM), (TermStart(FORMER, 0),), WRITTEN + 10))
    taken(leader)
    leader.tick()
    assert not [each for each in changes(leader) if isinstance(each, ChangeInSync)]


def test_since_when_a_replica_is_out_is_noted_once() -> None:
    leader = elected(in_sync=frozenset({A, B}))
    seen = []
    for now_ms in (700, 900):
        leader._state.now_ms = now_ms
        leader.tick()
        seen.append({view.node: view.out_ms for view in leader.followers})
    assert [each["C"] for each in seen] == [700, 700]


def renews(leader: Leader) -> bool:
    """Whether it asks for another lease, a second later; else it looks at the row."""
    leader._state.now_ms += TIMING.row_ms
    taken(leader)
    leader.tick()
    asked = taken(leader)
    is_renewed = ChangeRow(Renew(TERM, TIMING.lease_ms)) in asked
    assert is_renewed is not (ReadRow() in asked)
    return is_renewed


def says(leader: Leader, *members: Member) -> None:
    for member in members:
        leader.ends(member.node, Ends(1, TERM, WRITTEN + 10, WRITTEN + 10, 9))


def silent(leader: Leader) -> Leader:
    """Nobody has been heard for a while."""
    leader._state.now_ms += TIMING.silence_ms
    return leader


def test_a_leader_that_too_few_answer_lets_its_lease_end_and_renews_when_it_is_heard() -> None:
    leader = serving_with(frozenset())
    assert renews(leader)
    assert not renews(silent(leader))
    assert leader.over is None
    says(leader, C)
    assert renews(leader)
    assert not renews(leader), "that was a while ago"


def test_who_greets_and_says_no_more_is_not_reached() -> None:
    leader = silent(serving_with(frozenset()))
    leader.hello("B", Hello(2, B, Promise(TERM), leader._state.history, WRITTEN + 10))
    assert not renews(leader)


def test_one_outside_of_the_set_does_not_count() -> None:
    """It cannot be elected, and nothing is confirmed with it; the member that is gone can."""
    leader = elected(in_sync=frozenset({A, B}))
    leader.promise_answer(promise(B))
    leader._state.now_ms += TIMING.silence_ms
    leader.hello("C", greeting(C))
    leader.ends("C", Ends(1, TERM, 0, 0, 9))
    assert not renews(leader)


def test_one_with_an_empty_disk_under_an_old_name_does_not_count() -> None:
    leader = silent(serving_with(frozenset()))
    other = Member("B", 99)
    leader.hello("B", Hello(2, other, Promise(), (), 0))
    leader.ends("B", Ends(2, TERM, 0, 0, 9))
    assert not renews(leader)


@pytest.mark.parametrize(
    ("min_in_sync", "peers", "in_sync"),
    [(1, ("B", "C"), {A, B}), (2, ("B",), {A, B}), (2, ("B", "C"), {A})],
    ids=["it may go on alone", "nobody can without it", "nobody else has everything"],
)
def test_who_is_not_heard_renews_where_no_other_one_could_do_better(
    min_in_sync: int, peers: tuple[str, ...], in_sync: set[Member]
) -> None:
    assert renews(silent(elected(min_in_sync, frozenset(in_sync), peers)))


def test_a_leader_that_stood_still_has_missed_nobody() -> None:
    leader = silent(serving_with(frozenset()))
    leader.was_paused(TIMING.silence_ms)
    assert renews(leader)


def test_a_leader_that_stood_still_lets_go_of_nobody() -> None:
    leader = serving_with(frozenset())
    leader.appended(Appended(WRITTEN + 20, wants_sync=True))
    leader._state.end = LogEnd(WRITTEN + 20, WRITTEN + 20)
    leader.tick()
    leader._state.now_ms += TIMING.replica_timeout_ms
    leader.was_paused(TIMING.replica_timeout_ms)
    leader.tick()
    assert not [each for each in changes(leader) if isinstance(each, ChangeInSync)]
