"""The short form of a sweep is a part of the full one."""

import pytest

from tests.support import length

POINTS = [("write", 1), ("write", 2), ("sync", 1)]


def test_a_short_run_visits_the_selection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(length, "IS_FULL", False)
    assert length.selection(POINTS, POINTS[1:]) == [("write", 2), ("sync", 1)]
    assert length.count(60, 200) == 60


def test_a_full_run_visits_every_point(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(length, "IS_FULL", True)
    assert length.selection(POINTS, POINTS[1:]) == POINTS
    assert length.count(60, 200) == 200


def test_a_point_that_the_full_run_does_not_have_is_refused() -> None:
    with pytest.raises(AssertionError, match="does not visit"):
        length.selection(POINTS, [("sync", 2)])
