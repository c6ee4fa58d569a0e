"""Conditions of changes, as RFC 9110 judges them."""

import pytest

from app.domain.changes.conditions import Conditions
from app.domain.errors import PreconditionFailed, StateConflict

ONE, TWO = frozenset({1}), frozenset({1, 2})


@pytest.mark.parametrize(
    ("conditions", "present", "holds"),
    [
        (Conditions(), 0, True),
        (Conditions(), 5, True),
        (Conditions(if_match=ONE), 1, True),
        (Conditions(if_match=TWO), 2, True),
        (Conditions(if_match=ONE), 2, False),
        (Conditions(if_match=ONE), 0, False),
        (Conditions(if_match=frozenset()), 1, False),
        (Conditions(if_match="*"), 3, True),
        (Conditions(if_match="*"), 0, False),
        (Conditions(if_none_match="*"), 0, True),
        (Conditions(if_none_match="*"), 1, False),
        (Conditions(if_none_match=ONE), 1, False),
        (Conditions(if_none_match=ONE), 2, True),
        (Conditions(if_none_match=ONE), 0, True),
        (Conditions(if_none_match=frozenset()), 1, True),
        (Conditions(ONE, "*"), 1, False),
        (Conditions(ONE, "*"), 0, False),
        (Conditions("*", ONE), 2, True),
        (Conditions("*", ONE), 1, False),
        (Conditions.at(None), 7, True),
        (Conditions.at(0), 0, True),
        (Conditions.at(0), 7, False),
        (Conditions.at(7), 7, True),
        (Conditions.at(6), 7, False),
    ],
)
def test_conditions(conditions: Conditions, present: int, *, holds: bool) -> None:
    if holds:
        conditions.check("topic 'a'", present)
        return
    with pytest.raises(PreconditionFailed) as caught:
        conditions.check("topic 'a'", present)
    assert isinstance(caught.value, StateConflict)
    assert caught.value.fields == {"version": present}
    wanted = f"is at version {present}" if present else "does not exist"
    assert wanted in caught.value.detail


def test_the_refusal_names_what_was_asked_for() -> None:
    with pytest.raises(PreconditionFailed, match="asks for version 1 or 2"):
        Conditions(if_match=TWO).check("topic 'a'", 9)
    with pytest.raises(PreconditionFailed, match="asks for that it does not exist"):
        Conditions(if_none_match="*").check("topic 'a'", 9)
