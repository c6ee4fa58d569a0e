"""What an operator reads when the metadata database fails, in every way we could make it fail."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy.exc import SQLAlchemyError

from app.cluster import CommittedOffset
from app.cluster.metadata.schema.schema import SchemaMismatch
from app.domain.errors import MetadataUnavailable
from app.domain.positions import QueueOffset
from tests.support.metadata.databases import (
    Databases,
    SqliteDatabases,
    file_of,
)
from tests.support.metadata.metadata_failures import (
    LOCK_WAIT_MS,
    execute,
    failure_of_both,
    failure_of_migrating,
    failure_of_opening,
    opened,
)

pytestmark = pytest.mark.anyio


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
            assert error.detail == "the metadata database (SQLite) is damaged"
            assert error.for_log == f"SQLite file {file_of(url)} is damaged: file is not a database"
            assert "restore it from a backup" in str(error.hint)
            assert isinstance(error.__cause__, SQLAlchemyError)

    async def test_a_file_that_is_something_else(self, tmp_path: Path) -> None:
        path = tmp_path / "notes.txt"
        path.write_text("not a database\n" * 99)
        for error in await failure_of_both(f"sqlite:///{path}"):
            assert error.detail == "the metadata database (SQLite) is damaged"
            assert "is damaged: file is not a database" in str(error.for_log)
        assert path.read_text() == "not a database\n" * 99

    async def test_a_damaged_page_is_found_when_the_node_opens(
        self, sqlite_databases: SqliteDatabases
    ) -> None:
        url = sqlite_databases.migrated()
        # A table that opening does not read otherwise.
        with closing(sqlite3.connect(file_of(url))) as connection:
            query = "SELECT rootpage FROM sqlite_master WHERE name = 'nodes'"
            (page,) = connection.execute(query).fetchone()
        overwrite(file_of(url), 4096 * (page - 1), 4096)
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
            with pytest.raises(MetadataUnavailable, match="is damaged") as caught:
                await metadata.load_offsets()
            assert isinstance(caught.value.__cause__, SQLAlchemyError)

    async def test_a_directory_that_cannot_be_written(self, tmp_path: Path) -> None:
        # Root may write everywhere, but not below a regular file.
        (tmp_path / "file").touch()
        url = f"sqlite:///{tmp_path}/file/metadata.db"
        error = failure_of_migrating(url)
        assert error.detail == "the metadata database (SQLite) cannot be opened"
        assert error.for_log == (
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
        async with opened(url, lock_wait_ms=60_000, connect_s_max=1) as metadata:
            with closing(sqlite3.connect(file_of(url), isolation_level=None)) as holder:
                holder.execute("BEGIN IMMEDIATE")
                first = asyncio.ensure_future(metadata.ensure_topic("a"))
                await asyncio.sleep(0)
                with pytest.raises(MetadataUnavailable, match="is busy with other requests"):
                    await metadata.ensure_topic("b")
                holder.execute("ROLLBACK")
            assert (await first).name == "a"

    async def test_a_database_that_refuses_writes(self, sqlite_databases: SqliteDatabases) -> None:
        url = sqlite_databases.migrated()
        async with opened(url) as metadata:
            async with metadata._database._writer.connect() as connection:
                await connection.exec_driver_sql("PRAGMA query_only = ON")
            with pytest.raises(MetadataUnavailable, match="cannot be written"):
                await metadata.ensure_topic("orders")
