"""Migrations on SQLite and a real PostgreSQL: the right schema, back again, and one at a time."""

import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, inspect, text

from app.cluster import migrate
from app.cluster.metadata.schema.migration import _ADVISORY_LOCK, downgrade
from app.cluster.metadata.schema.schema import SchemaMismatch, alembic_config, current_revision
from app.cluster.metadata.schema.tables import metadata
from app.domain.errors import MetadataUnavailable
from tests.support.metadata.databases import (
    Databases,
    PostgresDatabases,
    SqliteDatabases,
    file_of,
    sync_engine,
)
from tests.support.metadata.metadata_failures import opened
from tests.support.metadata.postgres import PostgresServer

ROOT = Path(__file__).parents[2]
MIGRATE = "import sys; from app.cluster import migrate; migrate(sys.argv[1])"
NO_TABLES = {"alembic_version"}


class Opened:
    """A database seen from outside. Engines are disposed at the end of the test."""

    def __init__(self) -> None:
        self._engines: list[Engine] = []

    def __call__(self, url: str) -> Engine:
        self._engines.append(sync_engine(url))
        return self._engines[-1]

    def close(self) -> None:
        for engine in self._engines:
            engine.dispose()


@pytest.fixture
def look() -> Iterator[Opened]:
    opened = Opened()
    yield opened
    opened.close()


def tables(engine: Engine) -> set[str]:
    return set(inspect(engine).get_table_names())


def schema(connection: Connection) -> dict[str, Any]:
    """Everything that the database itself says of its tables, except alembic's own."""
    inspector = inspect(connection)

    def sorted_by_name(items: Any) -> list[Any]:
        return sorted(items, key=lambda item: str(item["name"]))

    return {
        name: {
            "columns": [
                {**column, "type": repr(column["type"])} for column in inspector.get_columns(name)
            ],
            "primary_key": inspector.get_pk_constraint(name),
            "foreign_keys": sorted_by_name(inspector.get_foreign_keys(name)),
            "checks": sorted_by_name(inspector.get_check_constraints(name)),
            "uniques": sorted_by_name(inspector.get_unique_constraints(name)),
            "indexes": sorted_by_name(inspector.get_indexes(name)),
        }
        for name in sorted(set(inspector.get_table_names()) - {"alembic_version"})
    }


def test_migrating_gives_the_declared_tables(databases: Databases, look: Opened) -> None:
    url = databases.empty()
    head = migrate(url).after
    assert head == ScriptDirectory.from_config(alembic_config()).get_current_head()
    with look(url).connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_server_default": True})
        assert compare_metadata(context, metadata) == []
        assert current_revision(connection) == head


def test_migrated_and_created_databases_are_equal_in_every_constraint(
    databases: Databases, look: Opened
) -> None:
    migrated, created = databases.empty(), databases.empty()
    migrate(migrated)
    metadata.create_all(look(created))
    with look(migrated).connect() as one, look(created).connect() as two:
        assert schema(one) == schema(two)
        assert set(schema(one)) == set(metadata.tables)


def test_the_comparison_notices_a_difference(databases: Databases, look: Opened) -> None:
    url = databases.migrated()
    with look(url).begin() as connection:
        connection.execute(text("ALTER TABLE topics ADD COLUMN colour VARCHAR(9)"))
        connection.execute(text("DROP INDEX ix_committed_offsets_topic"))
        context = MigrationContext.configure(connection)
        kinds = {difference[0] for difference in compare_metadata(context, metadata)}
    assert kinds == {"remove_column", "add_index"}


def test_every_constraint_has_a_name(databases: Databases, look: Opened) -> None:
    with look(databases.migrated()).connect() as connection:
        for table in schema(connection).values():
            named = [table["primary_key"], *table["foreign_keys"], *table["checks"]]
            assert all(constraint["name"] for constraint in named)


def test_migrating_again_changes_nothing(databases: Databases, look: Opened) -> None:
    url = databases.empty()
    migrate(url)
    with look(url).begin() as connection:
        connection.execute(text("UPDATE metadata_version SET version = 7"))
    migrate(url)
    with look(url).connect() as connection:
        assert connection.scalar(text("SELECT version FROM metadata_version")) == 7


def test_going_back_to_nothing_and_forth_again(databases: Databases, look: Opened) -> None:
    url = databases.empty()
    migrate(url)
    downgrade(url, "base")
    assert tables(look(url)) == NO_TABLES
    migrate(url)
    assert tables(look(url)) == NO_TABLES | set(metadata.tables)


def test_a_migration_that_fails_leaves_nothing_behind(databases: Databases, look: Opened) -> None:
    url = databases.empty()
    with look(url).begin() as connection:
        # In the way of the last table, so that all others have been made when it fails.
        connection.execute(text("CREATE TABLE metadata_version (id INTEGER)"))
    with pytest.raises(MetadataUnavailable) as failed:
        migrate(url)
    assert "metadata_version" in (failed.value.for_log or "")
    assert tables(look(url)) == {"metadata_version"}


def test_a_newer_schema_is_refused(databases: Databases, look: Opened) -> None:
    url = databases.migrated()
    with look(url).begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(SchemaMismatch, match="9999") as caught:
        migrate(url)
    assert "upgrade this node" in str(caught.value.hint)


def test_processes_that_start_together_migrate_once(databases: Databases, look: Opened) -> None:
    url = databases.empty()
    processes = [
        subprocess.Popen([sys.executable, "-c", MIGRATE, url], cwd=ROOT, stderr=subprocess.PIPE)
        for _ in range(3)
    ]
    endings = [(process.communicate(timeout=60)[1], process.returncode) for process in processes]
    assert endings == [(b"", 0)] * 3
    with look(url).connect() as connection:
        assert connection.execute(text("SELECT version FROM metadata_version")).all() == [(0,)]


@pytest.mark.postgres
def test_on_postgresql_a_second_migration_waits_for_the_first(
    postgres_databases: PostgresDatabases, look: Opened
) -> None:
    url = postgres_databases.empty()
    engine = look(url)
    waiting = text("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
    with engine.begin() as first:
        first.execute(text(f"SELECT pg_advisory_xact_lock({_ADVISORY_LOCK})"))
        second = threading.Thread(target=migrate, args=(url,))
        second.start()
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as watcher:
            deadline = time.monotonic() + 30
            while not watcher.scalar(waiting):
                assert second.is_alive(), "the migration did not wait"
                assert time.monotonic() < deadline
        assert tables(engine) == set()
    second.join(timeout=30)
    assert tables(engine) == NO_TABLES | set(metadata.tables)


def test_on_sqlite_the_write_lock_is_taken_before_the_first_look(
    sqlite_databases: SqliteDatabases, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = sqlite_databases.empty()
    refused: list[str] = []

    def look_while_another_begins(connection: Connection) -> str | None:
        other = sqlite3.connect(file_of(url), timeout=0, isolation_level=None)
        with closing(other), pytest.raises(sqlite3.OperationalError, match="locked") as caught:
            other.execute("BEGIN IMMEDIATE")
        refused.append(str(caught.value))
        return current_revision(connection)

    monkeypatch.setattr(
        "app.cluster.metadata.schema.migration.current_revision", look_while_another_begins
    )
    migrate(url)
    assert refused


def test_threads_of_one_process_take_turns(databases: Databases, look: Opened) -> None:
    urls = [databases.empty(), databases.empty()]
    threads = [threading.Thread(target=migrate, args=(url,)) for url in urls * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    for url in urls:
        assert tables(look(url)) == NO_TABLES | set(metadata.tables)


@pytest.mark.postgres
@pytest.mark.anyio
async def test_a_database_without_an_encoding_keeps_text(postgres_server: PostgresServer) -> None:
    """What `initdb` makes under the locale C. The driver would give bytes in place of text."""
    url = postgres_server.new_database(encoding="SQL_ASCII")
    assert migrate(url).before is None
    async with opened(url) as opened_metadata:
        made = await opened_metadata.ensure_topic("orders")
    async with opened(url) as opened_metadata:
        assert opened_metadata.snapshot.topics == {"orders": made}
