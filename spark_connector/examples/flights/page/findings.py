"""What the demo has found: told on the terminal, and written as a page with a chart."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from flights.dataset import Delays, Group
from flights.page import report

if TYPE_CHECKING:
    from flights.streams.weeks import Departures, Week

_LINES_SHOWN: Final = 12


@dataclass
class Findings:
    """The streamed results beside those that were computed from the rows directly."""

    streamed: Mapping[Group, Delays]
    direct: Mapping[Group, Delays]
    weeks: "Mapping[Week, Departures]"
    weeks_directly: "Mapping[Week, Departures]"
    joined: int
    differing_rows: int
    kills: list[str] = field(default_factory=list)

    def tell(self) -> int:
        """Print everything; return the exit code."""
        print()
        for line in report.lines(self.streamed, self.direct):
            print(line)
        print()
        verdicts = list(self.verdicts())
        for verdict in verdicts:
            print(verdict)
        return 0 if self.is_equal() else 1

    def is_equal(self) -> bool:
        differing = report.differences(self.streamed, self.direct)
        return not differing and self.weeks == self.weeks_directly and not self.differing_rows

    def verdicts(self) -> Iterator[str]:
        """A sentence for each comparison."""
        differing = report.differences(self.streamed, self.direct)
        flights = sum(delays.flights for delays in self.streamed.values())
        if differing:
            yield f"{differing} of {len(self.direct)} lines differ."
        else:
            yield (
                f"All {len(self.direct)} lines are equal: {flights:,} flights in counts, minutes"
                " and means."
            )
        wrong = sum(
            self.weeks.get(week) != self.weeks_directly.get(week)
            for week in {*self.weeks, *self.weeks_directly}
        )
        if wrong:
            yield f"{wrong} of {len(self.weeks_directly)} windows differ."
        else:
            yield f"All {len(self.weeks)} windows of a week are equal; no row came too late."
        if self.differing_rows:
            yield f"{self.differing_rows:,} rows of the join differ."
        else:
            yield f"All {self.joined:,} joined rows are there once, each as computed directly."


def write_page(page: Path, findings: Findings, flights: int) -> None:
    """The page, and the chart beside it."""
    from flights.page.chart import svg_of

    chart = page.with_suffix(".svg")
    chart.write_text(svg_of(findings.weeks), "utf-8")
    table = list(report.lines(findings.streamed, findings.direct))
    shown = "\n".join([*table[: 2 + _LINES_SHOWN], "\u2026"])
    fields = {
        "flights": f"{flights:,}",
        "kills": "\n".join(findings.kills),
        "table": shown,
        "verdicts": "\n".join(findings.verdicts()),
        "chart": chart.name,
        "windows": str(len(findings.weeks)),
    }
    template = (Path(__file__).parent / "page.md").read_text("utf-8")
    for name, text in fields.items():
        template = template.replace(f"<{name}>", text)
    page.write_text(template, "utf-8")
