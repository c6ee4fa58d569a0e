"""Durations as text: what is taken, what is refused."""

import pytest

from app.domain.durations import format_duration, parse_duration_ms


@pytest.mark.parametrize(
    ("text", "ms"),
    [("250ms", 250), ("30s", 30_000), ("1.5m", 90_000), ("2h", 7_200_000), ("3d", 259_200_000)],
)
def test_durations_are_a_number_and_a_unit(text: str, ms: int) -> None:
    assert parse_duration_ms(text) == ms


@pytest.mark.parametrize(
    "text", ["", "30", "s", "3153600000000", "-1s", "1 s", "1w", "1e3s", "٣s", "1s2m", "1s\n"]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        parse_duration_ms(text)


@pytest.mark.parametrize("text", ["3153600000000ms", "1.1234567s", "9999999999999.5d"])
def test_of_too_many_digits_it_is_said_how_many_are_read(text: str) -> None:
    with pytest.raises(ValueError, match="too long; a duration has at most 12 digits, and 6 more"):
        parse_duration_ms(text)


@pytest.mark.parametrize("ms", [0, 1, 250, 30_000, 61_000, 7_200_000, 259_200_000])
def test_formatting_inverts_parsing(ms: int) -> None:
    assert parse_duration_ms(format_duration(ms)) == ms
