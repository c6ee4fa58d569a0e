"""Driver failures in, one domain error out: `MetadataUnavailable` with a sentence and a hint.

Every way in which a database can fail ends here, so that no other module knows a driver's error
classes. The driver's own error stays in `__cause__`. Nothing here ever shows a password.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import psycopg
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from app.cluster.metadata.database.address import DatabaseAddress
from app.domain.errors import MetadataUnavailable

RETRY_AFTER_S: Final = 1

MIGRATE_HINT: Final = "run `curlew migrate` with the same database URL"
_RESTORE_HINT: Final = (
    "restore it from a backup, or move it aside and start with an empty one; messages are not in it"
)
_REACH_HINT: Final = "see that the server runs, and check host, port, user and password of the URL"

_SQLITE: Final = (
    # (names of SQLite result codes, what happened, what to do)
    ("SQLITE_BUSY SQLITE_LOCKED", "is locked by another writer", "try again"),
    ("SQLITE_CORRUPT SQLITE_NOTADB", "is damaged", _RESTORE_HINT),
    (
        "SQLITE_CANTOPEN SQLITE_PERM SQLITE_AUTH",
        "cannot be opened",
        "the directory must exist and this user must be able to write there",
    ),
    ("SQLITE_READONLY", "cannot be written", "give this user the right to write the file"),
    ("SQLITE_FULL", "cannot grow: the disk is full", "make room on the disk"),
    ("SQLITE_IOERR", "cannot be read or written", "look for disk errors in the system log"),
)

_FULL: Final = ("SQLITE_FULL", "SQLITE_IOERR_SHM", "SQLITE_IOERR_WRITE", "53100")
"""Codes of SQLite and PostgreSQL for a disk without room. The second: a file that SQLite shares
between connections cannot be made."""

_POSTGRES: Final = {
    # SQLSTATE, or its first two characters for a whole class
    "42P01": ("has lost a table of Curlew", _RESTORE_HINT),
    "42501": ("denies this user the right", "grant the user all rights on Curlew's tables"),
    "25006": ("is read-only", "give the address of the primary server"),
    "53100": ("has no disk space left", "make room on the database server"),
    "53300": ("has too many connections", "raise max_connections of the server"),
    "55P03": ("holds a lock for too long", "try again"),
    "57014": ("took too long and was interrupted", "try again"),
    "40": ("undid the transaction because of another one", "try again"),
    "57": ("is shutting down or starting up", "try again when it is up"),
    "XX": ("is damaged or failed internally", "read the log of the database server"),
}


class DatabaseFull(MetadataUnavailable):
    """There is no room for a change; what needs none works."""


@contextmanager
def translated(address: DatabaseAddress) -> Iterator[None]:
    """Turn every failure of the driver inside the block into `MetadataUnavailable`."""
    try:
        yield
    except (SQLAlchemyError, sqlite3.Error, psycopg.Error, OSError) as error:
        raise unavailable(error, address) from error


def unavailable(error: Exception, address: DatabaseAddress) -> MetadataUnavailable:
    """The domain error for a driver's error. The caller raises it `from error`."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    what, hint = _explain(cause)
    reason = address.without_secrets(_first_line(cause))
    kind = DatabaseFull if _code_of(cause).startswith(_FULL) else MetadataUnavailable
    failure = kind(f"{address.public} {what}", hint=hint, retry_after_s=RETRY_AFTER_S)
    failure.for_log = f"{address.shown} {what}: {reason}"
    return failure


def _code_of(cause: BaseException) -> str:
    """SQLite's name of a result, or PostgreSQL's SQLSTATE; else nothing."""
    if isinstance(cause, psycopg.Error):
        return cause.sqlstate or ""
    return str(getattr(cause, "sqlite_errorname", ""))


def damaged(address: DatabaseAddress, finding: str) -> MetadataUnavailable:
    """The error for a file that SQLite's own check finds wrong."""
    failure = MetadataUnavailable(f"{address.public} is damaged", hint=_RESTORE_HINT)
    failure.for_log = f"{address.shown} is damaged: {finding}"
    return failure


def _explain(cause: BaseException) -> tuple[str, str]:
    if isinstance(cause, sqlite3.Error):
        return _explain_sqlite(cause)
    if isinstance(cause, psycopg.Error) and cause.sqlstate:
        known = _POSTGRES.get(cause.sqlstate) or _POSTGRES.get(cause.sqlstate[:2])
        return known or ("refused a statement", "read the log of the database server")
    if isinstance(cause, psycopg.OperationalError):
        return "cannot be reached", _REACH_HINT
    if isinstance(cause, PoolTimeout):
        return "is busy with other requests of this node", "try again"
    return "gave no usable answer", "try again; when it lasts, read the log of this node"


def _explain_sqlite(cause: sqlite3.Error) -> tuple[str, str]:
    # Extended codes ("SQLITE_IOERR_READ") begin with the name of the primary one.
    code = getattr(cause, "sqlite_errorname", "")
    for names, what, hint in _SQLITE:
        if any(code.startswith(name) for name in names.split()):
            return what, hint
    if "no such table" in str(cause):
        return "has lost a table of Curlew", _RESTORE_HINT
    return "refused a statement", "see whether another program changed the file"


def _first_line(cause: BaseException) -> str:
    lines = str(cause).strip().splitlines()
    return lines[0].rstrip(":") if lines else type(cause).__name__
