"""The parts of the demo that need neither a node nor Spark."""

import io
import json
import os
import stat
from pathlib import Path

import pytest
from flights.__main__ import main
from flights.dataset import Delays, Group, delays_of, envelopes, load_flights
from flights.java import JavaMissing, java_version, require_java
from flights.page import report
from flights.progress import Progress


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "1.8.0_402"', 8),
        ("command not found", None),
    ],
)
def test_java_versions(text: str, version: int | None) -> None:
    assert java_version(text) == version


def fake_java(folder: Path, version: str) -> None:
    """A JAVA_HOME whose java prints `version` as the real one does: on stderr."""
    (folder / "bin").mkdir()
    program = folder / "bin" / "java"
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)


def test_a_new_enough_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path, "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert require_java() == 'openjdk version "17.0.1"'


def test_an_old_java_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path, "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaMissing, match=r"is Java 11\. Spark needs Java 17 or newer"):
        require_java()


def test_a_wrong_java_home_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaMissing, match="does not run"):
        require_java()


def test_without_java_nothing_else_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main([]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "No Java was found. Spark needs Java 17 or newer" in printed.err


def test_the_year_is_complete() -> None:
    flights = load_flights()
    expected = delays_of(flights)
    assert len(flights) == 336_776
    assert sum(delays.flights for delays in expected.values()) == 336_776
    assert sum(delays.departed for delays in expected.values()) == 336_776 - 8_255  # cancelled
    assert len({group.carrier for group in expected}) == 16


def test_a_sample_is_spread_over_the_year() -> None:
    flights = load_flights(1_200)
    assert len(flights) == 1_200
    assert {group.month for group in delays_of(flights)} == set(range(1, 13))


def test_the_direct_result_is_that_of_a_plain_loop() -> None:
    """The grouping that everything is compared with, done once without any grouping library."""
    flights = load_flights(3_000)
    counted: dict[Group, Delays] = {}
    for flight in flights.to_pylist():
        group = Group(flight["carrier"], flight["month"])
        before = counted.get(group, Delays(0, 0, 0))
        delay = flight["dep_delay"]
        counted[group] = Delays(
            before.flights + 1,
            before.departed + (delay is not None),
            before.delay_minutes + (delay or 0),
        )
    assert delays_of(flights) == counted


def test_a_flight_becomes_a_message() -> None:
    first = json.loads(next(envelopes(load_flights())))
    assert (first["tag"], first["keys"], first["sharding_key"]) == ("EWR", ["N14228"], "UA")
    assert first["body"]["dep_delay"] == 2
    assert set(first) == {"body", "content_type", "tag", "keys", "sharding_key"}


def test_a_flight_without_an_aircraft_has_no_keys() -> None:
    messages = map(json.loads, envelopes(load_flights()))
    unknown = next(message for message in messages if message["body"]["tailnum"] is None)
    assert "keys" not in unknown
    assert unknown["body"]["dep_delay"] is None


UA_JANUARY = Group("UA", 1)


def test_a_difference_of_one_minute_is_seen() -> None:
    streamed = {UA_JANUARY: Delays(3, 2, 10)}
    direct = {UA_JANUARY: Delays(3, 2, 11)}
    assert report.differences(streamed, streamed) == 0
    assert report.differences(streamed, direct) == 1
    lines = list(report.lines(streamed, direct))
    assert lines[-1].split() == ["UA", "1", "3", "3", "5.000", "5.500", "<-", "differs"]


@pytest.mark.parametrize(("left", "right"), [(1, 0), (0, 1)])
def test_a_missing_line_is_a_difference(left: int, right: int) -> None:
    tables = [{UA_JANUARY: Delays(3, 0, 0)}] * left, [{UA_JANUARY: Delays(3, 0, 0)}] * right
    streamed, direct = (table[0] if table else {} for table in tables)
    assert report.differences(streamed, direct) == 1
    assert "differs" in list(report.lines(streamed, direct))[-1]


def test_a_carrier_that_never_departed_has_no_mean() -> None:
    table = {UA_JANUARY: Delays(3, 0, 0)}
    assert list(report.lines(table, table))[-1].split() == ["UA", "1", "3", "3", "-", "-"]


def test_progress_is_sparse_where_there_is_no_terminal() -> None:
    out = io.StringIO()
    with Progress("send", 1_000, "messages", out) as progress:
        for _ in range(100):
            progress.advance(10)
    lines = out.getvalue().splitlines()
    assert lines[:4] == [
        "send ...",
        "send: 250 of 1,000 messages",
        "send: 500 of 1,000 messages",
        "send: 750 of 1,000 messages",
    ]
    assert len(lines) == 5
    assert lines[4].startswith("send: 1,000 messages in 0.")


def test_progress_is_a_bar_on_a_terminal() -> None:
    out = io.StringIO()
    out.isatty = lambda: True  # type: ignore[method-assign]
    with Progress("send", 200, "messages", out) as progress:
        progress.advance(100)
    assert "[###############               ]  50% 100 messages" in out.getvalue()
    assert out.getvalue().endswith("\n")


def test_a_folder_without_the_data_set_is_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    fake_java(tmp_path, "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr("flights.dataset.PACKAGE", f"missing_{os.getpid()}")
    assert main([]) == 2
    assert "is not installed: pip install" in capsys.readouterr().err
