"""The conditional changes of a shard's row."""

from dataclasses import replace

import pytest

from app.cluster.replication.shard_row import (
    ChangeInSync,
    Elect,
    ElectAfterLoss,
    Found,
    HandOver,
    Need,
    PutOut,
    Renew,
    RowChange,
    ShardRow,
    TellRegressed,
    WriteBack,
    need_of,
    need_to_copy,
)
from app.cluster.replication.terms import NO_TERM, Member, Term

A, B, C = Member("A", 1), Member("B", 2), Member("C", 3)
OLD, NEW = Term(4, 40), Term(5, 50)
ROW = ShardRow(OLD, A, frozenset({A, B, C}), 7, 7, lease_until_ms=1_000)


def elect(candidate: Member) -> Elect:
    return Elect(OLD, NEW, candidate, 500)


def test_a_member_is_elected_when_the_lease_is_over() -> None:
    assert elect(B).apply(ROW, 999) is None
    after = elect(B).apply(ROW, 1_000)
    assert after == replace(
        ROW, term=NEW, leader=B, in_sync=frozenset({B, C}), in_sync_version=8, lease_until_ms=1_500
    )


@pytest.mark.parametrize(
    "row",
    [
        replace(ROW, term=NEW),
        replace(ROW, in_sync=frozenset({A, C})),
        replace(ROW, in_sync=frozenset({A, Member("B", 9)})),
        replace(ROW, is_regressed=True),
    ],
    ids=["another term", "no member", "another incarnation", "regressed"],
)
def test_nobody_else_is(row: ShardRow) -> None:
    assert elect(B).apply(row, 2_000) is None


def test_the_former_leader_and_who_is_named_need_no_wait() -> None:
    again = elect(A).apply(ROW, 0)
    assert again is not None
    assert again.in_sync == ROW.in_sync
    named = elect(B).apply(replace(ROW, handed_to="B"), 0)
    assert named is not None
    assert named.handed_to is None


def test_nobody_is_elected_after_a_loss_where_the_set_was_never_told() -> None:
    """A node with an empty log would lead a shard that a lone node has written, or one of which
    too few replicas are there yet."""
    change = ElectAfterLoss(OLD, 7, NEW, C, 500)
    assert change.apply(replace(ROW, in_sync=frozenset()), 2_000) is None
    unfounded = replace(change, seen=NO_TERM, seen_version=0)
    assert unfounded.apply(ShardRow(min_in_sync=2), 2_000) is None
    assert unfounded.apply(ShardRow(in_sync=frozenset({A})), 2_000) is not None


def test_the_first_set_is_told_for_as_many_as_it_may_not_fall_below() -> None:
    made = ShardRow(min_in_sync=2)
    assert Found(frozenset({A})).apply(made, 0) is None
    assert Found(frozenset({A, Member("A", 9)})).apply(made, 0) is None
    founded = Found(frozenset({A, B})).apply(made, 0)
    assert founded == ShardRow(
        in_sync=frozenset({A, B}), in_sync_version=1, settled_version=1, min_in_sync=2
    )


def test_the_first_set_keeps_its_nodes_and_is_the_leaders_once_one_was_elected() -> None:
    founded = ShardRow(
        in_sync=frozenset({A, B}), in_sync_version=1, settled_version=1, min_in_sync=2
    )
    again = frozenset({Member("A", 9), B})
    assert Found(founded.in_sync).apply(founded, 0) is None, "nothing is new"
    assert Found(frozenset({A, C})).apply(founded, 0) is None
    assert Found(frozenset({A, B, C})).apply(founded, 0) is None
    renewed = Found(again).apply(founded, 0)
    assert renewed is not None
    assert (renewed.in_sync, renewed.in_sync_version, renewed.settled_version) == (again, 2, 2)
    assert Found(again).apply(replace(founded, term=OLD), 0) is None


def test_the_set_does_not_fall_below_the_minimum() -> None:
    row = replace(ROW, in_sync=frozenset({A, B}), min_in_sync=2)
    after = elect(B).apply(row, 1_000)
    assert after is not None
    assert after.in_sync == {A, B}
    assert ChangeInSync(OLD, 7, frozenset({A}), True).apply(row, 0) is None


def test_only_the_leader_that_saw_the_newest_set_changes_it() -> None:
    change = ChangeInSync(OLD, 7, frozenset({A, B}), True)
    after = change.apply(ROW, 0)
    assert after is not None
    assert after.in_sync == {A, B}
    assert (after.in_sync_version, after.settled_version) == (8, 8)
    assert change.apply(after, 0) is None, "it is not done twice"
    assert change.apply(replace(ROW, term=NEW), 0) is None
    early = replace(change, is_proven=False).apply(ROW, 0)
    assert early is not None
    assert early.settled_version == 7


@pytest.mark.parametrize(
    "change",
    [
        Renew(NEW, 1),
        HandOver(NEW, "B"),
        TellRegressed(NEW),
        WriteBack(replace(ROW, term=NEW), ROW, 1),
    ],
    ids=lambda change: type(change).__name__,
)
def test_what_is_of_another_term_is_refused(change: RowChange) -> None:
    assert change.apply(ROW, 0) is None


def test_a_lease_is_renewed_until_the_shard_is_handed_over() -> None:
    after = Renew(OLD, 500).apply(ROW, 800)
    assert after is not None
    assert after.lease_until_ms == 1_300
    handed = HandOver(OLD, "B").apply(ROW, 800)
    assert handed == replace(ROW, handed_to="B", lease_until_ms=800)
    assert Renew(OLD, 500).apply(handed, 800) is None
    assert HandOver(OLD, "B", "ada").apply(handed, 900) is None, "it is told of once"
    assert HandOver(OLD, "C").apply(handed, 900) == replace(
        ROW, handed_to="C", lease_until_ms=900
    ), "another one may be named"


def test_who_has_most_leads_alone_after_the_loss_of_all() -> None:
    change = ElectAfterLoss(OLD, 7, NEW, C, 500)
    assert change.apply(ROW, 999) is None
    after = change.apply(ROW, 1_000)
    assert after is not None
    assert after.in_sync == {C}
    assert (after.possible_loss, after.settled_version) == (True, 8)
    assert change.apply(replace(ROW, in_sync_version=8), 1_000) is None


def test_a_living_leader_restores_a_row_that_is_behind() -> None:
    known = ShardRow(NEW, B, frozenset({B, C}), 9, 9)
    told = TellRegressed(OLD).apply(ROW, 800)
    assert told is not None
    assert (told.leader, told.is_regressed) == (None, True)
    restored = WriteBack(told, known, 500).apply(told, 900)
    assert restored == replace(known, lease_until_ms=1_400)


@pytest.mark.parametrize(
    ("row", "node", "need"),
    [
        (ROW, "A", Need.LEADS),
        (replace(ROW, handed_to="B"), "B", Need.HANDED_OVER),
        (replace(ROW, min_in_sync=3), "C", Need.TOO_FEW),
        (replace(ROW, in_sync=frozenset({A, B}), min_in_sync=2), "B", Need.TOO_FEW),
        (replace(ROW, min_in_sync=2), "B", None),
        (replace(ROW, in_sync=frozenset({A, B}), min_in_sync=2), "C", None),
        (replace(ROW, in_sync=frozenset({A}), min_in_sync=2), "B", None),
    ],
    ids=["leads", "named", "below three", "below two", "in sync", "out", "out of a small set"],
)
def test_why_a_shard_needs_a_replica(row: ShardRow, node: str, need: Need | None) -> None:
    assert need_of(row, node) is need
    after = PutOut(node).apply(row, 0)
    is_put_out = need is None and node in {member.node for member in row.in_sync}
    assert (after is not None) == is_put_out


def test_who_is_put_out_leaves_the_set_in_each_incarnation() -> None:
    row = replace(ROW, in_sync=frozenset({A, B, C}), min_in_sync=2)
    after = PutOut("C").apply(row, 0)
    assert after == replace(row, in_sync=frozenset({A, B}), in_sync_version=8)
    assert after is not None
    assert after.settled_version == 7, "nobody has proved that the row had forgotten nothing"
    assert PutOut("C").apply(after, 0) is None, "it is not done twice"


def test_nothing_is_thrown_away_while_nobody_leads() -> None:
    row = replace(ROW, min_in_sync=2)
    assert need_to_copy(row, "C", 999) is None
    assert need_to_copy(row, "C", 1_000) is Need.NO_LEADER
    assert need_to_copy(replace(row, leader=None), "C", 0) is Need.NO_LEADER
    assert need_to_copy(row, "A", 1_000) is Need.LEADS
