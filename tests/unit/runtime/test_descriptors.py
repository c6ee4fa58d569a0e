"""Connections get what the store leaves, and what is left is never more than there is."""

import logging

import pytest

from app.domain.limits import Limits
from app.runtime.descriptors import STORE_FILES_MIN, TooFewDescriptors, fitted


def total(limits: Limits) -> int:
    connections = limits.connections_max + limits.refused_connections_max
    return connections + limits.file_answers_max + limits.store_files_max


@pytest.mark.parametrize("allowed", [160, 256, 1_000, 1_024, 4_096, 10_000, total(Limits()) - 1])
def test_all_shares_together_are_what_is_allowed(
    allowed: int, caplog: pytest.LogCaptureFixture
) -> None:
    fitting = fitted(Limits(), allowed)
    assert total(fitting) <= allowed
    assert fitting.store_files_max >= STORE_FILES_MIN
    assert 0 < fitting.connections_max < Limits().connections_max
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert f"connections_max is {fitting.connections_max} instead of 10000" in record.message


@pytest.mark.parametrize("allowed", [total(Limits()), total(Limits()) + 1, 1 << 20])
def test_nothing_changes_where_there_are_enough(
    allowed: int, caplog: pytest.LogCaptureFixture
) -> None:
    assert fitted(Limits(), allowed) == Limits()
    assert not caplog.records


def test_no_limit_is_raised() -> None:
    few = Limits(connections_max=100, file_answers_max=10, refused_connections_max=5)
    fitting = fitted(few, 1_024)
    assert fitting.connections_max == 100
    assert fitting.file_answers_max == 10
    assert fitting.refused_connections_max == 5


@pytest.mark.parametrize("allowed", [0, 16, STORE_FILES_MIN, STORE_FILES_MIN + 16])
def test_too_few_are_refused(allowed: int) -> None:
    with pytest.raises(TooFewDescriptors, match=f"only {allowed} open files are allowed"):
        fitted(Limits(), allowed)
