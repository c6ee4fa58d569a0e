"""Cron expressions: when a schedule is due next. Pure but for the time zone database.

Five fields as in cron(5) of Debian, with its rules for daylight saving: what falls into the hour
that is skipped fires right after it, and what is named by a fixed time fires once in the hour that
comes twice (cronsim does both).
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from app.domain.errors import IllegalSetting
from app.domain.schedules import CRON_CHARS_MAX, TIMEZONE_CHARS_MAX, illegal_cron

_FIELDS = 5


def due_times(cron: str, timezone: str, after_ms: int) -> Iterator[int]:
    """Epoch milliseconds of the due times behind `after_ms`. Raises `IllegalSetting`."""
    if len(cron) > CRON_CHARS_MAX or len(cron.split()) != _FIELDS:
        raise illegal_cron(cron[:CRON_CHARS_MAX], f"it must have {_FIELDS} fields")
    start = datetime.fromtimestamp(after_ms // 1_000, UTC).astimezone(_zone(timezone))
    try:
        times = CronSim(cron, start)
        first = next(times, None)
    except CronSimError as error:
        raise illegal_cron(cron, str(error)) from error
    if first is None:
        raise illegal_cron(cron, "no day matches it")
    return _in_ms(first, times)


def next_due_ms(cron: str, timezone: str, after_ms: int) -> int:
    """The first of `due_times`."""
    return next(due_times(cron, timezone, after_ms))


def _in_ms(first: datetime, rest: Iterator[datetime]) -> Iterator[int]:
    yield round(first.timestamp() * 1_000)
    for moment in rest:
        yield round(moment.timestamp() * 1_000)


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name[:TIMEZONE_CHARS_MAX])
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise IllegalSetting(
            f"timezone {name[:TIMEZONE_CHARS_MAX]!r} is not known",
            hint="write a name of the IANA database, such as UTC or Europe/Berlin",
            pointer="/timezone",
        ) from error
