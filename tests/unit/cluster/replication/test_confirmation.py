"""What is confirmed, and by whom."""

from app.cluster.replication.confirmation import Confirmation, LogEnd
from app.cluster.replication.in_sync_set import InSyncSet
from app.cluster.replication.terms import Member

A, B, C = Member("A", 1), Member("B", 2), Member("C", 3)


def test_blocks_are_confirmed_whole_and_in_order() -> None:
    blocks = Confirmation(100)
    for end, wants_sync in ((150, False), (200, True), (260, False)):
        blocks.append(end, wants_sync)
    assert not blocks.confirm([LogEnd(300, 300), LogEnd(149, 149)])
    assert blocks.confirm([LogEnd(300, 300), LogEnd(199, 0)])
    assert blocks.high_watermark == 150
    assert not blocks.confirm([LogEnd(300, 300), LogEnd(300, 199)]), "one waits for its sync"
    assert blocks.confirm([LogEnd(300, 200), LogEnd(300, 200)])
    assert (blocks.high_watermark, blocks.synced_below, blocks.end) == (260, 200, 260)


def test_a_growth_counts_from_before_it_is_asked_for() -> None:
    members = InSyncSet(frozenset({A}), 3)
    members.ask(frozenset({A, B}))
    assert members.required == {A, B}
    members.seen(frozenset({A}), 3)
    assert members.required == {A, B}, "the change may be on its way still"
    members.refused()
    assert members.required == {A}


def test_a_shrink_counts_when_all_that_remain_have_noted_it() -> None:
    members = InSyncSet(frozenset({A, B, C}), 3)
    members.ask(frozenset({A, B}))
    members.seen(frozenset({A, B}), 4)
    assert members.required == {A, B, C}
    assert not members.noted({A: 4, B: 3})
    assert members.noted({A: 4, B: 4})
    assert members.required == {A, B}


def test_a_member_that_never_notes_can_be_replaced() -> None:
    members = InSyncSet(frozenset({A, B, C}), 3)
    members.ask(frozenset({A, B}))
    members.seen(frozenset({A, B}), 4)
    other = Member("B", 9)
    members.ask(frozenset({A, other}))
    members.seen(frozenset({A, other}), 5)
    assert members.required == {A, B, C, other}
    assert members.noted({A: 5, other: 5})
    assert members.required == {A, other}
