"""What an operator reads when the metadata database fails, in every way we could make it fail."""

import asyncio
import sqlite3
import time
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import make_url, text
from sqlalchemy.exc import SQLAlchemyError

from app.cluster import ClusterConfig, CommittedOffset, Metadata, migrate
from app.cluster.schema import SchemaMismatch
from app.domain.errors import MetadataUnavailable
from app.domain.positions import QueueOffset
from app.domain.settings import TopicSettings
from tests.support.clock import FakeClock
from tests.support.databases import (
    Databases,
    PostgresDatabases,
    SqliteDatabases,
    sync_engine,
)
from tests.support.postgres import PASSWORD, PostgresServer

pytestmark = pytest.mark.anyio

LOCK_WAIT_MS = 100


@asynccontextmanager
async def opened(url: str, **settings: int) -> AsyncIterator[Metadata]:
    metadata = await Metadata.open(ClusterConfig(url, **settings), FakeClock())
    try:
        yield metadata
    finally:
        await metadata.close()


async def failure_of_opening(url: str) -> MetadataUnavailable:
    with pytest.raises(MetadataUnavailable) as caught:
        async with opened(url):
            pass
    return caught.value


def failure_of_migrating(url: str) -> MetadataUnavailable:
    with pytest.raises(MetadataUnavailable) as caught:
        migrate(url)
    return caught.value


async def failure_of_both(url: str) -> list[MetadataUnavailable]:
    return [await failure_of_opening(url), failure_of_migrating(url)]


def execute(url: str, statement: str) -> None:
    engine = sync_engine(url)
    with engine.begin() as connection:
        connection.execute(text(statement))
    engine.dispose()


def file_of(url: str) -> Path:
    database = make_url(url).database
    assert database
    return Path(database)


def overwrite(path: Path, start: int, count: int) -> None:
    data = bytearray(path.read_bytes())
    assert len(data) >= start + count
    data[start : start + count] = b"\xa5" * count
    path.write_bytes(data)


class TestSchema:
    async def test_a_database_that_was_never_migrated(self, databases: Databases) -> None:
        url = databases.empty()
        error = await failure_of_opening(url)
        assert isinstance(error, SchemaMismatch)
        assert "curlew migrate" in str(error.hint)
        assert not error.retryable

    async def test_a_missing_file_is_not_made_by_opening(
        self, sqlite_databases: SqliteDatabases
    ) -> None:
        url = sqlite_databases.empty()
        error = await failure_of_opening(url)
        assert error.detail == f"SQLite file {file_of(url)} does not exist"
        assert not file_of(url).exists()

    async def test_an_empty_file(self, sqlite_databases: SqliteDatabases) -> None:
        url = sqlite_databases.empty()
        file_of(url).touch()
        assert "no tables of Curlew" in (await failure_of_opening(url)).detail

    async def test_a_newer_schema(self, databases: Databases) -> None:
        url = databases.migrated()
        execute(url, "UPDATE alembic_version SET version_num = '9999'")
        error = await failure_of_opening(url)
        assert "9999" in error.detail
        assert "upgrade this node" in str(error.hint)

    async def test_a_lost_table(self, databases: Databases) -> None:
        url = databases.migrated()
        execute(url, "DROP TABLE committed_offsets")
        async with opened(url) as metadata:
            with pytest.raises(MetadataUnavailable, match="has lost a table of Curlew") as caught:
                await metadata.load_offsets()
        assert isinstance(caught.value.__cause__, SQLAlchemyError)
        # Not "migrate": the database says that it has the newest schema.
        assert "restore it from a backup" in str(caught.value.hint)

    async def test_a_lost_version_row(self, databases: Databases) -> None:
        url = databases.migrated()
        execute(url, "DELETE FROM metadata_version")
        assert "no usable answer" in (await failure_of_opening(url)).detail


class TestSqliteFile:
    async def test_a_damaged_header(self, sqlite_databases: SqliteDatabases) -> None:
        url = sqlite_databases.migrated()
        overwrite(file_of(url), 0, 100)
        for error in await failure_of_both(url):
            assert error.detail == f"SQLite file {file_of(url)} is damaged: file is not a database"
            assert "restore it from a backup" in str(error.hint)
            assert isinstance(error.__cause__, SQLAlchemyError)

    async def test_a_file_that_is_something_else(self, tmp_path: Path) -> None:
        path = tmp_path / "notes.txt"
        path.write_text("not a database\n" * 99)
        for error in await failure_of_both(f"sqlite:///{path}"):
            assert "is damaged: file is not a database" in error.detail
        assert path.read_text() == "not a database\n" * 99

    async def test_a_damaged_page_is_found_when_the_node_opens(
        self, sqlite_databases: SqliteDatabases
    ) -> None:
        url = sqlite_databases.migrated()
        overwrite(file_of(url), 4096 * 3, 4096)
        error = await failure_of_opening(url)
        assert "is damaged" in error.detail
        assert "restore it from a backup" in str(error.hint)

    async def test_damage_while_the_node_runs(self, sqlite_databases: SqliteDatabases) -> None:
        url = sqlite_databases.migrated()
        async with opened(url) as metadata:
            await metadata.ensure_topic("orders")
            await metadata.ensure_group("billing")
            for start in range(0, 60_000, 10_000):
                rows = (
                    CommittedOffset("billing", "orders", queue_id, QueueOffset(1))
                    for queue_id in range(start, start + 10_000)
                )
                await metadata.commit_offsets(list(rows))
        async with opened(url) as metadata:
            # More than SQLite keeps in memory, so that it must read some of it again.
            pages = file_of(url).stat().st_size // 4096
            overwrite(file_of(url), 4096 * 20, 4096 * (pages - 20))
            with pytest.raises(MetadataUnavailable, match="is damaged: ") as caught:
                await metadata.load_offsets()
            assert isinstance(caught.value.__cause__, SQLAlchemyError)

    async def test_a_directory_that_cannot_be_written(self, tmp_path: Path) -> None:
        # Root may write everywhere, but not below a regular file.
        (tmp_path / "file").touch()
        url = f"sqlite:///{tmp_path}/file/metadata.db"
        error = failure_of_migrating(url)
        assert error.detail == (
            f"SQLite file {tmp_path}/file/metadata.db cannot be opened: "
            "unable to open database file"
        )
        assert "directory must exist" in str(error.hint)
        assert "does not exist" in (await failure_of_opening(url)).detail

    async def test_a_lock_held_by_another_program(self, sqlite_databases: SqliteDatabases) -> None:
        url = sqlite_databases.migrated()
        async with opened(url, lock_wait_ms=LOCK_WAIT_MS) as metadata:
            with closing(sqlite3.connect(file_of(url), isolation_level=None)) as holder:
                holder.execute("BEGIN IMMEDIATE")
                with pytest.raises(MetadataUnavailable, match="is locked by another") as caught:
                    await metadata.ensure_topic("orders")
                assert caught.value.retryable
                assert caught.value.retry_after_s
                assert not await metadata.refresh(), "reading needs no lock"
                holder.execute("ROLLBACK")
            assert metadata.snapshot.topics == {}
            await metadata.ensure_topic("orders")

    async def test_waiting_for_the_connection_that_writes_has_an_end(
        self, sqlite_databases: SqliteDatabases
    ) -> None:
        url = sqlite_databases.migrated()
        async with opened(url, lock_wait_ms=3_000, connect_s_max=1) as metadata:
            with closing(sqlite3.connect(file_of(url), isolation_level=None)) as holder:
                holder.execute("BEGIN IMMEDIATE")
                first = asyncio.ensure_future(metadata.ensure_topic("a"))
                await asyncio.sleep(0)
                with pytest.raises(MetadataUnavailable, match="is busy with other requests"):
                    await metadata.ensure_topic("b")
                holder.execute("ROLLBACK")
            assert (await first).name == "a"

    async def test_a_database_that_refuses_writes(
        self, sqlite_databases: SqliteDatabases
    ) -> None:
        url = sqlite_databases.migrated()
        async with opened(url) as metadata:
            async with metadata._database._writer.connect() as connection:
                await connection.exec_driver_sql("PRAGMA query_only = ON")
            with pytest.raises(MetadataUnavailable, match="cannot be written"):
                await metadata.ensure_topic("orders")


@pytest.mark.postgres
class TestPostgresServer:
    def shown(self, error: MetadataUnavailable) -> str:
        """All that may reach a log: the sentence, the hint and the whole chain of causes."""
        return f"{error.detail} {error.hint} " + "".join(traceback.format_exception(error))

    async def test_a_server_that_is_not_there(self, own_postgres_server: PostgresServer) -> None:
        url = own_postgres_server.url("curlew")
        own_postgres_server.stop()
        for error in await failure_of_both(url):
            where = f"PostgreSQL at 127.0.0.1:{own_postgres_server.port}, database 'curlew'"
            assert error.detail.startswith(f"{where} cannot be reached: ")
            assert "Connection refused" in error.detail
            assert "\n" not in error.detail
            assert "host, port, user and password" in str(error.hint)
            assert isinstance(error.__cause__, SQLAlchemyError)
            assert PASSWORD not in self.shown(error)

    async def test_a_server_that_stops_and_comes_back(
        self, own_postgres_server: PostgresServer
    ) -> None:
        url = PostgresDatabases(own_postgres_server).migrated()
        async with opened(url) as metadata:
            before = (await metadata.ensure_topic("orders"), metadata.snapshot)
            own_postgres_server.stop()
            calls: list[Callable[[], object]] = [
                metadata.refresh,
                metadata.load_offsets,
                lambda: metadata.put_topic("b", TopicSettings()),
                lambda: metadata.secret("a"),
            ]
            for call in calls:
                with pytest.raises(MetadataUnavailable) as caught:
                    await call()  # type: ignore[misc]
                assert caught.value.__cause__
                assert PASSWORD not in self.shown(caught.value)
            assert metadata.snapshot is before[1], "the data plane goes on with what it knows"
            own_postgres_server.start()
            assert not await metadata.refresh()
            assert (await metadata.put_topic("b", TopicSettings()))[1]

    async def test_connections_that_the_server_closed_are_replaced(
        self, postgres_databases: PostgresDatabases
    ) -> None:
        url = postgres_databases.migrated()
        async with opened(url) as metadata:
            await asyncio.gather(*(metadata.list_nodes() for _ in range(5)))
            execute(
                url,
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()",
            )
            await metadata.ensure_topic("orders")

    async def test_a_wrong_password(self, postgres_server: PostgresServer) -> None:
        url = postgres_server.url("postgres", password="wrong-but-secret")
        for error in await failure_of_both(url):
            assert "password authentication failed" in error.detail
            assert "wrong-but-secret" not in self.shown(error)

    async def test_a_database_that_does_not_exist(self, postgres_server: PostgresServer) -> None:
        for error in await failure_of_both(postgres_server.url("nowhere")):
            assert 'database "nowhere" does not exist' in error.detail

    async def test_a_lock_held_by_another_program(
        self, postgres_databases: PostgresDatabases
    ) -> None:
        url = postgres_databases.migrated()
        async with opened(url, lock_wait_ms=LOCK_WAIT_MS) as metadata:
            with psycopg.connect(url) as holder:
                holder.execute("SELECT * FROM metadata_version FOR UPDATE")
                with pytest.raises(MetadataUnavailable, match="holds a lock for too long"):
                    await metadata.ensure_topic("orders")
            await metadata.ensure_topic("orders")

    async def test_a_statement_that_takes_too_long(
        self, postgres_databases: PostgresDatabases
    ) -> None:
        url = postgres_databases.migrated()
        async with opened(url, statement_ms_max=50, lock_wait_ms=60_000) as metadata:
            with psycopg.connect(url) as holder:
                holder.execute("SELECT * FROM metadata_version FOR UPDATE")
                started = time.monotonic()
                with pytest.raises(MetadataUnavailable, match="took too long"):
                    await metadata.ensure_topic("orders")
                assert time.monotonic() - started < 30

    async def test_a_user_without_rights(self, postgres_databases: PostgresDatabases) -> None:
        url = postgres_databases.migrated()
        role = f"reader_{make_url(url).database}"
        execute(url, f"CREATE ROLE {role} LOGIN PASSWORD 'x'")
        error = await failure_of_opening(
            make_url(url).set(username=role, password="x").render_as_string(hide_password=False)
        )
        assert "denies this user the right" in error.detail

    async def test_options_of_the_url_are_kept(self, postgres_databases: PostgresDatabases) -> None:
        url = postgres_databases.migrated() + "?options=-c%20default_transaction_read_only%3Don"
        async with opened(url) as metadata:
            with pytest.raises(MetadataUnavailable, match="is read-only"):
                await metadata.ensure_topic("orders")
