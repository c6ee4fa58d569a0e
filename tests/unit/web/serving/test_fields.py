"""What people write into fields."""

import pytest

from app.web.serving.fields import moment_ms_of


@pytest.mark.parametrize(
    ("text", "moment_ms"),
    [
        ("0", 0),
        ("1700000000123", 1_700_000_000_123),
        ("2023-11-14T22:13:20", 1_700_000_000_000),
        ("2023-11-14T23:13:20+01:00", 1_700_000_000_000),
        ("", None),
        ("soon", None),
        ("-1", None),
    ],
)
def test_a_moment_is_utc_or_milliseconds(text: str, moment_ms: int | None) -> None:
    assert moment_ms_of(text) == moment_ms
