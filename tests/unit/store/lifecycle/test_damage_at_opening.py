"""After a clean stop the newest of the log is checked; what is older shows when it is read."""

from pathlib import Path

import pytest

from app.store import OsFiles
from tests.support.stores.stores import open_store
from tests.unit.store.lifecycle.test_damage_cases import CONFIG, make, told_kinds


def test_opening_tells_of_damage_in_the_newest_log_before_anybody_reads(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    damaged = make(tmp_path, killed=False)
    damaged.flip_body(1)
    caplog.clear()
    opened = open_store(OsFiles(tmp_path), CONFIG)
    assert told_kinds(opened, caplog) == {"log"}
    (found,) = opened.store.status().recovery.damages
    assert (found.start, found.end) == (damaged.offsets[1], damaged.offsets[2])
    opened.store.close()


def test_opening_reads_no_more_than_the_newest_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the middle of a record on, which is no damage."""
    damaged = make(tmp_path, killed=False)
    newest = damaged.end - damaged.offsets[5] + 40
    monkeypatch.setattr("app.store.lifecycle.recovery.CHECKED_AT_OPENING_BYTES", newest)
    damaged.flip_body(1)
    opened = open_store(OsFiles(tmp_path), CONFIG)
    assert opened.store.status().damages == {}
    opened.store.close()
    damaged.flip_body(5)
    opened = open_store(OsFiles(tmp_path), CONFIG)
    assert opened.store.status().damages == {"log": 1}
    opened.store.close()


def test_a_search_by_key_tells_once_of_a_record_that_it_cannot_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.store.lifecycle.recovery.CHECKED_AT_OPENING_BYTES", 0)
    damaged = make(tmp_path, killed=False)
    damaged.flip_body(1)
    opened = open_store(OsFiles(tmp_path), CONFIG)
    for _ in range(2):
        assert opened.store.find_by_key("TopicA", "k3", wait_for_disk=True) == []
    assert opened.store.find_by_key("TopicA", "none", wait_for_disk=True) == []
    assert opened.store.status().damages == {"message": 1}
    opened.store.close()
