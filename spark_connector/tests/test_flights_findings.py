"""The demo's comparisons: what is equal counts as equal, and one changed row is seen."""

import xml.etree.ElementTree as ET
from collections import defaultdict
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pytest
from flights.dataset import Delays, Group, load_flights
from flights.page.chart import svg_of
from flights.page.findings import Findings, write_page
from flights.streams.joining import COLUMNS, airports_table, differing_rows, joined_directly
from flights.streams.weeks import WEEK_MS, Departures, Week, weeks_of


@pytest.fixture(scope="module")
def sample() -> pa.Table:
    return load_flights(2_000)


def test_weeks_are_those_of_a_plain_loop(sample: pa.Table) -> None:
    counts: dict[Week, list[int]] = defaultdict(lambda: [0, 0, 0])
    for flight in sample.to_pylist():
        moment = datetime.fromisoformat(flight["time_hour"]).timestamp() * 1000
        count = counts[Week(flight["origin"], int(moment) // WEEK_MS * WEEK_MS)]
        count[0] += 1
        if flight["dep_delay"] is not None:
            count[1] += 1
            count[2] += flight["dep_delay"]
    assert weeks_of(sample) == {week: Departures(*count) for week, count in counts.items()}


def test_the_join_is_that_of_a_plain_loop(sample: pa.Table) -> None:
    airports = {row["dest"]: row for row in airports_table().to_pylist()}
    joined = joined_directly(sample)
    assert joined.column_names == list(COLUMNS)
    expected = [
        {
            **{name: flight[name] for name in COLUMNS if name in flight},
            **{name: airports.get(flight["dest"], {}).get(name) for name in ("airport", "zone")},
        }
        for flight in sample.to_pylist()
    ]
    assert differing_rows(joined, pa.Table.from_pylist(expected).select(list(COLUMNS))) == 0
    assert any(row["airport"] is None for row in expected), "San Juan is not in the table"


def test_a_row_twice_and_a_row_that_lacks_are_seen(sample: pa.Table) -> None:
    joined = joined_directly(sample)
    assert differing_rows(joined, joined.take(list(range(len(joined)))[::-1])) == 0
    assert differing_rows(pa.concat_tables([joined, joined.slice(0, 1)]), joined) == 1
    assert differing_rows(joined.slice(1), joined) == 1
    swapped = pa.concat_tables([joined.slice(1), joined.slice(1, 1)])
    assert differing_rows(swapped, joined) == 2


def findings(**changed: object) -> Findings:
    delays = {Group("AA", 1): Delays(3, 2, 10)}
    weeks = {
        Week(origin, 1_356_998_400_000 + number * WEEK_MS): Departures(9, 8, 40 * number)
        for origin in ("EWR", "JFK", "LGA")
        for number in range(4)
    }
    known = {"streamed": delays, "direct": delays, "weeks": weeks, "weeks_directly": weeks}
    return Findings(**{**known, "joined": 3, "differing_rows": 0, **changed})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changed", "code", "words"),
    [
        ({}, 0, "All 3 joined rows are there once"),
        ({"streamed": {}}, 1, "1 of 1 lines differ"),
        ({"weeks": {}}, 1, "12 of 12 windows differ"),
        ({"differing_rows": 2}, 1, "2 rows of the join differ"),
    ],
)
def test_what_differs_is_told(
    capsys: pytest.CaptureFixture[str], changed: dict[str, object], code: int, words: str
) -> None:
    assert findings(**changed).tell() == code
    assert words in capsys.readouterr().out


def test_the_page_has_the_results_and_the_chart(tmp_path: Path) -> None:
    page = tmp_path / "flights.md"
    write_page(page, findings(kills=["kill -9 to the node at 7 rows"]), 3)
    text = page.read_text("utf-8")
    assert "All 3 joined rows" in text
    assert "kill -9 to the node at 7 rows" in text
    assert "(flights.svg)" in text
    assert "<" not in text.replace("<kills>", "").split("## Send")[1].split("```")[0]
    root = ET.fromstring((tmp_path / "flights.svg").read_text("utf-8"))
    lines = root.findall("{http://www.w3.org/2000/svg}polyline")
    assert len(lines) == 3
    assert all(len(line.attrib["points"].split()) == 4 for line in lines)
    assert svg_of({}).startswith("<svg")
