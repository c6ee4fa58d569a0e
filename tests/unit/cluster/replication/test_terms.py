"""Where two logs part."""

import pytest

from app.cluster.replication.terms import (
    Member,
    Promise,
    Term,
    TermStart,
    common_end,
    cut_history,
    last_term,
)

ONE, TWO, THREE = Term(1, 11), Term(2, 22), Term(3, 33)


def history(*starts: tuple[Term, int]) -> tuple[TermStart, ...]:
    return tuple(TermStart(term, start) for term, start in starts)


@pytest.mark.parametrize(
    ("mine", "end", "other", "other_end", "common"),
    [
        ((), 0, (), 0, 0),
        (((ONE, 0),), 100, ((ONE, 0),), 70, 70),
        (((ONE, 0), (TWO, 80)), 100, ((ONE, 0),), 95, 80),
        (((ONE, 0), (TWO, 80)), 100, ((ONE, 0), (TWO, 80)), 90, 90),
        (((ONE, 0), (TWO, 80)), 100, ((ONE, 0), (TWO, 60)), 90, 60),
        (((ONE, 0), (TWO, 50), (THREE, 90)), 100, ((ONE, 0), (THREE, 70)), 95, 50),
        (((ONE, 0),), 100, ((Term(1, 12), 0),), 100, 0),  # the database gave one epoch twice
    ],
)
def test_the_common_end(
    mine: tuple[tuple[Term, int], ...],
    end: int,
    other: tuple[tuple[Term, int], ...],
    other_end: int,
    common: int,
) -> None:
    assert common_end(history(*mine), end, history(*other), other_end) == common
    assert common_end(history(*other), other_end, history(*mine), end) == common


def test_a_cut_takes_the_terms_that_begin_behind_it() -> None:
    whole = history((ONE, 0), (TWO, 80))
    assert cut_history(whole, 81) == whole
    assert cut_history(whole, 80) == whole[:1]
    assert last_term(cut_history(whole, 0)).epoch == 0


def test_a_promise_knows_better_than_a_row_that_forgot_a_change_of_the_set() -> None:
    inside, outside = Member("A", 1), Member("B", 2)
    promise = Promise(ONE, 5, frozenset({inside}))
    assert promise.knows_better(outside, 4)
    assert not promise.knows_better(outside, 5)
    assert not promise.knows_better(inside, 4)
    assert promise.knows_better(Member("A", 3), 4), "another incarnation is another member"
