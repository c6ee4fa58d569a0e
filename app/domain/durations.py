"""Durations as text: `"30s"`, `"2h"`, `"1.5m"`, `"250ms"`."""

import re
from typing import Final

_DURATION: Final = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)(ms|s|m|h|d)", re.ASCII)
_MS_PER_UNIT: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

_TOO_LONG: Final = re.compile(r"\d+(?:\.\d+)?(ms|s|m|h|d)", re.ASCII)

DURATION_PATTERN: Final = r"^\d{1,12}(\.\d{1,6})?(ms|s|m|h|d)$"
DURATION_RULE: Final = "write a number and a unit: 250ms, 30s, 5m, 2h or 3d"
_DIGITS_RULE: Final = "a duration has at most 12 digits, and 6 more behind a point"


def parse_duration_ms(text: str) -> int:
    """Milliseconds of `text`; ValueError when it is not a duration."""
    match = _DURATION.fullmatch(text)
    if match is None and _TOO_LONG.fullmatch(text):
        raise ValueError(f"{text!r} is too long; {_DIGITS_RULE}")
    if match is None:
        raise ValueError(f"{text!r} is not a duration; {DURATION_RULE}")
    return round(float(match[1]) * _MS_PER_UNIT[match[2]])


def format_duration(ms: int) -> str:
    """The shortest text that parses to `ms`."""
    for unit in ("d", "h", "m", "s"):
        if ms and ms % _MS_PER_UNIT[unit] == 0:
            return f"{ms // _MS_PER_UNIT[unit]}{unit}"
    return f"{ms}ms"
