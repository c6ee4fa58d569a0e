"""How values read."""

import pytest

from app.web.rendering.values import (
    age_text,
    clock_text,
    duration_text,
    moment_text,
    number_text,
    rate_text,
    size_text,
)

DASH = "\N{EN DASH}"


def test_numbers_are_exact() -> None:
    assert number_text(2**64 - 1) == "18,446,744,073,709,551,615"
    assert number_text(None) == DASH


@pytest.mark.parametrize(
    ("rate", "text"), [(0.0, "0"), (0.04, "0.0"), (0.3, "0.3"), (12.6, "13"), (1_204.2, "1,204")]
)
def test_rates(rate: float, text: str) -> None:
    assert rate_text(rate) == text


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (1_023, "1023 B"), (1_536, "1.5 KiB"), (2**50, "1.0 PiB")]
)
def test_sizes(size: int, text: str) -> None:
    assert size_text(size) == text


@pytest.mark.parametrize(
    ("duration", "text"), [(0, "0 ms"), (1_500, "1500 ms"), (90_000, "90 s"), (259_200_000, "3 d")]
)
def test_durations(duration: int, text: str) -> None:
    assert duration_text(duration) == text


@pytest.mark.parametrize(
    ("age", "text"),
    [(0, "0 s"), (-5, "0 s"), (999, "0 s"), (250_000, "4 min 10 s"), (183_600_000, "2 d 3 h")],
)
def test_ages(age: int, text: str) -> None:
    assert age_text(age) == text


def test_moments_that_no_calendar_has_are_numbers() -> None:
    assert moment_text(0) == "1970-01-01 00:00:00 UTC"
    assert clock_text(1_700_000_000_007) == "2023-11-14 22:13:20.007"
    assert moment_text(2**63) == str(2**63)
    assert clock_text(2**63) == str(2**63)
