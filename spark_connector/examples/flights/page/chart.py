"""The mean departure delay by week as an SVG of three lines, one for each airport. No library."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from flights.streams.weeks import Departures, Week

_WIDTH, _HEIGHT = 760, 320
_LEFT, _TOP, _RIGHT, _BOTTOM = 44, 34, 16, 30
_COLOURS: Final = ("#0b6e99", "#d9730d", "#448361")
_STEP: Final = 10
_MONTHS: Final = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()  # noqa: SIM905
_MONTH_DAYS: Final = (0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334)
_YEAR_MS: Final = 365 * 86_400_000
_BEGIN_MS: Final = 1_356_998_400_000
"""2013-01-01T00:00:00Z."""


def svg_of(weeks: Mapping[Week, Departures]) -> str:
    """The chart as a document."""
    airports = sorted({week.origin for week in weeks})
    means = {
        week: departures.delay_minutes / departures.departed
        for week, departures in weeks.items()
        if departures.departed
    }
    top = max(means.values(), default=1.0)
    body = [*_grid(top), *_months()]
    for airport, colour in zip(airports, _COLOURS, strict=False):
        points = sorted((week.start_ms, mean) for week, mean in means.items() if week[0] == airport)
        body.append(_line(points, colour, top))
    body += _legend(airports)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        'aria-label="Mean departure delay by week" font-family="sans-serif" font-size="12">'
    )
    ground = f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>'
    return "\n".join([head, ground, *body, "</svg>", ""])


def _x(moment_ms: int) -> float:
    part = (moment_ms - _BEGIN_MS) / _YEAR_MS
    return _LEFT + min(max(part, 0.0), 1.0) * (_WIDTH - _LEFT - _RIGHT)


def _y(minutes: float, top: float) -> float:
    return _HEIGHT - _BOTTOM - max(minutes, 0.0) / top * (_HEIGHT - _TOP - _BOTTOM)


def _grid(top: float) -> Iterable[str]:
    for minutes in range(0, int(top) + 1, _STEP):
        y = _y(minutes, top)
        ends = f'x1="{_LEFT}" y1="{y:.1f}" x2="{_WIDTH - _RIGHT}" y2="{y:.1f}"'
        yield f'<line {ends} stroke="#e3e2e0"/>'
        yield f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{minutes}</text>'


def _months() -> Iterable[str]:
    for name, day in zip(_MONTHS, _MONTH_DAYS, strict=True):
        x = _x(_BEGIN_MS + day * 86_400_000)
        yield f'<text x="{x:.1f}" y="{_HEIGHT - 10}">{name}</text>'


def _line(points: Sequence[tuple[int, float]], colour: str, top: float) -> str:
    path = " ".join(f"{_x(moment):.1f},{_y(mean, top):.1f}" for moment, mean in points)
    return f'<polyline fill="none" stroke="{colour}" stroke-width="1.8" points="{path}"/>'


def _legend(airports: Sequence[str]) -> Iterable[str]:
    yield f'<text x="{_LEFT}" y="18">minutes of departure delay, mean by week:</text>'
    for number, (airport, colour) in enumerate(zip(airports, _COLOURS, strict=False)):
        x = _LEFT + 250 + 64 * number
        yield f'<text x="{x}" y="18" fill="{colour}" font-weight="bold">{airport}</text>'
