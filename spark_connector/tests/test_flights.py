"""The parts of the demo that need neither a node nor Spark: what it compares with, and how."""

import json
import os
import stat
from collections import Counter, defaultdict
from datetime import datetime
from pathlib import Path

import flights
import pyarrow as pa
import pytest
from flights import Count, Counts, counted, joined_rows, load_airports, load_flights, main


@pytest.fixture(scope="module")
def sample() -> pa.Table:
    return load_flights(2_000)


def fake_java(folder: Path, version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A JAVA_HOME whose java prints `version` as the real one does: on stderr."""
    (folder / "bin").mkdir()
    program = folder / "bin" / "java"
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("JAVA_HOME", str(folder))


def test_a_new_enough_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path, "17.0.1", monkeypatch)
    assert flights.require_java() == 'openjdk version "17.0.1"'


@pytest.mark.parametrize("version", ["11.0.2", "1.8.0_402", "none"])
def test_an_old_java_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    version: str,
) -> None:
    fake_java(tmp_path, version, monkeypatch)
    assert main([]) == 2
    assert (
        f'is too old: openjdk version "{version}". Spark needs Java 17' in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("home", "words"), [("{}", "does not run"), ("", "No Java was found. Spark needs Java 17")]
)
def test_without_java_nothing_else_is_done(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    home: str,
    words: str,
) -> None:
    monkeypatch.setenv("JAVA_HOME", home.format(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main([]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert words in printed.err


def test_a_missing_data_set_is_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    fake_java(tmp_path, "17.0.1", monkeypatch)
    monkeypatch.setattr(flights, "PACKAGE", f"missing_{os.getpid()}")
    assert main([]) == 2
    assert "is not installed: pip install" in capsys.readouterr().err


def test_the_year_is_complete() -> None:
    counts = counted(load_flights(), "carrier", "month")
    assert sum(count.flights for count in counts.values()) == 336_776
    assert sum(count.departed for count in counts.values()) == 336_776 - 8_255  # cancelled
    assert len({carrier for carrier, _ in counts}) == 16


def test_counts_are_those_of_a_plain_loop(sample: pa.Table) -> None:
    """The groups that the streams are compared with, counted once without a grouping library."""
    months: dict[tuple[str, int], list[int]] = defaultdict(lambda: [0, 0, 0])
    weeks: dict[tuple[str, int], list[int]] = defaultdict(lambda: [0, 0, 0])
    for flight in sample.to_pylist():
        moment = int(datetime.fromisoformat(flight["time_hour"]).timestamp()) * 1_000
        week = moment // flights.WEEK_MS * flights.WEEK_MS
        for count in months[flight["carrier"], flight["month"]], weeks[flight["origin"], week]:
            count[0] += 1
            count[1] += flight["dep_delay"] is not None
            count[2] += flight["dep_delay"] or 0
    assert {month for _, month in months} == set(range(1, 13)), "it is spread over the year"
    assert counted(sample, "carrier", "month") == {k: Count(*v) for k, v in months.items()}
    assert counted(flights.with_weeks(sample), "origin", "week") == {
        k: Count(*v) for k, v in weeks.items()
    }


def test_the_join_is_that_of_a_plain_loop(sample: pa.Table) -> None:
    airports = {row["dest"]: row for row in load_airports().to_pylist()}
    expected = Counter(
        tuple({**flight, **airports.get(flight["dest"], {})}.get(name) for name in flights.JOINED)
        for flight in sample.to_pylist()
    )
    assert joined_rows(sample) == expected
    assert any(row[5] is None for row in expected), "San Juan is not in the table"


def test_a_flight_becomes_a_message() -> None:
    messages = list(map(json.loads, flights.envelopes(load_flights(20_000))))
    first = messages[0]
    assert (first["tag"], first["keys"], first["sharding_key"]) == ("EWR", ["N14228"], "UA")
    assert first["body"]["dep_delay"] == 2
    assert set(first) == {"body", "content_type", "tag", "keys", "sharding_key"}
    unknown = next(message for message in messages if message["body"]["tailnum"] is None)
    assert "keys" not in unknown
    assert unknown["body"]["dep_delay"] is None


def without_one(counts: Counts) -> Counts:
    return dict(list(counts.items())[1:])


def test_what_differs_is_told(sample: pa.Table, capsys: pytest.CaptureFixture[str]) -> None:
    months = counted(sample, "carrier", "month")
    weeks = counted(flights.with_weeks(sample), "origin", "week")
    joined = joined_rows(sample)
    assert flights.tell(sample, months, weeks, joined) == 0
    printed = capsys.readouterr().out
    assert "lines are equal: 2,000 flights in counts, minutes and means." in printed
    assert "All 2,000 joined rows are there once" in printed
    assert "differs" not in printed

    one = next(iter(months))
    later = {**months, one: months[one]._replace(minutes=months[one].minutes + 1)}
    for wrong in (later, without_one(months), {**months, ("XX", 1): Count(1, 1, 1)}):
        assert flights.tell(sample, wrong, weeks, joined) == 1
        printed = capsys.readouterr().out
        assert "1 lines differ." in printed
        assert printed.count("<- differs") == 1
    assert flights.tell(sample, months, without_one(weeks), joined) == 1
    assert "1 windows differ." in capsys.readouterr().out

    row = next(iter(joined))
    for changed, wrong_rows in ((+1, 1), (-1, 1)):
        assert flights.tell(sample, months, weeks, joined + Counter({row: changed})) == 1
        assert f"{wrong_rows} rows of the join differ." in capsys.readouterr().out
