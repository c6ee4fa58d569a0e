"""Metadata databases for tests: SQLite files and databases in the real PostgreSQL.

Migrating takes a moment, so it is done once per engine and session; each test gets a copy.
"""

import shutil
from pathlib import Path
from typing import Literal, Protocol

import pytest
from sqlalchemy import Engine, create_engine, make_url

from app.cluster import migrate
from tests.support.metadata.postgres import PostgresServer

EngineName = Literal["sqlite", "postgresql"]


class Databases(Protocol):
    """Makes databases of one engine, and talks to them behind the back of the tested code."""

    engine: EngineName

    def empty(self) -> str:
        """The URL of a new database without tables."""
        ...

    def migrated(self) -> str:
        """The URL of a new database with the newest schema."""
        ...


class SqliteDatabases:
    engine: EngineName = "sqlite"

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._made = 0
        self._template: Path | None = None

    def empty(self) -> str:
        return f"sqlite:///{self._next_path()}"

    def migrated(self) -> str:
        if self._template is None:
            self._template = self._directory / "template.db"
            migrate(f"sqlite:///{self._template}")
        path = self._next_path()
        shutil.copy(self._template, path)
        return f"sqlite:///{path}"

    def _next_path(self) -> Path:
        self._made += 1
        return self._directory / f"{self._made}.db"


class PostgresDatabases:
    engine: EngineName = "postgresql"

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._template: str | None = None

    def empty(self) -> str:
        return self._server.new_database()

    def migrated(self) -> str:
        if self._template is None:
            url = self._server.new_database()
            migrate(url)
            self._template = make_url(url).database
        assert self._template
        return self._server.new_database(template=self._template)


@pytest.fixture(scope="session")
def sqlite_databases(tmp_path_factory: pytest.TempPathFactory) -> SqliteDatabases:
    return SqliteDatabases(tmp_path_factory.mktemp("sqlite"))


@pytest.fixture(scope="session")
def postgres_databases(postgres_server: PostgresServer) -> PostgresDatabases:
    return PostgresDatabases(postgres_server)


@pytest.fixture(
    params=["sqlite_databases", pytest.param("postgres_databases", marks=pytest.mark.postgres)],
    ids=["sqlite", "postgresql"],
)
def databases(request: pytest.FixtureRequest) -> Databases:
    """Each test that takes this runs on both engines."""
    made: Databases = request.getfixturevalue(request.param)
    return made


_DRIVERS = {"sqlite": "sqlite+pysqlite", "postgresql": "postgresql+psycopg"}


def sync_engine(url: str) -> Engine:
    """A plain engine for looking into a database. The caller disposes it."""
    parsed = make_url(url)
    return create_engine(parsed.set(drivername=_DRIVERS[parsed.drivername]))


def file_of(url: str) -> Path:
    """The file that a SQLite URL names."""
    database = make_url(url).database
    assert database
    return Path(database)
