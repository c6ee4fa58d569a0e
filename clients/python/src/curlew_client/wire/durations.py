"""Times as this package takes them: seconds, a text such as `30s`, or a `timedelta`. Pure."""

import re
from datetime import timedelta
from typing import Final

Duration = float | int | str | timedelta
"""Seconds as a number; a number and a unit (`250ms`, `30s`, `5m`, `2h`, `3d`); or a `timedelta`."""

_TEXT: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}


def seconds_of(name: str, value: Duration) -> float:
    """Seconds. `TypeError` or `ValueError` with the name of the parameter."""
    if isinstance(value, bool) or not isinstance(value, int | float | str | timedelta):
        kind = type(value).__name__
        raise TypeError(f"{name} is seconds, a text such as '30s' or a timedelta, not {kind}")
    if isinstance(value, timedelta):
        value = value.total_seconds()
    elif isinstance(value, str):
        found = _TEXT.fullmatch(value)
        if found is None:
            raise ValueError(f"{name} is {value!r}; write it as '250ms', '30s', '5m', '2h' or '3d'")
        value = float(found[1]) * _UNITS[found[2]]
    if not 0 <= value < float("inf"):
        raise ValueError(f"{name} is {value}; it must not be negative or endless")
    return float(value)


def milliseconds_of(name: str, value: Duration) -> int:
    """The same in milliseconds, as the service takes them."""
    return round(seconds_of(name, value) * 1_000)
