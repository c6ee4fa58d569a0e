"""A database without room is told from one that cannot be reached."""

import sqlite3

import pytest

from app.cluster import DatabaseFull
from app.cluster.metadata.database.address import DatabaseAddress
from app.cluster.metadata.database.failures import unavailable

ADDRESS = DatabaseAddress.parse("sqlite:////data/a%20b/metadata.db")


def sqlite_error(name: str) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("x")
    error.sqlite_errorname = name
    return error


@pytest.mark.parametrize("name", ["SQLITE_FULL", "SQLITE_IOERR_SHMSIZE", "SQLITE_IOERR_WRITE"])
def test_no_room(name: str) -> None:
    assert type(unavailable(sqlite_error(name), ADDRESS)) is DatabaseFull


@pytest.mark.parametrize("name", ["SQLITE_BUSY", "SQLITE_IOERR_READ", "SQLITE_CORRUPT", ""])
def test_something_else(name: str) -> None:
    assert not isinstance(unavailable(sqlite_error(name), ADDRESS), DatabaseFull)


def test_an_address_for_this_process_alone_is_the_same_file() -> None:
    alone = ADDRESS.alone()
    assert alone.sqlite_file == ADDRESS.sqlite_file
    assert alone.shown == ADDRESS.shown
    assert alone.async_url.database == "file:/data/a%20b/metadata.db"
    assert dict(alone.async_url.query) == {"vfs": "unix-excl", "uri": "true"}
    assert alone.sync_url.query == alone.async_url.query
