"""A closed connection of SQLite keeps no lock, whoever still holds its statements."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from app.cluster.metadata.database.database import SqliteConnection, sqlite_arguments


def opened(path: Path, factory: type[sqlite3.Connection] = SqliteConnection) -> sqlite3.Connection:
    assert sqlite_arguments(lock_wait_ms=0)["factory"] is SqliteConnection
    return sqlite3.connect(path, timeout=0, isolation_level=None, factory=factory)


def close_in_a_change(path: Path, factory: type[sqlite3.Connection]) -> sqlite3.Cursor:
    """What a cancelled change leaves: a closed connection, and a statement that is not done."""
    connection = opened(path, factory)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE t (a)")
    connection.execute("BEGIN IMMEDIATE")
    statement = connection.execute("INSERT INTO t VALUES (1), (2) RETURNING a")
    connection.close()
    return statement


def test_a_change_that_was_given_up_leaves_no_lock(tmp_path: Path) -> None:
    statement = close_in_a_change(tmp_path / "db", SqliteConnection)
    with closing(opened(tmp_path / "db")) as other:
        other.execute("BEGIN IMMEDIATE")
        assert other.execute("SELECT count(*) FROM t").fetchone() == (0,)
    del statement


def test_the_driver_alone_leaves_one(tmp_path: Path) -> None:
    """Positive control; when it fails, `SqliteConnection` is not needed any more."""
    statement = close_in_a_change(tmp_path / "db", sqlite3.Connection)
    with closing(opened(tmp_path / "db")) as other, pytest.raises(sqlite3.OperationalError):
        other.execute("BEGIN IMMEDIATE")
    del statement


def test_a_connection_that_changes_nothing_closes(tmp_path: Path) -> None:
    connection = opened(tmp_path / "db")
    connection.close()
    connection.close()
    with pytest.raises(sqlite3.ProgrammingError):
        connection.execute("SELECT 1")
