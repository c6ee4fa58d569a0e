"""The address of the metadata database: what an operator writes, and what the drivers need.

Pure. One address gives a URL for the async engine, one for the sync engine that migrates, and a
description that may be shown to anyone: it never holds the password.
"""

from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Final, Self
from urllib.parse import quote

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from app.domain.errors import MetadataUnavailable

_FORMS: Final = "use sqlite:///path/to/file or postgresql://user:password@host:port/database"


class Engine(StrEnum):
    """The database engines that Curlew speaks; the values are SQLAlchemy's dialect names."""

    SQLITE = "sqlite"
    POSTGRESQL = "postgresql"


_DRIVERS: Final = {
    "sqlite": Engine.SQLITE,
    "sqlite+pysqlite": Engine.SQLITE,
    "sqlite+aiosqlite": Engine.SQLITE,
    "postgres": Engine.POSTGRESQL,
    "postgresql": Engine.POSTGRESQL,
    "postgresql+psycopg": Engine.POSTGRESQL,
}


class BadDatabaseUrl(MetadataUnavailable):
    """A database URL that can never work; the node refuses to start with it."""

    title = "The database URL is not valid"
    retryable = False


@dataclass(frozen=True, slots=True)
class DatabaseAddress:
    """A parsed database URL."""

    engine: Engine
    url: URL = field(repr=False)
    is_alone: bool = False
    """SQLite: this process has the file for itself and keeps in memory what connections share,
    which is otherwise a file of 32 KiB beside it: a full disk has no room for that."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raise `BadDatabaseUrl`, which never quotes `text`: a password may be in it."""
        try:
            url = make_url(text)
        except (ArgumentError, ValueError):
            # Not chained: the parser's message may quote a part of the URL.
            raise BadDatabaseUrl("the database URL cannot be parsed", hint=_FORMS) from None
        engine = _DRIVERS.get(url.drivername)
        if engine is None:
            raise BadDatabaseUrl(
                f"the database URL begins with {url.drivername!r}, which is not supported",
                hint=_FORMS,
            )
        if engine is Engine.SQLITE and url.database in {None, "", ":memory:"}:
            raise BadDatabaseUrl("the SQLite URL names no file", hint=_FORMS)
        return cls(engine, url)

    @property
    def async_url(self) -> URL:
        if self.engine is Engine.SQLITE:
            return self._sqlite_url("sqlite+aiosqlite")
        return self.url.set(drivername="postgresql+psycopg")

    @property
    def sync_url(self) -> URL:
        if self.engine is Engine.SQLITE:
            return self._sqlite_url("sqlite+pysqlite")
        return self.url.set(drivername="postgresql+psycopg")

    def _sqlite_url(self, driver: str) -> URL:
        url = self.url.set(drivername=driver)
        if not self.is_alone:
            return url
        path = quote(str(self.sqlite_file))
        query = {**url.query, "vfs": "unix-excl", "uri": "true"}
        return url.set(database=f"file:{path}", query=query)

    def alone(self) -> "DatabaseAddress":
        """The same file, for nobody but this process."""
        return replace(self, is_alone=True)

    @property
    def sqlite_file(self) -> Path | None:
        if self.engine is not Engine.SQLITE:
            return None
        assert self.url.database
        return Path(self.url.database)

    @property
    def public(self) -> str:
        """For clients: neither a path nor a host."""
        kind = "SQLite" if self.engine is Engine.SQLITE else "PostgreSQL"
        return f"the metadata database ({kind})"

    @property
    def shown(self) -> str:
        """For the node's log and its operator. Built from harmless parts, not by masking."""
        if self.engine is Engine.SQLITE:
            return f"SQLite file {self.url.database}"
        host = self.url.host or self.url.query.get("host") or "localhost"
        return f"PostgreSQL at {host}:{self.url.port or 5432}, database {self.url.database!r}"

    def without_secrets(self, text: str) -> str:
        """`text` with the password blotted out, should a driver ever quote it."""
        passwords = (self.url.password, self.url.query.get("password"))
        for password in passwords:
            if isinstance(password, str) and password:
                text = text.replace(password, "***")
        return text


def sqlite_file_of(url: str) -> Path | None:
    """The file of a SQLite database; None for another engine. Raises `BadDatabaseUrl`."""
    return DatabaseAddress.parse(url).sqlite_file


def shown_database(url: str) -> str:
    """The database as an operator is told of it: no password. Raises `BadDatabaseUrl`."""
    return DatabaseAddress.parse(url).shown
