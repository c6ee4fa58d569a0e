"""How values read: numbers, sizes, durations, moments. Pure; filters of the templates.

A number is exact and in groups of three: 64-bit offsets are never rounded. Moments are UTC.
"""

import json
import re
from datetime import UTC, datetime
from typing import Any, Final

from app.domain.positions import TimestampMs

UNKNOWN: Final = "\N{EN DASH}"
"""In place of a number that is not known; who shows it says why beside it."""
_DURATIONS: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))
_SIZES: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_EXACT_BELOW: Final = 10.0
_EPOCH_MS: Final = re.compile(r"(?<![\w.])[12][0-9]{12}(?![\w.])")
"""Between the years 2001 and 2065."""


def number_text(number: int | None) -> str:
    """Exact, with groups of three; a dash when it is not known."""
    return UNKNOWN if number is None else f"{number:,}"


def rate_text(rate: float | None) -> str:
    """A rate a second: small ones with a decimal, `0`, `0.3`, `1,204`."""
    if rate is None:
        return UNKNOWN
    return f"{rate:.1f}" if 0 < rate < _EXACT_BELOW else f"{rate:,.0f}"


def size_text(size: float | None) -> str:
    """In the largest unit that leaves at least one: `512 B`, `1.5 MiB`."""
    if size is None:
        return UNKNOWN
    place, left = 0, float(size)
    while left >= 1_024 and place < len(_SIZES) - 1:
        left /= 1_024
        place += 1
    return f"{left:.0f} {_SIZES[place]}" if place == 0 else f"{left:.1f} {_SIZES[place]}"


def duration_text(duration_ms: int | None) -> str:
    """In the largest unit that leaves no rest: `3 d`, `90 min`, `1500 ms`."""
    if duration_ms is None:
        return UNKNOWN
    for unit_ms, unit in _DURATIONS:
        if duration_ms and duration_ms % unit_ms == 0:
            return f"{duration_ms // unit_ms} {unit}"
    return f"{duration_ms} ms"


def age_text(duration_ms: int | None) -> str:
    """About how long: the two largest units, `2 d 3 h`, `4 min 10 s`, `0 s`."""
    if duration_ms is None:
        return UNKNOWN
    left, parts = max(duration_ms, 0), list[str]()
    for unit_ms, unit in _DURATIONS:
        count, left = divmod(left, unit_ms)
        if count or parts:
            parts.append(f"{count} {unit}")
        if len(parts) == 2:
            break
    return " ".join(part for part in parts if not part.startswith("0 ")) or "0 s"


def moment_text(moment_ms: TimestampMs | int | None) -> str:
    """A wall time in UTC, to the second; the number itself when no calendar has it."""
    if moment_ms is None:
        return UNKNOWN
    try:
        return datetime.fromtimestamp(moment_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return str(moment_ms)


def clock_text(moment_ms: TimestampMs | int | None) -> str:
    """A wall time in UTC to the millisecond, as tables have it: `2026-05-04 10:20:30.123`."""
    if moment_ms is None:
        return UNKNOWN
    try:
        moment = datetime.fromtimestamp(moment_ms // 1_000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(moment_ms)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{moment_ms % 1_000:03}"


def share_text(share: float | None) -> str:
    """Of one, in percent: `12 %`."""
    return UNKNOWN if share is None else f"{share * 100:.0f} %"


def value_text(value: object) -> str:
    """A value of JSON as JSON writes it, but for a text, which stands without quotes."""
    if value is None:
        return UNKNOWN
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def moments_text(text: str) -> str:
    """A sentence of the API, with its epoch milliseconds as times."""
    return _EPOCH_MS.sub(lambda found: moment_text(int(found[0])), text)


FILTERS: Final[dict[str, Any]] = {
    "number": number_text,
    "rate": rate_text,
    "size": size_text,
    "duration": duration_text,
    "age": age_text,
    "moment": moment_text,
    "clock": clock_text,
    "share": share_text,
    "moments": moments_text,
    "value": value_text,
}
