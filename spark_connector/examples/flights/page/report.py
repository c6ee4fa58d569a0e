"""The two tables side by side, and whether they are equal."""

from collections.abc import Iterator, Mapping

from flights.dataset import Delays, Group

_COLUMNS = "{:<8}{:>6}  {:>9}{:>9}  {:>12}{:>12}  {}"


def lines(streamed: Mapping[Group, Delays], direct: Mapping[Group, Delays]) -> Iterator[str]:
    """A line for each carrier and month that stands in either table."""
    yield _COLUMNS.format("", "", "flights", "flights", "mean delay", "mean delay", "")
    yield _COLUMNS.format("carrier", "month", "stream", "direct", "stream", "direct", "")
    for group in sorted({*streamed, *direct}):
        left, right = streamed.get(group), direct.get(group)
        yield _COLUMNS.format(
            group.carrier,
            group.month,
            left.flights if left else "-",
            right.flights if right else "-",
            _minutes(left),
            _minutes(right),
            "" if left == right else "  <- differs",
        ).rstrip()


def differences(streamed: Mapping[Group, Delays], direct: Mapping[Group, Delays]) -> int:
    """How many groups do not agree in flights, departures and minutes, all of them exactly."""
    return sum(streamed.get(group) != direct.get(group) for group in {*streamed, *direct})


def _minutes(delays: Delays | None) -> str:
    return "-" if delays is None or delays.mean is None else f"{delays.mean:.3f}"
