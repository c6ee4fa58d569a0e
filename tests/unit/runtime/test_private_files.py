"""Who may read what a node keeps: its owner."""

import os
from pathlib import Path

import pytest

from app.runtime.private_files import (
    everything_in,
    files_of_sqlite,
    keep_new_files_private,
    make_private_directory,
    narrow,
)


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


def made(path: Path, mode: int) -> Path:
    path.write_bytes(b"x")
    path.chmod(mode)
    return path


def test_new_files_are_their_owners(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        keep_new_files_private()
        (tmp_path / "file").touch()
        (tmp_path / "directory").mkdir()
    finally:
        os.umask(before)
    assert mode_of(tmp_path / "file") == 0o600
    assert mode_of(tmp_path / "directory") == 0o700


def test_only_what_is_made_is_private(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    before = os.umask(0o022)
    try:
        make_private_directory(tmp_path / "above" / "data")
        make_private_directory(tmp_path)
    finally:
        os.umask(before)
    modes = [mode_of(tmp_path / each) for each in ("above/data", "above", ".")]
    assert modes == [0o700, 0o755, 0o755]


def test_what_is_wider_is_narrowed_once_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    database = made(tmp_path / "metadata.db", 0o644)
    journal = made(tmp_path / "metadata.db-wal", 0o664)
    beside = made(tmp_path / "notes.txt", 0o644)
    narrow(files_of_sqlite(database))
    assert [mode_of(each) for each in (database, journal, beside)] == [0o600, 0o600, 0o644]
    assert [record.getMessage() for record in caplog.records] == [
        f"{database} and 1 more could be read or written by other users; now only by their owner"
    ]
    narrow(files_of_sqlite(database))
    assert len(caplog.records) == 1


def test_a_store_is_narrowed_to_its_last_file(tmp_path: Path) -> None:
    store = tmp_path / "store"
    (store / "queues" / "one").mkdir(parents=True)
    for directory in (store, store / "queues", store / "queues" / "one"):
        directory.chmod(0o755)
    deep = made(store / "queues" / "one" / "0", 0o640)
    executable = made(store / "log", 0o755)
    elsewhere = made(tmp_path / "elsewhere", 0o644)
    (store / "link").symlink_to(elsewhere)
    narrow(everything_in(store))
    assert mode_of(deep) == 0o600
    assert mode_of(executable) == 0o700
    assert mode_of(elsewhere) == 0o644
    assert {mode_of(each) for each in store.rglob("*") if each.is_dir()} == {0o700}
    assert mode_of(store) == 0o700


def test_what_is_not_there_needs_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    narrow(everything_in(tmp_path / "store"))
    narrow(files_of_sqlite(tmp_path / "metadata.db"))
    assert not caplog.records


def test_what_belongs_to_another_user_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file = made(tmp_path / "metadata.db", 0o644)

    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "chmod", refuse)
    narrow([file])
    assert mode_of(file) == 0o644
    (record,) = caplog.records
    assert f"chmod go= {file}" in record.getMessage()
